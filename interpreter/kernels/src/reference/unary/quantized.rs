//! Quantized unary ops.

use delegraph_core::Result;
use delegraph_core::error::InvalidData;
use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::quantized::unary::{self, Rsqrt, Sigmoid};

use super::{map, try_map, unsupported};
use crate::common::prepared::Invoke;
use crate::common::quantized::{QuantizedElement, Steps, scale_zero_point_in_range, steps_of};
use delegraph_compute::{Isa, compute_error, lookup};

/// Quantizations of input and output.
fn steps(cx: &PrepareContext<'_>) -> Result<(Steps, Steps)> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    scale_zero_point_in_range(input)?;
    scale_zero_point_in_range(output)?;
    Ok((steps_of(input)?, steps_of(output)?))
}

/// A function of stored values of the input's type.
fn stored(cx: &PrepareContext<'_>, f: impl Fn(i32) -> i32 + Send + 'static) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::UInt8 => bytes::<u8>(f),
        TensorType::Int8 => bytes::<i8>(f),
        TensorType::Int16 => map(move |x: i16| f(x.into()) as i16),
        _ => unsupported(cx),
    }
}

/// Looks up the results in a table of `f` for all bytes.
fn bytes<T: QuantizedElement>(f: impl Fn(i32) -> i32) -> Result<Invoke> {
    let mut table = [0; 256];
    for value in T::MIN..=T::MAX {
        // Signed numbers in two's complement.
        table[usize::from(value as u8)] = f(value) as u8;
    }
    let isa = Isa::best();
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes_unless_overwritten(0)?, cx.output_bytes(0)?);
        lookup(isa, &table, input, output, cx.parallel()).map_err(compute_error)
    }))
}

/// Whether the input has one of these types.
fn is_one_of(cx: &PrepareContext<'_>, types: &[TensorType]) -> Result<bool> {
    Ok(types.contains(&cx.input(0)?.ty()))
}

const BYTES: &[TensorType] = &[TensorType::UInt8, TensorType::Int8];
const SIGNED: &[TensorType] = &[TensorType::Int8, TensorType::Int16];
const ALL: &[TensorType] = &[TensorType::UInt8, TensorType::Int8, TensorType::Int16];

pub(super) fn abs(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let input = cx.input(0)?;
    match input.ty() {
        TensorType::Int32 => return map(i32::wrapping_abs),
        TensorType::Int16 if input.quantization().is_none() => return map(i16::wrapping_abs),
        _ if !is_one_of(cx, SIGNED)? => return unsupported(cx),
        _ => {}
    }
    let (from, to) = steps(cx)?;
    stored(cx, unary::abs(from, to)?)
}

pub(super) fn exp(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, SIGNED)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    let table = unary::exp(from, to)?;
    stored(cx, move |x| table.at(x))
}

pub(super) fn log(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, SIGNED)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    let table = unary::log(from, to)?;
    stored(cx, move |x| table.at(x))
}

/// Runs `f` on stored values; values below the zero point are an error.
fn not_negative(cx: &PrepareContext<'_>, f: impl Fn(i32) -> i32 + Send + 'static) -> Result<Invoke> {
    fn on<T: QuantizedElement>(zero: i32, f: impl Fn(T) -> T + Send + 'static) -> Result<Invoke> {
        try_map(move |x: T| match x.into() < zero {
            true => Err(InvalidData::NegativeRoot.into()),
            false => Ok(f(x)),
        })
    }
    let zero = steps(cx)?.0.zero;
    if cx.input(0)?.ty() == TensorType::Int16 {
        return on(zero, move |x: i16| i16::clamped(f(x.into()), i16::MIN.into(), i16::MAX.into()));
    }
    let mut table = [0; 256];
    for value in (i8::MIN..=i8::MAX).filter(|&value| i32::from(value) >= zero) {
        table[usize::from(value.cast_unsigned())] =
            i8::clamped(f(value.into()), i8::MIN.into(), i8::MAX.into());
    }
    on(zero, move |x: i8| table[usize::from(x.cast_unsigned())])
}

pub(super) fn sqrt(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, SIGNED)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    not_negative(cx, unary::sqrt(from, to)?)
}

pub(super) fn rsqrt(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, SIGNED)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    let rsqrt = Rsqrt::new(from, to)?;
    not_negative(cx, move |x| rsqrt.at(x))
}

pub(super) fn relu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, ALL, 0.0, f32::INFINITY)
}

pub(super) fn relu6(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, ALL, 0.0, 6.0)
}

pub(super) fn relu_n1_to_1(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, BYTES, -1.0, 1.0)
}

pub(super) fn relu_0_to_1(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, BYTES, 0.0, 1.0)
}

/// Requantizes to the output and clamps.
fn clamp(cx: &mut PrepareContext<'_>, types: &[TensorType], low: f32, high: f32) -> Result<Invoke> {
    if !is_one_of(cx, types)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    stored(cx, unary::clamp(from, to, low, high)?)
}

pub(super) fn logistic(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, ALL)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    sigmoid(cx, Sigmoid::logistic(from, to)?)
}

pub(super) fn tanh(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, ALL)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    sigmoid(cx, Sigmoid::tanh(from, to)?)
}

fn sigmoid(cx: &PrepareContext<'_>, sigmoid: Sigmoid) -> Result<Invoke> {
    stored(cx, move |x| sigmoid.at(x))
}

pub(super) fn elu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, &[TensorType::Int8])? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    let table = unary::elu(from, to);
    stored(cx, move |x| table.at(x))
}

pub(super) fn gelu(cx: &mut PrepareContext<'_>, approximate: bool) -> Result<Invoke> {
    if !is_one_of(cx, ALL)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    let table = unary::gelu(from, to, approximate);
    stored(cx, move |x| table.at(x))
}

pub(super) fn leaky_relu(cx: &mut PrepareContext<'_>, alpha: f32) -> Result<Invoke> {
    if !is_one_of(cx, ALL)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    stored(cx, unary::leaky_relu(from, to, alpha)?)
}

pub(super) fn hard_swish(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if !is_one_of(cx, BYTES)? {
        return unsupported(cx);
    }
    let (from, to) = steps(cx)?;
    stored(cx, unary::hard_swish(from, to)?)
}
