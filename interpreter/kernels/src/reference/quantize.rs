//! QUANTIZE, DEQUANTIZE, FAKE_QUANT.

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged, InvokeContext, PrepareContext, TensorView};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::quantize::FakeQuantParams;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::common::float8::Float8;
use crate::common::index::{packed, set_packed};
use crate::common::pace::{Pace, zip_pieces};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{Multiplier, QuantizedElement};
use crate::common::weights::signed;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::QUANTIZE, prepared(quantize), 1..=6)
        .add_builtin(BuiltinOp::DEQUANTIZE, prepared(dequantize), 1..=9)
        .add_builtin(BuiltinOp::FAKE_QUANT, prepared(fake_quant), 1..=2);
}

/// Scales and zero points along one dimension: `inner` consecutive elements share a pair.
struct Channels {
    scales: Charged<f32>,
    zero_points: Charged<i32>,
    inner: usize,
}

impl Channels {
    fn new(budget: &Arc<Budget>, tensor: TensorView<'_>) -> Result<Self> {
        let affine = tensor.quantization().and_then(|q| q.affine());
        let affine = affine.ok_or_else(|| {
            let name = tensor.name();
            Error::Unsupported(format!(
                "the quantization of \"{name}\"; only scales and zero points are supported"
            ))
        })?;
        let scales = budget.collect(affine.scales.iter().copied())?;
        let mut zero_points = budget.reserved(affine.zero_points.len())?;
        for zero_point in affine.zero_points.iter() {
            let zero_point = i32::try_from(zero_point);
            zero_points.push(zero_point.map_err(|e| Error::InvalidNode(format!("a zero point: {e}")))?)?;
        }
        let shape = tensor.shape();
        let inner = match affine.scales.len() {
            1 => shape.elements(),
            _ => shape.get(affine.dimension + 1..).unwrap_or_default().iter().product(),
        };
        Ok(Channels { scales, zero_points, inner: inner.max(1) })
    }

    /// Scale and zero point of element `i`.
    fn of(&self, i: usize) -> (f32, i32) {
        let channel = i / self.inner % self.scales.len();
        (self.scales[channel], self.zero_points[channel])
    }
}

fn quantize(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let same = input.ty() == output.ty() && input.ty() != TensorType::Float32;
    if let (true, Ok(from), Ok(to)) = (same, input.scale_zero_point(), output.scale_zero_point())
        && from == to
    {
        cx.output_is_view_of(0);
    }
    match (input.ty(), output.ty()) {
        (TensorType::Float32, TensorType::Int8) => from_float::<i8>(cx, output),
        (TensorType::Float32, TensorType::UInt8) => from_float::<u8>(cx, output),
        (TensorType::Float32, TensorType::Int16) => from_float::<i16>(cx, output),
        (TensorType::Float32, TensorType::Int4) => from_float_packed(cx, output, -8, 7),
        (TensorType::Float32, TensorType::UInt4) => from_float_packed(cx, output, 0, 15),
        (TensorType::Int8, TensorType::Int8) => rescale::<i8, i8>(input, output),
        (TensorType::Int8, TensorType::UInt8) => rescale::<i8, u8>(input, output),
        (TensorType::Int8, TensorType::Int16) => rescale::<i8, i16>(input, output),
        (TensorType::UInt8, TensorType::Int8) => rescale::<u8, i8>(input, output),
        (TensorType::UInt8, TensorType::UInt8) => rescale::<u8, u8>(input, output),
        (TensorType::UInt8, TensorType::Int16) => rescale::<u8, i16>(input, output),
        (TensorType::Int16, TensorType::Int8) => rescale::<i16, i8>(input, output),
        (TensorType::Int16, TensorType::UInt8) => rescale::<i16, u8>(input, output),
        (TensorType::Int16, TensorType::Int16) => rescale::<i16, i16>(input, output),
        (TensorType::Int16, TensorType::Int32) => rescale::<i16, i32>(input, output),
        (TensorType::Int32, TensorType::Int8) => rescale::<i32, i8>(input, output),
        (TensorType::Int32, TensorType::Int16) => rescale::<i32, i16>(input, output),
        (
            TensorType::Float32
            | TensorType::Int8
            | TensorType::UInt8
            | TensorType::Int16
            | TensorType::Int32,
            _,
        ) => Err(unsupported_type("output", output)),
        _ => Err(unsupported_type("input", input)),
    }
}

