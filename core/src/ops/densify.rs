//! DENSIFY.

use smallvec::smallvec;

use super::{Codec, InferContext, InferResult, Inferred, always_1, no_arithmetic};
use crate::schema::BuiltinOptions;

ops! {
    DENSIFY {
        codec: Codec::empty(BuiltinOptions::DensifyOptions),
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.2.0")],
    }
}

/// A sparse constant in its dense form.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
