//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR,
//! RIGHT_SHIFT.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::{Binary, Spec};
use delegraph_shaders::{Activation, cast};

use super::{GpuOp, activation};
use crate::graph::{Element, ValueId};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::ADD, max_version: 6, lower },
    GpuOp { op: BuiltinOp::SUB, max_version: 5, lower },
    GpuOp { op: BuiltinOp::MUL, max_version: 8, lower },
    GpuOp { op: BuiltinOp::DIV, max_version: 2, lower },
    GpuOp { op: BuiltinOp::MAXIMUM, max_version: 4, lower },
    GpuOp { op: BuiltinOp::MINIMUM, max_version: 4, lower },
    GpuOp { op: BuiltinOp::POW, max_version: 1, lower },
    GpuOp { op: BuiltinOp::SQUARED_DIFFERENCE, max_version: 2, lower },
    GpuOp { op: BuiltinOp::FLOOR_DIV, max_version: 3, lower },
    GpuOp { op: BuiltinOp::FLOOR_MOD, max_version: 2, lower },
    GpuOp { op: BuiltinOp::ATAN2, max_version: 1, lower },
    GpuOp { op: BuiltinOp::BITWISE_XOR, max_version: 1, lower },
    GpuOp { op: BuiltinOp::RIGHT_SHIFT, max_version: 1, lower },
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
    let activation = fused.map(activation).transpose()?.unwrap_or(Activation::None);
    push(cx, binary, activation)
}

/// The steps of an operator on inputs 0 and 1.
pub(super) fn push(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    activation: Activation,
) -> Result<(), Rejection> {
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    let Some((bits, signed)) = cx.narrow(inputs[0]) else { return push_on(cx, op, inputs, activation) };
    let output = cx.output(0)?;
    let quantized =
        matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::SquaredDifference);
    if quantized && (bits == 8 || cx.affine(output).is_some()) {
        if cx.narrow(output) != Some((bits, signed)) {
            return Err(unsupported("an output of another type than the operands"));
        }
        cx.allow_wide();
        let inputs = [cx.input(0)?, cx.input(1)?];
        return push_on(cx, op, inputs, activation);
    }
    push_narrow(cx, op, inputs, activation)
}

/// An operator on integers of less than a word, whatever they stand for: the results wrap around as they do there.
pub(super) fn push_narrow(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    [a, mut b]: [ValueId; 2],
    activation: Activation,
) -> Result<(), Rejection> {
    let output = cx.output(0)?;
    let narrow = cx.narrow(output);
    if let (Binary::ShiftRight, Some((bits, _))) = (op, narrow) {
        // Of an unsigned number the last bit stays.
        let most = cx.new_constant(&[1], Element::I32, &[bits as i32 - 1]);
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

/// One step for an operator on these values.
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

/// One step for an operator on these values, into another.
pub(super) fn push_to(
    cx: &mut Lowering<'_, '_, '_>,
    op: Binary,
    [a, b]: [ValueId; 2],
    activation: Activation,
    output: ValueId,
) -> Result<(), Rejection> {
    if cx.element(a) != cx.element(b) {
        return Err(unsupported("operands of different types"));
    }
    if cx.element(a) != Element::F32 && cx.has_input(1) && cx.is_constant(1) {
        // An error of the node, which a shader cannot report. What is computed only while running is not checked: an
        // integer divided by 0 is that integer.
        let operand = cx.constant_words(1)?;
        match op {
            Binary::Div | Binary::FloorDiv | Binary::FloorMod | Binary::Remainder if operand.contains(&0) => {
                return Err(unsupported("a division by 0"));
            }
            Binary::Pow if operand.iter().any(|&power| power.cast_signed() < 0) => {
                return Err(unsupported("an integer to a negative power"));
            }
            _ => {}
        }
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
    fn integers() {
        let result = |values: [i32; 3]| [T::new(&[3], &values)];
        let a = || Some(T::new(&[3], &[7_i32, -7, 12]));
        let check = |op, params, b: [i32; 3], expected| {
            check(op, 1, params, &[a(), Some(T::new(&[3], &b))], &result(expected));
        };
        let params = Params::Add(AddParams { fused_activation_function: Fused::None, pot_scale_int16: true });
        check(BuiltinOp::ADD, params, [1, 2, 3], [8, -5, 15]);
        let params = Params::Div(DivParams { fused_activation_function: Fused::None });
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
        let add =
            || Params::Add(AddParams { fused_activation_function: Fused::None, pot_scale_int16: false });
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
            Params::Add(AddParams { fused_activation_function: Fused::None, pot_scale_int16: false });
        check(BuiltinOp::ADD, 3, params, &[a, b], &[sum]);
    }

    #[test]
    fn what_cannot_be_computed_is_rejected() {
        let rejected = |op, b: [i32; 2]| {
            let inputs = [Some(T::new(&[2], &[7, -7])), Some(T::new(&[2], &b).constant())];
            let said = support(op, 1, Params::None, &inputs, &[T::new(&[2], &[0, 0])]);
            assert!(said.is_none_or(|said| matches!(said, Err(Rejection::UnsupportedParam(_)))));
        };
        rejected(BuiltinOp::FLOOR_DIV, [1, 0]);
        rejected(BuiltinOp::POW, [1, -1]);
    }
}
