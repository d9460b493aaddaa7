//! Elementwise ops with one input.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};
use delegraph_core::quantized::real;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Registration, Result};
use half::{bf16, f16};

use crate::common::pace::PIECE;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

mod quantized;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::CEIL, float(f32::ceil), 1)
        .add_builtin(BuiltinOp::FLOOR, any_float(f32::floor), 1)
        .add_builtin(BuiltinOp::ROUND, any_float(f32::round_ties_even), 1)
        .add_builtin(BuiltinOp::SQUARE, float(|x| x * x), 1)
        .add_builtin(BuiltinOp::SIN, float_or_half(f32::sin), 1..=2)
        .add_builtin(BuiltinOp::COS, float_or_half(f32::cos), 1..=2)
        .add_builtin(BuiltinOp::NEG, elementwise(neg), 1)
        .add_builtin(BuiltinOp::SIGN, elementwise(sign), 1..=2)
        .add_builtin(BuiltinOp::LOGICAL_NOT, elementwise(logical_not), 1)
        .add_builtin(BuiltinOp::ZEROS_LIKE, elementwise(zeros_like), 1)
        .add_builtin(BuiltinOp::ABS, float_or(f32::abs, quantized::abs), 1..=5)
        .add_builtin(BuiltinOp::EXP, float_or(f32::exp, quantized::exp), 1..=2)
        .add_builtin(BuiltinOp::LOG, float_or(f32::ln, quantized::log), 1..=2)
        .add_builtin(BuiltinOp::SQRT, float_or(f32::sqrt, quantized::sqrt), 1..=2)
        .add_builtin(BuiltinOp::RSQRT, float_or(|x| 1.0 / x.sqrt(), quantized::rsqrt), 1..=3)
        .add_builtin(BuiltinOp::RELU, float_or(relu, quantized::relu), 1..=3)
        .add_builtin(BuiltinOp::RELU6, float_or(|x| x.clamp(0.0, 6.0), quantized::relu6), 1..=3)
        .add_builtin(BuiltinOp::RELU_N1_TO_1, float_or(|x| x.clamp(-1.0, 1.0), quantized::relu_n1_to_1), 1)
        .add_builtin(BuiltinOp::RELU_0_TO_1, float_or(|x| x.clamp(0.0, 1.0), quantized::relu_0_to_1), 1)
        .add_builtin(BuiltinOp::LOGISTIC, elementwise(logistic), 1..=3)
        .add_builtin(BuiltinOp::TANH, elementwise(tanh), 1..=3)
        .add_builtin(BuiltinOp::HARD_SWISH, float_or(hard_swish_of, quantized::hard_swish), 1)
        .add_builtin(BuiltinOp::ELU, float_or(real::elu, quantized::elu), 1)
        .add_builtin(BuiltinOp::GELU, elementwise(gelu), 1..=3)
        .add_builtin(BuiltinOp::LEAKY_RELU, elementwise(leaky_relu), 1..=2);
}

/// Registers elementwise kernels that may write their output over their input.
fn elementwise<P>(prepare: P) -> Registration
where
    P: Fn(&mut PrepareContext<'_>) -> Result<Invoke> + Clone + Send + Sync + 'static,
{
    prepared(move |cx| {
        cx.may_overwrite(0);
        prepare(cx)
    })
}

/// `output[i] = f(input[i])`.
pub(super) fn map<T: Element>(f: impl Fn(T) -> T + Send + 'static) -> Result<Invoke> {
    in_pieces(move |input: Option<&[T]>, output| {
        match input {
            Some(input) => output.iter_mut().zip(input).for_each(|(o, i)| *o = f(*i)),
            None => output.iter_mut().for_each(|o| *o = f(*o)),
        }
        Ok(())
    })
}

/// As [`map`], for a function that may fail.
pub(super) fn try_map<T: Element>(f: impl Fn(T) -> Result<T> + Send + 'static) -> Result<Invoke> {
    in_pieces(move |input: Option<&[T]>, output| match input {
        Some(input) => output.iter_mut().zip(input).try_for_each(|(o, i)| f(*i).map(|y| *o = y)),
        None => output.iter_mut().try_for_each(|o| f(*o).map(|y| *o = y)),
    })
}

/// Calls `f` on pieces of input and output, and polls in between. Without an input, the output holds its elements.
fn in_pieces<T: Element>(
    f: impl Fn(Option<&[T]>, &mut [T]) -> Result<()> + Send + 'static,
) -> Result<Invoke> {
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_unless_overwritten::<T>(0)?, cx.output::<T>(0)?);
        let mut input = input.map(|input| input.chunks(PIECE));
        for (piece, output) in output.chunks_mut(PIECE).enumerate() {
            if piece > 0 {
                cx.check_interrupted()?;
            }
            f(input.as_mut().map(|input| input.next().unwrap_or_default()), output)?;
        }
        Ok(())
    }))
}

