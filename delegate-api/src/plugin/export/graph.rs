//! The graph on the plugin's side, built from the model's bytes and the application's descriptions.

use std::ffi::c_void;

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{Error, Model, ModelBytes, NodeId, Result, Shape, Subgraph, TensorId};

use super::super::abi::*;
use super::super::raw::slice;
use super::host::Host;
use crate::{Callees, DelegateParams, GraphView, NodeState};

/// The graph of a session, and the subgraphs that its nodes call.
pub(super) struct Graph {
    model: Model,
    index: usize,
    /// Per subgraph of the model, its state; `None` if the application does not describe it.
    subgraphs: Vec<Option<Known>>,
}

/// The shapes, constants and node states of a subgraph, which the model's file does not contain.
struct Known {
    tensors: Vec<RuntimeTensor>,
    shape_known: Vec<bool>,
    states: Vec<NodeState>,
}

/// The application's bytes of a model, released when the last owner drops them.
struct Borrowed {
    data: *const u8,
    len: usize,
    owner: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
}

// SAFETY: the bytes never change, and the interface allows any thread to release them.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the application guarantees this number of bytes until they are released.
        unsafe { slice(self.data, self.len) }.unwrap_or_default()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: called once, with the owner that the application passed with the bytes.
            unsafe { release(self.owner) };
        }
    }
}

impl Graph {
    pub(super) fn read(host: &Host, context: DelegraphContext) -> Result<Self> {
        let described = host.graph(context)?;
        let DelegraphModel { data, len, owner, release, .. } = host.model(context)?;
        let bytes = ModelBytes::new(Borrowed { data, len, owner, release });
        // SAFETY: the application guarantees the length of the text.
        let path = unsafe { super::super::raw::text_of(described.model_path) };
        let model =
            if path.is_empty() { Model::from_bytes(bytes) } else { Model::from_bytes_named(bytes, path) }?;
        let index = described.subgraph;
        let context_of = |i: usize| if i == index { Some(context) } else { host.callee(context, i) };
        let read = |(i, graph)| context_of(i).map(|context| Known::read(host, context, graph)).transpose();
        let subgraphs = model.subgraphs().iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
        if !matches!(subgraphs.get(index), Some(Some(_))) {
            return Err(other_reading());
        }
        Ok(Graph { model, index, subgraphs })
    }

    pub(super) fn view(&self) -> GraphView<'_> {
        // `read` checks that the subgraph is described.
        let nothing = || GraphView::new(&self.model, self.index, &[], &[], &[]);
        self.callee(self.index).unwrap_or_else(nothing)
    }
}

impl Callees for Graph {
    fn callee(&self, index: usize) -> Option<GraphView<'_>> {
        let known = self.subgraphs.get(index)?.as_ref()?;
        let view = GraphView::new(&self.model, index, &known.tensors, &known.shape_known, &known.states);
        Some(view.with_callees(self))
    }
}

fn other_reading() -> Error {
    Error::Unsupported("this plugin reads the model differently than the application".into())
}

impl Known {
    fn read(host: &Host, context: DelegraphContext, graph: &Subgraph) -> Result<Self> {
        let described = host.graph(context)?;
        if (graph.nodes().len(), graph.tensors().len()) != (described.nodes, described.tensors) {
            return Err(other_reading());
        }
        let mut tensors = Vec::with_capacity(graph.tensors().len());
        let mut shape_known = Vec::with_capacity(graph.tensors().len());
        for (i, tensor) in graph.tensors().iter().enumerate() {
            let described = host.tensor(context, i)?;
            let mut tensor = RuntimeTensor::new(tensor);
            // SAFETY: the application guarantees the number of dimensions.
            tensor.shape = Shape::from(unsafe { slice(described.dims, described.rank) }.unwrap_or_default());
            if described.flags & DELEGRAPH_TENSOR_CONSTANT != 0 {
                let data = described.data.cast::<u8>().cast_mut();
                // SAFETY: the application guarantees this number of bytes until `end_prepare`, which drops this graph.
                unsafe { tensor.set_data(Placement::Constant, data, described.data_len) };
            }
            tensors.push(tensor);
            shape_known.push(described.flags & DELEGRAPH_TENSOR_SHAPE_KNOWN != 0);
        }
        let states = (0..graph.nodes().len()).map(|i| host.node_flags(context, i).map(state));
        Ok(Known { tensors, shape_known, states: states.collect::<Result<_>>()? })
    }
}

fn state(flags: u32) -> NodeState {
    NodeState {
        folded: flags & DELEGRAPH_NODE_FOLDED != 0,
        dynamic: flags & DELEGRAPH_NODE_DYNAMIC != 0,
        side_effects: flags & DELEGRAPH_NODE_SIDE_EFFECTS != 0,
        overridden: flags & DELEGRAPH_NODE_OVERRIDDEN != 0,
        taken: flags & DELEGRAPH_NODE_TAKEN != 0,
    }
}

impl GraphView<'_> {
    /// Returns a partition of this graph.
    pub(super) fn params_of(&self, partition: &DelegraphPartition) -> Result<DelegateParams> {
        // SAFETY: the application guarantees the number of elements.
        let (nodes, inputs, outputs) = unsafe {
            (
                slice(partition.nodes, partition.node_count).unwrap_or_default(),
                slice(partition.inputs, partition.input_count).unwrap_or_default(),
                slice(partition.outputs, partition.output_count).unwrap_or_default(),
            )
        };
        let (node_count, tensor_count) = (self.subgraph().nodes().len(), self.tensor_count());
        if nodes.iter().any(|&i| i >= node_count) || inputs.iter().chain(outputs).any(|&i| i >= tensor_count)
        {
            return Err(Error::State("a partition of another graph".into()));
        }
        Ok(DelegateParams {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            inputs: inputs.iter().copied().map(TensorId).collect(),
            outputs: outputs.iter().copied().map(TensorId).collect(),
        })
    }
}
