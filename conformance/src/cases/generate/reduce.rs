//! Ops that fold a dimension: reductions, extrema, cumulative sums, normalizations.

use delegraph_core::ops::arg_min_max::{ArgMaxParams, ArgMinParams};
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::ops::local_response_normalization::LocalResponseNormalizationParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::softmax::SoftmaxParams;

use super::super::prelude::*;
use super::draw::{Draw, spread};
use super::finish;

const REDUCERS: &[(Op, &[TensorType])] = &[
    (Op::MEAN, &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64]),
    (Op::SUM, &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64]),
    (Op::REDUCE_MAX, &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64]),
    (Op::REDUCE_MIN, &[Float32, Int8, UInt8, Int16, Int32, Int64]),
    (Op::REDUCE_PROD, &[Float32, Int8, Int32, Int64]),
    (Op::REDUCE_ANY, &[Bool]),
    (Op::REDUCE_ALL, &[Bool]),
];

fn reducer(draw: &mut Draw, op: Op, ty: TensorType, axes: Option<usize>) -> Case {
    let rank = draw.pick(&[1, 2, 3, 3, 4, 4, 4, 5]);
    let mut shape = draw.shape(rank, if op == Op::REDUCE_PROD { 60 } else { 1500 });
    let order = draw.order(rank);
    // Real models mostly reduce height and width.
    let mut axes: Vec<i32> = match axes {
        Some(bits) => (0..rank).filter(|i| bits >> i & 1 == 1).map(|i| i as i32).collect(),
        None if rank == 4 && draw.chance(40) => vec![1, 2],
        None => {
            let count = draw.size(1, rank);
            order[..count].iter().map(|&axis| draw.axis(axis, rank)).collect()
        }
    };
    if axes.is_empty() {
        axes.push(-1);
    }
    if draw.chance(10) {
        // An axis may be listed twice.
        axes.push(axes[0]);
    }
    if rank == 4 && op == Op::MEAN && draw.chance(20) {
        shape[1] = draw.size(14, 20);
        shape[2] = draw.size(9, 13);
    }
    let params = ReducerParams::default().keep_dims(draw.chance(50));
    let axes = if axes.len() == 1 && draw.chance(30) { given(&[], &axes).constant() } else { list(&axes) };
    let scale = draw.real(0.02, 0.09) * if ty == Int16 { 0.004 } else { 1.0 };
    let data = match (op, ty) {
        (Op::REDUCE_PROD, Int8) => {
            return Case::new(op, params, [x(ty, &shape).range(40.0, 60.0).q(0.02, 0), axes]).q(0.05, 3);
        }
        (Op::REDUCE_PROD, Float32) => x(ty, &shape).range(0.8, 1.3),
        (Op::REDUCE_PROD, _) => x(ty, &shape).range(1.0, 3.0),
        (Op::REDUCE_MAX | Op::REDUCE_MIN, Float32) => {
            // All elements of one sign, for kernels that start the extremum at zero.
            let negative = draw.chance(50);
            x(ty, &shape).range(if negative { -9.0 } else { 2.0 }, if negative { -2.0 } else { 9.0 })
        }
        (Op::REDUCE_ANY, _) => x(ty, &shape).mixed(&[0.0]),
        (_, Int32 | Int64) => x(ty, &shape).range(-1000.0, -100.0),
        (_, Int8 | UInt8 | Int16) => x(ty, &shape).q(scale, draw.zero(ty)),
        _ => x(ty, &shape).range(-3.0, 5.0),
    };
    let q = data.quantization.clone();
    let case = Case::new(op, params, [data, axes]);
    let Some(affine) = q.as_ref().and_then(|q| q.affine()) else { return case };
    let zero = affine.zero_points.get(0).unwrap_or_default();
    match op {
        Op::MEAN if draw.chance(60) => case.q(scale * draw.real(0.3, 1.6), draw.zero(ty)),
        Op::SUM => case.q(scale * draw.real(2.0, 9.0), draw.zero(ty)),
        _ => case.q(scale, zero),
    }
}

