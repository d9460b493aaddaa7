//! PRELU.

use smallvec::smallvec;

use super::{Codec, InferContext, InferError, InferResult, Inferred, always_1, per_output};
use crate::types::shape::broadcast;

ops! {
    PRELU {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.8.0")],
    }
}

/// Input 1, the slopes below 0, broadcasts to input 0.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, slopes) = (cx.input(0)?, cx.input(1)?);
    if broadcast(input.shape, slopes.shape).as_ref() != Some(input.shape) {
        let text = format!("slopes of shape {} do not broadcast to {}", slopes.shape, input.shape);
        return Err(InferError::new(text));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
