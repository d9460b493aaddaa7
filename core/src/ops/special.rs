//! CUSTOM, DELEGATE, PLACEHOLDER_FOR_GREATER_OP_CODES: codes that say where to look for the op. None of them is an op
//! that could run.

use super::{BuiltinOp, Codec, InferContext, InferError, InferResult, OpDef, always_1, no_arithmetic};

/// One of these codes.
const fn no_op(op: BuiltinOp, infer: fn(&InferContext<'_>) -> InferResult) -> OpDef {
    OpDef {
        op,
        family: "special",
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }
}

/// `CUSTOM`: the op has a name instead of a code.
pub static CUSTOM: OpDef = no_op(BuiltinOp::CUSTOM, |_| {
    Err(InferError::new("CUSTOM is no builtin op: a custom op is found by its name"))
});
/// `DELEGATE`: what a delegate made of other nodes, in memory.
pub static DELEGATE: OpDef = no_op(BuiltinOp::DELEGATE, |_| {
    Err(InferError::new(
        "DELEGATE is no builtin op: it stands for nodes that a delegate runs, and is in no file",
    ))
});
/// `PLACEHOLDER_FOR_GREATER_OP_CODES`: the code does not fit the field of old files and is in another one.
pub static PLACEHOLDER_FOR_GREATER_OP_CODES: OpDef =
    no_op(BuiltinOp::PLACEHOLDER_FOR_GREATER_OP_CODES, |_| {
        Err(InferError::new(
            "PLACEHOLDER_FOR_GREATER_OP_CODES is no builtin op: the code is in another field",
        ))
    });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::bad;

    #[test]
    fn none_of_them_runs() {
        for def in [&CUSTOM, &DELEGATE, &PLACEHOLDER_FOR_GREATER_OP_CODES] {
            bad(def, Params::None, &[], &[], "is no builtin op");
        }
    }
}
