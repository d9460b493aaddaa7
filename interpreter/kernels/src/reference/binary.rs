//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR,
//! RIGHT_SHIFT.

use std::marker::PhantomData;

use delegraph_core::error::InvalidData;
use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::Activation;
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};
use half::{bf16, f16};

use super::binary_quantized;
use crate::common::elementwise::{checked_divisor, elementwise, nest, on_types};
use crate::common::number::{Integer, Number};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::weights::clamp_bounds;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::ADD, prepared(add), 1..=6)
        .add_builtin(BuiltinOp::SUB, prepared(sub), 1..=5)
        .add_builtin(BuiltinOp::MUL, prepared(mul), 1..=8)
        .add_builtin(BuiltinOp::DIV, prepared(div), 1..=2)
        .add_builtin(BuiltinOp::MAXIMUM, prepared(maximum), 1..=4)
        .add_builtin(BuiltinOp::MINIMUM, prepared(minimum), 1..=4)
        .add_builtin(BuiltinOp::POW, prepared(pow), 1)
        .add_builtin(BuiltinOp::SQUARED_DIFFERENCE, prepared(squared_difference), 1..=2)
        .add_builtin(BuiltinOp::FLOOR_DIV, prepared(floor_div), 1..=3)
        .add_builtin(BuiltinOp::FLOOR_MOD, prepared(floor_mod), 1..=2)
        .add_builtin(BuiltinOp::ATAN2, prepared(atan2), 1)
        .add_builtin(BuiltinOp::BITWISE_XOR, prepared(bitwise_xor), 1)
        .add_builtin(BuiltinOp::RIGHT_SHIFT, prepared(right_shift), 1);
}

fn add(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<AddParams>()?;
    let activation = p.fused_activation_function;
    match cx.input(0)?.ty() {
        TensorType::Float32 => fused(cx, activation, f32::plus),
        TensorType::Float16 => fused(cx, activation, f16::plus),
        TensorType::Int32 => fused(cx, activation, i32::plus),
        TensorType::Int64 => fused(cx, activation, i64::plus),
        TensorType::Int16 if cx.output(0)?.quantization().is_none() => fused(cx, activation, i16::plus),
        _ => binary_quantized::add(cx, activation, p.pot_scale_int16),
    }
}

fn sub(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<SubParams>()?;
    let activation = p.fused_activation_function;
    match cx.input(0)?.ty() {
        TensorType::Float32 => fused(cx, activation, f32::minus),
        TensorType::Int32 => fused(cx, activation, i32::minus),
        TensorType::Int64 => fused(cx, activation, i64::minus),
        _ => binary_quantized::sub(cx, activation, p.pot_scale_int16),
    }
}

fn mul(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let activation = cx.params::<MulParams>()?.fused_activation_function;
    match cx.input(0)?.ty() {
        TensorType::Float32 => fused(cx, activation, f32::times),
        TensorType::Float16 => fused(cx, activation, f16::times),
        TensorType::Int32 => fused(cx, activation, i32::times),
        TensorType::UInt32 => fused(cx, activation, u32::times),
        TensorType::Int64 => fused(cx, activation, i64::times),
        TensorType::Int16 if cx.output(0)?.quantization().is_none() => fused(cx, activation, i16::times),
        TensorType::Complex64 if activation == Activation::None => {
            elementwise(cx, |[a, b]: [f32; 2], [c, d]: [f32; 2]| [a * c - b * d, a * d + b * c])
        }
        _ => binary_quantized::mul(cx, activation),
    }
}

fn div(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let activation = cx.params::<DivParams>()?.fused_activation_function;
    match cx.input(0)?.ty() {
        TensorType::Float32 => fused(cx, activation, |a: f32, b| a / b),
        TensorType::Int32 => {
            let bounds = bounds::<i32>(activation)?;
            checked_divisor(cx, move |a: i32, b| clamp(a.wrapping_div(b), bounds))
        }
        _ => binary_quantized::div(cx, activation),
    }
}

fn maximum(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Element + PartialOrd>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, |a: T, b: T| if a > b { a } else { b })
    }
    on_types!(cx, [f32, f16, bf16, i8, u8, i16, i32, i64], on)
}

fn minimum(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Element + PartialOrd>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, |a: T, b: T| if a < b { a } else { b })
    }
    on_types!(cx, [f32, f16, bf16, i8, u8, i16, i32, i64], on)
}

