//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use smallvec::{SmallVec, smallvec};

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, axis_in,
};
use crate::shape::Shape;

/// `MEAN`.
pub static MEAN: OpDef = OpDef {
    op: BuiltinOp::MEAN,
    family: "reduce",
    read: read_reducer,
    infer,
    history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.4.0")],
};

/// `SUM`.
pub static SUM: OpDef = OpDef {
    op: BuiltinOp::SUM,
    family: "reduce",
    read: read_reducer,
    infer,
    history: &[(1, "1.10.0"), (2, "1.15.0")],
};

/// `REDUCE_MAX`.
pub static REDUCE_MAX: OpDef = OpDef {
    op: BuiltinOp::REDUCE_MAX,
    family: "reduce",
    read: read_reducer,
    infer,
    history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.5.0")],
};

/// `REDUCE_MIN`.
pub static REDUCE_MIN: OpDef = OpDef {
    op: BuiltinOp::REDUCE_MIN,
    family: "reduce",
    read: read_reducer,
    infer,
    history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.5.0")],
};

/// `REDUCE_PROD`.
pub static REDUCE_PROD: OpDef = OpDef {
    op: BuiltinOp::REDUCE_PROD,
    family: "reduce",
    read: read_reducer,
    infer,
    history: &[(1, "1.11.0"), (2, "2.6.0")],
};

/// `REDUCE_ANY`.
pub static REDUCE_ANY: OpDef = OpDef {
    op: BuiltinOp::REDUCE_ANY,
    family: "reduce",
    read: read_reducer,
    infer: infer_logical,
    history: &[(1, "1.11.0")],
};

/// `REDUCE_ALL`.
pub static REDUCE_ALL: OpDef = OpDef {
    op: BuiltinOp::REDUCE_ALL,
    family: "reduce",
    read: read_reducer,
    infer: infer_logical,
    history: &[(1, "2.6.0")],
};

/// Params of MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.
#[derive(Debug, Clone, PartialEq)]
pub struct ReducerParams {
    /// Reduced dimensions stay, with size 1.
    pub keep_dims: bool,
}

fn read_reducer(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_reducer_options())?;
    Ok(Params::Reducer(ReducerParams { keep_dims: t.keep_dims() }))
}

/// The input, reduced along the dimensions in input 1.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let input = cx.input(0)?;
    let Some(reduced) = reduced(cx)? else { return cx.data_dependent(input.ty) };
    let keep = cx.params::<ReducerParams>()?.keep_dims;
    let dims = input.shape.iter().zip(&reduced);
    let shape: Shape =
        dims.filter(|(_, r)| keep || !**r).map(|(&size, &r)| if r { 1 } else { size }).collect();
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

fn infer_logical(cx: &InferContext<'_>) -> InferResult {
    match cx.input(0)?.ty {
        TensorType::Bool => infer(cx),
        ty => Err(InferError::new(format!("the input must be BOOL, got {ty}"))),
    }
}

/// For each dimension of the input, whether it is reduced; `None` while that is not known.
pub fn reduced(cx: &InferContext<'_>) -> Result<Option<SmallVec<[bool; 8]>>, InferError> {
    let rank = cx.input(0)?.shape.rank();
    let Some(axes) = cx.input(1)?.integers()? else { return Ok(None) };
    let mut reduced = SmallVec::from_elem(false, rank);
    // A scalar has nothing to reduce, whatever the axes are.
    for axis in axes.into_iter().filter(|_| rank > 0) {
        reduced[axis_in(axis, rank)?] = true;
    }
    Ok(Some(reduced))
}
