//! ONE_HOT.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, TensorType, always_1, axis_in, no_arithmetic, options,
    size_from,
};
use crate::types::Shape;

ops! {
    ONE_HOT {
        codec: OneHotParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.11.0")],
    }
}

options! {
    /// Params of ONE_HOT.
    OneHot(OneHotParams) in BuiltinOptions::OneHotOptions(builtin_options_as_one_hot_options, OneHotOptionsArgs) as TfLiteOneHotParams {
        /// The new dimension; -1 for the last.
        axis: i32;
    }
}

/// A new dimension of the size in input 1: input 2 at the index in input 0, input 3 elsewhere.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(4..=4, 1)?;
    let (indices, on, off) = (cx.input(0)?, cx.input(2)?, cx.input(3)?);
    if on.ty != off.ty || on.shape.elements() != 1 || off.shape.elements() != 1 {
        return Err(InferError::new(format!(
            "expected two values of one type, got {} {} and {} {}",
            on.ty, on.shape, off.ty, off.shape
        )));
    }
    if !matches!(indices.ty, TensorType::Int32 | TensorType::Int64) {
        return Err(InferError::new(format!("indices must be INT32 or INT64, got {}", indices.ty)));
    }
    let axis = axis(cx)?;
    let Some(depth) = cx.input(1)?.integer("the depth")? else { return cx.data_dependent(on.ty) };
    let (front, back) = indices.shape.dims().split_at(axis);
    let depth = size_from(depth, "depth")?;
    Ok(smallvec![Inferred::known(
        on.ty,
        front.iter().chain(&[depth]).chain(back).copied().collect::<Shape>()
    )])
}

/// Returns the new dimension, counted from the front.
pub fn axis(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<OneHotParams>()?.axis.into(), cx.input(0)?.shape.rank() + 1)
}
