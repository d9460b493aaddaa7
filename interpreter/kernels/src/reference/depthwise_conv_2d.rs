//! DEPTHWISE_CONV_2D.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::Polls;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::weights::{
    DynamicInput, Requantize, Weights, channel_scales, check_bias_type, check_symmetric, check_zero_points,
    clamp_bounds, scale_zero_point, weight_scales,
};
use crate::common::windows::{Axis, Windows, fold_taps};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::DEPTHWISE_CONV_2D, prepared(prepare), 1..=7);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int4, Int8, Int16, UInt8};
    let conv = Depthwise::new(cx)?;
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    match (input.ty(), filter.ty()) {
        (Float32, Float32) => float(cx, conv),
        (Float32, Int8) => hybrid(cx, conv),
        (UInt8, UInt8) => uint8(cx, conv),
        (Int8, Int8 | Int4) => int8(cx, conv),
        (Int16, Int8) => int16(cx, conv),
        (Float32 | UInt8 | Int8 | Int16, _) => Err(unsupported_type("filter", filter)),
        _ => Err(unsupported_type("input", input)),
    }
}

/// Geometry of a depthwise convolution.
#[derive(Clone, Copy)]
struct Depthwise {
    windows: Windows,
    /// Channels of the input, and output channels per input channel.
    channels: usize,
    multiplier: usize,
}

impl Depthwise {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let p: &DepthwiseConv2DParams = cx.params()?;
        let (input, filter, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
        let axis = |d: usize, stride, dilation| {
            Axis::new([input[d], filter[d], output[d]], stride, dilation, p.padding)
        };
        let windows = Windows {
            batch: input[0],
            y: axis(1, p.stride_h, p.dilation_h_factor),
            x: axis(2, p.stride_w, p.dilation_w_factor),
        };
        Ok(Depthwise { windows, channels: input[3], multiplier: filter[3] / input[3] })
    }

    /// For each output element: `finish(batch, output channel, sum)` of the sum that `add` accumulates over pairs of
    /// elements of input and filter. Padding contributes nothing.
    fn run<I: Copy, F: Copy, A: Default, O>(
        &self,
        parallel: &dyn Parallel,
        input: &[I],
        filter: &[F],
        output: &mut [O],
        add: impl Fn(A, I, F, usize) -> A,
        finish: impl Fn(usize, usize, A) -> O,
    ) {
        let outputs = self.channels * self.multiplier;
        let windows = self.windows.iter(parallel, filter.len());
        let (window, mut polls) = (filter.len() / outputs.max(1), Polls::new(parallel));
        for ((batch, taps), out) in windows.zip(output.chunks_exact_mut(outputs.max(1))) {
            for (o, out) in out.iter_mut().enumerate() {
                if polls.interrupted_after(window) {
                    return;
                }
                let channel = o / self.multiplier;
                let sum = fold_taps(&mut polls, (window, 1), taps.clone(), A::default(), |sum, (k, i)| {
                    add(sum, input[i * self.channels + channel], filter[k * outputs + o], batch)
                });
                *out = finish(batch, o, sum);
            }
        }
    }
}

fn float(cx: &mut PrepareContext<'_>, conv: Depthwise) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    let (low, high) = clamp_bounds(cx.params::<DepthwiseConv2DParams>()?.fused_activation_function)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<f32>(2)?;
        let add = |sum: f32, a: f32, b: f32, _| sum + a * b;
        conv.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output(0)?, add, |_, o, sum| {
            (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
        });
        Ok(())
    }))
}

/// Float inputs and integer weights: every image is quantized while running.
fn hybrid(cx: &mut PrepareContext<'_>, conv: Depthwise) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let (low, high) = clamp_bounds(cx.params::<DepthwiseConv2DParams>()?.fused_activation_function)?;
    let scales = weight_scales(cx.input(1)?, 3)?;
    let scales = channel_scales(cx, scales, conv.channels * conv.multiplier)?;
    let batch = conv.windows.batch;
    let image = cx.input(0)?.shape().elements() / batch.max(1);
    let dynamic = DynamicInput::new(cx, batch, image, true)?;
    // TFLite handles groups of four channels, which it multiplies by the channel's scale first, and the rest, which it
    // multiplies by the input's scale first.
    let together = scales.len() / 4 * 4;
    Ok(Box::new(move |cx| {
        let input = cx.input(0)?;
        let rows = dynamic.quantize(cx, input)?;
        let bias = cx.optional_input::<f32>(2)?;
        let add = |sum: i32, a: i8, b: i8, batch: usize| {
            sum.wrapping_add(i32::from(a).wrapping_sub(rows.zero_points[batch]).wrapping_mul(b.into()))
        };
        conv.run(cx.parallel(), rows.values, cx.input(1)?, cx.output(0)?, add, |batch, o, sum| {
            let (own, input) = (scales[o], rows.scales[batch]);
            let sum = if o < together { sum as f32 * own * input } else { sum as f32 * input * own };
            (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
        });
        Ok(())
    }))
}

fn uint8(cx: &mut PrepareContext<'_>, conv: Depthwise) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    let activation = cx.params::<DepthwiseConv2DParams>()?.fused_activation_function;
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let requantize = Requantize::new(cx.budget(), (input, filter), cx.output(0)?, 3, activation, true)?;
    let (zero, filter_zero) = (scale_zero_point(input)?.1, scale_zero_point(filter)?.1);
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let add = |sum: i32, a: u8, b: u8, _| {
            sum.wrapping_add(
                (i32::from(a).wrapping_sub(zero)).wrapping_mul(i32::from(b).wrapping_sub(filter_zero)),
            )
        };
        conv.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output(0)?, add, |_, o, sum| {
            requantize.apply(o, sum.wrapping_add(bias.map_or(0, |bias| bias[o]))) as u8
        });
        Ok(())
    }))
}

