//! REDUCE_WINDOW, STABLEHLO_REDUCE_WINDOW: each output combines the elements of the input in one window.

use smallvec::{SmallVec, smallvec};

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, ReduceWindowFunction, TensorType, always_1,
    options, per_output,
};
use crate::error::counted;
use crate::types::shape::{Shape, checked_product};

ops! {
    REDUCE_WINDOW {
        codec: ReduceWindowParams::CODEC,
        infer: infer_reduce_window,
        min_version: always_1,
        // A lower bound: the window is an operand, and a signature has no values of operands.
        multiply_adds: per_output,
        history: &[(1, "2.15.0")],
    }

    STABLEHLO_REDUCE_WINDOW {
        codec: StablehloReduceWindowParams::CODEC,
        infer: infer_stablehlo_reduce_window,
        min_version: always_1,
        multiply_adds,
        history: &[(1, "2.16.0")],
    }
}

options! {
    /// Params of REDUCE_WINDOW.
    ReduceWindow(ReduceWindowParams) in BuiltinOptions2::ReduceWindowOptions(builtin_options_2_as_reduce_window_options, ReduceWindowOptionsArgs) as TfLiteReduceWindowParams {
        /// The combination of the elements of a window.
        reduce_function: ReduceWindowFunction;
    }
}

options! {
    /// Params of STABLEHLO_REDUCE_WINDOW. An empty list, except the first one, leaves every dimension unchanged.
    StablehloReduceWindow(StablehloReduceWindowParams) in BuiltinOptions2::StablehloReduceWindowOptions(builtin_options_2_as_stablehlo_reduce_window_options, StablehloReduceWindowOptionsArgs) {
        /// The number of elements of a window along each dimension.
        window_dimensions: Vec<i64>;
        /// The distance between windows along each dimension.
        window_strides: Vec<i64>;
        /// The distance between the input's elements along each dimension.
        base_dilations: Vec<i64>;
        /// The distance between a window's elements along each dimension.
        window_dilations: Vec<i64>;
        /// The number of elements added before and after each dimension; negative numbers remove elements.
        padding: Vec<i64>;
        /// The subgraph that combines two elements.
        body_subgraph_index: i32;
    }
}

/// Windows over a tensor, per dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Windows {
    /// The number of elements of a window.
    pub size: SmallVec<[usize; 8]>,
    /// The distance between windows.
    pub stride: SmallVec<[usize; 8]>,
    /// The distance between the input's elements.
    pub base_dilation: SmallVec<[usize; 8]>,
    /// The distance between a window's elements.
    pub dilation: SmallVec<[usize; 8]>,
    /// The number of elements added in front; negative numbers remove elements.
    pub before: SmallVec<[isize; 8]>,
    /// The shape of the dilated and padded input.
    pub padded: Shape,
    /// The number of windows.
    pub output: Shape,
}