fn pow(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => elementwise(cx, f32::powf),
        TensorType::Int32 => {
            let nest = nest(cx)?;
            Ok(Box::new(move |cx| {
                let (a, b) = (cx.input::<i32>(0)?, cx.input::<i32>(1)?);
                if b.iter().any(|&exponent| exponent < 0) {
                    return Err(InvalidData::NegativePower.into());
                }
                let power = |a: i32, b: i32| a.wrapping_pow(b.cast_unsigned());
                nest.zip_polled(a, b, cx.output(0)?, power, || cx.check_interrupted())
            }))
        }
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn squared_difference(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => elementwise(cx, |a: f32, b| (a - b) * (a - b)),
        TensorType::Int32 => elementwise(cx, |a: i32, b| a.wrapping_sub(b).wrapping_mul(a.wrapping_sub(b))),
        _ => binary_quantized::squared_difference(cx),
    }
}

/// Computed in double precision, as in TFLite.
fn floor_div(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn integers<T: Number + Into<f64>>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        checked_divisor(cx, |a: T, b: T| T::truncated((a.into() / b.into()).floor() as i64))
    }
    match cx.input(0)?.ty() {
        TensorType::Float32 => {
            checked_divisor(cx, |a: f32, b: f32| (f64::from(a) / f64::from(b)).floor() as f32)
        }
        _ => on_types!(cx, [i8, i16, i32], integers),
    }
}

/// The remainder has the divisor's sign.
fn floor_mod(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn integers<T: Integer>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        checked_divisor(cx, floored(T::remainder))
    }
    match cx.input(0)?.ty() {
        TensorType::Float32 => elementwise(cx, floored(|a: f32, b: f32| a % b)),
        _ => on_types!(cx, [i8, i16, i32, i64], integers),
    }
}

fn floored<T: Number>(remainder: impl Fn(T, T) -> T) -> impl Fn(T, T) -> T {
    move |a, b| {
        let (rest, zero) = (remainder(a, b), T::default());
        if rest != zero && (b < zero) != (rest < zero) { rest.plus(b) } else { rest }
    }
}

fn atan2(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => elementwise(cx, f32::atan2),
        TensorType::Float64 => elementwise(cx, f64::atan2),
        TensorType::Float16 => elementwise(cx, |a: f16, b: f16| f16::from_f32(a.to_f32().atan2(b.to_f32()))),
        TensorType::BFloat16 => {
            elementwise(cx, |a: bf16, b: bf16| bf16::from_f32(a.to_f32().atan2(b.to_f32())))
        }
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn bitwise_xor(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Integer>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, T::xor)
    }
    on_types!(cx, [i8, u8, i16, u16, i32, u32], on)
}

/// Negative shifts and shifts beyond the type's width are clamped.
fn right_shift(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Integer + TryInto<u32>>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        let bits = size_of::<T>() as u32 * 8;
        elementwise(cx, move |a: T, b: T| a.shifted_right(b.try_into().unwrap_or(0).min(bits - 1)))
    }
    on_types!(cx, [i8, u8, i16, u16, i32, u32], on)
}

/// Like [`elementwise`], then the fused activation.
fn fused<T: Number>(
    cx: &mut PrepareContext<'_>,
    activation: Activation,
    f: impl Fn(T, T) -> T + Send + 'static,
) -> Result<Invoke> {
    let bounds = bounds(activation)?;
    elementwise(cx, move |a, b| clamp(f(a, b), bounds))
}

/// Bounds of an activation. Without one they are the largest finite values: TFLite's ADD, SUB, MUL and DIV never return
/// infinity.
fn bounds<T: Number>(activation: Activation) -> Result<(T, T)> {
    let (low, high) = clamp_bounds(activation)?;
    let bound = |real: f32, limit: T| if real.is_finite() { T::truncated(real as i64) } else { limit };
    Ok((bound(low, T::LOWEST), bound(high, T::HIGHEST)))
}

