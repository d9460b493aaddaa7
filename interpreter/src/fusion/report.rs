//! What a pipeline did to a model.

use delegraph_core::graph::{Model, Subgraph};
use delegraph_core::ops;
use delegraph_core::writer::Restamped;
use delegraph_core::{Composite, Node, Op};

use super::composites::names;

/// What a pipeline did to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FusionReport {
    /// Every rewriting, in order.
    pub changes: Vec<Change>,
    /// Composites that a fusion has the name of, and why it left them.
    pub left: Vec<Left>,
    /// The model before and after.
    pub before: Size,
    /// See `before`.
    pub after: Size,
    /// Which ops have other versions.
    pub versions: Restamped,
}

/// One rewriting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The pass, or the fusion.
    pub pass: String,
    /// Which subgraph, in the numbers of that pass.
    pub subgraph: usize,
    /// The tensor that it was about: what the last of the nodes computes.
    pub tensor: String,
    /// The ops that are gone.
    pub from: Vec<String>,
    /// The ops that took their place.
    pub to: Vec<String>,
}

/// A composite that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The operation that it stands for.
    pub composite: String,
    /// Which subgraph.
    pub subgraph: usize,
    /// What its first output is called.
    pub tensor: String,
    /// Why.
    pub reason: String,
}

/// How much there is to a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Nodes of the first subgraph, and of all that it calls.
    pub nodes: usize,
    /// What one run of them takes, with the shapes that the file declares. Bodies of loops count once.
    pub multiply_adds: u64,
}

impl Size {
    pub(super) fn of(model: &Model) -> Self {
        let mut size = Size::default();
        let mut open: Vec<usize> = vec![0];
        let mut seen = vec![false; model.subgraphs.len()];
        while let Some(index) = open.pop() {
            let Some(subgraph) = model.subgraphs.get(index) else { continue };
            // A body that several nodes call counts for each; loops cannot be there, the loader refuses them.
            let first = !std::mem::replace(&mut seen[index], true);
            size.nodes += if first { subgraph.nodes.len() } else { 0 };
            for node in &subgraph.nodes {
                let own = own_multiply_adds(subgraph, node);
                let own = own.unwrap_or_else(|| ops::cost(subgraph, node).multiply_adds);
                size.multiply_adds = size.multiply_adds.saturating_add(own);
                if first {
                    open.extend(node.callees());
                }
            }
        }
        size
    }
}

/// What the custom ops of this project take, which no definition says.
fn own_multiply_adds(subgraph: &Subgraph, node: &Node) -> Option<u64> {
    let Op::Custom(name) = &node.op else { return None };
    let shape = |i: usize| node.input(i).and_then(|id| subgraph.tensors.get(id.0)).map(|t| &t.shape);
    let elements = |i: usize| shape(i).map(|s| s.elements() as u64);
    let each = match &**name {
        // Mean, variance, and two products with a sum.
        names::LAYER_NORM | names::GROUP_NORM => 4,
        names::RMS_NORM => 3,
        // Every element of a query meets one of each key, and each key's score one of a value.
        names::ATTENTION => (shape(1)?.get(1).copied()? as u64).saturating_mul(2),
        _ => return None,
    };
    Some(elements(0)?.saturating_mul(each))
}

/// The name of a node's op, or of the composite that it is.
pub(super) fn name_of(model: &Model, node: &Node) -> String {
    match Composite::with_body(model, node) {
        Some(composite) => format!("composite \"{}\"", composite.name),
        None => node.op.to_string(),
    }
}
