//! The graph as a delegate sees it: shapes propagated, constants known.

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{
    BuiltinOp, Composite, Model, Node, NodeId, Op, Params, Quantization, Shape, Subgraph, TensorId,
    TensorType,
};

use crate::Rejection;

/// What is known of a node before delegation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeState {
    /// All inputs are constant, so that its outputs are constant, too, and already computed. Claiming such a node
    /// costs nothing: its outputs can be read as constants.
    pub folded: bool,
    /// A shape in it is known only while running.
    pub dynamic: bool,
    /// It reads or writes state, so that it keeps its place among others that do.
    pub side_effects: bool,
    /// The application replaced the builtin kernel.
    pub overridden: bool,
    /// Another delegate has it.
    pub taken: bool,
}

/// The subgraphs that nodes of a graph call, as far as their shapes are known already.
pub trait Callees {
    /// Subgraph `index`.
    fn callee(&self, index: usize) -> Option<GraphView<'_>>;
}

/// The graph as a delegate sees it.
#[derive(Clone, Copy)]
pub struct GraphView<'a> {
    model: &'a Model,
    index: usize,
    tensors: &'a [RuntimeTensor],
    shape_known: &'a [bool],
    states: &'a [NodeState],
    callees: Option<&'a dyn Callees>,
}

impl<'a> GraphView<'a> {
    /// A view of subgraph `index`, whose tensors and nodes the slices describe one by one.
    pub fn new(
        model: &'a Model,
        index: usize,
        tensors: &'a [RuntimeTensor],
        shape_known: &'a [bool],
        states: &'a [NodeState],
    ) -> Self {
        GraphView { model, index, tensors, shape_known, states, callees: None }
    }

    /// With the subgraphs that its nodes call.
    #[must_use]
    pub fn with_callees(mut self, callees: &'a dyn Callees) -> Self {
        self.callees = Some(callees);
        self
    }

    /// A subgraph that a node of this one calls (the body of a WHILE, the decomposition of a composite), as it was last
    /// prepared. `None` where nothing is known of it but what the file says, which [`GraphView::model`] has.
    pub fn callee(&self, index: usize) -> Option<GraphView<'a>> {
        self.callees?.callee(index)
    }

    /// Per tensor, the node that computes it.
    pub fn producers(&self) -> Vec<Option<NodeId>> {
        let mut producers = vec![None; self.tensors.len()];
        for (i, node) in self.subgraph().nodes.iter().enumerate() {
            node.outputs.iter().for_each(|id| producers[id.0] = Some(NodeId(i)));
        }
        producers
    }

    /// The float16 constant that tensor `id` was converted from, where it is a constant that a DEQUANTIZE gave:
    /// half the bytes, for a delegate that computes with float16 weights. `producers` are the graph's own.
    pub fn float16_source(&self, id: TensorId, producers: &[Option<NodeId>]) -> Option<TensorInfo<'a>> {
        let node = self.node((*producers.get(id.0)?)?);
        let source = node.input(0).filter(|t| t.ty() == TensorType::Float16 && t.is_constant())?;
        (*node.op() == Op::Builtin(BuiltinOp::DEQUANTIZE)).then_some(source)
    }

    /// The model.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// The subgraph as the file describes it.
    pub fn subgraph(&self) -> &'a Subgraph {
        &self.model.subgraphs[self.index]
    }

    /// The number of the subgraph in its model.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Every node in execution order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        let this = *self;
        this.subgraph().node_ids().map(move |id| this.node(id))
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> NodeView<'a> {
        NodeView { id, node: self.subgraph().node(id), state: self.states[id.0], graph: *self }
    }

    /// The tensor `id`.
    pub fn tensor(&self, id: TensorId) -> TensorInfo<'a> {
        TensorInfo { id, tensor: &self.tensors[id.0], shape_known: self.shape_known[id.0], graph: *self }
    }

    /// How many tensors there are.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }
}

/// A node: its registration (op and version), params and operands.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    id: NodeId,
    node: &'a Node,
    state: NodeState,
    graph: GraphView<'a>,
}

