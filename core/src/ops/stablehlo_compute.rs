//! STABLEHLO_CONVOLUTION, STABLEHLO_DOT_GENERAL, STABLEHLO_REDUCE, STABLEHLO_SORT, STABLEHLO_RNG_BIT_GENERATOR,
//! STABLEHLO_CUSTOM_CALL.

use smallvec::{SmallVec, smallvec};

use super::infer::{dimensions, per_dimension};
use super::reduce_window::{Windows, begins_with};
use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, PrecisionConfig, RngAlgorithm, TensorType,
    always_1, axis_in, no_arithmetic, options, per_input, per_output,
};
use crate::error::counted;
use crate::types::Shape;

ops! {
    STABLEHLO_CONVOLUTION {
        codec: StablehloConvolutionParams::CODEC,
        infer: infer_convolution,
        min_version: always_1,
        multiply_adds: multiply_adds_convolution,
        history: &[],
    }

    STABLEHLO_DOT_GENERAL {
        codec: StablehloDotGeneralParams::CODEC,
        infer: infer_dot_general,
        min_version: always_1,
        multiply_adds: multiply_adds_dot_general,
        history: &[],
    }

    STABLEHLO_REDUCE {
        codec: StablehloReduceParams::CODEC,
        infer: infer_reduce,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[],
    }

    STABLEHLO_SORT {
        codec: StablehloSortParams::CODEC,
        infer: infer_sort,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[],
    }

    STABLEHLO_RNG_BIT_GENERATOR {
        codec: StablehloRngBitGeneratorParams::CODEC,
        infer: infer_rng_bit_generator,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.15.0")],
    }

    STABLEHLO_CUSTOM_CALL {
        codec: StablehloCustomCallParams::CODEC,
        infer: infer_custom_call,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }
}

options! {
    /// Params of STABLEHLO_CONVOLUTION. An empty list leaves every dimension unchanged.
    StablehloConvolution(StablehloConvolutionParams) in BuiltinOptions2::StablehloConvolutionOptions(builtin_options_2_as_stablehlo_convolution_options, StablehloConvolutionOptionsArgs) {
        /// The distance between filter positions along each spatial dimension.
        window_strides: Vec<i64>;
        /// The number of elements added before and after each spatial dimension; negative numbers remove elements.
        padding: Vec<i64>;
        /// The distance between the input's elements along each spatial dimension.
        lhs_dilation: Vec<i64>;
        /// The distance between the filter's elements along each spatial dimension.
        rhs_dilation: Vec<i64>;
        /// The spatial dimensions along which the filter is reversed.
        window_reversal: Vec<bool>;
        /// The dimension of the input that runs over the batch.
        input_batch_dimension: i64;
        /// The dimension of the input that runs over its channels.
        input_feature_dimension: i64;
        /// The spatial dimensions of the input.
        input_spatial_dimensions: Vec<i64>;
        /// The dimension of the filter that runs over the channels of the input.
        kernel_input_feature_dimension: i64;
        /// The dimension of the filter that runs over the channels of the output.
        kernel_output_feature_dimension: i64;
        /// The spatial dimensions of the filter.
        kernel_spatial_dimensions: Vec<i64>;
        /// The dimension of the output that runs over the batch.
        output_batch_dimension: i64;
        /// The dimension of the output that runs over its channels.
        output_feature_dimension: i64;
        /// The spatial dimensions of the output.
        output_spatial_dimensions: Vec<i64>;
        /// The number of groups that the channels are split into; each has its own part of the filter.
        feature_group_count: i64;
        /// The number of groups that the batch is split into; each has its own part of the filter.
        batch_group_count: i64;
        /// The requested precision of the inputs.
        precision_config: Vec<PrecisionConfig>;
    }
}