/// TFLite's kernel for one scale handles groups of 8, which it multiplies by the inverse scale with ties to even; it
/// divides the rest in double precision, with ties away from zero.
fn from_float<Q: QuantizedElement>(cx: &PrepareContext<'_>, output: TensorView<'_>) -> Result<Invoke> {
    let channels = Channels::new(cx.budget(), output)?;
    let one_scale = channels.scales.len() == 1;
    let together = output.shape().elements() / 8 * 8;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<Q>(0)?);
        zip_pieces(cx, 1, output, input, |first, output, input| {
            for (i, (o, &x)) in (first..).zip(output.iter_mut().zip(input)) {
                let (scale, zero_point) = channels.of(i);
                let steps = match one_scale {
                    true if i < together => (x * inverse(scale)).round_ties_even() as i32,
                    true => (f64::from(x) / f64::from(scale)).round() as i32,
                    false => (x / scale).round() as i32,
                };
                *o = Q::clamped(steps.saturating_add(zero_point), Q::MIN, Q::MAX);
            }
        })
    }))
}

fn inverse(scale: f32) -> f32 {
    (1.0 / f64::from(scale)) as f32
}

/// The integer that represents `x`, not yet clamped to its type. NaN counts as zero; infinity saturates.
fn steps(x: f32, scale: f32, zero_point: i32) -> i32 {
    ((x / scale).round() as i32).saturating_add(zero_point)
}

/// Packs two elements into a byte, the low half first.
fn from_float_packed(cx: &PrepareContext<'_>, output: TensorView<'_>, low: i32, high: i32) -> Result<Invoke> {
    let channels = Channels::new(cx.budget(), output)?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output_bytes(0)?);
        let mut pace = Pace::new(cx);
        for (i, &x) in input.iter().enumerate() {
            pace.spend(4)?;
            let (scale, zero_point) = channels.of(i);
            set_packed(output, 4, i, steps(x, scale, zero_point).clamp(low, high) as u8);
        }
        Ok(())
    }))
}

fn rescale<A: QuantizedElement, B: QuantizedElement>(
    input: TensorView<'_>,
    output: TensorView<'_>,
) -> Result<Invoke> {
    let ((from, from_zero), (to, to_zero)) = (input.scale_zero_point()?, output.scale_zero_point()?);
    let multiplier = Multiplier::new(f64::from(from) / f64::from(to))?;
    // TFLite's kernel from bytes to bytes rounds ties of groups of 16 up, and ties of the rest away from zero.
    let bytes = size_of::<A>() == 1 && size_of::<B>() == 1;
    let together = if bytes { input.shape().elements() / 16 * 16 } else { 0 };
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<A>(0)?, cx.output::<B>(0)?);
        zip_pieces(cx, 1, output, input, |first, output, input| {
            for (i, (o, &x)) in (first..).zip(output.iter_mut().zip(input)) {
                let steps = Into::<i32>::into(x).saturating_sub(from_zero);
                let scaled = if i < together { multiplier.apply_up(steps) } else { multiplier.apply(steps) };
                *o = B::clamped(scaled.saturating_add(to_zero), B::MIN, B::MAX);
            }
        })
    }))
}

fn dequantize(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let input = cx.input(0)?;
    match input.ty() {
        TensorType::Float16 => Ok(Box::new(widen::<f16>)),
        TensorType::BFloat16 => Ok(Box::new(widen::<bf16>)),
        TensorType::Int8 => to_float::<i8>(cx, input),
        TensorType::UInt8 => to_float::<u8>(cx, input),
        TensorType::Int16 => to_float::<i16>(cx, input),
        TensorType::Int4 => packed_to_float(cx, input, 4, true),
        TensorType::UInt4 => packed_to_float(cx, input, 4, false),
        TensorType::Int2 => packed_to_float(cx, input, 2, true),
        ty => match Float8::of(ty) {
            Some(format) => widen_float8(format),
            None => Err(unsupported_type("input", input)),
        },
    }
}

