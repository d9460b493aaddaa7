//! Limits on what is delegated, and what delegating is worth.

use std::ops::Range;

use delegraph_core::ops::{OpSignature, Operand, definition};
use delegraph_core::{NodeId, Op, TensorId};

use crate::{DelegateParams, GraphView, NodeView, Rejection};

/// Limits on what is delegated: a delegate's own ([`SimpleDelegate::options`](crate::SimpleDelegate::options)), or an
/// application's for one of its delegates. Both hold.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionOptions {
    /// At most so many partitions, those with most nodes. `None`: no limit.
    pub max_partitions: Option<usize>,
    /// Partitions with fewer nodes stay on the CPU.
    pub min_nodes: usize,
    /// Only nodes with these numbers. Halving the range again and again finds the node that goes wrong.
    pub nodes: Option<Range<usize>>,
    /// Not these nodes.
    pub excluded_nodes: Vec<NodeId>,
    /// Not these ops.
    pub excluded_ops: Vec<Op>,
    /// Only partitions that gain more than their copies cost. `None`: whatever is supported.
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
    /// Ok where nothing excludes the node.
    pub(crate) fn check(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let excluded = |what: String| Err(Rejection::Excluded(what));
        match &self.nodes {
            Some(range) if !range.contains(&node.id().0) => {
                return excluded(format!("only nodes {} to before {} are delegated", range.start, range.end));
            }
            _ => {}
        }
        if self.excluded_nodes.contains(&node.id()) {
            return excluded("the node is excluded".into());
        }
        if self.excluded_ops.contains(node.op()) {
            return excluded(format!("{} is excluded", node.op()));
        }
        Ok(())
    }

    /// Whether partitions may be dropped once they are known.
    pub(crate) fn limits_partitions(&self) -> bool {
        self.max_partitions.is_some() || self.min_nodes > 1 || self.cost.is_some()
    }
}

/// How fast a backend works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Multiply-adds per second, where arithmetic is what takes the time.
    pub multiply_adds: f64,
    /// Bytes of operands per second, where moving them is.
    pub bytes: f64,
}

impl Rates {
    /// Seconds for a piece of work: arithmetic and moving go on at the same time.
    fn seconds(&self, cost: Cost) -> f64 {
        (cost.multiply_adds as f64 / self.multiply_adds).max(cost.bytes as f64 / self.bytes)
    }
}

/// When a partition is worth its copies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// The CPU kernels.
    pub cpu: Rates,
    /// The delegate.
    pub delegate: Rates,
    /// Bytes per second over the partition's borders.
    pub copies: f64,
    /// Seconds that a run of a partition takes however small it is.
    pub overhead: f64,
}

impl CostModel {
    /// Seconds on the CPU and with the delegate, copies included.
    pub fn seconds(&self, partition: &DelegateParams, graph: &GraphView<'_>) -> (f64, f64) {
        let boundary = partition.inputs.iter().chain(&partition.outputs);
        let copied: u64 = boundary.map(|&id| bytes(graph, id)).fold(0, u64::saturating_add);
        let costs = partition.nodes.iter().map(|&id| graph.node(id).cost());
        let (cpu, own) = costs.fold((0.0, 0.0), |(cpu, own), cost| {
            (cpu + self.cpu.seconds(cost), own + self.delegate.seconds(cost))
        });
        (cpu, own + copied as f64 / self.copies + self.overhead)
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

/// What a node takes, whoever runs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-adds.
    pub multiply_adds: u64,
    /// Bytes of inputs, constants among them, and outputs.
    pub bytes: u64,
}

impl NodeView<'_> {
    /// What the node takes. Nothing for one that was computed while preparing, and no arithmetic for custom ops and for
    /// shapes that are not known.
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

    fn signature(&self) -> OpSignature<'_> {
        fn operand<'t>(t: crate::TensorInfo<'t>) -> Operand<'t> {
            let tensor = t.tensor();
            Operand {
                ty: tensor.ty,
                shape: &tensor.shape,
                quantization: tensor.quantization.as_deref(),
                constant: tensor.is_constant(),
                sparse: tensor.sparsity.is_some(),
            }
        }
        OpSignature {
            params: self.params(),
            inputs: (0..self.num_inputs()).map(|i| self.input(i).map(operand)).collect(),
            outputs: self.outputs().map(operand).collect(),
        }
    }
}

/// Bytes of a tensor; none where its shape is not known.
pub(crate) fn bytes(graph: &GraphView<'_>, id: TensorId) -> u64 {
    let tensor = graph.tensor(id);
    tensor.shape().and_then(|_| tensor.tensor().byte_size().ok()).map_or(0, |bytes| bytes as u64)
}