options! {
    /// Params of STABLEHLO_DOT_GENERAL.
    StablehloDotGeneral(StablehloDotGeneralParams) in BuiltinOptions2::StablehloDotGeneralOptions(builtin_options_2_as_stablehlo_dot_general_options, StablehloDotGeneralOptionsArgs) {
        /// The dimensions of input 0 that run over independent products.
        lhs_batching_dimensions: Vec<i64>;
        /// The corresponding dimensions of input 1.
        rhs_batching_dimensions: Vec<i64>;
        /// The dimensions of input 0 that are summed over.
        lhs_contracting_dimensions: Vec<i64>;
        /// The corresponding dimensions of input 1.
        rhs_contracting_dimensions: Vec<i64>;
        /// The requested precision of the inputs.
        precision_config: Vec<PrecisionConfig>;
    }
}

options! {
    /// Params of STABLEHLO_REDUCE.
    StablehloReduce(StablehloReduceParams) in BuiltinOptions2::StablehloReduceOptions(builtin_options_2_as_stablehlo_reduce_options, StablehloReduceOptionsArgs) {
        /// The dimensions that the output lacks.
        dimensions: Vec<i64>;
        /// The subgraph that combines two elements.
        body_subgraph_index: i32;
    }
}

options! {
    /// Params of STABLEHLO_SORT.
    StablehloSort(StablehloSortParams) in BuiltinOptions2::StablehloSortOptions(builtin_options_2_as_stablehlo_sort_options, StablehloSortOptionsArgs) {
        /// The dimension along which elements are sorted; negative counts from the back.
        dimension: i64;
        /// Whether equal elements keep their order.
        is_stable: bool;
        /// The subgraph that computes whether an element is sorted before another.
        comparator_subgraph_index: i32;
    }
}

options! {
    /// Params of STABLEHLO_RNG_BIT_GENERATOR.
    StablehloRngBitGenerator(StablehloRngBitGeneratorParams) in BuiltinOptions2::StablehloRngBitGeneratorOptions(builtin_options_2_as_stablehlo_rng_bit_generator_options, StablehloRngBitGeneratorOptionsArgs) as TfLiteRngBitGeneratorParams {
        /// The generator.
        algorithm: RngAlgorithm;
    }
}

options! {
    /// Params of STABLEHLO_CUSTOM_CALL.
    StablehloCustomCall(StablehloCustomCallParams) in BuiltinOptions2::StablehloCustomCallOptions(builtin_options_2_as_stablehlo_custom_call_options, StablehloCustomCallOptionsArgs) {
        /// The name of the call's target.
        call_target_name: String;
        /// Whether the call has side effects.
        has_side_effect: bool;
        /// Passed to the target unchanged.
        backend_config: String;
        /// The convention of the call.
        api_version: i32;
        /// The subgraphs that it may call.
        called_computations: Vec<i32>;
        /// Passed to the target unchanged.
        custom_attributes: Vec<u8>;
    }
}

/// Returns the dimensions of a tensor of a convolution in the order `first`, `second`, `spatial`. Each dimension of the
/// tensor must be among them once.
fn layout(
    rank: usize,
    first: i64,
    second: i64,
    spatial: &[i64],
    what: &str,
) -> Result<SmallVec<[usize; 8]>, InferError> {
    let all: SmallVec<[i64; 8]> = [first, second].into_iter().chain(spatial.iter().copied()).collect();
    per_dimension(&all, rank, what)?;
    dimensions(&all, rank, what)
}

fn positive(value: i64, what: &str) -> Result<usize, InferError> {
    let error = || InferError::new(format!("{what} {value} is not positive"));
    usize::try_from(value).ok().filter(|&v| v > 0).ok_or_else(error)
}

/// The relation between the dimensions of STABLEHLO_CONVOLUTION.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Convolution {
    /// The dimensions of the input: batch, channels, and the spatial ones.
    pub input: SmallVec<[usize; 8]>,
    /// The dimensions of the filter: channels of the input, channels of the output, and the spatial ones.
    pub filter: SmallVec<[usize; 8]>,
    /// The dimensions of the output: batch, channels, and the spatial ones.
    pub output: SmallVec<[usize; 8]>,
    /// The number of groups that the channels are split into.
    pub channel_groups: usize,
    /// The number of groups that the batch is split into.
    pub batch_groups: usize,
    /// The filter as a window over the spatial dimensions.
    pub windows: Windows,
    /// The spatial dimensions along which the filter is reversed.
    pub reversed: SmallVec<[bool; 8]>,
    /// The shape of the output.
    pub shape: Shape,
}

