//! EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, LOGICAL_AND, LOGICAL_OR.

use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int8, Int16, Int32, Int64, UInt8};
use delegraph_core::fixed_point::Multiplier;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::Binary;
use delegraph_shaders::binary_quantized::Operator;
use delegraph_shaders::{Activation, long};

use super::{GpuOp, binary, invalid_scale};
use crate::graph::lowering::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::EQUAL, 5, &[Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::NOT_EQUAL, 4, &[Float32, Float16, Int32, UInt8, Int64, Bool, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::LESS, 3, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::LESS_EQUAL, 2, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::GREATER, 2, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::GREATER_EQUAL, 3, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::LOGICAL_AND, 1, &[Bool], lower),
    GpuOp::new(BuiltinOp::LOGICAL_OR, 1, &[Bool], lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let operator = match op.builtin() {
        Some(BuiltinOp::EQUAL) => Binary::Equal,
        Some(BuiltinOp::NOT_EQUAL) => Binary::NotEqual,
        Some(BuiltinOp::LESS) => Binary::Less,
        Some(BuiltinOp::LESS_EQUAL) => Binary::LessEqual,
        Some(BuiltinOp::GREATER) => Binary::Greater,
        Some(BuiltinOp::GREATER_EQUAL) => Binary::GreaterEqual,
        Some(BuiltinOp::LOGICAL_AND) => Binary::LogicalAnd,
        Some(BuiltinOp::LOGICAL_OR) => Binary::LogicalOr,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    if cx.ty(0) == Some(TensorType::Int64) {
        let operator = match operator {
            Binary::Equal => long::Operator::Equal,
            Binary::NotEqual => long::Operator::NotEqual,
            Binary::Less => long::Operator::Less,
            Binary::LessEqual => long::Operator::LessEqual,
            Binary::Greater => long::Operator::Greater,
            Binary::GreaterEqual => long::Operator::GreaterEqual,
            _ => return Err(cx.wrong_type(0)),
        };
        return binary::push_long(cx, operator, None);
    }
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    // CPU kernels compare quantized 8-bit values rounded to multiples of 1/256; 16-bit values only for equality.
    let equality = matches!(operator, Binary::Equal | Binary::NotEqual);
    let rescaled = cx.is_bytes(inputs[0]) || cx.narrow(inputs[0]) == Some((16, true)) && equality;
    if !rescaled || cx.quantization(0).is_none() {
        return binary::push_on(cx, operator, inputs, Activation::None);
    }
    if cx.narrow(inputs[0]) != cx.narrow(inputs[1]) {
        return Err(cx.wrong_type(1));
    }
    let sides = [cx.steps(inputs[0])?, cx.steps(inputs[1])?];
    let [a, b] = sides.map(|side| Multiplier::new(side.scale.into()).map_err(invalid_scale));
    let factors = binary::Factors {
        zeros: sides.map(|side| side.zero),
        left: 8,
        inputs: [a?, b?],
        ..Default::default()
    };
    binary::push_quantized(cx, Operator::Compare(operator), factors, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};

    #[test]
    fn integers_of_64_bits() {
        let a = T::new(&[4], &[1_i64 << 40, -1, i64::MIN, 5]);
        let b = T::new(&[4], &[(1_i64 << 40) + 1, 0, i64::MAX, 5]);
        let truth = |bits: [u8; 4]| T::new(&[4], &bits.map(Bool));
        let run = |op, expected| {
            check(op, 1, Params::None, &[Some(a.clone()), Some(b.clone())], &[truth(expected)]);
        };
        run(BuiltinOp::EQUAL, [0, 0, 0, 1]);
        run(BuiltinOp::NOT_EQUAL, [1, 1, 1, 0]);
        run(BuiltinOp::LESS, [1, 1, 1, 0]);
        run(BuiltinOp::LESS_EQUAL, [1, 1, 1, 1]);
        run(BuiltinOp::GREATER, [0, 0, 0, 0]);
        run(BuiltinOp::GREATER_EQUAL, [0, 0, 0, 1]);
    }

    #[test]
    fn truths() {
        let a = T::new(&[3], &[1.0_f32, f32::NAN, 3.0]);
        let b = T::new(&[3], &[1.0_f32, f32::NAN, 4.0]);
        let truth = |bits: [u8; 3]| T::new(&[3], &bits.map(Bool));
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::EQUAL, 1, Params::None, &inputs, &[truth([1, 0, 0])]);
        check(BuiltinOp::NOT_EQUAL, 1, Params::None, &inputs, &[truth([0, 1, 1])]);
        check(BuiltinOp::LESS_EQUAL, 1, Params::None, &inputs, &[truth([1, 0, 1])]);
        // Any byte other than zero is true.
        let inputs = [Some(truth([1, 0, 7])), Some(truth([1, 1, 1]))];
        check(BuiltinOp::LOGICAL_AND, 1, Params::None, &inputs, &[truth([1, 0, 1])]);
    }
}
