//! Nodes with equal results.

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
    if graph.node(id)?.outputs().iter().any(|t| graph.is_output(*t)) {
        return None;
    }
    let duplicate = graph.first_alike(id)?;
    let from = graph.node(id)?.outputs().to_vec();
    let to = graph.node(duplicate)?.outputs().to_vec();
    for (from, to) in from.into_iter().zip(to) {
        graph.redirect(Redirect { from, to });
    }
    graph.remove(id);
    Some(())
}
