//! FILL, RANGE.

use std::fmt::Display;

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with,
    no_arithmetic, per_output, size_from,
};
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    FILL {
        codec: Codec::empty(BuiltinOptions::FillOptions),
        infer: infer_fill,
        min_version: min_version_fill,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.13.0"), (2, "2.3.0"), (3, "2.5.0"), (4, "2.12.0"), (5, "2.23.0")],
    }

    RANGE {
        codec: Codec::empty(BuiltinOptions::RangeOptions),
        infer: infer_range,
        min_version: min_version_range,
        multiply_adds: per_output,
        history: &[(1, "1.13.0"), (2, "2.14.0")],
    }
}

/// A tensor of the shape in input 0, whose elements are all equal to the one of input 1.
fn infer_fill(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let value = cx.input(1)?;
    if value.shape.elements() != 1 {
        return Err(InferError::new(format!("the value must be one element, got {}", value.shape)));
    }
    let Some(dims) = cx.input(0)?.integers()? else { return cx.data_dependent(value.ty) };
    let shape = dims.iter().map(|&d| size_from(d, "dimension")).collect::<Result<Shape, _>>()?;
    Ok(smallvec![Inferred::known(value.ty, shape)])
}

/// Numbers from input 0 (included) to input 1 (excluded), in steps of input 2.
fn infer_range(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (start, limit, delta) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let operands = [start, limit, delta];
    if let Some(other) = operands.iter().find(|t| t.ty != start.ty || t.shape.elements() != 1) {
        return Err(InferError::new(format!("expected one {}, got {} {}", start.ty, other.ty, other.shape)));
    }
    if operands.iter().any(|t| t.constant.is_none()) {
        return cx.data_dependent(start.ty);
    }
    let count =
        match (start.scalar::<f32>("start")?, limit.scalar::<f32>("limit")?, delta.scalar::<f32>("delta")?) {
            (Some(start), Some(limit), Some(delta)) => {
                steps_between(start, limit, delta).ok_or_else(|| no_range(start, limit, delta))?
            }
            _ => match (start.integer("start")?, limit.integer("limit")?, delta.integer("delta")?) {
                (Some(start), Some(limit), Some(delta)) => {
                    integers_between(start, limit, delta).ok_or_else(|| no_range(start, limit, delta))?
                }
                _ => return cx.data_dependent(start.ty),
            },
        };
    Ok(smallvec![Inferred::known(start.ty, [count])])
}

fn no_range<T: Display>(start: T, limit: T, delta: T) -> InferError {
    InferError::new(format!(
        "steps of {delta} do not lead from {start} to {limit}, or there are too many of them"
    ))
}

fn steps_between(start: f32, limit: f32, delta: f32) -> Option<usize> {
    let towards = (start >= limit && delta < 0.0) || (start <= limit && delta > 0.0);
    let count = ((limit - start) / delta).abs().ceil();
    (towards && count < i32::MAX as f32).then_some(count as usize)
}

fn integers_between(start: i64, limit: i64, delta: i64) -> Option<usize> {
    let towards = (start >= limit && delta < 0) || (start <= limit && delta > 0);
    let count = limit.abs_diff(start).div_ceil(delta.unsigned_abs().max(1));
    usize::try_from(count).ok().filter(|_| towards)
}

/// Types of the value were added one after the other.
fn min_version_fill(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Float8E4M3FN, Float8E5M2, Float16, Int8, Int16, String};
    lowest_with(&[
        (2, s.input_is(1, &[Bool, String])),
        (3, s.input_is(1, &[Int8, Int16])),
        (4, s.input_is(1, &[Float16])),
        (5, s.input_is(1, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Version 2 added 64-bit.
fn min_version_range(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int64;
    lowest_with(&[(2, s.input_is(0, &[Int64]))])
}
