//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR,
//! RIGHT_SHIFT.

use delegraph_core::TensorType::{
    BFloat16, Float16, Float32, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32,
};
use delegraph_core::error::InvalidData;
use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::Activation as Fused;
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::quantized::binary::{self, Scaled};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::{Binary, Spec};
use delegraph_shaders::binary_quantized::{Operator, Spec as Quantized};
use delegraph_shaders::check::Condition;
use delegraph_shaders::{Activation, cast, long};

use super::quantize::factor;
use super::{GpuOp, activation, invalid_scale, mixed_types};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, Fault, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::ADD, 6, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::SUB, 5, &[Float32, Int32, UInt8, Int64, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::MUL, 8, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8, UInt32], lower),
    GpuOp::new(BuiltinOp::DIV, 2, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::MAXIMUM, 4, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::MINIMUM, 4, &[Float32, Float16, Int32, UInt8, Int64, Int16, Int8, BFloat16], lower),
    GpuOp::new(BuiltinOp::POW, 1, &[Float32, Int32], lower),
    GpuOp::new(BuiltinOp::SQUARED_DIFFERENCE, 2, &[Float32, Int32, Int8], lower),
    GpuOp::new(BuiltinOp::FLOOR_DIV, 3, &[Float32, Int32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::FLOOR_MOD, 2, &[Float32, Int32, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::ATAN2, 1, &[Float32, Float16, BFloat16], lower),
    GpuOp::new(BuiltinOp::BITWISE_XOR, 1, &[Int32, UInt8, Int16, Int8, UInt32, UInt16], lower),
    GpuOp::new(BuiltinOp::RIGHT_SHIFT, 1, &[Int32, UInt8, Int16, Int8, UInt32, UInt16], lower),
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
        Some(BuiltinOp::ATAN2) => (Binary::Atan2, None),
        Some(BuiltinOp::BITWISE_XOR) => (Binary::BitwiseXor, None),
        Some(BuiltinOp::RIGHT_SHIFT) => (Binary::ShiftRight, None),
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    if cx.ty(0) == Some(TensorType::Int64) {
        return long(cx, binary, fused.unwrap_or(Fused::None));
    }
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    let arithmetic =
        matches!(binary, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::SquaredDifference);
    if let Some((bits, _)) = cx.narrow(inputs[0]).filter(|_| arithmetic) {
        let output = cx.output(0)?;
        if bits == 8 || cx.affine(output).is_some() {
            return quantized(cx, binary, fused.unwrap_or(Fused::None), inputs);
        }
    }
    let activation = fused.map(activation).transpose()?.unwrap_or(Activation::None);
    push(cx, binary, activation)
}

/// An operator on 64-bit integers.
fn long(cx: &mut Lowering<'_, '_, '_>, op: Binary, fused: Fused) -> Result<(), Rejection> {
    let op = match op {
        Binary::Add => long::Operator::Add,
        Binary::Sub => long::Operator::Sub,
        Binary::Mul => long::Operator::Mul,
        Binary::Maximum => long::Operator::Maximum,
        Binary::Minimum => long::Operator::Minimum,
        _ => return Err(cx.wrong_type(0)),
    };
    let range = match fused {
        Fused::None => None,
        Fused::Relu => Some([0, i64::MAX]),
        Fused::ReluN1To1 => Some([-1, 1]),
        Fused::Relu6 => Some([0, 6]),
        Fused::Tanh | Fused::SignBit => {
            let text = format!(
                "fused activation {fused:?} of INT64; NONE, RELU, RELU_N1_TO_1 and RELU6 are supported"
            );
            return Err(unsupported(text));
        }
    };
    push_long(cx, op, range)
}

/// Adds the step of an operator on 64-bit integers.
pub(super) fn push_long(
    cx: &mut Lowering<'_, '_, '_>,
    op: long::Operator,
    range: Option<[i64; 2]>,
) -> Result<(), Rejection> {
    let inputs = [cx.long_input(0)?, cx.long_input(1)?];
    let output = if op.compares() { cx.output(0)? } else { cx.long_output(0)? };
    let [a, b] = [cx.input_shape(0)?, cx.input_shape(1)?];
    cx.push(long::Spec { op, range, a, b, output: cx.output_shape(0)? }, &inputs, output)
}

/// The fixed-point parameters of an operator on quantized integers.
#[derive(Default)]
pub(super) struct Factors {
    pub zeros: [i32; 2],
    pub left: u32,
    pub inputs: [Multiplier; 2],
    pub output: Multiplier,
    pub zero: i32,
    pub range: (i32, i32),
    pub grouped: bool,
}

/// Adds the step of an operator on quantized integers.
pub(super) fn push_quantized(
    cx: &mut Lowering<'_, '_, '_>,
    op: Operator,
    factors: Factors,
    inputs: [ValueId; 2],
) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let [a, b] = inputs.map(|id| cx.shape(id));
    let spec = Quantized {
        op,
        zeros: factors.zeros,
        left: factors.left,
        inputs: factors.inputs.map(factor),
        factor: factor(factors.output),
        zero: factors.zero,
        range: factors.range.into(),
        grouped: factors.grouped,
        a,
        b,
        output: cx.shape(output),
    };
    cx.push(spec, &inputs, output)
}

