//! Rarely used ops on larger data. The listed cases of these ops are small enough to be checked by reading.

use delegraph_core::ops::ReduceWindowFunction;
use delegraph_core::ops::bucketize::BucketizeParams;
use delegraph_core::ops::conv_3d::Conv3DParams;
use delegraph_core::ops::quantize::FakeQuantParams;
use delegraph_core::ops::reduce_window::ReduceWindowParams;
use delegraph_core::ops::sparse_to_dense::SparseToDenseParams;
use delegraph_core::ops::unique::UniqueParams;

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

type Maker = fn(&mut Draw, usize) -> Case;

/// The prefix of the names, the function that creates a case, and the number of cases.
const TABLE: &[(&str, Maker, usize)] = &[
    ("fake_quant", fake_quant, 16),
    ("embedding_lookup", embedding_lookup, 40),
    ("scatter_nd", scatter_nd, 30),
    ("sparse_to_dense", sparse_to_dense, 16),
    ("segment_sum", segment_sum, 12),
    ("unsorted_segment", unsorted_segment, 32),
    ("bucketize", bucketize, 12),
    ("dilate", dilate, 12),
    ("matrix_diag", matrix_diag, 24),
    ("unique", unique, 16),
    ("where", where_, 16),
    ("rfft2d", rfft2d, 16),
    ("conv_3d", conv_3d, 30),
    ("reduce_window", reduce_window, 24),
    ("non_max_suppression", non_max_suppression, 24),
    ("complex", complex, 9),
];

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for &(name, make, count) in TABLE {
        for i in 0..count {
            let mut draw = Draw::new(seed, name, i);
            let case = make(&mut draw, i);
            out.push(finish(case, &mut draw, "", i));
        }
    }
}

fn fake_quant(draw: &mut Draw, i: usize) -> Case {
    // The range contains zero.
    let params = FakeQuantParams::default()
        .min(draw.pick(&[-6.0, -3.1, -1.0, 0.0]))
        .max(draw.real(0.4, 7.0))
        .num_bits(draw.pick(&[2, 4, 8, 8, 12, 16]))
        .narrow_range(i % 2 == 1);
    let rank = draw.size(1, 4);
    // Data beyond both ends of the range.
    Case::new(Op::FAKE_QUANT, params, [x(Float32, &draw.shape(rank, 400)).range(-12.0, 12.0)])
}

/// The indices are fed: constant indices would be folded while preparing.
fn embedding_lookup(draw: &mut Draw, i: usize) -> Case {
    let (rows, columns) = (draw.size(3, 19), draw.pick(&[4, 8, 12, 16, 36]));
    let shape = if draw.chance(30) { vec![rows, 3, columns] } else { vec![rows, columns] };
    let ids = x(Int32, &[draw.size(1, 23)]).range(0.0, (rows - 1) as f64);
    let table = |ty| x(ty, &shape).constant();
    let scale = draw.real(0.01, 0.1);
    let case = |table: Operand| Case::new(Op::EMBEDDING_LOOKUP, Params::None, [ids, table]);
    match i % 8 {
        0 | 1 => case(table(Float32)).outputs_of(Float32),
        2 => case(table(Int8).q(scale, 0)).outputs_of(Float32),
        3 => case(table(UInt8).q(scale, draw.zero(UInt8))).outputs_of(Float32),
        4 => case(table(Int8).channels(scale, 0)).outputs_of(Float32),
        5 => case(table(Int4).channels(scale, 0)).outputs_of(Float32),
        6 => case(table(Int8).q(scale, 0)).outputs_of(Int8).q(scale, 0).outputs_of(Int8),
        _ => case(x(Float32, &shape)).outputs_of(Float32),
    }
}

fn scatter_nd(draw: &mut Draw, _: usize) -> Case {
    let ty = draw.pick(&[Float32, Float32, Int8, Int32, Int64]);
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 300);
    let depth = draw.size(1, rank);
    // Some rows have the same index and are added.
    let rows = draw.size(1, 12);
    let indices: Vec<i32> = (0..rows * depth).map(|at| draw.below(shape[at % depth]) as i32).collect();
    let updates: Vec<usize> = std::iter::once(rows).chain(shape[depth..].iter().copied()).collect();
    let to: Vec<i32> = shape.iter().map(|&d| d as i32).collect();
    let indices = given(&[rows, depth], &indices);
    let indices = if draw.chance(50) { indices.constant() } else { indices };
    Case::new(Op::SCATTER_ND, Params::None, [indices, x(ty, &updates).range(-3.0, 9.0), list(&to)])
        .outputs([Output::of(ty)])
}

