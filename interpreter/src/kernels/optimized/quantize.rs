//! QUANTIZE and DEQUANTIZE between floats and 8 bits.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::ops::TensorType;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{byte_quant, compute_error, optimize};
use crate::compute::{ByteQuant, Isa, dequantize, quantize};
use crate::kernels::prepared::Invoke;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::QUANTIZE, 1..=3, from_float);
    optimize(resolver, BuiltinOp::DEQUANTIZE, 1..=6, to_float);
}

/// Scales of one channel each are the reference kernel's.
fn one_scale(tensor: TensorView<'_>) -> Option<(f32, ByteQuant)> {
    let quant = byte_quant(tensor)?;
    tensor.scale_zero_point().ok().map(|(scale, _)| (scale, quant))
}

fn from_float(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
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
    let Some((scale, quant)) = one_scale(cx.input(0)?) else { return Ok(None) };
    let isa = Isa::best();
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output::<f32>(0)?);
        dequantize(isa, scale, quant, input, output, cx.parallel()).map_err(compute_error)
    })))
}
