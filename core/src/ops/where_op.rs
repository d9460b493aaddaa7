//! WHERE.

use smallvec::smallvec;

use super::{
    BuiltinOp, Codec, InferContext, InferResult, Inferred, OpDef, OpSignature, TensorType, lowest_with,
    per_input,
};
use crate::schema::BuiltinOptions;

/// `WHERE`.
pub static WHERE: OpDef = OpDef {
    op: BuiltinOp::WHERE,
    family: "where_op",
    codec: Codec::empty(BuiltinOptions::WhereOptions),
    infer,
    min_version,
    multiply_adds: per_input,
    history: &[(1, "1.14.0"), (2, "2.8.0")],
};

/// The indices of all elements that are not zero, `[count, rank]`. How many there are only the data says.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    cx.input(0)?;
    Ok(smallvec![Inferred::data_dependent(TensorType::Int64)])
}

/// Conditions of other types than BOOL came with version 2.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Bool;
    lowest_with(&[(2, !s.input_is(0, &[Bool]))])
}
