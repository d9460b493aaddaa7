//! The elementwise StableHLO ops for which LiteRT registers kernels.

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[
    (
        OpKind::FUNCTION,
        &[
            Op::STABLEHLO_LOGISTIC,
            Op::STABLEHLO_COSINE,
            Op::STABLEHLO_EXPONENTIAL,
            Op::STABLEHLO_LOG,
            Op::STABLEHLO_POWER,
            Op::STABLEHLO_REMAINDER,
            Op::STABLEHLO_TANH,
            Op::STABLEHLO_CBRT,
        ],
    ),
    (
        OpKind::ROUNDED,
        &[
            Op::STABLEHLO_ADD,
            Op::STABLEHLO_DIVIDE,
            Op::STABLEHLO_MULTIPLY,
            Op::STABLEHLO_RSQRT,
            Op::STABLEHLO_SUBTRACT,
        ],
    ),
    (
        OpKind::EXACT,
        &[
            Op::STABLEHLO_MAXIMUM,
            Op::STABLEHLO_MINIMUM,
            Op::STABLEHLO_ABS,
            Op::STABLEHLO_AND,
            Op::STABLEHLO_OR,
            Op::STABLEHLO_FLOOR,
            Op::STABLEHLO_NEGATE,
            Op::STABLEHLO_SHIFT_LEFT,
            Op::STABLEHLO_CLAMP,
            Op::STABLEHLO_COMPARE,
            Op::STABLEHLO_CONVERT,
        ],
    ),
    (OpKind::MOVED, &[Op::STABLEHLO_SELECT]),
];

pub(super) fn cases(out: &mut Vec<Case>) {
    let arithmetic: &[TensorType] =
        &[Bool, Float32, Float64, Float16, UInt8, UInt16, Int32, UInt32, Int64, UInt64];
    for (op, types) in [
        (Op::STABLEHLO_ADD, arithmetic),
        (Op::STABLEHLO_MULTIPLY, arithmetic),
        (Op::STABLEHLO_MAXIMUM, arithmetic),
        (Op::STABLEHLO_MINIMUM, arithmetic),
        (Op::STABLEHLO_AND, &[Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64]),
        (Op::STABLEHLO_SHIFT_LEFT, &[Int8, Int16, Int32]),
    ] {
        for &ty in types {
            for shape in [&[5][..], &[2, 3, 4]] {
                let right = match op {
                    Op::STABLEHLO_SHIFT_LEFT => x(ty, shape).range(0.0, 5.0),
                    _ => x(ty, shape),
                };
                out.push(Case::new(op, Params::None, [x(ty, shape), right]));
            }
        }
    }
    for op in [Op::STABLEHLO_ADD, Op::STABLEHLO_MULTIPLY, Op::STABLEHLO_MAXIMUM, Op::STABLEHLO_MINIMUM] {
        for ty in [Int8, Int16] {
            let scale = if ty == Int8 { 0.05 } else { 0.0002 };
            let inputs = [x(ty, &[3, 7]).q(scale, 0), x(ty, &[3, 7]).q(scale, 0)];
            out.push(Case::new(op, Params::None, inputs).q(scale, 0).detail("quantized"));
        }
    }
}
