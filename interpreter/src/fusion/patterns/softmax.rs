//! `exp(x) / Σ exp(x)`.

use delegraph_core::BuiltinOp;
use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::ops::softmax::SoftmaxParams;

use super::{binary, inner};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Replaces `exp(x - max(x)) / Σ exp(x - max(x))` along the last dimension by SOFTMAX, with or without the maximum: the
/// results are equal unless the exponentials overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseSoftmax;

impl PatternFusion for FuseSoftmax {
    fn name(&self) -> &str {
        "recognise-softmax"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(recognise(graph, id).is_some())
    }
}

fn recognise(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let output = *node.outputs().first()?;
    let [exponent, sum] = binary(graph, node, BuiltinOp::DIV)?;
    let summed = reduced_last(graph, sum, BuiltinOp::SUM)?;
    if summed.1 != exponent || graph.readers(exponent).len() != 2 || graph.is_output(exponent) {
        return None;
    }
    let (exp, node) = graph.made_by(exponent, BuiltinOp::EXP)?;
    let inside = node.input(0)?;
    let mut gone = vec![id, summed.0, exp];
    let mut x = inside;
    if let Some((difference, [a, b])) = inner(graph, inside, BuiltinOp::SUB)
        && let Some((maximum, of)) = reduced_last(graph, b, BuiltinOp::REDUCE_MAX)
        && of == a
    {
        gone.extend([difference, maximum]);
        x = a;
    }
    if graph.shape(x)?.rank() == 0 || !graph.is_float(x) || graph.shape(x) != graph.shape(output) {
        return None;
    }
    let fused = Node::new(BuiltinOp::SOFTMAX, 1, SoftmaxParams::default().beta(1.0), [Some(x)], [output]);
    graph.replace(id, &gone, fused);
    Some(())
}

/// Returns the node that reduces the last dimension with `keep_dims`, if its output has one reader, and its operand.
pub(super) fn reduced_last(graph: &Rewriter<'_>, id: TensorId, op: BuiltinOp) -> Option<(NodeId, TensorId)> {
    let (at, node) = graph.made_by(id, op)?;
    let x = node.input(0)?;
    let Params::Reducer(p) = node.params() else { return None };
    let axis = graph.integer(node.input(1)?)?;
    let rank = i64::try_from(graph.shape(x)?.rank()).ok()?;
    (p.keep_dims && (axis == -1 || axis == rank - 1) && graph.is_private(id)).then_some((at, x))
}