fn infer_convolution(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let ty = cx.outputs.first().map_or(cx.input(0)?.ty, |o| o.ty);
    Ok(smallvec![Inferred::known(ty, convolution(cx)?.shape)])
}

/// Returns the relation between the dimensions of STABLEHLO_CONVOLUTION.
pub fn convolution(cx: &InferContext<'_>) -> Result<Convolution, InferError> {
    let p: &StablehloConvolutionParams = cx.params()?;
    let (input, filter) = (cx.input(0)?.shape, cx.input(1)?.shape);
    let rank = input.rank();
    if rank < 2 || filter.rank() != rank {
        return Err(InferError::new(format!("input {input} and filter {filter} must have one rank above 1")));
    }
    let from = layout(
        rank,
        p.input_batch_dimension,
        p.input_feature_dimension,
        &p.input_spatial_dimensions,
        "the dimensions of the input",
    )?;
    let weights = layout(
        rank,
        p.kernel_input_feature_dimension,
        p.kernel_output_feature_dimension,
        &p.kernel_spatial_dimensions,
        "the dimensions of the filter",
    )?;
    let to = layout(
        rank,
        p.output_batch_dimension,
        p.output_feature_dimension,
        &p.output_spatial_dimensions,
        "the dimensions of the output",
    )?;
    let sizes = |shape: &Shape, order: &[usize]| -> SmallVec<[usize; 8]> {
        order.iter().filter_map(|&d| shape.get(d)).copied().collect()
    };
    let (input, filter) = (sizes(input, &from), sizes(filter, &weights));
    let groups = positive(p.feature_group_count, "the count of groups of channels")?;
    let batches = positive(p.batch_group_count, "the count of groups of the batch")?;
    let ([batch, channels, spatial @ ..], [filter_in, filter_out, window @ ..]) = (&*input, &*filter) else {
        return Err(InferError::new("the inputs have too few dimensions"));
    };
    let fits = channels / groups == *filter_in
        && channels.is_multiple_of(groups)
        && batch.is_multiple_of(batches)
        && filter_out.is_multiple_of(groups)
        && filter_out.is_multiple_of(batches)
        && (groups == 1 || batches == 1);
    if !fits {
        return Err(InferError::new(format!(
            "a batch of {batch} in {} with {} in {groups} does not fit a filter from {filter_in} to {filter_out}",
            counted(batches, "group"),
            counted(channels, "channel")
        )));
    }
    let window: SmallVec<[i64; 8]> = window.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
    let windows = Windows::new(
        &Shape::new(spatial),
        &window,
        &p.window_strides,
        &p.lhs_dilation,
        &p.rhs_dilation,
        &p.padding,
    )?;
    let out = [batch / batches, *filter_out].into_iter().chain(windows.output.iter().copied());
    let mut shape = vec![0; rank];
    for (size, &d) in out.zip(&to) {
        if let Some(slot) = shape.get_mut(d) {
            *slot = size;
        }
    }
    let reversed = match p.window_reversal.as_slice() {
        [] => SmallVec::from_elem(false, spatial.len()),
        list if list.len() == spatial.len() => SmallVec::from_slice(list),
        list => {
            return Err(InferError::new(format!(
                "the reversals have {} for rank {rank}",
                counted(list.len(), "entry")
            )));
        }
    };
    Ok(Convolution {
        shape: Shape::new(&shape),
        input: from,
        filter: weights,
        output: to,
        channel_groups: groups,
        batch_groups: batches,
        windows,
        reversed,
    })
}