/// An operator on quantized integers, in the fixed-point arithmetic of the CPU kernels.
fn quantized(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    fused: Fused,
    inputs: [ValueId; 2],
) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let types = [inputs[0], inputs[1], output].map(|id| cx.narrow(id));
    let wide = types[0] == Some((16, true));
    let fractions = op == Binary::Mul && wide && cx.is_bytes(output);
    if types[0] != types[1] || types[0] != types[2] && !fractions {
        return Err(mixed_types(cx));
    }
    if op == Binary::SquaredDifference && types[0] != Some((8, true)) {
        return Err(cx.wrong_type(0));
    }
    let to = cx.steps(output)?;
    let range = to.range(fused).map_err(invalid_scale)?;
    if fractions {
        let factors = Factors { zero: to.zero, range, ..Default::default() };
        return push_quantized(cx, Operator::MulFractions, factors, inputs);
    }
    let from = [cx.steps(inputs[0])?, cx.steps(inputs[1])?];
    let zeros = from.map(|steps| steps.zero);
    let pot = match op {
        Binary::Add => wide && cx.params::<AddParams>()?.pot_scale_int16,
        Binary::Sub => wide && cx.params::<SubParams>()?.pot_scale_int16,
        _ => false,
    };
    if pot && let Some(shifts) = binary::power_of_two_shifts(from, to).map_err(invalid_scale)? {
        let op = if op == Binary::Add { Operator::AddShifted } else { Operator::SubShifted };
        let inputs_by = shifts.map(|shift| Multiplier { multiplier: 0, shift });
        return push_quantized(cx, op, Factors { inputs: inputs_by, range, ..Default::default() }, inputs);
    }
    if let (Binary::Mul | Binary::Div, zero) = (op, to.zero) {
        if op == Binary::Div && !cx.is_constant(1) {
            let fault = Fault::Other(InvalidData::DivisionByZero);
            cx.check(inputs[1], Condition::Differs(from[1].zero), fault)?;
        } else if op == Binary::Div {
            let divisors = cx.constant_words(1)?;
            if divisors.iter().any(|word| word.cast_signed() == from[1].zero) {
                return Err(unsupported("a constant divisor of 0; only other divisors are supported"));
            }
        }
        let (op, found) = match op {
            Binary::Mul => (Operator::Mul, binary::product(from, to)),
            _ => (Operator::Div, binary::quotient(from, to)),
        };
        let output = found.map_err(invalid_scale)?;
        return push_quantized(cx, op, Factors { zeros, output, zero, range, ..Default::default() }, inputs);
    }
    let (op, scaled) = match op {
        Binary::Add => (Operator::Add, Scaled::sum(from, to)),
        Binary::Sub => (Operator::Sub, Scaled::sum(from, to)),
        _ => (Operator::SquaredDifference, Scaled::squared(from, to)),
    };
    let scaled = scaled.map_err(invalid_scale)?;
    if scaled.output.shift > 0 {
        return Err(unsupported(format!(
            "output scale {}; \
            only scales close to the inputs' or larger are supported",
            to.scale
        )));
    }
    // For 16 bits and equal shapes, LiteRT's kernel processes groups of elements and rounds their inputs only once.
    let grouped = op == Operator::Add && wide && cx.shape(inputs[0]) == cx.shape(inputs[1]);
    let factors = Factors {
        zeros,
        left: scaled.left_shift,
        inputs: scaled.inputs,
        output: scaled.output,
        zero: scaled.zero_point,
        range,
        grouped,
    };
    push_quantized(cx, op, factors, inputs)
}

