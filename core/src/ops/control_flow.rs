//! CALL_ONCE, IF, WHILE.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, Options, Params, ReadError};

/// `CALL_ONCE`.
pub static CALL_ONCE: OpDef = OpDef {
    op: BuiltinOp::CALL_ONCE,
    family: "control_flow",
    read: read_call_once,
    infer: infer_call_once,
    history: &[(1, "2.5.0")],
};

/// `IF`.
pub static IF: OpDef = OpDef {
    op: BuiltinOp::IF,
    family: "control_flow",
    read: read_if,
    infer: infer_call,
    history: &[(1, "1.15.0")],
};

/// `WHILE`.
pub static WHILE: OpDef = OpDef {
    op: BuiltinOp::WHILE,
    family: "control_flow",
    read: read_while,
    infer: infer_call,
    history: &[(1, "1.15.0")],
};

/// Params of CALL_ONCE.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOnceParams {
    /// The subgraph that is run.
    pub init_subgraph_index: i32,
}

fn read_call_once(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_call_once_options())?;
    Ok(Params::CallOnce(CallOnceParams { init_subgraph_index: t.init_subgraph_index() }))
}

/// Params of IF.
#[derive(Debug, Clone, PartialEq)]
pub struct IfParams {
    /// The subgraph that is run where the condition is true.
    pub then_subgraph_index: i32,
    /// The subgraph that is run where it is false.
    pub else_subgraph_index: i32,
}

fn read_if(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_if_options())?;
    Ok(Params::If(IfParams {
        then_subgraph_index: t.then_subgraph_index(),
        else_subgraph_index: t.else_subgraph_index(),
    }))
}

/// Params of WHILE.
#[derive(Debug, Clone, PartialEq)]
pub struct WhileParams {
    /// The subgraph that says whether to go on.
    pub cond_subgraph_index: i32,
    /// The subgraph that is run as long as it does.
    pub body_subgraph_index: i32,
}

fn read_while(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_while_options())?;
    Ok(Params::While(WhileParams {
        cond_subgraph_index: t.cond_subgraph_index(),
        body_subgraph_index: t.body_subgraph_index(),
    }))
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
