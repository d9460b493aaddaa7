//! EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR.

use smallvec::smallvec;

use super::binary::broadcast_inputs;
use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, TensorType, read_none};

/// `EQUAL`.
pub static EQUAL: OpDef = OpDef {
    op: BuiltinOp::EQUAL,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.13.0"), (5, "2.21.0")],
};

/// `NOT_EQUAL`.
pub static NOT_EQUAL: OpDef = OpDef {
    op: BuiltinOp::NOT_EQUAL,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.21.0")],
};

/// `LESS`.
pub static LESS: OpDef = OpDef {
    op: BuiltinOp::LESS,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
};

/// `LESS_EQUAL`.
pub static LESS_EQUAL: OpDef = OpDef {
    op: BuiltinOp::LESS_EQUAL,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0")],
};

/// `GREATER`.
pub static GREATER: OpDef = OpDef {
    op: BuiltinOp::GREATER,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0")],
};

/// `GREATER_EQUAL`.
pub static GREATER_EQUAL: OpDef = OpDef {
    op: BuiltinOp::GREATER_EQUAL,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
};

/// `LOGICAL_AND`.
pub static LOGICAL_AND: OpDef = OpDef {
    op: BuiltinOp::LOGICAL_AND,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.11.0")],
};

/// `LOGICAL_OR`.
pub static LOGICAL_OR: OpDef = OpDef {
    op: BuiltinOp::LOGICAL_OR,
    family: "comparison",
    read: read_none,
    infer,
    history: &[(1, "1.11.0")],
};

/// Two inputs of one type that broadcast to a BOOL output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    Ok(smallvec![Inferred::known(TensorType::Bool, broadcast_inputs(cx)?)])
}
