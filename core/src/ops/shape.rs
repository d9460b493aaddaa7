//! SHAPE, RANK.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, read_none,
};

/// `SHAPE`.
pub static SHAPE: OpDef = OpDef {
    op: BuiltinOp::SHAPE,
    family: "shape",
    read: read_shape,
    infer: infer_shape,
    history: &[(1, "1.10.0")],
};

/// `RANK`.
pub static RANK: OpDef = OpDef {
    op: BuiltinOp::RANK,
    family: "shape",
    read: read_none,
    infer: infer_rank,
    history: &[(1, "1.14.0")],
};

/// Params of SHAPE.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeParams {
    /// INT32 or INT64.
    pub out_type: TensorType,
}

fn read_shape(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_shape_options())?;
    Ok(Params::Shape(ShapeParams { out_type: TensorType::read(t.out_type())? }))
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

/// How many dimensions the input has, as a scalar.
fn infer_rank(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    cx.input(0)?;
    Ok(smallvec![Inferred::known(TensorType::Int32, [])])
}
