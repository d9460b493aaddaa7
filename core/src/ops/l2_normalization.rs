//! L2_NORMALIZATION.

use smallvec::smallvec;

use super::{Activation, BuiltinOp, InferContext, InferResult, Inferred, OpDef, Options, Params, ReadError};

/// `L2_NORMALIZATION`.
pub static L2_NORMALIZATION: OpDef = OpDef {
    op: BuiltinOp::L2_NORMALIZATION,
    family: "l2_normalization",
    read: read_l2_norm,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0")],
};

/// Params of L2_NORMALIZATION.
#[derive(Debug, Clone, PartialEq)]
pub struct L2NormParams {
    /// Applied to the result; no runtime does any.
    pub fused_activation_function: Activation,
}

fn read_l2_norm(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_l2_norm_options())?;
    Ok(Params::L2Norm(L2NormParams {
        fused_activation_function: Activation::read(t.fused_activation_function())?,
    }))
}

/// The last dimension is scaled to length 1.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