impl Windows {
    /// Windows over `input`. An empty list of strides or dilations means ones, of paddings none; `padding` holds two
    /// numbers per dimension.
    pub(super) fn new(
        input: &Shape,
        size: &[i64],
        stride: &[i64],
        base_dilation: &[i64],
        dilation: &[i64],
        padding: &[i64],
    ) -> Result<Windows, InferError> {
        let rank = input.rank();
        let list = |list: &[i64], what: &str, optional| {
            if optional && list.is_empty() {
                return Ok(SmallVec::from_elem(1, rank));
            }
            super::infer::per_dimension(list, rank, what)?;
            let positive = |&v: &i64| {
                let positive = usize::try_from(v).ok().filter(|&v| v > 0);
                positive.ok_or_else(|| InferError::new(format!("{what} contain {v}, which is not positive")))
            };
            list.iter().map(positive).collect::<Result<SmallVec<[usize; 8]>, _>>()
        };
        let mut windows = Windows {
            size: list(size, "the window sizes", false)?,
            stride: list(stride, "the window strides", true)?,
            base_dilation: list(base_dilation, "the base dilations", true)?,
            dilation: list(dilation, "the window dilations", true)?,
            before: SmallVec::new(),
            padded: Shape::default(),
            output: Shape::default(),
        };
        if !padding.is_empty() && padding.len() != 2 * rank {
            let paddings = counted(padding.len(), "padding");
            return Err(InferError::new(format!("{paddings} for rank {rank}")));
        }
        let overflow = || InferError::new("the sizes overflow");
        for (d, &size) in input.iter().enumerate() {
            let [before, after] = padding.as_chunks().0.get(d).copied().unwrap_or([0, 0]);
            let padded = spread(size, windows.base_dilation.get(d)).and_then(|n| i64::try_from(n).ok());
            let padded =
                padded.and_then(|n| n.checked_add(before)?.checked_add(after)).ok_or_else(overflow)?;
            let padded = usize::try_from(padded).map_err(|_| {
                InferError::new(format!("paddings {before} and {after} leave nothing of {size}"))
            })?;
            let extent = windows.size.get(d).and_then(|&n| spread(n, windows.dilation.get(d)));
            let extent = extent.ok_or_else(overflow)?;
            let stride = windows.stride.get(d).copied().unwrap_or(1);
            windows.output.push(padded.checked_sub(extent).map_or(0, |room| room / stride + 1));
            windows.padded.push(padded);
            windows.before.push(isize::try_from(before).map_err(|_| overflow())?);
        }
        let elements = windows.padded.checked_elements();
        elements.filter(|&n| isize::try_from(n).is_ok()).ok_or_else(overflow)?;
        Ok(windows)
    }
}

/// Returns the extent of `size` elements that are `dilation` apart.
pub(super) fn spread(size: usize, dilation: Option<&usize>) -> Option<usize> {
    match size.checked_sub(1) {
        None => Some(0),
        Some(gaps) => gaps.checked_mul(*dilation?)?.checked_add(1),
    }
}

/// Returns the windows of REDUCE_WINDOW; `None` while they are not known.
pub fn operand_windows(cx: &InferContext<'_>) -> Result<Option<Windows>, InferError> {
    let lists = (cx.input(2)?.integers()?, cx.input(3)?.integers()?, cx.input(4)?.integers()?);
    let (Some(size), Some(stride), Some(dilation)) = lists else { return Ok(None) };
    for (list, what) in [(&stride, "the window strides"), (&dilation, "the window dilations")] {
        super::infer::per_dimension(list, cx.input(0)?.shape.rank(), what)?;
    }
    Windows::new(cx.input(0)?.shape, &size, &stride, &[], &dilation, &[]).map(Some)
}

/// Returns the windows of STABLEHLO_REDUCE_WINDOW.
pub fn param_windows(cx: &InferContext<'_>) -> Result<Windows, InferError> {
    let p: &StablehloReduceWindowParams = cx.params()?;
    let input = cx.input(0)?.shape;
    Windows::new(
        input,
        &p.window_dimensions,
        &p.window_strides,
        &p.base_dilations,
        &p.window_dilations,
        &p.padding,
    )
}

fn infer_reduce_window(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 1)?;
    let ty = begins_with(cx, 0, 1, cx.input(0)?.shape)?;
    match operand_windows(cx)? {
        Some(windows) => Ok(smallvec![Inferred::known(ty, windows.output)]),
        None => cx.data_dependent(ty),
    }
}

/// The number of inputs is the number of initial values; all inputs have one shape.
fn infer_stablehlo_reduce_window(cx: &InferContext<'_>) -> InferResult {
    let count = (cx.inputs.len() / 2).max(1);
    cx.arity(2 * count..=2 * count, count)?;
    let (shape, windows) = (cx.input(0)?.shape, param_windows(cx)?);
    (0..count)
        .map(|i| Ok(Inferred::known(begins_with(cx, i, i + count, shape)?, windows.output.clone())))
        .collect()
}

