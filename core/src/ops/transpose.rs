//! TRANSPOSE.

use smallvec::{SmallVec, smallvec};

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, axis_in, lowest_with,
    no_arithmetic,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;

ops! {
    TRANSPOSE {
        codec: Codec::empty(BuiltinOptions::TransposeOptions),
        infer,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.6.0"),
            (2, "1.14.0"),
            (3, "1.15.0"),
            (4, "2.3.0"),
            (5, "2.4.0"),
            (6, "2.12.0"),
            (7, "2.14.4"),
            (8, "2.22.0"),
            (9, "2.23.0"),
        ],
    }
}

/// Dimension `d` of the output is dimension `permutation[d]` of the input.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let input = cx.input(0)?;
    match permutation(cx)? {
        Some(p) => Ok(smallvec![Inferred::known(
            input.ty,
            p.iter().map(|&d| input.shape[d]).collect::<crate::types::Shape>()
        )]),
        None => cx.data_dependent(input.ty),
    }
}

/// Returns the dimension of the input for each dimension of the output; `None` while it is not known.
pub fn permutation(cx: &InferContext<'_>) -> Result<Option<SmallVec<[usize; 8]>>, InferError> {
    let rank = cx.input(0)?.shape.rank();
    let Some(values) = cx.input(1)?.integers()? else { return Ok(None) };
    if values.len() != rank {
        return Err(InferError::new(format!(
            "the permutation has {} for rank {rank}",
            counted(values.len(), "element")
        )));
    }
    let permutation =
        values.iter().map(|&d| axis_in(d, rank)).collect::<Result<SmallVec<[usize; 8]>, _>>()?;
    if (0..rank).any(|d| !permutation.contains(&d)) {
        return Err(InferError::new(format!("{values:?} is not a permutation of {rank} dimensions")));
    }
    Ok(Some(permutation))
}

/// Types and ranks were added one after the other.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{BFloat16, Bool, Float16, Int4, Int8, Int16};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Bool])),
        (4, s.rank(0) > 4),
        (5, s.input_is(0, &[Int16])),
        (6, s.rank(0) > 5),
        (7, s.input_is(0, &[Int4])),
        (8, s.rank(0) > 6 || s.input_is(0, &[BFloat16])),
        (9, s.input_is(0, &[Float16])),
    ])
}
