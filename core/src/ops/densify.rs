//! DENSIFY.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, read_none};

/// `DENSIFY`.
pub static DENSIFY: OpDef = OpDef {
    op: BuiltinOp::DENSIFY,
    family: "densify",
    read: read_none,
    infer,
    history: &[(1, "2.2.0")],
};

/// A sparse constant in its dense form.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
