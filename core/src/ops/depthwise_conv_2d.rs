//! DEPTHWISE_CONV_2D.

use smallvec::smallvec;

use super::conv_2d::check_bias;
use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Padding, Params,
    ReadError, windowed_output,
};

/// `DEPTHWISE_CONV_2D`.
pub static DEPTHWISE_CONV_2D: OpDef = OpDef {
    op: BuiltinOp::DEPTHWISE_CONV_2D,
    family: "depthwise_conv_2d",
    read: read_depthwise_conv2d,
    infer,
    history: &[
        (1, "1.5.0"),
        (2, "1.12.0"),
        (3, "1.14.0"),
        (4, "2.2.0"),
        (5, "2.3.0"),
        (6, "2.3.0"),
        (7, "2.11.0"),
    ],
};

/// Params of DEPTHWISE_CONV_2D.
#[derive(Debug, Clone, PartialEq)]
pub struct DepthwiseConv2DParams {
    /// How windows lie at the border.
    pub padding: Padding,
    /// From one window to the next along the width.
    pub stride_w: i32,
    /// From one window to the next along the height.
    pub stride_h: i32,
    /// Output channels per input channel as the converter wrote it; the shapes decide.
    pub depth_multiplier: i32,
    /// Applied to the result.
    pub fused_activation_function: Activation,
    /// From one element of a window to the next along the width; 1 before version 2.
    pub dilation_w_factor: i32,
    /// From one element of a window to the next along the height; 1 before version 2.
    pub dilation_h_factor: i32,
}

fn read_depthwise_conv2d(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_depthwise_conv_2_doptions())?;
    Ok(Params::DepthwiseConv2D(DepthwiseConv2DParams {
        padding: Padding::read(t.padding())?,
        stride_w: t.stride_w(),
        stride_h: t.stride_h(),
        depth_multiplier: t.depth_multiplier(),
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        dilation_w_factor: t.dilation_w_factor(),
        dilation_h_factor: t.dilation_h_factor(),
    }))
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
            "a filter of {one}x{kh}x{kw}x{out} does not fit {c} input channels"
        )));
    }
    check_bias(cx, 2, out)?;
    let h = windowed_output(h, kh, p.stride_h, p.dilation_h_factor, p.padding)?;
    let w = windowed_output(w, kw, p.stride_w, p.dilation_w_factor, p.padding)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, out])])
}
