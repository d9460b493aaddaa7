//! WHERE.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, TensorType, read_none};

/// `WHERE`.
pub static WHERE: OpDef = OpDef {
    op: BuiltinOp::WHERE,
    family: "where_op",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "2.8.0")],
};

/// The indices of all elements that are not zero, `[count, rank]`. How many there are only the data says.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    cx.input(0)?;
    Ok(smallvec![Inferred::data_dependent(TensorType::Int64)])
}