fn int8(cx: &mut PrepareContext<'_>, conv: Depthwise) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let activation = cx.params::<DepthwiseConv2DParams>()?.fused_activation_function;
    let input = cx.input(0)?;
    let requantize =
        Requantize::new(cx.budget(), (input, cx.input(1)?), cx.output(0)?, 3, activation, false)?;
    let zero = scale_zero_point(input)?.1;
    // TFLite rounds ties of groups of eight channels up, and ties of the rest away from zero.
    let upwards = conv.channels * conv.multiplier / 8 * 8;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let add = |sum: i32, a: i8, b: i8, _| {
            sum.wrapping_add(i32::from(a).wrapping_sub(zero).wrapping_mul(b.into()))
        };
        conv.run(cx.parallel(), cx.input(0)?, weights.get(cx)?, cx.output(0)?, add, |_, o, sum| {
            let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o]));
            (if o < upwards { requantize.apply_up(o, sum) } else { requantize.apply(o, sum) }) as i8
        });
        Ok(())
    }))
}

/// 16-bit activations, 8-bit weights, 64-bit bias.
fn int16(cx: &mut PrepareContext<'_>, conv: Depthwise) -> Result<Invoke> {
    check_bias_type::<i64>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let activation = cx.params::<DepthwiseConv2DParams>()?.fused_activation_function;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let requantize =
        Requantize::new(cx.budget(), (cx.input(0)?, cx.input(1)?), cx.output(0)?, 3, activation, false)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i64>(2)?;
        let add = |sum: i64, a: i16, b: i8, _| sum + i64::from(a) * i64::from(b);
        conv.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output(0)?, add, |_, o, sum| {
            requantize.apply_wide(o, sum.wrapping_add(bias.map_or(0, |bias| bias[o]))) as i16
        });
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    use super::*;
    use crate::testing::{T, check, error};

    fn params(padding: Padding, dilation: i32) -> Params {
        Params::DepthwiseConv2D(
            DepthwiseConv2DParams::default()
                .padding(padding)
                .stride_w(1)
                .stride_h(1)
                .depth_multiplier(2)
                .fused_activation_function(Activation::None)
                .dilation_w_factor(dilation)
                .dilation_h_factor(dilation),
        )
    }

    #[test]
    fn each_channel_has_its_own_filters() {
        let input = || Some(T::new(&[1, 1, 3, 2], &[1f32, 10.0, 2.0, 20.0, 3.0, 30.0]));
        let filter = || Some(T::new(&[1, 1, 2, 4], &[1f32, 0.0, 1.0, 2.0, 0.0, 1.0, 1.0, -1.0]));
        let bias = Some(T::new(&[4], &[0.0f32, 0.0, 0.0, 0.5]));
        let output = T::new(&[1, 1, 2, 4], &[1f32, 2.0, 30.0, 0.5, 2.0, 3.0, 50.0, 10.5]);
        check(
            BuiltinOp::DEPTHWISE_CONV_2D,
            1,
            params(Padding::Valid, 1),
            &[input(), filter(), bias],
            &[output],
        );
        let dilated = T::new(&[1, 1, 1, 4], &[1f32, 3.0, 40.0, -10.0]);
        check(BuiltinOp::DEPTHWISE_CONV_2D, 2, params(Padding::Valid, 2), &[input(), filter()], &[dilated]);
    }

    #[test]
    fn eight_channels_round_upwards() {
        let input = Some(T::new(&[1, 1, 1, 9], &[-6i8; 9]).quantized(1.0, 0));
        let filter = Some(T::new(&[1, 1, 1, 9], &[1i8; 9]).per_channel(&[0.25; 9], 3));
        let output = T::new(&[1, 1, 1, 9], &[-1i8, -1, -1, -1, -1, -1, -1, -1, -2]).quantized(1.0, 0);
        let valid = params(Padding::Valid, 1);
        check(BuiltinOp::DEPTHWISE_CONV_2D, 3, valid.clone(), &[input, filter.clone()], &[output]);
        let ints = Some(T::new(&[1, 1, 1, 9], &[1i32; 9]));
        let text = error(
            BuiltinOp::DEPTHWISE_CONV_2D,
            1,
            valid,
            &[ints, filter],
            &[T::new(&[1, 1, 1, 9], &[1i32; 9])],
        );
        assert!(text.contains("INT32"), "{text}");
    }
}
