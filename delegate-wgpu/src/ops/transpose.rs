//! TRANSPOSE.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{
    BFloat16, Bool, Float16, Float32, Int4, Int8, Int16, Int32, UInt8, UInt16, UInt32,
};
use delegraph_core::ops::transpose::permutation;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::transpose::Spec;

use super::{GpuOp, invalid, not_constant};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(
    BuiltinOp::TRANSPOSE,
    9,
    &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16, Int4, BFloat16],
    lower,
)];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.moved_input(0)?;
    let permutation = permutation(&cx.infer()).map_err(invalid)?.ok_or_else(not_constant)?;
    let shape = cx.shape(input);
    // Moving dimensions of extent 1 does not move elements.
    let moved = permutation.iter().filter(|&&d| shape.get(d).is_some_and(|&size| size != 1));
    if moved.is_sorted() {
        return cx.alias(0, input, 0);
    }
    let output = cx.moved_output(0)?;
    cx.push(Spec { input: shape, permutation: permutation.to_vec() }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn elements_move_only_where_they_must() {
        let numbers = |shape: &[usize]| T::from_fn(shape, |i| i as f32);
        let order = |order: &[i32]| Some(T::new(&[order.len()], order).constant());
        let transposed = T::new(&[3, 2], &[0.0_f32, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let inputs = [Some(numbers(&[2, 3])), order(&[1, 0])];
        check(BuiltinOp::TRANSPOSE, 1, Params::None, &inputs, &[transposed]);
        let inputs = [Some(numbers(&[1, 2, 3])), order(&[1, 0, 2])];
        check(BuiltinOp::TRANSPOSE, 1, Params::None, &inputs, &[numbers(&[2, 1, 3])]);
    }
}
