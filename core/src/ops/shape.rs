//! SHAPE, RANK.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;

ops! {
    SHAPE {
        codec: ShapeParams::CODEC,
        infer: infer_shape,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.10.0")],
    }

    RANK {
        codec: Codec::empty(BuiltinOptions::RankOptions),
        infer: infer_rank,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.14.0")],
    }
}

options! {
    /// Params of SHAPE.
    Shape(ShapeParams) in BuiltinOptions::ShapeOptions(builtin_options_as_shape_options, ShapeOptionsArgs) as TfLiteShapeParams {
        /// INT32 or INT64.
        out_type: TensorType;
    }
}

/// The sizes of the input's dimensions, as a vector.
fn infer_shape(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    match cx.params::<ShapeParams>()?.out_type {
        ty @ (TensorType::Int32 | TensorType::Int64) => {
            Ok(smallvec![Inferred::known(ty, [cx.input(0)?.shape.rank()])])
        }
        ty => Err(InferError::new(format!("a shape must be INT32 or INT64, not {ty}"))),
    }
}

/// The number of dimensions of the input, as a scalar.
fn infer_rank(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    cx.input(0)?;
    Ok(smallvec![Inferred::known(TensorType::Int32, [])])
}
