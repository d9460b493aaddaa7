//! STABLEHLO_GATHER, STABLEHLO_SCATTER: boxes read from, or combined into, the positions in a tensor of indices.

use smallvec::{SmallVec, smallvec};

use super::infer::{dimensions, per_dimension};
use super::{
    InferContext, InferError, InferResult, InferTensor, Inferred, TensorType, always_1, no_arithmetic,
    options, size_from,
};
use crate::error::counted;
use crate::types::Shape;

ops! {
    STABLEHLO_GATHER {
        codec: StablehloGatherParams::CODEC,
        infer: infer_gather,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.16.0")],
    }

    STABLEHLO_SCATTER {
        codec: StablehloScatterParams::CODEC,
        infer: infer_scatter,
        min_version: always_1,
        multiply_adds: |s| s.input_elements(s.inputs.len().saturating_sub(1)),
        history: &[(1, "2.15.0")],
    }
}

options! {
    /// Params of STABLEHLO_GATHER.
    StablehloGather(StablehloGatherParams) in BuiltinOptions2::StablehloGatherOptions(builtin_options_2_as_stablehlo_gather_options, StablehloGatherOptionsArgs) as TfLiteStablehloGatherParams {
        /// The dimensions of the output within a box; the others enumerate the boxes.
        offset_dims: Vec<i64>;
        /// The dimensions of the input that the output lacks: a box is 1 wide there.
        collapsed_slice_dims: Vec<i64>;
        /// The dimension of the input that each number of an index refers to.
        start_index_map: Vec<i64>;
        /// The dimension of input 1 that holds the numbers of one index; its rank where an index is one number.
        index_vector_dim: i64;
        /// The size of a box, in all dimensions of the input.
        slice_sizes: Vec<i64>;
        /// A promise that the indices ascend.
        indices_are_sorted: bool;
    }
}

options! {
    /// Params of STABLEHLO_SCATTER.
    StablehloScatter(StablehloScatterParams) in BuiltinOptions2::StablehloScatterOptions(builtin_options_2_as_stablehlo_scatter_options, StablehloScatterOptionsArgs) {
        /// A promise that the indices ascend.
        indices_are_sorted: bool;
        /// The dimensions of the updates within a box; the others enumerate the boxes.
        update_window_dims: Vec<i64>;
        /// The dimensions of the input that the updates lack: a box is 1 wide there.
        inserted_window_dims: Vec<i64>;
        /// The dimension of the input that each number of an index refers to.
        scatter_dims_to_operand_dims: Vec<i64>;
        /// The dimension of the indices that holds the numbers of one index; their rank where it is one number.
        index_vector_dim: i64;
        /// A promise that no two updates modify the same element.
        unique_indices: bool;
        /// The subgraph that combines an element with its update.
        update_computation_subgraph_index: i32;
    }
}

/// The relation between the dimensions of the input, the indices and the boxes of a gather or scatter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Boxes {
    /// The shape of the indices without the dimension that holds the numbers of one index.
    pub batch: Shape,
    /// The dimension of the indices that holds the numbers of one index; `None` if it is one number.
    pub index_dim: Option<usize>,
    /// The dimension of the input that each number of an index refers to.
    pub index_map: SmallVec<[usize; 8]>,
    /// The dimensions of output or updates that run over a box, ascending.
    pub box_dims: SmallVec<[usize; 8]>,
    /// The corresponding dimensions of the input, in the same order.
    pub input_dims: SmallVec<[usize; 8]>,
    /// The size of a box in all dimensions of the input.
    pub size: SmallVec<[usize; 8]>,
}

impl Boxes {
    /// Returns the shape of the output or the updates: the sizes of a box in the dimensions `box_dims`, and the sizes
    /// of `batch` in the others.
    fn shape(&self) -> Shape {
        let (mut batch, mut inner) =
            (self.batch.iter(), self.input_dims.iter().filter_map(|&d| self.size.get(d)));
        let rank = self.batch.rank() + self.box_dims.len();
        let size = |d| if self.box_dims.contains(&d) { inner.next() } else { batch.next() };
        (0..rank).filter_map(size).copied().collect()
    }
}

