//! Graphs that call subgraphs, and graphs with state: branches, loops, variables.

use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::control_flow::{IfParams, WhileParams};
use delegraph_core::ops::variables::VarHandleParams;

use super::super::prelude::*;
use super::draw::Draw;
use super::graphs::{Row, matrix, two};
use super::net::{Net, T};

const PLAIN: Activation = Activation::None;

fn conditional(draw: &mut Draw) -> Vec<Operand> {
    let mut inputs = two(draw);
    inputs.insert(0, x(Bool, &[]));
    inputs
}

/// Returns a branch of a few nodes.
fn branch(net: &mut Net, name: &str, like: &[T], first: Op) -> delegraph_core::SubgraphBuilder {
    let seed = net.draw.seed();
    let mut inner = Net::new(name, Draw::new(seed, name, 0));
    let inputs: Vec<T> = like.iter().map(|t| inner.input(&x(t.ty, &t.shape))).collect();
    let a = inner.binary(first, &inputs[0], &inputs[1], PLAIN);
    let b = inner.unary(Op::TANH, &a);
    inner.outputs(&[&b, &a]);
    inner.graph
}

/// IF between nodes; both branches are taken, in different invocations.
fn branches(net: &mut Net, inputs: &[T]) {
    let before = net.unary(Op::RELU, &inputs[1]);
    let like = [before.clone(), inputs[2].clone()];
    let (then, other) = (branch(net, "then", &like, Op::ADD), branch(net, "else", &like, Op::MUL));
    let params = IfParams::default().then_subgraph_index(net.call(then)).else_subgraph_index(net.call(other));
    let names = [net.name("if"), net.name("if")];
    let ids = names.map(|name| net.graph.tensor(&name, Float32, &before.shape[..]));
    let node = net.graph.node(Op::IF, params).inputs([inputs[0].id, before.id, inputs[2].id]);
    node.writes(ids);
    let results = ids.map(|id| T { id, ..before.clone() });
    let out = net.binary(Op::SUB, &results[0], &results[1], PLAIN);
    net.outputs(&[&out, &results[1]]);
}

fn counted(draw: &mut Draw) -> Vec<Operand> {
    let mut inputs = matrix(draw);
    // The number of iterations, from 0 to 4.
    inputs.insert(0, x(Int32, &[]).range(0.0, 4.0));
    inputs
}

/// WHILE between nodes; the first input is the number of iterations, from 0 to 4.
fn repeated(net: &mut Net, inputs: &[T]) {
    let before = net.unary(Op::TANH, &inputs[1]);
    let depth = before.shape[1];
    let mut condition = Net::new("condition", Draw::new(1, "condition", 0));
    let like = [x(Int32, &[]), x(Float32, &before.shape)];
    let left = condition.input(&like[0]);
    condition.input(&like[1]);
    let zero = condition.graph.constant("zero", [], &[0i32]);
    let more = condition.graph.node(Op::GREATER, Params::None).inputs([left.id, zero]).output("more");
    condition.graph.outputs([more]);
    let seed = net.draw.seed();
    let mut body = Net::new("body", Draw::new(seed, "body", 0));
    let (left, data) = (body.input(&like[0]), body.input(&like[1]));
    let minus = body.graph.constant("minus", [], &[-1i32]);
    let add = AddParams::default().fused_activation_function(PLAIN).pot_scale_int16(false);
    let next = body.node(Op::ADD, add.into(), &[&left], &[minus], &[]);
    let mixed = body.dense(&data, depth, None, PLAIN);
    let squashed = body.unary(Op::TANH, &mixed);
    body.outputs(&[&next, &squashed]);
    let params = WhileParams::default()
        .cond_subgraph_index(net.call(condition.graph))
        .body_subgraph_index(net.call(body.graph));
    let names = [net.name("while"), net.name("while")];
    let [count, data] = names;
    let count = net.graph.tensor(&count, Int32, []);
    let data = net.graph.tensor(&data, Float32, &before.shape[..]);
    net.graph.node(Op::WHILE, params).inputs([inputs[0].id, before.id]).writes([count, data]);
    let result = T { id: data, ..before.clone() };
    let out = net.unary(Op::RELU, &result);
    net.outputs(&[&out]);
}

/// A variable that each invocation reads, changes and writes.
fn remembered(net: &mut Net, inputs: &[T]) {
    let a = net.unary(Op::TANH, &inputs[0]);
    let params = || VarHandleParams::default().container("c".into()).shared_name("sum".into());
    let handle = net.graph.node(Op::VAR_HANDLE, params()).output("handle");
    // The first write creates the variable; reading it earlier is undefined.
    net.graph.node(Op::ASSIGN_VARIABLE, Params::None).inputs([handle, a.id]).writes([]);
    let read = |net: &mut Net| {
        let name = net.name("read");
        let id = net.graph.tensor(&name, Float32, &a.shape[..]);
        net.graph.node(Op::READ_VARIABLE, Params::None).inputs([handle]).writes([id]);
        T { id, ..a.clone() }
    };
    let first = read(net);
    let sum = net.binary(Op::ADD, &first, &inputs[1], PLAIN);
    net.graph.node(Op::ASSIGN_VARIABLE, Params::None).inputs([handle, sum.id]).writes([]);
    let second = read(net);
    let out = net.binary(Op::MUL, &second, &first, PLAIN);
    net.outputs(&[&out, &second]);
}

pub(super) const TABLE: &[Row] = &[
    ("branches", Op::IF, conditional, branches, 4, 24),
    ("loop", Op::WHILE, counted, repeated, 4, 24),
    ("variables", Op::READ_VARIABLE, two, remembered, 3, 16),
];
