//! Ops that only move elements: every rank, masks, negative axes, asymmetric paddings.

use delegraph_core::ops::MirrorPadMode;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::depth_to_space::{DepthToSpaceParams, SpaceToDepthParams};
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::one_hot::OneHotParams;
use delegraph_core::ops::pack::{PackParams, UnpackParams};
use delegraph_core::ops::pad::MirrorPadParams;
use delegraph_core::ops::reshape::{ReshapeParams, SqueezeParams};
use delegraph_core::ops::reverse::ReverseSequenceParams;
use delegraph_core::ops::slice::StridedSliceParams;
use delegraph_core::ops::split::{SplitParams, SplitVParams};

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

/// The types that real models move most often, and one type of each width.
const TYPES: &[TensorType] = &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64, Float16, Bool];
/// Maximum number of elements of a tensor.
const MAX_ELEMENTS: usize = 500;

/// Creates a case that moves data of a type.
type Mover = fn(&mut Draw, TensorType) -> Case;

/// Creates the data operand, with the type's scale.
fn data(ty: TensorType, shape: &[usize]) -> Operand {
    x(ty, shape).auto()
}

/// Creates a list of 32-bit or, sometimes, 64-bit integers.
fn index(draw: &mut Draw, shape: &[usize], values: &[i32]) -> Operand {
    match draw.chance(20) {
        true => known(shape, &values.iter().map(|&v| i64::from(v)).collect::<Vec<_>>()),
        false => known(shape, values),
    }
}

fn pads(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[1, 2, 3, 4, 4, 4, 5]);
    let shape = draw.shape(rank, 400);
    let kind = draw.below(4);
    let mut amounts = Vec::new();
    for &d in &shape {
        for _ in 0..2 {
            let most = match kind {
                2 => d.min(4),
                3 => (d - 1).min(4),
                _ => 4,
            };
            let most = if draw.chance(80) { most.min(2) } else { most };
            amounts.push(if draw.chance(40) { 0 } else { draw.size(0, most) as i32 });
        }
    }
    let inputs = [data(ty, &shape), index(draw, &[rank, 2], &amounts)];
    match kind {
        0 => Case::new(Op::PAD, Params::None, inputs),
        1 => {
            let value = match ty {
                Float32 | Float16 => (2.5, 2.5),
                Bool => (1.0, 1.0),
                _ => (3.0, 3.0),
            };
            let inputs = inputs.into_iter().chain([x(ty, &[1]).range(value.0, value.1).constant().auto()]);
            Case::new(Op::PADV2, Params::None, inputs)
        }
        2 => Case::new(Op::MIRROR_PAD, MirrorPadParams::default().mode(MirrorPadMode::Symmetric), inputs),
        _ => Case::new(Op::MIRROR_PAD, MirrorPadParams::default().mode(MirrorPadMode::Reflect), inputs),
    }
    .auto(ty)
}

fn slice(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[1, 2, 3, 4, 4, 5]);
    let shape = draw.shape(rank, MAX_ELEMENTS);
    let begin: Vec<i32> = shape.iter().map(|&d| draw.below(d) as i32).collect();
    let rest = shape.iter().zip(&begin).map(|(&d, &b)| d - b as usize);
    let size: Vec<i32> = rest.map(|r| if draw.chance(20) { -1 } else { draw.size(1, r) as i32 }).collect();
    let inputs = [data(ty, &shape), index(draw, &[rank], &begin), index(draw, &[rank], &size)];
    let same = inputs[1].ty == inputs[2].ty;
    let [a, b, c] = inputs;
    let c = if same { c } else { list(&size) };
    let b = if same { b } else { list(&begin) };
    Case::new(Op::SLICE, Params::None, [a, b, c]).auto(ty)
}

