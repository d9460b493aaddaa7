//! TRANSPOSE_CONV.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Padding, Params,
    ReadError, TensorType, size_from, windowed_output,
};

/// `TRANSPOSE_CONV`.
pub static TRANSPOSE_CONV: OpDef = OpDef {
    op: BuiltinOp::TRANSPOSE_CONV,
    family: "transpose_conv",
    read: read_transpose_conv,
    infer,
    history: &[(1, "1.9.0"), (2, "2.2.0"), (3, "2.3.0"), (4, "2.13.0"), (5, "2.15.0")],
};

/// Params of TRANSPOSE_CONV.
#[derive(Debug, Clone, PartialEq)]
pub struct TransposeConvParams {
    /// The padding of the convolution that this transposes.
    pub padding: Padding,
    /// Output columns between two input columns.
    pub stride_w: i32,
    /// Output rows between two input rows.
    pub stride_h: i32,
    /// Applied to the result.
    pub fused_activation_function: Activation,
    /// The type that 16-bit results are accumulated in; `Float32` where the file does not say.
    pub quantized_bias_type: TensorType,
}

fn read_transpose_conv(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_transpose_conv_options())?;
    Ok(Params::TransposeConv(TransposeConvParams {
        padding: Padding::read(t.padding())?,
        stride_w: t.stride_w(),
        stride_h: t.stride_h(),
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        quantized_bias_type: TensorType::read(t.quantized_bias_type())?,
    }))
}

/// Output shape `[4]`, weights `[out, kernel_h, kernel_w, in]`, input `[batch, height, width, in]`, bias `[out]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=4, 1)?;
    let [out, kernel_h, kernel_w, weights_channels] = cx.shape_of_rank(1, "the weights")?;
    let [batch, _, _, channels] = cx.shape_of_rank(2, "the input")?;
    if channels != weights_channels {
        let text = format!("weights for {weights_channels} channels do not fit an input of {channels}");
        return Err(InferError::new(text));
    }
    check_bias(cx, 3, out)?;
    let ty = cx.input(2)?.ty;
    let Some(wanted) = cx.input(0)?.integers()? else { return cx.data_dependent(ty) };
    let &[wanted_batch, height, width, wanted_out] = wanted.as_slice() else {
        return Err(InferError::new(format!("an output shape of {} numbers, expected 4", wanted.len())));
    };
    let (height, width) = (size_from(height, "height")?, size_from(width, "width")?);
    if size_from(wanted_batch, "batch")? != batch || size_from(wanted_out, "channels")? != out {
        return Err(InferError::new(format!(
            "an output of batch {wanted_batch} and {wanted_out} channels, expected {batch} and {out}"
        )));
    }
    // What the transposed convolution's sizes would be; this checks strides and kernel.
    let p: &TransposeConvParams = cx.params()?;
    windowed_output(height, kernel_h, p.stride_h, 1, p.padding)?;
    windowed_output(width, kernel_w, p.stride_w, 1, p.padding)?;
    Ok(smallvec![Inferred::known(ty, [batch, height, width, out])])
}