fn sparse_to_dense(draw: &mut Draw, _: usize) -> Case {
    let ty = draw.pick(&[Float32, Int8, Int32, Int64]);
    let (rows, columns) = (draw.size(3, 17), draw.size(2, 13));
    // In ascending order, each once.
    let places: Vec<usize> = (0..rows * columns).filter(|_| draw.chance(20)).collect();
    let indices: Vec<i32> =
        places.iter().flat_map(|p| [(p / columns) as i32, (p % columns) as i32]).collect();
    let inputs = [
        known(&[places.len(), 2], &indices),
        list(&[rows as i32, columns as i32]),
        x(ty, &[places.len()]).range(1.0, 9.0),
        x(ty, &[]).range(7.0, 7.0).constant(),
    ];
    let params = SparseToDenseParams::default().validate_indices(false);
    Case::new(Op::SPARSE_TO_DENSE, params, inputs).outputs([Output::of(ty)])
}

fn segment_sum(draw: &mut Draw, _: usize) -> Case {
    let ty = draw.pick(&[Float32, Float32, Int32]);
    let (rows, columns) = (draw.size(2, 60), draw.pick(&[1, 2, 3, 5, 8, 13]));
    // Segments start at 0, and none is empty.
    let mut segment = -1;
    let ids: Vec<i32> = (0..rows)
        .map(|_| {
            segment += if segment < 0 { 1 } else { draw.pick(&[0, 0, 0, 1, 1]) };
            segment
        })
        .collect();
    Case::new(Op::SEGMENT_SUM, Params::None, [x(ty, &[rows, columns]).range(-9.0, 20.0), list(&ids)])
}

fn unsorted_segment(draw: &mut Draw, i: usize) -> Case {
    let ops = [
        Op::UNSORTED_SEGMENT_SUM,
        Op::UNSORTED_SEGMENT_MAX,
        Op::UNSORTED_SEGMENT_MIN,
        Op::UNSORTED_SEGMENT_PROD,
    ];
    let op = ops[i % 4];
    let ty = draw.pick(&[Float32, Float32, Int32]);
    let (rows, columns) = (draw.size(2, 50), draw.pick(&[1, 2, 3, 5, 8, 13]));
    let count = draw.size(1, 12);
    // Negative ids are skipped.
    let ids: Vec<i32> = (0..rows).map(|_| draw.int(-1, count as i64 - 1) as i32).collect();
    let data = x(ty, &[rows, columns]);
    let data = match op {
        Op::UNSORTED_SEGMENT_PROD if ty == Float32 => data.range(0.5, 1.5),
        Op::UNSORTED_SEGMENT_PROD => data.range(-1.0, 2.0),
        _ => data.range(-20.0, -2.0),
    };
    let ids = if draw.chance(50) { list(&ids) } else { given(&[rows], &ids) };
    Case::new(op, Params::None, [data, ids, list(&[count as i32])])
}

fn bucketize(draw: &mut Draw, i: usize) -> Case {
    let mut boundaries: Vec<f32> = (0..draw.size(1, 40)).map(|_| draw.int(-12, 12) as f32 * 0.25).collect();
    boundaries.sort_by(f32::total_cmp);
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 400);
    // Many values are exactly on a boundary.
    let n = shape.iter().product::<usize>();
    let data = match [Float32, Int32, Int64][i % 3] {
        Float32 => given(&shape, &(0..n).map(|_| draw.int(-14, 14) as f32 * 0.25).collect::<Vec<_>>()),
        ty => x(ty, &shape),
    };
    Case::new(Op::BUCKETIZE, BucketizeParams::default().boundaries(boundaries), [data])
        .outputs([Output::of(Int32)])
}

fn dilate(draw: &mut Draw, _: usize) -> Case {
    let ty = draw.pick(&[Float32, Int8, Int32]);
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 120);
    let steps: Vec<i32> = (0..rank).map(|_| draw.pick(&[1, 1, 2, 3])).collect();
    Case::new(Op::DILATE, Params::None, [x(ty, &shape), list(&steps), x(ty, &[]).range(1.0, 1.0)])
}

