//! The elementwise StableHLO ops. Integer ops compute with stored values and wrap around.

use delegraph_core::TensorType::{Bool, Float16, Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32};
use delegraph_core::ops::stablehlo_elementwise::StablehloCompareParams;
use delegraph_core::ops::{ComparisonDirection, ComparisonType};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::binary::Binary;
use delegraph_shaders::unary::{Spec, Unary};

use super::binary::{push_narrow, push_to};
use super::unary::of_integers;
use super::{GpuOp, cast, select};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::STABLEHLO_ABS, 1, &[], one),
    GpuOp::new(
        BuiltinOp::STABLEHLO_ADD,
        1,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16],
        two,
    ),
    GpuOp::new(BuiltinOp::STABLEHLO_AND, 1, &[Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16], two),
    GpuOp::new(BuiltinOp::STABLEHLO_CBRT, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_CLAMP, 1, &[], clamp),
    GpuOp::new(BuiltinOp::STABLEHLO_COMPARE, 1, &[], compare),
    GpuOp::new(BuiltinOp::STABLEHLO_CONVERT, 1, &[], cast::lower),
    GpuOp::new(BuiltinOp::STABLEHLO_COSINE, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_DIVIDE, 1, &[], two),
    GpuOp::new(BuiltinOp::STABLEHLO_EXPONENTIAL, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_FLOOR, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_LOG, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_LOGISTIC, 1, &[], one),
    GpuOp::new(
        BuiltinOp::STABLEHLO_MAXIMUM,
        1,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16],
        two,
    ),
    GpuOp::new(
        BuiltinOp::STABLEHLO_MINIMUM,
        1,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16],
        two,
    ),
    GpuOp::new(
        BuiltinOp::STABLEHLO_MULTIPLY,
        1,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, UInt32, UInt16],
        two,
    ),
    GpuOp::new(BuiltinOp::STABLEHLO_NEGATE, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_OR, 1, &[], two),
    GpuOp::new(BuiltinOp::STABLEHLO_POWER, 1, &[], two),
    GpuOp::new(BuiltinOp::STABLEHLO_REMAINDER, 1, &[], two),
    GpuOp::new(BuiltinOp::STABLEHLO_RSQRT, 1, &[], one),
    GpuOp::new(BuiltinOp::STABLEHLO_SELECT, 1, &[], select::lower),
    GpuOp::new(BuiltinOp::STABLEHLO_SHIFT_LEFT, 1, &[Int32, Int16, Int8], two),
    GpuOp::new(BuiltinOp::STABLEHLO_SUBTRACT, 1, &[], two),
    GpuOp::new(BuiltinOp::STABLEHLO_TANH, 1, &[], one),
];

