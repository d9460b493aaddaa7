//! Chains of ops that only move data.

use delegraph_core::error::Result;
use delegraph_core::graph::{NodeId, Tensor};
use delegraph_core::ops::Params;
use delegraph_core::{BuiltinOp, Op};

use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Merges RESHAPE, SQUEEZE or EXPAND_DIMS into a following RESHAPE, and two TRANSPOSE into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeMovement;

impl PatternFusion for MergeMovement {
    fn name(&self) -> &str {
        "merge-movement"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(reshapes(graph, id).or_else(|| transposes(graph, id)).is_some())
    }
}

fn reshapes(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node_of(id, BuiltinOp::RESHAPE)?;
    let middle = node.input(0)?;
    let before = graph.producer(middle)?;
    let inner = graph.node(before)?;
    let moves =
        matches!(inner.op(), Op::Builtin(BuiltinOp::RESHAPE | BuiltinOp::SQUEEZE | BuiltinOp::EXPAND_DIMS));
    // A 0 refers to a size of the intermediate shape.
    let wanted = match node.input(1) {
        Some(shape) => graph.integers(shape)?,
        None => match node.params() {
            Params::Reshape(p) => p.new_shape.iter().map(|&d| i64::from(d)).collect(),
            _ => return None,
        },
    };
    let x = inner.input(0)?;
    let same = graph.quantization(x) == graph.quantization(middle);
    if !moves || !same || wanted.contains(&0) || graph.tensor(x)?.is_variable() {
        return None;
    }
    graph.shape(x)?;
    let private = graph.is_private(middle);
    if private {
        graph.remove(before);
    }
    graph.change(id, |node| node.inputs_mut()[0] = Some(x));
    Some(())
}

fn transposes(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node_of(id, BuiltinOp::TRANSPOSE)?.clone();
    let middle = node.input(0)?;
    let (before, inner) = graph.made_by(middle, BuiltinOp::TRANSPOSE)?;
    let x = inner.input(0)?;
    let (first, second) = (graph.integers(inner.input(1)?)?, graph.integers(node.input(1)?)?);
    if graph.tensor(x)?.is_variable() || graph.quantization(x) != graph.quantization(middle) {
        return None;
    }
    let order: Option<Vec<i32>> = second
        .iter()
        .map(|&d| first.get(usize::try_from(d).ok()?).and_then(|&d| i32::try_from(d).ok()))
        .collect();
    let order = order.filter(|order| order.len() == first.len() && order.iter().all(|&d| d >= 0))?;
    let private = graph.is_private(middle);
    let name = graph.name(*node.outputs().first()?, "order");
    let mut tensor = Tensor::new(name, delegraph_core::TensorType::Int32, [order.len()]);
    tensor.set_has_rank(true);
    let order = graph.new_constant_bytes(tensor, bytemuck::cast_slice(&order));
    if private {
        graph.remove(before);
    }
    graph.change(id, |node| node.set_inputs(vec![Some(x), Some(order)]));
    Some(())
}
