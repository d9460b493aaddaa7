//! REVERSE_V2.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::ops::axis_in;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::slice::Spec;

use super::{GpuOp, invalid};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(
    BuiltinOp::REVERSE_V2,
    4,
    &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16],
    lower,
)];

/// A slice of the whole input, with steps of -1 along the reversed dimensions.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.any_input(0)?;
    let shape = cx.shape(input);
    let (mut begin, mut step) = (vec![0; shape.len()], vec![1; shape.len()]);
    for axis in cx.integers(1)? {
        let axis = axis_in(axis, shape.len()).map_err(invalid)?;
        if step[axis] < 0 {
            return Err(unsupported(format!(
                "axis {axis} is listed twice; only distinct axes are supported"
            )));
        }
        (begin[axis], step[axis]) = (shape[axis] - 1, -1);
    }
    if shape.iter().zip(&step).all(|(&size, &step)| size == 1 || step == 1) {
        return cx.alias(0, input, 0);
    }
    let output = cx.output(0)?;
    cx.push(Spec { output: shape.clone(), input: shape, begin, step }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};

    #[test]
    fn dimensions_run_backward() {
        let axes = |axes: &[i32]| Some(T::new(&[axes.len()], axes).constant());
        let inputs = |of: &[i32]| [Some(T::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6])), axes(of)];
        let run = |of: &[i32], expected: [i32; 6]| {
            check(BuiltinOp::REVERSE_V2, 1, Params::None, &inputs(of), &[T::new(&[2, 3], &expected)]);
        };
        run(&[-1], [3, 2, 1, 6, 5, 4]);
        run(&[0, 1], [6, 5, 4, 3, 2, 1]);
        let truths = |bits: [u8; 3]| T::new(&[3, 1], &bits.map(Bool));
        let op = BuiltinOp::REVERSE_V2;
        check(op, 2, Params::None, &[Some(truths([1, 0, 0])), axes(&[0])], &[truths([0, 0, 1])]);
        check(op, 2, Params::None, &[Some(truths([1, 0, 0])), axes(&[1])], &[truths([1, 0, 0])]);
    }
}