/// Per output element, all elements of the filter that belong to one output channel.
fn multiply_adds_convolution(s: &OpSignature<'_>) -> u64 {
    let outputs = s.params::<StablehloConvolutionParams>().map(|p| p.kernel_output_feature_dimension);
    let outputs =
        outputs.and_then(|d| usize::try_from(d).ok()).zip(s.input(1)).and_then(|(d, t)| t.shape.get(d));
    let outputs = outputs.map_or(1, |&n| n as u64).max(1);
    s.output_elements().saturating_mul(s.input_elements(1) / outputs)
}

/// The dimensions of the inputs of STABLEHLO_DOT_GENERAL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DotDimensions {
    /// The dimensions of independent products.
    pub batch: [SmallVec<[usize; 8]>; 2],
    /// The dimensions that are summed over.
    pub sum: [SmallVec<[usize; 8]>; 2],
    /// The others.
    pub free: [SmallVec<[usize; 8]>; 2],
}

/// Returns the dimensions of the inputs of STABLEHLO_DOT_GENERAL.
pub fn dot_dimensions(cx: &InferContext<'_>) -> Result<DotDimensions, InferError> {
    let p: &StablehloDotGeneralParams = cx.params()?;
    let (left, right) = (cx.input(0)?.shape, cx.input(1)?.shape);
    let pair = |a: &[i64], b: &[i64], what: &str| {
        let (a, b) = (dimensions(a, left.rank(), what)?, dimensions(b, right.rank(), what)?);
        if a.len() == b.len() && a.iter().zip(&b).all(|(&a, &b)| left.get(a) == right.get(b)) {
            return Ok([a, b]);
        }
        Err(InferError::new(format!("{what} {a:?} of {left} and {b:?} of {right} differ in size")))
    };
    let batch = pair(&p.lhs_batching_dimensions, &p.rhs_batching_dimensions, "the batching dimensions")?;
    let sum =
        pair(&p.lhs_contracting_dimensions, &p.rhs_contracting_dimensions, "the contracting dimensions")?;
    if batch.iter().zip(&sum).any(|(batch, sum)| batch.iter().any(|d| sum.contains(d))) {
        return Err(InferError::new("a dimension is both batching and contracting"));
    }
    let free = |i: usize, rank: usize| {
        (0..rank).filter(|d| ![&batch, &sum].iter().any(|dims| dims[i].contains(d))).collect()
    };
    let free = [free(0, left.rank()), free(1, right.rank())];
    Ok(DotDimensions { batch, sum, free })
}

fn infer_dot_general(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let DotDimensions { batch: [batch, _], free: [left, right], .. } = dot_dimensions(cx)?;
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let sizes = batch.iter().chain(&left).filter_map(|&d| a.shape.get(d));
    let shape: Shape = sizes.chain(right.iter().filter_map(|&d| b.shape.get(d))).copied().collect();
    let ty = cx.outputs.first().map_or(a.ty, |o| o.ty);
    Ok(smallvec![Inferred::known(ty, shape)])
}

fn multiply_adds_dot_general(s: &OpSignature<'_>) -> u64 {
    let (Some(p), Some(left)) = (s.params::<StablehloDotGeneralParams>(), s.input(0)) else { return 0 };
    let size = |&d: &i64| usize::try_from(d).ok().and_then(|d| left.shape.get(d)).map_or(1, |&n| n as u64);
    p.lhs_contracting_dimensions.iter().map(size).fold(s.output_elements(), u64::saturating_mul)
}

/// The number of inputs is the number of initial values; all inputs have one shape.
fn infer_reduce(cx: &InferContext<'_>) -> InferResult {
    let count = cx.inputs.len() / 2;
    cx.arity(2 * count.max(1)..=2 * count.max(1), count.max(1))?;
    let shape = cx.input(0)?.shape;
    let gone = reduced_dimensions(cx)?;
    let kept: Shape =
        shape.iter().enumerate().filter(|(d, _)| !gone.contains(d)).map(|(_, &size)| size).collect();
    (0..count).map(|i| Ok(Inferred::known(begins_with(cx, i, i + count, shape)?, kept.clone()))).collect()
}

