//! DEPTHWISE_CONV_2D with constant filters.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::spread::Spread;
use super::{
    Quantized, clamp_of, compute_error, geometry, hybrid, int16, is_long_row, optimize_packed, pack_shared,
};
use crate::common::prepared::Invoke;
use crate::common::weights::Requantize;
use delegraph_compute::{ChannelTies, ConvGeometry, DepthwiseF32, DepthwiseFilter, DepthwiseI8, Isa};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    optimize_packed(resolver, BuiltinOp::DEPTHWISE_CONV_2D, 1..=7, prepare);
}

/// Maximum number of weights, which are packed one by one: some 200 ms.
const MAX_WEIGHTS: usize = 1 << 24;

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Option<Invoke>> {
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    if !filter.is_known() || cx.optional_input(2).is_some_and(|bias| !bias.is_known()) {
        return Ok(None);
    }
    let p: &DepthwiseConv2DParams = cx.params()?;
    let &[_, height, width, channels] = &filter.shape()[..] else { return Ok(None) };
    let window = [height, width];
    let (stride, dilation) = ([p.stride_h, p.stride_w], [p.dilation_h_factor, p.dilation_w_factor]);
    let Some(geo) = geometry(input, cx.output(0)?, window, stride, dilation, p.padding) else {
        return Ok(None);
    };
    let multiplier = channels.checked_div(geo.in_channels).unwrap_or(0);
    if multiplier == 0 || geo.in_channels.checked_mul(multiplier) != Some(channels) {
        return Ok(None);
    }
    let taps = height.saturating_mul(width);
    if is_long_row(geo.output[1], taps, channels) || taps.saturating_mul(channels) > MAX_WEIGHTS {
        return Ok(None);
    }
    let is_short = |(turned, _): &(ConvGeometry, _)| !is_long_row(turned.output[1], taps, channels);
    let (geo, window) = turned(geo).filter(is_short).unwrap_or((geo, window));
    // If several output channels read one input channel, the kernels get an input with repeated channels.
    let geo = ConvGeometry { in_channels: channels, ..geo };
    let layer = (DepthwiseFilter { channels, window }, multiplier);
    match (input.ty(), filter.ty()) {
        (TensorType::Float32, TensorType::Float32) => float(cx, layer, geo),
        (TensorType::Int8, TensorType::Int8 | TensorType::Int4) | (TensorType::UInt8, TensorType::UInt8) => {
            integer(cx, layer, geo)
        }
        (TensorType::Float32, TensorType::Int8) => {
            let activation = p.fused_activation_function;
            hybrid::depthwise_conv_2d(cx, layer, geo, activation)
        }
        (TensorType::Int16, TensorType::Int8) => {
            let activation = p.fused_activation_function;
            let requantize =
                Requantize::new(cx.budget(), (input, filter), cx.output(0)?, 3, activation, false)?;
            int16::depthwise_conv_2d(cx, layer, geo, &requantize)
        }
        _ => Ok(None),
    }
}

/// Maximum number of elements of an image that is turned: a single row is not divided over threads.
const MAX_TURNED: usize = 1 << 15;

/// Images of one column, as in convolutions over time, are those of one row, which kernels compute faster. Returns their geometry
/// and window.
fn turned(geo: ConvGeometry) -> Option<(ConvGeometry, [usize; 2])> {
    let one_column = [geo.input[1], geo.output[1], geo.window[1]] == [1; 3] && geo.padding[1] == 0;
    // A window of one pixel has the same key of packed weights in both forms, which may depend on its stride.
    if !one_column || geo.window[0] == 1 || geo.output[0].saturating_mul(geo.in_channels) > MAX_TURNED {
        return None;
    }
    let swap = |[height, width]: [usize; 2]| [width, height];
    let turned = ConvGeometry {
        input: swap(geo.input),
        output: swap(geo.output),
        window: swap(geo.window),
        stride: swap(geo.stride),
        dilation: swap(geo.dilation),
        padding: swap(geo.padding),
        ..geo
    };
    Some((turned, turned.window))
}

fn float(
    cx: &mut PrepareContext<'_>,
    (filter, multiplier): (DepthwiseFilter, usize),
    geo: ConvGeometry,
) -> Result<Option<Invoke>> {
    let activation = cx.params::<DepthwiseConv2DParams>()?.fused_activation_function;
    let Some(clamp) = clamp_of(activation) else { return Ok(None) };
    let bias = match cx.optional_input(2) {
        Some(bias) => bias.constant::<f32>()?,
        None => None,
    };
    let Some(weights) = cx.input(1)?.constant::<f32>()? else { return Ok(None) };
    let DepthwiseFilter { channels, window } = filter;
    let inputs = channels / multiplier;
    let repeatedly = DepthwiseF32::reads_repeatedly(Isa::best(), [inputs, channels]);
    let (inputs, multiplier) = if repeatedly { (inputs, 1) } else { (channels, multiplier) };
    let geo = ConvGeometry { in_channels: inputs, ..geo };
    let pack = || DepthwiseF32::pack(Isa::best(), [inputs, channels], window, weights, bias);
    let conv = pack_shared(cx, &[inputs, channels, window[0]], pack)?;
    let spread = Spread::new::<f32>(cx, multiplier)?;
    let geo = geo.checked().map_err(compute_error)?;
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (spread.input::<f32>(cx)?, cx.output::<f32>(0)?);
        conv.run_checked(&geo, input, output, clamp, cx.parallel()).map_err(compute_error)
    })))
}

fn integer(
    cx: &mut PrepareContext<'_>,
    (filter, multiplier): (DepthwiseFilter, usize),
    geo: ConvGeometry,
) -> Result<Option<Invoke>> {
    let activation = cx.params::<DepthwiseConv2DParams>()?.fused_activation_function;
    let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let unsigned = input.ty() == TensorType::UInt8;
    let requantize = Requantize::new(cx.budget(), (input, weights), output, 3, activation, unsigned)?;
    let Some(q) = Quantized::new(cx, &requantize)? else { return Ok(None) };
    // TFLite rounds ties of groups of eight channels up, and ties of the remaining channels away from zero. For
    // unsigned types it rounds all ties away from zero.
    let ties = match unsigned {
        true => ChannelTies::Away,
        false => ChannelTies::AwayFrom(filter.channels / 8 * 8),
    };
    let output = q.output(ties);
    let isa = Isa::best();
    let geo = ConvGeometry { in_channels: filter.channels / multiplier, ..geo };
    let pack = || DepthwiseI8::pack(isa, filter, &geo, &q.weights, q.weight_quant, q.bias, q.input, output);
    let conv = pack_shared(cx, &[geo.in_channels, filter.channels, filter.window[0]], pack)?;
    let spread = Spread::bytes(cx, conv.inputs() / geo.in_channels)?;
    let geo = ConvGeometry { in_channels: conv.inputs(), ..geo };
    let geo = geo.checked().map_err(compute_error)?;
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (spread.input_bytes(cx)?, cx.output_bytes(0)?);
        conv.run_checked(&geo, input, output, cx.parallel()).map_err(compute_error)
    })))
}
