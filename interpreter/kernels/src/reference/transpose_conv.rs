//! TRANSPOSE_CONV.

use std::ops::Range;

use delegraph_core::kernel::{Parallel, PrepareContext};
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::ops::{Padding, TensorType, Window, pad_amount};
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result};

use crate::common::pace::{PIECE, Pace, Polls};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::QuantizedElement;
use crate::common::weights::{
    DynamicInput, Requantize, Weights, check_bias_type, check_symmetric, clamp_bounds, scale_zero_point,
    weight_scales,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::TRANSPOSE_CONV, prepared(prepare), 1..=5);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (weights, input) = (cx.input(1)?, cx.input(2)?);
    let bias = cx.params::<TransposeConvParams>()?.quantized_bias_type;
    use TensorType::{Float32, Int8, Int16, Int32, UInt8};
    match (input.ty(), weights.ty()) {
        (Float32, Float32) => float(cx),
        (Float32, Int8) => hybrid(cx),
        (UInt8, UInt8) => quantized::<u8, u8, i32>(cx, true, |requantize, at, sum| {
            at.apply(requantize, sum, at.index < at.elements / 16 * 16)
        }),
        (Int8, Int8) => quantized::<i8, i8, i32>(cx, false, by_channel),
        (Int16, Int8) => {
            check_symmetric(input)?;
            check_symmetric(cx.output(0)?)?;
            match bias {
                Int32 => quantized::<i16, i8, i32>(cx, false, by_channel),
                _ => quantized::<i16, i8, i64>(cx, false, |r, at, sum| r.apply_wide(at.channel, sum)),
            }
        }
        (Float32 | UInt8 | Int8 | Int16, _) => Err(unsupported_type("weights", weights)),
        _ => Err(unsupported_type("input", input)),
    }
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 3)?;
    let (low, high) = clamp_bounds(cx.params::<TransposeConvParams>()?.fused_activation_function)?;
    let scatter = scatter(cx)?;
    Ok(Box::new(move |cx| {
        let (weights, input, bias) = (cx.input::<f32>(1)?, cx.input::<f32>(2)?, cx.optional_input::<f32>(3)?);
        let output = cx.output::<f32>(0)?;
        let mut pace = Pace::new(cx);
        match bias {
            Some(bias) => repeat(bias, output, &mut pace)?,
            None => output.fill(0.0),
        }
        scatter.run(cx.parallel(), input, weights, output, |sum, x, w| sum + x * w);
        output.chunks_mut(PIECE).try_for_each(|piece| {
            pace.spend(piece.len())?;
            piece.iter_mut().for_each(|o| *o = o.clamp(low, high));
            Ok(())
        })
    }))
}

/// Fills the pixels of `output` with the bias of each channel.
pub(crate) fn repeat(bias: &[f32], output: &mut [f32], pace: &mut Pace) -> Result<()> {
    output.chunks_exact_mut(bias.len().max(1)).try_for_each(|pixel| {
        pace.spend(bias.len())?;
        pixel.copy_from_slice(bias);
        Ok(())
    })
}