/// Adds the steps of an operator on inputs 0 and 1.
pub(super) fn push(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    activation: Activation,
) -> Result<(), Rejection> {
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    if cx.is_narrow(inputs[0]) {
        return push_narrow(cx, op, inputs, activation);
    }
    if activation == Activation::RELU_N1_TO_1 && cx.element(inputs[0]) == Element::I32 {
        // For integers, the operator's own activation supports only bounds from 0 on.
        let output = cx.output(0)?;
        let shape = cx.shape(output);
        let [whole, raised] = [(); 2].map(|()| cx.temporary_of(&shape, Element::I32));
        let [low, high] = [-1, 1].map(|bound| cx.new_constant(&[], Element::I32, &[bound]));
        push_to(cx, op, inputs, Activation::None, whole)?;
        push_to(cx, Binary::Maximum, [whole, low], Activation::None, raised)?;
        return push_to(cx, Binary::Minimum, [raised, high], Activation::None, output);
    }
    push_on(cx, op, inputs, activation)
}

/// An operator on the stored values of integers narrower than a word: results wrap around at the width of the type.
pub(super) fn push_narrow(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    [a, mut b]: [ValueId; 2],
    activation: Activation,
) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let narrow = cx.narrow(output);
    if let (Binary::ShiftRight, Some((bits, _))) = (op, narrow) {
        // Larger shifts count as the number of bits minus one, which keeps the highest bit of an unsigned number.
        let most = cx.new_constant(&[], Element::I32, &[bits as i32 - 1]);
        let limited = cx.temporary_of(&cx.shape(b), Element::I32);
        push_to(cx, Binary::Minimum, [b, most], Activation::None, limited)?;
        b = limited;
    }
    use Binary::{BitwiseAnd, BitwiseOr, BitwiseXor, FloorMod, Maximum, Minimum, Remainder, ShiftRight};
    let fits = [BitwiseAnd, BitwiseOr, BitwiseXor, FloorMod, Maximum, Minimum, Remainder, ShiftRight];
    if op.compares() || fits.contains(&op) {
        return push_to(cx, op, [a, b], activation, output);
    }
    let whole = cx.temporary_of(&cx.shape(output), Element::I32);
    push_to(cx, op, [a, b], activation, whole)?;
    let elements = cx.shape(output).iter().product();
    let spec = cast::Spec { input: Element::I32, output: Element::I32, narrow, elements };
    cx.push(spec, &[whole], output)
}

/// Adds the step of an operator on these values, into output 0.
pub(super) fn push_on(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    [a, b]: [ValueId; 2],
    activation: Activation,
) -> Result<(), Rejection> {
    let output =
        if op.compares() || cx.element(a) != Element::F32 { cx.output(0)? } else { cx.real_output(0)? };
    push_to(cx, op, [a, b], activation, output)
}

