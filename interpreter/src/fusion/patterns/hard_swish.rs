//! `x · relu6(x + 3) / 6`.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::Activation;
use delegraph_core::{BuiltinOp, Op, Params};

use super::{activation, binary, inner, near, with_scalar};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Replaces `x · relu6(x + 3) / 6` by HARD_SWISH, for any order of the factors and any form of the division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseHardSwish;

impl PatternFusion for FuseHardSwish {
    fn name(&self) -> &str {
        "recognise-hard-swish"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(recognise(graph, id).is_some())
    }
}

fn recognise(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let output = node.outputs().to_vec();
    let (x, mut gone) = product(graph, node).or_else(|| scaled(graph, node))?;
    gone.push(id);
    graph.replace(id, &gone, Node::new(BuiltinOp::HARD_SWISH, 1, Params::None, [Some(x)], output));
    Some(())
}

/// Matches `x · (relu6(x + 3) / 6)` and `(x / 6) · relu6(x + 3)`.
fn product(graph: &Rewriter<'_>, node: &Node) -> Option<(TensorId, Vec<NodeId>)> {
    let [a, b] = binary(graph, node, BuiltinOp::MUL)?;
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let sixth = |id: TensorId| {
            let at = graph.producer(id).filter(|_| graph.is_private(id))?;
            Some((at, divided(graph, graph.node(at)?)?))
        };
        if let Some((division, gate)) = sixth(gate)
            && let Some((of, mut gone)) = gate_of(graph, gate)
            && of == x
        {
            gone.push(division);
            return Some((x, gone));
        }
        let (division, x) = sixth(x)?;
        let (of, mut gone) = gate_of(graph, gate)?;
        gone.push(division);
        (of == x).then_some((x, gone))
    })
}

/// Matches `(x · relu6(x + 3)) / 6`.
fn scaled(graph: &Rewriter<'_>, node: &Node) -> Option<(TensorId, Vec<NodeId>)> {
    let product = divided(graph, node)?;
    let (at, [a, b]) = inner(graph, product, BuiltinOp::MUL)?;
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (of, mut gone) = gate_of(graph, gate)?;
        gone.push(at);
        (of == x).then_some((x, gone))
    })
}

/// Returns the operand that the node divides by 6.
fn divided(graph: &Rewriter<'_>, node: &Node) -> Option<TensorId> {
    if let Some(operands) = binary(graph, node, BuiltinOp::MUL) {
        let (x, factor) = with_scalar(graph, operands)?;
        return near(factor, 1.0 / 6.0).then_some(x);
    }
    let [x, six] = binary(graph, node, BuiltinOp::DIV)?;
    (graph.scalar(six)? == 6.0 && graph.shape(six)?.rank() <= graph.shape(x)?.rank()).then_some(x)
}

/// Returns the `x` of `relu6(x + 3)`, and its nodes.
fn gate_of(graph: &Rewriter<'_>, id: TensorId) -> Option<(TensorId, Vec<NodeId>)> {
    if !graph.is_private(id) {
        return None;
    }
    let at = graph.producer(id)?;
    let node = graph.node(at)?;
    let (sum, gone) = match node.op() {
        Op::Builtin(BuiltinOp::RELU6) => {
            let x = node.input(0)?;
            let sum = graph.producer(x).filter(|_| graph.is_private(x))?;
            (graph.node(sum)?, vec![at, sum])
        }
        _ if activation(node.params()) == Some(Activation::Relu6) => (node, vec![at]),
        _ => return None,
    };
    let relu6 = gone.len() == 1 || activation(sum.params()) == Some(Activation::None);
    let is_sum = *sum.op() == Op::Builtin(BuiltinOp::ADD) && relu6 && graph.is_float(sum.input(0)?);
    let (x, three) = with_scalar(graph, [sum.input(0)?, sum.input(1)?])?;
    (is_sum && three == 3.0).then_some((x, gone))
}