/// Float inputs and integer weights: every image is quantized while running.
fn hybrid(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 3)?;
    let (low, high) = clamp_bounds(cx.params::<TransposeConvParams>()?.fused_activation_function)?;
    let scales = cx.budget().collect(weight_scales(cx.input(1)?, 0)?.iter().copied())?;
    let scatter = scatter(cx)?;
    let [batch, ..] = scatter.input;
    let image = cx.input(2)?.shape().elements() / batch.max(1);
    let elements = cx.output(0)?.shape().elements();
    let (out_image, channels) = (elements / batch.max(1), scatter.output[3].max(1));
    let dynamic = DynamicInput::new(cx, batch, image, true)?;
    let sums = cx.temporary_of::<i32>(elements)?;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let input = cx.input::<f32>(2)?;
        let rows = dynamic.quantize(cx, input)?;
        let bias = cx.optional_input::<f32>(3)?;
        let sums = &mut cx.temporary::<i32>(sums)?[..elements];
        sums.fill(0);
        let output = cx.output::<f32>(0)?;
        let weights = weights.get(cx)?;
        let mut pace = Pace::new(cx);
        let images = rows.values.chunks_exact(image.max(1)).zip(sums.chunks_exact_mut(out_image.max(1)));
        for (i, ((input, sums), output)) in images.zip(output.chunks_exact_mut(out_image.max(1))).enumerate()
        {
            let (scale, zero) = (rows.scales[i], rows.zero_points[i]);
            // The products of a small image are not polled.
            pace.spend(image.saturating_mul(weights.len() / scatter.input[3].max(1)))?;
            scatter.run(cx.parallel(), input, weights, sums, |sum: i32, x, w: i8| {
                sum.wrapping_add((i32::from(x) - zero) * i32::from(w))
            });
            for (i, (o, sum)) in output.iter_mut().zip(sums).enumerate() {
                pace.spend(8)?;
                let channel = i % channels;
                let weights_scale = if scales.len() == 1 { scales[0] } else { scales[channel] };
                let real = *sum as f32 * (scale * weights_scale) + bias.map_or(0.0, |bias| bias[channel]);
                *o = real.clamp(low, high);
            }
        }
        Ok(())
    }))
}

/// An accumulator type, which wraps.
trait Sum: Element + From<i32> {
    fn plus(self, other: Self) -> Self;
}

impl Sum for i32 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Sum for i64 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// An output element.
struct Place {
    /// Index among all `elements`.
    index: usize,
    /// Number of output elements.
    elements: usize,
    /// Index of the element's channel.
    channel: usize,
    /// Number of channels.
    channels: usize,
}

impl Place {
    /// TFLite rounds ties of groups of elements up, and ties of the rest away from zero.
    fn apply(&self, requantize: &Requantize, sum: i32, together: bool) -> i32 {
        match together {
            true => requantize.apply_up(self.channel, sum),
            false => requantize.apply(self.channel, sum),
        }
    }
}

/// Requantizes a sum; the groups of elements whose ties round up are groups of eight channels.
fn by_channel(requantize: &Requantize, at: Place, sum: i32) -> i32 {
    at.apply(requantize, sum, at.channel < at.channels / 8 * 8)
}

/// The accumulator is as wide as the bias.
fn quantized<T, W, S>(
    cx: &mut PrepareContext<'_>,
    single: bool,
    finish: fn(&Requantize, Place, S) -> i32,
) -> Result<Invoke>
where
    T: QuantizedElement,
    W: QuantizedElement,
    S: Sum,
{
    check_bias_type::<S>(cx, 3)?;
    let activation = cx.params::<TransposeConvParams>()?.fused_activation_function;
    let (weights, input, output) = (cx.input(1)?, cx.input(2)?, cx.output(0)?);
    let requantize = Requantize::new(cx.budget(), (input, weights), output, 0, activation, single)?;
    let zero = scale_zero_point(input)?.1;
    // The zero point of signed weights counts as 0.
    let weights_zero = if W::MIN == 0 { scale_zero_point(weights)?.1 } else { 0 };
    let scatter = scatter(cx)?;
    let channels = scatter.output[3].max(1);
    let elements = output.shape().elements();
    let sums = cx.temporary_of::<S>(elements)?;
    Ok(Box::new(move |cx| {
        let (weights, input, bias) = (cx.input::<W>(1)?, cx.input::<T>(2)?, cx.optional_input::<S>(3)?);
        let (sums, output) = (&mut cx.temporary::<S>(sums)?[..elements], cx.output::<T>(0)?);
        sums.fill(S::from(0));
        scatter.run(cx.parallel(), input, weights, sums, |sum: S, x: T, w: W| {
            sum.plus(S::from(x.into().wrapping_sub(zero).wrapping_mul(w.into().wrapping_sub(weights_zero))))
        });
        let mut pace = Pace::new(cx);
        for (i, (o, sum)) in output.iter_mut().zip(sums).enumerate() {
            pace.spend(16)?;
            let channel = i % channels;
            if let Some(bias) = bias {
                *sum = sum.plus(bias[channel]);
            }
            let place = Place { index: i, elements, channel, channels };
            *o = T::clamped(finish(&requantize, place, *sum), T::MIN, T::MAX);
        }
        Ok(())
    }))
}

