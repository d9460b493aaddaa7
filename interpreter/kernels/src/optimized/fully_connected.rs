//! FULLY_CONNECTED with constant weights, or with one row of floats.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::{TensorType, WeightsFormat};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{Quantized, clamp_of, compute_error, hybrid, int16, optimize, pack_shared};
use crate::common::prepared::Invoke;
use crate::common::weights::{Requantize, weight_scales};
use delegraph_compute::{
    ChannelTies, GemmF32, GemmI8, Isa, MatrixLayout, row_product, row_product_pays, row_product_scratch,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize(resolver, BuiltinOp::FULLY_CONNECTED, 1..=14, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, weights) = (cx.input(0)?, cx.input(1)?);
    let format = cx.params::<FullyConnectedParams>()?.weights_format;
    if format != WeightsFormat::Default || weights.tensor().sparsity.is_some() {
        return Ok(None);
    }
    let &[units, depth] = &weights.shape()[..] else { return Ok(None) };
    let Some(rows) = input.shape().elements().checked_div(depth) else { return Ok(None) };
    let floats = [Some(input), Some(weights), cx.optional_input(2)]
        .into_iter()
        .flatten()
        .all(|tensor| tensor.ty() == TensorType::Float32);
    // Weights that were computed while preparing are packed instead, after which their memory is released.
    let stays = weights.tensor().is_stored() || !weights.is_known();
    if floats && stays && row_product_pays(Isa::best(), rows, depth, units) {
        return one_row(cx, depth);
    }
    let known = weights.is_known() && cx.optional_input(2).is_none_or(|bias| bias.is_known());
    let invoke = if known { packed(cx, (rows, depth, units))? } else { None };
    if invoke.is_some() {
        cx.done_with_constants();
    }
    Ok(invoke)
}

fn packed(cx: &mut PrepareContext<'_>, (rows, depth, units): Size) -> Result<Option<Invoke>> {
    let (input, weights) = (cx.input(0)?, cx.input(1)?);
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

/// Reads the weights where they are: a packed copy would take their memory again, and be read no faster.
fn one_row(cx: &mut PrepareContext<'_>, depth: usize) -> Result<Option<Invoke>> {
    let activation = cx.params::<FullyConnectedParams>()?.fused_activation_function;
    let Some(clamp) = clamp_of(activation) else { return Ok(None) };
    let has_bias = cx.optional_input(2).is_some();
    let (isa, scratch) = (Isa::best(), cx.temporary_of::<f32>(row_product_scratch(depth))?);
    Ok(Some(Box::new(move |cx| {
        let bias = if has_bias { Some(cx.input::<f32>(2)?) } else { None };
        let (input, weights, output) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?, cx.output::<f32>(0)?);
        let scratch = cx.temporary::<f32>(scratch)?;
        row_product(isa, (input, weights, bias), output, clamp, scratch, cx.parallel()).map_err(compute_error)
    })))
}

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
    use delegraph_core::ops::{Activation, Params};

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

    #[test]
    fn one_row_of_many_weights() {
        let (depth, units) = (1024, 34);
        let input: Vec<f32> = (0..depth).map(|i| (i % 7) as f32 - 3.0).collect();
        let weights: Vec<f32> = (0..depth * units).map(|i| (i % 5) as f32 - 2.0).collect();
        let bias: Vec<f32> = (0..units).map(|i| i as f32).collect();
        for bias in [None, Some(bias)] {
            let sum = |unit: usize| {
                let products = input.iter().zip(&weights[unit * depth..]).map(|(x, w)| x * w);
                products.sum::<f32>() + bias.as_ref().map_or(0.0, |bias| bias[unit])
            };
            let expected: Vec<f32> = (0..units).map(|unit| sum(unit).max(0.0)).collect();
            for constant in [true, false] {
                let weights = T::new(&[units, depth], &weights);
                let inputs = [
                    Some(T::new(&[1, depth], &input)),
                    Some(if constant { weights.constant() } else { weights }),
                    bias.as_ref().map(|bias| T::new(&[units], bias)),
                ];
                let params = FullyConnectedParams::default().fused_activation_function(Activation::Relu);
                let expected = [T::new(&[1, units], &expected)];
                check(BuiltinOp::FULLY_CONNECTED, 1, Params::from(params), &inputs, &expected);
            }
        }
    }
}
