//! Arithmetic of two inputs.

use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};

use super::prelude::*;

/// Shapes without broadcasting, and with broadcasting of one or several dimensions.
const SHAPES: &[(&[usize], &[usize])] = &[
    (&[2, 3, 5], &[2, 3, 5]),
    (&[2, 3, 5], &[5]),
    (&[], &[2, 3]),
    (&[2, 1, 3, 1], &[1, 4, 1, 5]),
    (&[2, 1, 2, 3, 2], &[1, 3, 2, 1, 2]),
];

fn params(op: Op, fused_activation_function: Activation) -> Params {
    match op {
        Op::ADD => AddParams::default()
            .fused_activation_function(fused_activation_function)
            .pot_scale_int16(false)
            .into(),
        Op::SUB => SubParams::default()
            .fused_activation_function(fused_activation_function)
            .pot_scale_int16(false)
            .into(),
        Op::MUL => MulParams::default().fused_activation_function(fused_activation_function).into(),
        Op::DIV => DivParams::default().fused_activation_function(fused_activation_function).into(),
        _ => Params::None,
    }
}

pub(super) const OP_KINDS: OpKinds = &[
    (OpKind::ROUNDED, &[Op::ADD, Op::SUB, Op::MUL, Op::DIV, Op::SQUARED_DIFFERENCE]),
    (OpKind::EXACT, &[Op::MAXIMUM, Op::MINIMUM, Op::FLOOR_DIV, Op::BITWISE_XOR, Op::RIGHT_SHIFT]),
    (OpKind::FUNCTION, &[Op::POW, Op::FLOOR_MOD, Op::ATAN2]),
];

