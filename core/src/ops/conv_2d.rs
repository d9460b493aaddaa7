//! CONV_2D.

use smallvec::smallvec;

use super::{Activation, BuiltinOp, OpDef, Options, Padding, Params, ReadError, TensorType, InferContext, InferError, InferResult, Inferred, windowed_output};

/// `CONV_2D`.
pub static CONV_2D: OpDef = OpDef {
    op: BuiltinOp::CONV_2D,
    family: "conv_2d",
    read: read_conv2d,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "1.14.0"), (4, "2.3.0"), (5, "2.4.0"), (6, "2.9.0"), (7, "2.11.0"), (8, "2.15.0")],
};

/// Params of CONV_2D.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2DParams {
    /// `padding`.
    pub padding: Padding,
    /// `stride_w`.
    pub stride_w: i32,
    /// `stride_h`.
    pub stride_h: i32,
    /// `fused_activation_function`.
    pub fused_activation_function: Activation,
    /// `dilation_w_factor`.
    pub dilation_w_factor: i32,
    /// `dilation_h_factor`.
    pub dilation_h_factor: i32,
    /// `quantized_bias_type`.
    pub quantized_bias_type: TensorType,
}

fn read_conv2d(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_conv_2_doptions())?;
    Ok(Params::Conv2D(Conv2DParams {
        padding: Padding::read(t.padding())?,
        stride_w: t.stride_w(),
        stride_h: t.stride_h(),
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        dilation_w_factor: t.dilation_w_factor(),
        dilation_h_factor: t.dilation_h_factor(),
        quantized_bias_type: TensorType::read(t.quantized_bias_type())?,
    }))
}

/// Input `[batch, height, width, channels]`, filter `[out, kernel_h, kernel_w, channels / groups]`, bias `[out]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let p: &Conv2DParams = cx.params()?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let [out, kh, kw, group_c] = cx.shape_of_rank(1, "the filter")?;
    // Grouped convolution: each group of outputs sees its own slice of the input's channels.
    if group_c == 0 || c % group_c != 0 || out % (c / group_c).max(1) != 0 {
        return Err(InferError::new(format!("a filter of {out}x{kh}x{kw}x{group_c} does not fit {c} input channels")));
    }
    check_bias(cx, 2, out)?;
    let h = windowed_output(h, kh, p.stride_h, p.dilation_h_factor, p.padding)?;
    let w = windowed_output(w, kw, p.stride_w, p.dilation_w_factor, p.padding)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, out])])
}

/// The bias of a convolution-like op has one element per output channel.
pub(crate) fn check_bias(cx: &InferContext<'_>, input: usize, channels: usize) -> Result<(), InferError> {
    match cx.optional(input) {
        Some(bias) if bias.shape.elements() != channels => {
            Err(InferError::new(format!("the bias has shape {}, expected {channels} elements", bias.shape)))
        }
        _ => Ok(()),
    }
}
