//! ADD_N.

use smallvec::smallvec;

use super::{Codec, InferContext, InferError, InferResult, Inferred, OpSignature, always_1};
use crate::schema::BuiltinOptions;

ops! {
    ADD_N {
        codec: Codec::empty(BuiltinOptions::AddNOptions),
        infer,
        min_version: always_1,
        multiply_adds,
        history: &[(1, "1.14.0")],
    }
}

/// The sum of any number of inputs of one type and shape.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=usize::MAX, 1)?;
    let first = cx.input(0)?;
    for i in 1..cx.inputs.len() {
        let input = cx.input(i)?;
        if input.ty != first.ty || input.shape != first.shape {
            return Err(InferError::new(format!(
                "input {i} is {} {}, input 0 is {} {}",
                input.ty, input.shape, first.ty, first.shape
            )));
        }
    }
    Ok(smallvec![Inferred::known(first.ty, first.shape.clone())])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    s.output_elements().saturating_mul(s.inputs.len() as u64)
}