fn one(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let function = match op.builtin() {
        Some(BuiltinOp::STABLEHLO_ABS) => Unary::Abs,
        Some(BuiltinOp::STABLEHLO_CBRT) => Unary::Cbrt,
        Some(BuiltinOp::STABLEHLO_COSINE) => Unary::Cos,
        Some(BuiltinOp::STABLEHLO_EXPONENTIAL) => Unary::Exp,
        Some(BuiltinOp::STABLEHLO_FLOOR) => Unary::Floor,
        Some(BuiltinOp::STABLEHLO_LOG) => Unary::Log,
        Some(BuiltinOp::STABLEHLO_LOGISTIC) => Unary::Logistic,
        Some(BuiltinOp::STABLEHLO_NEGATE) => Unary::Neg,
        Some(BuiltinOp::STABLEHLO_RSQRT) => Unary::Rsqrt,
        Some(BuiltinOp::STABLEHLO_TANH) => Unary::Tanh,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    match cx.element(input) {
        Element::F32 => {
            let elements = cx.shape(output).iter().product();
            cx.push(Spec { steps: vec![function], elements }, &[input], output)
        }
        Element::I32 => of_integers(cx, function, input, output),
        _ => Err(cx.wrong_type(0)),
    }
}

fn two(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    let truths = cx.element(inputs[0]) == Element::Bool;
    let binary = match op.builtin() {
        // The sum of booleans is their disjunction, the product their conjunction.
        Some(BuiltinOp::STABLEHLO_ADD | BuiltinOp::STABLEHLO_MAXIMUM | BuiltinOp::STABLEHLO_OR) if truths => {
            Binary::LogicalOr
        }
        Some(BuiltinOp::STABLEHLO_MULTIPLY | BuiltinOp::STABLEHLO_MINIMUM | BuiltinOp::STABLEHLO_AND)
            if truths =>
        {
            Binary::LogicalAnd
        }
        Some(BuiltinOp::STABLEHLO_ADD) => Binary::Add,
        Some(BuiltinOp::STABLEHLO_AND) => Binary::BitwiseAnd,
        Some(BuiltinOp::STABLEHLO_DIVIDE) => Binary::Div,
        Some(BuiltinOp::STABLEHLO_MAXIMUM) => Binary::Maximum,
        Some(BuiltinOp::STABLEHLO_MINIMUM) => Binary::Minimum,
        Some(BuiltinOp::STABLEHLO_MULTIPLY) => Binary::Mul,
        Some(BuiltinOp::STABLEHLO_OR) => Binary::BitwiseOr,
        // StableHLO truncates negative powers of integers, which the shader does not support.
        Some(BuiltinOp::STABLEHLO_POWER) if cx.element(inputs[0]) == Element::F32 => Binary::Pow,
        Some(BuiltinOp::STABLEHLO_POWER) => return Err(cx.wrong_type(0)),
        Some(BuiltinOp::STABLEHLO_REMAINDER) => Binary::Remainder,
        Some(BuiltinOp::STABLEHLO_SHIFT_LEFT) => Binary::ShiftLeft,
        Some(BuiltinOp::STABLEHLO_SUBTRACT) => Binary::Sub,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    push(cx, binary, inputs)
}

/// Adds the steps of an operator on stored values.
fn push(cx: &mut Lowering<'_, '_, '_>, op: Binary, inputs: [ValueId; 2]) -> Result<(), Rejection> {
    if cx.is_narrow(inputs[0]) {
        return push_narrow(cx, op, inputs, Activation::None);
    }
    let output = cx.output(0)?;
    push_to(cx, op, inputs, Activation::None, output)
}

fn compare(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &StablehloCompareParams = cx.params()?;
    if p.compare_type == ComparisonType::FloatTotalOrder {
        return Err(unsupported("the comparison TOTALORDER; only comparisons of numbers are supported"));
    }
    let op = match p.comparison_direction {
        ComparisonDirection::Eq => Binary::Equal,
        ComparisonDirection::Ne => Binary::NotEqual,
        ComparisonDirection::Ge => Binary::GreaterEqual,
        ComparisonDirection::Gt => Binary::Greater,
        ComparisonDirection::Le => Binary::LessEqual,
        ComparisonDirection::Lt => Binary::Less,
    };
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    push(cx, op, inputs)
}

/// The upper bound takes precedence where the bounds cross.
fn clamp(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let [low, input, high] = [cx.any_input(0)?, cx.any_input(1)?, cx.any_input(2)?];
    let output = cx.output(0)?;
    if cx.ty(1) == Some(TensorType::Bool) {
        return Err(cx.wrong_type(1));
    }
    let shape = cx.shape(output);
    if cx.element(input) == Element::F32 && cx.is_constant(0) && cx.is_constant(2) {
        let (low, high) = (cx.constant(0)?, cx.constant(2)?);
        // A single function, which merges with its producer and keeps NaN.
        if let (&[min], &[max]) = (&*low, &*high) {
            let (steps, elements) = (vec![Unary::Clamp { min, max }], shape.iter().product());
            return cx.push(Spec { steps, elements }, &[input], output);
        }
    }
    let raised = cx.temporary_of(&shape, cx.element(input));
    push_to(cx, Binary::Maximum, [input, low], Activation::None, raised)?;
    push_to(cx, Binary::Minimum, [raised, high], Activation::None, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};
    use half::f16;

    fn one<E: delegraph_core::Element>(op: BuiltinOp, input: &[E], output: &[E]) {
        let [input, output] = [input, output].map(|data| T::new(&[data.len()], data));
        check(op, 1, Params::None, &[Some(input)], &[output]);
    }

    fn two<E: delegraph_core::Element>(op: BuiltinOp, a: &[E], b: &[E], output: &[E]) {
        let [a, b, output] = [a, b, output].map(|data| T::new(&[data.len()], data));
        check(op, 1, Params::None, &[Some(a), Some(b)], &[output]);
    }

    #[test]
    fn functions() {
        one(BuiltinOp::STABLEHLO_CBRT, &[-27f32, 8.0, 0.0, 1e30, 1e-30], &[-3f32, 2.0, 0.0, 1e10, 1e-10]);
        one(BuiltinOp::STABLEHLO_RSQRT, &[f16::from_f32(4.0)], &[f16::from_f32(0.5)]);
        one(BuiltinOp::STABLEHLO_ABS, &[-7i16, i16::MIN], &[7i16, i16::MIN]);
        one(BuiltinOp::STABLEHLO_NEGATE, &[1u8, 0], &[255u8, 0]);
        one(BuiltinOp::STABLEHLO_COSINE, &[0f32, std::f32::consts::PI], &[1f32, -1.0]);
    }

    #[test]
    fn operators() {
        two(BuiltinOp::STABLEHLO_ADD, &[i8::MAX, -3], &[1, 1], &[i8::MIN, -2]);
        two(BuiltinOp::STABLEHLO_MULTIPLY, &[u32::MAX, 3], &[2, 5], &[u32::MAX - 1, 15]);
        let bools = |v: [u8; 4]| v.map(Bool);
        let (a, b) = (bools([0, 0, 1, 1]), bools([0, 1, 0, 1]));
        two(BuiltinOp::STABLEHLO_ADD, &a, &b, &bools([0, 1, 1, 1]));
        two(BuiltinOp::STABLEHLO_MINIMUM, &a, &b, &bools([0, 0, 0, 1]));
        two(BuiltinOp::STABLEHLO_AND, &[0b1100u16], &[0b1010], &[0b1000]);
        two(BuiltinOp::STABLEHLO_OR, &[0b1100i32], &[0b1010], &[0b1110]);
        two(BuiltinOp::STABLEHLO_SUBTRACT, &[1u32], &[2], &[u32::MAX]);
        two(BuiltinOp::STABLEHLO_DIVIDE, &[-7i32, 9], &[2, -1], &[-3, -9]);
        two(BuiltinOp::STABLEHLO_REMAINDER, &[-7i32, 7], &[3, -3], &[-1, 1]);
        two(
            BuiltinOp::STABLEHLO_REMAINDER,
            &[-7.5f32, 7.5, 6.0, 1e7],
            &[2.0, -2.0, 2.0, 3.0],
            &[-1.5, 1.5, 0.0, 1.0],
        );
        two(BuiltinOp::STABLEHLO_SHIFT_LEFT, &[1i8, 3, 1, 1], &[6, 7, 8, -1], &[64, -128, 0, 0]);
        two(BuiltinOp::STABLEHLO_SHIFT_LEFT, &[1i32, 3, 1, 1], &[6, 31, 32, -1], &[64, i32::MIN, 0, 0]);
    }

    #[test]
    fn comparisons_choices_and_bounds() {
        let three = |data: [f32; 3]| T::new(&[3], &data);
        let params = StablehloCompareParams::default()
            .comparison_direction(ComparisonDirection::Ne)
            .compare_type(ComparisonType::NoType);
        let inputs = [Some(three([1.0, 2.0, f32::NAN])), Some(three([1.0, 1.0, f32::NAN]))];
        let truths = T::new(&[3], &[Bool(0), Bool(1), Bool(1)]);
        check(BuiltinOp::STABLEHLO_COMPARE, 1, params.into(), &inputs, std::slice::from_ref(&truths));
        let inputs = [Some(truths), Some(three([1.0, 2.0, 3.0])), Some(three([4.0, 5.0, 6.0]))];
        check(BuiltinOp::STABLEHLO_SELECT, 1, Params::None, &inputs, &[three([4.0, 2.0, 3.0])]);
        let bound = |value: f32| Some(T::new(&[], &[value]).constant());
        let inputs = [bound(0.0), Some(three([-1.0, f32::NAN, 9.0])), bound(6.0)];
        check(BuiltinOp::STABLEHLO_CLAMP, 1, Params::None, &inputs, &[three([0.0, f32::NAN, 6.0])]);
        let inputs = [
            Some(T::new(&[], &[0i16])),
            Some(T::new(&[3], &[-5i16, 5, 15])),
            Some(T::new(&[3], &[9i16, 3, 9])),
        ];
        check(BuiltinOp::STABLEHLO_CLAMP, 1, Params::None, &inputs, &[T::new(&[3], &[0i16, 3, 9])]);
    }
}
