//! Partitions of a delegate, as lists that code of the application reads.

use std::collections::BTreeSet;

use delegraph::core::TensorId;
use delegraph::delegate_api::{self, GraphView};

use crate::abi::{Delegate, DelegateParams};
use crate::arrays::Ints;

/// The nodes of a partition, and the tensors that it reads and writes, each list ascending. As in TensorFlow Lite, the
/// inputs include constants.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) nodes: Ints,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
}

impl Partition {
    pub(crate) fn new(params: &delegate_api::DelegateParams, graph: &GraphView<'_>) -> Self {
        let mut inputs: BTreeSet<TensorId> = params.inputs.iter().copied().collect();
        let mut computed = BTreeSet::new();
        for &node in &params.nodes {
            computed.extend(graph.subgraph().node(node).outputs().iter().copied());
        }
        for &node in &params.nodes {
            let constants = graph.node(node).inputs().filter(|tensor| tensor.is_constant());
            inputs.extend(constants.map(|tensor| tensor.id()).filter(|id| !computed.contains(id)));
        }
        let outputs: BTreeSet<TensorId> = params.outputs.iter().copied().collect();
        Partition {
            nodes: Ints::of(params.nodes.iter().map(|node| node.0)),
            inputs: inputs.into_iter().map(|id| id.0).collect(),
            outputs: outputs.into_iter().map(|id| id.0).collect(),
        }
    }
}

/// Partitions for code with the classic interface.
#[derive(Debug, Default)]
pub(super) struct Preview {
    pub(super) params: Vec<DelegateParams>,
    _lists: Vec<(Ints, Ints, Ints)>,
}

impl Preview {
    pub(super) fn new(partitions: Vec<Partition>, delegate: *mut Delegate) -> Self {
        let lists: Vec<_> = partitions
            .into_iter()
            .map(|partition| (partition.nodes, Ints::of(partition.inputs), Ints::of(partition.outputs)))
            .collect();
        let params = lists.iter().map(|(nodes, inputs, outputs)| DelegateParams {
            delegate,
            nodes: nodes.pointer(),
            inputs: inputs.pointer(),
            outputs: outputs.pointer(),
        });
        Preview { params: params.collect(), _lists: lists }
    }
}
