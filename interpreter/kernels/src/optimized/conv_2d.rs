//! CONV_2D with constant filters.

use std::sync::Arc;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::{
    Packed, Quantized, clamp_of, compute_error, geometry, hybrid, int16, optimize_packed, pack_own,
    pack_shared,
};
use crate::common::prepared::Invoke;
use crate::common::weights::Requantize;
use delegraph_compute::{ChannelTies, Clamp, ConvF32, ConvGeometry, ConvI8, Filter, Isa, SparseF32};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize_packed(resolver, BuiltinOp::CONV_2D, 1..=8, prepare);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    if !filter.is_known() || cx.optional_input(2).is_some_and(|bias| !bias.is_known()) {
        return Ok(None);
    }
    let p: &Conv2DParams = cx.params()?;
    let &[out_channels, height, width, in_channels] = &filter.shape()[..] else { return Ok(None) };
    let (stride, dilation) = ([p.stride_h, p.stride_w], [p.dilation_h_factor, p.dilation_w_factor]);
    let Some(geo) = geometry(input, cx.output(0)?, [height, width], stride, dilation, p.padding) else {
        return Ok(None);
    };
    let groups = geo.in_channels.checked_div(in_channels).unwrap_or(0);
    let layer = Filter { out_channels, height, width, in_channels, groups };
    match (input.ty(), filter.ty()) {
        (TensorType::Float32, TensorType::Float32) => float(cx, layer, geo),
        (TensorType::Int8, TensorType::Int8 | TensorType::Int4) | (TensorType::UInt8, TensorType::UInt8) => {
            integer(cx, layer, geo)
        }
        (TensorType::Float32, TensorType::Int8 | TensorType::UInt8 | TensorType::Int4) => {
            let activation = p.fused_activation_function;
            hybrid::conv_2d(cx, layer, geo, activation)
        }
        (TensorType::Int16, TensorType::Int8 | TensorType::Int4) => {
            let activation = p.fused_activation_function;
            let requantize =
                Requantize::new(cx.budget(), (input, filter), cx.output(0)?, 0, activation, false)?;
            int16::conv_2d(cx, layer, geo, &requantize)
        }
        _ => Ok(None),
    }
}

fn float(cx: &mut PrepareContext<'_>, filter: Filter, geo: ConvGeometry) -> Result<Option<Invoke>> {
    let Some(clamp) = clamp_of(cx.params::<Conv2DParams>()?.fused_activation_function) else {
        return Ok(None);
    };
    let bias = match cx.optional_input(2) {
        Some(bias) => bias.constant::<f32>()?,
        None => None,
    };
    let Some(weights) = cx.input(1)?.constant::<f32>()? else { return Ok(None) };
    let shape = [filter.out_channels, filter.in_channels];
    let pixels = geo.pixels().map_err(compute_error)?;
    if geo.is_dense() && filter.groups == 1 && SparseF32::pays(Isa::best(), pixels, shape, weights) {
        // The variant key is empty, unlike that of `ConvF32` below.
        let product = pack_shared(cx, &[], || SparseF32::pack(Isa::best(), shape, weights, bias))?;
        return sparse(cx, product, clamp);
    }
    let pack = || ConvF32::pack(Isa::best(), filter, weights, bias);
    let conv = pack_shared(cx, &[filter.groups], pack)?;
    let mut plan = pack_own(cx, || conv.plan(&geo, cx.threads())?.keep_addresses())?;
    let scratch = cx.temporary(plan.scratch_len());
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let scratch = cx.temporary::<u8>(scratch)?;
        conv.run_planned(&mut plan, input, output, clamp, scratch, cx.parallel()).map_err(compute_error)
    })))
}

/// A 1x1 convolution with weights that are mostly zero.
fn sparse(
    cx: &mut PrepareContext<'_>,
    product: Arc<Packed<SparseF32>>,
    clamp: Clamp,
) -> Result<Option<Invoke>> {
    let scratch = cx.temporary(product.scratch_len(cx.threads()).map_err(compute_error)?);
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let scratch = cx.temporary::<u8>(scratch)?;
        product.run(input, output, clamp, scratch, cx.parallel()).map_err(compute_error)
    })))
}

