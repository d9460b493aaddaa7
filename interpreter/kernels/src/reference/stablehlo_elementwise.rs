//! Elementwise StableHLO ops.

use std::cmp::Ordering;
use std::marker::PhantomData;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::stablehlo_elementwise::StablehloCompareParams;
use delegraph_core::ops::{ComparisonDirection, ComparisonType, TensorType};
use delegraph_core::quantized::real::logistic;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Registration, Result};
use half::{bf16, f16};

use super::unary::{map, map_bfloat, map_half};
use super::{cast, select};
use crate::common::elementwise::{checked_divisor, elementwise, on_types};
use crate::common::index::Nest;
use crate::common::number::{Integer, Number};
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::region::{Combine, Combined, on_combined};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::STABLEHLO_ADD, combination(Combine::Add), 1)
        .add_builtin(BuiltinOp::STABLEHLO_MULTIPLY, combination(Combine::Multiply), 1)
        .add_builtin(BuiltinOp::STABLEHLO_MAXIMUM, combination(Combine::Maximum), 1)
        .add_builtin(BuiltinOp::STABLEHLO_MINIMUM, combination(Combine::Minimum), 1)
        .add_builtin(BuiltinOp::STABLEHLO_AND, combination(Combine::And), 1)
        .add_builtin(BuiltinOp::STABLEHLO_OR, combination(Combine::Or), 1)
        .add_builtin(BuiltinOp::STABLEHLO_SUBTRACT, prepared(subtract), 1)
        .add_builtin(BuiltinOp::STABLEHLO_DIVIDE, prepared(divide), 1)
        .add_builtin(BuiltinOp::STABLEHLO_REMAINDER, prepared(remainder), 1)
        .add_builtin(BuiltinOp::STABLEHLO_POWER, prepared(power), 1)
        .add_builtin(BuiltinOp::STABLEHLO_SHIFT_LEFT, prepared(shift_left), 1)
        .add_builtin(BuiltinOp::STABLEHLO_COMPARE, prepared(compare), 1)
        .add_builtin(BuiltinOp::STABLEHLO_SELECT, prepared(|cx| select::select(cx, false)), 1)
        .add_builtin(BuiltinOp::STABLEHLO_CLAMP, prepared(clamp), 1)
        .add_builtin(BuiltinOp::STABLEHLO_CONVERT, prepared(cast::cast), 1)
        .add_builtin(BuiltinOp::STABLEHLO_ABS, prepared(abs), 1)
        .add_builtin(BuiltinOp::STABLEHLO_NEGATE, prepared(negate), 1)
        .add_builtin(BuiltinOp::STABLEHLO_FLOOR, real(f32::floor, f64::floor), 1)
        .add_builtin(BuiltinOp::STABLEHLO_LOGISTIC, real(logistic, |x| 1.0 / (1.0 + (-x).exp())), 1)
        .add_builtin(BuiltinOp::STABLEHLO_COSINE, real(f32::cos, f64::cos), 1)
        .add_builtin(BuiltinOp::STABLEHLO_EXPONENTIAL, real(f32::exp, f64::exp), 1)
        .add_builtin(BuiltinOp::STABLEHLO_LOG, real(f32::ln, f64::ln), 1)
        .add_builtin(BuiltinOp::STABLEHLO_RSQRT, real(|x| 1.0 / x.sqrt(), |x| 1.0 / x.sqrt()), 1)
        .add_builtin(BuiltinOp::STABLEHLO_TANH, real(f32::tanh, f64::tanh), 1)
        .add_builtin(BuiltinOp::STABLEHLO_CBRT, real(f32::cbrt, f64::cbrt), 1);
}

fn unsupported(cx: &PrepareContext<'_>) -> Result<Invoke> {
    Err(unsupported_type("input 0", cx.input(0)?))
}

/// `single` for FLOAT32 and the 16-bit floats, `double` for FLOAT64.
fn real(single: fn(f32) -> f32, double: fn(f64) -> f64) -> Registration {
    prepared(move |cx| match cx.input(0)?.ty() {
        TensorType::Float32 => map(single),
        TensorType::Float64 => map(double),
        TensorType::Float16 => map_half(single),
        TensorType::BFloat16 => map_bfloat(single),
        _ => unsupported(cx),
    })
}

