//! ARG_MAX, ARG_MIN.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, axis_in, lowest_with, options,
    per_input,
};
use crate::types::Shape;

ops! {
    ARG_MAX {
        codec: ArgMaxParams::CODEC,
        infer: infer_max,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.9.0"), (2, "1.14.0"), (3, "2.9.0")],
    }

    ARG_MIN {
        codec: ArgMinParams::CODEC,
        infer: infer_min,
        min_version,
        multiply_adds: per_input,
        history: &[(1, "1.9.0"), (2, "1.14.0"), (3, "2.9.0")],
    }
}

options! {
    /// Params of ARG_MAX.
    ArgMax(ArgMaxParams) in BuiltinOptions::ArgMaxOptions(builtin_options_as_arg_max_options, ArgMaxOptionsArgs) as TfLiteArgMaxParams {
        /// INT32 or INT64.
        output_type: TensorType;
    }
}

options! {
    /// Params of ARG_MIN.
    ArgMin(ArgMinParams) in BuiltinOptions::ArgMinOptions(builtin_options_as_arg_min_options, ArgMinOptionsArgs) as TfLiteArgMinParams {
        /// INT32 or INT64.
        output_type: TensorType;
    }
}

fn infer_max(cx: &InferContext<'_>) -> InferResult {
    infer(cx, cx.params::<ArgMaxParams>()?.output_type)
}

fn infer_min(cx: &InferContext<'_>) -> InferResult {
    infer(cx, cx.params::<ArgMinParams>()?.output_type)
}

/// Indices of type `ty`, in the shape of input 0 without the dimension in input 1.
fn infer(cx: &InferContext<'_>, ty: TensorType) -> InferResult {
    cx.arity(2..=2, 1)?;
    if !matches!(ty, TensorType::Int32 | TensorType::Int64) {
        return Err(InferError::new(format!("indices must be INT32 or INT64, not {ty}")));
    }
    let shape = cx.input(0)?.shape;
    let Some(axis) = axis(cx)? else { return cx.data_dependent(ty) };
    if shape[axis] == 0 {
        return Err(InferError::new(format!("dimension {axis} of {shape} is empty")));
    }
    let rest = shape.iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &size)| size);
    Ok(smallvec![Inferred::known(ty, rest.collect::<Shape>())])
}

/// Returns the dimension that is searched; `None` while that is not known.
pub fn axis(cx: &InferContext<'_>) -> Result<Option<usize>, InferError> {
    let axis = cx.input(1)?.integer("the axis")?;
    axis.map(|axis| axis_in(axis, cx.input(0)?.shape.rank())).transpose()
}

/// Version 2 added 8-bit, version 3 booleans.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Int8};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Bool]))])
}
