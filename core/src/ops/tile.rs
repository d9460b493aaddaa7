//! TILE, BROADCAST_TO, BROADCAST_ARGS.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, lowest_with,
    no_arithmetic, size_from,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;
use crate::types::shape::{Shape, broadcast};

ops! {
    TILE {
        codec: Codec::empty(BuiltinOptions::TileOptions),
        infer: infer_tile,
        min_version: min_version_tile,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.10.1"), (2, "2.2.0"), (3, "2.8.0")],
    }

    BROADCAST_TO {
        codec: Codec::empty(BuiltinOptions::BroadcastToOptions),
        infer: infer_broadcast_to,
        min_version: min_version_broadcast_to,
        multiply_adds: no_arithmetic,
        history: &[(2, "2.5.0"), (3, "2.5.0"), (4, "2.23.0")],
    }

    BROADCAST_ARGS {
        codec: Codec::NONE,
        infer: infer_broadcast_args,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.6.0")],
    }
}

/// The input, repeated along each dimension; input 1 has the number of repetitions.
fn infer_tile(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let input = cx.input(0)?;
    let Some(times) = cx.input(1)?.integers()? else { return cx.data_dependent(input.ty) };
    if times.len() != input.shape.rank() {
        let multiples = counted(times.len(), "multiple");
        return Err(InferError::new(format!("{multiples} for {}", input.shape)));
    }
    let dims = input.shape.iter().zip(&times).map(|(&size, &times)| {
        let tiled = size.checked_mul(size_from(times, "multiple")?);
        tiled.ok_or_else(|| InferError::new("the tiled size overflows"))
    });
    Ok(smallvec![Inferred::known(input.ty, dims.collect::<Result<Shape, _>>()?)])
}

/// The input, repeated to the shape in input 1.
fn infer_broadcast_to(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let input = cx.input(0)?;
    let Some(dims) = cx.input(1)?.integers()? else { return cx.data_dependent(input.ty) };
    let shape: Shape = dims.iter().map(|&d| size_from(d, "dimension")).collect::<Result<_, _>>()?;
    if input.shape.rank() > shape.rank() || broadcast(input.shape, &shape).as_ref() != Some(&shape) {
        return Err(InferError::new(format!("{} does not broadcast to {shape}", input.shape)));
    }
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// The shape that the shapes in both inputs broadcast to.
fn infer_broadcast_args(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    match (a.ty, b.ty, a.shape.dims(), b.shape.dims()) {
        (TensorType::Int32 | TensorType::Int64, ty, &[a_rank], &[b_rank]) if a.ty == ty => {
            Ok(smallvec![Inferred::known(ty, [a_rank.max(b_rank)])])
        }
        _ => Err(InferError::new(format!(
            "inputs {} {} and {} {}; only two INT32 or two INT64 vectors are supported",
            a.ty, a.shape, b.ty, b.shape
        ))),
    }
}

/// Version 2 added strings, version 3 8-bit.
fn min_version_tile(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, String};
    lowest_with(&[(2, s.input_is(0, &[String])), (3, s.input_is(0, &[Int8]))])
}

/// There is no version 1. Version 3 added small integers, version 4 8-bit floats.
fn min_version_broadcast_to(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Int8, Int16};
    lowest_with(&[
        (2, true),
        (3, s.input_is(0, &[Int8, Int16])),
        (4, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}
