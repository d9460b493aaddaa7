//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use smallvec::{SmallVec, smallvec};

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1, axis_in, lowest_with,
    options, per_input,
};
use crate::types::Shape;

ops! {
    MEAN {
        codec: ReducerParams::CODEC,
        infer,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.4.0")],
    }

    SUM {
        codec: ReducerParams::CODEC,
        infer,
        min_version: min_version_sum,
        multiply_adds: per_input,
        history: &[(1, "1.10.0"), (2, "1.15.0")],
    }

    REDUCE_MAX {
        codec: ReducerParams::CODEC,
        infer,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.5.0")],
    }

    REDUCE_MIN {
        codec: ReducerParams::CODEC,
        infer,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.5.0")],
    }

    REDUCE_PROD {
        codec: ReducerParams::CODEC,
        infer,
        min_version: min_version_prod,
        multiply_adds: per_input,
        history: &[(1, "1.11.0"), (2, "2.6.0")],
    }

    REDUCE_ANY {
        codec: ReducerParams::CODEC,
        infer: infer_logical,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "1.11.0")],
    }

    REDUCE_ALL {
        codec: ReducerParams::CODEC,
        infer: infer_logical,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.6.0")],
    }
}

options! {
    /// Params of MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.
    Reducer(ReducerParams) in BuiltinOptions::ReducerOptions(builtin_options_as_reducer_options, ReducerOptionsArgs) as TfLiteReducerParams {
        /// Whether reduced dimensions stay, with size 1.
        keep_dims: bool;
    }
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
    // A scalar has nothing to reduce, for any axes.
    for axis in axes.into_iter().filter(|_| rank > 0) {
        reduced[axis_in(axis, rank)?] = true;
    }
    Ok(Some(reduced))
}

/// Version 2 added 8-bit, version 3 16-bit.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}

/// Version 2 added 8-bit.
fn min_version_sum(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}

/// Version 2 added quantized values.
fn min_version_prod(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8, Int16]))])
}
