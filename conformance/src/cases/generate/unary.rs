//! Elementwise ops with one input, on every value of a small type and on shapes of every rank; PRELU, CAST, QUANTIZE,
//! DEQUANTIZE.

use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::unary::{GeluParams, LeakyReluParams};

use super::super::operand::quantum;
use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

/// Op, range of floats, and the types other than FLOAT32.
type Row = (Op, f64, f64, &'static [TensorType]);

pub(super) const TABLE: &[Row] = &[
    (Op::ABS, -4.0, 4.0, &[Int8, Int16, Int32]),
    (Op::CEIL, -4.0, 4.0, &[]),
    (Op::COS, -20.0, 20.0, &[Float16]),
    (Op::ELU, -6.0, 4.0, &[Int8]),
    (Op::EXP, -9.0, 9.0, &[Int8, Int16]),
    (Op::FLOOR, -4.0, 4.0, &[Float16, BFloat16]),
    (Op::GELU, -5.0, 5.0, &[Int8, UInt8, Int16, Float16]),
    (Op::HARD_SWISH, -5.0, 5.0, &[Int8, UInt8]),
    (Op::LEAKY_RELU, -5.0, 5.0, &[Int8, UInt8, Int16]),
    (Op::LOG, 0.001, 9.0, &[Int8, Int16]),
    (Op::LOGISTIC, -20.0, 20.0, &[Int8, UInt8, Int16, Float16]),
    (Op::NEG, -4.0, 4.0, &[Int8, Int16, Int32, Int64, Float16]),
    (Op::RELU, -9.0, 9.0, &[Int8, UInt8, Int16]),
    (Op::RELU6, -3.0, 9.0, &[Int8, UInt8, Int16]),
    (Op::RELU_N1_TO_1, -2.0, 2.0, &[Int8, UInt8]),
    (Op::RELU_0_TO_1, -2.0, 2.0, &[Int8, UInt8]),
    (Op::ROUND, -4.0, 4.0, &[Float16]),
    (Op::RSQRT, 0.001, 9.0, &[Int8, Int16]),
    (Op::SIGN, -4.0, 4.0, &[Float64, Int32]),
    (Op::SIN, -20.0, 20.0, &[Float16]),
    (Op::SQRT, 0.0, 9.0, &[Int8, Int16]),
    (Op::SQUARE, -4.0, 4.0, &[]),
    (Op::TANH, -6.0, 6.0, &[Int8, UInt8, Int16, Float16]),
    (Op::ZEROS_LIKE, -4.0, 4.0, &[Int32, Int64]),
];

/// Returns the params of an op, as case `index` has them.
pub(super) fn params(op: Op, index: usize) -> Params {
    match op {
        Op::GELU => GeluParams::default().approximate(index.is_multiple_of(2)).into(),
        Op::LEAKY_RELU => LeakyReluParams::default().alpha([0.1, 1.5, -0.5, 0.01][index % 4]).into(),
        _ => Params::None,
    }
}

/// Returns the scale and zero point of outputs whose quantization the kernel fixes.
fn fixed(op: Op, ty: TensorType) -> Option<(f32, i64)> {
    match (op, ty) {
        (Op::LOGISTIC | Op::TANH, Int16) => Some((1.0 / 32768.0, 0)),
        (Op::LOGISTIC, Int8) => Some((1.0 / 256.0, -128)),
        (Op::LOGISTIC, _) => Some((1.0 / 256.0, 0)),
        (Op::TANH, Int8) => Some((1.0 / 128.0, 0)),
        (Op::TANH, _) => Some((1.0 / 128.0, 128)),
        _ => None,
    }
}

fn unary(draw: &mut Draw, row: &Row, ty: TensorType, shape: Option<&[usize]>, index: usize) -> Case {
    let &(op, low, high, _) = row;
    let rank = draw.size(0, 6);
    let own = draw.shape(rank, 700);
    let shape = shape.unwrap_or(&own);
    let params = params(op, index);
    if quantum(ty).is_none() || (op == Op::NEG && ty == Int16) {
        let data = x(ty, shape);
        let data = if matches!(ty, Int32 | Int64) { data.range(-100.0, 100.0) } else { data };
        return match ty {
            Float32 | Float16 | BFloat16 | Float64 => Case::new(op, params, [data.range(low, high)]),
            _ => Case::new(op, params, [data]),
        };
    }
    let half = if ty == Int16 { 32_768.0 } else { 128.0 };
    let reach = (high as f32).min(10.0);
    let scale = reach * draw.real(0.7, 1.4) / half;
    let positive = low >= 0.0;
    let zero = if positive { if ty == UInt8 { 0 } else { -128 } } else { draw.zero(ty) };
    let zero = if ty == Int16 { 0 } else { zero };
    let data = x(ty, shape);
    // Logarithms and roots of negative numbers are errors.
    let data = match (positive, ty) {
        (true, Int16) => data.range(1.0, 32_767.0),
        (true, _) => data.range(-127.0, 127.0),
        _ => data,
    };
    let (out, out_zero) = fixed(op, ty).unwrap_or_else(|| {
        let spread = match op {
            Op::EXP => 20.0,
            Op::RSQRT => 3.0,
            Op::LOG => 4.0,
            _ => reach,
        };
        (spread * draw.real(0.5, 1.1) / half, draw.zero(ty))
    });
    let (out, out_zero) = match op {
        // These ops keep the scale.
        Op::NEG => (scale, zero),
        Op::ZEROS_LIKE => (scale, zero),
        _ => (out, out_zero),
    };
    Case::new(op, params, [data.q(scale, zero)]).q(out, out_zero)
}

/// Sets the data to every 8-bit value.
fn all_bytes(case: &mut Case) {
    for operand in case.inputs.iter_mut().flatten() {
        *operand = operand.clone().bytes((0..=255).collect());
    }
}

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for row in TABLE {
        for &ty in [Float32, Float32].iter().chain(row.3) {
            for i in 0..6 {
                let mut draw = Draw::new(seed, &format!("{:?}{ty:?}{}", row.0, out.len()), i);
                let case = unary(&mut draw, row, ty, None, i);
                out.push(finish(case, &mut draw, "", i));
            }
            if matches!(ty, Int8 | UInt8) && row.1 < 0.0 {
                for i in 0..2 {
                    let mut draw = Draw::new(seed, &format!("bytes{:?}{ty:?}", row.0), i);
                    let mut case = unary(&mut draw, row, ty, Some(&[256]), i);
                    all_bytes(&mut case);
                    out.push(case.seeded(draw.seed()).detail(format!("all_bytes_{i}")));
                }
            }
        }
    }
    prelu(seed, out);
    casts(seed, out);
    wide_casts(out);
    quantize(seed, out);
}

