//! ADD_N.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int32};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::{Binary, Spec};

use super::{GpuOp, expect_one_of};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::ADD_N, 1, &[Float32, Int32], lower)];

/// Adds the inputs pairwise, one addition per further input.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let count = cx.node().inputs().count();
    (0..count).try_for_each(|i| expect_one_of(cx, i, GpuOp::NUMBERS))?;
    let mut sum = cx.any_input(0)?;
    if count == 1 {
        return cx.alias(0, sum, 0);
    }
    let (shape, element) = (cx.shape(sum), cx.element(sum));
    for i in 1..count {
        let next = cx.any_input(i)?;
        let to = if i + 1 == count { cx.output(0)? } else { cx.temporary_like(&shape, sum) };
        let (a, b, output) = (shape.clone(), shape.clone(), shape.clone());
        let spec = Spec { op: Binary::Add, element, a, b, output, activation: Activation::None };
        cx.push(spec, &[sum, next], to)?;
        sum = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn sums_of_one_to_three() {
        let terms = [1_i32, 20, 300].map(|n| Some(T::new(&[2], &[n, -n])));
        for (count, sum) in [(1, 1), (2, 21), (3, 321)] {
            check(BuiltinOp::ADD_N, 1, Params::None, &terms[..count], &[T::new(&[2], &[sum, -sum])]);
        }
        let floats = [0.5_f32, 0.25].map(|n| Some(T::new(&[1], &[n])));
        check(BuiltinOp::ADD_N, 1, Params::None, &floats, &[T::new(&[1], &[0.75_f32])]);
    }
}
