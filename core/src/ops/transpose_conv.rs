//! TRANSPOSE_CONV.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, Padding, TensorType, Window,
    lowest_with, options, size_from, windowed_output,
};
use crate::error::counted;

ops! {
    TRANSPOSE_CONV {
        codec: TransposeConvParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[(1, "1.9.0"), (2, "2.2.0"), (3, "2.3.0"), (4, "2.13.0"), (5, "2.15.0")],
    }
}

options! {
    /// Params of TRANSPOSE_CONV.
    TransposeConv(TransposeConvParams) in BuiltinOptions::TransposeConvOptions(builtin_options_as_transpose_conv_options, TransposeConvOptionsArgs) as TfLiteTransposeConvParams {
        /// The padding of the convolution that this transposes.
        padding: Padding;
        /// Output columns between two input columns.
        stride_w: i32;
        /// Output rows between two input rows.
        stride_h: i32;
        /// Applied to the result.
        fused_activation_function: Activation, since 4;
        /// The accumulator type of 16-bit results; `Float32` if the file has none.
        quantized_bias_type: TensorType, since 5;
    }
}

/// Output shape `[4]`, weights `[out, kernel_h, kernel_w, in]`, input `[batch, height, width, in]`, bias `[out]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=4, 1)?;
    let [out, kernel_h, kernel_w, weights_channels] = cx.shape_of_rank(1, "the weights")?;
    let [batch, _, _, channels] = cx.shape_of_rank(2, "the input")?;
    if channels != weights_channels {
        let wanted = counted(weights_channels, "channel");
        return Err(InferError::new(format!("weights for {wanted} do not fit an input of {channels}")));
    }
    check_bias(cx, 3, out)?;
    let ty = cx.input(2)?.ty;
    let Some(wanted) = cx.input(0)?.integers()? else { return cx.data_dependent(ty) };
    let &[wanted_batch, height, width, wanted_out] = wanted.as_slice() else {
        return Err(InferError::new(format!(
            "an output shape of {}, expected 4",
            counted(wanted.len(), "number")
        )));
    };
    let (height, width) = (size_from(height, "height")?, size_from(width, "width")?);
    if size_from(wanted_batch, "batch")? != batch || size_from(wanted_out, "channels")? != out {
        return Err(InferError::new(format!(
            "an output of batch {wanted_batch} and {}, expected {batch} and {out}",
            counted(wanted_out, "channel")
        )));
    }
    // The sizes of the convolution's output are not needed; computing them checks strides and kernel.
    let p: &TransposeConvParams = cx.params()?;
    windowed_output(height, Window { size: kernel_h, stride: p.stride_h, dilation: 1 }, p.padding)?;
    windowed_output(width, Window { size: kernel_w, stride: p.stride_w, dilation: 1 }, p.padding)?;
    Ok(smallvec![Inferred::known(ty, [batch, height, width, out])])
}

/// Versions added integers, a bias, a fused activation and biases of a chosen type, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float32, Int8, Int16};
    let p = s.params::<TransposeConvParams>();
    lowest_with(&[
        (2, s.input_is(1, &[Int8])),
        (3, s.input(3).is_some()),
        (4, p.is_some_and(|p| p.fused_activation_function != Activation::None)),
        (5, s.input_is(2, &[Int16]) && p.is_some_and(|p| p.quantized_bias_type != Float32)),
    ])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    let channels = s.input(1).and_then(|w| w.shape.get(3)).map_or(1, |&n| n as u64).max(1);
    s.input_elements(2).saturating_mul(s.input_elements(1) / channels)
}
