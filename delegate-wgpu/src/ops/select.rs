//! SELECT, SELECT_V2.

use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::select::Spec;

use super::{GpuOp, mixed_types};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::SELECT, 4, GpuOp::UNPACKED, lower),
    GpuOp::new(BuiltinOp::SELECT_V2, 2, GpuOp::UNPACKED, lower),
];

pub(super) fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(0, TensorType::Bool)?;
    let inputs = [cx.any_input(0)?, cx.any_input(1)?, cx.any_input(2)?];
    let output = cx.output(0)?;
    if cx.element(inputs[1]) != cx.element(inputs[2]) {
        return Err(mixed_types(cx));
    }
    let [mut condition, a, b] = inputs.map(|id| cx.shape(id));
    let whole = cx.shape(output);
    // SELECT's condition may be a vector that selects rows; SELECT_V2 broadcasts.
    if cx.node().op().builtin() == Some(BuiltinOp::SELECT) && condition.len() == 1 {
        condition.resize(whole.len().max(1), 1);
    }
    cx.push(Spec { condition, a, b, output: whole }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::{Bool, Params};

    #[test]
    fn rows_and_broadcasts() {
        let condition = Some(T::new(&[2], &[Bool(1), Bool(0)]));
        let a = T::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let b = T::new(&[2, 2], &[5.0_f32, 6.0, 7.0, 8.0]);
        let inputs = [condition.clone(), Some(a.clone()), Some(b)];
        check(BuiltinOp::SELECT, 1, Params::None, &inputs, &[T::new(&[2, 2], &[1.0_f32, 2.0, 7.0, 8.0])]);
        let inputs = [condition, Some(a), Some(T::new(&[], &[9.0_f32]).constant())];
        check(BuiltinOp::SELECT_V2, 1, Params::None, &inputs, &[T::new(&[2, 2], &[1.0_f32, 9.0, 3.0, 9.0])]);
    }

    #[test]
    fn a_rejection_lists_the_types_of_all_operands() {
        let (integers, floats) = (T::new(&[1], &[1_i32]), T::new(&[1], &[1.0_f32]));
        let inputs = [Some(T::new(&[1], &[Bool(1)])), Some(integers.clone()), Some(floats)];
        let answer = support(BuiltinOp::SELECT_V2, 1, Params::None, &inputs, &[integers]);
        let reason = "inputs of types BOOL, INT32, FLOAT32, outputs of types INT32; \
                      only equal types of data are supported";
        assert!(answer.is_none_or(|a| a == Err(Rejection::UnsupportedParam(reason.into()))));
    }
}
