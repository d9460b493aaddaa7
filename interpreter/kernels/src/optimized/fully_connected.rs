//! FULLY_CONNECTED with constant weights.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::{TensorType, WeightsFormat};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{Quantized, clamp_of, compute_error, hybrid, int16, optimize_packed, pack_shared};
use crate::common::prepared::Invoke;
use crate::common::weights::{Requantize, weight_scales};
use delegraph_compute::{ChannelTies, GemmF32, GemmI8, Isa, MatrixLayout};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize_packed(resolver, BuiltinOp::FULLY_CONNECTED, 1..=14, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, weights) = (cx.input(0)?, cx.input(1)?);
    let known = weights.is_known() && cx.optional_input(2).is_none_or(|bias| bias.is_known());
    let format = cx.params::<FullyConnectedParams>()?.weights_format;
    if !known || format != WeightsFormat::Default || weights.tensor().sparsity.is_some() {
        return Ok(None);
    }
    let &[units, depth] = &weights.shape()[..] else { return Ok(None) };
    let Some(rows) = input.shape().elements().checked_div(depth) else { return Ok(None) };
    match (input.ty(), weights.ty()) {
        (TensorType::Float32, TensorType::Float32) => float(cx, (rows, depth, units)),
        (TensorType::Int8, TensorType::Int8 | TensorType::Int4) | (TensorType::UInt8, TensorType::UInt8) => {
            integer(cx, (rows, depth, units))
        }
        (TensorType::Int16, TensorType::Int8 | TensorType::Int4 | TensorType::Int2) => {
            let activation = cx.params::<FullyConnectedParams>()?.fused_activation_function;
            let single = weight_scales(weights, 0)?.len() == 1;
            let requantize =
                Requantize::new(cx.budget(), (input, weights), cx.output(0)?, 0, activation, single)?;
            int16::fully_connected(cx, (rows, depth, units), &requantize)
        }
        _ if hybrid::is_hybrid(input, weights) => {
            let p = cx.params::<FullyConnectedParams>()?;
            let (activation, asymmetric) = (p.fused_activation_function, p.asymmetric_quantize_inputs);
            hybrid::fully_connected(cx, (rows, depth, units), activation, asymmetric)
        }
        _ => Ok(None),
    }
}

type Size = (usize, usize, usize);

fn float(cx: &mut PrepareContext<'_>, (rows, depth, units): Size) -> Result<Option<Invoke>> {
    let activation = cx.params::<FullyConnectedParams>()?.fused_activation_function;
    let Some(clamp) = clamp_of(activation) else { return Ok(None) };
    let bias = match cx.optional_input(2) {
        Some(bias) => bias.constant::<f32>()?,
        None => None,
    };
    let Some(weights) = cx.input(1)?.constant::<f32>()? else { return Ok(None) };
    let layout = MatrixLayout::ColumnsContiguous;
    let pack = || GemmF32::pack(Isa::best(), (depth, units), weights, layout, bias);
    let gemm = pack_shared(cx, &[], pack)?;
    let plan = gemm.plan(rows, cx.threads()).map_err(compute_error)?;
    if plan.is_single_row() {
        return Ok(Some(Box::new(move |cx| {
            let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
            gemm.run_row(input, output, clamp).map_err(compute_error)
        })));
    }
    let scratch = cx.temporary(plan.scratch_len());
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let scratch = cx.temporary::<u8>(scratch)?;
        gemm.run_planned(&plan, input, output, clamp, scratch, cx.parallel()).map_err(compute_error)
    })))
}

fn integer(cx: &mut PrepareContext<'_>, (rows, depth, units): Size) -> Result<Option<Invoke>> {
    let activation = cx.params::<FullyConnectedParams>()?.fused_activation_function;
    let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if output.ty() != input.ty() {
        return Ok(None);
    }
    let single = weight_scales(weights, 0)?.len() == 1;
    let requantize = Requantize::new(cx.budget(), (input, weights), output, 0, activation, single)?;
    let Some(mut q) = Quantized::new(cx, &requantize)? else { return Ok(None) };
    // Signed weights may have a zero point, unlike those of a convolution.
    q.weight_quant.zero_point = weights.scale_zero_point().map_or(0, |(_, zero)| zero);
    let output = Some(q.output(ChannelTies::Up));
    let shape = (depth, units);
    let pack = || GemmI8::pack(Isa::best(), shape, &q.weights, q.weight_quant, q.bias, q.input, output);
    let gemm = pack_shared(cx, &[], pack)?;
    let plan = gemm.plan(rows, cx.threads()).map_err(compute_error)?;
    if plan.is_single_row() {
        return Ok(Some(Box::new(move |cx| {
            let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
            gemm.run_row(input, output).map_err(compute_error)
        })));
    }
    let scratch = cx.temporary(plan.scratch_len());
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        let scratch = cx.temporary::<u8>(scratch)?;
        gemm.run_planned(&plan, input, output, scratch, cx.parallel()).map_err(compute_error)
    })))
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::Params;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn signed_weights_may_have_a_zero_point() {
        let input = T::new(&[1, 2], &[2i8, 4]).quantized(0.5, 0);
        let weights = T::new(&[1, 2], &[4i8, 6]).quantized(0.5, 2);
        let expected = T::new(&[1, 1], &[10i8]).quantized(0.5, 0);
        let params = Params::from(FullyConnectedParams::default());
        check(BuiltinOp::FULLY_CONNECTED, 4, params, &[Some(input), Some(weights)], &[expected]);
    }
}