/// Returns the dimensions that the output of STABLEHLO_REDUCE lacks.
pub fn reduced_dimensions(cx: &InferContext<'_>) -> Result<SmallVec<[usize; 8]>, InferError> {
    let list = &cx.params::<StablehloReduceParams>()?.dimensions;
    dimensions(list, cx.input(0)?.shape.rank(), "the dimensions to reduce")
}

fn infer_sort(cx: &InferContext<'_>) -> InferResult {
    let count = cx.inputs.len().max(1);
    cx.arity(count..=count, count)?;
    let shape = cx.input(0)?.shape;
    sorted_dimension(cx)?;
    let output = |i| match cx.input(i)? {
        input if input.shape == shape => Ok(Inferred::known(input.ty, shape.clone())),
        input => Err(InferError::new(format!("input {i} has shape {}, input 0 {shape}", input.shape))),
    };
    (0..count).map(output).collect()
}

/// Returns the dimension along which STABLEHLO_SORT sorts.
pub fn sorted_dimension(cx: &InferContext<'_>) -> Result<usize, InferError> {
    axis_in(cx.params::<StablehloSortParams>()?.dimension, cx.input(0)?.shape.rank())
}

/// Output 0 is the next state, output 1 the bits. The declared type and shape of output 1 determine the number of bits.
fn infer_rng_bit_generator(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 2)?;
    let state = cx.input(0)?;
    let sizes: &[usize] = match cx.params::<StablehloRngBitGeneratorParams>()?.algorithm {
        RngAlgorithm::ThreeFry => &[2],
        RngAlgorithm::Philox | RngAlgorithm::Default => &[2, 3],
    };
    if state.ty != TensorType::UInt64 || state.shape.rank() != 1 || !sizes.contains(&state.shape.elements()) {
        return Err(InferError::new(format!(
            "the state is {} {}, expected UINT64 with one of {sizes:?} elements",
            state.ty, state.shape
        )));
    }
    let bits = cx.outputs.get(1).ok_or_else(|| InferError::new("output 1 is missing"))?;
    Ok(smallvec![
        Inferred::known(state.ty, state.shape.clone()),
        Inferred::known(bits.ty, bits.shape.clone()),
    ])
}

/// Only the call's target determines the outputs, so the declared ones are used.
fn infer_custom_call(cx: &InferContext<'_>) -> InferResult {
    Ok(cx.outputs.iter().map(|o| Inferred::known(o.ty, o.shape.clone())).collect())
}

#[cfg(test)]
mod tests {
    use TensorType::{Float32, Int32, UInt32, UInt64};

    use super::*;
    use crate::ops::testing::{T, bad, good};

    fn f(shape: &[usize]) -> T {
        T::new(Float32, shape)
    }

    #[test]
    fn convolutions() {
        // NHWC with a filter HWIO.
        let params = StablehloConvolutionParams::default()
            .window_strides(vec![2, 1])
            .padding(vec![0, 1, 1, 1])
            .input_feature_dimension(3)
            .input_spatial_dimensions(vec![1, 2])
            .kernel_input_feature_dimension(2)
            .kernel_output_feature_dimension(3)
            .kernel_spatial_dimensions(vec![0, 1])
            .output_feature_dimension(3)
            .output_spatial_dimensions(vec![1, 2])
            .feature_group_count(2)
            .batch_group_count(1);
        let (op, out) = (&STABLEHLO_CONVOLUTION, [f(&[1, 4, 6, 4])]);
        good(op, params.clone(), &[f(&[1, 8, 6, 6]), f(&[3, 3, 3, 4])], &out);
        bad(
            op,
            params.clone(),
            &[f(&[1, 8, 6, 6]), f(&[3, 3, 6, 4])],
            &out,
            "does not fit a filter from 6 to 4",
        );
        bad(op, params.clone(), &[f(&[1, 8, 6]), f(&[3, 3, 3, 4])], &out, "must have one rank");
        let check = |change: fn(&mut StablehloConvolutionParams), reason| {
            let mut params = params.clone();
            change(&mut params);
            bad(op, params, &[f(&[1, 8, 6, 6]), f(&[3, 3, 3, 4])], &out, reason);
        };
        check(|p| p.feature_group_count = 0, "the count of groups of channels 0 is not positive");
        check(|p| p.input_feature_dimension = 1, "name dimension 1 twice");
        check(|p| p.window_strides = vec![1], "1 entry for rank 2");
        check(|p| p.rhs_dilation = vec![1, 0], "contain 0, which is not positive");
        check(|p| p.window_reversal = vec![true], "the reversals have 1 entry");
    }

