//! TOPK_V2.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, per_input,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    TOPK_V2 {
        codec: Codec::empty(BuiltinOptions::TopKV2Options),
        infer,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.7.0"), (2, "1.14.0"), (3, "2.13.0")],
    }
}

/// The `k` largest elements of each row and their indices, where input 1 is `k`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 2)?;
    let (input, k) = (cx.input(0)?, cx.input(1)?);
    let indices = match cx.outputs.get(1).map(|o| o.ty) {
        Some(ty @ (TensorType::Int32 | TensorType::Int16)) => ty,
        _ => return Err(InferError::new("the indices must be INT32 or INT16")),
    };
    let count = match k.ty {
        TensorType::Int16 => k.scalar::<i16>("the count")?.map(i64::from),
        _ => k.integer("the count")?,
    };
    let Some(count) = count else {
        return Ok(smallvec![Inferred::data_dependent(input.ty), Inferred::data_dependent(indices)]);
    };
    // No elements if the count is negative.
    let count = usize::try_from(count).unwrap_or(0);
    match input.shape.split_last() {
        Some((&row, rows)) if count <= row => {
            let shape: Shape = rows.iter().chain(&[count]).copied().collect();
            Ok(smallvec![Inferred::known(input.ty, shape.clone()), Inferred::known(indices, shape)])
        }
        None => Err(InferError::new("the input must have at least rank 1, got []")),
        _ => Err(InferError::new(format!(
            "{} of each row of {}; the last dimension must have at least {count}",
            counted(count, "element"),
            input.shape
        ))),
    }
}

/// Version 2 added 8-bit, version 3 16-bit values, counts and indices.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16]) || s.input_is(1, &[Int16]) || s.output_is(1, &[Int16])),
    ])
}