fn argument(draw: &mut Draw, op: Op, ty: TensorType) -> Case {
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 600);
    let axis = draw.below(rank);
    let axis = draw.axis(axis, rank);
    let output_type = draw.pick(&[Int32, Int64]);
    // Few distinct values: the first of several equal elements must be found.
    let data = match ty {
        Float32 if draw.chance(60) => {
            let n = shape.iter().product::<usize>();
            let elements: Vec<f32> = (0..n).map(|_| draw.pick(&[-2.5f32, -1.0, -1.0, -7.0])).collect();
            given(&shape, &elements)
        }
        Float32 => x(ty, &shape),
        Bool => x(ty, &shape),
        UInt8 => x(ty, &shape).range(3.0, 9.0).auto(),
        Int8 => x(ty, &shape).range(-9.0, -3.0).auto(),
        _ => x(ty, &shape).range(-9.0, -3.0),
    };
    let axis = known(if draw.chance(50) { &[] } else { &[1] }, &[axis]);
    match op {
        Op::ARG_MAX => Case::new(op, ArgMaxParams::default().output_type(output_type), [data, axis]),
        _ => Case::new(op, ArgMinParams::default().output_type(output_type), [data, axis]),
    }
}

fn softmax(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 800);
    let beta = draw.pick(&[1.0, 1.0, 1.0, 0.3, 2.0]);
    let softmax = |data: Operand| Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(beta), [data]);
    let scale = draw.real(0.02, 0.2);
    match ty {
        Int8 => softmax(x(ty, &shape).q(scale, draw.zero(ty))).q(1.0 / 256.0, -128),
        UInt8 => softmax(x(ty, &shape).q(scale, draw.zero(ty))).q(1.0 / 256.0, 0),
        Int16 => softmax(x(ty, &shape).q(scale / 250.0, 0)).q(1.0 / 32768.0, 0),
        _ => {
            // Large inputs, whose exponentials overflow unless the maximum is subtracted.
            let (low, high) = draw.pick(&[(-9.0, 9.0), (-1.0, 1.0), (60.0, 120.0), (-200.0, -100.0)]);
            softmax(x(ty, &shape).range(low, high))
        }
    }
}

