//! The result of delegation: the runner of each node, and the reasons of rejections.

use std::fmt;

use delegraph_core::types::short_name;
use delegraph_core::{NodeId, Op, TensorId};

use crate::{DelegateParams, Rejection};

/// The runner of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Runner {
    /// A CPU kernel.
    Cpu,
    /// Nothing at run time: its inputs are constant, and it was computed while preparing.
    Folded,
    /// A partition of a delegate.
    Delegate {
        /// The delegate's index, in the order in which delegates were added.
        delegate: usize,
        /// Index into [`Report::partitions`].
        partition: usize,
    },
}

/// One node of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// The node's op.
    pub op: Op,
    /// The node's version.
    pub version: u32,
    /// The node's runner.
    pub runner: Runner,
    /// Each delegate that rejected the node, by its index, with the reason; in the order in which delegates were added.
    pub rejections: Vec<(usize, Rejection)>,
}

impl NodeReport {
    /// Creates a node that no delegate rejected.
    pub fn new(node: NodeId, op: Op, version: u32, runner: Runner) -> Self {
        NodeReport { node, op, version, runner, rejections: Vec::new() }
    }

    /// Sets [`NodeReport::rejections`].
    #[must_use]
    pub fn with_rejections(mut self, rejections: Vec<(usize, Rejection)>) -> Self {
        self.rejections = rejections;
        self
    }
}

/// One partition of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// The index of the delegate that runs it.
    pub delegate: usize,
    /// The nodes of the partition.
    pub nodes: Vec<NodeId>,
    /// Tensors that the partition reads and does not compute.
    pub inputs: Vec<TensorId>,
    /// Tensors that other nodes, or the caller, read.
    pub outputs: Vec<TensorId>,
    /// Multiply-adds of one run.
    pub multiply_adds: u64,
    /// Bytes of inputs and outputs.
    pub boundary_bytes: u64,
}

impl PartitionReport {
    /// Creates a partition of the delegate with this index, of unknown cost.
    pub fn new(delegate: usize, params: DelegateParams) -> Self {
        let DelegateParams { nodes, inputs, outputs } = params;
        PartitionReport { delegate, nodes, inputs, outputs, multiply_adds: 0, boundary_bytes: 0 }
    }

    /// Sets [`PartitionReport::multiply_adds`].
    #[must_use]
    pub fn with_multiply_adds(mut self, multiply_adds: u64) -> Self {
        self.multiply_adds = multiply_adds;
        self
    }

    /// Sets [`PartitionReport::boundary_bytes`].
    #[must_use]
    pub fn with_boundary_bytes(mut self, boundary_bytes: u64) -> Self {
        self.boundary_bytes = boundary_bytes;
        self
    }
}

/// The runner of a marked composite: a delegate that claimed it, otherwise a kernel of its name, otherwise its inlined
/// body, otherwise (if the body cannot be inlined) a call of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompositeReport {
    /// The name of the operation.
    pub name: String,
    /// The version of the operation.
    pub version: u32,
    /// The composite's runner.
    pub runner: CompositeRunner,
    /// The node or, for an inlined composite, the nodes of its body, as numbered in this report.
    pub nodes: Vec<NodeId>,
    /// Each delegate that did not claim the composite as a whole, by its index, with the reason; in the order in which
    /// delegates were added.
    pub rejections: Vec<(usize, Rejection)>,
    /// The indices of the delegates that declare its name, at any version.
    pub declared_by: Vec<usize>,
}

impl CompositeReport {
    /// Creates the report of the composite `name` at `version`, which `nodes` represent.
    pub fn new(name: impl Into<String>, version: u32, runner: CompositeRunner, nodes: Vec<NodeId>) -> Self {
        let (rejections, declared_by) = Default::default();
        CompositeReport { name: name.into(), version, runner, nodes, rejections, declared_by }
    }

    /// Sets [`CompositeReport::rejections`].
    #[must_use]
    pub fn with_rejections(mut self, rejections: Vec<(usize, Rejection)>) -> Self {
        self.rejections = rejections;
        self
    }

    /// Sets [`CompositeReport::declared_by`].
    #[must_use]
    pub fn with_declared_by(mut self, delegates: Vec<usize>) -> Self {
        self.declared_by = delegates;
        self
    }

    /// Returns whether the nodes of its body replaced the composite.
    pub fn is_inlined(&self) -> bool {
        self.runner == CompositeRunner::Inlined
    }

    /// Returns the rejections of delegates that know the composite: the others cannot run any composite of its name.
    pub fn refusals(&self) -> impl Iterator<Item = &(usize, Rejection)> {
        self.rejections.iter().filter(|(delegate, reason)| {
            self.declared_by.contains(delegate) || !matches!(reason, Rejection::UnsupportedComposite { .. })
        })
    }

    /// Returns the text of a reason of the composite, with the composite's name once.
    pub fn describe(&self, reason: &Rejection) -> String {
        match reason {
            Rejection::UnsupportedComposite { .. }
            | Rejection::CompositeVersionTooHigh { .. }
            | Rejection::UnderstatedCompositeVersion { .. } => reason.to_string(),
            _ => format!("composite \"{}\": {reason}", short_name(&self.name)),
        }
    }
}

/// The runner of a marked composite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompositeRunner {
    /// The delegate with this index, in the order in which delegates were added.
    Delegate(usize),
    /// A kernel that is registered under its name.
    Kernel,
    /// Its body, inlined: each node has its own runner.
    Inlined,
    /// Its body, called: it has state, or passes an input through to an output of the model.
    Called,
}

/// A delegate that failed. The nodes that it had claimed run on the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelegateFailure {
    /// The delegate's name.
    pub delegate: String,
    /// The message of its error or panic.
    pub message: String,
}

impl DelegateFailure {
    /// Creates a failure of `delegate`.
    pub fn new(delegate: impl Into<String>, message: impl Into<String>) -> Self {
        DelegateFailure { delegate: delegate.into(), message: message.into() }
    }
}

impl fmt::Display for DelegateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.delegate, self.message)
    }
}

/// The runner of every node of a subgraph, and the reasons of rejections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The delegates' names, in the order in which they were added.
    pub delegates: Vec<String>,
    /// Every node of the subgraph.
    pub nodes: Vec<NodeReport>,
    /// Every partition.
    pub partitions: Vec<PartitionReport>,
    /// Delegates that failed.
    pub failures: Vec<DelegateFailure>,
    /// Every marked composite.
    pub composites: Vec<CompositeReport>,
}

impl Report {
    /// Creates a report without partitions.
    pub fn new(delegates: Vec<String>, nodes: Vec<NodeReport>) -> Self {
        Report { delegates, nodes, ..Report::default() }
    }

    /// Sets [`Report::failures`].
    #[must_use]
    pub fn with_failures(mut self, failures: Vec<DelegateFailure>) -> Self {
        self.failures = failures;
        self
    }

    /// Returns the number of delegated nodes.
    pub fn delegated_nodes(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.runner, Runner::Delegate { .. })).count()
    }

    /// Returns nodes that at least one delegate rejected and none runs, each with the last reason.
    pub fn rejected(&self) -> impl Iterator<Item = (&NodeReport, &Rejection)> {
        self.nodes
            .iter()
            .filter(|n| !matches!(n.runner, Runner::Delegate { .. }))
            .filter_map(|n| n.rejections.last().map(|(_, reason)| (n, reason)))
    }
}
