//! PACK, UNPACK.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, axis_in, lowest_with,
    no_arithmetic, options,
};
use crate::error::counted;

ops! {
    PACK {
        codec: PackParams::CODEC,
        infer: infer_pack,
        min_version: min_version_pack,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.13.0"), (5, "2.23.0")],
    }

    UNPACK {
        codec: UnpackParams::CODEC,
        infer: infer_unpack,
        min_version: min_version_unpack,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.11.0"), (2, "1.14.0"), (3, "2.2.0"), (4, "2.3.0"), (5, "2.22.0"), (6, "2.23.0")],
    }
}

options! {
    /// Params of PACK.
    Pack(PackParams) in BuiltinOptions::PackOptions(builtin_options_as_pack_options, PackOptionsArgs) as TfLitePackParams {
        /// The number of inputs.
        values_count: i32;
        /// The new dimension, counted in the output; negative counts from the back.
        axis: i32;
    }
}

options! {
    /// Params of UNPACK.
    Unpack(UnpackParams) in BuiltinOptions::UnpackOptions(builtin_options_as_unpack_options, UnpackOptionsArgs) as TfLiteUnpackParams {
        /// The number of outputs.
        num: i32;
        /// The dimension that is split; negative counts from the back.
        axis: i32;
    }
}

/// Inputs of one type and shape, stacked along a new dimension.
fn infer_pack(cx: &InferContext<'_>) -> InferResult {
    let p: &PackParams = cx.params()?;
    cx.arity(1..=usize::MAX, 1)?;
    if usize::try_from(p.values_count) != Ok(cx.inputs.len()) {
        return Err(InferError::new(format!(
            "the option names {}, the node has {}",
            counted(p.values_count, "input"),
            cx.inputs.len()
        )));
    }
    let first = cx.input(0)?;
    for i in 1..cx.inputs.len() {
        let input = cx.input(i)?;
        if input.ty != first.ty || input.shape != first.shape {
            return Err(InferError::new(format!(
                "input {i} is {} {}, input 0 is {} {}",
                input.ty, input.shape, first.ty, first.shape
            )));
        }
    }
    let axis = pack_axis(cx)?;
    let (front, back) = first.shape.dims().split_at(axis);
    let shape = front.iter().chain(&[cx.inputs.len()]).chain(back).copied().collect::<crate::types::Shape>();
    Ok(smallvec![Inferred::known(first.ty, shape)])
}

/// The input, split along one dimension.
fn infer_unpack(cx: &InferContext<'_>) -> InferResult {
    let p: &UnpackParams = cx.params()?;
    cx.arity(1..=1, cx.outputs.len())?;
    let input = cx.input(0)?;
    let axis = unpack_axis(cx)?;
    if usize::try_from(p.num) != Ok(cx.outputs.len()) || cx.outputs.len() != input.shape[axis] {
        return Err(InferError::new(format!(
            "dimension {axis} of {} does not make {}; the node has {}",
            input.shape,
            counted(p.num, "output"),
            cx.outputs.len()
        )));
    }
    let mut dims = input.shape.to_vec();
    dims.remove(axis);
    Ok(cx.outputs.iter().map(|_| Inferred::known(input.ty, dims.as_slice())).collect())
}

/// Returns the dimension that PACK adds.
pub fn pack_axis(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<PackParams>()?.axis.into(), cx.input(0)?.shape.rank() + 1)
}

/// Returns the dimension that UNPACK removes.
pub fn unpack_axis(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<UnpackParams>()?.axis.into(), cx.input(0)?.shape.rank())
}

/// Types were added one after the other.
fn min_version_pack(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Int8, Int16, UInt32};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16])),
        (4, s.input_is(0, &[UInt32])),
        (5, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Types were added one after the other.
fn min_version_unpack(s: &OpSignature<'_>) -> u32 {
    use TensorType::{BFloat16, Bool, Float8E4M3FN, Float8E5M2, Float16, Int8, Int16, UInt8};
    lowest_with(&[
        (2, s.input_is(0, &[Int8, UInt8])),
        (3, s.input_is(0, &[Bool])),
        (4, s.input_is(0, &[Int16])),
        (5, s.input_is(0, &[Float16, BFloat16])),
        (6, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}
