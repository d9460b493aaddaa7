//! The StableHLO ops that move elements: STABLEHLO_RESHAPE, STABLEHLO_CONCATENATE, STABLEHLO_BROADCAST_IN_DIM,
//! STABLEHLO_SLICE, STABLEHLO_DYNAMIC_SLICE, STABLEHLO_DYNAMIC_UPDATE_SLICE, STABLEHLO_PAD, STABLEHLO_IOTA,
//! STABLEHLO_TRANSPOSE. Shapes that do not follow from inputs or params are taken from the file.

use smallvec::{SmallVec, smallvec};

use super::concatenation::concatenated;
use super::infer::{dimensions, per_dimension};
use super::slice::{SliceRange, SliceRanges};
use super::stablehlo_elementwise::is_integer;
use super::{
    Codec, Declared, InferContext, InferError, InferResult, InferTensor, Inferred, TensorType, always_1,
    no_arithmetic, options, size_from,
};
use crate::types::Shape;

ops! {
    /// The same elements under the shape that the output declares.
    STABLEHLO_RESHAPE {
        codec: Codec::NONE,
        infer: infer_reshape,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// The inputs, one after the other along one dimension.
    STABLEHLO_CONCATENATE {
        codec: StablehloConcatenateParams::CODEC,
        infer: infer_concatenate,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// The input, repeated to the shape that the output declares.
    STABLEHLO_BROADCAST_IN_DIM {
        codec: StablehloBroadcastInDimParams::CODEC,
        infer: infer_broadcast,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// Every `stride`-th element of a box of the input.
    STABLEHLO_SLICE {
        codec: StablehloSliceParams::CODEC,
        infer: infer_slice,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// A box of input 0 that begins at the indices in the other inputs, clamped so that it is inside.
    STABLEHLO_DYNAMIC_SLICE {
        codec: StablehloDynamicSliceParams::CODEC,
        infer: infer_dynamic_slice,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// Input 0 with input 1 written at the indices in the other inputs, clamped so that it is inside.
    STABLEHLO_DYNAMIC_UPDATE_SLICE {
        codec: Codec::NONE,
        infer: infer_dynamic_update_slice,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// Input 0 with elements of the value of input 1 before, between and behind its own.
    STABLEHLO_PAD {
        codec: StablehloPadParams::CODEC,
        infer: infer_pad,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.16.0")],
    }

    /// Each element is its index along one dimension.
    STABLEHLO_IOTA {
        codec: StablehloIotaParams::CODEC,
        infer: infer_iota,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }

    /// The input with its dimensions in another order.
    STABLEHLO_TRANSPOSE {
        codec: StablehloTransposeParams::CODEC,
        infer: infer_transpose,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }
}

options! {
    /// Params of STABLEHLO_CONCATENATE.
    StablehloConcatenate(StablehloConcatenateParams) in BuiltinOptions2::StablehloConcatenateOptions(builtin_options_2_as_stablehlo_concatenate_options, StablehloConcatenateOptionsArgs) as TfLiteStablehloConcatenateParams {
        /// The dimension along which the inputs follow each other.
        dimension: i64;
    }
}

options! {
    /// Params of STABLEHLO_BROADCAST_IN_DIM.
    StablehloBroadcastInDim(StablehloBroadcastInDimParams) in BuiltinOptions2::StablehloBroadcastInDimOptions(builtin_options_2_as_stablehlo_broadcast_in_dim_options, StablehloBroadcastInDimOptionsArgs) {
        /// The dimension of the output for each dimension of the input.
        broadcast_dimensions: Vec<i64>;
    }
}

options! {
    /// Params of STABLEHLO_SLICE.
    StablehloSlice(StablehloSliceParams) in BuiltinOptions2::StablehloSliceOptions(builtin_options_2_as_stablehlo_slice_options, StablehloSliceOptionsArgs) {
        /// The first index along each dimension.
        start_indices: Vec<i64>;
        /// The index before which the slice ends, along each dimension.
        limit_indices: Vec<i64>;
        /// The distance between the slice's elements along each dimension.
        strides: Vec<i64>;
    }
}

options! {
    /// Params of STABLEHLO_DYNAMIC_SLICE.
    StablehloDynamicSlice(StablehloDynamicSliceParams) in BuiltinOptions2::StablehloDynamicSliceOptions(builtin_options_2_as_stablehlo_dynamic_slice_options, StablehloDynamicSliceOptionsArgs) {
        /// The shape of the output.
        slice_sizes: Vec<i64>;
    }
}

options! {
    /// Params of STABLEHLO_PAD.
    StablehloPad(StablehloPadParams) in BuiltinOptions2::StablehloPadOptions(builtin_options_2_as_stablehlo_pad_options, StablehloPadOptionsArgs) as TfLiteStablehloPadParams {
        /// The number of elements added before each dimension; negative numbers remove elements.
        edge_padding_low: Vec<i64>;
        /// The number of elements added after each dimension; negative numbers remove elements.
        edge_padding_high: Vec<i64>;
        /// The number of elements added between neighbours along each dimension.
        interior_padding: Vec<i64>;
    }
}

options! {
    /// Params of STABLEHLO_IOTA.
    StablehloIota(StablehloIotaParams) in BuiltinOptions2::StablehloIotaOptions(builtin_options_2_as_stablehlo_iota_options, StablehloIotaOptionsArgs) {
        /// The dimension along which the elements count up.
        iota_dimension: i64;
    }
}

options! {
    /// Params of STABLEHLO_TRANSPOSE.
    StablehloTranspose(StablehloTransposeParams) in BuiltinOptions2::StablehloTransposeOptions(builtin_options_2_as_stablehlo_transpose_options, StablehloTransposeOptionsArgs) {
        /// The dimension of the input for each dimension of the output.
        permutation: Vec<i64>;
    }
}

/// The output as the file declares it.
fn declared<'a>(cx: &InferContext<'a>) -> Result<Declared<'a>, InferError> {
    cx.outputs.first().copied().ok_or_else(|| InferError::new("the node has no output"))
}

fn infer_reshape(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let (input, shape) = (cx.input(0)?, declared(cx)?.shape);
    if input.shape.checked_elements() != shape.checked_elements() {
        return Err(InferError::new(format!("cannot reshape {} to {shape}", input.shape)));
    }
    Ok(smallvec![Inferred::known(input.ty, shape.clone())])
}

fn infer_concatenate(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=usize::MAX, 1)?;
    concatenated(cx, concatenation_dimension(cx)?)
}

/// Returns the dimension along which the inputs of STABLEHLO_CONCATENATE follow each other.
pub fn concatenation_dimension(cx: &InferContext<'_>) -> Result<usize, InferError> {
    one_dimension(cx.params::<StablehloConcatenateParams>()?.dimension, cx.input(0)?.shape.rank())
}

fn one_dimension(dimension: i64, rank: usize) -> Result<usize, InferError> {
    let inside = usize::try_from(dimension).ok().filter(|&d| d < rank);
    inside.ok_or_else(|| InferError::new(format!("dimension {dimension} is out of range for rank {rank}")))
}

fn infer_broadcast(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    broadcast_dimensions(cx)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, declared(cx)?.shape.clone())])
}

