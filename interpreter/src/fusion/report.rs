//! The report of a pipeline.

use delegraph_core::graph::{Model, Subgraph, cost};
use delegraph_core::writer::Restamped;
use delegraph_core::{Composite, Node, Op};
use delegraph_kernels::custom::names;

/// The report of a pipeline.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FusionReport {
    /// All rewritings, in order.
    pub changes: Vec<Change>,
    /// Composites that a fusion by name left unchanged, with reasons.
    pub unchanged: Vec<Unchanged>,
    /// The size before the rewriting.
    pub before: Size,
    /// The size after the rewriting.
    pub after: Size,
    /// The ops with changed versions.
    pub versions: Restamped,
}

/// One rewriting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The pass, or the fusion.
    pub pass: String,
    /// The index of the subgraph, in the numbering of that pass.
    pub subgraph: usize,
    /// The output of the last node of the rewriting.
    pub tensor: String,
    /// The removed ops.
    pub from: Vec<String>,
    /// The ops that replace them.
    pub to: Vec<String>,
}

/// A composite that was not replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unchanged {
    /// The name of the operation.
    pub composite: String,
    /// The index of the subgraph.
    pub subgraph: usize,
    /// The name of the first output.
    pub tensor: String,
    /// The reason.
    pub reason: String,
}

/// The size of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Size {
    /// Nodes of the first subgraph and of all subgraphs that it calls.
    pub nodes: usize,
    /// Multiply-adds of one run, with the shapes that the file declares. Bodies of loops count once.
    pub multiply_adds: u64,
}

impl Size {
    pub(super) fn of(model: &Model) -> Self {
        let mut size = Size::default();
        let mut open: Vec<usize> = vec![0];
        let mut seen = vec![false; model.subgraphs().len()];
        while let Some(index) = open.pop() {
            let Some(subgraph) = model.subgraphs().get(index) else { continue };
            // A body counts once per calling node. Recursion is not possible: the loader rejects it.
            let first = !std::mem::replace(&mut seen[index], true);
            size.nodes += if first { subgraph.nodes().len() } else { 0 };
            for node in subgraph.nodes() {
                let own = own_multiply_adds(subgraph, node);
                let own = own.unwrap_or_else(|| cost(subgraph, node).multiply_adds);
                size.multiply_adds = size.multiply_adds.saturating_add(own);
                if first {
                    open.extend(node.callees());
                }
            }
        }
        size
    }
}

/// Returns the cost of the custom ops of this project, which have no definition.
fn own_multiply_adds(subgraph: &Subgraph, node: &Node) -> Option<u64> {
    let Op::Custom(name) = node.op() else { return None };
    let shape = |i: usize| node.input(i).and_then(|id| subgraph.tensors().get(id.0)).map(|t| t.shape());
    let elements = |i: usize| shape(i).map(|s| s.elements() as u64);
    let each = match &**name {
        // Mean, variance, and two products with a sum.
        names::LAYER_NORM | names::GROUP_NORM => 4,
        names::RMS_NORM => 3,
        // Every element of a query is multiplied with one of each key, and each score with one of a value.
        names::ATTENTION => (shape(1)?.get(1).copied()? as u64).saturating_mul(2),
        _ => return None,
    };
    Some(elements(0)?.saturating_mul(each))
}

/// Returns the name of a node's op, or of the composite that the node represents.
pub(super) fn name_of(model: &Model, node: &Node) -> String {
    match Composite::of_builtin(model, node) {
        Some(composite) => format!("composite \"{}\"", composite.name),
        None => node.op().to_string(),
    }
}
