//! DEPTHWISE_CONV_2D.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, Padding, TensorType, Window,
    lowest_with, options, per_weight, windowed_output,
};
use crate::error::counted;

ops! {
    DEPTHWISE_CONV_2D {
        codec: DepthwiseConv2DParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[
            (1, "1.5.0"),
            (2, "1.12.0"),
            (3, "1.14.0"),
            (4, "2.2.0"),
            (5, "2.3.0"),
            (6, "2.3.0"),
            (7, "2.11.0"),
        ],
    }
}

options! {
    /// Params of DEPTHWISE_CONV_2D.
    DepthwiseConv2D(DepthwiseConv2DParams) in BuiltinOptions::DepthwiseConv2DOptions(builtin_options_as_depthwise_conv_2_doptions, DepthwiseConv2DOptionsArgs) as TfLiteDepthwiseConvParams {
        /// The padding of the borders.
        padding: Padding;
        /// The distance between windows along the width.
        stride_w: i32;
        /// The distance between windows along the height.
        stride_h: i32;
        /// Output channels per input channel, as the converter wrote it. Only the shapes count.
        depth_multiplier: i32;
        /// Applied to the result.
        fused_activation_function: Activation;
        /// The distance between elements of a window along the width; 1 before version 2.
        dilation_w_factor: i32, since 2;
        /// The distance between elements of a window along the height; 1 before version 2.
        dilation_h_factor: i32, since 2;
    }
}

/// Input `[batch, height, width, channels]`, filter `[1, kernel_h, kernel_w, channels · multiplier]`, bias
/// `[channels · multiplier]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let p: &DepthwiseConv2DParams = cx.params()?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let [one, kh, kw, out] = cx.shape_of_rank(1, "the filter")?;
    if one != 1 || c == 0 || out % c != 0 {
        return Err(InferError::new(format!(
            "a filter of {one}x{kh}x{kw}x{out} does not fit {}",
            counted(c, "input channel")
        )));
    }
    check_bias(cx, 2, out)?;
    let rows = Window { size: kh, stride: p.stride_h, dilation: p.dilation_h_factor };
    let columns = Window { size: kw, stride: p.stride_w, dilation: p.dilation_w_factor };
    let (h, w) = (windowed_output(h, rows, p.padding)?, windowed_output(w, columns, p.padding)?);
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, out])])
}

/// Versions added dilation, 8-bit inputs, 8-bit weights, 16-bit inputs, 8-bit weights with a scale per channel, and
/// 4-bit weights, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int4, Int8, Int16};
    let p = s.params::<DepthwiseConv2DParams>();
    lowest_with(&[
        (2, p.is_some_and(|p| p.dilation_w_factor != 1 || p.dilation_h_factor != 1)),
        (3, s.input_is(0, &[Int8])),
        (4, s.hybrid(0, 1)),
        (5, s.input_is(0, &[Int16])),
        (6, s.hybrid(0, 1) && s.per_channel(1, 3)),
        (7, s.input_is(1, &[Int4])),
    ])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    per_weight(s, 1, 3)
}
