//! Converted weights that are computed one by one, each before the node that packs it. Together they are several times
//! as large as the file.

use delegraph_core::graph::{Node, NodeId, Subgraph, TensorId};
use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{BuiltinOp, Op};

use crate::runtime::host::Env;

/// Smaller constants are computed while shapes are inferred.
const MIN_BYTES: usize = 64 << 10;

/// The time at which weights are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conversions {
    /// While shapes are inferred: all values are read afterwards.
    AtOnce,
    /// Before the node that packs them is prepared, unless a delegate may read them.
    BeforePacking,
}

/// Constants that are not computed yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Per tensor, whether it may wait: all its readers pack or convert weights. Empty if no tensor may wait.
    may_wait: Vec<bool>,
    /// Per tensor, the node that computes it.
    producers: Vec<Option<NodeId>>,
    count: usize,
}

impl Waiting {
    pub(super) fn new(subgraph: &Subgraph, conversions: Conversions, env: &Env<'_>) -> Self {
        let read_elsewhere = !env.services.delegates.is_empty() || env.services.settings.preserve_all_tensors;
        if conversions == Conversions::AtOnce
            || read_elsewhere
            || !subgraph.nodes().iter().any(|node| converts(node.op()))
        {
            return Waiting::default();
        }
        let mut may_wait = vec![true; subgraph.tensors().len()];
        for node in subgraph.nodes() {
            for (i, id) in node.inputs().iter().enumerate() {
                if let Some(id) =
                    id.filter(|_| !(i == 1 && packs(node.op()) || i == 0 && converts(node.op())))
                {
                    may_wait[id.0] = false;
                }
            }
        }
        subgraph.outputs().iter().for_each(|id| may_wait[id.0] = false);
        Waiting { producers: vec![None; may_wait.len()], may_wait, count: 0 }
    }

    /// Returns whether no constant is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a tensor is waiting.
    pub(super) fn contains(&self, id: TensorId) -> bool {
        self.count > 0 && self.producers[id.0].is_some()
    }

    /// Returns whether the output of `node`, whose shape is inferred, may wait. Weights are unpacked and then widened,
    /// which is a chain of two nodes. Longer chains, which would be computed from their end, are not admitted.
    pub(super) fn admits(&self, node: &Node, subgraph: &Subgraph, tensors: &[RuntimeTensor]) -> bool {
        let ([Some(input)], [output]) = (node.inputs(), node.outputs()) else { return false };
        let unpacked = self.producers.get(input.0).copied().flatten();
        let is_unpacked = unpacked.is_some_and(|id| is(subgraph.node(id).op(), BuiltinOp::DENSIFY));
        converts(node.op())
            && (tensors[input.0].is_constant() || is_unpacked && is(node.op(), BuiltinOp::DEQUANTIZE))
            && self.may_wait.get(output.0).is_some_and(|&may| may)
            && tensors[output.0].placement() == Placement::None
            && tensors[output.0].byte_size().is_ok_and(|bytes| bytes >= MIN_BYTES)
    }

    pub(super) fn insert(&mut self, id: TensorId, producer: NodeId) {
        self.producers[id.0] = Some(producer);
        self.count += 1;
    }

    /// Returns the node that computes a waiting tensor, and removes the tensor from the waiting ones.
    pub(super) fn take(&mut self, id: TensorId) -> Option<NodeId> {
        let producer = self.producers.get_mut(id.0)?.take()?;
        self.count -= 1;
        Some(producer)
    }
}

fn is(op: &Op, builtin: BuiltinOp) -> bool {
    op.builtin() == Some(builtin)
}

/// Returns whether an op converts weights from the form in which files store them.
fn converts(op: &Op) -> bool {
    matches!(op.builtin(), Some(BuiltinOp::DEQUANTIZE | BuiltinOp::DENSIFY))
}

/// Returns whether input 1 of an op is weights, of which inference reads only the shape.
fn packs(op: &Op) -> bool {
    matches!(
        op.builtin(),
        Some(BuiltinOp::CONV_2D | BuiltinOp::DEPTHWISE_CONV_2D | BuiltinOp::FULLY_CONNECTED)
    )
}