fn prelu(seed: u64, out: &mut Vec<Case>) {
    for ty in [Float32, Float32, Int8, UInt8, Int16] {
        for i in 0..14 {
            let mut draw = Draw::new(seed, &format!("prelu{ty:?}{}", out.len()), i);
            let rank = draw.pick(&[2, 3, 4, 4]);
            let shape = draw.shape(rank, 300);
            // Slopes shared by some of the dimensions.
            let mut alpha: Vec<usize> = shape[1..].to_vec();
            let channels_only = draw.chance(50);
            let last = alpha.len() - 1;
            for (i, d) in alpha.iter_mut().enumerate() {
                if (channels_only && i != last) || (!channels_only && draw.chance(30)) {
                    *d = 1;
                }
            }
            let narrow = if ty == Int16 { Int8 } else { ty };
            let (data, weights) = (x(ty, &shape), x(narrow, &alpha));
            let weights = if draw.chance(75) { weights.constant() } else { weights };
            let case = match ty {
                Float32 => Case::new(Op::PRELU, Params::None, [data, weights]),
                _ => {
                    let s = draw.real(0.02, 0.08) * if ty == Int16 { 0.01 } else { 1.0 };
                    let weights =
                        weights.q(draw.real(0.004, 0.02), if ty == Int16 { 0 } else { draw.zero(ty) });
                    let case = Case::new(Op::PRELU, Params::None, [data.q(s, draw.zero(ty)), weights]);
                    case.q(s * draw.real(0.6, 1.6), draw.zero(ty))
                }
            };
            out.push(finish(case, &mut draw, "", i));
        }
    }
}

fn casts(seed: u64, out: &mut Vec<Case>) {
    let types = [Float32, Float16, Int64, Int32, Int16, Int8, UInt8, Bool];
    for from in types {
        for to in types.into_iter().filter(|&to| to != from) {
            for i in 0..2 {
                let mut draw = Draw::new(seed, &format!("cast{from:?}{to:?}"), i);
                let rank = draw.size(0, 6);
                let shape = draw.shape(rank, 300);
                let data = match (from, to) {
                    // Casts of values that are out of range are not defined.
                    (Float32 | Float16, UInt8) => x(from, &shape).range(0.0, 255.0),
                    (Float32 | Float16, _) => x(from, &shape).range(-127.0, 127.0),
                    (Int64 | Int32, Int16 | Int8 | UInt8 | Bool) => x(from, &shape).range(-3e5, 3e5),
                    (Int64 | Int32, Float16) => x(from, &shape).range(-2000.0, 2000.0),
                    (Int64 | Int32, _) => x(from, &shape).range(-33_554_432.0, 33_554_431.0),
                    _ => x(from, &shape),
                };
                let params = CastParams::default().in_data_type(from).out_data_type(to);
                let case = Case::new(Op::CAST, params, [data]).outputs([Output::of(to)]);
                out.push(finish(case, &mut draw, &format!("to_{}", to.name().to_lowercase()), i));
            }
        }
    }
}

