//! Who runs what, and why not.

use delegraph_core::{NodeId, Op, TensorId};

use crate::Rejection;

/// Who runs a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// A CPU kernel.
    Cpu,
    /// Nobody, while running: its inputs are constant, it was computed while preparing.
    Folded,
    /// Partition `partition` of the delegate `delegate` (its number in the order of application).
    Delegate {
        /// Which delegate.
        delegate: usize,
        /// Which of the report's partitions.
        partition: usize,
    },
}

/// One node of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// Its op.
    pub op: Op,
    /// Its version.
    pub version: u32,
    /// Who runs it.
    pub runner: Runner,
    /// Per delegate that left it, in the order of application, the reason.
    pub rejections: Vec<(usize, Rejection)>,
}

/// One partition of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// Which delegate runs it.
    pub delegate: usize,
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// Tensors that come in from elsewhere.
    pub inputs: Vec<TensorId>,
    /// Tensors that others read.
    pub outputs: Vec<TensorId>,
    /// Multiply-adds of one run.
    pub multiply_adds: u64,
    /// Bytes of inputs and outputs.
    pub boundary_bytes: usize,
}

/// For every node, who runs it, or why a delegate does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The delegates' names, in the order of application.
    pub delegates: Vec<String>,
    /// Every node of the subgraph.
    pub nodes: Vec<NodeReport>,
    /// Every partition.
    pub partitions: Vec<PartitionReport>,
    /// Delegates that failed: everything that they claimed went back to the CPU.
    pub failures: Vec<(String, String)>,
}

impl Report {
    /// How many nodes a delegate has.
    pub fn delegated_nodes(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.runner, Runner::Delegate { .. })).count()
    }

    /// Nodes that some delegate left, with the last reason given.
    pub fn rejected(&self) -> impl Iterator<Item = (&NodeReport, &Rejection)> {
        self.nodes
            .iter()
            .filter(|n| !matches!(n.runner, Runner::Delegate { .. }))
            .filter_map(|n| n.rejections.last().map(|(_, reason)| (n, reason)))
    }
}
