//! What is known of a model without running it: shapes, and the values that constants alone decide. Finding out is the
//! proof that a pass left a model that can be prepared.

use std::collections::HashSet;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::{Model, NodeId};
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Op, OpResolver, Registration, Shape};
use delegraph_delegate_api::NodeState;

use crate::interpreter::Interpreter;

/// Per subgraph.
#[derive(Default)]
pub(super) struct Known {
    /// Per tensor, its shape, if it does not depend on data.
    pub(super) shapes: Vec<Vec<Option<Shape>>>,
    /// Per node, what delegates would be told.
    pub(super) states: Vec<Vec<NodeState>>,
    /// Values of nodes over constants: subgraph, node, and the bytes of each output.
    pub(super) folded: Vec<(usize, NodeId, Vec<Vec<u8>>)>,
}

impl Known {
    /// Infers `model` with the kernels of `resolver`. Custom ops that it has no kernel for have outputs of shapes that
    /// are not known.
    ///
    /// # Errors
    /// What preparing the model would fail with.
    pub(super) fn of(model: &Arc<Model>, resolver: &Arc<dyn OpResolver>, values: bool) -> Result<Self> {
        let nodes = model.subgraphs.iter().flat_map(|g| &g.nodes);
        let custom = nodes.filter(|n| n.op.builtin().is_none()).map(|n| n.op.clone()).collect();
        let lenient =
            Lenient { resolver: resolver.clone(), custom, unknown: Registration::new(|_| Ok(Unknown)) };
        let builder = Interpreter::builder_with(model.clone(), lenient).prepare_later();
        let mut interpreter = builder.preserve_all_tensors().build_as_it_is()?;
        let mut known = Known::default();
        for (index, subgraph) in model.subgraphs.iter().enumerate() {
            let (shapes, states, folded) = interpreter.infer(index, values)?;
            known.shapes.push(shapes);
            known.states.push(states);
            let folded = folded.into_iter().filter(|(id, _)| id.0 < subgraph.nodes.len());
            known.folded.extend(folded.map(|(id, outputs)| (index, id, outputs)));
        }
        Ok(known)
    }
}

/// A resolver that has something for every op.
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

    fn versions(&self, op: &Op) -> Vec<(u32, u32)> {
        self.resolver.versions(op)
    }
}

/// A kernel that nobody has.
struct Unknown;

impl Kernel for Unknown {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        (0..cx.num_outputs()).try_for_each(|i| cx.set_output_data_dependent(i))
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        Err(Error::Unsupported("there is no kernel".into()))
    }
}