fn widen<F: Element>(cx: &mut InvokeContext<'_>) -> Result<()>
where
    [F]: HalfFloatSliceExt,
{
    let (input, output) = (cx.input::<F>(0)?, cx.output::<f32>(0)?);
    // Whole slices are converted in vectors, where the processor has an instruction for it.
    zip_pieces(cx, 1, output, input, |_, output, input| input.convert_to_f32_slice(output))
}

fn to_float<Q: QuantizedElement>(cx: &PrepareContext<'_>, input: TensorView<'_>) -> Result<Invoke> {
    let channels = Channels::new(cx.budget(), input)?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<Q>(0)?, cx.output::<f32>(0)?);
        zip_pieces(cx, 1, output, input, |first, output, input| {
            for (i, (o, &x)) in (first..).zip(output.iter_mut().zip(input)) {
                *o = real(Into::<i32>::into(x), channels.of(i));
            }
        })
    }))
}

/// Several elements per byte, the lowest bits first.
fn packed_to_float(
    cx: &PrepareContext<'_>,
    input: TensorView<'_>,
    bits: usize,
    is_signed: bool,
) -> Result<Invoke> {
    let channels = Channels::new(cx.budget(), input)?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output::<f32>(0)?);
        let mut pace = Pace::new(cx);
        for (i, o) in output.iter_mut().enumerate() {
            pace.spend(4)?;
            let code = packed(input, bits, i);
            let value = if is_signed { signed(code, bits).into() } else { code.into() };
            *o = real(value, channels.of(i));
        }
        Ok(())
    }))
}

fn widen_float8(format: Float8) -> Result<Invoke> {
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output::<f32>(0)?);
        zip_pieces(cx, 1, output, input, |_, output, input| {
            output.iter_mut().zip(input).for_each(|(o, &code)| *o = format.decode(code));
        })
    }))
}

fn real(value: i32, (scale, zero_point): (f32, i32)) -> f32 {
    (f64::from(scale) * f64::from(value.saturating_sub(zero_point))) as f32
}

