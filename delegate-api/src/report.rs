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

/// What became of a marked composite: a delegate claimed it, else a kernel of its name runs it, else its body took its
/// place, else (where the body cannot) its body is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeReport {
    /// The operation that it stands for.
    pub name: String,
    /// The version of the operation.
    pub version: u32,
    /// Who runs it.
    pub runner: CompositeRunner,
    /// The node, or, where its body took its place, the nodes of the body, in the numbers of this report.
    pub nodes: Vec<NodeId>,
}

/// Who runs a marked composite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompositeRunner {
    /// A delegate claimed it: its number in the order of application.
    Delegate(usize),
    /// A kernel that the resolver has under its name.
    Kernel,
    /// Its body took its place: each node has its own runner.
    Inlined,
    /// Its body is called: it has state, or hands an input through to an output of the model.
    Called,
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
    /// Every marked composite.
    pub composites: Vec<CompositeReport>,
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
