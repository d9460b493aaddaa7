//! SPLIT, SPLIT_V.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::ops::split::{split_axis, split_v_axis};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::slice::Spec;

use super::slice::take;
use super::{GpuOp, invalid, not_constant};
use crate::graph::ValueId;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::SPLIT, 5, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::SPLIT_V, 3, &[Float32, Int32, UInt8, Int16, Int8], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (input, axis) = if cx.node().op().builtin() == Some(BuiltinOp::SPLIT) {
        (cx.any_input(1)?, split_axis(&cx.infer()))
    } else {
        (cx.any_input(0)?, split_v_axis(&cx.infer()))
    };
    let axis = axis.map_err(invalid)?.ok_or_else(not_constant)?;
    let mut start = 0;
    for i in 0..cx.node().output_count() {
        let size = cx.output_shape(i)?.get(axis).copied().ok_or_else(not_constant)?;
        cut(cx, i, input, axis, start, size)?;
        start += size;
    }
    Ok(())
}

/// Makes output `i` of the node the `size` elements of `input` along `axis` from `start` on.
pub(super) fn cut(
    cx: &mut Lowering<'_, '_, '_>,
    i: usize,
    input: ValueId,
    axis: usize,
    start: u32,
    size: u32,
) -> Result<(), Rejection> {
    let shape = cx.shape(input);
    let (mut output, mut begin, step) = (shape.clone(), vec![0; shape.len()], vec![1; shape.len()]);
    let (Some(extent), Some(first)) = (output.get_mut(axis), begin.get_mut(axis)) else {
        return Err(unsupported(format!(
            "axis {axis}; only the dimensions of shape {shape:?} are supported"
        )));
    };
    (*extent, *first) = (size, start);
    take(cx, i, input, Spec { input: shape, output, begin, step })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::split::{SplitParams, SplitVParams};

    #[test]
    fn parts_along_the_last_and_the_first_axis() {
        let numbers = T::from_fn(&[2, 4], |i| i as f32);
        let halves = [T::new(&[2, 2], &[0.0_f32, 1.0, 4.0, 5.0]), T::new(&[2, 2], &[2.0_f32, 3.0, 6.0, 7.0])];
        let inputs = [Some(T::new(&[], &[-1_i32]).constant()), Some(numbers)];
        check(BuiltinOp::SPLIT, 1, Params::Split(SplitParams::default().num_splits(2)), &inputs, &halves);
        let part = |rows: usize, first: usize| T::from_fn(&[rows, 64], move |i| (i + first) as f32);
        let sizes = T::new(&[2], &[1_i32, -1]).constant();
        let inputs = [Some(part(4, 0)), Some(sizes), Some(T::new(&[], &[0_i32]).constant())];
        let params = Params::SplitV(SplitVParams::default().num_splits(2));
        check(BuiltinOp::SPLIT_V, 1, params, &inputs, &[part(1, 0), part(3, 64)]);
    }
}
