//! Clamps built from MINIMUM and MAXIMUM.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::{BuiltinOp, Op, Params};

use super::with_scalar;
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Replaces `min(max(x, 0), 6)`, in either order, by RELU6; equally for RELU_N1_TO_1 and RELU_0_TO_1, and `max(x, 0)`
/// by RELU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseClamp;

impl PatternFusion for FuseClamp {
    fn name(&self) -> &str {
        "recognise-clamp"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(recognise(graph, id).is_some())
    }
}

/// Returns the operand of a clamping node, with its lower and upper bound.
fn bound(graph: &Rewriter<'_>, node: &Node) -> Option<(TensorId, f32, f32)> {
    let (lowest, highest) = (f32::NEG_INFINITY, f32::INFINITY);
    let x = node.input(0).filter(|x| graph.is_float(*x))?;
    match node.op() {
        Op::Builtin(BuiltinOp::MAXIMUM) => {
            let (x, low) = with_scalar(graph, [x, node.input(1)?])?;
            Some((x, low, highest))
        }
        Op::Builtin(BuiltinOp::MINIMUM) => {
            let (x, high) = with_scalar(graph, [x, node.input(1)?])?;
            Some((x, lowest, high))
        }
        Op::Builtin(BuiltinOp::RELU) => Some((x, 0.0, highest)),
        _ => None,
    }
}

fn recognise(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?.clone();
    let (mut x, mut low, mut high) = bound(graph, &node)?;
    let mut gone = vec![id];
    let before = graph.producer(x).filter(|_| graph.is_private(x));
    if let Some(before) = before
        && let Some((inner, inner_low, inner_high)) = bound(graph, graph.node(before)?)
    {
        // Crossing bounds, whose result depends on their order, match none of the ops below.
        (x, low, high) = (inner, low.max(inner_low), high.min(inner_high));
        gone.push(before);
    }
    let op = match (low, high) {
        (0.0, f32::INFINITY) => BuiltinOp::RELU,
        (0.0, 6.0) => BuiltinOp::RELU6,
        (-1.0, 1.0) => BuiltinOp::RELU_N1_TO_1,
        (0.0, 1.0) => BuiltinOp::RELU_0_TO_1,
        _ => return None,
    };
    if gone.len() == 1 && *node.op() == Op::Builtin(op) {
        return None;
    }
    graph.replace(id, &gone, Node::new(op, 1, Params::None, [Some(x)], node.outputs().iter().copied()));
    Some(())
}
