//! What a pipeline did to a model.

use delegraph_core::graph::Model;
use delegraph_core::ops;
use delegraph_core::writer::Restamped;
use delegraph_core::{Composite, Node};

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
                size.multiply_adds =
                    size.multiply_adds.saturating_add(ops::cost(subgraph, node).multiply_adds);
                if first {
                    open.extend(node.callees());
                }
            }
        }
        size
    }
}

/// The name of a node's op, or of the composite that it is.
pub(super) fn name_of(model: &Model, node: &Node) -> String {
    match Composite::with_body(model, node) {
        Some(composite) => format!("composite \"{}\"", composite.name),
        None => node.op.to_string(),
    }
}
