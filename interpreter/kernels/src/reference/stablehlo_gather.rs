//! STABLEHLO_GATHER, STABLEHLO_SCATTER.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::stablehlo_gather::{StablehloScatterParams, gather_boxes, scatter_boxes};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};
use smallvec::SmallVec;

use crate::common::index::{Nest, Strides, dense_strides};
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Integers, Invoke, copy_elements, moved_bits, prepared, unsupported_type};
use crate::common::region::{Combine, Combined, on_combined};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::STABLEHLO_GATHER, prepared(gather), 1).add_builtin(
        BuiltinOp::STABLEHLO_SCATTER,
        prepared(scatter),
        1,
    );
}

/// Approximate time to resolve an index, in nanoseconds.
const STEPS_PER_INDEX: usize = 16;

/// Approximate time to begin a run of a box, in nanoseconds.
const RUN_STEPS: usize = 4;

/// Strides of the index dimensions that enumerate boxes, and of the dimension that holds the components of one index.
fn index_strides(indices: &[usize], index_dim: Option<usize>) -> (Strides, usize) {
    let mut strides = dense_strides(indices);
    let number = index_dim.map_or(0, |d| strides.remove(d).cast_unsigned());
    (strides, number)
}

/// Copies a box of the input for each index. Starts are clamped so that the box is inside.
fn gather(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let boxes = gather_boxes(&cx.infer_context())?;
    let (input, indices, output) = (cx.input(0)?, cx.input(1)?.shape(), cx.output(0)?.shape());
    let bits = moved_bits("input 0", input)?;
    let (strides, to) = (dense_strides(input.shape()), dense_strides(output));
    let (of_batch, of_number) = index_strides(indices, boxes.index_dim);
    let of = |all: &Strides, dims: &[usize]| -> Strides { dims.iter().map(|&d| all[d]).collect() };
    let batch_dims: SmallVec<[usize; 8]> =
        (0..output.rank()).filter(|d| !boxes.box_dims.contains(d)).collect();
    let batch = Nest::new(&boxes.batch, [&of_batch, &of(&to, &batch_dims)]);
    let size: SmallVec<[usize; 8]> = boxes.input_dims.iter().map(|&d| boxes.size[d]).collect();
    let inner = Nest::new(&size, [&of(&strides, &boxes.input_dims), &of(&to, &boxes.box_dims)]);
    // For each component of an index: its offset, its maximum, and the input stride it selects.
    let place = |(k, &d): (usize, &usize)| {
        (k * of_number, input.shape()[d] - boxes.size[d], strides[d].cast_unsigned())
    };
    let numbers: Vec<(usize, usize, usize)> = boxes.index_map.iter().enumerate().map(place).collect();
    Ok(Box::new(move |cx| {
        let (input, indices, output) = (cx.input_bytes(0)?, Integers::input(cx, 1)?, cx.output_bytes(0)?);
        let mut pace = Pace::new(cx);
        batch.try_for_each([0; 2], |[at, to]| {
            pace.spend(STEPS_PER_INDEX)?;
            let start = |&(number, most, stride): &(usize, usize, usize)| {
                usize::try_from(indices.get(at + number)).unwrap_or(0).min(most) * stride
            };
            let from: usize = numbers.iter().map(start).sum();
            let (run, steps) = inner.inner();
            let (run, each) = if steps == [1, 1] { (1, run) } else { (run, 1) };
            inner.try_for_each_run([from, to], |[mut i, mut o]| {
                for first in (0..run).step_by(PIECE) {
                    let count = PIECE.min(run - first);
                    pace.spend(count.saturating_mul(each).saturating_add(RUN_STEPS))?;
                    for _ in 0..count {
                        copy_elements(bits, input, i, output, o, each);
                        i = i.wrapping_add_signed(steps[0]);
                        o = o.wrapping_add_signed(steps[1]);
                    }
                }
                Ok(())
            })
        })
    }))
}

fn scatter(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.output_count() != 1 {
        return Err(Error::Unsupported(format!(
            "a scatter into {} tensors; only one is supported",
            cx.output_count()
        )));
    }
    let region = cx.params::<StablehloScatterParams>()?.update_computation_subgraph_index;
    let how = Combine::by_subgraph(cx, region)?;
    let ty = cx.input(0)?.ty();
    let unsupported = |cx: &PrepareContext<'_>| Err(unsupported_type("input 0", cx.input(0)?));
    on_combined!(ty, scatter_of(cx, how)).unwrap_or_else(|| unsupported(cx))
}

