//! The StableHLO ops, including those for which LiteRT registers no kernel, and CALL.

use std::sync::Arc;

use delegraph_core::ops::control_flow::{CallParams, StablehloWhileParams};
use delegraph_core::ops::stablehlo_compute::{
    StablehloConvolutionParams, StablehloDotGeneralParams, StablehloReduceParams, StablehloSortParams,
};
use delegraph_core::ops::stablehlo_elementwise::StablehloCompareParams;
use delegraph_core::ops::stablehlo_movement::{
    StablehloBroadcastInDimParams, StablehloConcatenateParams, StablehloDynamicSliceParams,
    StablehloIotaParams, StablehloPadParams, StablehloSliceParams, StablehloTransposeParams,
};
use delegraph_core::ops::{ComparisonDirection, ComparisonType};

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;
use super::net::{Net, T};

/// Op, and range of floats.
const FUNCTIONS: &[(Op, f64, f64)] = &[
    (Op::STABLEHLO_ABS, -4.0, 4.0),
    (Op::STABLEHLO_NEGATE, -4.0, 4.0),
    (Op::STABLEHLO_FLOOR, -4.0, 4.0),
    (Op::STABLEHLO_LOGISTIC, -9.0, 9.0),
    (Op::STABLEHLO_COSINE, -9.0, 9.0),
    (Op::STABLEHLO_EXPONENTIAL, -9.0, 9.0),
    (Op::STABLEHLO_LOG, 0.01, 9.0),
    (Op::STABLEHLO_RSQRT, 0.01, 9.0),
    (Op::STABLEHLO_TANH, -6.0, 6.0),
    (Op::STABLEHLO_CBRT, -9.0, 9.0),
];

const PAIRS: &[(Op, &[TensorType])] = &[
    (Op::STABLEHLO_ADD, &[Float32, Int32, Int64]),
    (Op::STABLEHLO_SUBTRACT, &[Float32, Int32, Int64]),
    (Op::STABLEHLO_MULTIPLY, &[Float32, Int32, Int64]),
    (Op::STABLEHLO_DIVIDE, &[Float32, Int32]),
    (Op::STABLEHLO_REMAINDER, &[Float32, Int32]),
    (Op::STABLEHLO_POWER, &[Float32, Int32]),
    (Op::STABLEHLO_MAXIMUM, &[Float32, Int8, Int32]),
    (Op::STABLEHLO_MINIMUM, &[Float32, Int8, Int32]),
    (Op::STABLEHLO_AND, &[Bool, Int32]),
    (Op::STABLEHLO_OR, &[Bool, Int32]),
    (Op::STABLEHLO_SHIFT_LEFT, &[Int32]),
];

fn wide(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&v| v as i64).collect()
}

