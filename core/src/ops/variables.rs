//! VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    VAR_HANDLE {
        codec: VarHandleParams::CODEC,
        infer: infer_handle,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.6.0")],
    }

    READ_VARIABLE {
        codec: Codec::empty(BuiltinOptions::ReadVariableOptions),
        infer: infer_read,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.6.0")],
    }

    ASSIGN_VARIABLE {
        codec: Codec::empty(BuiltinOptions::AssignVariableOptions),
        infer: infer_assign,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.6.0")],
    }
}

options! {
    /// Params of VAR_HANDLE.
    VarHandle(VarHandleParams) in BuiltinOptions::VarHandleOptions(builtin_options_as_var_handle_options, VarHandleOptionsArgs) as TfLiteVarHandleParams {
        /// Variables of the same name in different containers are different.
        container: String;
        /// The name of the variable; every handle of that name refers to the same variable.
        shared_name: String;
    }
}

/// The error of reading a variable that has no value.
pub const UNASSIGNED: &str = "the variable has no value yet";

/// Returns the error of reading a variable whose type or shape differs from the declaration in the model.
pub fn mismatch(holds: (TensorType, &Shape), expected: (TensorType, &Shape)) -> String {
    format!("the variable holds {} {}, expected {} {}", holds.0, holds.1, expected.0, expected.1)
}

/// The handle of a resource variable.
fn infer_handle(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 1)?;
    let declared = cx.outputs.first().map(|o| o.shape).filter(|s| s.elements() == 1);
    Ok(smallvec![Inferred::known(TensorType::Resource, declared.cloned().unwrap_or_default())])
}

/// The value of the variable, in the type and shape that the file declares; a declared scalar represents an unknown
/// shape.
fn infer_read(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    check_handle(cx)?;
    let declared = cx.outputs.first().ok_or_else(|| InferError::new("output 0 is missing"))?;
    Ok(smallvec![match declared.shape.rank() {
        0 => Inferred::data_dependent(declared.ty),
        _ => Inferred::known(declared.ty, declared.shape.clone()),
    }])
}

/// No outputs: the op assigns the value of input 1 to the variable of input 0.
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