/// Adds the step of an operator on these values, into `output`.
pub(super) fn push_to(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    [a, b]: [ValueId; 2],
    activation: Activation,
    output: ValueId,
) -> Result<(), Rejection> {
    if cx.element(a) != cx.element(b) {
        return Err(mixed_types(cx));
    }
    check_operand(cx, op, b)?;
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

/// Checks that divisors are not 0 and that powers of integers are not negative: constants here, others in each run.
fn check_operand(cx: &mut Lowering<'_, '_, '_>, op: Binary, b: ValueId) -> Result<(), Rejection> {
    let floats = cx.element(b) == Element::F32;
    let (condition, data) = match op {
        Binary::FloorDiv if floats => (Condition::NotZero, InvalidData::DivisionByZero),
        Binary::Div | Binary::FloorDiv | Binary::FloorMod | Binary::Remainder if !floats => {
            (Condition::Differs(0), InvalidData::DivisionByZero)
        }
        Binary::Pow if !floats => (Condition::Within(vec![[0, i32::MAX]]), InvalidData::NegativePower),
        _ => return Ok(()),
    };
    if !cx.is_constant(1) {
        return cx.check(b, condition, Fault::Other(data));
    }
    let operand = cx.constant_words(1)?;
    let zero = |word: &u32| *word == 0 || floats && *word == (-0.0_f32).to_bits();
    match op {
        Binary::Pow if operand.iter().any(|&power| power.cast_signed() < 0) => {
            Err(unsupported("a negative power of an integer; only powers from 0 on are supported"))
        }
        Binary::Pow => Ok(()),
        _ if operand.iter().any(zero) => {
            Err(unsupported("a constant divisor of 0; only other divisors are supported"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;

    #[test]
    fn operators_broadcast_and_activate() {
        let a = Some(T::new(&[2, 2], &[1.0_f32, 2.0, 3.0, -4.0]));
        let b = Some(T::new(&[2], &[10.0_f32, -1.0]).constant());
        let result = |values: [f32; 4]| [T::new(&[2, 2], &values)];
        let inputs = [a.clone(), b];
        let params = MulParams::default().fused_activation_function(Fused::Relu);
        check(BuiltinOp::MUL, 1, Params::Mul(params), &inputs, &result([10.0, 0.0, 30.0, 4.0]));
        check(BuiltinOp::MAXIMUM, 1, Params::None, &inputs, &result([10.0, 2.0, 10.0, -1.0]));
        let inputs = [a, Some(T::new(&[], &[2.0_f32]).constant())];
        check(BuiltinOp::FLOOR_DIV, 2, Params::None, &inputs, &result([0.0, 1.0, 1.0, -2.0]));
    }

    #[test]
    fn a_fused_tanh_is_refused() {
        let answer = |fused| {
            let input = Some(T::new(&[2], &[1.0_f32, 2.0]));
            let params = Params::Mul(MulParams::default().fused_activation_function(fused));
            support(BuiltinOp::MUL, 1, params, &[input.clone(), input], &[T::new(&[2], &[1.0_f32, 4.0])])
        };
        assert!(answer(Fused::Relu6).is_none_or(|answer| answer.is_ok()));
        // The CPU's kernels refuse it, too: TFLite runs it in cells of recurrent ops alone.
        for fused in [Fused::Tanh, Fused::SignBit] {
            assert!(answer(fused).is_none_or(|answer| matches!(answer, Err(Rejection::UnsupportedParam(_)))));
        }
    }

    #[test]
    fn integers_of_64_bits() {
        let numbers = [3_i64 << 40, -1, i64::MIN, 0x1_2345_6789, -7_000_000_000, 6];
        let others = [-5_i64, 1, -1, 0x9876_5432_1001, 3, -0x8000_0001];
        let run = |op, params, expected: fn(i64, i64) -> i64| {
            let expected: Vec<i64> =
                numbers.iter().flat_map(|a| others.iter().map(move |b| expected(*a, *b))).collect();
            let inputs = [Some(T::new(&[6, 1], &numbers)), Some(T::new(&[6], &others))];
            check(op, 1, params, &inputs, &[T::new(&[6, 6], &expected)]);
        };
        let none = Fused::None;
        let add = |fused| Params::Add(AddParams::default().fused_activation_function(fused));
        run(BuiltinOp::ADD, add(none), i64::wrapping_add);
        run(BuiltinOp::ADD, add(Fused::Relu6), |a, b| a.wrapping_add(b).clamp(0, 6));
        run(BuiltinOp::ADD, add(Fused::ReluN1To1), |a, b| a.wrapping_add(b).clamp(-1, 1));
        let sub = SubParams::default().fused_activation_function(none);
        run(BuiltinOp::SUB, Params::Sub(sub), i64::wrapping_sub);
        let mul = MulParams::default().fused_activation_function(none);
        run(BuiltinOp::MUL, Params::Mul(mul), i64::wrapping_mul);
        run(BuiltinOp::MAXIMUM, Params::None, i64::max);
        run(BuiltinOp::MINIMUM, Params::None, i64::min);
    }

    #[test]
    fn integers() {
        let result = |values: [i32; 3]| [T::new(&[3], &values)];
        let a = || Some(T::new(&[3], &[7_i32, -7, 12]));
        let check = |op, params, b: [i32; 3], expected| {
            check(op, 1, params, &[a(), Some(T::new(&[3], &b))], &result(expected));
        };
        let params =
            Params::Add(AddParams::default().fused_activation_function(Fused::None).pot_scale_int16(true));
        check(BuiltinOp::ADD, params, [1, 2, 3], [8, -5, 15]);
        let params = MulParams::default().fused_activation_function(Fused::ReluN1To1);
        check(BuiltinOp::MUL, Params::Mul(params), [1, 2, 0], [1, -1, 0]);
        let params = Params::Div(DivParams::default().fused_activation_function(Fused::None));
        check(BuiltinOp::DIV, params, [2, 2, -5], [3, -3, -2]);
        check(BuiltinOp::FLOOR_DIV, Params::None, [2, 2, -5], [3, -4, -3]);
        check(BuiltinOp::FLOOR_MOD, Params::None, [2, 2, -5], [1, 1, -3]);
        check(BuiltinOp::POW, Params::None, [3, 3, 0], [343, -343, 1]);
        check(BuiltinOp::BITWISE_XOR, Params::None, [1, -1, 5], [6, 6, 9]);
        check(BuiltinOp::RIGHT_SHIFT, Params::None, [1, 40, -3], [3, -1, 12]);
    }

    #[test]
    fn integers_of_less_than_a_word_wrap_around() {
        fn run<E: delegraph_core::Element>(
            op: BuiltinOp,
            params: Params,
            a: [E; 3],
            b: [E; 3],
            want: [E; 3],
        ) {
            let inputs = [Some(T::new(&[3], &a)), Some(T::new(&[3], &b))];
            check(op, 1, params, &inputs, &[T::new(&[3], &want)]);
        }
        let add = || {
            Params::Add(AddParams::default().fused_activation_function(Fused::None).pot_scale_int16(false))
        };
        run(BuiltinOp::ADD, add(), [i16::MAX, -3, 5], [1, 1, 6], [i16::MIN, -2, 11]);
        run(BuiltinOp::FLOOR_DIV, Params::None, [i8::MIN, -7, 7], [-1, 2, 2], [i8::MIN, -4, 3]);
        run(BuiltinOp::FLOOR_MOD, Params::None, [-7i16, 7, 7], [2, -2, 2], [1, -1, 1]);
        run(BuiltinOp::BITWISE_XOR, Params::None, [-1i8, 5, 0], [1, 3, 0], [-2, 6, 0]);
        run(BuiltinOp::BITWISE_XOR, Params::None, [u32::MAX, 5, 0], [1, 3, 0], [u32::MAX - 1, 6, 0]);
        run(BuiltinOp::RIGHT_SHIFT, Params::None, [200u8, 200, 9], [9, 1, 0], [1, 100, 9]);
        run(BuiltinOp::RIGHT_SHIFT, Params::None, [-9i8, 9, 9], [9, 1, 2], [-1, 4, 2]);
        run(BuiltinOp::RIGHT_SHIFT, Params::None, [u32::MAX, 8, 9], [31, 1, 40], [1, 4, 0]);
        run(BuiltinOp::MAXIMUM, Params::None, [-9i16, 9, 9], [9, 1, 10], [9, 9, 10]);
        run(BuiltinOp::STABLEHLO_SHIFT_LEFT, Params::None, [1i8, 3, 1], [6, 7, -1], [64, -128, 0]);
    }

    #[test]
    fn quantized_integers_of_16_bits() {
        let a = Some(T::new(&[3], &[100i16, -200, 30_000]).quantized(0.5, 0));
        let b = Some(T::new(&[3], &[8i16, 8, 8]).quantized(0.25, 0));
        let sum = T::new(&[3], &[52i16, -98, 15_002]).quantized(1.0, 0);
        let params =
            Params::Add(AddParams::default().fused_activation_function(Fused::None).pot_scale_int16(false));
        check(BuiltinOp::ADD, 3, params, &[a, b], &[sum]);
    }

    #[test]
    fn what_cannot_be_computed_is_rejected() {
        let rejected = |op, b: [i32; 2]| {
            let inputs = [Some(T::new(&[2], &[7, -7])), Some(T::new(&[2], &b).constant())];
            let answer = support(op, 1, Params::None, &inputs, &[T::new(&[2], &[0, 0])]);
            assert!(answer.is_none_or(|answer| matches!(answer, Err(Rejection::UnsupportedParam(_)))));
        };
        rejected(BuiltinOp::FLOOR_DIV, [1, 0]);
        rejected(BuiltinOp::POW, [1, -1]);
    }
}