pub(super) fn cases(out: &mut Vec<Case>) {
    use Activation::{None as Plain, Relu, Relu6, ReluN1To1};
    let table: &[(Op, &[TensorType])] = &[
        (Op::ADD, &[Float32, Int32, Int64, Int16, Float16]),
        (Op::SUB, &[Float32, Int32, Int64]),
        (Op::MUL, &[Float32, Int32, Int64, Int16, UInt32, Complex64, Float16]),
        (Op::DIV, &[Float32, Int32]),
        (Op::MAXIMUM, &[Float32, Int8, UInt8, Int16, Int32, Int64, Float16, BFloat16]),
        (Op::MINIMUM, &[Float32, Int8, UInt8, Int16, Int32, Int64, Float16, BFloat16]),
        (Op::POW, &[Float32, Int32]),
        (Op::SQUARED_DIFFERENCE, &[Float32, Int32]),
        (Op::FLOOR_DIV, &[Float32, Int8, Int16, Int32]),
        (Op::FLOOR_MOD, &[Float32, Int8, Int16, Int32, Int64]),
        (Op::ATAN2, &[Float32, Float64, Float16, BFloat16]),
        (Op::BITWISE_XOR, &[Int8, UInt8, Int16, UInt16, Int32, UInt32]),
        (Op::RIGHT_SHIFT, &[Int8, UInt8, Int16, UInt16, Int32, UInt32]),
    ];
    for &(op, types) in table {
        for &ty in types {
            for (i, &(a, b)) in SHAPES.iter().enumerate() {
                // ATAN2 requires equal ranks; its output has the shape of the first input.
                if op == Op::ATAN2 && a != b {
                    continue;
                }
                let (left, mut right) = (x(ty, a), x(ty, b));
                let left = match (op, ty) {
                    (Op::POW, Float32) => left.range(0.1, 3.0),
                    (Op::POW, _) => left.range(-3.0, 3.0),
                    _ => left,
                };
                right = match (op, ty) {
                    (Op::DIV | Op::FLOOR_DIV | Op::FLOOR_MOD, Float32) => right.range(0.5, 3.0),
                    (Op::DIV | Op::FLOOR_DIV | Op::FLOOR_MOD, _) => right.range(1.0, 5.0),
                    (Op::POW, Int32) => right.range(0.0, 4.0),
                    (Op::RIGHT_SHIFT, _) => right.range(0.0, 9.0),
                    _ => right,
                };
                let case = Case::new(op, params(op, Plain), [left, right]);
                // Extrema require one scale for all operands.
                let extremum = matches!(op, Op::MAXIMUM | Op::MINIMUM) && quantum(ty).is_some();
                out.push(if extremum { extreme(op, ty, a, b) } else { case }.detail(format!("shapes{i}")));
            }
        }
    }
    for (op, ty) in
        [Op::DIV, Op::FLOOR_DIV, Op::FLOOR_MOD].into_iter().flat_map(|op| [(op, Float32), (op, Int32)])
    {
        let negative = [x(ty, &[4, 6]).range(-9.0, 9.0), x(ty, &[6]).range(-5.0, -1.0)];
        out.push(Case::new(op, params(op, Plain), negative).detail("negative"));
    }
    for op in [Op::ADD, Op::SUB, Op::MUL, Op::DIV] {
        for activation in [Relu, Relu6, ReluN1To1] {
            for ty in [Float32, Int32] {
                let right = x(ty, &[5]).range(1.0, 4.0);
                let case = Case::new(op, params(op, activation), [x(ty, &[2, 3, 5]), right]);
                out.push(case.detail(format!("{activation:?}").to_lowercase()));
            }
        }
    }
    for op in [Op::ADD, Op::SUB, Op::MUL, Op::DIV, Op::SQUARED_DIFFERENCE] {
        quantized(out, op);
    }
    // 16-bit operands whose scales are powers of two.
    let pot = AddParams::default().fused_activation_function(Plain).pot_scale_int16(true);
    let inputs = [x(Int16, &[2, 9]).q(1.0 / 4096.0, 0), x(Int16, &[2, 9]).q(1.0 / 2048.0, 0)];
    out.push(Case::new(Op::ADD, pot, inputs.clone()).q(1.0 / 2048.0, 0).detail("power_of_two"));
    let pot = SubParams::default().fused_activation_function(Plain).pot_scale_int16(true);
    out.push(Case::new(Op::SUB, pot, inputs).q(1.0 / 2048.0, 0).detail("power_of_two"));
    // The product of the input scales is at least the scale of the output.
    let inputs = [x(Int8, &[9]).range(-9.0, 9.0).q(1.0, 0), x(Int8, &[9]).range(-9.0, 9.0).q(1.0, 0)];
    out.push(Case::new(Op::MUL, params(Op::MUL, Plain), inputs).q(1.0, 0).detail("scale1"));
}

fn extreme(op: Op, ty: TensorType, a: &[usize], b: &[usize]) -> Case {
    Case::new(op, Params::None, [x(ty, a).auto(), x(ty, b).auto()]).auto(ty)
}

/// Operands with different scales and zero points.
fn quantized(out: &mut Vec<Case>, op: Op) {
    use Activation::{None as Plain, Relu, Relu6};
    let types = if op == Op::SQUARED_DIFFERENCE { &[Int8][..] } else { &[Int8, UInt8, Int16] };
    for &ty in types {
        let zero = |z: i64| match ty {
            Int8 => z,
            UInt8 => z + 128,
            _ => 0,
        };
        let scale = |s: f32| if ty == Int16 { s / 200.0 } else { s };
        for (i, &(a, b)) in SHAPES.iter().enumerate() {
            for activation in [Plain, Relu, Relu6] {
                if activation != Plain && (i > 0 || op == Op::SQUARED_DIFFERENCE) {
                    continue;
                }
                let right = match (op, ty) {
                    (Op::DIV, UInt8) => x(ty, b).range(140.0, 250.0),
                    (Op::DIV, _) => x(ty, b).range(20.0, 120.0),
                    _ => x(ty, b),
                };
                let inputs = [x(ty, a).q(scale(0.04), zero(-4)), right.q(scale(0.03), zero(7))];
                let case = Case::new(op, params(op, activation), inputs).q(scale(0.07), zero(-12));
                out.push(case.detail(format!("quantized_shapes{i}_{activation:?}").to_lowercase()));
            }
        }
    }
}
