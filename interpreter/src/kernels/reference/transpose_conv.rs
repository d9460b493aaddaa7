//! TRANSPOSE_CONV.

use std::ops::AddAssign;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::ops::{Padding, TensorType, pad_amount};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::kernels::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::TRANSPOSE_CONV, prepared(prepare), 1..=4);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (weights, input) = (cx.input(1)?, cx.input(2)?);
    match (input.ty(), weights.ty()) {
        (TensorType::Float32, TensorType::Float32) => float(cx),
        (TensorType::Float32, _) => Err(unsupported_type("weights", weights)),
        _ => Err(unsupported_type("input", input)),
    }
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let activation = cx.params::<TransposeConvParams>()?.fused_activation_function;
    let Some((low, high)) = activation.clamp() else {
        return Err(Error::Unsupported(format!("activation {activation:?}")));
    };
    let scatter = scatter(cx)?;
    Ok(Box::new(move |cx| {
        let (weights, input, bias) = (cx.input::<f32>(1)?, cx.input::<f32>(2)?, cx.optional_input::<f32>(3)?);
        let output = cx.output::<f32>(0)?;
        match bias {
            Some(bias) => {
                output.chunks_exact_mut(bias.len().max(1)).for_each(|pixel| pixel.copy_from_slice(bias));
            }
            None => output.fill(0.0),
        }
        scatter.run(input, weights, output, |x, w| x * w);
        output.iter_mut().for_each(|o| *o = o.max(low).min(high));
        Ok(())
    }))
}

fn scatter(cx: &PrepareContext<'_>) -> Result<Scatter> {
    let params = cx.params::<TransposeConvParams>()?;
    let (weights, input, output) = (cx.input(1)?.shape(), cx.input(2)?.shape(), cx.output(0)?.shape());
    // Inference has seen to it that strides are positive.
    let stride = |stride: i32| usize::try_from(stride).unwrap_or(1).max(1);
    let strides = [stride(params.stride_h), stride(params.stride_w)];
    let padding = |d: usize| {
        let (size, kernel, stride) = (output[1 + d], weights[1 + d], strides[d]);
        match params.padding {
            Padding::Same => pad_amount(size, size.div_ceil(stride), kernel, stride, 1),
            Padding::Valid => 0,
        }
    };
    Ok(Scatter::new(input, weights, output, strides, [padding(0), padding(1)]))
}

/// Adds each input pixel, times the weights, to the output pixels that it reaches.
#[derive(Debug, Clone, Default)]
pub(super) struct Scatter {
    input: [usize; 4],
    kernel: [usize; 2],
    output: [usize; 4],
    strides: [usize; 2],
    padding: [usize; 2],
}

impl Scatter {
    /// For shapes of rank 4, weights `[out, kernel_h, kernel_w, in]`.
    pub(super) fn new(
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

    /// Adds to `sums`, which has the output's shape.
    pub(super) fn run<I: Copy, W: Copy, S: Copy + AddAssign>(
        &self,
        input: &[I],
        weights: &[W],
        sums: &mut [S],
        product: impl Fn(I, W) -> S,
    ) {
        let [_, height, width, channels] = self.input;
        let [_, out_height, out_width, out_channels] = self.output;
        let mut pixels = input.chunks_exact(channels.max(1));
        for image in sums.chunks_exact_mut((out_height * out_width * out_channels).max(1)) {
            for position in 0..height * width {
                let Some(pixel) = pixels.next() else { return };
                let (y, x) = (position / width, position % width);
                for tap in 0..self.kernel[0] * self.kernel[1] {
                    let (ky, kx) = (tap / self.kernel[1], tap % self.kernel[1]);
                    let (Some(y), Some(x)) = (
                        (y * self.strides[0] + ky).checked_sub(self.padding[0]).filter(|&y| y < out_height),
                        (x * self.strides[1] + kx).checked_sub(self.padding[1]).filter(|&x| x < out_width),
                    ) else {
                        continue;
                    };
                    let at = (y * out_width + x) * out_channels;
                    for (o, sum) in image[at..][..out_channels].iter_mut().enumerate() {
                        let start = (o * self.kernel[0] * self.kernel[1] + tap) * channels;
                        let row = &weights[start..][..channels];
                        pixel.iter().zip(row).for_each(|(&x, &w)| *sum += product(x, w));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::Activation;

    use super::*;
    use crate::kernels::testing::{T, check, error};

    #[test]
    fn spreads_each_pixel() {
        let params = |padding| {
            Params::TransposeConv(TransposeConvParams {
                padding,
                stride_w: 2,
                stride_h: 2,
                fused_activation_function: Activation::None,
                quantized_bias_type: TensorType::Float32,
            })
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
        check(op, 1, params(Padding::Same), &[shape(2), weights(), square.clone()], &[output.clone()]);
        let text = error(op, 1, params(Padding::Same), &[shape(-1), weights(), square], &[output]);
        assert!(text.contains("negative"), "{text}");
    }
}