/// Rounds to the values of a quantized type of `num_bits` bits in which zero is exact.
fn fake_quant(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p: &FakeQuantParams = cx.params()?;
    let lowest = if p.narrow_range { 1.0 } else { 0.0 };
    let highest = ((1 << p.num_bits) - 1) as f32;
    let scale = (p.max - p.min) / (highest - lowest);
    let zero_point = (lowest - p.min / scale).clamp(lowest, highest).round();
    let (min, max) = ((lowest - zero_point) * scale, (highest - zero_point) * scale);
    let inverse = 1.0 / scale;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        zip_pieces(cx, 1, output, input, |_, output, input| {
            for (o, &x) in output.iter_mut().zip(input) {
                *o = ((x.clamp(min, max) - min) * inverse).round() * scale + min;
            }
        })
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::common::pace::PIECE;
    use crate::testing::{T, check, error};

    #[test]
    fn floats_to_steps_and_back() {
        let floats = Some(T::new(&[4], &[0f32, 0.26, -100.0, f32::INFINITY]));
        let steps = || T::new(&[4], &[-1i8, 0, -128, 127]).quantized(0.5, -1);
        check(BuiltinOp::QUANTIZE, 1, Params::None, &[floats], &[steps()]);
        let back = T::new(&[4], &[0f32, 0.5, -63.5, 64.0]);
        check(BuiltinOp::DEQUANTIZE, 2, Params::None, &[Some(steps())], &[back]);
    }

    #[test]
    fn eight_at_once_round_halves_to_even_and_the_rest_away_from_zero() {
        let floats = T::new(&[10], &[0.25f32, 0.75, 1.25, -0.25, -0.75, -1.25, 0.0, 4.25, 0.25, -1.25]);
        let steps = T::new(&[10], &[0i8, 2, 2, 0, -2, -2, 0, 8, 1, -3]).quantized(0.5, 0);
        check(BuiltinOp::QUANTIZE, 1, Params::None, &[Some(floats)], &[steps]);
        // Slightly more than a half; the product with the inverse is exactly a half.
        let floats = T::new(&[8], &[-0.638_545_45_f32; 8]);
        let steps = T::new(&[8], &[-82i16; 8]).quantized(0.007_739_945, 0);
        check(BuiltinOp::QUANTIZE, 2, Params::None, &[Some(floats)], &[steps]);
        let floats = T::new(&[1], &[-0.638_545_45_f32]);
        let steps = T::new(&[1], &[-83i16]).quantized(0.007_739_945, 0);
        check(BuiltinOp::QUANTIZE, 2, Params::None, &[Some(floats)], &[steps]);
    }

    #[test]
    fn pieces_continue_where_the_last_one_ended() {
        let n = PIECE + 9;
        let mut steps = vec![0i8; n];
        // After the last group of eight, halves are rounded away from zero.
        steps[n - 1] = 1;
        let (floats, steps) = (T::new(&[n], &vec![0.25f32; n]), T::new(&[n], &steps).quantized(0.5, 0));
        check(BuiltinOp::QUANTIZE, 1, Params::None, &[Some(floats)], &[steps]);
    }

    #[test]
    fn another_scale() {
        let input = Some(T::new(&[3], &[-128i8, 0, 127]).quantized(0.5, 0));
        let same = T::new(&[3], &[0u8, 128, 255]).quantized(0.5, 128);
        check(BuiltinOp::QUANTIZE, 1, Params::None, std::slice::from_ref(&input), &[same]);
        let half = T::new(&[3], &[64u8, 128, 192]).quantized(1.0, 128);
        check(BuiltinOp::QUANTIZE, 1, Params::None, &[input], &[half]);
    }

    #[test]
    fn channels_have_their_own_scales() {
        let input = T::new(&[2, 2], &[1i8, 2, 1, 2]).per_channel(&[0.5, 2.0], 0);
        let output = T::new(&[2, 2], &[0.5f32, 1.0, 2.0, 4.0]);
        check(BuiltinOp::DEQUANTIZE, 5, Params::None, &[Some(input)], &[output]);
    }

    #[test]
    fn half_floats_widen() {
        let input = Some(T::new(&[2], &[f16::from_f32(1.5), f16::NEG_INFINITY]));
        check(
            BuiltinOp::DEQUANTIZE,
            3,
            Params::None,
            &[input],
            &[T::new(&[2], &[1.5f32, f32::NEG_INFINITY])],
        );
    }

    #[test]
    fn fake_quantization() {
        let params = FakeQuantParams::default().min(0.0).max(1.0).num_bits(8).narrow_range(false);
        let input = Some(T::new(&[4], &[-1f32, 0.21, 0.71, 2.0]));
        let output = T::new(&[4], &[0f32, 54.0 / 255.0, 181.0 / 255.0, 1.0]);
        check(BuiltinOp::FAKE_QUANT, 1, Params::FakeQuant(params), &[input], &[output]);
    }

    #[test]
    fn what_is_not_done_is_said() {
        let text = error(
            BuiltinOp::DEQUANTIZE,
            1,
            Params::None,
            &[Some(T::new(&[1], &[1i64]).quantized(1.0, 0))],
            &[T::new(&[1], &[1f32])],
        );
        assert!(text.contains("not supported: input \"t0\" of type INT64"), "{text}");
        let text = error(
            BuiltinOp::QUANTIZE,
            1,
            Params::None,
            &[Some(T::new(&[1], &[1f32]))],
            &[T::new(&[1], &[1i8])],
        );
        assert!(text.contains("the output has no scale"), "{text}");
    }
}