fn abs(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(f32::abs),
        TensorType::Float64 => map(f64::abs),
        TensorType::Float16 => map_half(f32::abs),
        TensorType::BFloat16 => map_bfloat(f32::abs),
        TensorType::Int8 => map(i8::wrapping_abs),
        TensorType::Int16 => map(i16::wrapping_abs),
        TensorType::Int32 => map(i32::wrapping_abs),
        TensorType::Int64 => map(i64::wrapping_abs),
        _ => unsupported(cx),
    }
}

fn negate(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn floats<T: Element + std::ops::Neg<Output = T>>(
        _: &PrepareContext<'_>,
        _: PhantomData<T>,
    ) -> Result<Invoke> {
        map(|x: T| -x)
    }
    fn integers<T: Integer>(_: &PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        map(|x: T| T::default().minus(x))
    }
    match cx.input(0)?.ty().is_float() {
        true => on_types!(cx, [f32, f64, f16, bf16], floats),
        false => on_types!(cx, [i8, u8, i16, u16, i32, u32, i64, u64], integers),
    }
}

/// The combining functions of scatters and reductions, applied to two inputs.
fn combination(how: Combine) -> Registration {
    fn on<T: Combined>(cx: &mut PrepareContext<'_>, how: Combine) -> Result<Invoke> {
        match T::combine(how) {
            Some(combine) => elementwise(cx, combine),
            None => unsupported(cx),
        }
    }
    prepared(move |cx| {
        let ty = cx.input(0)?.ty();
        on_combined!(ty, on(cx, how)).unwrap_or_else(|| unsupported(cx))
    })
}

fn subtract(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Number>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, T::minus)
    }
    on_types!(cx, [f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64], on)
}

/// `$float` for the float types, `$integer` for the integer types, whose divisor must not be 0.
macro_rules! division {
    ($cx:expr, $float:expr, $integer:ident) => {{
        fn integers<T: Integer>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
            checked_divisor(cx, T::$integer)
        }
        match $cx.input(0)?.ty() {
            TensorType::Float32 => elementwise($cx, |a: f32, b: f32| $float(a, b)),
            TensorType::Float64 => elementwise($cx, |a: f64, b: f64| $float(a, b)),
            TensorType::Float16 => elementwise($cx, |a: f16, b: f16| $float(a, b)),
            TensorType::BFloat16 => elementwise($cx, |a: bf16, b: bf16| $float(a, b)),
            _ => on_types!($cx, [i8, u8, i16, u16, i32, u32, i64, u64], integers),
        }
    }};
}

fn divide(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    division!(cx, std::ops::Div::div, quotient)
}

fn remainder(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    division!(cx, std::ops::Rem::rem, remainder)
}

fn power(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn integers<T: Integer>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, T::power)
    }
    match cx.input(0)?.ty() {
        TensorType::Float32 => elementwise(cx, f32::powf),
        TensorType::Float64 => elementwise(cx, f64::powf),
        TensorType::Float16 => elementwise(cx, |a: f16, b: f16| f16::from_f32(a.to_f32().powf(b.to_f32()))),
        TensorType::BFloat16 => {
            elementwise(cx, |a: bf16, b: bf16| bf16::from_f32(a.to_f32().powf(b.to_f32())))
        }
        _ => on_types!(cx, [i8, u8, i16, u16, i32, u32, i64, u64], integers),
    }
}

/// A shift by a negative number, or by at least the width of the type, returns 0.
fn shift_left(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Integer + TryInto<u32>>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        elementwise(cx, |a: T, b: T| a.shifted_left(b.try_into().unwrap_or(u32::MAX)))
    }
    on_types!(cx, [i8, u8, i16, u16, i32, u32, i64, u64], on)
}

