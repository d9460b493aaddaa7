//! The report of a pipeline.

use delegraph_core::graph::{Model, Subgraph, cost};
use delegraph_core::writer::Restamped;
use delegraph_core::{Composite, Node, Op, TensorId};
use delegraph_kernels::custom::names;

use super::calls;

/// The report of a pipeline.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct FusionReport {
    /// All rewritings, in order.
    pub changes: Vec<Change>,
    /// Composites that a fusion by name left unchanged, with reasons.
    pub unchanged: Vec<Unchanged>,
    /// Patterns that still changed the model in the last round that is allowed, such as two that undo each other.
    pub unsettled: Vec<String>,
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
    /// The name of the first output; may be empty.
    pub tensor: String,
    /// The first output; `None` if a library's report does not determine it.
    pub id: Option<TensorId>,
    /// The reason.
    pub reason: String,
}

/// Returns the composites, of those that `selected` is true for, that stay because their subgraph is `repeated`.
pub(super) fn kept(
    model: &Model,
    repeated: &[bool],
    selected: &dyn Fn(&Composite<'_>) -> bool,
) -> Vec<Unchanged> {
    let graphs = model.subgraphs().iter().enumerate().zip(repeated).filter(|(_, repeated)| **repeated);
    let nodes = graphs.flat_map(|((index, graph), _)| graph.nodes().iter().map(move |n| (index, graph, n)));
    nodes
        .filter_map(|(subgraph, graph, node)| {
            let composite = Composite::of(model, node).filter(selected)?;
            let id = node.outputs().first().copied();
            let tensor = id.map(|t| graph.tensor(t).name().to_string());
            let reason = "its subgraph can run more than once per invocation, and state in it would go from one run \
                to the next";
            Some(Unchanged {
                composite: composite.name.to_owned(),
                subgraph,
                tensor: tensor.unwrap_or_default(),
                id,
                reason: reason.into(),
            })
        })
        .collect()
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
        // A body counts once per call, that of a loop as well.
        let runs = calls::runs(model, &[0], &|_| 1);
        for (subgraph, runs) in model.subgraphs().iter().zip(runs).filter(|(_, runs)| *runs > 0) {
            size.nodes += subgraph.nodes().len();
            for node in subgraph.nodes() {
                let own = own_multiply_adds(subgraph, node);
                let own = own.unwrap_or_else(|| cost(subgraph, node).multiply_adds);
                size.multiply_adds = size.multiply_adds.saturating_add(own.saturating_mul(runs));
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
