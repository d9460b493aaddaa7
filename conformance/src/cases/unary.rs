//! Elementwise ops with one input.

use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[
    (
        OpKind::EXACT,
        &[
            Op::ABS,
            Op::CEIL,
            Op::FLOOR,
            Op::NEG,
            Op::ROUND,
            Op::SIGN,
            Op::LOGICAL_NOT,
            Op::RELU,
            Op::RELU6,
            Op::RELU_N1_TO_1,
            Op::RELU_0_TO_1,
        ],
    ),
    (
        OpKind::FUNCTION,
        &[Op::COS, Op::EXP, Op::LOG, Op::SIN, Op::LOGISTIC, Op::TANH, Op::HARD_SWISH, Op::ELU, Op::GELU],
    ),
    (OpKind::ROUNDED, &[Op::RSQRT, Op::SQRT, Op::SQUARE, Op::LEAKY_RELU]),
    (OpKind::MOVED, &[Op::ZEROS_LIKE]),
];

pub(super) fn cases(out: &mut Vec<Case>) {
    // The range of inputs per op, and the types other than FLOAT32.
    let table: &[(Op, f64, f64, &[TensorType])] = &[
        (Op::ABS, -4.0, 4.0, &[Int8, Int16, Int32]),
        (Op::CEIL, -4.0, 4.0, &[]),
        (Op::COS, -9.0, 9.0, &[Float16]),
        (Op::ELU, -4.0, 4.0, &[Int8]),
        (Op::EXP, -4.0, 4.0, &[Int8, Int16]),
        (Op::FLOOR, -4.0, 4.0, &[Float16, BFloat16]),
        (Op::HARD_SWISH, -5.0, 5.0, &[Int8, UInt8]),
        (Op::LOG, 0.01, 9.0, &[Int8, Int16]),
        (Op::LOGISTIC, -9.0, 9.0, &[Int8, UInt8, Int16, Float16, BFloat16]),
        (Op::NEG, -4.0, 4.0, &[Int8, Int16, Int32, Int64, Float16, BFloat16]),
        (Op::RELU, -9.0, 9.0, &[Int8, UInt8, Int16]),
        (Op::RELU6, -9.0, 9.0, &[Int8, UInt8, Int16]),
        (Op::RELU_N1_TO_1, -2.0, 2.0, &[Int8, UInt8]),
        (Op::RELU_0_TO_1, -2.0, 2.0, &[Int8, UInt8]),
        (Op::ROUND, -4.0, 4.0, &[Float16, BFloat16]),
        (Op::RSQRT, 0.01, 9.0, &[Int8, Int16]),
        (Op::SIGN, -4.0, 4.0, &[Float64, Int32]),
        (Op::SIN, -9.0, 9.0, &[Float16]),
        (Op::SQRT, 0.01, 9.0, &[Int8, Int16]),
        (Op::SQUARE, -4.0, 4.0, &[]),
        (Op::TANH, -4.0, 4.0, &[Int8, UInt8, Int16, Float16, BFloat16]),
        (Op::ZEROS_LIKE, -4.0, 4.0, &[Int32, Int64]),
    ];
    for &(op, low, high, types) in table {
        for &ty in [Float32].iter().chain(types) {
            for shape in [&[][..], &[7], &[2, 3, 5]] {
                let positive = low > 0.0;
                let case = match ty {
                    Int8 | UInt8 | Int16 => {
                        // Logarithms and roots of negative numbers are errors.
                        let data = if positive { x(ty, shape).range(1.0, 127.0) } else { x(ty, shape) };
                        let zero = if positive { 0 } else { zero_point(ty) };
                        Case::new(op, Params::None, [data.q(scale(ty), zero)])
                            .q(out_scale(op, ty), out_zero(op, ty))
                    }
                    _ => Case::new(op, Params::None, [x(ty, shape).range(low, high)]),
                };
                out.push(case.detail(format!("rank{}", shape.len())));
            }
        }
        let special = [0.0f32, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, 1e30, -1e30];
        if low < 0.0 {
            out.push(Case::new(op, Params::None, [given(&[10], &special)]).detail("special"));
        }
    }
    for shape in [&[][..], &[9], &[2, 3, 5]] {
        out.push(Case::new(Op::LOGICAL_NOT, Params::None, [x(Bool, shape)]));
    }
    for approximate in [false, true] {
        for ty in [Float32, Float16, Int8, UInt8, Int16] {
            for shape in [&[7][..], &[2, 3, 5]] {
                let detail = if approximate { "approximate" } else { "exact" };
                let case = Case::new(
                    Op::GELU,
                    GeluParams::default().approximate(approximate),
                    [x(ty, shape).auto()],
                )
                .auto(ty);
                out.push(case.detail(detail));
            }
        }
    }
    for alpha in [0.1f32, 1.5, -0.5] {
        for ty in [Float32, Int8, UInt8, Int16] {
            let case = Case::new(
                Op::LEAKY_RELU,
                LeakyReluParams::default().alpha(alpha),
                [x(ty, &[2, 3, 5]).auto()],
            )
            .auto(ty);
            out.push(case.detail(format!("alpha{alpha}")));
        }
    }
}

fn scale(ty: TensorType) -> f32 {
    if ty == Int16 { 1.0 / 4096.0 } else { 1.0 / 32.0 }
}

fn zero_point(ty: TensorType) -> i64 {
    match ty {
        Int8 => -5,
        UInt8 => 120,
        _ => 0,
    }
}

/// Returns the output's scale, which some kernels fix.
fn out_scale(op: Op, ty: TensorType) -> f32 {
    match (op, ty) {
        (Op::LOGISTIC, Int16) | (Op::TANH, Int16) => 1.0 / 32768.0,
        (Op::LOGISTIC, _) => 1.0 / 256.0,
        (Op::TANH, _) => 1.0 / 128.0,
        (_, Int16) => 1.0 / 2048.0,
        _ => 1.0 / 24.0,
    }
}

fn out_zero(op: Op, ty: TensorType) -> i64 {
    match (op, ty) {
        (_, Int16) => 0,
        (Op::LOGISTIC, Int8) => -128,
        (Op::LOGISTIC, _) | (Op::TANH, Int8) => 0,
        (Op::TANH, _) => 128,
        (_, Int8) => -9,
        _ => 100,
    }
}