fn compare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Number>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        let direction = cx.params::<StablehloCompareParams>()?.comparison_direction;
        elementwise(cx, move |a: T, b: T| holds(direction, a.partial_cmp(&b)))
    }
    let p = cx.params::<StablehloCompareParams>()?;
    let direction = p.comparison_direction;
    if p.compare_type == ComparisonType::FloatTotalOrder {
        return match cx.input(0)?.ty() {
            TensorType::Float32 => {
                elementwise(cx, move |a: f32, b: f32| holds(direction, Some(a.total_cmp(&b))))
            }
            TensorType::Float64 => {
                elementwise(cx, move |a: f64, b: f64| holds(direction, Some(a.total_cmp(&b))))
            }
            TensorType::Float16 => {
                elementwise(cx, move |a: f16, b: f16| holds(direction, Some(a.total_cmp(&b))))
            }
            TensorType::BFloat16 => {
                elementwise(cx, move |a: bf16, b: bf16| holds(direction, Some(a.total_cmp(&b))))
            }
            _ => unsupported(cx),
        };
    }
    match cx.input(0)?.ty() {
        TensorType::Bool => {
            elementwise(cx, move |a: Bool, b: Bool| holds(direction, Some(a.get().cmp(&b.get()))))
        }
        _ => on_types!(cx, [f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64], on),
    }
}

/// Whether two elements with this order (`None`: one is NaN) satisfy the comparison.
fn holds(direction: ComparisonDirection, order: Option<Ordering>) -> Bool {
    Bool::from(match direction {
        ComparisonDirection::Eq => order == Some(Ordering::Equal),
        ComparisonDirection::Ne => order != Some(Ordering::Equal),
        ComparisonDirection::Ge => order.is_some_and(Ordering::is_ge),
        ComparisonDirection::Gt => order.is_some_and(Ordering::is_gt),
        ComparisonDirection::Le => order.is_some_and(Ordering::is_le),
        ComparisonDirection::Lt => order.is_some_and(Ordering::is_lt),
    })
}

