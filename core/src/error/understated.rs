//! Nodes whose version is lower than that of the features that they use.

use std::fmt;

use crate::types::{NodeId, Op};

/// Nodes whose version is below that of the features that they use, for one op and pair of versions.
///
/// Such a version claims that an older kernel can run the node, which it cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnderstatedVersion {
    /// The op.
    pub op: Op,
    /// The version in the file.
    pub version: u32,
    /// The lowest version that has the features.
    pub needed: u32,
    /// Subgraph and node of each use.
    pub nodes: Vec<(usize, NodeId)>,
}

impl fmt::Display for UnderstatedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The number of nodes that are named; further nodes are only counted.
        const NAMED: usize = 8;
        let UnderstatedVersion { op, version, needed, nodes } = self;
        write!(f, "{op} version {version} uses features of version {needed}: ")?;
        for (i, (subgraph, NodeId(node))) in nodes.iter().take(NAMED).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match subgraph {
                0 => write!(f, "{comma}node {node}")?,
                _ => write!(f, "{comma}subgraph {subgraph} node {node}")?,
            }
        }
        match nodes.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
