//! SELECT, SELECT_V2.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, InferTensor, Inferred, OpDef, TensorType, read_none,
};
use crate::shape::broadcast;

/// `SELECT`.
pub static SELECT: OpDef = OpDef {
    op: BuiltinOp::SELECT,
    family: "select",
    read: read_none,
    infer: infer_select,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.12.0"), (4, "2.12.0")],
};

/// `SELECT_V2`.
pub static SELECT_V2: OpDef = OpDef {
    op: BuiltinOp::SELECT_V2,
    family: "select",
    read: read_none,
    infer: infer_select_v2,
    history: &[(1, "2.2.0"), (2, "2.12.0")],
};

/// Where the condition is true the elements of input 1, elsewhere those of input 2, of the same shape. The condition
/// has their shape, or says it for each index of the first dimension, or for all.
fn infer_select(cx: &InferContext<'_>) -> InferResult {
    let [condition, x, y] = operands(cx)?;
    if let Some(single) = single(cx, [condition, x, y]) {
        return Ok(smallvec![single]);
    }
    let fits = match condition.shape.dims() {
        [] => true,
        &[n] if x.shape.first() == Some(&n) => true,
        _ => condition.shape == x.shape,
    };
    if !fits || x.shape != y.shape {
        return Err(InferError::new(format!(
            "condition {}, {} and {} do not fit",
            condition.shape, x.shape, y.shape
        )));
    }
    Ok(smallvec![Inferred::known(x.ty, x.shape.clone())])
}

/// Like SELECT, for operands that broadcast to the output.
fn infer_select_v2(cx: &InferContext<'_>) -> InferResult {
    let [condition, x, y] = operands(cx)?;
    if let Some(single) = single(cx, [condition, x, y]) {
        return Ok(smallvec![single]);
    }
    let shape = broadcast(x.shape, y.shape).and_then(|both| broadcast(&both, condition.shape));
    match shape {
        Some(shape) => Ok(smallvec![Inferred::known(x.ty, shape)]),
        None => {
            Err(InferError::new(format!("{}, {} and {} do not broadcast", condition.shape, x.shape, y.shape)))
        }
    }
}

fn operands<'a, 'b>(cx: &'b InferContext<'a>) -> Result<[&'b InferTensor<'a>; 3], InferError> {
    cx.arity(3..=3, 1)?;
    let (condition, x, y) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if condition.ty != TensorType::Bool || x.ty != y.ty {
        return Err(InferError::new(format!(
            "expected BOOL and two of one type, got {}, {} and {}",
            condition.ty, x.ty, y.ty
        )));
    }
    Ok([condition, x, y])
}

/// Operands of one element each give the shape that the output is declared with, if that has one element, too.
fn single(cx: &InferContext<'_>, operands: [&InferTensor<'_>; 3]) -> Option<Inferred> {
    let declared = cx.outputs.first()?.shape;
    let ones = operands.iter().all(|t| t.shape.elements() == 1) && declared.elements() == 1;
    ones.then(|| Inferred::known(operands[1].ty, declared.clone()))
}