/// 16-bit floats, computed in single precision.
pub(super) fn map_half(f: impl Fn(f32) -> f32 + Send + 'static) -> Result<Invoke> {
    map(move |x: f16| f16::from_f32(f(x.to_f32())))
}

pub(super) fn map_bfloat(f: impl Fn(f32) -> f32 + Send + 'static) -> Result<Invoke> {
    map(move |x: bf16| bf16::from_f32(f(x.to_f32())))
}

fn unsupported(cx: &PrepareContext<'_>) -> Result<Invoke> {
    Err(unsupported_type("input", cx.input(0)?))
}

fn float(f: fn(f32) -> f32) -> Registration {
    float_or(f, |cx| unsupported(cx))
}

/// `f` for FLOAT32, `other` for other types.
fn float_or(f: fn(f32) -> f32, other: fn(&mut PrepareContext<'_>) -> Result<Invoke>) -> Registration {
    elementwise(move |cx| if cx.input(0)?.ty() == TensorType::Float32 { map(f) } else { other(cx) })
}

fn float_or_half(f: fn(f32) -> f32) -> Registration {
    elementwise(move |cx| match cx.input(0)?.ty() {
        TensorType::Float32 => map(f),
        TensorType::Float16 => map_half(f),
        _ => unsupported(cx),
    })
}

fn any_float(f: fn(f32) -> f32) -> Registration {
    elementwise(move |cx| match cx.input(0)?.ty() {
        TensorType::BFloat16 => map_bfloat(f),
        TensorType::Float16 => map_half(f),
        TensorType::Float32 => map(f),
        _ => unsupported(cx),
    })
}

fn neg(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(|x: f32| -x),
        TensorType::Float16 => map(|x: f16| -x),
        TensorType::BFloat16 => map(|x: bf16| -x),
        TensorType::Int8 => map(i8::wrapping_neg),
        TensorType::Int16 => map(i16::wrapping_neg),
        TensorType::Int32 => map(i32::wrapping_neg),
        TensorType::Int64 => map(i64::wrapping_neg),
        _ => unsupported(cx),
    }
}

fn sign(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    // Not `signum`, which is 1 for 0.
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(|x: f32| if x == 0.0 { 0.0 } else { x.signum() }),
        TensorType::Float64 => map(|x: f64| if x == 0.0 { 0.0 } else { x.signum() }),
        TensorType::Int32 => map(i32::signum),
        _ => unsupported(cx),
    }
}

fn logical_not(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Bool => map(|x: Bool| Bool::from(!x.get())),
        _ => unsupported(cx),
    }
}

fn zeros_like(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 | TensorType::Int32 | TensorType::Int64 => Ok(Box::new(|cx| {
            cx.output_bytes(0)?.fill(0);
            Ok(())
        })),
        _ => unsupported(cx),
    }
}

fn logistic(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(real::logistic),
        TensorType::Float16 => map_half(real::logistic),
        TensorType::BFloat16 => map_bfloat(real::logistic),
        _ => quantized::logistic(cx),
    }
}

fn tanh(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(f32::tanh),
        TensorType::Float16 => map_half(f32::tanh),
        TensorType::BFloat16 => map_bfloat(f32::tanh),
        _ => quantized::tanh(cx),
    }
}

fn gelu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let approximate = cx.params::<GeluParams>()?.approximate;
    let f = if approximate { real::approximate_gelu } else { real::gelu };
    match cx.input(0)?.ty() {
        TensorType::Float32 => map(f),
        TensorType::Float16 => map_half(f),
        _ => quantized::gelu(cx, approximate),
    }
}

/// Not `max`, which replaces NaN by 0.
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

fn leaky_relu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let alpha = cx.params::<LeakyReluParams>()?.alpha;
    match cx.input(0)?.ty() {
        // `alpha` may be above 1 or negative.
        TensorType::Float32 => map(move |x: f32| if x > 0.0 { x } else { x * alpha }),
        _ => quantized::leaky_relu(cx, alpha),
    }
}

