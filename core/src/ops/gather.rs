//! GATHER, GATHER_ND.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, InferTensor, Inferred, OpSignature, TensorType, axis_in,
    lowest_with, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    GATHER {
        codec: GatherParams::CODEC,
        infer: infer_gather,
        min_version: min_version_gather,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.6.0"),
            (2, "1.14.0"),
            (3, "1.15.0"),
            (4, "2.4.0"),
            (5, "2.5.0"),
            (6, "2.13.0"),
            (7, "2.15.0"),
            (8, "2.23.0"),
        ],
    }

    GATHER_ND {
        codec: Codec::empty(BuiltinOptions::GatherNdOptions),
        infer: infer_gather_nd,
        min_version: min_version_gather_nd,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0"), (2, "2.3.0"), (3, "2.5.0"), (4, "2.13.0"), (5, "2.16.0"), (6, "2.23.0")],
    }
}

options! {
    /// Params of GATHER.
    Gather(GatherParams) in BuiltinOptions::GatherOptions(builtin_options_as_gather_options, GatherOptionsArgs) as TfLiteGatherParams {
        /// The dimension that indices select from; negative counts from the back.
        axis: i32;
        /// The number of leading dimensions that input and indices share; negative counts from the indices' rank.
        batch_dims: i32, since 5;
    }
}

/// Slices of the input along one dimension, at the indices in input 1.
fn infer_gather(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, indices) = (cx.input(0)?, indices(cx)?);
    let (axis, batch) = gather_dimensions(cx)?;
    let (front, back) = input.shape.dims().split_at(axis);
    let shape = front.iter().chain(&indices.shape[batch..]).chain(&back[1..]).copied().collect::<Shape>();
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Returns the axis of a GATHER, counted from the front, and the number of its batch dimensions.
pub fn gather_dimensions(cx: &InferContext<'_>) -> Result<(usize, usize), InferError> {
    let p: &GatherParams = cx.params()?;
    let (input, indices) = (cx.input(0)?.shape, cx.input(1)?.shape);
    let axis = axis_in(p.axis.into(), input.rank())?;
    let batch = axis_in(p.batch_dims.into(), indices.rank() + 1 - usize::from(p.batch_dims < 0))?;
    if batch > axis || input[..batch] != indices[..batch] {
        return Err(InferError::new(format!(
            "{batch} batch dimensions do not fit {input} and indices {indices}"
        )));
    }
    Ok((axis, batch))
}

/// Slices of the input at index tuples: the last dimension of input 1 holds the tuples.
fn infer_gather_nd(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, indices) = (cx.input(0)?, indices(cx)?);
    match indices.shape.split_last() {
        Some((&depth, tuples)) if depth <= input.shape.rank() && input.shape.rank() > 0 => {
            let shape = tuples.iter().chain(&input.shape[depth..]).copied().collect::<Shape>();
            Ok(smallvec![Inferred::known(input.ty, shape)])
        }
        _ => Err(InferError::new(format!("indices of shape {} do not fit {}", indices.shape, input.shape))),
    }
}

fn indices<'a, 'b>(cx: &'b InferContext<'a>) -> Result<&'b InferTensor<'a>, InferError> {
    let indices = cx.input(1)?;
    match indices.ty {
        TensorType::Int16 | TensorType::Int32 | TensorType::Int64 => Ok(indices),
        ty => Err(InferError::new(format!("indices must be INT16, INT32 or INT64, got {ty}"))),
    }
}

/// Types and batch dimensions were added one after the other.
fn min_version_gather(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Float8E4M3FN, Float8E5M2, Int4, Int8, Int16};
    let p = s.params::<GatherParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Bool])),
        (4, s.input_is(0, &[Int16])),
        (5, p.is_some_and(|p| p.batch_dims != 0)),
        (6, s.input_is(1, &[Int16])),
        (7, s.input_is(0, &[Int4])),
        (8, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Types were added one after the other.
fn min_version_gather_nd(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Float8E4M3FN, Float8E5M2, Int16, String};
    lowest_with(&[
        (2, s.input_is(0, &[String])),
        (3, s.input_is(0, &[Int16])),
        (4, s.input_is(1, &[Int16])),
        (5, s.input_is(0, &[Bool])),
        (6, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}