/// Returns the part that gather and scatter share: the layout of the indices, and the dimensions that they refer to.
/// The size of a box remains empty.
fn boxes(
    input: &Shape,
    indices: &InferTensor<'_>,
    (index_vector_dim, index_map): (i64, &[i64]),
    (box_dims, missing): (&[i64], &[i64]),
) -> Result<Boxes, InferError> {
    if !matches!(indices.ty, TensorType::Int32 | TensorType::Int64) {
        return Err(InferError::new(format!("the indices are {}, expected INT32 or INT64", indices.ty)));
    }
    let (rank, index_rank) = (input.rank(), indices.shape.rank());
    let dim = usize::try_from(index_vector_dim).ok().filter(|&d| d <= index_rank);
    let dim = dim.ok_or_else(|| {
        InferError::new(format!("index dimension {index_vector_dim} is out of range for {}", indices.shape))
    })?;
    let numbers = indices.shape.get(dim).copied().unwrap_or(1);
    if numbers != index_map.len() {
        return Err(InferError::new(format!(
            "an index has {}, but the index map has {}",
            counted(numbers, "number"),
            counted(index_map.len(), "entry")
        )));
    }
    let missing = dimensions(missing, rank, "the dimensions that a box lacks")?;
    if box_dims.len() + missing.len() != rank {
        return Err(InferError::new(format!(
            "a box has {} and omits {}, but the input has {}; the two must add up to the input's rank",
            counted(box_dims.len(), "dimension"),
            missing.len(),
            counted(rank, "dimension")
        )));
    }
    let batch: Shape =
        indices.shape.iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, &size)| size).collect();
    let mut box_dims = dimensions(box_dims, batch.rank() + box_dims.len(), "the dimensions of a box")?;
    box_dims.sort_unstable();
    Ok(Boxes {
        batch,
        index_dim: (dim < index_rank).then_some(dim),
        index_map: dimensions(index_map, rank, "the entries of the index map")?,
        box_dims,
        input_dims: (0..rank).filter(|d| !missing.contains(d)).collect(),
        size: SmallVec::new(),
    })
}

/// Returns the relation between the dimensions of STABLEHLO_GATHER.
pub fn gather_boxes(cx: &InferContext<'_>) -> Result<Boxes, InferError> {
    let p: &StablehloGatherParams = cx.params()?;
    let input = cx.input(0)?.shape;
    let index = (p.index_vector_dim, p.start_index_map.as_slice());
    let mut boxes = boxes(input, cx.input(1)?, index, (&p.offset_dims, &p.collapsed_slice_dims))?;
    per_dimension(&p.slice_sizes, input.rank(), "the slice sizes")?;
    for (d, (&all, &size)) in input.iter().zip(&p.slice_sizes).enumerate() {
        let size = size_from(size, "the slice size")?;
        if size > all || (size != 1 && !boxes.input_dims.contains(&d)) {
            return Err(InferError::new(format!("a slice of {size} does not fit dimension {d} of {input}")));
        }
        boxes.size.push(size);
    }
    Ok(boxes)
}

fn infer_gather(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, gather_boxes(cx)?.shape())])
}

/// Returns the number of tensors that a scatter updates: it has the same number of inputs and updates, and one tensor
/// of indices.
fn scattered(cx: &InferContext<'_>) -> Result<usize, InferError> {
    let count = cx.inputs.len() / 2;
    if cx.inputs.len() != 2 * count + 1 || count == 0 {
        return Err(InferError::new(format!(
            "expected as many updates as inputs, and indices; the node has {}",
            counted(cx.inputs.len(), "input")
        )));
    }
    Ok(count)
}

/// Returns the relation between the dimensions of STABLEHLO_SCATTER.
pub fn scatter_boxes(cx: &InferContext<'_>) -> Result<Boxes, InferError> {
    let p: &StablehloScatterParams = cx.params()?;
    let count = scattered(cx)?;
    let (input, indices, updates) = (cx.input(0)?.shape, cx.input(count)?, cx.input(count + 1)?.shape);
    let index = (p.index_vector_dim, p.scatter_dims_to_operand_dims.as_slice());
    let mut boxes = boxes(input, indices, index, (&p.update_window_dims, &p.inserted_window_dims))?;
    boxes.size = SmallVec::from_elem(1, input.rank());
    for (&d, &from) in boxes.input_dims.iter().zip(&boxes.box_dims) {
        if let (Some(size), Some(&given)) = (boxes.size.get_mut(d), updates.get(from)) {
            *size = given;
        }
    }
    if boxes.shape() != *updates {
        return Err(InferError::new(format!(
            "the updates have shape {updates}, expected the sizes {} of the indices next to those of a box",
            boxes.batch
        )));
    }
    if boxes.input_dims.iter().any(|&d| boxes.size.get(d) > input.get(d)) {
        return Err(InferError::new(format!("the updates {updates} do not fit {input}")));
    }
    Ok(boxes)
}