impl<'a> NodeView<'a> {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its operator.
    pub fn op(&self) -> &'a Op {
        &self.node.op
    }

    /// The version of the operator that the model asks for.
    pub fn version(&self) -> u32 {
        self.node.version
    }

    /// Its typed params.
    pub fn params(&self) -> &'a Params {
        &self.node.params
    }

    /// What the node stands for, where it is a marked composite: name, version, attributes, and the subgraph that
    /// computes it out of other ops.
    pub fn composite(&self) -> Option<Composite<'a>> {
        Composite::with_body(self.graph.model, self.node)
    }

    /// The options of a custom op.
    pub fn custom_options(&self) -> &'a [u8] {
        self.graph.model.bytes().get(self.node.custom_options.clone()).unwrap_or_default()
    }

    /// What is known of it before delegation.
    pub fn state(&self) -> NodeState {
        self.state
    }

    /// How many inputs, those left out included.
    pub fn num_inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// How many outputs.
    pub fn num_outputs(&self) -> usize {
        self.node.outputs.len()
    }

    /// Input `i`, if the node has it.
    pub fn input(&self, i: usize) -> Option<TensorInfo<'a>> {
        self.node.input(i).map(|id| self.graph.tensor(id))
    }

    /// Output `i`, if the node has it.
    pub fn output(&self, i: usize) -> Option<TensorInfo<'a>> {
        self.node.outputs.get(i).map(|&id| self.graph.tensor(id))
    }

    /// All inputs that are there.
    pub fn inputs(&self) -> impl Iterator<Item = TensorInfo<'a>> + use<'a> {
        let graph = self.graph;
        self.node.inputs.iter().flatten().map(move |&id| graph.tensor(id))
    }

    /// All outputs.
    pub fn outputs(&self) -> impl Iterator<Item = TensorInfo<'a>> + use<'a> {
        let graph = self.graph;
        self.node.outputs.iter().map(move |&id| graph.tensor(id))
    }

    /// The graph that it is in.
    pub fn graph(&self) -> GraphView<'a> {
        self.graph
    }

    /// The node in the model.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Ok when all shapes are known before running.
    pub fn check_static(&self) -> Result<(), Rejection> {
        match self.inputs().chain(self.outputs()).find(|t| t.shape().is_none()) {
            Some(tensor) => Err(Rejection::DynamicShape { tensor: tensor.name().to_owned() }),
            None => Ok(()),
        }
    }
}

/// A tensor: shape, type, quantization and, where it is constant, data.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    id: TensorId,
    tensor: &'a RuntimeTensor,
    shape_known: bool,
    graph: GraphView<'a>,
}

impl<'a> TensorInfo<'a> {
    /// Its id.
    pub fn id(&self) -> TensorId {
        self.id
    }

    /// Its name, possibly empty.
    pub fn name(&self) -> &'a str {
        &self.tensor.name
    }

    /// Element type.
    pub fn ty(&self) -> TensorType {
        self.tensor.ty
    }

    /// Shape; `None` where it is known only while running.
    pub fn shape(&self) -> Option<&'a Shape> {
        self.shape_known.then_some(&self.tensor.shape)
    }

    /// Quantization, if any.
    pub fn quantization(&self) -> Option<&'a Quantization> {
        self.tensor.quantization.as_deref()
    }

    /// True for a constant of the file, and for one that was computed from constants.
    pub fn is_constant(&self) -> bool {
        matches!(self.tensor.placement(), Placement::Constant | Placement::Released)
    }

    /// Its constant data; `None` also where an interpreter has released it since delegates were asked. Sparse
    /// constants are as stored; their dense form is the output of their DENSIFY node.
    pub fn constant(&self) -> Option<&'a [u8]> {
        self.tensor.is_constant().then(|| self.tensor.bytes())
    }

    /// Its constant elements.
    pub fn constant_as<T: delegraph_core::Element>(&self) -> Option<&'a [T]> {
        self.tensor.is_constant().then(|| self.tensor.elements().ok()).flatten()
    }

    /// True for state that lives from one invocation to the next.
    pub fn is_variable(&self) -> bool {
        self.graph.subgraph().tensor(self.id).is_variable
    }

    /// The tensor at run time.
    pub fn tensor(&self) -> &'a RuntimeTensor {
        self.tensor
    }
}