fn strided_slice(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[1, 2, 3, 4, 4, 5]);
    let shape = draw.shape(rank, MAX_ELEMENTS);
    // Begin, end and stride.
    let mut ranges: Vec<[i32; 3]> = Vec::new();
    let mut params = StridedSliceParams::default()
        .begin_mask(0)
        .end_mask(0)
        .ellipsis_mask(0)
        .new_axis_mask(0)
        .shrink_axis_mask(0)
        .offset(false);
    let ellipsis = draw.chance(12).then(|| draw.below(rank));
    let mut dimension = 0;
    while dimension < rank {
        let bit = 1 << ranges.len();
        let d = shape[dimension] as i32;
        if ellipsis == Some(dimension) {
            // The ellipsis represents one or two dimensions.
            params.ellipsis_mask = bit;
            dimension += draw.size(1, 2);
            ranges.push([0, 0, 1]);
            continue;
        }
        if rank < 4 && draw.chance(8) {
            params.new_axis_mask |= bit;
            ranges.push([0, 1, 1]);
            continue;
        }
        dimension += 1;
        if draw.chance(12) {
            params.shrink_axis_mask |= bit;
            let at = draw.int(-i64::from(d), i64::from(d) - 1) as i32;
            ranges.push([at, at.wrapping_add(1), 1]);
            continue;
        }
        let stride = draw.pick(&[1, 1, 1, 2, 3, -1, -2]);
        let first = draw.below(d as usize) as i32;
        let (b, mut e) = match stride > 0 {
            true => (first, draw.size(first as usize + 1, d as usize) as i32),
            false => (first, draw.int(-1, i64::from(first) - 1) as i32),
        };
        if stride < 0 && e == -1 {
            e = -d - 1;
        } else if draw.chance(25) && e < d {
            e -= d;
        } else if stride > 0 && draw.chance(10) {
            e = d + 5;
        }
        params.begin_mask |= if draw.chance(20) { bit } else { 0 };
        params.end_mask |= if draw.chance(20) { bit } else { 0 };
        ranges.push([if draw.chance(25) { b - d } else { b }, e, stride]);
    }
    let part = |i: usize| list(&ranges.iter().map(|range| range[i]).collect::<Vec<_>>());
    let inputs = [data(ty, &shape), part(0), part(1), part(2)];
    Case::new(Op::STRIDED_SLICE, params, inputs).auto(ty)
}

fn transpose(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[2, 3, 3, 4, 4, 4, 5, 6]);
    let shape = draw.shape(rank, 600);
    let order: Vec<i32> = draw.order(rank).into_iter().map(|d| draw.axis(d, rank)).collect();
    Case::new(Op::TRANSPOSE, Params::None, [data(ty, &shape), list(&order)]).auto(ty)
}

fn concatenation(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[1, 2, 3, 4, 4, 5]);
    let shape = draw.shape(rank, 150);
    let at = draw.below(rank);
    let count = draw.pick(&[1, 2, 2, 3, 4, 6]);
    let inputs: Vec<Operand> = (0..count)
        .map(|_| {
            let mut shape = shape.clone();
            shape[at] = draw.pick(&[1, 2, 3, 4, 5, 7]);
            if draw.chance(20) { data(ty, &shape).constant() } else { data(ty, &shape) }
        })
        .collect();
    let params =
        ConcatenationParams::default().axis(draw.axis(at, rank)).fused_activation_function(Activation::None);
    Case::new(Op::CONCATENATION, params, inputs).auto(ty)
}

fn split(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.pick(&[1, 2, 3, 4]);
    let mut shape = draw.shape(rank, 80);
    let at = draw.below(rank);
    let count = draw.size(1, 4);
    let axis = draw.axis(at, rank);
    if draw.chance(50) {
        shape[at] = count * draw.size(1, 4);
        let params = SplitParams::default().num_splits(count as i32);
        let case = Case::new(Op::SPLIT, params, [known(&[], &[axis]), data(ty, &shape)]);
        return case.outputs(vec![Output::of(ty); count]).auto(ty);
    }
    let mut sizes: Vec<i32> = (0..count).map(|_| draw.size(1, 4) as i32).collect();
    shape[at] = sizes.iter().sum::<i32>() as usize;
    if draw.chance(40) {
        sizes[draw.below(count)] = -1;
    }
    let inputs = [data(ty, &shape), list(&sizes), known(&[], &[axis])];
    let case = Case::new(Op::SPLIT_V, SplitVParams::default().num_splits(count as i32), inputs);
    case.outputs(vec![Output::of(ty); count]).auto(ty)
}

fn pack(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 120);
    if draw.chance(50) {
        let count = draw.size(1, 5);
        let at = draw.below(rank + 1);
        let axis = draw.axis(at, rank + 1);
        let params = PackParams::default().axis(axis).values_count(count as i32);
        return Case::new(Op::PACK, params, vec![data(ty, &shape); count]).auto(ty);
    }
    let at = draw.below(rank);
    let mut shape = shape;
    shape[at] = shape[at].min(5);
    let params = UnpackParams::default().axis(draw.axis(at, rank)).num(shape[at] as i32);
    let case = Case::new(Op::UNPACK, params, [data(ty, &shape)]);
    case.outputs(vec![Output::default(); shape[at]]).auto(ty)
}

