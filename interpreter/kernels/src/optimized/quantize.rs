//! QUANTIZE and DEQUANTIZE between floats and 8 or 16 bits, and QUANTIZE between scales of 8 and 16 bits.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{byte_quant, compute_error, optimize};
use crate::common::prepared::Invoke;
use crate::common::quantized::{Multiplier, QuantizedElement};
use delegraph_compute::{ByteQuant, Isa, dequantize, lookup, map_groups, quantize};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::QUANTIZE, 1..=3, from_float);
    optimize(resolver, BuiltinOp::DEQUANTIZE, 1..=6, to_float);
}

/// Scale and quantization of an 8-bit tensor; `None` for per-channel scales, which the reference kernel handles.
fn one_scale(tensor: TensorView<'_>) -> Option<(f32, ByteQuant)> {
    let quant = byte_quant(tensor)?;
    tensor.scale_zero_point().ok().map(|(scale, _)| (scale, quant))
}

fn from_float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    match (cx.input(0)?.ty(), cx.output(0)?.ty()) {
        (TensorType::Float32, TensorType::Int16) => return float_to_sixteen(cx),
        (TensorType::Int16, TensorType::Int16) => return rescale::<i16, i16>(cx),
        (TensorType::Int16, TensorType::Int8) => return rescale::<i16, i8>(cx),
        (TensorType::Int8, TensorType::Int16) => return rescale::<i8, i16>(cx),
        (TensorType::Int8 | TensorType::UInt8, TensorType::Int8 | TensorType::UInt8) => return bytes(cx),
        _ => {}
    }
    let Some((scale, quant)) = one_scale(cx.output(0)?) else { return Ok(None) };
    if cx.input(0)?.ty() != TensorType::Float32 {
        return Ok(None);
    }
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output_bytes(0)?);
        quantize(isa, scale, quant, input, output, cx.parallel()).map_err(compute_error)
    })))
}

fn to_float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    if cx.input(0)?.ty() == TensorType::Int16 {
        return sixteen_to_float(cx);
    }
    let Some((scale, quant)) = one_scale(cx.input(0)?) else { return Ok(None) };
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output::<f32>(0)?);
        dequantize(isa, scale, quant, input, output, cx.parallel()).map_err(compute_error)
    })))
}

/// QUANTIZE to 16 bits. As with 8 bits, whole groups of eight are multiplied by the inverse scale with ties to even,
/// and the rest is divided with ties away from zero.
fn float_to_sixteen(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let Ok((scale, zero_point)) = cx.output(0)?.scale_zero_point() else { return Ok(None) };
    let isa = Isa::best();
    let inverse = (1.0 / f64::from(scale)) as f32;
    let finish = move |steps: f32| {
        let steps = if steps.is_nan() { 0.0 } else { steps };
        // Bounds beyond the range of 16 bits for any zero point of a valid model.
        let steps = steps.clamp(-1e9, 1e9) as i32;
        steps.saturating_add(zero_point).max(i16::MIN.into()).min(i16::MAX.into()) as i16
    };
    let quantize = move |x: f32, in_group: bool| {
        finish(match in_group {
            true => (x * inverse).round_ties_even(),
            false => (f64::from(x) / f64::from(scale)).round() as f32,
        })
    };
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<i16>(0)?);
        map_groups(isa, input, output, cx.parallel(), quantize).map_err(compute_error)
    })))
}

/// Requantization between two scales and zero points; not between bytes, which round differently.
fn rescale<A: QuantizedElement, B: QuantizedElement>(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let ((from, from_zero), (to, to_zero)) = (input.scale_zero_point()?, output.scale_zero_point()?);
    if input.ty() == output.ty() && (from, from_zero) == (to, to_zero) {
        cx.output_is_view_of(0);
    }
    let multiplier = Multiplier::new(f64::from(from) / f64::from(to))?;
    let isa = Isa::best();
    let rescale = move |x: A, _: bool| {
        let steps = Into::<i32>::into(x).saturating_sub(from_zero);
        B::clamped(multiplier.apply(steps).saturating_add(to_zero), B::MIN, B::MAX)
    };
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<A>(0)?, cx.output::<B>(0)?);
        map_groups(isa, input, output, cx.parallel(), rescale).map_err(compute_error)
    })))
}

/// Requantization between bytes, by tables. TFLite's kernel rounds ties of groups of 16 up, and ties of the rest away from zero.
fn bytes(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let (Some((from, from_quant)), Some((to, to_quant))) = (one_scale(input), one_scale(output)) else {
        return Ok(None);
    };
    if (input.ty(), from, from_quant) == (output.ty(), to, to_quant) {
        cx.output_is_view_of(0);
    }
    let multiplier = Multiplier::new(f64::from(from) / f64::from(to))?;
    let [low, high] = if to_quant.signed { [-128, 127] } else { [0, 255] };
    let table = |scaled: &dyn Fn(i32) -> i32| -> [u8; 256] {
        std::array::from_fn(|byte| {
            let byte = byte as u8;
            let value = if from_quant.signed { i32::from(byte.cast_signed()) } else { byte.into() };
            let steps = scaled(value - from_quant.zero_point);
            steps.saturating_add(to_quant.zero_point).clamp(low, high) as u8
        })
    };
    let tables = [table(&|x| multiplier.apply_up(x)), table(&|x| multiplier.apply(x))];
    // Between signed and unsigned bytes of one scale, the usual border of a model, only the upper bit changes.
    let flips = tables.iter().all(|table| (0..=255).zip(table).all(|(byte, to)| byte ^ 0x80 == *to));
    let together = input.shape().elements() / 16 * 16;
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        if flips {
            return map_groups(isa, input, output, cx.parallel(), |byte, _| byte ^ 0x80)
                .map_err(compute_error);
        }
        let ((input, rest), (output, rest_out)) =
            (input.split_at(together.min(input.len())), output.split_at_mut(together.min(output.len())));
        lookup(isa, &tables[0], Some(input), output, cx.parallel()).map_err(compute_error)?;
        lookup(isa, &tables[1], Some(rest), rest_out, cx.parallel()).map_err(compute_error)
    })))
}

fn sixteen_to_float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let Ok((scale, zero_point)) = cx.input(0)?.scale_zero_point() else { return Ok(None) };
    let isa = Isa::best();
    let real = move |x: i16, _: bool| scale * i32::from(x).wrapping_sub(zero_point) as f32;
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<i16>(0)?, cx.output::<f32>(0)?);
        map_groups(isa, input, output, cx.parallel(), real).map_err(compute_error)
    })))
}
