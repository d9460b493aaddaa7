//! Fusing unmarked patterns of nodes.

use delegraph_core::error::Result;
use delegraph_core::graph::NodeId;

use super::rewriter::Rewriter;

/// Replaces a pattern of nodes by fewer nodes: an extension of a [`Pipeline`](super::Pipeline).
pub trait PatternFusion: Send + Sync {
    /// Returns the name, for reports and for [`Pipeline::skip`](super::Pipeline::skip).
    fn name(&self) -> &str;

    /// Rewrites the pattern that ends in `node`, if there is one; returns whether it did. The pipeline repeats the call
    /// for every node until nothing changes, so a pattern must not match its own result.
    ///
    /// # Errors
    /// If the pattern is present but invalid. The pipeline then fails.
    fn rewrite(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<bool>;
}
