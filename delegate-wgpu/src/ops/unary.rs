//! ABS, CEIL, COS, ELU, EXP, FLOOR, GELU, HARD_SWISH, LEAKY_RELU, LOG, LOGICAL_NOT, LOGISTIC, NEG, RELU, RELU6,
//! RELU_N1_TO_1, RELU_0_TO_1, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE, TANH, ZEROS_LIKE.

use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::error::InvalidData;
use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::Binary;
use delegraph_shaders::check::Condition;
use delegraph_shaders::unary::{Spec, Unary};
use delegraph_shaders::{Activation, cast, table, tile};

use super::binary::push_to;
use super::quantized_table;
use super::{GpuOp, expect_one_of, invalid_scale};
use crate::graph::lowering::Lowering;
use crate::graph::{Element, Fault, Table, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::ABS, 5, &[Float32, Int32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::CEIL, 1, &[Float32], lower),
    GpuOp::new(BuiltinOp::COS, 2, &[Float32, Float16], lower),
    GpuOp::new(BuiltinOp::ELU, 1, &[Float32, Int8], lower),
    GpuOp::new(BuiltinOp::EXP, 2, &[Float32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::FLOOR, 1, &[Float32, Float16, BFloat16], lower),
    GpuOp::new(BuiltinOp::GELU, 3, &[Float32, Float16, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::HARD_SWISH, 1, &[Float32, UInt8, Int8], lower),
    GpuOp::new(BuiltinOp::LEAKY_RELU, 2, &[Float32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::LOG, 2, &[Float32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::LOGICAL_NOT, 1, &[Bool], logical_not),
    GpuOp::new(BuiltinOp::LOGISTIC, 3, &[Float32, Float16, UInt8, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::NEG, 1, &[Float32, Float16, Int32, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::RELU, 3, &[Float32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::RELU6, 3, &[Float32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::RELU_N1_TO_1, 1, &[Float32, UInt8, Int8], lower),
    GpuOp::new(BuiltinOp::RELU_0_TO_1, 1, &[Float32, UInt8, Int8], lower),
    GpuOp::new(BuiltinOp::ROUND, 1, &[Float32, Float16, BFloat16], lower),
    GpuOp::new(BuiltinOp::RSQRT, 3, &[Float32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::SIGN, 2, &[Float32, Int32], lower),
    GpuOp::new(BuiltinOp::SIN, 2, &[Float32, Float16], lower),
    GpuOp::new(BuiltinOp::SQRT, 2, &[Float32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::SQUARE, 1, &[Float32], lower),
    GpuOp::new(BuiltinOp::TANH, 3, &[Float32, Float16, UInt8, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::ZEROS_LIKE, 1, &[Float32, Int32], zeros),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let function = match op.builtin() {
        Some(BuiltinOp::ABS) => Unary::Abs,
        Some(BuiltinOp::CEIL) => Unary::Ceil,
        Some(BuiltinOp::COS) => Unary::Cos,
        Some(BuiltinOp::ELU) => Unary::Elu,
        Some(BuiltinOp::EXP) => Unary::Exp,
        Some(BuiltinOp::FLOOR) => Unary::Floor,
        Some(BuiltinOp::GELU) if cx.params::<GeluParams>()?.approximate => Unary::GeluTanh,
        Some(BuiltinOp::GELU) => Unary::Gelu,
        Some(BuiltinOp::HARD_SWISH) => Unary::HardSwish,
        Some(BuiltinOp::LEAKY_RELU) => Unary::LeakyRelu { alpha: cx.params::<LeakyReluParams>()?.alpha },
        Some(BuiltinOp::LOG) => Unary::Log,
        Some(BuiltinOp::LOGISTIC) => Unary::Logistic,
        Some(BuiltinOp::NEG) => Unary::Neg,
        Some(BuiltinOp::RELU) => Unary::RELU,
        Some(BuiltinOp::RELU6) => Unary::RELU6,
        Some(BuiltinOp::RELU_N1_TO_1) => Unary::RELU_N1_TO_1,
        Some(BuiltinOp::RELU_0_TO_1) => Unary::RELU_0_TO_1,
        Some(BuiltinOp::ROUND) => Unary::Round,
        Some(BuiltinOp::RSQRT) => Unary::Rsqrt,
        Some(BuiltinOp::SIGN) => Unary::Sign,
        Some(BuiltinOp::SIN) => Unary::Sin,
        Some(BuiltinOp::SQRT) => Unary::Sqrt,
        Some(BuiltinOp::SQUARE) => Unary::Square,
        Some(BuiltinOp::TANH) => Unary::Tanh,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let plain = cx.affine(input).is_none() || function == Unary::Neg;
    if cx.element(input) == Element::I32 && plain && matches!(function, Unary::Abs | Unary::Neg | Unary::Sign)
    {
        return of_integers(cx, function, input, output);
    }
    if cx.is_narrow(input) {
        if cx.affine(input).is_none() {
            return Err(cx.wrong_type(0));
        }
        let (from, to) = (cx.steps(input)?, cx.steps(output)?);
        let table = quantized_table::table(function, from, to).map_err(invalid_scale)?;
        if matches!(function, Unary::Rsqrt | Unary::Sqrt) {
            let positive = Condition::Within(vec![[from.zero, from.high]]);
            cx.check(input, positive, Fault::Other(InvalidData::NegativeRoot))?;
        }
        return look_up(cx, input, table.ok_or_else(|| cx.wrong_type(0))?, output);
    }
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    let elements = cx.shape(output).iter().product();
    cx.push(Spec { steps: vec![function], elements }, &[input], output)
}

/// Functions of stored integers; results wrap around at the width of their type.
pub(super) fn of_integers(
    cx: &mut Lowering<'_, '_, '_>,
    function: Unary,
    input: ValueId,
    output: ValueId,
) -> Result<(), Rejection> {
    let shape = cx.shape(input);
    let step = |cx: &mut Lowering<'_, '_, '_>, op, operands| {
        let to = cx.temporary_of(&shape, Element::I32);
        push_to(cx, op, operands, Activation::None, to).map(|()| to)
    };
    let whole = match function {
        Unary::Neg | Unary::Abs => {
            let zero = cx.new_constant(&[], Element::I32, &[0_i32]);
            let negated = step(cx, Binary::Sub, [zero, input])?;
            if function == Unary::Neg { negated } else { step(cx, Binary::Maximum, [input, negated])? }
        }
        Unary::Sign => {
            let [one, other] = [1_i32, -1].map(|bound| cx.new_constant(&[], Element::I32, &[bound]));
            let limited = step(cx, Binary::Minimum, [input, one])?;
            step(cx, Binary::Maximum, [limited, other])?
        }
        _ => return Err(cx.wrong_type(0)),
    };
    let (narrow, elements) = (cx.narrow(output), shape.iter().product());
    let spec = cast::Spec { input: Element::I32, output: Element::I32, narrow, elements };
    cx.push(spec, &[whole], output)
}

/// Whether each element is false.
fn logical_not(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(0, TensorType::Bool)?;
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let no = cx.new_constant(&[], Element::Bool, &[0_u32]);
    push_to(cx, Binary::Equal, [input, no], Activation::None, output)
}

/// Zeros, repeated along every dimension.
fn zeros(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    expect_one_of(cx, 0, GpuOp::NUMBERS)?;
    let input = cx.any_input(0)?;
    let (multiples, element, output) = (cx.shape(input), cx.element(input), cx.output(0)?);
    let ones = vec![1; multiples.len()];
    let zero = cx.new_constant(&ones, element, &[0_u32]);
    cx.push(tile::Spec { input: ones, multiples }, &[zero], output)
}

/// Looks up each integer of `input` in `table`, whose length is a power of two.
pub(super) fn look_up(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    table: Table,
    output: ValueId,
) -> Result<(), Rejection> {
    let (entries, table) = (table.count(), cx.table(table));
    let elements = cx.shape(input).iter().product();
    cx.push(table::Spec { entries, elements }, &[table, input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::{Bool, Params};

    #[test]
    fn functions() {
        let input = T::new(&[5], &[-4.0_f32, -1.0, 0.0, 0.5, 7.0]);
        let run = |op, params, f: &dyn Fn(f32) -> f32| {
            let expected = T::from_fn(&[5], |i| f(input.floats()[i]));
            check(op, 1, params, &[Some(input.clone())], &[expected]);
        };
        run(BuiltinOp::ABS, Params::None, &f32::abs);
        run(BuiltinOp::RELU6, Params::None, &|x| x.clamp(0.0, 6.0));
        run(BuiltinOp::LOGISTIC, Params::None, &|x| 1.0 / (1.0 + (-x).exp()));
        run(BuiltinOp::HARD_SWISH, Params::None, &|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0);
        let params = Params::LeakyRelu(LeakyReluParams::default().alpha(0.25));
        run(BuiltinOp::LEAKY_RELU, params, &|x| if x > 0.0 { x } else { 0.25 * x });
    }

    #[test]
    fn integers_and_truths() {
        fn run<E: delegraph_core::Element>(op: BuiltinOp, input: [E; 3], want: [E; 3]) {
            check(op, 1, Params::None, &[Some(T::new(&[3], &input))], &[T::new(&[3], &want)]);
            check(op, 1, Params::None, &[Some(T::new(&[], &input[..1]))], &[T::new(&[], &want[..1])]);
        }
        run(BuiltinOp::NEG, [i8::MIN, 5, 0], [i8::MIN, -5, 0]);
        run(BuiltinOp::NEG, [i32::MIN, 5, 0], [i32::MIN, -5, 0]);
        run(BuiltinOp::ABS, [i16::MIN, -5, 7], [i16::MIN, 5, 7]);
        run(BuiltinOp::ABS, [i32::MIN, -5, 7], [i32::MIN, 5, 7]);
        run(BuiltinOp::SIGN, [i32::MIN, 0, 7], [-1, 0, 1]);
        run(BuiltinOp::LOGICAL_NOT, [1, 0, 7].map(Bool), [0, 1, 0].map(Bool));
        run(BuiltinOp::ZEROS_LIKE, [1.0_f32, f32::NAN, 7.0], [0.0; 3]);
        let wide = |values: [i16; 3]| T::new(&[3], &values).quantized(0.5, 0);
        check(BuiltinOp::RELU6, 3, Params::None, &[Some(wide([-8, 4, 100]))], &[wide([0, 4, 12])]);
    }
}