fn gather(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 200);
    let axis = draw.below(rank);
    let batch_dims = if draw.chance(30) { draw.size(0, axis) } else { 0 };
    let own = draw.size(0, 2);
    let tail = draw.shape(own, 12);
    let indices: Vec<usize> = shape[..batch_dims].iter().copied().chain(tail).collect();
    let index = draw.pick(&[Int32, Int32, Int64]);
    let indices = x(index, &indices).range(0.0, (shape[axis] - 1) as f64);
    let indices = if draw.chance(40) { indices.constant() } else { indices };
    let params = GatherParams::default().axis(draw.axis(axis, rank)).batch_dims(batch_dims as i32);
    Case::new(Op::GATHER, params, [data(ty, &shape), indices]).auto(ty)
}

fn gather_nd(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 200);
    let depth = draw.size(1, rank);
    let least = shape[..depth].iter().min().copied().unwrap_or(1);
    let rows = draw.size(1, 6);
    let dims = if draw.chance(50) { vec![rows, depth] } else { vec![2, rows, depth] };
    let indices = x(Int32, &dims).range(0.0, (least - 1) as f64);
    Case::new(Op::GATHER_ND, Params::None, [data(ty, &shape), indices]).auto(ty)
}

fn tile(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 60);
    if draw.chance(50) {
        let times: Vec<i32> = (0..rank).map(|_| draw.pick(&[1, 1, 2, 3])).collect();
        return Case::new(Op::TILE, Params::None, [x(ty, &shape), index(draw, &[rank], &times)]);
    }
    let front = draw.below(rank + 1);
    let from: Vec<usize> = shape[front..].iter().map(|&d| if draw.chance(40) { 1 } else { d }).collect();
    let to: Vec<i32> = shape.iter().map(|&d| d as i32).collect();
    Case::new(Op::BROADCAST_TO, Params::None, [x(ty, &from), index(draw, &[rank], &to)])
}

fn space(draw: &mut Draw, ty: TensorType) -> Case {
    let [h, w] = draw.pair(&[1, 2, 3, 4]);
    let (batch, channels) = (draw.size(1, 3), draw.size(1, 5));
    let [b0, b1] = draw.pair(&[1, 2, 2, 3]);
    match draw.below(4) {
        0 => {
            let shape = [batch, h, w, channels * b0 * b0];
            Case::new(
                Op::DEPTH_TO_SPACE,
                DepthToSpaceParams::default().block_size(b0 as i32),
                [data(ty, &shape)],
            )
        }
        1 => {
            let shape = [batch, h * b0, w * b0, channels];
            Case::new(
                Op::SPACE_TO_DEPTH,
                SpaceToDepthParams::default().block_size(b0 as i32),
                [data(ty, &shape)],
            )
        }
        2 => {
            let (p, q) = (draw.below(b0 * h), draw.below(b1 * w));
            let pads = [draw.below(p + 1), 0, draw.below(q + 1), 0];
            let pads = [pads[0], p - pads[0], pads[2], q - pads[2]].map(|p| p as i32);
            let shape = [batch, h * b0 - p, w * b1 - q, channels];
            let inputs = [data(ty, &shape), list(&[b0 as i32, b1 as i32]), known(&[2, 2], &pads)];
            Case::new(Op::SPACE_TO_BATCH_ND, Params::None, inputs)
        }
        _ => {
            let (p, q) = (draw.below(b0 * h), draw.below(b1 * w));
            let crops = [p / 2, p - p / 2, q - q / 3, q / 3].map(|p| p as i32);
            let shape = [batch * b0 * b1, h, w, channels];
            let inputs = [data(ty, &shape), list(&[b0 as i32, b1 as i32]), known(&[2, 2], &crops)];
            Case::new(Op::BATCH_TO_SPACE_ND, Params::None, inputs)
        }
    }
    .auto(ty)
}

fn reshape(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(0, 6);
    let shape = draw.shape(rank, MAX_ELEMENTS);
    let data = data(ty, &shape);
    let case = match draw.below(3) {
        0 => {
            // The same elements in another shape; one of its dimensions may be -1.
            let mut n = shape.iter().product::<usize>();
            let mut to = Vec::new();
            while n > 1 && to.len() < 5 {
                let factor = (2..=n).find(|f| n.is_multiple_of(*f)).unwrap_or(n);
                to.push(factor as i32);
                n /= factor;
            }
            to.push(n as i32);
            if draw.chance(50) {
                let at = draw.below(to.len());
                to[at] = -1;
            }
            let params = ReshapeParams::default().new_shape(to.clone());
            Case::new(Op::RESHAPE, params, [data, list(&to)])
        }
        1 => {
            let mut from: Vec<usize> = shape.into_iter().take(4).collect();
            let at = draw.below(from.len() + 1);
            from.insert(at, 1);
            let squeeze_dims = if draw.chance(30) { vec![] } else { vec![draw.axis(at, from.len())] };
            Case::new(Op::SQUEEZE, SqueezeParams::default().squeeze_dims(squeeze_dims), [x(ty, &from).auto()])
        }
        _ => {
            let axis = draw.below(rank + 1);
            let axis = draw.axis(axis, rank + 1);
            Case::new(Op::EXPAND_DIMS, Params::None, [data, list(&[axis])])
        }
    };
    case.auto(ty)
}