pub(crate) fn scatter(cx: &PrepareContext<'_>) -> Result<Scatter> {
    let params = cx.params::<TransposeConvParams>()?;
    let (weights, input, output) = (cx.input(1)?.shape(), cx.input(2)?.shape(), cx.output(0)?.shape());
    // Inference has checked that strides are positive.
    let stride = |stride: i32| usize::try_from(stride).unwrap_or(1).max(1);
    let strides = [stride(params.stride_h), stride(params.stride_w)];
    let padding = |d: usize| {
        let (size, kernel, stride) = (output[1 + d], weights[1 + d], strides[d]);
        match params.padding {
            Padding::Same => {
                pad_amount(size, size.div_ceil(stride), Window { size: kernel, stride, dilation: 1 })
            }
            Padding::Valid => 0,
        }
    };
    Ok(Scatter::new(input, weights, output, strides, [padding(0), padding(1)]))
}

/// Steps of [`Polls`] per input pixel and per tap of it inside the output, beside the products.
const TAP_STEPS: usize = 8;

/// Adds each input pixel times the weights to the output pixels that it reaches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scatter {
    pub(crate) input: [usize; 4],
    pub(crate) kernel: [usize; 2],
    pub(crate) output: [usize; 4],
    pub(crate) strides: [usize; 2],
    pub(crate) padding: [usize; 2],
}

impl Scatter {
    /// For shapes of rank 4, weights `[out, kernel_h, kernel_w, in]`.
    pub(crate) fn new(
        input: &[usize],
        weights: &[usize],
        output: &[usize],
        strides: [usize; 2],
        padding: [usize; 2],
    ) -> Self {
        let input = std::array::from_fn(|d| input[d]);
        let output = std::array::from_fn(|d| output[d]);
        Scatter { input, kernel: [weights[1], weights[2]], output, strides, padding }
    }

    /// Adds the products of inputs and weights to `sums`, which has the output's shape.
    pub(crate) fn run<I: Copy, W: Copy, S: Copy>(
        &self,
        parallel: &dyn Parallel,
        input: &[I],
        weights: &[W],
        sums: &mut [S],
        add: impl Fn(S, I, W) -> S,
    ) {
        let [_, height, width, channels] = self.input;
        let [_, out_height, out_width, out_channels] = self.output;
        let (mut pixels, mut polls) = (input.chunks_exact(channels.max(1)), Polls::new(parallel));
        // Output channels between two polls.
        let piece = (PIECE / channels.max(1)).max(1);
        for image in sums.chunks_exact_mut((out_height * out_width * out_channels).max(1)) {
            for position in 0..height * width {
                let Some(pixel) = pixels.next() else { return };
                if polls.interrupted_after(TAP_STEPS) {
                    return;
                }
                let (taps_y, taps_x) = (self.taps(0, position / width), self.taps(1, position % width));
                for (ky, y) in taps_y {
                    for (kx, x) in taps_x.clone() {
                        let (tap, at) = (ky * self.kernel[1] + kx, (y * out_width + x) * out_channels);
                        let sums = image[at..][..out_channels].chunks_mut(piece);
                        for (first, sums) in (0..).step_by(piece).zip(sums) {
                            if polls.interrupted_after((sums.len() * channels).saturating_add(TAP_STEPS)) {
                                return;
                            }
                            for (o, sum) in (first..).zip(sums) {
                                let start = (o * self.kernel[0] * self.kernel[1] + tap) * channels;
                                let row = &weights[start..][..channels];
                                *sum = pixel.iter().zip(row).fold(*sum, |sum, (&x, &w)| add(sum, x, w));
                            }
                        }
                    }
                }
            }
        }
    }