fn elementwise(seed: u64, out: &mut Vec<Case>) {
    for &(op, low, high) in FUNCTIONS {
        for ty in [Float32, Float16] {
            for i in 0..3 {
                let mut draw = Draw::new(seed, &format!("{op:?}{ty:?}"), i);
                let rank = draw.size(0, 5);
                let shape = draw.shape(rank, 200);
                let case = Case::new(op, Params::None, [x(ty, &shape).range(low, high)]);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    for &(op, types) in PAIRS {
        for &ty in types {
            for i in 0..4 {
                let mut draw = Draw::new(seed, &format!("{op:?}{ty:?}"), i);
                let rank = draw.size(0, 5);
                let shape = draw.shape(rank, 200);
                let (left, right) = (x(ty, &shape), x(ty, &shape));
                let inputs = match (op, ty) {
                    (Op::STABLEHLO_DIVIDE | Op::STABLEHLO_REMAINDER, _) => {
                        [left.range(-60.0, 60.0), right.range(-9.0, -2.0)]
                    }
                    (Op::STABLEHLO_POWER, Float32) => [left.range(0.1, 3.0), right.range(-2.0, 3.0)],
                    (Op::STABLEHLO_POWER | Op::STABLEHLO_SHIFT_LEFT, _) => {
                        [left.range(-5.0, 5.0), right.range(0.0, 5.0)]
                    }
                    _ => [left, right],
                };
                out.push(finish(Case::new(op, Params::None, inputs), &mut draw, "", i));
            }
        }
    }
    use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};
    for (ty, compare_type) in
        [(Float32, ComparisonType::Float), (Int32, ComparisonType::Signed), (Int8, ComparisonType::NoType)]
    {
        for (i, comparison_direction) in [Eq, Ne, Ge, Gt, Le, Lt].into_iter().enumerate() {
            let mut draw = Draw::new(seed, &format!("compare{ty:?}"), i);
            let rank = draw.size(1, 4);
            let shape = draw.shape(rank, 200);
            let operand = || match ty {
                Float32 => x(ty, &shape).mixed(&[1.0, -0.0, 0.0, 2.5]),
                _ => x(ty, &shape).range(-2.0, 2.0),
            };
            let params = StablehloCompareParams::default()
                .comparison_direction(comparison_direction)
                .compare_type(compare_type);
            let case = Case::new(Op::STABLEHLO_COMPARE, params, [operand(), operand()]);
            out.push(finish(case.outputs([Output::of(Bool)]), &mut draw, "", i));
        }
        for i in 0..4 {
            let mut draw = Draw::new(seed, &format!("clamp{ty:?}"), i);
            let rank = draw.size(0, 4);
            let shape = draw.shape(rank, 200);
            let ends = if draw.chance(50) { vec![] } else { shape.clone() };
            let inputs =
                [x(ty, &ends).range(-2.0, 0.0), x(ty, &shape).range(-5.0, 5.0), x(ty, &ends).range(1.0, 3.0)];
            out.push(finish(Case::new(Op::STABLEHLO_CLAMP, Params::None, inputs), &mut draw, "", i));
            let condition = if draw.chance(50) { vec![] } else { shape.clone() };
            let inputs = [x(Bool, &condition), x(ty, &shape), x(ty, &shape)];
            let case = Case::new(Op::STABLEHLO_SELECT, Params::None, inputs).outputs([Output::of(ty)]);
            out.push(finish(case.of(ty), &mut draw, "", i));
            let to = draw.pick(&[Int32, Float32, Int64]);
            let case = Case::new(Op::STABLEHLO_CONVERT, Params::None, [x(ty, &shape)]);
            out.push(finish(case.outputs([Output::of(to)]), &mut draw, "", i));
        }
    }
}

/// Creates a case of an op that moves elements of type `ty`.
fn moved(draw: &mut Draw, ty: TensorType, which: usize) -> Case {
    let rank = draw.size(1, 5);
    let shape = draw.shape(rank, 200);
    let data = x(ty, &shape);
    match which {
        0 => {
            let order = draw.order(rank);
            let params = StablehloTransposeParams::default().permutation(wide(&order));
            Case::new(Op::STABLEHLO_TRANSPOSE, params, [data])
        }
        1 => {
            let start: Vec<usize> = shape.iter().map(|&d| draw.below(d)).collect();
            let limit: Vec<usize> = shape.iter().zip(&start).map(|(&d, &s)| draw.size(s + 1, d)).collect();
            let strides: Vec<usize> = shape.iter().map(|_| draw.pick(&[1, 1, 2, 3])).collect();
            let params = StablehloSliceParams::default()
                .start_indices(wide(&start))
                .limit_indices(wide(&limit))
                .strides(wide(&strides));
            Case::new(Op::STABLEHLO_SLICE, params, [data])
        }
        2 => {
            let at = draw.below(rank);
            let inputs: Vec<Operand> = (0..draw.size(2, 4))
                .map(|_| {
                    let mut shape = shape.clone();
                    shape[at] = draw.size(1, 4);
                    x(ty, &shape)
                })
                .collect();
            Case::new(
                Op::STABLEHLO_CONCATENATE,
                StablehloConcatenateParams::default().dimension(at as i64),
                inputs,
            )
        }
        3 => {
            // Each dimension of the input is one of the output's dimensions, in order.
            let kept: Vec<usize> = (0..rank).filter(|_| draw.chance(60)).collect();
            let from: Vec<usize> = kept.iter().map(|&d| if draw.chance(30) { 1 } else { shape[d] }).collect();
            let params = StablehloBroadcastInDimParams::default().broadcast_dimensions(wide(&kept));
            let case = Case::new(Op::STABLEHLO_BROADCAST_IN_DIM, params, [x(ty, &from)]);
            case.outputs([Output::new(ty, &shape)])
        }
        4 => {
            let sizes: Vec<usize> = shape.iter().map(|&d| draw.size(1, d)).collect();
            let starts = shape.iter().map(|&d| x(Int32, &[]).range(-1.0, d as f64));
            let params = StablehloDynamicSliceParams::default().slice_sizes(wide(&sizes));
            Case::new(Op::STABLEHLO_DYNAMIC_SLICE, params, [data].into_iter().chain(starts))
        }
        5 => {
            let sizes: Vec<usize> = shape.iter().map(|&d| draw.size(1, d)).collect();
            let starts = shape.iter().map(|&d| x(Int32, &[]).range(-1.0, d as f64));
            let inputs = [data, x(ty, &sizes)].into_iter().chain(starts);
            Case::new(Op::STABLEHLO_DYNAMIC_UPDATE_SLICE, Params::None, inputs)
        }
        6 => {
            let amounts = |draw: &mut Draw, low: i64| (0..rank).map(|_| draw.int(low, 2)).collect::<Vec<_>>();
            let params = StablehloPadParams::default()
                .edge_padding_low(amounts(draw, 0))
                .edge_padding_high(amounts(draw, 0))
                .interior_padding(amounts(draw, 0));
            let one = if ty == Bool { 1.0 } else { 3.0 };
            Case::new(Op::STABLEHLO_PAD, params, [data, x(ty, &[]).range(one, one)])
        }
        7 => {
            let n = shape.iter().product::<usize>();
            Case::new(Op::STABLEHLO_RESHAPE, Params::None, [data]).outputs([Output::new(ty, &[1, n])])
        }
        _ => {
            let params = StablehloIotaParams::default().iota_dimension(draw.below(rank) as i64);
            Case::optional(Op::STABLEHLO_IOTA, params, []).outputs([Output::new(ty, &shape)]).of(ty)
        }
    }
}

fn dot(draw: &mut Draw, ty: TensorType) -> Case {
    let [a, b] = draw.pair(&[1, 2, 3, 5, 8]);
    let (batch, depth) = (draw.size(1, 3), draw.pick(&[1, 3, 4, 7, 16, 33]));
    let batched = draw.chance(50);
    let swapped = draw.chance(50);
    let mut left = if batched { vec![batch] } else { vec![] };
    let mut right = left.clone();
    let first = left.len();
    left.extend([a, depth]);
    right.extend(if swapped { [depth, b] } else { [b, depth] });
    let params = StablehloDotGeneralParams::default()
        .lhs_batching_dimensions(if batched { vec![0] } else { vec![] })
        .rhs_batching_dimensions(if batched { vec![0] } else { vec![] })
        .lhs_contracting_dimensions(vec![first as i64 + 1])
        .rhs_contracting_dimensions(vec![first as i64 + i64::from(!swapped)])
        .precision_config(Vec::new());
    let mut shape = if batched { vec![batch] } else { vec![] };
    shape.extend([a, b]);
    let case = Case::new(Op::STABLEHLO_DOT_GENERAL, params, [x(ty, &left), x(ty, &right)]);
    case.outputs([Output::new(ty, &shape)])
}

/// Height and width, channels last, filters HWIO.
fn convolution(draw: &mut Draw) -> Case {
    let (window, stride) = (draw.pair(&[1, 2, 3]), draw.pair(&[1, 1, 2]));
    let (dilation, inner) = (draw.pair(&[1, 1, 2]), draw.pair(&[1, 1, 2]));
    let pads = [draw.pair(&[0, 1, 2]), draw.pair(&[0, 1, 2])];
    let groups = draw.pick(&[1, 1, 2]);
    let (channels, outputs) = (groups * draw.size(1, 4), groups * draw.size(1, 4));
    let size = [draw.size(5, 8), draw.size(6, 9)];
    let batch = draw.size(1, 2);
    let extent = |i: usize| {
        let wide = (size[i] - 1) * inner[i] + 1 + pads[i][0] + pads[i][1];
        (wide - ((window[i] - 1) * dilation[i] + 1)) / stride[i] + 1
    };
    let shape = [batch, extent(0), extent(1), outputs];
    let params = StablehloConvolutionParams::default()
        .window_strides(wide(&stride))
        .padding(wide(&[pads[0], pads[1]].concat()))
        .lhs_dilation(wide(&inner))
        .rhs_dilation(wide(&dilation))
        .window_reversal(vec![draw.chance(30), draw.chance(30)])
        .input_batch_dimension(0)
        .input_feature_dimension(3)
        .input_spatial_dimensions(vec![1, 2])
        .kernel_input_feature_dimension(2)
        .kernel_output_feature_dimension(3)
        .kernel_spatial_dimensions(vec![0, 1])
        .output_batch_dimension(0)
        .output_feature_dimension(3)
        .output_spatial_dimensions(vec![1, 2])
        .feature_group_count(groups as i64)
        .batch_group_count(1)
        .precision_config(Vec::new());
    let inputs = [
        x(Float32, &[batch, size[0], size[1], channels]),
        x(Float32, &[window[0], window[1], channels / groups, outputs]),
    ];
    Case::new(Op::STABLEHLO_CONVOLUTION, params, inputs).outputs([Output::new(Float32, &shape)])
}

/// Returns a subgraph with two scalars and one node.
fn region(op: Op, params: impl Into<Params>, ty: TensorType) -> delegraph_core::SubgraphBuilder {
    let mut graph = delegraph_core::SubgraphBuilder::new("region");
    let (a, b) = (graph.input("a", ty, []), graph.input("b", ty, []));
    let out = graph.node(op, params).inputs([a, b]).output("out");
    graph.outputs([out]);
    graph
}

fn folded(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 200);
    let count = draw.size(1, rank);
    let mut axes = draw.order(rank)[..count].to_vec();
    axes.sort_unstable();
    let (op, start) = draw.pick(&[
        (Op::STABLEHLO_ADD, 0.0),
        (Op::STABLEHLO_MAXIMUM, -9.0),
        (Op::STABLEHLO_MINIMUM, 9.0),
        (Op::STABLEHLO_MULTIPLY, 1.0),
    ]);
    let kept: Vec<usize> = (0..rank).filter(|d| !axes.contains(d)).map(|d| shape[d]).collect();
    let params = StablehloReduceParams::default().dimensions(wide(&axes)).body_subgraph_index(1);
    let data = if op == Op::STABLEHLO_MULTIPLY { x(ty, &shape).range(0.8, 1.2) } else { x(ty, &shape) };
    let data = if ty == Int32 { data.range(-2.0, 2.0) } else { data };
    let case = Case::new(Op::STABLEHLO_REDUCE, params, [data, x(ty, &[]).range(start, start)]);
    case.calls([region(op, Params::None, ty)]).outputs([Output::new(ty, &kept)])
}

fn sorted(draw: &mut Draw, ty: TensorType) -> Case {
    let rank = draw.size(1, 3);
    let shape = draw.shape(rank, 200);
    let params = StablehloSortParams::default()
        .dimension(draw.below(rank) as i64)
        .is_stable(true)
        .comparator_subgraph_index(1);
    let direction = draw.pick(&[ComparisonDirection::Gt, ComparisonDirection::Lt]);
    let compare = StablehloCompareParams::default()
        .comparison_direction(direction)
        .compare_type(if ty == Float32 { ComparisonType::Float } else { ComparisonType::Signed });
    let case = Case::new(Op::STABLEHLO_SORT, params, [x(ty, &shape)]);
    case.calls([region(Op::STABLEHLO_COMPARE, compare, ty)]).outputs([Output::new(ty, &shape)])
}

/// A call of a subgraph between two nodes.
fn call(net: &mut Net, inputs: &[T]) {
    let seed = net.draw.seed();
    let mut inner = Net::new("called", Draw::new(seed, "called", 0));
    let like = x(Float32, &inputs[0].shape);
    let (a, b) = (inner.input(&like), inner.input(&like));
    let product = inner.binary(Op::MUL, &a, &b, Activation::None);
    let squashed = inner.unary(Op::TANH, &product);
    inner.outputs(&[&squashed]);
    let before = net.unary(Op::RELU, &inputs[0]);
    let subgraph = net.call(inner.graph) as u32;
    let id = net.graph.tensor("called", Float32, &inputs[0].shape[..]);
    net.graph
        .node(Op::CALL, CallParams::default().subgraph(subgraph))
        .inputs([before.id, inputs[1].id])
        .writes([id]);
    let result = T { id, ..before };
    let out = net.binary(Op::SUB, &result, &inputs[1], Activation::None);
    net.outputs(&[&out]);
}

/// Doubles the value; the first input holds the number of repetitions.
fn repeated(net: &mut Net, inputs: &[T]) {
    let mut condition = Net::new("condition", Draw::new(1, "condition", 0));
    let like = [x(Int32, &[]), x(Float32, &inputs[1].shape)];
    let left = condition.input(&like[0]);
    condition.input(&like[1]);
    let zero = condition.graph.constant("zero", [], &[0i32]);
    let more = condition.graph.node(Op::GREATER, Params::None).inputs([left.id, zero]).output("more");
    condition.graph.outputs([more]);
    let mut body = Net::new("body", Draw::new(1, "body", 0));
    let (left, data) = (body.input(&like[0]), body.input(&like[1]));
    let minus = body.graph.constant("minus", [], &[-1i32]);
    let next = body.node(Op::STABLEHLO_ADD, Params::None, &[&left], &[minus], &[]);
    let twice = body.node(Op::STABLEHLO_ADD, Params::None, &[&data, &data], &[], &data.shape);
    body.outputs(&[&next, &twice]);
    let params = StablehloWhileParams::default()
        .cond_subgraph_index(net.call(condition.graph))
        .body_subgraph_index(net.call(body.graph));
    let count = net.graph.tensor("count", Int32, []);
    let data = net.graph.tensor("data", Float32, &inputs[1].shape[..]);
    net.graph.node(Op::STABLEHLO_WHILE, params).inputs([inputs[0].id, inputs[1].id]).writes([count, data]);
    net.graph.outputs([count, data]);
}

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    elementwise(seed, out);
    for which in 0..9 {
        for ty in [Float32, Int8, Int32, Int64] {
            for i in 0..4 {
                let mut draw = Draw::new(seed, &format!("stablehlo{which}{ty:?}"), i);
                let case = moved(&mut draw, ty, which);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    for i in 0..16 {
        let mut draw = Draw::new(seed, "stablehlo sums", i);
        let ty = if i % 4 == 3 { Int32 } else { Float32 };
        let made = [dot(&mut draw, ty), convolution(&mut draw), folded(&mut draw, ty), sorted(&mut draw, ty)];
        out.extend(made.map(|case| finish(case, &mut draw, "", i)));
    }
    for i in 0..6 {
        let mut draw = Draw::new(seed, "call", i);
        let rank = draw.size(1, 4);
        let shape = draw.shape(rank, 100);
        let float = x(Float32, &shape).range(-2.0, 2.0);
        let data = draw.seed();
        for (op, body, first) in [
            (Op::CALL, call as fn(&mut Net, &[T]), float.clone()),
            (Op::STABLEHLO_WHILE, repeated, x(Int32, &[]).range(0.0, 4.0)),
        ] {
            let operands = [first, float.clone()];
            let inputs = operands.clone();
            let make = Arc::new(move || {
                let mut net = Net::new("main", Draw::new(seed, "call nodes", i));
                let tensors = operands.each_ref().map(|o| net.input(o));
                body(&mut net, &tensors);
                net.model()
            });
            let case = Case::made(op, make, inputs).of(Float32).seeded(data).steps(2);
            out.push(case.detail(format!("random_{i}")));
        }
    }
}