fn matrix_diag(draw: &mut Draw, i: usize) -> Case {
    let ty = draw.pick(&[Float32, Int8, Int32, Int64]);
    let batch = draw.shape(1, 5);
    let (rows, columns) = (draw.size(1, 19), draw.size(1, 13));
    let with = |tail: &[usize]| batch.iter().chain(tail).copied().collect::<Vec<_>>();
    match i % 2 {
        0 => Case::new(Op::MATRIX_DIAG, Params::None, [x(ty, &with(&[rows])).auto()]).auto(ty),
        _ => {
            let diagonal = x(ty, &with(&[rows.min(columns)])).auto();
            let inputs = [x(ty, &with(&[rows, columns])).auto(), diagonal];
            Case::new(Op::MATRIX_SET_DIAG, Params::None, inputs).auto(ty)
        }
    }
}

fn unique(draw: &mut Draw, i: usize) -> Case {
    let ty = [Float32, Int8, Int32, Int64][i % 4];
    let idx_out_type = draw.pick(&[Int32, Int64]);
    let n = draw.size(1, 150);
    let data = match ty {
        Float32 => given(&[n], &(0..n).map(|_| draw.int(-9, 9) as f32 * 0.5).collect::<Vec<_>>()),
        _ => x(ty, &[n]).range(-9.0, 9.0),
    };
    let outputs = [Output::new(ty, &[1]), Output::of(idx_out_type)];
    Case::new(Op::UNIQUE, UniqueParams::default().idx_out_type(idx_out_type), [data]).outputs(outputs)
}

fn where_(draw: &mut Draw, i: usize) -> Case {
    let ty = [Bool, Float32, Int32, Int8][i % 4];
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 300);
    let n = shape.iter().product::<usize>();
    let data = match ty {
        Bool => x(ty, &shape),
        Float32 => given(&shape, &(0..n).map(|_| draw.pick(&[0.0f32, 0.0, 1.0, -2.5])).collect::<Vec<_>>()),
        _ => x(ty, &shape).range(-1.0, 1.0),
    };
    Case::new(Op::WHERE, Params::None, [data]).outputs([Output::new(Int64, &[1, rank])])
}

fn rfft2d(draw: &mut Draw, _: usize) -> Case {
    let lengths = draw.pair(&[1, 2, 4, 8, 16, 32]);
    let batch = draw.size(1, 3);
    // Shorter rows are padded with zeros, longer ones are cut.
    let size = lengths.map(|n| if draw.chance(60) { n } else { draw.size(1, n + 3) });
    let lengths = lengths.map(|n| n as i32);
    Case::new(Op::RFFT2D, Params::None, [x(Float32, &[batch, size[0], size[1]]), list(&lengths)])
}

fn conv_3d(draw: &mut Draw, i: usize) -> Case {
    let padding = draw.pick(&[Padding::Same, Padding::Valid]);
    let mut stride = |from: &[i32]| draw.pick(from);
    let (stride_d, stride_h, stride_w) = (stride(&[1, 1, 2]), stride(&[1, 1, 2, 3]), stride(&[1, 1, 2, 3]));
    let dilated = [stride_d, stride_h, stride_w] == [1, 1, 1] && draw.chance(60);
    let mut dilation = || if dilated { draw.pick(&[1, 2]) } else { 1 };
    let dilations = [dilation(), dilation(), dilation()];
    let window = [draw.size(1, 3), draw.size(1, 3), draw.size(1, 3)];
    let (channels, outputs) = (draw.size(1, 7), draw.size(1, 9));
    let batch = draw.size(1, 2);
    let size = [0, 1, 2].map(|d| (window[d] - 1) * dilations[d] as usize + draw.size(1, 5));
    let params = Conv3DParams::default()
        .padding(padding)
        .stride_d(stride_d)
        .stride_w(stride_w)
        .stride_h(stride_h)
        .fused_activation_function(draw.activation())
        .dilation_d_factor(dilations[0])
        .dilation_w_factor(dilations[2])
        .dilation_h_factor(dilations[1]);
    let data = |shape: [usize; 3], channels| x(Float32, &[batch, shape[0], shape[1], shape[2], channels]);
    let weights = |a, b| x(Float32, &[window[0], window[1], window[2], a, b]).constant();
    if i % 3 != 2 {
        let inputs = [Some(data(size, channels)), Some(weights(channels, outputs))];
        let bias = draw.chance(70).then(|| Some(x(Float32, &[outputs]).constant()));
        return Case::optional(Op::CONV_3D, params, inputs.into_iter().chain(bias));
    }
    let strides = [stride_d, stride_h, stride_w];
    let small = size.map(|n| n.min(4));
    let grown = [0, 1, 2].map(|d| match padding {
        Padding::Same => small[d] * strides[d] as usize,
        Padding::Valid => (small[d] - 1) * strides[d] as usize + (window[d] - 1) * dilations[d] as usize + 1,
    });
    let shape = [batch, grown[0], grown[1], grown[2], outputs].map(|d| d as i32);
    let inputs = [list(&shape), weights(outputs, channels), data(small, channels), x(Float32, &[outputs])];
    Case::new(Op::CONV_3D_TRANSPOSE, params, inputs).outputs_of(Float32)
}

