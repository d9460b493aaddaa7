//! CONV_2D.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, Padding, TensorType, Window,
    lowest_with, options, per_weight, windowed_output,
};
use crate::error::counted;

ops! {
    CONV_2D {
        codec: Conv2DParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[
            (1, "1.5.0"),
            (2, "1.14.0"),
            (3, "1.14.0"),
            (4, "2.3.0"),
            (5, "2.4.0"),
            (6, "2.9.0"),
            (7, "2.11.0"),
            (8, "2.15.0"),
        ],
    }
}

options! {
    /// Params of CONV_2D.
    Conv2D(Conv2DParams) in BuiltinOptions::Conv2DOptions(builtin_options_as_conv_2_doptions, Conv2DOptionsArgs) as TfLiteConvParams {
        /// The padding of the borders.
        padding: Padding;
        /// The distance between windows along the width.
        stride_w: i32;
        /// The distance between windows along the height.
        stride_h: i32;
        /// Applied to the result.
        fused_activation_function: Activation;
        /// The distance between elements of a window along the width.
        dilation_w_factor: i32;
        /// The distance between elements of a window along the height.
        dilation_h_factor: i32;
        /// The type of the bias of 16-bit activations; `Float32` means "not given".
        quantized_bias_type: TensorType, since 8;
    }
}

/// Input `[batch, height, width, channels]`, filter `[out, kernel_h, kernel_w, channels / groups]`, bias `[out]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let p: &Conv2DParams = cx.params()?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let [out, kh, kw, group_c] = cx.shape_of_rank(1, "the filter")?;
    // In a grouped convolution, each group of outputs reads its own slice of the input's channels.
    if group_c == 0 || c == 0 || c % group_c != 0 || out % (c / group_c).max(1) != 0 {
        return Err(InferError::new(format!(
            "a filter of {out}x{kh}x{kw}x{group_c} does not fit {}",
            counted(c, "input channel")
        )));
    }
    check_bias(cx, 2, out)?;
    let rows = Window { size: kh, stride: p.stride_h, dilation: p.dilation_h_factor };
    let columns = Window { size: kw, stride: p.stride_w, dilation: p.dilation_w_factor };
    let (h, w) = (windowed_output(h, rows, p.padding)?, windowed_output(w, columns, p.padding)?);
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, out])])
}

/// Checks that the bias of a convolution-like op, if it is given, has one element per output channel.
pub(crate) fn check_bias(cx: &InferContext<'_>, input: usize, channels: usize) -> Result<(), InferError> {
    match cx.optional(input) {
        Some(bias) if bias.shape.elements() != channels => {
            let expected = counted(channels, "element");
            Err(InferError::new(format!("the bias has shape {}, expected {expected}", bias.shape)))
        }
        _ => Ok(()),
    }
}

/// Versions added 8-bit weights, 8-bit and 16-bit inputs, 8-bit weights with a scale per channel, groups, 4-bit
/// weights, and biases of a chosen type, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float32, Int4, Int8, Int16};
    let p = s.params::<Conv2DParams>();
    lowest_with(&[
        (2, s.hybrid(0, 1)),
        (3, s.input_is(0, &[Int8])),
        (4, s.input_is(0, &[Int16])),
        (5, s.hybrid(0, 1) && s.per_channel(1, 0)),
        (6, grouped(s)),
        (7, s.input_is(1, &[Int4])),
        (
            8,
            s.input_is(0, &[Int16])
                && s.input_is(1, &[Int8])
                && p.is_some_and(|p| p.quantized_bias_type != Float32),
        ),
    ])
}

fn grouped(s: &OpSignature<'_>) -> bool {
    match (s.input(0), s.input(1)) {
        (Some(input), Some(filter)) => input.shape.rank() == 4 && input.shape.get(3) != filter.shape.get(3),
        _ => false,
    }
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    per_weight(s, 1, 0)
}
