//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD.

use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::{Binary, Spec};

use super::{GpuOp, activation};
use crate::graph::Element;
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::ADD, max_version: 6, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::SUB, max_version: 5, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::MUL, max_version: 8, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::DIV, max_version: 2, types: GpuOp::FLOATS, lower },
    GpuOp { op: BuiltinOp::MAXIMUM, max_version: 4, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::MINIMUM, max_version: 4, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::POW, max_version: 1, types: GpuOp::FLOATS, lower },
    GpuOp { op: BuiltinOp::SQUARED_DIFFERENCE, max_version: 2, types: GpuOp::NUMBERS, lower },
    GpuOp { op: BuiltinOp::FLOOR_DIV, max_version: 3, types: GpuOp::FLOATS, lower },
    GpuOp { op: BuiltinOp::FLOOR_MOD, max_version: 2, types: GpuOp::FLOATS, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let (binary, fused) = match op.builtin() {
        Some(BuiltinOp::ADD) => (Binary::Add, Some(cx.params::<AddParams>()?.fused_activation_function)),
        Some(BuiltinOp::SUB) => (Binary::Sub, Some(cx.params::<SubParams>()?.fused_activation_function)),
        Some(BuiltinOp::MUL) => (Binary::Mul, Some(cx.params::<MulParams>()?.fused_activation_function)),
        Some(BuiltinOp::DIV) => (Binary::Div, Some(cx.params::<DivParams>()?.fused_activation_function)),
        Some(BuiltinOp::MAXIMUM) => (Binary::Maximum, None),
        Some(BuiltinOp::MINIMUM) => (Binary::Minimum, None),
        Some(BuiltinOp::POW) => (Binary::Pow, None),
        Some(BuiltinOp::SQUARED_DIFFERENCE) => (Binary::SquaredDifference, None),
        Some(BuiltinOp::FLOOR_DIV) => (Binary::FloorDiv, None),
        Some(BuiltinOp::FLOOR_MOD) => (Binary::FloorMod, None),
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    let activation = fused.map(activation).transpose()?.unwrap_or(Activation::None);
    push(cx, binary, activation)
}

/// One step for an operator on inputs 0 and 1.
pub(super) fn push(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    activation: Activation,
) -> Result<(), Rejection> {
    let (a, b) = (cx.any_input(0)?, cx.any_input(1)?);
    let output = cx.output(0)?;
    if cx.element(a) != cx.element(b) {
        return Err(unsupported("operands of different types"));
    }
    // Integer division by zero is an error of the node, which a shader cannot report.
    let divides = matches!(op, Binary::Div | Binary::FloorDiv | Binary::FloorMod);
    if divides && cx.element(a) != Element::F32 {
        return Err(Rejection::UnsupportedType { operand: "input 1".into(), ty: TensorType::Int32 });
    }
    let spec = Spec {
        op,
        element: cx.element(a),
        a: cx.shape(a),
        b: cx.shape(b),
        output: cx.shape(output),
        activation,
    };
    cx.push(spec, &[a, b], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;
    use delegraph_core::ops::Activation as Fused;

    #[test]
    fn operators_broadcast_and_activate() {
        let a = Some(T::new(&[2, 2], &[1.0_f32, 2.0, 3.0, -4.0]));
        let b = Some(T::new(&[2], &[10.0_f32, -1.0]).constant());
        let result = |values: [f32; 4]| [T::new(&[2, 2], &values)];
        let inputs = [a.clone(), b];
        let params = MulParams { fused_activation_function: Fused::Relu };
        check(BuiltinOp::MUL, 1, Params::Mul(params), &inputs, &result([10.0, 0.0, 30.0, 4.0]));
        check(BuiltinOp::MAXIMUM, 1, Params::None, &inputs, &result([10.0, 2.0, 10.0, -1.0]));
        let inputs = [a, Some(T::new(&[], &[2.0_f32]).constant())];
        check(BuiltinOp::FLOOR_DIV, 2, Params::None, &inputs, &result([0.0, 1.0, 1.0, -2.0]));
    }

    #[test]
    fn integers_are_not_divided() {
        let a = T::new(&[2], &[7_i32, -7]);
        let inputs = [Some(a.clone()), Some(a.clone())];
        let said = support(BuiltinOp::FLOOR_DIV, 1, Params::None, &inputs, std::slice::from_ref(&a));
        assert!(said.is_none_or(|said| matches!(said, Err(Rejection::UnsupportedType { .. }))));
        let params = Params::Add(AddParams { fused_activation_function: Fused::None, pot_scale_int16: true });
        check(BuiltinOp::ADD, 1, params, &inputs, &[T::new(&[2], &[14_i32, -14])]);
    }
}