/// Values beyond the range of 32 bits or of exact floats, for casts that read only a part of an element.
fn wide_casts(out: &mut Vec<Case>) {
    let wide: Vec<i64> =
        (0..40).map(|i| (i - 20) << i).chain([1 << 40, -(1 << 33), i64::MAX, i64::MIN]).collect();
    let unsigned: Vec<u32> = (0..20).map(|i| u32::MAX >> i).collect();
    let near: Vec<i32> = (0..16).map(|i| 16_777_216 + i).chain([i32::MAX, i32::MIN]).collect();
    let floats: Vec<f32> = (0..20).map(|i| (i as f32 - 9.5) * 3e11).collect();
    for (data, to) in [
        (given(&[44], &wide), Float32),
        (given(&[44], &wide), Bool),
        (given(&[20], &unsigned), Float32),
        (given(&[20], &unsigned), Int64),
        (given(&[18], &near), Float32),
        (given(&[18], &near), Int64),
        (given(&[20], &floats), Int64),
    ] {
        let params = CastParams::default().in_data_type(data.ty).out_data_type(to);
        let case = Case::new(Op::CAST, params, [data]).outputs([Output::of(to)]);
        out.push(case.seeded(1).detail(format!("to_{}_wide", to.name().to_lowercase())));
    }
}

fn quantize(seed: u64, out: &mut Vec<Case>) {
    let small = |ty| if ty == Int16 { 1.0 / 250.0 } else { 1.0 };
    for ty in [Int8, UInt8, Int16] {
        for i in 0..12 {
            let mut draw = Draw::new(seed, &format!("quantize{ty:?}"), i);
            let rank = draw.size(0, 5);
            let shape = draw.shape(rank, 400);
            let (scale, zero) = (draw.real(0.02, 0.1) * small(ty), draw.zero(ty));
            // Values beyond both ends of the range.
            let data = x(Float32, &shape).range(-17.0, 17.0);
            let case = Case::new(Op::QUANTIZE, Params::None, [data]).outputs([Output::of(ty).q(scale, zero)]);
            out.push(finish(case, &mut draw, &format!("to_{}", ty.name().to_lowercase()), i));
            let case = Case::new(Op::DEQUANTIZE, Params::None, [x(ty, &shape).q(scale, zero)]);
            out.push(finish(case.outputs([Output::of(Float32)]), &mut draw, "", i));
        }
        let others: &[TensorType] = if ty == Int16 { &[Int8, Int16] } else { &[Int8, UInt8, Int16] };
        for &to in others {
            for i in 0..8 {
                let mut draw = Draw::new(seed, &format!("requantize{ty:?}{to:?}"), i);
                let rank = draw.size(0, 4);
                let shape = draw.shape(rank, 400);
                let scale = draw.real(0.02, 0.1);
                let data = x(ty, &shape).q(scale * small(ty), draw.zero(ty));
                let other = scale * small(to) * draw.pick(&[0.4, 0.9, 1.0, 1.3, 2.7]);
                let case = Case::new(Op::QUANTIZE, Params::None, [data])
                    .outputs([Output::of(to).q(other, draw.zero(to))]);
                out.push(finish(case, &mut draw, &format!("to_{}", to.name().to_lowercase()), i));
            }
        }
        if ty != Int16 {
            for (i, &to) in others.iter().enumerate() {
                let mut draw = Draw::new(seed, &format!("all{ty:?}{to:?}"), i);
                let data = x(ty, &[256]).bytes((0..=255).collect()).q(0.05, draw.zero(ty));
                let q = Output::of(to).q(0.05 * small(to) * draw.real(0.5, 1.9), draw.zero(to));
                let case = Case::new(Op::QUANTIZE, Params::None, [data]).outputs([q]);
                out.push(case.seeded(1).detail(format!("to_{}_all_bytes", to.name().to_lowercase())));
            }
        }
    }
    // Values halfway between two steps are rounded away from zero.
    for ty in [Int8, UInt8, Int16] {
        let halves: Vec<f32> = (-40..40).map(|i| (i as f32 + 0.5) * 0.25).collect();
        let case = Case::new(Op::QUANTIZE, Params::None, [given(&[80], &halves)]);
        let case = case.outputs([Output::of(ty).q(0.25, if ty == UInt8 { 100 } else { 0 })]);
        out.push(case.seeded(1).detail(format!("to_{}_halves", ty.name().to_lowercase())));
    }
}