/// The upper bound applies if the bounds are reversed. NaN stays NaN.
fn clamp<T: Number>(value: T, (low, high): (T, T)) -> T {
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    const ADD: fn(Activation, bool) -> Params = |fused_activation_function, pot_scale_int16| {
        Params::Add(
            AddParams::default()
                .fused_activation_function(fused_activation_function)
                .pot_scale_int16(pot_scale_int16),
        )
    };

    #[test]
    fn float_broadcasts_and_activates() {
        let a = T::new(&[2, 1, 3], &[-1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = T::new(&[2, 1], &[0.5f32, -9.0]);
        let want = [0.0f32, 2.5, 3.5, 0.0, 0.0, 0.0, 4.5, 5.5, 6.0, 0.0, 0.0, 0.0];
        check(
            BuiltinOp::ADD,
            1,
            ADD(Activation::Relu6, true),
            &[Some(a), Some(b)],
            &[T::new(&[2, 2, 3], &want)],
        );
        let (a, b) = (T::new(&[2], &[1.0f32, -1.0]), T::new(&[1], &[0.0f32]));
        let params = Params::Div(DivParams::default().fused_activation_function(Activation::None));
        check(BuiltinOp::DIV, 1, params, &[Some(a), Some(b)], &[T::new(&[2], &[f32::MAX, f32::MIN])]);
    }

    #[test]
    fn quantized_sums() {
        let a = T::new(&[4], &[-128i8, -1, 0, 127]).quantized(0.5, -1);
        let b = T::new(&[4], &[10i8, 20, 30, 127]).quantized(0.25, 10);
        let sum = T::new(&[4], &[-65i8, 2, 5, 92]).quantized(1.0, -1);
        check(BuiltinOp::ADD, 2, ADD(Activation::None, true), &[Some(a.clone()), Some(b.clone())], &[sum]);
        let sum = T::new(&[4], &[-1i8, 2, 5, 5]).quantized(1.0, -1);
        check(BuiltinOp::ADD, 2, ADD(Activation::Relu6, true), &[Some(a), Some(b)], &[sum]);
    }

    #[test]
    fn sums_of_powers_of_two_saturate() {
        let a = T::new(&[3], &[32_000i16, -5, 100]).quantized(1.0 / 1024.0, 0);
        let b = T::new(&[3], &[32_000i16, -5, 6]).quantized(1.0 / 4096.0, 0);
        let sum = T::new(&[3], &[32_767i16, -6, 102]).quantized(1.0 / 1024.0, 0);
        check(BuiltinOp::ADD, 3, ADD(Activation::None, true), &[Some(a), Some(b)], &[sum]);
    }

    #[test]
    fn sums_of_sixteen_at_once_round_their_inputs_once() {
        let a = T::new(&[17], &[3461i16; 17]).quantized(0.001, 0);
        let b = |shape: &[usize]| T::new(shape, &[12780i16; 17][..shape[0]]).quantized(0.0001, 0);
        let sum = |first: i16| {
            let mut sums = [first; 17];
            sums[16] = 2370;
            T::new(&[17], &sums).quantized(0.002, 0)
        };
        let add = |b, sum| {
            check(BuiltinOp::ADD, 2, ADD(Activation::None, false), &[Some(a.clone()), Some(b)], &[sum])
        };
        add(b(&[17]), sum(2369));
        add(b(&[1]), sum(2370));
    }

    #[test]
    fn complex_products() {
        let params = || Params::Mul(MulParams::default().fused_activation_function(Activation::None));
        let z = |shape: &[usize], z: &[[f32; 2]]| T::new(shape, z);
        let inputs = [Some(z(&[2], &[[1.0, 2.0], [0.0, -1.0]])), Some(z(&[1], &[[3.0, -1.0]]))];
        check(BuiltinOp::MUL, 6, params(), &inputs, &[z(&[2], &[[5.0, 5.0], [-1.0, -3.0]])]);
        let inputs = [Some(z(&[2, 0], &[])), Some(z(&[2, 1], &[[3.0, -1.0]; 2]))];
        check(BuiltinOp::MUL, 6, params(), &inputs, &[z(&[2, 0], &[])]);
        let inputs = [Some(z(&[1], &[[1.0, 2.0]])), Some(T::new(&[1], &[3.0f32]))];
        let e = error(BuiltinOp::MUL, 6, params(), &inputs, &[z(&[1], &[[0.0; 2]])]);
        assert!(e.contains("FLOAT32"), "{e}");
    }

    #[test]
    fn integers() {
        let (a, b) = (T::new(&[4], &[7i32, -7, 7, -7]), T::new(&[4], &[3i32, 3, -3, -3]));
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::FLOOR_DIV, 1, Params::None, &inputs, &[T::new(&[4], &[2i32, -3, -3, 2])]);
        check(BuiltinOp::FLOOR_MOD, 1, Params::None, &inputs, &[T::new(&[4], &[1i32, 2, -2, -1])]);
        check(BuiltinOp::MAXIMUM, 1, Params::None, &inputs, &[T::new(&[4], &[7i32, 3, 7, -3])]);
        let (a, b) = (T::new(&[3], &[-8i8, 8, 127]), T::new(&[3], &[1i8, -4, 100]));
        check(BuiltinOp::RIGHT_SHIFT, 1, Params::None, &[Some(a), Some(b)], &[T::new(&[3], &[-4i8, 8, 0])]);
    }

    #[test]
    fn refuses() {
        let ints = |v: [i32; 2]| Some(T::new(&[2], &v));
        let out = [T::new(&[2], &[0i32, 0])];
        let e = error(BuiltinOp::FLOOR_DIV, 1, Params::None, &[ints([1, 2]), ints([1, 0])], &out);
        assert!(e.ends_with("division by 0"), "{e}");
        let half = || Some(T::new(&[1], &[1.0f64]));
        let e = error(BuiltinOp::MAXIMUM, 1, Params::None, &[half(), half()], &[T::new(&[1], &[0.0f64])]);
        assert!(e.contains("input 0 \"t0\" of type FLOAT64"), "{e}");
    }
}
