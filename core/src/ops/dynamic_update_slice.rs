//! DYNAMIC_UPDATE_SLICE.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with,
    no_arithmetic,
};
use crate::schema::BuiltinOptions;

ops! {
    DYNAMIC_UPDATE_SLICE {
        codec: Codec::empty(BuiltinOptions::DynamicUpdateSliceOptions),
        infer,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.9.0"), (2, "2.17.0"), (3, "2.19.0"), (4, "2.20.0"), (5, "2.21.0"), (6, "2.22.0")],
    }
}

/// Input 0, in which input 1 replaces the elements from the indices in input 2 on.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (input, update, start) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let fits = update.shape.rank() == input.shape.rank()
        && update.shape.iter().zip(input.shape.iter()).all(|(u, i)| u <= i);
    if update.ty != input.ty || !fits {
        return Err(InferError::new(format!(
            "an update of {} {} does not fit {} {}",
            update.ty, update.shape, input.ty, input.shape
        )));
    }
    let indices = matches!(start.ty, TensorType::Int32 | TensorType::Int64);
    if !indices || start.shape.dims() != [input.shape.rank()] {
        return Err(InferError::new(format!(
            "{} {} are not indices into {}",
            start.ty, start.shape, input.shape
        )));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// 64-bit indices and further types were added one after the other.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{BFloat16, Float16, Int4, Int16, Int64};
    lowest_with(&[
        (2, s.input_is(2, &[Int64])),
        (3, s.input_is(0, &[Float16])),
        (4, s.input_is(0, &[Int16])),
        (5, s.input_is(0, &[Int4])),
        (6, s.input_is(0, &[BFloat16])),
    ])
}
