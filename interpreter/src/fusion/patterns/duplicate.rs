//! Nodes with equal results.

use delegraph_core::BuiltinOp;
use delegraph_core::error::Result;
use delegraph_core::graph::NodeId;

use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::{Redirect, Rewriter};

/// Removes a node if an earlier one has the same op, params and inputs: its readers read the earlier node's outputs.
/// Constants with equal bytes count as the same input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeDuplicates;

impl PatternFusion for MergeDuplicates {
    fn name(&self) -> &str {
        "merge-duplicates"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(merge(graph, id).is_some())
    }
}

fn merge(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?.clone();
    let op = node.op().builtin()?;
    if node.outputs().is_empty() || has_effect(op) || node.callees().next().is_some() {
        return None;
    }
    let variable = |t: &delegraph_core::TensorId| graph.tensor(*t).is_none_or(|t| t.is_variable());
    if node.inputs().iter().flatten().any(variable) || node.outputs().iter().any(|t| graph.is_output(*t)) {
        return None;
    }
    let first =
        node.inputs().iter().flatten().find(|t| !graph.tensor(**t).is_some_and(|t| t.is_constant()))?;
    let candidates: Vec<NodeId> = graph.readers(*first).iter().copied().filter(|other| *other < id).collect();
    let duplicate = candidates.into_iter().find(|other| {
        let Some(other) = graph.node(*other) else { return false };
        let operands = other.inputs().len() == node.inputs().len()
            && other.inputs().iter().zip(node.inputs()).all(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => a == b || same_constant(graph, *a, *b),
                (a, b) => a == b,
            });
        let outputs = other.outputs().len() == node.outputs().len()
            && other.outputs().iter().zip(node.outputs()).all(|(a, b)| {
                graph.ty(*a) == graph.ty(*b)
                    && graph.quantization(*a) == graph.quantization(*b)
                    && !graph.tensor(*a).is_none_or(|t| t.is_variable())
            });
        (other.op(), other.version(), other.params()) == (node.op(), node.version(), node.params())
            && operands
            && outputs
            && other.intermediates() == node.intermediates()
    })?;
    let outputs = graph.node(duplicate)?.outputs().to_vec();
    for (&from, to) in node.outputs().iter().zip(outputs) {
        graph.redirect(Redirect { from, to });
    }
    graph.remove(id);
    Some(())
}

fn same_constant(graph: &Rewriter<'_>, a: delegraph_core::TensorId, b: delegraph_core::TensorId) -> bool {
    let (Some(ta), Some(tb)) = (graph.tensor(a), graph.tensor(b)) else { return false };
    let alike = (ta.ty(), ta.shape(), ta.quantization()) == (tb.ty(), tb.shape(), tb.quantization());
    alike && graph.constant(a).is_some_and(|bytes| Some(bytes) == graph.constant(b))
}

/// Returns whether results of the op differ between runs, or the op has side effects.
fn has_effect(op: BuiltinOp) -> bool {
    use BuiltinOp as B;
    matches!(
        op,
        B::RANDOM_STANDARD_NORMAL
            | B::RANDOM_UNIFORM
            | B::MULTINOMIAL
            | B::STABLEHLO_RNG_BIT_GENERATOR
            | B::STABLEHLO_CUSTOM_CALL
            | B::READ_VARIABLE
            | B::ASSIGN_VARIABLE
            | B::VAR_HANDLE
            | B::HASHTABLE
            | B::HASHTABLE_FIND
            | B::HASHTABLE_IMPORT
            | B::HASHTABLE_SIZE
            | B::DELEGATE
    )
}