/// Checks input `i`, which has this shape, and input `value`, the initial value of its reduction; returns their type.
pub(super) fn begins_with(
    cx: &InferContext<'_>,
    i: usize,
    value: usize,
    shape: &Shape,
) -> Result<TensorType, InferError> {
    let (input, initial) = (cx.input(i)?, cx.input(value)?);
    if input.shape != shape || initial.ty != input.ty || initial.shape.elements() != 1 {
        return Err(InferError::new(format!(
            "input {i} is {} {} and begins with {} {}; expected {shape} and one value of its type",
            input.ty, input.shape, initial.ty, initial.shape
        )));
    }
    Ok(input.ty)
}

/// Each output combines all elements of a window.
fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    let window = s.params::<StablehloReduceWindowParams>().map(|p| &p.window_dimensions);
    let sizes: SmallVec<[usize; 8]> =
        window.into_iter().flatten().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
    s.output_elements().saturating_mul(checked_product(&sizes).map_or(u64::MAX, |n| n as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::InferredShape;
    use crate::ops::TensorType::{Float32, Int64};
    use crate::ops::testing::{T, bad, good, infer};

    #[test]
    fn windows_from_params() {
        let params = |change: fn(&mut StablehloReduceWindowParams)| {
            let mut params = StablehloReduceWindowParams::default().window_dimensions(vec![2, 3]);
            change(&mut params);
            params
        };
        let (op, f) = (&STABLEHLO_REDUCE_WINDOW, |shape: &[usize]| T::new(Float32, shape));
        let inputs = [f(&[4, 5]), f(&[])];
        good(op, params(|_| {}), &inputs, &[f(&[3, 3])]);
        good(op, params(|p| p.window_dilations = vec![1, 3]), &inputs, &[f(&[3, 0])]);
        let all = |p: &mut StablehloReduceWindowParams| {
            p.base_dilations = vec![2, 1];
            p.window_strides = vec![3, 2];
            p.padding = vec![-1, 2, 0, 4];
        };
        good(op, params(all), &inputs, &[f(&[3, 4])]);
        good(op, params(|_| {}), &[f(&[4, 5]), f(&[4, 5]), f(&[]), f(&[1])], &[f(&[3, 3]), f(&[3, 3])]);
        bad(op, params(|p| p.padding = vec![-3, -2, 0, 0]), &inputs, &[f(&[])], "leave nothing of 4");
        bad(op, params(|p| p.padding = vec![1, 2]), &inputs, &[f(&[])], "2 paddings for rank 2");
        bad(
            op,
            params(|p| p.window_strides = vec![0, 1]),
            &inputs,
            &[f(&[])],
            "the window strides contain 0",
        );
        bad(op, params(|p| p.window_dimensions = vec![]), &inputs, &[f(&[])], "0 entries for rank 2");
        bad(op, params(|p| p.base_dilations = vec![i64::MAX, 1]), &inputs, &[f(&[])], "the sizes overflow");
        let wide = |p: &mut StablehloReduceWindowParams| {
            p.padding = vec![1 << 40, 0, 1 << 40, 0];
            p.window_strides = vec![1 << 40; 2];
        };
        bad(op, params(wide), &inputs, &[f(&[])], "the sizes overflow");
        bad(op, params(|_| {}), &[f(&[4, 5]), f(&[2])], &[f(&[])], "and begins with FLOAT32 [2]");
    }

    #[test]
    fn windows_from_operands() {
        let (op, f) = (&REDUCE_WINDOW, |shape: &[usize]| T::new(Float32, shape));
        let list = |elements: &[i64]| T::constant(&[elements.len()], elements);
        let params = || ReduceWindowParams::default().reduce_function(ReduceWindowFunction::Add);
        let with = |size| [f(&[4, 5]), f(&[]), size, list(&[1, 2]), list(&[2, 1])];
        good(op, params(), &with(list(&[2, 3])), &[f(&[2, 2])]);
        bad(op, params(), &with(list(&[2])), &[f(&[2, 2])], "the window sizes have 1 entry");
        let inferred = infer(op, params().into(), &with(T::new(Int64, &[2])).map(Some), &[Float32]).unwrap();
        assert_eq!(inferred[0].shape, InferredShape::DataDependent);
    }
}
