//! Comparisons and the logic of two inputs.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(
    OpKind::EXACT,
    &[
        Op::EQUAL,
        Op::NOT_EQUAL,
        Op::LESS,
        Op::LESS_EQUAL,
        Op::GREATER,
        Op::GREATER_EQUAL,
        Op::LOGICAL_AND,
        Op::LOGICAL_OR,
    ],
)];

pub(super) fn cases(out: &mut Vec<Case>) {
    let shapes: &[(&[usize], &[usize])] =
        &[(&[3, 8], &[3, 8]), (&[2, 3, 4], &[4]), (&[], &[5]), (&[2, 1, 3, 1], &[1, 4, 1, 2])];
    let equalities: &[TensorType] = &[Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16];
    let orders: &[TensorType] = &[Float32, Int8, UInt8, Int16, Int32, Int64, Float16, BFloat16];
    let ops = [
        (Op::EQUAL, equalities),
        (Op::NOT_EQUAL, equalities),
        (Op::LESS, orders),
        (Op::LESS_EQUAL, orders),
        (Op::GREATER, orders),
        (Op::GREATER_EQUAL, orders),
        (Op::LOGICAL_AND, &[Bool][..]),
        (Op::LOGICAL_OR, &[Bool]),
    ];
    for (op, types) in ops {
        for &ty in types {
            if ty == BFloat16 && matches!(op, Op::LESS_EQUAL | Op::GREATER_EQUAL) {
                continue;
            }
            for (i, &(a, b)) in shapes.iter().enumerate() {
                // A small range, so that some elements are equal.
                let small = |shape| match ty {
                    Float32 => x(ty, shape).with(&[1.0f32, -1.0, 0.5, -0.0, 0.0, 2.0, 7.5]),
                    UInt8 | Bool => x(ty, shape).range(0.0, if ty == Bool { 1.0 } else { 3.0 }),
                    _ => x(ty, shape).range(-2.0, 2.0),
                };
                // LiteRT aborts for 8-bit operands without a scale.
                let small =
                    |shape| if matches!(ty, Int8 | UInt8) { small(shape).q(0.05, 1) } else { small(shape) };
                let case = Case::new(op, Params::None, [small(a), small(b)]).outputs([Output::of(Bool)]);
                let verdict = match (op, ty) {
                    (Op::NOT_EQUAL, Int16) => {
                        Verdict::NotCompared("LiteRT registers INT16, but does not write the output")
                    }
                    _ => Verdict::LiteRt,
                };
                out.push(case.detail(format!("shapes{i}")).verdict(verdict));
            }
        }
        if matches!(op, Op::LOGICAL_AND | Op::LOGICAL_OR) {
            continue;
        }
        for ty in [Int8, UInt8] {
            let zero = if ty == Int8 { 0 } else { 128 };
            let inputs = [x(ty, &[4, 16]).q(0.05, zero - 3), x(ty, &[16]).q(0.08, zero + 9)];
            let case = Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]);
            out.push(case.detail("rescaled"));
        }
        let special = [f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0];
        let inputs = [given(&[6, 1], &special), given(&[6], &special)];
        out.push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]).detail("special"));
    }
    for op in [Op::EQUAL, Op::NOT_EQUAL] {
        let inputs = [strings(&[4], &["a", "", "ab", "Grüße"]), strings(&[4], &["a", "b", "ba", "Grüße"])];
        out.push(Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]));
    }
}
