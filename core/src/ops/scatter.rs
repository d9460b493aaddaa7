//! SCATTER_ND.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic, size_from,
};
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    SCATTER_ND {
        codec: Codec::empty(BuiltinOptions::ScatterNdOptions),
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.1.0")],
    }
}

/// Zeros of the shape in input 2, to which the slices of input 1 are added at the index tuples in input 0.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (indices, updates, shape) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    if indices.ty != TensorType::Int32 || shape.ty != TensorType::Int32 {
        return Err(InferError::new(format!(
            "indices and shape must be INT32, got {} and {}",
            indices.ty, shape.ty
        )));
    }
    let Some(dims) = shape.integers()? else { return cx.data_dependent(updates.ty) };
    let shape: Shape = dims.iter().map(|&d| size_from(d, "dimension")).collect::<Result<_, _>>()?;
    let fits = match indices.shape.split_last() {
        Some((&depth, tuples)) if depth <= shape.rank() => {
            let wanted: Shape = tuples.iter().chain(&shape[depth..]).copied().collect();
            wanted == *updates.shape
        }
        _ => false,
    };
    if !fits {
        return Err(InferError::new(format!(
            "indices {} and updates {} do not fit {shape}",
            indices.shape, updates.shape
        )));
    }
    Ok(smallvec![Inferred::known(updates.ty, shape)])
}