fn reverse(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 300);
    if rank > 1 && draw.chance(40) && ty != Int8 && ty != Bool && ty != Float16 {
        let order = draw.order(rank);
        let (sequence, batch) = (order[0], order[1]);
        let lengths = x(Int32, &[shape[batch]]).range(1.0, shape[sequence] as f64);
        let params = ReverseSequenceParams::default().seq_dim(sequence as i32).batch_dim(batch as i32);
        return Case::new(Op::REVERSE_SEQUENCE, params, [x(ty, &shape), lengths]);
    }
    // Consecutive axes.
    let first = draw.below(rank);
    let last = draw.size(first, rank - 1);
    let negative = draw.chance(40);
    let axes: Vec<i32> =
        (first..=last).map(|a| if negative { a as i32 - rank as i32 } else { a as i32 }).collect();
    Case::new(Op::REVERSE_V2, Params::None, [x(ty, &shape), list(&axes)])
}

fn one_hot(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(0, 3);
    let shape = draw.shape(rank, 60);
    let depth = draw.size(1, 7) as i32;
    let axis = draw.pick(&[-1, -1, 0, rank as i32]);
    let indices = x(draw.pick(&[Int32, Int64]), &shape).range(-2.0, f64::from(depth) + 1.0);
    let (on, off) = if ty == Bool { (1.0, 0.0) } else { (5.0, 2.0) };
    let inputs = [indices, known(&[], &[depth]), x(ty, &[]).range(on, on), x(ty, &[]).range(off, off)];
    Case::new(Op::ONE_HOT, OneHotParams::default().axis(axis), inputs).outputs([Output::of(ty)]).of(ty)
}

fn update(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 200);
    let part: Vec<usize> = shape.iter().map(|&d| draw.size(1, d)).collect();
    // Starts beyond the end are clamped.
    let start: Vec<i32> = shape.iter().map(|&d| draw.int(-1, d as i64) as i32).collect();
    let inputs = [x(ty, &shape), x(ty, &part), given(&[rank], &start)];
    Case::new(Op::DYNAMIC_UPDATE_SLICE, Params::None, inputs)
}

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    let all = TYPES;
    let few = &[Float32, Int8, UInt8, Int32, Int64][..];
    let table: &[(&str, Mover, &[TensorType], usize)] = &[
        ("pad", pads, all, 26),
        ("slice", slice, all, 14),
        ("strided_slice", strided_slice, all, 26),
        ("transpose", transpose, all, 26),
        ("concatenation", concatenation, &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64, Bool], 22),
        ("split", split, &[Float32, Float32, Int8, UInt8, Int16, Int32, Int64], 18),
        ("pack", pack, &[Float32, Int8, UInt8, Int16, Int32], 18),
        ("gather", gather, all, 16),
        ("gather_nd", gather_nd, all, 10),
        ("tile", tile, all, 16),
        ("space", space, few, 26),
        ("reshape", reshape, all, 12),
        ("reverse", reverse, all, 9),
        ("one_hot", one_hot, &[Float32, Int8, UInt8, Int32, Int64, Bool], 8),
        ("update", update, &[Float32, Int8, Int32, Int64, Bool], 10),
    ];
    for &(name, mover, types, count) in table {
        for (t, &ty) in types.iter().enumerate() {
            for i in 0..count {
                let mut draw = Draw::new(seed, &format!("{name}{t}"), i);
                let case = mover(&mut draw, ty);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    permutations(out);
}

/// Every permutation of up to four dimensions of different sizes.
fn permutations(out: &mut Vec<Case>) {
    for rank in 2..=4usize {
        for code in 0..rank.pow(rank as u32) {
            let order: Vec<i32> = (0..rank).map(|d| (code / rank.pow(d as u32) % rank) as i32).collect();
            if (0..rank as i32).any(|d| !order.contains(&d)) {
                continue;
            }
            for ty in [Float32, Int8, Int64] {
                let shape = &[3, 5, 2, 7][..rank];
                let case = Case::new(Op::TRANSPOSE, Params::None, [data(ty, shape), list(&order)]).auto(ty);
                let name = order.iter().map(i32::to_string).collect::<Vec<_>>().join("_");
                out.push(case.seeded(43).detail(format!("order_{name}")));
            }
        }
    }
}
