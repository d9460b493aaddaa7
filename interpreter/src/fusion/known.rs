//! Properties of a model that are known without running it: shapes, and values that depend on constants only. Inferring
//! them checks that a pass left a model that can be prepared.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::{Model, NodeId};
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Op, OpResolver, Registration, Shape};
use delegraph_delegate_api::NodeState;

use crate::runtime::{ResourceLimits, analyze};

/// The properties of each subgraph.
#[derive(Default)]
pub(super) struct Known {
    /// Per tensor, its shape, if it does not depend on data.
    pub(super) shapes: Vec<Vec<Option<Shape>>>,
    /// Per node, its state before delegation.
    pub(super) states: Vec<Vec<NodeState>>,
    /// Values of nodes over constants: subgraph, node, and the bytes of each output.
    pub(super) folded: Vec<(usize, NodeId, Vec<Vec<u8>>)>,
}

impl Known {
    /// Infers `model` with the kernels of `resolver`. The output shapes of custom ops without a kernel are unknown.
    /// [`Known::folded`] is empty without `values`.
    ///
    /// # Errors
    /// The error that preparing the model would return.
    pub(super) fn of(
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        values: bool,
        limits: &ResourceLimits,
    ) -> Result<Self> {
        let nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
        let custom = nodes.filter(|n| n.op().builtin().is_none()).map(|n| n.op().clone()).collect();
        let lenient =
            Lenient { resolver: resolver.clone(), custom, unknown: Registration::new(|_| Ok(Unknown)) };
        let mut known = Known::default();
        for (index, analysis) in analyze(model, lenient, values, limits)?.into_iter().enumerate() {
            known.shapes.push(analysis.shapes);
            known.states.push(analysis.states);
            known.folded.extend(analysis.folded.into_iter().map(|(id, outputs)| (index, id, outputs)));
        }
        Ok(known)
    }
}

/// A resolver that returns a kernel for every custom op of the model.
struct Lenient {
    resolver: Arc<dyn OpResolver>,
    /// The custom ops of the model.
    custom: HashSet<Op>,
    unknown: Registration,
}

impl OpResolver for Lenient {
    fn find(&self, op: &Op, version: u32) -> Option<&Registration> {
        let unknown = || self.custom.contains(op).then_some(&self.unknown);
        self.resolver.find(op, version).or_else(unknown)
    }

    fn versions(&self, op: &Op) -> Vec<RangeInclusive<u32>> {
        self.resolver.versions(op)
    }
}

/// A placeholder for a kernel that is not registered.
struct Unknown;

impl Kernel for Unknown {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        (0..cx.output_count()).try_for_each(|i| cx.set_output_data_dependent(i))
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        Err(Error::Unsupported("there is no kernel".into()))
    }
}
