//! WHERE.

use smallvec::smallvec;

use super::{Codec, InferContext, InferResult, Inferred, OpSignature, TensorType, lowest_with, per_input};
use crate::schema::BuiltinOptions;

ops! {
    WHERE {
        codec: Codec::empty(BuiltinOptions::WhereOptions),
        infer,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.14.0"), (2, "2.8.0")],
    }
}

/// The indices of all elements that are not zero, `[count, rank]`. Their number depends on the data.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    cx.input(0)?;
    Ok(smallvec![Inferred::data_dependent(TensorType::Int64)])
}

/// Version 2 added conditions of types other than BOOL.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Bool;
    lowest_with(&[(2, !s.input_is(0, &[Bool]))])
}