fn normalized(draw: &mut Draw, op: Op, ty: TensorType) -> Case {
    let rank = if op == Op::LOCAL_RESPONSE_NORMALIZATION { 4 } else { draw.size(1, 4) };
    let shape = draw.shape(rank, 600);
    let scale = draw.real(0.02, 0.1);
    match op {
        Op::LOG_SOFTMAX => match ty {
            Int8 => Case::new(op, Params::None, [x(ty, &shape).q(scale, draw.zero(ty))]).q(16.0 / 256.0, 127),
            UInt8 => {
                Case::new(op, Params::None, [x(ty, &shape).q(scale, draw.zero(ty))]).q(16.0 / 256.0, 255)
            }
            _ => {
                let (low, high) = draw.pick(&[(-9.0, 9.0), (60.0, 120.0)]);
                Case::new(op, Params::None, [x(ty, &shape).range(low, high)])
            }
        },
        Op::L2_NORMALIZATION => {
            let params = L2NormParams::default().fused_activation_function(Activation::None);
            match ty {
                Int8 => Case::new(op, params, [x(ty, &shape).q(scale, draw.zero(ty))]).q(1.0 / 128.0, 0),
                UInt8 => Case::new(op, params, [x(ty, &shape).q(scale, draw.zero(ty))]).q(1.0 / 128.0, 128),
                _ => Case::new(op, params, [x(ty, &shape)]),
            }
        }
        _ => {
            let params = LocalResponseNormalizationParams::default()
                .radius(draw.size(1, 4) as i32)
                .bias(draw.real(0.5, 2.0))
                .alpha(draw.real(0.1, 1.0))
                .beta(draw.pick(&[0.5, 0.75, 1.0]));
            Case::new(op, params, [x(ty, &shape)])
        }
    }
}

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for &(op, types) in REDUCERS {
        for (t, &ty) in types.iter().enumerate() {
            for i in 0..11 {
                let mut draw = Draw::new(seed, &format!("{op:?}{t}"), i);
                let case = reducer(&mut draw, op, ty, None);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    // Every set of axes.
    for op in [Op::MEAN, Op::SUM, Op::REDUCE_MAX] {
        for bits in 1..32 {
            let mut draw = Draw::new(seed, &format!("axes{op:?}"), bits);
            let case = reducer(&mut draw, op, Float32, Some(bits));
            out.push(finish(case, &mut draw, "axes", bits));
        }
    }
    for op in [Op::ARG_MAX, Op::ARG_MIN] {
        for (t, ty) in [Float32, Float32, Int8, UInt8, Int32, Bool].into_iter().enumerate() {
            for i in 0..10 {
                let mut draw = Draw::new(seed, &format!("{op:?}{t}"), i);
                let case = argument(&mut draw, op, ty);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    for (t, ty) in [Float32, Float32, Int8, UInt8, Int16, Float16].into_iter().enumerate() {
        for i in 0..20 {
            let mut draw = Draw::new(seed, &format!("softmax{t}"), i);
            let case = softmax(&mut draw, ty);
            out.push(finish(case, &mut draw, "", i));
        }
    }
    for (op, types) in [
        (Op::LOG_SOFTMAX, &[Float32, Int8, UInt8][..]),
        (Op::L2_NORMALIZATION, &[Float32, Int8, UInt8]),
        (Op::LOCAL_RESPONSE_NORMALIZATION, &[Float32]),
    ] {
        for &ty in types {
            for i in 0..14 {
                let mut draw = Draw::new(seed, &format!("{op:?}{ty:?}"), i);
                let case = normalized(&mut draw, op, ty);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    running(seed, out);
    long(seed, out);
}

/// CUMSUM, TOPK_V2, ADD_N.
fn running(seed: u64, out: &mut Vec<Case>) {
    for ty in [Float32, Int32, Int64] {
        for i in 0..16 {
            let mut draw = Draw::new(seed, &format!("cumsum{ty:?}"), i);
            let rank = draw.size(1, 4);
            let shape = draw.shape(rank, 400);
            let axis = draw.below(rank);
            let axis = draw.axis(axis, rank);
            let params = CumsumParams::default().exclusive(i % 2 == 1).reverse(i / 2 % 2 == 1);
            let inputs = [x(ty, &shape).range(-3.0, 7.0), known(&[], &[axis])];
            out.push(finish(Case::new(Op::CUMSUM, params, inputs), &mut draw, "", i));
            let shape = draw.shape(rank, 300);
            let inputs = vec![x(ty, &shape).range(-9.0, 7.0); draw.size(2, 5)];
            if ty != Int64 {
                out.push(finish(Case::new(Op::ADD_N, Params::None, inputs), &mut draw, "", i));
            }
        }
    }
    for ty in [Float32, Int8, UInt8, Int16, Int32, Int64] {
        for i in 0..10 {
            let mut draw = Draw::new(seed, &format!("topk{ty:?}"), i);
            let rank = draw.size(1, 4);
            let shape = draw.shape(rank, 400);
            let k = draw.size(1, shape[rank - 1]) as i32;
            let few = draw.chance(50) && ty != Float32;
            let data = x(ty, &shape);
            let data = if few { data.range(if ty == UInt8 { 3.0 } else { -3.0 }, 9.0) } else { data };
            let case = Case::new(Op::TOPK_V2, Params::None, [data, known(&[], &[k])]);
            out.push(finish(case.outputs([Output::of(ty), Output::of(Int32)]), &mut draw, "", i));
        }
    }
}

/// Sums with more terms than 16-bit counters, or a single 32-bit accumulator, can represent exactly.
fn long(seed: u64, out: &mut Vec<Case>) {
    for (i, n) in [1000, 4096, 10_007, 65_536, 65_537].into_iter().enumerate() {
        for (op, shape, axis) in [
            (Op::SUM, vec![n], 0),
            (Op::MEAN, vec![2, n / 2], 1),
            (Op::MEAN, vec![n / 3, 3], 0),
            (Op::REDUCE_MAX, vec![n / 2, 2], 0),
        ] {
            let mut draw = Draw::new(seed, &format!("long{op:?}{axis}"), i);
            let inputs = [x(Float32, &shape).range(0.0, 2.0), list(&[axis])];
            let case = Case::new(op, ReducerParams::default().keep_dims(false), inputs.clone());
            out.push(finish(case, &mut draw, "long", i));
            if op != Op::REDUCE_MAX {
                let [_, axes] = inputs;
                let data = x(Int8, &shape).q(0.05, -7);
                let deviation = spread(Int8) * 0.05 * (n as f32).sqrt() / 40.0;
                let scale = if op == Op::SUM { deviation } else { 0.002 };
                let case = Case::new(op, ReducerParams::default().keep_dims(false), [data, axes]).q(scale, 4);
                out.push(finish(case, &mut draw, "long", i));
            }
        }
        let mut draw = Draw::new(seed, "longest", i);
        let case = Case::new(Op::SOFTMAX, SoftmaxParams::default().beta(1.0), [x(Float32, &[2, n / 4])]);
        out.push(finish(case, &mut draw, "long", i));
    }
}