fn integer(cx: &mut PrepareContext<'_>, filter: Filter, geo: ConvGeometry) -> Result<Option<Invoke>> {
    let activation = cx.params::<Conv2DParams>()?.fused_activation_function;
    let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let requantize = Requantize::new(
        cx.budget(),
        (input, weights),
        output,
        0,
        activation,
        input.ty() == TensorType::UInt8,
    )?;
    // TFLite computes grouped convolutions without a matrix product, and rounds ties the other way.
    let ties = if filter.groups == 1 { ChannelTies::Up } else { ChannelTies::Away };
    let Some(q) = Quantized::new(cx, &requantize)? else { return Ok(None) };
    let output = Some(q.output(ties));
    let pack =
        || ConvI8::pack(Isa::best(), filter, &geo, &q.weights, q.weight_quant, q.bias, q.input, output);
    let conv = pack_shared(cx, &[filter.groups], pack)?;
    let mut plan = pack_own(cx, || conv.plan(&geo, cx.threads())?.keep_addresses())?;
    let scratch = cx.temporary(plan.scratch_len());
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        let scratch = cx.temporary::<u8>(scratch)?;
        conv.run_planned(&mut plan, input, output, scratch, cx.parallel()).map_err(compute_error)
    })))
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::{Activation, Params};

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn weights_that_are_mostly_zero() {
        let (inputs, outputs, pixels) = (40, 24, 35);
        let weights: Vec<f32> =
            (0..inputs * outputs).map(|i| if i % 7 == 3 { i as f32 } else { 0.0 }).collect();
        let bias: Vec<f32> = (0..outputs).map(|o| o as f32 - 4.0).collect();
        let input: Vec<f32> = (0..inputs * pixels).map(|i| ((i * 5) % 11) as f32 - 5.0).collect();
        // The sums are integers below 2^24.
        let mut expected = Vec::new();
        for pixel in input.chunks_exact(inputs) {
            for (row, bias) in weights.chunks_exact(inputs).zip(&bias) {
                let sum: f32 = pixel.iter().zip(row).map(|(x, w)| x * w).sum();
                expected.push((sum + bias).max(0.0));
            }
        }
        let params = Conv2DParams::default().stride_w(1).stride_h(1);
        let params = Params::from(params.fused_activation_function(Activation::Relu));
        let constants = [T::new(&[outputs, 1, 1, inputs], &weights), T::new(&[outputs], &bias)];
        let [filter, bias] = constants.map(|t| Some(t.constant()));
        let input = Some(T::new(&[1, 5, 7, inputs], &input));
        check(
            BuiltinOp::CONV_2D,
            1,
            params,
            &[input, filter, bias],
            &[T::new(&[1, 5, 7, outputs], &expected)],
        );
    }

    #[test]
    fn tiny_scales_with_huge_biases() {
        // Channels whose weights are all near zero: a bias of 2^30 is 4.6 steps of the output.
        let channels = 40;
        let input = T::new(&[1, 1, 2, 4], &[-128i8; 8]).quantized(0.5, -128);
        let filter = T::new(&[channels, 1, 1, 4], &vec![1i8; 4 * channels]);
        let bias: Vec<i32> = (0..channels).map(|c| if c % 2 == 0 { 1 << 30 } else { -(1 << 30) }).collect();
        let expected: Vec<i8> = (0..2 * channels).map(|i| if i % 2 == 0 { -95 } else { -105 }).collect();
        let params = Params::from(Conv2DParams::default().stride_w(1).stride_h(1));
        let inputs = [
            Some(input),
            Some(filter.per_channel(&vec![4.3e-9; channels], 0)),
            Some(T::new(&[channels], &bias)),
        ];
        let expected = T::new(&[1, 1, 2, channels], &expected).quantized(0.5, -100);
        check(BuiltinOp::CONV_2D, 3, params, &inputs, &[expected]);
    }
}
