//! DENSIFY.

use smallvec::smallvec;

use super::{BuiltinOp, Codec, InferContext, InferResult, Inferred, OpDef, always_1, no_arithmetic};
use crate::schema::BuiltinOptions;

/// `DENSIFY`.
pub static DENSIFY: OpDef = OpDef {
    op: BuiltinOp::DENSIFY,
    family: "densify",
    codec: Codec::empty(BuiltinOptions::DensifyOptions),
    infer,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.2.0")],
};

/// A sparse constant in its dense form.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