/// Returns the dimension of the output of STABLEHLO_BROADCAST_IN_DIM for each dimension of the input.
pub fn broadcast_dimensions(cx: &InferContext<'_>) -> Result<SmallVec<[usize; 8]>, InferError> {
    let list = &cx.params::<StablehloBroadcastInDimParams>()?.broadcast_dimensions;
    let (from, to) = (cx.input(0)?.shape, declared(cx)?.shape);
    per_dimension(list, from.rank(), "the broadcast dimensions")?;
    let dimensions = dimensions(list, to.rank(), "the broadcast dimensions")?;
    if from.iter().zip(&dimensions).any(|(&size, &d)| size != 1 && to.get(d) != Some(&size)) {
        return Err(InferError::new(format!("{from} does not broadcast to {to} along {list:?}")));
    }
    Ok(dimensions)
}

fn infer_slice(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let shape: Shape = static_slice(cx)?.iter().map(|r| r.count).collect();
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, shape)])
}

/// Returns the elements that STABLEHLO_SLICE reads.
pub fn static_slice(cx: &InferContext<'_>) -> Result<SliceRanges, InferError> {
    let p: &StablehloSliceParams = cx.params()?;
    let shape = cx.input(0)?.shape;
    for (list, what) in
        [(&p.start_indices, "the starts"), (&p.limit_indices, "the limits"), (&p.strides, "the strides")]
    {
        per_dimension(list, shape.rank(), what)?;
    }
    let entries = p.start_indices.iter().zip(&p.limit_indices).zip(&p.strides);
    let range = |(&size, ((&start, &limit), &stride)): (&usize, ((&i64, &i64), &i64))| {
        let index = |v: i64| usize::try_from(v).ok().filter(|&v| v <= size);
        let step = isize::try_from(stride).ok().filter(|&s| s > 0);
        match (index(start), index(limit), step) {
            (Some(start), Some(limit), Some(step)) if start <= limit => {
                Ok(SliceRange { start, step, count: (limit - start).div_ceil(step.unsigned_abs()) })
            }
            _ => Err(InferError::new(format!(
                "a slice from {start} to {limit} in steps of {stride} does not fit a dimension of {size}"
            ))),
        }
    };
    shape.iter().zip(entries).map(range).collect()
}

