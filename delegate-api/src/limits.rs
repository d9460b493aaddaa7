//! Limits on delegation, and the cost model behind one of them.

use std::ops::Range;
use std::time::Duration;

use delegraph_core::ops::{Cost, OpSignature, Operand, definition};
use delegraph_core::{NodeId, Op, TensorId};

use crate::{DelegateParams, GraphView, NodeView, Rejection};

/// Limits on delegation: a delegate's own
/// ([`SimpleDelegate::partition_options`](crate::SimpleDelegate::partition_options)), or an application's for one of
/// its delegates. Both apply.
///
/// ```
/// use delegraph_delegate_api::PartitionOptions;
/// use delegraph_core::BuiltinOp;
///
/// let limits = PartitionOptions::default().with_min_nodes(2).with_excluded_ops([BuiltinOp::SOFTMAX.into()]);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PartitionOptions {
    /// Maximum number of partitions in each subgraph; those with most nodes are kept. `None`: no limit.
    pub max_partitions: Option<usize>,
    /// Minimum number of nodes of a partition; smaller ones stay on the CPU.
    pub min_nodes: usize,
    /// Only nodes with these indices are delegated. Bisecting the range finds a faulty node.
    pub nodes: Option<Range<usize>>,
    /// Nodes that are not delegated.
    pub excluded_nodes: Vec<NodeId>,
    /// Ops that are not delegated.
    pub excluded_ops: Vec<Op>,
    /// The cost model. Only partitions that gain more than their copies cost are delegated. `None`: no cost model.
    pub cost: Option<CostModel>,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        PartitionOptions {
            max_partitions: None,
            min_nodes: 1,
            nodes: None,
            excluded_nodes: Vec::new(),
            excluded_ops: Vec::new(),
            cost: None,
        }
    }
}

impl PartitionOptions {
    /// Sets [`PartitionOptions::max_partitions`].
    #[must_use]
    pub fn with_max_partitions(mut self, max_partitions: usize) -> Self {
        self.max_partitions = Some(max_partitions);
        self
    }

    /// Sets [`PartitionOptions::min_nodes`].
    #[must_use]
    pub fn with_min_nodes(mut self, min_nodes: usize) -> Self {
        self.min_nodes = min_nodes;
        self
    }

    /// Sets [`PartitionOptions::nodes`].
    #[must_use]
    pub fn with_nodes(mut self, nodes: Range<usize>) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Sets [`PartitionOptions::excluded_nodes`].
    #[must_use]
    pub fn with_excluded_nodes(mut self, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.excluded_nodes = nodes.into_iter().collect();
        self
    }

    /// Sets [`PartitionOptions::excluded_ops`].
    #[must_use]
    pub fn with_excluded_ops(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.excluded_ops = ops.into_iter().collect();
        self
    }

    /// Sets [`PartitionOptions::cost`].
    #[must_use]
    pub fn with_cost(mut self, cost: CostModel) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Checks that the node is not excluded.
    pub(crate) fn check(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let excluded = |what: String| Err(Rejection::Excluded(what));
        match &self.nodes {
            Some(range) if !range.contains(&node.id().0) => {
                return excluded(format!("only nodes {}..{} are delegated", range.start, range.end));
            }
            _ => {}
        }
        if self.excluded_nodes.contains(&node.id()) {
            return excluded("the node is excluded".into());
        }
        if self.excluded_ops.contains(node.op()) {
            return excluded(format!("{} is excluded", node.op().in_short()));
        }
        Ok(())
    }

    /// Returns whether limits apply to whole partitions.
    pub(crate) fn limits_partitions(&self) -> bool {
        self.max_partitions.is_some() || self.min_nodes > 1 || self.cost.is_some()
    }
}

/// The speed of a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Multiply-adds per second of nodes that are bound by arithmetic.
    pub multiply_adds: f64,
    /// Bytes of operands per second of nodes that are bound by memory.
    pub bytes: f64,
}

impl Rates {
    /// Returns the seconds for work of this cost. Arithmetic and memory accesses overlap.
    fn seconds(&self, cost: Cost) -> f64 {
        (cost.multiply_adds as f64 / self.multiply_adds).max(cost.bytes as f64 / self.bytes)
    }
}