fn reduce_window(draw: &mut Draw, i: usize) -> Case {
    use ReduceWindowFunction::{Add, Maximum, Minimum, Mul};
    let reduce_function = [Add, Maximum, Minimum, Mul][i % 4];
    let ty = draw.pick(&[Float32, Float32, Int32, Int8]);
    let rank = draw.size(1, 4);
    let mut chosen = |from: &[i64]| (0..rank).map(|_| draw.pick(from)).collect::<Vec<_>>();
    let (window, stride, dilation) = (chosen(&[1, 2, 3]), chosen(&[1, 1, 2, 3]), chosen(&[1, 1, 2]));
    let shape: Vec<usize> =
        (0..rank).map(|d| ((window[d] - 1) * dilation[d]) as usize + draw.size(1, 6)).collect();
    let (low, high) = if reduce_function == Mul { (1.0, 2.0) } else { (-3.0, 3.0) };
    let wide = |v: Vec<i64>| known(&[v.len()], &v);
    let inputs = [
        x(ty, &shape).range(low, high),
        x(ty, &[]).range(1.0, 1.0).constant(),
        wide(window),
        wide(stride),
        wide(dilation),
    ];
    Case::new(Op::REDUCE_WINDOW, ReduceWindowParams::default().reduce_function(reduce_function), inputs)
}

fn non_max_suppression(draw: &mut Draw, i: usize) -> Case {
    let n = draw.size(1, 60);
    // Boxes of a grid either overlap much or not at all, and scores differ by far more than rounding errors.
    let mut corners = Vec::new();
    for _ in 0..n {
        let (y, x) = (
            draw.below(5) as f32 * 3.0 + draw.real(0.0, 1.0),
            draw.below(5) as f32 * 3.0 + draw.real(0.0, 1.0),
        );
        let (h, w) = (draw.real(2.0, 4.0), draw.real(2.0, 4.0));
        // Corners in any order.
        corners.extend(if draw.chance(50) { [y, x, y + h, x + w] } else { [y + h, x + w, y, x] });
    }
    let scores: Vec<f32> = draw.order(n).into_iter().map(|place| (place as f32 + 1.0) / 64.0).collect();
    let most = draw.pick(&[1, 5, 20, 80]);
    let scalar = |v: f32| known(&[], &[v]);
    let mut inputs = vec![
        given(&[n, 4], &corners),
        given(&[n], &scores),
        known(&[], &[most]),
        scalar(draw.pick(&[0.2, 0.5, 0.7])),
        scalar(draw.pick(&[0.0, 0.3])),
    ];
    let count = most as usize;
    let (indices, number) = (Output::new(Int32, &[count]), Output::new(Int32, &[]));
    if i.is_multiple_of(2) {
        return Case::new(Op::NON_MAX_SUPPRESSION_V4, Params::None, inputs).outputs([indices, number]);
    }
    inputs.push(scalar(draw.pick(&[0.0, 0.5])));
    let outputs = [indices, Output::new(Float32, &[count]), number];
    Case::new(Op::NON_MAX_SUPPRESSION_V5, Params::None, inputs).outputs(outputs)
}

fn complex(draw: &mut Draw, i: usize) -> Case {
    let rank = draw.size(1, 4);
    let data = x(Complex64, &draw.shape(rank, 400));
    Case::new([Op::REAL, Op::IMAG, Op::COMPLEX_ABS][i % 3], Params::None, [data])
}
