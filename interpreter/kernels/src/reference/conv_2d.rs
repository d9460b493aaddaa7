//! CONV_2D.

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result};

use crate::common::pace::Polls;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::weights::{
    DynamicInput, Requantize, Weights, channel_scales, check_bias_type, check_symmetric, check_zero_points,
    clamp_bounds, integer_dot, scale_zero_point, weight_scales,
};
use crate::common::windows::{Axis, Windows, fold_taps};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::CONV_2D, prepared(prepare), 1..=8);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int4, Int8, Int16, Int32, Int64, UInt8};
    let conv = Conv::new(cx)?;
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let bias = cx.optional_input(2).map(|bias| bias.ty());
    match (input.ty(), filter.ty(), bias) {
        (Float32, Float32, _) => float(cx, conv),
        (Float32, Int8 | UInt8 | Int4, _) => hybrid(cx, conv),
        (UInt8, UInt8, _) => uint8(cx, conv),
        (Int8, Int8 | Int4, _) => int8(cx, conv),
        (Int16, Int8 | Int4, Some(Int64)) => int16::<i64>(cx, conv),
        (Int16, Int8 | Int4, Some(Int32) | None) => int16::<i32>(cx, conv),
        (Float32 | UInt8 | Int8, ..) => Err(unsupported_type("filter", filter)),
        _ => Err(unsupported_type("input", input)),
    }
}

/// Geometry of a convolution.
#[derive(Clone, Copy)]
struct Conv {
    windows: Windows,
    /// Channels of the input, of the filter (fewer for a grouped convolution) and of the output.
    channels: usize,
    depth: usize,
    outputs: usize,
    /// Elements of one output channel's filter.
    filter: usize,
}

impl Conv {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let p: &Conv2DParams = cx.params()?;
        let (input, filter, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
        let axis = |d: usize, stride, dilation| {
            Axis::new([input[d], filter[d], output[d]], stride, dilation, p.padding)
        };
        let windows = Windows {
            batch: input[0],
            y: axis(1, p.stride_h, p.dilation_h_factor),
            x: axis(2, p.stride_w, p.dilation_w_factor),
        };
        let depth = filter[3];
        Ok(Conv {
            windows,
            channels: input[3],
            depth,
            outputs: filter[0],
            filter: filter[1] * filter[2] * depth,
        })
    }

    /// For each output element: `finish(batch, output channel, sum)` of the sum that `dot` accumulates over pairs of
    /// slices of input and filter channels. Padding contributes nothing.
    fn run<I, F, A: Default, O>(
        &self,
        parallel: &dyn Parallel,
        input: &[I],
        filter: &[F],
        output: &mut [O],
        dot: impl Fn(A, &[I], &[F], usize) -> A,
        finish: impl Fn(usize, usize, A) -> O,
    ) {
        if output.is_empty() {
            return;
        }
        let per_group = self.outputs / (self.channels / self.depth);
        let windows = self.windows.iter(parallel, filter.len());
        let (products, mut polls) = ((self.filter, self.depth), Polls::new(parallel));
        for ((batch, taps), out) in windows.zip(output.chunks_exact_mut(self.outputs)) {
            for (o, (out, filter)) in out.iter_mut().zip(filter.chunks_exact(self.filter)).enumerate() {
                if polls.interrupted_after(self.filter) {
                    return;
                }
                let first = o / per_group * self.depth;
                let sum = fold_taps(&mut polls, products, taps.clone(), A::default(), |sum, (k, i)| {
                    let input = &input[i * self.channels + first..][..self.depth];
                    dot(sum, input, &filter[k * self.depth..][..self.depth], batch)
                });
                *out = finish(batch, o, sum);
            }
        }
    }
}

fn float(cx: &mut PrepareContext<'_>, conv: Conv) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    let (low, high) = clamp_bounds(cx.params::<Conv2DParams>()?.fused_activation_function)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<f32>(2)?;
        let dot = |sum: f32, a: &[f32], b: &[f32], _| a.iter().zip(b).fold(sum, |sum, (a, b)| sum + a * b);
        conv.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output::<f32>(0)?, dot, |_, o, sum| {
            (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
        });
        Ok(())
    }))
}