fn infer_scatter(cx: &InferContext<'_>) -> InferResult {
    let count = scattered(cx)?;
    cx.arity(2 * count + 1..=2 * count + 1, count)?;
    scatter_boxes(cx)?;
    let (shape, updates) = (cx.input(0)?.shape, cx.input(count + 1)?.shape);
    let output = |i| {
        let (input, update) = (cx.input(i)?, cx.input(count + 1 + i)?);
        if input.shape != shape || update.shape != updates || input.ty != update.ty {
            return Err(InferError::new(format!(
                "input {i} is {} {}, its updates are {} {}",
                input.ty, input.shape, update.ty, update.shape
            )));
        }
        Ok(Inferred::known(input.ty, shape.clone()))
    };
    (0..count).map(output).collect()
}

#[cfg(test)]
mod tests {
    use TensorType::{Float32, Int8, Int32, Int64};

    use super::*;
    use crate::ops::testing::{T, bad, good};

    #[test]
    fn gathers() {
        // Of [3, 4, 2]: boxes of [1, 2, 2] at [j, i], without the first dimension.
        let params = StablehloGatherParams::default()
            .offset_dims(vec![2, 3])
            .collapsed_slice_dims(vec![0])
            .start_index_map(vec![1, 0])
            .index_vector_dim(2)
            .slice_sizes(vec![1, 2, 2])
            .indices_are_sorted(false);
        let (input, out) = (T::new(Float32, &[3, 4, 2]), [T::new(Float32, &[2, 3, 2, 2])]);
        let with = |indices| [input.clone(), indices];
        good(&STABLEHLO_GATHER, params.clone(), &with(T::new(Int64, &[2, 3, 2])), &out);
        let check = |change: fn(&mut StablehloGatherParams), reason| {
            let mut params = params.clone();
            change(&mut params);
            bad(&STABLEHLO_GATHER, params, &with(T::new(Int32, &[2, 3, 2])), &out, reason);
        };
        check(|p| p.slice_sizes = vec![1, 5, 2], "a slice of 5 does not fit dimension 1 of [3, 4, 2]");
        check(|p| p.slice_sizes = vec![2, 2, 2], "a slice of 2 does not fit dimension 0 of [3, 4, 2]");
        check(|p| p.slice_sizes = vec![1, -2, 2], "the slice size -2 is negative");
        check(|p| p.slice_sizes = vec![1, 2], "the slice sizes have 2 entries for rank 3");
        check(|p| p.offset_dims = vec![2, 4], "name dimension 4 of rank 4");
        check(
            |p| p.offset_dims = vec![2],
            "a box has 1 dimension and omits 1, but the input has 3 dimensions",
        );
        check(|p| p.start_index_map = vec![1], "an index has 2 numbers, but the index map has 1 entry");
        check(|p| p.start_index_map = vec![1, 3], "name dimension 3 of rank 3");
        check(|p| p.index_vector_dim = 4, "index dimension 4 is out of range for [2, 3, 2]");
        bad(&STABLEHLO_GATHER, params, &with(T::new(Int8, &[2, 3, 2])), &out, "the indices are INT8");
        let params = StablehloGatherParams::default()
            .offset_dims(vec![0])
            .collapsed_slice_dims(vec![0])
            .start_index_map(vec![0])
            .index_vector_dim(1)
            .slice_sizes(vec![1, 4])
            .indices_are_sorted(false);
        let inputs = [T::new(Int8, &[3, 4]), T::new(Int32, &[5])];
        good(&STABLEHLO_GATHER, params, &inputs, &[T::new(Int8, &[4, 5])]);
    }

    #[test]
    fn scatters() {
        let params = StablehloScatterParams::default()
            .indices_are_sorted(false)
            .update_window_dims(vec![1])
            .inserted_window_dims(vec![0])
            .scatter_dims_to_operand_dims(vec![0, 1])
            .index_vector_dim(0)
            .unique_indices(false)
            .update_computation_subgraph_index(1);
        let (input, updates, indices) =
            (T::new(Float32, &[3, 4]), T::new(Float32, &[5, 2]), T::new(Int32, &[2, 5]));
        let out = [input.clone()];
        let op = &STABLEHLO_SCATTER;
        good(op, params.clone(), &[input.clone(), indices.clone(), updates.clone()], &out);
        let both =
            [input.clone(), T::new(Int8, &[3, 4]), indices.clone(), updates.clone(), T::new(Int8, &[5, 2])];
        good(op, params.clone(), &both, &[input.clone(), T::new(Int8, &[3, 4])]);
        let check = |updates, reason| {
            bad(op, params.clone(), &[input.clone(), indices.clone(), updates], &out, reason);
        };
        check(T::new(Float32, &[4, 2]), "the updates have shape [4, 2]");
        check(T::new(Float32, &[5]), "the updates have shape [5]");
        check(T::new(Float32, &[5, 5]), "the updates [5, 5] do not fit [3, 4]");
        check(T::new(Int8, &[5, 2]), "its updates are INT8");
        bad(op, params, &[input, indices], &out, "the node has 2 inputs");
    }
}
