//! VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, read_none,
};

/// `VAR_HANDLE`.
pub static VAR_HANDLE: OpDef = OpDef {
    op: BuiltinOp::VAR_HANDLE,
    family: "variables",
    read: read_var_handle,
    infer: infer_handle,
    history: &[(1, "2.6.0")],
};

/// `READ_VARIABLE`.
pub static READ_VARIABLE: OpDef = OpDef {
    op: BuiltinOp::READ_VARIABLE,
    family: "variables",
    read: read_none,
    infer: infer_read,
    history: &[(1, "2.6.0")],
};

/// `ASSIGN_VARIABLE`.
pub static ASSIGN_VARIABLE: OpDef = OpDef {
    op: BuiltinOp::ASSIGN_VARIABLE,
    family: "variables",
    read: read_none,
    infer: infer_assign,
    history: &[(1, "2.6.0")],
};

/// Params of VAR_HANDLE.
#[derive(Debug, Clone, PartialEq)]
pub struct VarHandleParams {
    /// Variables of the same name in different containers are different.
    pub container: String,
    /// The name of the variable; every handle of that name stands for the same one.
    pub shared_name: String,
}

fn read_var_handle(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_var_handle_options())?;
    Ok(Params::VarHandle(VarHandleParams {
        container: t.container().unwrap_or_default().to_owned(),
        shared_name: t.shared_name().unwrap_or_default().to_owned(),
    }))
}

/// The handle of a resource variable.
fn infer_handle(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 1)?;
    let declared = cx.outputs.first().map(|o| o.shape).filter(|s| s.elements() == 1);
    Ok(smallvec![Inferred::known(TensorType::Resource, declared.cloned().unwrap_or_default())])
}

/// The value of the variable. It is what the file declares; where that is a scalar, the file does not say.
fn infer_read(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    check_handle(cx)?;
    let declared = cx.outputs.first().ok_or_else(|| InferError::new("output 0 is missing"))?;
    Ok(smallvec![match declared.shape.rank() {
        0 => Inferred::data_dependent(declared.ty),
        _ => Inferred::known(declared.ty, declared.shape.clone()),
    }])
}

/// Gives the variable of input 0 the value of input 1.
fn infer_assign(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 0)?;
    check_handle(cx)?;
    cx.input(1)?;
    Ok(smallvec![])
}

fn check_handle(cx: &InferContext<'_>) -> Result<(), InferError> {
    let handle = cx.input(0)?;
    let one = handle.shape.elements() == 1;
    if one && matches!(handle.ty, TensorType::Resource | TensorType::Int32) {
        return Ok(());
    }
    Err(InferError::new(format!("expected the handle of one variable, got {} {}", handle.ty, handle.shape)))
}