fn infer_dynamic_slice(cx: &InferContext<'_>) -> InferResult {
    let input = cx.input(0)?;
    let sizes = &cx.params::<StablehloDynamicSliceParams>()?.slice_sizes;
    per_dimension(sizes, input.shape.rank(), "the slice sizes")?;
    let shape = sizes.iter().map(|&size| size_from(size, "the slice size")).collect::<Result<Shape, _>>()?;
    check_box(cx, 1, &shape)?;
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

fn infer_dynamic_update_slice(cx: &InferContext<'_>) -> InferResult {
    let (input, update) = (cx.input(0)?, cx.input(1)?);
    if update.ty != input.ty {
        return Err(InferError::new(format!("the update is {}, the input {}", update.ty, input.ty)));
    }
    check_box(cx, 2, update.shape)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// Checks that a box of `size` fits input 0. The inputs from `first` on hold its first index along each dimension.
fn check_box(cx: &InferContext<'_>, first: usize, size: &Shape) -> Result<(), InferError> {
    let shape = cx.input(0)?.shape;
    cx.arity(first + shape.rank()..=first + shape.rank(), 1)?;
    if size.rank() != shape.rank() || size.iter().zip(shape.iter()).any(|(part, all)| part > all) {
        return Err(InferError::new(format!("a box of {size} does not fit {shape}")));
    }
    for i in first..first + shape.rank() {
        let InferTensor { ty, shape, .. } = cx.input(i)?;
        if !is_integer(*ty) || shape.elements() != 1 {
            return Err(InferError::new(format!("input {i} must be one integer, got {ty} {shape}")));
        }
    }
    Ok(())
}

fn infer_pad(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, value) = (cx.input(0)?, cx.input(1)?);
    if value.ty != input.ty || value.shape.elements() != 1 {
        return Err(InferError::new(format!(
            "the padding value must be one {}, got {} {}",
            input.ty, value.ty, value.shape
        )));
    }
    let p: &StablehloPadParams = cx.params()?;
    let rank = input.shape.rank();
    per_dimension(&p.edge_padding_low, rank, "the low paddings")?;
    per_dimension(&p.edge_padding_high, rank, "the high paddings")?;
    per_dimension(&p.interior_padding, rank, "the interior paddings")?;
    let edges = p.edge_padding_low.iter().zip(&p.edge_padding_high).zip(&p.interior_padding);
    let size = |(&size, ((&low, &high), &interior)): (&usize, ((&i64, &i64), &i64))| {
        if interior < 0 {
            return Err(InferError::new(format!("interior padding {interior} is negative")));
        }
        let size = i64::try_from(size).ok();
        let gaps = size.and_then(|size| (size - 1).max(0).checked_mul(interior));
        let padded = size.zip(gaps).and_then(|(size, gaps)| size.checked_add(gaps));
        let padded = padded.and_then(|n| n.checked_add(low)).and_then(|n| n.checked_add(high));
        padded.ok_or_else(|| InferError::new("the padded size overflows"))
    };
    let sizes = input.shape.iter().zip(edges).map(size).collect::<Result<SmallVec<[i64; 8]>, _>>()?;
    // As in TFLite, an empty dimension makes all others empty.
    let empty = sizes.iter().any(|&size| size <= 0);
    let shape = sizes.iter().map(|&size| if empty { Ok(0) } else { size_from(size, "the padded size") });
    Ok(smallvec![Inferred::known(input.ty, shape.collect::<Result<Shape, _>>()?)])
}

fn infer_iota(cx: &InferContext<'_>) -> InferResult {
    cx.arity(0..=0, 1)?;
    let output = declared(cx)?;
    one_dimension(cx.params::<StablehloIotaParams>()?.iota_dimension, output.shape.rank())?;
    if matches!(output.ty, TensorType::Bool | TensorType::String | TensorType::Resource | TensorType::Variant)
    {
        return Err(InferError::new(format!("STABLEHLO_IOTA cannot fill {} elements", output.ty)));
    }
    Ok(smallvec![Inferred::known(output.ty, output.shape.clone())])
}

fn infer_transpose(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    let shape: Shape = static_permutation(cx)?.iter().filter_map(|&d| input.shape.get(d)).copied().collect();
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Returns the dimension of the input for each dimension of the output of STABLEHLO_TRANSPOSE.
pub fn static_permutation(cx: &InferContext<'_>) -> Result<SmallVec<[usize; 8]>, InferError> {
    let list = &cx.params::<StablehloTransposeParams>()?.permutation;
    let rank = cx.input(0)?.shape.rank();
    per_dimension(list, rank, "the permutation")?;
    dimensions(list, rank, "the entries of the permutation")
}

#[cfg(test)]
mod tests {
    use TensorType::{Bool, Float32, Int32};

    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, bad, good};

    fn f(shape: &[usize]) -> T {
        T::new(Float32, shape)
    }

    #[test]
    fn shapes_that_the_file_declares() {
        good(&STABLEHLO_RESHAPE, Params::None, &[f(&[2, 3])], &[f(&[6, 1])]);
        bad(&STABLEHLO_RESHAPE, Params::None, &[f(&[2, 3])], &[f(&[5])], "cannot reshape [2, 3] to [5]");
        let along = |d: &[i64]| StablehloBroadcastInDimParams::default().broadcast_dimensions(d.to_vec());
        good(&STABLEHLO_BROADCAST_IN_DIM, along(&[2, 0]), &[f(&[1, 2])], &[f(&[2, 3, 4])]);
        good(&STABLEHLO_BROADCAST_IN_DIM, along(&[]), &[f(&[])], &[f(&[2])]);
        let op = &STABLEHLO_BROADCAST_IN_DIM;
        bad(op, along(&[0]), &[f(&[3])], &[f(&[2, 3])], "[3] does not broadcast to [2, 3] along [0]");
        bad(op, along(&[2]), &[f(&[3])], &[f(&[2, 3])], "name dimension 2 of rank 2");
        bad(op, along(&[1, 1]), &[f(&[3, 3])], &[f(&[2, 3])], "name dimension 1 twice");
        let count = |iota_dimension| StablehloIotaParams::default().iota_dimension(iota_dimension);
        good(&STABLEHLO_IOTA, count(1), &[], &[T::new(Int32, &[2, 3])]);
        bad(
            &STABLEHLO_IOTA,
            count(2),
            &[],
            &[T::new(Int32, &[2, 3])],
            "dimension 2 is out of range for rank 2",
        );
        bad(
            &STABLEHLO_IOTA,
            count(0),
            &[],
            &[T::new(Bool, &[2])],
            "STABLEHLO_IOTA cannot fill BOOL elements",
        );
    }

    #[test]
    fn concatenation_and_transpose() {
        let op = &STABLEHLO_CONCATENATE;
        let along = |dimension| StablehloConcatenateParams::default().dimension(dimension);
        good(op, along(1), &[f(&[2, 3]), f(&[2, 0])], &[f(&[2, 3])]);
        bad(op, along(-1), &[f(&[2, 3])], &[f(&[2, 3])], "dimension -1 is out of range for rank 2");
        bad(op, along(0), &[f(&[2, 3]), f(&[2, 2])], &[f(&[4, 3])], "does not continue [2, 3]");
        let order = |p: &[i64]| StablehloTransposeParams::default().permutation(p.to_vec());
        good(&STABLEHLO_TRANSPOSE, order(&[2, 0, 1]), &[f(&[2, 3, 4])], &[f(&[4, 2, 3])]);
        bad(&STABLEHLO_TRANSPOSE, order(&[0, 0]), &[f(&[2, 3])], &[f(&[2, 3])], "name dimension 0 twice");
        bad(&STABLEHLO_TRANSPOSE, order(&[0]), &[f(&[2, 3])], &[f(&[2, 3])], "1 entry for rank 2");
    }

    #[test]
    fn slices() {
        let params = |start: &[i64], limit: &[i64], strides: &[i64]| {
            StablehloSliceParams::default()
                .start_indices(start.to_vec())
                .limit_indices(limit.to_vec())
                .strides(strides.to_vec())
        };
        good(&STABLEHLO_SLICE, params(&[1, 2], &[4, 2], &[2, 1]), &[f(&[4, 5])], &[f(&[2, 0])]);
        for (start, limit, stride) in [(0, 5, 1), (3, 2, 1), (-1, 2, 1), (0, 4, 0), (0, 4, i64::MIN)] {
            let p = params(&[start], &[limit], &[stride]);
            bad(&STABLEHLO_SLICE, p, &[f(&[4])], &[f(&[4])], "does not fit a dimension of 4");
        }
        let (op, i) = (&STABLEHLO_DYNAMIC_SLICE, T::new(Int32, &[]));
        let sizes = |s: &[i64]| StablehloDynamicSliceParams::default().slice_sizes(s.to_vec());
        good(op, sizes(&[2, 5]), &[f(&[4, 5]), i.clone(), i.clone()], &[f(&[2, 5])]);
        bad(op, sizes(&[5]), &[f(&[4]), i.clone()], &[f(&[5])], "a box of [5] does not fit [4]");
        bad(op, sizes(&[2, 5]), &[f(&[4, 5]), i.clone()], &[f(&[2, 5])], "expected 3 inputs, the node has 2");
        bad(op, sizes(&[2]), &[f(&[4]), f(&[])], &[f(&[2])], "input 1 must be one integer, got FLOAT32 []");
        let op = &STABLEHLO_DYNAMIC_UPDATE_SLICE;
        good(op, Params::None, &[f(&[4]), f(&[2]), i.clone()], &[f(&[4])]);
        bad(op, Params::None, &[f(&[4]), f(&[5]), i.clone()], &[f(&[4])], "a box of [5] does not fit [4]");
        bad(op, Params::None, &[f(&[4]), T::new(Int32, &[2]), i], &[f(&[4])], "the update is INT32");
    }

    #[test]
    fn padding() {
        let params = |low: &[i64], high: &[i64], interior: &[i64]| {
            StablehloPadParams::default()
                .edge_padding_low(low.to_vec())
                .edge_padding_high(high.to_vec())
                .interior_padding(interior.to_vec())
        };
        let (op, value) = (&STABLEHLO_PAD, f(&[]));
        good(op, params(&[1, -1], &[-2, 0], &[2, 0]), &[f(&[3, 4]), value.clone()], &[f(&[6, 3])]);
        good(op, params(&[0, 2], &[0, 1], &[5, 0]), &[f(&[0, 4]), value.clone()], &[f(&[0, 0])]);
        let (one, out) = ([f(&[3]), value], [f(&[3])]);
        bad(op, params(&[0], &[0], &[-1]), &one, &out, "interior padding -1 is negative");
        bad(op, params(&[i64::MAX], &[0], &[0]), &one, &out, "the padded size overflows");
        bad(op, params(&[0, 0], &[0], &[0]), &one, &out, "the low paddings have 2 entries for rank 1");
        bad(
            op,
            params(&[0], &[0], &[0]),
            &[f(&[3]), T::new(Int32, &[])],
            &out,
            "the padding value must be one FLOAT32",
        );
    }
}
