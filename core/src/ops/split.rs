//! SPLIT, SPLIT_V.

use smallvec::SmallVec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, axis_in, lowest_with,
    no_arithmetic, options,
};
use crate::error::counted;

ops! {
    SPLIT {
        codec: SplitParams::CODEC,
        infer: infer_split,
        min_version: min_version_split,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "1.14.0"), (4, "2.3.0"), (5, "2.23.0")],
    }

    SPLIT_V {
        codec: SplitVParams::CODEC,
        infer: infer_split_v,
        min_version: min_version_split_v,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.13.1"), (2, "2.3.0"), (3, "2.23.0")],
    }
}

options! {
    /// Params of SPLIT.
    Split(SplitParams) in BuiltinOptions::SplitOptions(builtin_options_as_split_options, SplitOptionsArgs) as TfLiteSplitParams {
        /// The number of outputs.
        num_splits: i32;
    }
}

options! {
    /// Params of SPLIT_V.
    SplitV(SplitVParams) in BuiltinOptions::SplitVOptions(builtin_options_as_split_voptions, SplitVOptionsArgs) as TfLiteSplitVParams {
        /// The number of outputs.
        num_splits: i32;
    }
}

/// Input 1, cut into equal parts along the dimension that input 0 gives.
fn infer_split(cx: &InferContext<'_>) -> InferResult {
    let count = outputs(cx, cx.params::<SplitParams>()?.num_splits, 2)?;
    let input = cx.input(1)?;
    let Some(axis) = split_axis(cx)? else { return cx.data_dependent(input.ty) };
    let size = input.shape[axis];
    if size % count != 0 {
        return Err(InferError::new(format!(
            "{} cannot be split into {count} equal parts",
            counted(size, "element")
        )));
    }
    Ok(parts(cx, 1, axis, std::iter::repeat_n(size / count, count)))
}

/// Input 0, cut into parts of the sizes in input 1 along the dimension that input 2 gives; one size may be -1.
fn infer_split_v(cx: &InferContext<'_>) -> InferResult {
    let count = outputs(cx, cx.params::<SplitVParams>()?.num_splits, 3)?;
    let input = cx.input(0)?;
    let (Some(axis), Some(sizes)) = (split_v_axis(cx)?, cx.input(1)?.integers()?) else {
        return cx.data_dependent(input.ty);
    };
    if sizes.len() != count {
        return Err(InferError::new(format!(
            "{} for {}",
            counted(sizes.len(), "size"),
            counted(count, "output")
        )));
    }
    let total = input.shape[axis];
    let error = || InferError::new(format!("the sizes {sizes:?} do not add up to {total}"));
    let known = sizes
        .iter()
        .filter(|&&s| s != -1)
        .try_fold(0usize, |sum, &s| sum.checked_add(usize::try_from(s).ok()?));
    let rest = known.and_then(|known| total.checked_sub(known)).ok_or_else(error)?;
    match sizes.iter().filter(|&&s| s == -1).count() {
        0 if rest == 0 => {}
        1 => {}
        _ => return Err(error()),
    }
    Ok(parts(cx, 0, axis, sizes.iter().map(|&s| usize::try_from(s).unwrap_or(rest))))
}

/// Returns the dimension that SPLIT cuts; `None` while that is not known.
pub fn split_axis(cx: &InferContext<'_>) -> Result<Option<usize>, InferError> {
    let axis = cx.input(0)?.integer("the axis")?;
    axis.map(|axis| axis_in(axis, cx.input(1)?.shape.rank())).transpose()
}

/// Returns the dimension that SPLIT_V cuts; `None` while that is not known.
pub fn split_v_axis(cx: &InferContext<'_>) -> Result<Option<usize>, InferError> {
    let axis = cx.input(2)?.integer("the axis")?;
    axis.map(|axis| axis_in(axis, cx.input(0)?.shape.rank())).transpose()
}

fn outputs(cx: &InferContext<'_>, declared: i32, inputs: usize) -> Result<usize, InferError> {
    cx.arity(inputs..=inputs, cx.outputs.len())?;
    match usize::try_from(declared) {
        Ok(count) if count > 0 && count == cx.outputs.len() => Ok(count),
        _ => Err(InferError::new(format!(
            "the option requires {}, the node has {}",
            counted(declared, "part"),
            counted(cx.outputs.len(), "output")
        ))),
    }
}

fn parts(
    cx: &InferContext<'_>,
    input: usize,
    axis: usize,
    sizes: impl Iterator<Item = usize>,
) -> SmallVec<[Inferred; 2]> {
    let Some(input) = cx.optional(input) else { return SmallVec::new() };
    sizes
        .map(|size| {
            let shape = input.shape.iter().enumerate().map(|(d, &full)| if d == axis { size } else { full });
            Inferred::known(input.ty, shape.collect::<crate::types::Shape>())
        })
        .collect()
}

/// Types were added one after the other; input 1 is the data.
fn min_version_split(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Int8, Int16, Int32};
    lowest_with(&[
        (2, s.input_is(1, &[Int8])),
        (3, s.input_is(1, &[Int32])),
        (4, s.input_is(1, &[Int16])),
        (5, s.input_is(1, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Version 2 added 8-bit, version 3 8-bit floats.
fn min_version_split_v(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Int8};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Float8E4M3FN, Float8E5M2]))])
}
