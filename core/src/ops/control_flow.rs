//! CALL_ONCE, IF, WHILE.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, always_1, no_arithmetic, options};

/// `CALL_ONCE`.
pub static CALL_ONCE: OpDef = OpDef {
    op: BuiltinOp::CALL_ONCE,
    family: "control_flow",
    codec: CallOnceParams::CODEC,
    infer: infer_call_once,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.5.0")],
};

/// `IF`.
pub static IF: OpDef = OpDef {
    op: BuiltinOp::IF,
    family: "control_flow",
    codec: IfParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.15.0")],
};

/// `WHILE`.
pub static WHILE: OpDef = OpDef {
    op: BuiltinOp::WHILE,
    family: "control_flow",
    codec: WhileParams::CODEC,
    infer: infer_call,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.15.0")],
};

options! {
    /// Params of CALL_ONCE.
    CallOnce(CallOnceParams) in BuiltinOptions::CallOnceOptions(builtin_options_as_call_once_options, CallOnceOptionsArgs) {
        /// The subgraph that is run.
        init_subgraph_index: i32;
    }
}

options! {
    /// Params of IF.
    If(IfParams) in BuiltinOptions::IfOptions(builtin_options_as_if_options, IfOptionsArgs) {
        /// The subgraph that is run where the condition is true.
        then_subgraph_index: i32;
        /// The subgraph that is run where it is false.
        else_subgraph_index: i32;
    }
}

options! {
    /// Params of WHILE.
    While(WhileParams) in BuiltinOptions::WhileOptions(builtin_options_as_while_options, WhileOptionsArgs) {
        /// The subgraph that says whether to go on.
        cond_subgraph_index: i32;
        /// The subgraph that is run as long as it does.
        body_subgraph_index: i32;
    }
}

/// Runs a subgraph the first time, nothing after that.
fn infer_call_once(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 0)?;
    Ok(smallvec![])
}

/// What a called subgraph returns is known when it is prepared: the kernel asks the interpreter for it.
fn infer_call(cx: &InferContext<'_>) -> InferResult {
    for i in 0..cx.inputs.len() {
        cx.input(i)?;
    }
    Ok(cx.outputs.iter().map(|o| Inferred::from_kernel(o.ty)).collect())
}
