//! SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::space_to_batch::blocks;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::pad::{self, Fill};
use delegraph_shaders::{slice, transpose};

use super::{GpuOp, invalid, not_constant};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::SPACE_TO_BATCH_ND, 4, GpuOp::UNPACKED, lower),
    GpuOp::new(BuiltinOp::BATCH_TO_SPACE_ND, 4, GpuOp::UNPACKED, lower),
];

/// Block sizes and edges, one per dimension after the batch.
struct Blocks {
    sizes: Vec<u32>,
    edges: Vec<[u32; 2]>,
}

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let found = blocks(&cx.infer()).map_err(invalid)?.ok_or_else(not_constant)?;
    let small = |n: usize| {
        u32::try_from(n)
            .map_err(|_| unsupported(format!("a block of size {n}; at most {} is supported", u32::MAX)))
    };
    let sizes = found.iter().map(|b| small(b.size)).collect::<Result<_, _>>()?;
    let edges = found.iter().map(|b| Ok([small(b.edges[0])?, small(b.edges[1])?]));
    let blocks = Blocks { sizes, edges: edges.collect::<Result<_, Rejection>>()? };
    match cx.node().op().builtin() {
        Some(BuiltinOp::SPACE_TO_BATCH_ND) => space_to_batch(cx, &blocks),
        _ => batch_to_space(cx, &blocks),
    }
}

/// Pads, then moves the elements of blocks to the batch.
fn space_to_batch(cx: &mut Lowering<'_, '_, '_>, blocks: &Blocks) -> Result<(), Rejection> {
    let mut from = cx.any_input(0)?;
    let mut shape = cx.shape(from);
    let mut padding = vec![[0; 2]; shape.len()];
    padding.iter_mut().skip(1).zip(&blocks.edges).for_each(|(to, edges)| *to = *edges);
    if padding.as_flattened().iter().any(|&n| n > 0) {
        let spec = pad::Spec {
            input: shape.clone(),
            padding: padding.clone(),
            fill: Fill::Value(cx.affine(from).map_or(0, |affine| affine.zero.cast_unsigned())),
        };
        let sum = |(size, [before, after]): (&u32, &[u32; 2])| size.checked_add(*before)?.checked_add(*after);
        let padded: Option<Vec<u32>> = shape.iter().zip(&padding).map(sum).collect();
        shape = padded.ok_or_else(|| {
            unsupported(format!(
                "edges {:?} of shape {shape:?}; \
            at most {} elements fit a dimension",
                blocks.edges,
                u32::MAX
            ))
        })?;
        let padded = cx.temporary_like(&shape, from);
        cx.push(spec, &[from], padded)?;
        from = padded;
    }
    // The batch, each spatial dimension as two, and the remaining dimensions.
    let mut input = vec![shape[0]];
    for (size, block) in shape[1..].iter().zip(&blocks.sizes) {
        input.extend([size / block, *block]);
    }
    let spatial = blocks.sizes.len();
    input.extend(&shape[1 + spatial..]);
    let within = (0..spatial).map(|d| 2 + 2 * d);
    let places = (0..spatial).map(|d| 1 + 2 * d);
    let permutation = within.chain([0]).chain(places).chain(1 + 2 * spatial..input.len()).collect();
    let output = cx.output(0)?;
    cx.push(transpose::Spec { input, permutation }, &[from], output)
}

/// Moves the batch's elements of a block into the block, then crops.
fn batch_to_space(cx: &mut Lowering<'_, '_, '_>, blocks: &Blocks) -> Result<(), Rejection> {
    let from = cx.any_input(0)?;
    let shape = cx.shape(from);
    let (spatial, block) = (blocks.sizes.len(), blocks.sizes.iter().product::<u32>());
    let mut input = blocks.sizes.clone();
    input.push(shape[0].checked_div(block).unwrap_or(0));
    input.extend(&shape[1..]);
    let pairs = (0..spatial).flat_map(|d| [spatial + 1 + d, d]);
    let permutation = [spatial].into_iter().chain(pairs).chain(2 * spatial + 1..input.len()).collect();
    let spec = transpose::Spec { input, permutation };
    let output = cx.output(0)?;
    if blocks.edges.as_flattened().iter().all(|&n| n == 0) {
        return cx.push(spec, &[from], output);
    }
    let mut whole = shape;
    whole[0] /= block;
    whole.iter_mut().skip(1).zip(&blocks.sizes).for_each(|(size, block)| *size = size.saturating_mul(*block));
    let mut begin = vec![0; whole.len()];
    begin.iter_mut().skip(1).zip(&blocks.edges).for_each(|(begin, [before, _])| *begin = *before);
    let moved = cx.temporary_like(&whole, from);
    cx.push(spec, &[from], moved)?;
    let step = vec![1; whole.len()];
    cx.push(slice::Spec { input: whole, output: cx.shape(output), begin, step }, &[moved], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn blocks_go_to_the_batch_and_back() {
        let pair = |shape: &[usize], values: &[i32]| Some(T::new(shape, values).constant());
        let image = T::from_fn(&[1, 2, 4, 1], |i| 1.0 + i as f32);
        let batch = T::new(&[4, 1, 2, 1], &[1.0_f32, 3.0, 2.0, 4.0, 5.0, 7.0, 6.0, 8.0]);
        let inputs =
            |from: &T, edges: [i32; 4]| [Some(from.clone()), pair(&[2], &[2, 2]), pair(&[2, 2], &edges)];
        let (to, back) = (BuiltinOp::SPACE_TO_BATCH_ND, BuiltinOp::BATCH_TO_SPACE_ND);
        check(to, 1, Params::None, &inputs(&image, [0; 4]), std::slice::from_ref(&batch));
        check(back, 1, Params::None, &inputs(&batch, [0; 4]), std::slice::from_ref(&image));
        // One column more on either side.
        let padded = [0.0_f32, 2.0, 4.0, 1.0, 3.0, 0.0, 0.0, 6.0, 8.0, 5.0, 7.0, 0.0];
        let batch = T::new(&[4, 1, 3, 1], &padded);
        check(to, 1, Params::None, &inputs(&image, [0, 0, 1, 1]), std::slice::from_ref(&batch));
        check(back, 1, Params::None, &inputs(&batch, [0, 0, 1, 1]), &[image]);
        // One spatial dimension.
        let row = T::new(&[1, 4, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let inputs = [Some(row), pair(&[1], &[2]), pair(&[1, 2], &[0, 0])];
        let batch = T::new(&[2, 2, 2], &[1.0_f32, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
        check(to, 3, Params::None, &inputs, &[batch]);
    }
}
