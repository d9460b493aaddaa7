//! Graphs of several nodes, with structures that delegates fuse, split, reorder, or share memory for.

use std::sync::Arc;

use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_core::ops::split::SplitParams;

use super::super::prelude::*;
use super::draw::Draw;
use super::net::{Net, T, with_last};

/// The inputs of a graph, drawn from a seed.
pub(super) type Inputs = fn(&mut Draw) -> Vec<Operand>;
/// Adds the nodes between inputs and outputs.
pub(super) type Body = fn(&mut Net, &[T]);

/// A kind of graph: name, tested op, inputs, body, number of invocations, and number of cases.
pub(super) type Row = (&'static str, Op, Inputs, Body, usize, usize);

pub(super) fn image(draw: &mut Draw) -> Vec<Operand> {
    let shape = [draw.size(1, 3), draw.size(3, 9), draw.size(4, 11), draw.pick(&[1, 2, 3, 4, 5, 7, 8])];
    vec![x(Float32, &shape).range(-2.0, 2.0)]
}

pub(super) fn matrix(draw: &mut Draw) -> Vec<Operand> {
    let shape = [draw.size(1, 5), draw.pick(&[3, 4, 5, 7, 8, 13, 16])];
    vec![x(Float32, &shape).range(-2.0, 2.0)]
}

pub(super) fn two(draw: &mut Draw) -> Vec<Operand> {
    let rank = draw.size(1, 4);
    let shape = draw.shape(rank, 200);
    vec![x(Float32, &shape).range(-2.0, 2.0), x(Float32, &shape).range(-1.0, 3.0)]
}

fn sequence(draw: &mut Draw) -> Vec<Operand> {
    let shape = [draw.size(1, 3), draw.size(3, 9), draw.pick(&[4, 6, 8, 12])];
    vec![x(Float32, &shape).range(-2.0, 2.0)]
}

const PLAIN: Activation = Activation::None;

/// The same tensor as both operands.
fn twice(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let op = net.draw.pick(&[Op::ADD, Op::MUL, Op::SUB, Op::MAXIMUM]);
    let first = net.binary(op, a, a, PLAIN);
    let before = net.unary(Op::TANH, &inputs[1]);
    let op = net.draw.pick(&[Op::ADD, Op::MUL]);
    let second = net.binary(op, &before, &before, PLAIN);
    net.outputs(&[&first, &second]);
}

/// A random graph of data movement, arithmetic and matrix products; some intermediate tensors are outputs.
fn dag(net: &mut Net, inputs: &[T]) {
    let mut tensors = inputs.to_vec();
    let count = net.draw.size(3, 20);
    let mut read = vec![false; tensors.len()];
    for _ in 0..count {
        // Recent tensors are read more often. Tensors that no node reads become outputs.
        let newest = tensors.len() - 1;
        let back = net.draw.below(4).min(newest);
        let a_at = if net.draw.chance(70) { newest - back } else { net.draw.below(newest + 1) };
        let a = tensors[a_at].clone();
        let t = step(net, &a, &tensors, &mut read);
        read[a_at] = true;
        tensors.push(t);
        read.push(false);
    }
    let mut outputs: Vec<&T> = Vec::new();
    for (i, t) in tensors.iter().enumerate().skip(inputs.len()) {
        if !read[i] || net.draw.chance(12) {
            outputs.push(t);
        }
    }
    net.outputs(&outputs);
}

/// Adds one node that reads `a`.
fn step(net: &mut Net, a: &T, tensors: &[T], read: &mut [bool]) -> T {
    let rank = a.shape.len();
    let activation = net.draw.activation();
    // Large values are squashed.
    if a.bound > 40.0 {
        let op = net.draw.pick(&[Op::TANH, Op::LOGISTIC, Op::RELU6]);
        return net.unary(op, a);
    }
    match net.draw.below(10) {
        0 => {
            let ops = [Op::RELU, Op::TANH, Op::LOGISTIC, Op::ABS, Op::NEG, Op::SIN, Op::RELU6];
            let op = net.draw.pick(&ops);
            net.unary(op, a)
        }
        1..=3 => {
            let op = net.draw.pick(&[Op::ADD, Op::SUB, Op::MUL, Op::MAXIMUM, Op::MINIMUM]);
            let same: Vec<usize> = (0..tensors.len()).filter(|&i| tensors[i].shape == a.shape).collect();
            let at = net.draw.pick(&same);
            if tensors[at].bound > 40.0 {
                return net.unary(Op::TANH, &tensors[at].clone());
            }
            read[at] = true;
            net.binary(op, a, &tensors[at].clone(), activation)
        }
        4 => {
            let last = a.shape.last().copied().unwrap_or(1);
            let shape = if net.draw.chance(50) || rank == 0 { vec![last] } else { vec![1] };
            let shape = if rank == 0 { vec![] } else { shape };
            let constant = net.floats(&shape, -1.5, 1.5);
            let op = net.draw.pick(&[Op::ADD, Op::MUL, Op::SUB]);
            match net.draw.chance(50) {
                true => net.binary(op, a, &constant, activation),
                false => net.binary(op, &constant, a, activation),
            }
        }
        5 if rank > 0 => {
            let order = net.draw.order(rank);
            net.transpose(a, &order)
        }
        6 => {
            let n = a.shape.iter().product::<usize>();
            let last = a.shape.last().copied().unwrap_or(1).max(1);
            let shape = net.draw.pick(&[vec![n], vec![n / last, last], vec![1, n / last, 1, last]]);
            net.reshape(a, &shape)
        }
        7 if (2..5).contains(&rank) => {
            let units = net.draw.pick(&[1, 3, 4, 5, 8]);
            net.dense(a, units, None, activation)
        }
        8 if rank == 4 => {
            let (window, stride) = (net.draw.pick(&[1, 2, 3]), net.draw.pick(&[1, 1, 2]));
            let outputs = net.draw.pick(&[None, Some(3), Some(4), Some(5)]);
            net.conv(a, outputs, window, stride, activation)
        }
        9 if rank > 1 => {
            let axis = net.draw.below(rank);
            let keep = net.draw.chance(60);
            net.reduce(Op::MEAN, a, &[axis], keep)
        }
        _ => net.unary(Op::TANH, a),
    }
}

/// A chain of elementwise nodes, which delegates may fuse into one kernel.
fn chain(net: &mut Net, inputs: &[T]) {
    let mut t = inputs[0].clone();
    for i in 0..net.draw.size(2, 12) {
        let channels = t.shape.last().copied().unwrap_or(1);
        t = match i % 3 {
            0 => {
                let c = net.floats(&[channels], 0.5, 1.5);
                net.binary(Op::MUL, &t, &c, PLAIN)
            }
            1 => {
                let c = net.floats(&[channels], -1.0, 1.0);
                let activation = net.draw.activation();
                net.binary(Op::ADD, &t, &c, activation)
            }
            _ => {
                let op = net.draw.pick(&[Op::TANH, Op::RELU, Op::LOGISTIC, Op::ABS]);
                net.unary(op, &t)
            }
        };
    }
    net.outputs(&[&t]);
}

/// Two branches from one tensor that join again; the tensor may be an output.
fn diamond(net: &mut Net, inputs: &[T]) {
    let top = net.binary(Op::ADD, &inputs[0], &inputs[1], Activation::Relu);
    let left = net.unary(Op::TANH, &top);
    let right = net.unary(Op::NEG, &top);
    let right = net.unary(Op::LOGISTIC, &right);
    let op = net.draw.pick(&[Op::ADD, Op::SUB, Op::MUL, Op::MAXIMUM]);
    let bottom = net.binary(op, &left, &right, PLAIN);
    let tap = [net.draw.chance(50), net.draw.chance(30), net.draw.chance(30)];
    let mut outputs = vec![&bottom];
    outputs
        .extend([(tap[0], &top), (tap[1], &left), (tap[2], &right)].into_iter().filter(|p| p.0).map(|p| p.1));
    net.outputs(&outputs);
}

/// The same tensor as both inputs, and a constant that two nodes share.
fn shared(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let op = net.draw.pick(&[Op::ADD, Op::MUL, Op::SUB, Op::MAXIMUM, Op::SQUARED_DIFFERENCE]);
    let twice = net.binary(op, a, a, PLAIN);
    let depth = a.shape[a.shape.len() - 1];
    let weights = net.floats(&[depth, depth], -0.6, 0.6);
    let first = net.dense(a, depth, Some(&weights), Activation::Relu);
    let second = net.dense(&first, depth, Some(&weights), PLAIN);
    let both = net.binary(Op::ADD, &second, &twice, PLAIN);
    let mut shape = a.shape.clone();
    shape[0] *= 2;
    let params = ConcatenationParams::default().axis(0).fused_activation_function(PLAIN);
    let doubled = net.node(Op::CONCATENATION, params.into(), &[&both, &both], &[], &shape);
    net.outputs(&[&doubled, &first]);
}

/// The block of mobile networks: expand, filter, project, add.
fn residual(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let channels = a.shape[3];
    let wide = net.conv(a, Some(2 * channels + 1), 1, 1, Activation::Relu6);
    let window = net.draw.pick(&[2, 3, 4, 5]);
    let mixed = net.conv(&wide, None, window, 1, Activation::Relu6);
    let narrow = net.conv(&mixed, Some(channels), 1, 1, PLAIN);
    let sum = net.binary(Op::ADD, &narrow, a, PLAIN);
    let op = net.draw.pick(&[Op::AVERAGE_POOL_2D, Op::MAX_POOL_2D]);
    let stride = net.draw.size(1, 2);
    let pooled = net.pool(op, &sum, stride);
    match net.draw.chance(40) {
        // An intermediate value that fusion would remove is an output.
        true => net.outputs(&[&pooled, &narrow]),
        false => net.outputs(&[&pooled]),
    }
}

/// A convolution with nodes that delegates fold into it: padding before; scale, shift and activation after.
fn folded(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let (top, left) = (net.draw.below(3), net.draw.below(3));
    let amounts = [0, 0, top as i32, 1, left as i32, 0, 0, 0];
    let name = net.name("pads");
    let pads = net.graph.constant(&name, [4, 2], &amounts);
    let shape = [a.shape[0], a.shape[1] + top + 1, a.shape[2] + left, a.shape[3]];
    let padded = net.node(Op::PAD, Params::None, &[a], &[pads], &shape);
    let outputs = net.draw.channels();
    let depthwise = net.draw.chance(40);
    let conv = net.conv(&padded, if depthwise { None } else { Some(outputs) }, 3, 1, PLAIN);
    let count = conv.shape[3];
    let scale = net.floats(&[count], 0.5, 1.5);
    let scaled = net.binary(Op::MUL, &conv, &scale, PLAIN);
    let shift = net.floats(&[count], -1.0, 1.0);
    let shifted = net.binary(Op::ADD, &scaled, &shift, PLAIN);
    let op = net.draw.pick(&[Op::RELU, Op::RELU6, Op::HARD_SWISH, Op::TANH]);
    let active = net.unary(op, &shifted);
    match net.draw.below(3) {
        0 => net.outputs(&[&active]),
        1 => net.outputs(&[&active, &conv]),
        _ => net.outputs(&[&scaled, &active]),
    }
}

/// x · logistic(x), and a gate per channel.
fn gated(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let gate = net.unary(Op::LOGISTIC, a);
    let swish = net.binary(Op::MUL, a, &gate, PLAIN);
    let mean = net.reduce(Op::MEAN, &swish, &[1, 2], true);
    let channels = a.shape[3];
    let squeezed = net.conv(&mean, Some(channels.div_ceil(2)), 1, 1, Activation::Relu);
    let excited = net.conv(&squeezed, Some(channels), 1, 1, PLAIN);
    let weights = net.unary(Op::LOGISTIC, &excited);
    let out = net.binary(Op::MUL, &swish, &weights, PLAIN);
    net.outputs(&[&out]);
}

/// Attention with heads, and a normalization built from elementary ops.
fn attention(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let (batch, time, depth) = (a.shape[0], a.shape[1], a.shape[2]);
    let heads = 2;
    let mean = net.reduce(Op::MEAN, a, &[2], true);
    let variance = net.binary(Op::SQUARED_DIFFERENCE, a, &mean, PLAIN);
    let variance = net.reduce(Op::MEAN, &variance, &[2], true);
    let epsilon = net.floats(&[1], 0.01, 0.01);
    let variance = net.binary(Op::ADD, &variance, &epsilon, PLAIN);
    let inverse = net.unary(Op::RSQRT, &variance);
    let centred = net.binary(Op::SUB, a, &mean, PLAIN);
    let normal = net.binary(Op::MUL, &centred, &inverse, PLAIN);
    let head = |net: &mut Net, order: &[usize]| {
        let t = net.dense(&normal, depth, None, PLAIN);
        let t = net.reshape(&t, &[batch, time, heads, depth / heads]);
        net.transpose(&t, order)
    };
    let query = head(net, &[0, 2, 1, 3]);
    let key = head(net, &[0, 2, 3, 1]);
    let value = head(net, &[0, 2, 1, 3]);
    let matmul = || {
        delegraph_core::ops::batch_matmul::BatchMatMulParams::default()
            .adj_x(false)
            .adj_y(false)
            .asymmetric_quantize_inputs(false)
    };
    let scores =
        net.node(Op::BATCH_MATMUL, matmul().into(), &[&query, &key], &[], &[batch, heads, time, time]);
    let scale = net.floats(&[], 0.5, 0.5);
    let scores = net.binary(Op::MUL, &scores, &scale, PLAIN);
    let weights = net.softmax(&scores);
    let shape = [batch, heads, time, depth / heads];
    let mixed = net.node(Op::BATCH_MATMUL, matmul().into(), &[&weights, &value], &[], &shape);
    let mixed = net.transpose(&mixed, &[0, 2, 1, 3]);
    let mixed = net.reshape(&mixed, &[batch, time, depth]);
    let out = net.binary(Op::ADD, &mixed, a, PLAIN);
    net.outputs(&[&out]);
}

/// Ops that few delegates support between ops that most support: tests partitions and their boundaries.
fn split(net: &mut Net, inputs: &[T]) {
    let mut t = net.binary(Op::ADD, &inputs[0], &inputs[1], PLAIN);
    let mut kept = Vec::new();
    for _ in 0..net.draw.size(1, 4) {
        let axis = net.draw.below(t.shape.len()) as i32;
        let name = net.name("axis");
        let axis = net.graph.constant(&name, [], &[axis]);
        let squashed = net.unary(Op::TANH, &t);
        let params = CumsumParams::default().exclusive(false).reverse(false);
        let mut sums = net.node(Op::CUMSUM, params.into(), &[&squashed], &[axis], &t.shape);
        sums.bound = 30.0;
        let back = net.unary(Op::LOGISTIC, &sums);
        t = net.binary(Op::MUL, &back, &squashed, Activation::Relu);
        kept.push(sums);
    }
    let last = net.binary(Op::SUB, &t, &inputs[1], PLAIN);
    match net.draw.chance(50) {
        true => net.outputs(&[&last, &kept[0].clone()]),
        false => net.outputs(&[&last]),
    }
}

/// Unused outputs, an unused input, a node whose output has no consumer.
fn unread(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let twice = net.binary(Op::ADD, a, a, PLAIN);
    let name = net.name("axis");
    let axis = net.graph.constant(&name, [], &[-1i32]);
    let parts = [0; 3].map(|_| net.name("part"));
    let parts = parts.each_ref().map(|name| name.as_str());
    let whole = {
        let shape = with_last(&a.shape, |d| 3 * d);
        let params = ConcatenationParams::default().axis(-1).fused_activation_function(PLAIN);
        net.node(Op::CONCATENATION, params.into(), &[a, &twice, a], &[], &shape)
    };
    let node = net.graph.node(Op::SPLIT, SplitParams::default().num_splits(3)).inputs([axis, whole.id]);
    let [_, second, _] = node.outputs(parts);
    let second = T { id: second, ..twice.clone() };
    net.unary(Op::TANH, &twice);
    let out = net.unary(Op::RELU, &second);
    net.outputs(&[&out]);
}

/// Outputs that are listed twice, in another order than computed, and one that is an input.
fn outputs(net: &mut Net, inputs: &[T]) {
    let sum = net.binary(Op::ADD, &inputs[0], &inputs[1], PLAIN);
    let product = net.binary(Op::MUL, &sum, &inputs[1], PLAIN);
    let last = net.unary(Op::TANH, &product);
    match net.draw.below(3) {
        0 => net.outputs(&[&last, &sum, &product]),
        1 => net.outputs(&[&product, &last, &inputs[0]]),
        _ => net.outputs(&[&last, &product, &last]),
    }
}

/// Integers and floats: positions are computed, then gathered.
fn integers(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let params = delegraph_core::ops::arg_min_max::ArgMaxParams::default().output_type(Int32);
    let name = net.name("axis");
    let axis = net.graph.constant(&name, [], &[0i32]);
    let best = net.node(Op::ARG_MAX, params.into(), &[a], &[axis], &a.shape[1..]);
    let params = delegraph_core::ops::gather::GatherParams::default().axis(0).batch_dims(0);
    let shape: Vec<usize> = a.shape[1..].iter().chain(&a.shape[1..]).copied().collect();
    let rows = net.node(Op::GATHER, params.into(), &[a, &best], &[], &shape);
    let name = net.name("three");
    let three = net.graph.constant(&name, [], &[3i32]);
    let add = AddParams::default().fused_activation_function(PLAIN).pot_scale_int16(false);
    let shifted = net.node(Op::ADD, add.into(), &[&best], &[three], &a.shape[1..]);
    let out = net.unary(Op::ABS, &rows);
    net.outputs(&[&out, &shifted]);
}

pub(super) const TABLE: &[Row] = &[
    ("dag_image", Op::ADD, image, dag, 1, 90),
    ("dag_matrix", Op::FULLY_CONNECTED, matrix, dag, 1, 70),
    ("dag_two", Op::ADD, two, dag, 1, 90),
    ("chain", Op::MUL, image, chain, 1, 24),
    ("diamond", Op::ADD, two, diamond, 1, 24),
    ("twice", Op::MUL, two, twice, 1, 24),
    ("shared", Op::FULLY_CONNECTED, matrix, shared, 1, 24),
    ("residual", Op::CONV_2D, image, residual, 1, 40),
    ("folded", Op::CONV_2D, image, folded, 1, 48),
    ("gated", Op::MUL, image, gated, 1, 20),
    ("attention", Op::BATCH_MATMUL, sequence, attention, 1, 24),
    ("split", Op::CUMSUM, two, split, 1, 32),
    ("unread", Op::SPLIT, two, unread, 1, 12),
    ("outputs", Op::ADD, two, outputs, 1, 24),
    ("integers", Op::GATHER, matrix, integers, 1, 16),
];

/// Adds the cases of these kinds of graphs.
pub(super) fn cases(rows: &[Row], seed: u64, out: &mut Vec<Case>) {
    for &(name, op, inputs, body, steps, count) in rows {
        for i in 0..count {
            let given = inputs(&mut Draw::new(seed, name, i));
            let operands = given.clone();
            let make = Arc::new(move || {
                let mut net = Net::new("main", Draw::new(seed, &format!("{name} nodes"), i));
                let tensors: Vec<T> = operands.iter().map(|o| net.input(o)).collect();
                body(&mut net, &tensors);
                net.model()
            });
            let data = Draw::new(seed, &format!("{name} data"), i).seed();
            let case = Case::made(op, make, given).in_family("graphs").seeded(data).steps(steps);
            out.push(case.detail(format!("{name}_random_{i}")));
        }
    }
}