/// Float inputs and integer weights: every image is quantized while running.
fn hybrid(cx: &mut PrepareContext<'_>, conv: Conv) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let (low, high) = clamp_bounds(cx.params::<Conv2DParams>()?.fused_activation_function)?;
    let scales = weight_scales(cx.input(1)?, 0)?;
    // Zero points are used for per-channel scales and grouped convolutions.
    let asymmetric = scales.iter().any(|scale| *scale != scales[0]) || conv.channels != conv.depth;
    let scales = channel_scales(cx, scales, conv.outputs)?;
    let batch = conv.windows.batch;
    let image = cx.input(0)?.shape().elements() / batch.max(1);
    let dynamic = DynamicInput::new(cx, batch, image, asymmetric)?;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let input = cx.input(0)?;
        let rows = dynamic.quantize(cx, input)?;
        let bias = cx.optional_input::<f32>(2)?;
        let dot = |sum, a: &[i8], b: &[i8], batch: usize| integer_dot(sum, a, b, rows.zero_points[batch], 0);
        conv.run(
            cx.parallel(),
            rows.values,
            weights.get(cx)?,
            cx.output::<f32>(0)?,
            dot,
            |batch, o, sum: i32| {
                let sum = sum as f32 * (rows.scales[batch] * scales[o]);
                (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
            },
        );
        Ok(())
    }))
}

fn uint8(cx: &mut PrepareContext<'_>, conv: Conv) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    let activation = cx.params::<Conv2DParams>()?.fused_activation_function;
    let (input, filter) = (cx.input(0)?, cx.input(1)?);
    let requantize = Requantize::new(cx.budget(), (input, filter), cx.output(0)?, 0, activation, true)?;
    let (zero, filter_zero) = (scale_zero_point(input)?.1, scale_zero_point(filter)?.1);
    // TFLite computes grouped convolutions without a matrix product.
    let grouped = conv.channels != conv.depth;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let dot = |sum, a: &[u8], b: &[u8], _| integer_dot(sum, a, b, zero, filter_zero);
        conv.run(cx.parallel(), cx.input(0)?, cx.input(1)?, cx.output::<u8>(0)?, dot, |_, o, sum: i32| {
            let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o]));
            (if grouped { requantize.apply(o, sum) } else { requantize.apply_up(o, sum) }) as u8
        });
        Ok(())
    }))
}

fn int8(cx: &mut PrepareContext<'_>, conv: Conv) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let activation = cx.params::<Conv2DParams>()?.fused_activation_function;
    let input = cx.input(0)?;
    let requantize =
        Requantize::new(cx.budget(), (input, cx.input(1)?), cx.output(0)?, 0, activation, false)?;
    let zero = scale_zero_point(input)?.1;
    // TFLite computes grouped convolutions without a matrix product.
    let grouped = conv.channels != conv.depth;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let dot = |sum, a: &[i8], b: &[i8], _| integer_dot(sum, a, b, zero, 0);
        conv.run(
            cx.parallel(),
            cx.input(0)?,
            weights.get(cx)?,
            cx.output::<i8>(0)?,
            dot,
            |_, o, sum: i32| {
                let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o]));
                (if grouped { requantize.apply(o, sum) } else { requantize.apply_up(o, sum) }) as i8
            },
        );
        Ok(())
    }))
}

