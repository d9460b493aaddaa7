//! SCATTER_ND.

use delegraph_core::TensorType::{Bool, Float32, Int8, Int32, UInt8};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::scatter::Spec;

use super::gather::check_indices;
use super::{GpuOp, expect_one_of};
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] =
    &[GpuOp::new(BuiltinOp::SCATTER_ND, 1, &[Float32, Int32, UInt8, Bool, Int8], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(0, TensorType::Int32)?;
    expect_one_of(cx, 1, GpuOp::ANY)?;
    let (indices, updates, output) = (cx.any_input(0)?, cx.any_input(1)?, cx.output(0)?);
    let shape = cx.shape(indices);
    let (&depth, tuples) = shape
        .split_last()
        .ok_or_else(|| unsupported("a scalar index; only tensors of indices are supported"))?;
    let (tuples, element) = (tuples.iter().product(), cx.element(updates));
    let spec = Spec { element, output: cx.shape(output), tuples, depth: depth as usize };
    check_indices(cx, 0, indices, spec.output.get(..spec.depth).unwrap_or_default())?;
    cx.push(spec, &[indices, updates], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};

    fn run(indices: T, updates: T, expected: T, shape: &[i32]) {
        let shape = Some(T::new(&[shape.len()], shape).constant());
        check(BuiltinOp::SCATTER_ND, 1, Params::None, &[Some(indices), Some(updates), shape], &[expected]);
    }

    #[test]
    fn updates_that_meet_are_added() {
        let updates = T::new(&[3, 2], &[1.0_f32, 2.0, 10.0, 20.0, 100.0, 200.0]);
        let expected = T::new(&[4, 2], &[0.0_f32, 0.0, 101.0, 202.0, 0.0, 0.0, 10.0, 20.0]);
        run(T::new(&[3, 1], &[1_i32, 3, 1]), updates, expected, &[4, 2]);
        let expected = T::new(&[2, 2], &[0_i32, 9, 0, 5]);
        run(T::new(&[2, 2], &[0_i32, 1, 1, 1]), T::new(&[2], &[9_i32, 5]), expected, &[2, 2]);
        let truths = T::new(&[3], &[Bool(1), Bool(0), Bool(1)]);
        let expected = T::new(&[2], &[Bool(1), Bool(1)]);
        run(T::new(&[3, 1], &[0_i32, 0, 1]), truths, expected, &[2]);
    }
}
