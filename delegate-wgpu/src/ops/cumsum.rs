//! CUMSUM.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int32};
use delegraph_core::ops::axis_in;
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::cumsum::Spec;

use super::{GpuOp, expect_one_of, invalid, not_constant};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::CUMSUM, 1, &[Float32, Int32], lower)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &CumsumParams = cx.params()?;
    let (exclusive, reverse) = (p.exclusive, p.reverse);
    expect_one_of(cx, 0, GpuOp::NUMBERS)?;
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let (element, shape) = (cx.element(input), cx.shape(input));
    let axis = cx.integers(1)?.first().copied().ok_or_else(not_constant)?;
    let axis = axis_in(axis, shape.len()).map_err(invalid)?;
    let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    cx.push(Spec { element, outer, size: shape[axis], inner, exclusive, reverse }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn both_ways_with_and_without_the_element_itself() {
        let run = |axis: i32, exclusive, reverse, expected: [i32; 6]| {
            let inputs =
                [Some(T::new(&[2, 3], &[1_i32, 2, 3, 40, 50, 60])), Some(T::new(&[], &[axis]).constant())];
            let params = Params::Cumsum(CumsumParams::default().exclusive(exclusive).reverse(reverse));
            check(BuiltinOp::CUMSUM, 1, params, &inputs, &[T::new(&[2, 3], &expected)]);
        };
        run(1, false, false, [1, 3, 6, 40, 90, 150]);
        run(-1, true, false, [0, 1, 3, 0, 40, 90]);
        run(0, false, true, [41, 52, 63, 40, 50, 60]);
        run(-1, true, true, [5, 3, 0, 110, 60, 0]);
        let inputs = [Some(T::new(&[2], &[0.5_f32, 0.25])), Some(T::new(&[1], &[0_i32]).constant())];
        let params = Params::Cumsum(CumsumParams::default().exclusive(false).reverse(false));
        check(BuiltinOp::CUMSUM, 1, params, &inputs, &[T::new(&[2], &[0.5_f32, 0.75])]);
    }
}