/// 16-bit activations and weights of 8 or 4 bits. The accumulator is as wide as the bias.
fn int16<B: Element + Into<i64>>(cx: &mut PrepareContext<'_>, conv: Conv) -> Result<Invoke> {
    check_bias_type::<B>(cx, 2)?;
    check_zero_points(cx.input(1)?)?;
    let activation = cx.params::<Conv2DParams>()?.fused_activation_function;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let requantize =
        Requantize::new(cx.budget(), (cx.input(0)?, cx.input(1)?), cx.output(0)?, 0, activation, false)?;
    let grouped = conv.channels != conv.depth;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<B>(2)?;
        let dot = |sum: i64, a: &[i16], b: &[i8], _| {
            a.iter().zip(b).fold(sum, |sum, (&a, &b)| sum + i64::from(a) * i64::from(b))
        };
        conv.run(cx.parallel(), cx.input(0)?, weights.get(cx)?, cx.output::<i16>(0)?, dot, |_, o, sum| {
            let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o].into()));
            (match (B::TYPE, grouped) {
                (TensorType::Int64, _) => requantize.apply_wide(o, sum),
                (_, true) => requantize.apply(o, sum as i32),
                (_, false) => requantize.apply_up(o, sum as i32),
            }) as i16
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

    fn params(padding: Padding, stride: i32, activation: Activation) -> Params {
        Params::Conv2D(
            Conv2DParams::default()
                .padding(padding)
                .stride_w(stride)
                .stride_h(stride)
                .fused_activation_function(activation)
                .dilation_w_factor(1)
                .dilation_h_factor(1)
                .quantized_bias_type(TensorType::Float32),
        )
    }

    #[test]
    fn floats() {
        let input = Some(T::new(&[1, 3, 3, 1], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -9.0]));
        let filter = Some(T::new(&[2, 2, 2, 1], &[1f32, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, -1.0]));
        let bias = Some(T::new(&[2], &[0.5f32, 1.0]));
        let same = T::new(&[1, 2, 2, 2], &[12.5f32, -4.0, 9.5, 1.0, 15.5, 1.0, -8.5, 1.0]);
        let inputs = [input, filter, bias];
        check(BuiltinOp::CONV_2D, 1, params(Padding::Same, 2, Activation::None), &inputs, &[same]);
        let valid = T::new(&[1, 1, 1, 2], &[6f32, 0.0]);
        check(BuiltinOp::CONV_2D, 1, params(Padding::Valid, 2, Activation::Relu6), &inputs, &[valid]);
    }

    #[test]
    fn groups_see_their_own_channels() {
        let input = Some(T::new(&[1, 1, 1, 4], &[1f32, 2.0, 3.0, 4.0]));
        let filter = Some(T::new(&[2, 1, 1, 2], &[1f32, 10.0, 100.0, 1000.0]));
        let output = T::new(&[1, 1, 1, 2], &[21f32, 4300.0]);
        let valid = params(Padding::Valid, 1, Activation::None);
        check(BuiltinOp::CONV_2D, 6, valid, &[input, filter], &[output]);
    }

    #[test]
    fn padding_of_quantized_inputs_is_their_zero_point() {
        let input = Some(T::new(&[1, 1, 2, 1], &[3i8, 5]).quantized(0.5, 1));
        let filter = Some(T::new(&[2, 1, 3, 1], &[1i8, 2, 3, -1, -2, -3]).per_channel(&[1.0, 0.5], 0));
        let bias = Some(T::new(&[2], &[10, -1]));
        // Sums 26 and 20, halved; -17 and -11, divided by 4, are -4.25 and -2.75, but the latter is rounded to -2 by
        // way of -2.5.
        let output = T::new(&[1, 1, 2, 2], &[13i8, -4, 10, -2]).quantized(1.0, 0);
        let same = params(Padding::Same, 1, Activation::None);
        check(BuiltinOp::CONV_2D, 3, same.clone(), &[input, filter, bias], &[output]);
        let half = Some(T::new(&[1, 1, 2, 1], &[half::f16::ONE; 2]));
        let text = error(
            BuiltinOp::CONV_2D,
            1,
            same,
            &[half.clone(), half],
            &[T::new(&[1, 1, 2, 1], &[half::f16::ONE; 2])],
        );
        assert!(text.contains("FLOAT16"), "{text}");
    }
}