/// Multiplies in TFLite's order, as the last bit may decide the rounding of a quantized result.
fn hard_swish_of(x: f32) -> f32 {
    x * (1.0 / 6.0) * (x + 3.0).clamp(0.0, 6.0)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn float_case(op: BuiltinOp, params: Params, input: &[f32], output: &[f32]) {
        let n = input.len();
        check(op, 1, params, &[Some(T::new(&[n], input))], &[T::new(&[n], output)]);
    }

    #[test]
    fn floats() {
        let case = |op, input: &[f32], output: &[f32]| float_case(op, Params::None, input, output);
        case(BuiltinOp::ROUND, &[0.5, 1.5, -2.5, 2.6], &[0.0, 2.0, -2.0, 3.0]);
        case(BuiltinOp::SIGN, &[-3.0, 0.0, 7.0], &[-1.0, 0.0, 1.0]);
        case(BuiltinOp::RSQRT, &[4.0, 0.25], &[0.5, 2.0]);
        case(BuiltinOp::RELU, &[-1.0, 3.0, f32::NAN], &[0.0, 3.0, f32::NAN]);
        case(BuiltinOp::RELU6, &[-1.0, 3.0, 9.0, f32::NAN], &[0.0, 3.0, 6.0, f32::NAN]);
        case(BuiltinOp::RELU_N1_TO_1, &[-2.0, 0.5, 2.0], &[-1.0, 0.5, 1.0]);
        case(BuiltinOp::HARD_SWISH, &[-4.0, -1.0, 1.0, 5.0], &[0.0, -1.0 / 3.0, 2.0 / 3.0, 5.0]);
        case(BuiltinOp::LOGISTIC, &[0.0, 3f32.ln()], &[0.5, 0.75]);
        case(BuiltinOp::ELU, &[-(2f32.ln()), 2.0], &[-0.5, 2.0]);
        float_case(
            BuiltinOp::LEAKY_RELU,
            Params::LeakyRelu(LeakyReluParams::default().alpha(0.5)),
            &[-2.0, 2.0],
            &[-1.0, 2.0],
        );
        for (approximate, at_one) in [(false, 0.841_344_8), (true, 0.841_192)] {
            let params = Params::Gelu(GeluParams::default().approximate(approximate));
            float_case(BuiltinOp::GELU, params, &[0.0, 1.0, -1.0], &[0.0, at_one, at_one - 1.0]);
        }
    }

    #[test]
    fn other_types() {
        let bools = |v: [bool; 2]| T::new(&[2], &v.map(Bool::from));
        check(
            BuiltinOp::LOGICAL_NOT,
            1,
            Params::None,
            &[Some(bools([true, false]))],
            &[bools([false, true])],
        );
        let half = |v: [f32; 2]| T::new(&[2], &v.map(f16::from_f32));
        check(BuiltinOp::FLOOR, 1, Params::None, &[Some(half([1.5, -1.5]))], &[half([1.0, -2.0])]);
        let ints = |v: [i32; 2]| T::new(&[2], &v);
        check(BuiltinOp::ABS, 5, Params::None, &[Some(ints([-7, 8]))], &[ints([7, 8])]);
        check(BuiltinOp::ZEROS_LIKE, 1, Params::None, &[Some(ints([-7, 8]))], &[ints([0, 0])]);
        let text = error(BuiltinOp::SIN, 1, Params::None, &[Some(ints([1, 2]))], &[ints([1, 2])]);
        assert!(text.contains("INT32"), "{text}");
    }

    #[test]
    fn quantized_types() {
        let q = |v: [i8; 4], scale, zero| T::new(&[4], &v).quantized(scale, zero);
        let input = || Some(q([-10, 0, 10, 127], 0.25, 0));
        check(BuiltinOp::RELU, 2, Params::None, &[input()], &[q([-1, -1, 4, 63], 0.5, -1)]);
        check(BuiltinOp::ABS, 2, Params::None, &[input()], &[q([10, 0, 10, 127], 0.25, 0)]);
        let logistic = q([-109, 0, 109, 127], 1.0 / 256.0, -128);
        check(BuiltinOp::LOGISTIC, 2, Params::None, &[input()], &[logistic]);
        let swish = q([-1, 0, 9, 127], 0.25, 0);
        check(BuiltinOp::HARD_SWISH, 1, Params::None, &[input()], &[swish]);
        let text = error(BuiltinOp::SQRT, 2, Params::None, &[input()], &[q([0; 4], 0.25, 0)]);
        assert!(text.contains("negative"), "{text}");
        let wide = Some(T::new(&[3], &[0i16, 4096, -4096]).quantized(1.0 / 4096.0, 0));
        let output = T::new(&[3], &[0i16, 24964, -24964]).quantized(1.0 / 32768.0, 0);
        check(BuiltinOp::TANH, 3, Params::None, &[wide], &[output]);
    }
}