    /// The taps of input row or column `i` inside the output, along the height (0) or the width (1): each with the row
    /// or column of the output that it reaches.
    fn taps(&self, along: usize, i: usize) -> impl Iterator<Item = (usize, usize)> + Clone + use<> {
        let (start, padding) = (i * self.strides[along], self.padding[along]);
        let end = (self.output[1 + along] + padding).saturating_sub(start).min(self.kernel[along]);
        let inside: Range<usize> = padding.saturating_sub(start)..end;
        inside.map(move |k| (k, start + k - padding))
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::Activation;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn taps_are_those_inside_the_output() {
        for (kernel, output) in (0..5).flat_map(|kernel| (0..6).map(move |output| (kernel, output))) {
            for (stride, padding) in (1..4).flat_map(|stride| (0..4).map(move |padding| (stride, padding))) {
                let scatter = Scatter {
                    kernel: [kernel; 2],
                    output: [1, output, output, 1],
                    strides: [stride; 2],
                    padding: [padding; 2],
                    ..Scatter::default()
                };
                for i in 0..6 {
                    let at = |k: usize| (i * stride + k).checked_sub(padding);
                    let inside = |k: usize| Some((k, at(k).filter(|at| *at < output)?));
                    assert!(scatter.taps(1, i).eq((0..kernel).filter_map(inside)), "{i} of {scatter:?}");
                }
            }
        }
    }

    #[test]
    fn spreads_each_pixel() {
        let params = |padding| {
            Params::TransposeConv(
                TransposeConvParams::default()
                    .padding(padding)
                    .stride_w(2)
                    .stride_h(2)
                    .fused_activation_function(Activation::None)
                    .quantized_bias_type(TensorType::Float32),
            )
        };
        let shape = |h: i32| Some(T::new(&[4], &[1, h, h, 1]).constant());
        let weights = || Some(T::new(&[1, 3, 3, 1], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]));
        let input = || Some(T::new(&[1, 1, 2, 1], &[1f32, 10.0]));
        let bias = || Some(T::new(&[1], &[100f32]));
        let wide = Some(T::new(&[4], &[1, 3, 5, 1]).constant());
        let want = [
            101f32, 102.0, 113.0, 120.0, 130.0, 104.0, 105.0, 146.0, 150.0, 160.0, 107.0, 108.0, 179.0,
            180.0, 190.0,
        ];
        let output = T::new(&[1, 3, 5, 1], &want);
        let op = BuiltinOp::TRANSPOSE_CONV;
        check(op, 3, params(Padding::Valid), &[wide, weights(), input(), bias()], &[output]);
        let square = Some(T::new(&[1, 1, 1, 1], &[1f32]));
        let output = T::new(&[1, 2, 2, 1], &[1f32, 2.0, 4.0, 5.0]);
        check(
            op,
            1,
            params(Padding::Same),
            &[shape(2), weights(), square.clone()],
            std::slice::from_ref(&output),
        );
        let q = |v: [i8; 1]| Some(T::new(&[1, 1, 1, 1], &v).quantized(0.5, 1));
        let weights8 = Some(T::new(&[1, 3, 3, 1], &[1i8, 2, 3, 4, 5, 6, 7, 8, 9]).quantized(1.0, 0));
        let bias8 = Some(T::new(&[1], &[10i32]));
        let output8 = T::new(&[1, 2, 2, 1], &[5i8, 6, 8, 9]).quantized(1.0, -1);
        check(op, 3, params(Padding::Same), &[shape(2), weights8, q([3]), bias8], &[output8]);
        let text = error(op, 1, params(Padding::Same), &[shape(-1), weights(), square], &[output]);
        assert!(text.contains("negative"), "{text}");
    }
}
