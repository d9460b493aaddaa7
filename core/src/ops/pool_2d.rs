//! AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.

use smallvec::smallvec;

use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Padding, Params,
    ReadError, windowed_output,
};

/// `AVERAGE_POOL_2D`.
pub static AVERAGE_POOL_2D: OpDef = OpDef {
    op: BuiltinOp::AVERAGE_POOL_2D,
    family: "pool_2d",
    read: read_pool2d,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `MAX_POOL_2D`.
pub static MAX_POOL_2D: OpDef = OpDef {
    op: BuiltinOp::MAX_POOL_2D,
    family: "pool_2d",
    read: read_pool2d,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `L2_POOL_2D`.
pub static L2_POOL_2D: OpDef = OpDef {
    op: BuiltinOp::L2_POOL_2D,
    family: "pool_2d",
    read: read_pool2d,
    infer,
    history: &[(1, "1.5.0")],
};

/// Params of AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool2DParams {
    /// Which windows there are.
    pub padding: Padding,
    /// Columns between two windows.
    pub stride_w: i32,
    /// Rows between two windows.
    pub stride_h: i32,
    /// Columns of a window.
    pub filter_width: i32,
    /// Rows of a window.
    pub filter_height: i32,
    /// Applied to the result.
    pub fused_activation_function: Activation,
}

fn read_pool2d(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_pool_2_doptions())?;
    Ok(Params::Pool2D(Pool2DParams {
        padding: Padding::read(t.padding())?,
        stride_w: t.stride_w(),
        stride_h: t.stride_h(),
        filter_width: t.filter_width(),
        filter_height: t.filter_height(),
        fused_activation_function: Activation::read(t.fused_activation_function())?,
    }))
}

/// Input and output `[batch, height, width, channels]`. Padding is no part of a window.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let p: &Pool2DParams = cx.params()?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let window = |size: i32| {
        usize::try_from(size).map_err(|_| InferError::new(format!("a window of size {size} is negative")))
    };
    let h = windowed_output(h, window(p.filter_height)?, p.stride_h, 1, p.padding)?;
    let w = windowed_output(w, window(p.filter_width)?, p.stride_w, 1, p.padding)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, c])])
}