/// The upper bound applies if the bounds are reversed.
fn clamp(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Number>(cx: &mut PrepareContext<'_>, _: PhantomData<T>) -> Result<Invoke> {
        let shape = cx.output(0)?.shape();
        let bounds = Nest::broadcast(cx.input(0)?.shape(), cx.input(2)?.shape(), shape);
        Ok(Box::new(move |cx| {
            let (low, input, high) = (cx.input::<T>(0)?, cx.input::<T>(1)?, cx.input::<T>(2)?);
            let mut pairs = cx.output::<T>(0)?.iter_mut().zip(input);
            let mut pace = Pace::new(cx);
            bounds.try_for_each([0; 2], |[l, h]| {
                if let Some((output, &value)) = pairs.next() {
                    let value = if value < low[l] { low[l] } else { value };
                    *output = if value > high[h] { high[h] } else { value };
                }
                pace.spend(4)
            })
        }))
    }
    on_types!(cx, [f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64], on)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn one<I: Element, O: Element>(op: BuiltinOp, input: &[I], output: &[O]) {
        check(
            op,
            1,
            Params::None,
            &[Some(T::new(&[input.len()], input))],
            &[T::new(&[output.len()], output)],
        );
    }

    fn two<E: Element>(op: BuiltinOp, a: &[E], b: &[E], output: &[E]) {
        let inputs = [Some(T::new(&[a.len()], a)), Some(T::new(&[b.len()], b))];
        check(op, 1, Params::None, &inputs, &[T::new(&[output.len()], output)]);
    }

    #[test]
    fn one_input() {
        one(BuiltinOp::STABLEHLO_LOGISTIC, &[0f64, 3f64.ln()], &[0.5f64, 0.75]);
        one(BuiltinOp::STABLEHLO_CBRT, &[-27f32, 8.0], &[-3f32, 2.0]);
        one(BuiltinOp::STABLEHLO_RSQRT, &[f16::from_f32(4.0)], &[f16::from_f32(0.5)]);
        one(BuiltinOp::STABLEHLO_FLOOR, &[bf16::from_f32(-1.5)], &[bf16::from_f32(-2.0)]);
        one(BuiltinOp::STABLEHLO_ABS, &[-7i16, i16::MIN], &[7i16, i16::MIN]);
        one(BuiltinOp::STABLEHLO_NEGATE, &[1u8, 0], &[255u8, 0]);
        one(BuiltinOp::STABLEHLO_NEGATE, &[1f64, -2.0], &[-1f64, 2.0]);
        one(BuiltinOp::STABLEHLO_CONVERT, &[1.7f32, -1.7], &[1i32, -1]);
    }

    #[test]
    fn two_inputs() {
        two(BuiltinOp::STABLEHLO_ADD, &[i8::MAX, -3], &[1, 1], &[i8::MIN, -2]);
        two(BuiltinOp::STABLEHLO_MULTIPLY, &[u64::MAX, 3], &[2, 5], &[u64::MAX - 1, 15]);
        two(BuiltinOp::STABLEHLO_MAXIMUM, &[1.5f64, -2.0], &[1.0, -1.0], &[1.5, -1.0]);
        let bools = |v: [u8; 4]| v.map(Bool);
        let (a, b) = (bools([0, 0, 1, 1]), bools([0, 1, 0, 1]));
        two(BuiltinOp::STABLEHLO_ADD, &a, &b, &bools([0, 1, 1, 1]));
        two(BuiltinOp::STABLEHLO_MINIMUM, &a, &b, &bools([0, 0, 0, 1]));
        two(BuiltinOp::STABLEHLO_AND, &[0b1100u16], &[0b1010], &[0b1000]);
        two(BuiltinOp::STABLEHLO_OR, &[0b1100i32], &[0b1010], &[0b1110]);
        two(BuiltinOp::STABLEHLO_SUBTRACT, &[1u32], &[2], &[u32::MAX]);
        two(BuiltinOp::STABLEHLO_DIVIDE, &[-7i32, i32::MIN], &[2, -1], &[-3, i32::MIN]);
        two(BuiltinOp::STABLEHLO_REMAINDER, &[-7i64, 7], &[3, -3], &[-1, 1]);
        two(BuiltinOp::STABLEHLO_REMAINDER, &[-7.5f32], &[2.0], &[-1.5]);
        let (base, exponent) = ([2i8, 3, -1, -1, 2, 127, 0], [6, 5, -3, 4, -1, -1, -1]);
        two(BuiltinOp::STABLEHLO_POWER, &base, &exponent, &[64, -13, -1, 1, 0, 0, 0]);
        two(BuiltinOp::STABLEHLO_SHIFT_LEFT, &[1i8, 3, 1, 1], &[6, 7, 8, -1], &[64, -128, 0, 0]);
        let zero = [Some(T::new(&[1], &[1i32])), Some(T::new(&[1], &[0i32]))];
        let e = error(BuiltinOp::STABLEHLO_DIVIDE, 1, Params::None, &zero, &[T::new(&[1], &[0i32])]);
        assert!(e.ends_with("division by 0"), "{e}");
    }

    #[test]
    fn comparisons() {
        let (a, b) = ([1f32, 2.0, f32::NAN, -0.0], [1f32, 1.0, f32::NAN, 0.0]);
        let check = |direction, compare_type, want: [u8; 4]| {
            let params =
                StablehloCompareParams::default().comparison_direction(direction).compare_type(compare_type);
            let inputs = [Some(T::new(&[4], &a)), Some(T::new(&[4], &b))];
            check(BuiltinOp::STABLEHLO_COMPARE, 1, params.into(), &inputs, &[T::new(&[4], &want.map(Bool))]);
        };
        check(ComparisonDirection::Eq, ComparisonType::Float, [1, 0, 0, 1]);
        check(ComparisonDirection::Ne, ComparisonType::NoType, [0, 1, 1, 0]);
        check(ComparisonDirection::Ge, ComparisonType::Float, [1, 1, 0, 1]);
        check(ComparisonDirection::Lt, ComparisonType::FloatTotalOrder, [0, 0, 0, 1]);
    }

    #[test]
    fn three_inputs() {
        let x = || Some(T::new(&[3], &[-5i16, 5, 15]));
        let (low, high) = (Some(T::new(&[], &[0i16])), Some(T::new(&[3], &[9i16, 3, 9])));
        let op = BuiltinOp::STABLEHLO_CLAMP;
        check(op, 1, Params::None, &[low, x(), high.clone()], &[T::new(&[3], &[0i16, 3, 9])]);
        let yes = Some(T::new(&[], &[Bool(1)]));
        check(
            BuiltinOp::STABLEHLO_SELECT,
            1,
            Params::None,
            &[yes, x(), high],
            &[T::new(&[3], &[-5i16, 5, 15])],
        );
    }
}
