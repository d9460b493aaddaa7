//! Subgraphs, and the signatures that name their inputs and outputs.

use super::{Node, NodeId, Tensor, TensorId};

/// One graph of nodes over tensors.
#[derive(Debug, Clone, Default)]
pub struct Subgraph {
    pub(super) name: String,
    pub(super) tensors: Vec<Tensor>,
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<TensorId>,
    pub(super) outputs: Vec<TensorId>,
    pub(super) debug_metadata: Option<u32>,
}

impl Subgraph {
    /// Creates a subgraph. Its ids are checked when it becomes part of a model.
    pub fn new(
        name: impl Into<String>,
        tensors: Vec<Tensor>,
        nodes: Vec<Node>,
        inputs: impl Into<Vec<TensorId>>,
        outputs: impl Into<Vec<TensorId>>,
    ) -> Self {
        Subgraph {
            name: name.into(),
            tensors,
            nodes,
            inputs: inputs.into(),
            outputs: outputs.into(),
            debug_metadata: None,
        }
    }

    /// Returns the name, often empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the tensor `id`.
    ///
    /// # Panics
    /// If `id` is not an id of this subgraph. Ids in a model's own subgraph are always in range.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0]
    }

    /// Returns all nodes; in a model's own subgraph, in an order in which they can run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node `id`.
    ///
    /// # Panics
    /// If `id` is not an id of this subgraph. Ids in a model's own subgraph are always in range.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// Returns every node's id, in file order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// Returns the tensors that the caller fills.
    pub fn inputs(&self) -> &[TensorId] {
        &self.inputs
    }

    /// Returns the tensors that the caller reads.
    pub fn outputs(&self) -> &[TensorId] {
        &self.outputs
    }

    /// Returns the index of the subgraph's entry in the model's debug metadata, if any.
    pub fn debug_metadata(&self) -> Option<u32> {
        self.debug_metadata
    }
}

/// Edits. A subgraph of a model cannot be edited: see [`ModelDraft`](super::ModelDraft).
impl Subgraph {
    /// Sets the name.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    /// Returns the tensors, to be changed.
    pub fn tensors_mut(&mut self) -> &mut Vec<Tensor> {
        &mut self.tensors
    }

    /// Adds a tensor and returns its id.
    pub fn add_tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        TensorId(self.tensors.len() - 1)
    }

    /// Returns the nodes, to be changed.
    pub fn nodes_mut(&mut self) -> &mut Vec<Node> {
        &mut self.nodes
    }

    /// Returns the inputs, to be changed.
    pub fn inputs_mut(&mut self) -> &mut Vec<TensorId> {
        &mut self.inputs
    }

    /// Returns the outputs, to be changed.
    pub fn outputs_mut(&mut self) -> &mut Vec<TensorId> {
        &mut self.outputs
    }

    /// Sets which entry of the model's debug metadata describes the subgraph.
    pub fn set_debug_metadata(&mut self, entry: Option<u32>) {
        self.debug_metadata = entry;
    }
}

/// A named entry point: a subgraph whose inputs and outputs have names.
#[derive(Debug, Clone)]
pub struct Signature {
    pub(super) key: String,
    pub(super) subgraph: usize,
    pub(super) inputs: Vec<(String, TensorId)>,
    pub(super) outputs: Vec<(String, TensorId)>,
}

impl Signature {
    /// Creates a signature of subgraph number `subgraph`, with names of its inputs and outputs.
    pub fn new(
        key: impl Into<String>,
        subgraph: usize,
        inputs: Vec<(String, TensorId)>,
        outputs: Vec<(String, TensorId)>,
    ) -> Self {
        Signature { key: key.into(), subgraph, inputs, outputs }
    }

    /// Returns the key, unique in the model.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of the subgraph that it runs.
    pub fn subgraph(&self) -> usize {
        self.subgraph
    }

    /// Names and tensors of its inputs.
    pub fn inputs(&self) -> &[(String, TensorId)] {
        &self.inputs
    }

    /// Names and tensors of its outputs.
    pub fn outputs(&self) -> &[(String, TensorId)] {
        &self.outputs
    }
}

/// Edits. A signature of a model cannot be edited: see [`ModelDraft`](super::ModelDraft).
impl Signature {
    /// Sets the key.
    pub fn set_key(&mut self, key: impl Into<String>) {
        self.key = key.into();
    }

    /// Sets the number of the subgraph that it runs.
    pub fn set_subgraph(&mut self, subgraph: usize) {
        self.subgraph = subgraph;
    }

    /// Names and tensors of its inputs, to be changed.
    pub fn inputs_mut(&mut self) -> &mut Vec<(String, TensorId)> {
        &mut self.inputs
    }

    /// Names and tensors of its outputs, to be changed.
    pub fn outputs_mut(&mut self) -> &mut Vec<(String, TensorId)> {
        &mut self.outputs
    }
}