    #[test]
    fn dots() {
        let params = |[a, b, c, d]: [&[i64]; 4]| {
            StablehloDotGeneralParams::default()
                .lhs_batching_dimensions(a.to_vec())
                .rhs_batching_dimensions(b.to_vec())
                .lhs_contracting_dimensions(c.to_vec())
                .rhs_contracting_dimensions(d.to_vec())
                .precision_config(vec![])
        };
        let (op, inputs) = (&STABLEHLO_DOT_GENERAL, [f(&[2, 3, 4]), f(&[4, 5, 2])]);
        good(op, params([&[0], &[2], &[2], &[0]]), &inputs, &[f(&[2, 3, 5])]);
        good(op, params([&[], &[], &[2, 0], &[0, 2]]), &inputs, &[f(&[3, 5])]);
        bad(op, params([&[0], &[2], &[1], &[0]]), &inputs, &[f(&[])], "differ in size");
        bad(op, params([&[0], &[2], &[0], &[2]]), &inputs, &[f(&[])], "both batching and contracting");
    }

    #[test]
    fn reductions_and_sorting() {
        let params = |dimensions: &[i64]| {
            StablehloReduceParams::default().dimensions(dimensions.to_vec()).body_subgraph_index(1)
        };
        let (op, inputs) =
            (&STABLEHLO_REDUCE, [f(&[2, 3]), T::new(Int32, &[2, 3]), f(&[]), T::new(Int32, &[])]);
        good(op, params(&[1]), &inputs, &[f(&[2]), T::new(Int32, &[2])]);
        bad(op, params(&[2]), &inputs, &[f(&[2]), f(&[2])], "name dimension 2 of rank 2");
        bad(
            op,
            params(&[1]),
            &inputs[..2],
            &[f(&[2])],
            "input 0 is FLOAT32 [2, 3] and begins with INT32 [2, 3]",
        );
        bad(op, params(&[1]), &inputs[..3], &[f(&[2])], "expected 2 inputs, the node has 3");
        let params = |dimension| {
            StablehloSortParams::default().dimension(dimension).is_stable(true).comparator_subgraph_index(1)
        };
        let op = &STABLEHLO_SORT;
        good(op, params(-2), &inputs[..2], &[f(&[2, 3]), T::new(Int32, &[2, 3])]);
        bad(op, params(2), &inputs[..2], &[f(&[2, 3]), f(&[2, 3])], "axis 2 is out of range for rank 2");
        bad(
            op,
            params(0),
            &[f(&[2, 3]), f(&[3])],
            &[f(&[2]), f(&[2])],
            "input 1 has shape [3], input 0 [2, 3]",
        );
    }

    #[test]
    fn random_bits() {
        let params = |algorithm| StablehloRngBitGeneratorParams::default().algorithm(algorithm);
        let (op, state, out) = (
            &STABLEHLO_RNG_BIT_GENERATOR,
            T::new(UInt64, &[3]),
            [T::new(UInt64, &[3]), T::new(UInt32, &[2, 5])],
        );
        good(op, params(RngAlgorithm::Philox), std::slice::from_ref(&state), &out);
        bad(op, params(RngAlgorithm::ThreeFry), &[state], &out, "the state is UINT64 [3], expected UINT64");
        bad(op, params(RngAlgorithm::Default), &[T::new(UInt32, &[2])], &out, "the state is UINT32 [2]");
    }
}
