//! L2 normalization.

use delegraph_core::BuiltinOp;
use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::l2_normalization::L2NormParams;

use super::softmax::reduced_last;
use super::{binary, inner, inner_unary, with_scalar};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// The lower bound of the sum of squares in L2_NORMALIZATION.
const LEAST: f32 = 1e-12;

/// Replaces `x · rsqrt(max(Σ x², 1e-12))` along the last dimension, which is TensorFlow's `l2_normalize`, by
/// L2_NORMALIZATION; equally for `x / sqrt(…)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseL2Norm;

impl PatternFusion for FuseL2Norm {
    fn name(&self) -> &str {
        "recognise-l2-norm"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(l2_norm(graph, id).is_some())
    }
}

fn l2_norm(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let output = *node.outputs().first()?;
    let (x, root, least, mut gone) = match binary(graph, node, BuiltinOp::MUL) {
        Some([a, b]) => [(a, b), (b, a)].into_iter().find_map(|(x, root)| {
            let (at, least) = inner_unary(graph, root, BuiltinOp::RSQRT)?;
            Some((x, at, least, vec![id]))
        })?,
        None => {
            let [x, root] = binary(graph, node, BuiltinOp::DIV)?;
            let (at, least) = inner_unary(graph, root, BuiltinOp::SQRT)?;
            (x, at, least, vec![id])
        }
    };
    gone.push(root);
    let (maximum, operands) = inner(graph, least, BuiltinOp::MAXIMUM)?;
    let (sum, value) = with_scalar(graph, operands)?;
    if (value - LEAST).abs() > 1e-3 * LEAST {
        return None;
    }
    let (summed, squares) = reduced_last(graph, sum, BuiltinOp::SUM)?;
    gone.extend([maximum, summed, square_of(graph, squares, x)?]);
    if !graph.is_float(x) || graph.shape(x) != graph.shape(output) {
        return None;
    }
    let fused = Node::new(BuiltinOp::L2_NORMALIZATION, 1, L2NormParams::default(), [Some(x)], [output]);
    graph.replace(id, &gone, fused);
    Some(())
}

/// Returns the node that computes `id`, if it is the square of `x`.
fn square_of(graph: &Rewriter<'_>, id: TensorId, x: TensorId) -> Option<NodeId> {
    if let Some((at, operand)) = inner_unary(graph, id, BuiltinOp::SQUARE) {
        return (operand == x).then_some(at);
    }
    let (at, operands) = inner(graph, id, BuiltinOp::MUL)?;
    (operands == [x, x]).then_some(at)
}