/// A dimension of the tensor that a scatter writes to.
struct Dimension {
    size: usize,
    stride: usize,
    /// Offset of the component for this dimension from the first component of an index, if an index has one.
    number: Option<usize>,
    /// The dimension of the updates that runs along this dimension.
    along: Option<usize>,
}

/// Combines each update, in order, with an element of the input; updates that are outside are skipped.
fn scatter_of<T: Combined>(cx: &mut PrepareContext<'_>, how: Combine) -> Result<Invoke> {
    let combine = T::combine(how).ok_or(()).or_else(|()| Err(unsupported_type("input 0", cx.input(0)?)))?;
    let boxes = scatter_boxes(&cx.infer_context())?;
    let (shape, indices, updates) =
        (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.input(2)?.shape().clone());
    let strides = dense_strides(shape);
    let (of_batch, of_number) = index_strides(indices, boxes.index_dim);
    let batch_dims: SmallVec<[usize; 8]> =
        (0..updates.rank()).filter(|d| !boxes.box_dims.contains(d)).collect();
    let position = |list: &[usize], d: usize| list.iter().position(|&e| e == d);
    let dimension = |(d, &size): (usize, &usize)| Dimension {
        size,
        stride: strides[d].cast_unsigned(),
        number: position(&boxes.index_map, d).map(|k| k * of_number),
        along: position(&boxes.input_dims, d).map(|k| boxes.box_dims[k]),
    };
    let dimensions: Vec<Dimension> = shape.iter().enumerate().map(dimension).collect();
    // Position of each update, per dimension of the updates.
    let mut place = vec![0; updates.rank()];
    Ok(Box::new(move |cx| {
        let (input, indices, elements) = (cx.input::<T>(0)?, Integers::input(cx, 1)?, cx.input::<T>(2)?);
        let output = cx.output::<T>(0)?;
        output.copy_from_slice(input);
        place.fill(0);
        let mut pace = Pace::new(cx);
        for update in elements {
            pace.spend(STEPS_PER_INDEX)?;
            let at: usize =
                batch_dims.iter().zip(&of_batch).map(|(&d, s)| place[d] * s.cast_unsigned()).sum();
            let offset = |d: &Dimension| {
                let start = d.number.map_or(0, |number| indices.get(at + number));
                let along = d.along.map_or(0, |along| place[along]);
                let index = usize::try_from(start.checked_add(i64::try_from(along).ok()?)?).ok()?;
                (index < d.size).then(|| index * d.stride)
            };
            if let Some(to) = dimensions.iter().map(offset).sum::<Option<usize>>() {
                output[to] = combine(output[to], *update);
            }
            for (d, index) in place.iter_mut().enumerate().rev() {
                *index += 1;
                if *index < updates[d] {
                    break;
                }
                *index = 0;
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::stablehlo_gather::StablehloGatherParams;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn gathers_boxes() {
        let x = || Some(T::new(&[3, 4], &[0u8, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]));
        let params = |offset_dims: &[i64]| {
            StablehloGatherParams::default()
                .offset_dims(offset_dims.to_vec())
                .collapsed_slice_dims(vec![0])
                .start_index_map(vec![1, 0])
                .index_vector_dim(1)
                .slice_sizes(vec![1, 2])
                .indices_are_sorted(false)
        };
        // Column and row; the second index is clamped.
        let indices = || Some(T::new(&[2, 2], &[1i32, 2, 9, -9]));
        let op = BuiltinOp::STABLEHLO_GATHER;
        check(op, 1, params(&[1]).into(), &[x(), indices()], &[T::new(&[2, 2], &[21u8, 22, 2, 3])]);
        check(op, 1, params(&[0]).into(), &[x(), indices()], &[T::new(&[2, 2], &[21u8, 2, 22, 3])]);
    }
    #[test]
    fn a_dimension_that_the_output_lacks_has_one_element_of_a_box() {
        let params = StablehloGatherParams::default()
            .offset_dims(vec![1])
            .collapsed_slice_dims(vec![0])
            .start_index_map(vec![0])
            .index_vector_dim(1)
            .slice_sizes(vec![0, 2])
            .indices_are_sorted(false);
        let (x, indices) = (T::new(&[3, 2], &[0u8; 6]), T::new(&[1, 1], &[7i32]));
        let op = BuiltinOp::STABLEHLO_GATHER;
        let error = error(op, 1, params.into(), &[Some(x), Some(indices)], &[T::new(&[1, 2], &[0u8; 2])]);
        assert!(error.contains("a slice of 0 does not fit dimension 0"), "{error}");
    }
}