/// Estimates whether a partition gains more than its copies cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// The speed of the CPU kernels.
    pub cpu: Rates,
    /// The speed of the delegate.
    pub delegate: Rates,
    /// Bytes copied to and from a partition, per second.
    pub copies: f64,
    /// The time of each run of a partition that does not depend on its size.
    pub overhead: Duration,
}

impl CostModel {
    /// Returns the estimated time of a partition on both backends. A time that is not finite or exceeds the range is
    /// [`Duration::MAX`].
    pub fn estimate(&self, partition: &DelegateParams, graph: &GraphView<'_>) -> Estimate {
        let (cpu, delegate) = self.seconds(partition, graph);
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Estimate { cpu: time(cpu), delegate: time(delegate) }
    }

    /// Returns the seconds on the CPU and with the delegate, including copies.
    fn seconds(&self, partition: &DelegateParams, graph: &GraphView<'_>) -> (f64, f64) {
        let boundary = partition.inputs.iter().chain(&partition.outputs);
        let copied: u64 = boundary.map(|&id| bytes(graph, id)).fold(0, u64::saturating_add);
        let costs = partition.nodes.iter().map(|&id| graph.node(id).cost());
        let (cpu, own) = costs.fold((0.0, 0.0), |(cpu, own), cost| {
            (cpu + self.cpu.seconds(cost), own + self.delegate.seconds(cost))
        });
        (cpu, own + copied as f64 / self.copies + self.overhead.as_secs_f64())
    }

    pub(crate) fn check(&self, partition: &DelegateParams, graph: &GraphView<'_>) -> Result<(), Rejection> {
        let (cpu, delegated) = self.seconds(partition, graph);
        if delegated < cpu {
            return Ok(());
        }
        let (cpu, delegated) = (cpu * 1e6, delegated * 1e6);
        Err(Rejection::CostModel(format!(
            "its partition would take {delegated:.1} µs with its copies, {cpu:.1} µs on the CPU"
        )))
    }
}

/// The estimated time of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Time on the CPU.
    pub cpu: Duration,
    /// Time with the delegate, including copies.
    pub delegate: Duration,
}

impl NodeView<'_> {
    /// Returns the cost of running the node, on any backend. Zero for a folded node; without arithmetic for custom ops and
    /// for unknown shapes.
    pub fn cost(&self) -> Cost {
        if self.state().folded {
            return Cost::default();
        }
        let operands = self.inputs().chain(self.outputs());
        let bytes = operands.map(|t| bytes(&self.graph(), t.id())).fold(0, u64::saturating_add);
        let known = self.inputs().chain(self.outputs()).all(|t| t.shape().is_some());
        let definition = self.op().builtin().and_then(definition).filter(|_| known);
        let multiply_adds = definition.map_or(0, |def| (def.multiply_adds)(&self.signature()));
        Cost { multiply_adds, bytes }
    }

    /// Returns the lowest version of the op that has the features which the node uses. Its own version for custom ops, and
    /// where shapes are known only at run time.
    pub fn needed_version(&self) -> u32 {
        let known = self.inputs().chain(self.outputs()).all(|t| t.shape().is_some());
        let definition = self.op().builtin().and_then(definition).filter(|_| known);
        definition.map_or(self.version(), |def| (def.min_version)(&self.signature()))
    }

    fn signature(&self) -> OpSignature<'_> {
        fn operand<'t>(t: crate::TensorInfo<'t>) -> Operand<'t> {
            let tensor = t.tensor();
            Operand::new(tensor.ty, &tensor.shape)
                .with_quantization(tensor.quantization.as_deref())
                .with_constant(tensor.is_constant())
                .with_sparse(tensor.sparsity.is_some())
        }
        OpSignature::new(self.params())
            .with_inputs((0..self.input_count()).map(|i| self.input(i).map(operand)))
            .with_outputs(self.outputs().map(operand))
    }
}

/// Returns the bytes of a tensor; 0 if its shape is unknown.
pub(crate) fn bytes(graph: &GraphView<'_>, id: TensorId) -> u64 {
    let tensor = graph.tensor(id);
    tensor.shape().and_then(|_| tensor.tensor().byte_size().ok()).map_or(0, |bytes| bytes as u64)
}
