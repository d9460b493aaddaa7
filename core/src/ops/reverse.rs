//! REVERSE_V2, REVERSE_SEQUENCE.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, axis_in,
    lowest_with, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;

ops! {
    REVERSE_V2 {
        codec: Codec::empty(BuiltinOptions::ReverseV2Options),
        infer: infer_reverse,
        min_version: min_version_v2,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0"), (2, "2.2.0"), (3, "2.5.0"), (4, "2.23.0")],
    }

    REVERSE_SEQUENCE {
        codec: ReverseSequenceParams::CODEC,
        infer: infer_sequence,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0")],
    }
}

options! {
    /// Params of REVERSE_SEQUENCE.
    ReverseSequence(ReverseSequenceParams) in BuiltinOptions::ReverseSequenceOptions(builtin_options_as_reverse_sequence_options, ReverseSequenceOptionsArgs) as TfLiteReverseSequenceParams {
        /// The dimension that is reversed.
        seq_dim: i32;
        /// The dimension along which the lengths differ.
        batch_dim: i32;
    }
}

/// The input with the order along the dimensions in input 1 reversed.
fn infer_reverse(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, axes) = (cx.input(0)?, cx.input(1)?);
    if axes.ty != TensorType::Int32 {
        return Err(InferError::new(format!("the axes must be INT32, got {}", axes.ty)));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// The input with the first elements of each sequence reversed; input 1 has their number for each sequence.
fn infer_sequence(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, lengths) = (cx.input(0)?, cx.input(1)?);
    let (sequence, batch) = sequence_dimensions(cx)?;
    if sequence == batch || lengths.shape.dims() != [input.shape[batch]] {
        return Err(InferError::new(format!(
            "lengths of shape {} do not fit {}",
            lengths.shape, input.shape
        )));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// Returns the dimension that REVERSE_SEQUENCE reverses, and the one along which the lengths differ.
pub fn sequence_dimensions(cx: &InferContext<'_>) -> Result<(usize, usize), InferError> {
    let (p, rank): (&ReverseSequenceParams, _) = (cx.params()?, cx.input(0)?.shape.rank());
    Ok((axis_in(p.seq_dim.into(), rank)?, axis_in(p.batch_dim.into(), rank)?))
}

/// Types were added one after the other.
fn min_version_v2(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Float8E4M3FN, Float8E5M2, Int8};
    lowest_with(&[
        (2, s.input_is(0, &[Bool])),
        (3, s.input_is(0, &[Int8])),
        (4, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}
