//! The graph as a delegate sees it: shapes propagated, constants known.

use std::fmt;

use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{
    BuiltinOp, Composite, Model, Node, NodeId, Op, Params, Quantization, Shape, Subgraph, TensorId,
    TensorType,
};

use crate::Rejection;

/// The state of a node before delegation. The default is a node of static shapes that no delegate has claimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeState {
    /// All inputs are constant, so its outputs are constants that are already computed. Claiming such a node has no
    /// cost.
    pub folded: bool,
    /// The shape of an operand depends on data.
    pub dynamic: bool,
    /// The node reads or writes state, so that it keeps its order among all such nodes.
    pub side_effects: bool,
    /// The application replaced the builtin kernel.
    pub overridden: bool,
    /// Another delegate claimed it.
    pub taken: bool,
}

impl NodeState {
    /// Sets [`NodeState::folded`].
    #[must_use]
    pub fn with_folded(mut self, folded: bool) -> Self {
        self.folded = folded;
        self
    }

    /// Sets [`NodeState::dynamic`].
    #[must_use]
    pub fn with_dynamic(mut self, dynamic: bool) -> Self {
        self.dynamic = dynamic;
        self
    }

    /// Sets [`NodeState::side_effects`].
    #[must_use]
    pub fn with_side_effects(mut self, side_effects: bool) -> Self {
        self.side_effects = side_effects;
        self
    }

    /// Sets [`NodeState::overridden`].
    #[must_use]
    pub fn with_overridden(mut self, overridden: bool) -> Self {
        self.overridden = overridden;
        self
    }

    /// Sets [`NodeState::taken`].
    #[must_use]
    pub fn with_taken(mut self, taken: bool) -> Self {
        self.taken = taken;
        self
    }
}

/// The subgraphs that nodes of a graph call, as far as they are prepared.
pub trait Callees {
    /// Returns subgraph `index`, or `None` if it is not prepared.
    fn callee(&self, index: usize) -> Option<GraphView<'_>>;
}

/// A graph with propagated shapes and known constants. Cheap to copy.
#[derive(Clone, Copy)]
pub struct GraphView<'a> {
    model: &'a Model,
    index: usize,
    tensors: &'a [RuntimeTensor],
    shape_known: &'a [bool],
    states: &'a [NodeState],
    callees: Option<&'a dyn Callees>,
    direct: bool,
}

impl<'a> GraphView<'a> {
    /// Creates a view of subgraph `index`. `tensors` and `shape_known` have an element per tensor, `states` one per
    /// node.
    pub fn new(
        model: &'a Model,
        index: usize,
        tensors: &'a [RuntimeTensor],
        shape_known: &'a [bool],
        states: &'a [NodeState],
    ) -> Self {
        GraphView { model, index, tensors, shape_known, states, callees: None, direct: false }
    }

    /// Adds the subgraphs that the graph's nodes call.
    #[must_use]
    pub fn with_callees(mut self, callees: &'a dyn Callees) -> Self {
        self.callees = Some(callees);
        self
    }

    /// Declares that the interpreter calls the delegate directly.
    #[must_use]
    pub fn called_directly(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Returns whether the interpreter calls the delegate directly, and not through a table of C functions. Then its kernels
    /// reach the interpreter's resource variables ([`Host::resources`](delegraph_core::kernel::Host::resources); the output of
    /// a folded VAR_HANDLE is the handle), and may need data to prepare
    /// ([`DelegateKernel::needs_data`](crate::DelegateKernel::needs_data)).
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Returns a subgraph that a node of this one calls (the body of a WHILE, the decomposition of a composite), as it
    /// was last prepared. `None` before it is prepared; [`GraphView::model`] describes it as in the file.
    pub fn callee(&self, index: usize) -> Option<GraphView<'a>> {
        self.callees?.callee(index)
    }

    /// Returns, for each tensor, the node that computes it.
    pub fn producers(&self) -> Vec<Option<NodeId>> {
        let mut producers = vec![None; self.tensors.len()];
        for (i, node) in self.subgraph().nodes().iter().enumerate() {
            node.outputs().iter().for_each(|id| producers[id.0] = Some(NodeId(i)));
        }
        producers
    }

    /// Returns the float16 constant behind tensor `id` if a DEQUANTIZE converts it, for delegates that compute with
    /// float16 weights of half the size. `producers` is the result of [`GraphView::producers`].
    pub fn float16_source(&self, id: TensorId, producers: &[Option<NodeId>]) -> Option<TensorInfo<'a>> {
        let node = self.node((*producers.get(id.0)?)?);
        let source = node.input(0).filter(|t| t.ty() == TensorType::Float16 && t.is_constant())?;
        (*node.op() == Op::Builtin(BuiltinOp::DEQUANTIZE)).then_some(source)
    }

    /// Returns the model.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// Returns the subgraph as the file describes it.
    pub fn subgraph(&self) -> &'a Subgraph {
        &self.model.subgraphs()[self.index]
    }

    /// Returns the index of the subgraph in its model.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns every node in execution order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        let this = *self;
        this.subgraph().node_ids().map(move |id| this.node(id))
    }

    /// Returns the node `id`.
    ///
    /// # Panics
    /// If the graph has no node `id`.
    pub fn node(&self, id: NodeId) -> NodeView<'a> {
        NodeView { id, node: self.subgraph().node(id), state: self.states[id.0], graph: *self }
    }

    /// Returns the tensor `id`.
    ///
    /// # Panics
    /// If the graph has no tensor `id`.
    pub fn tensor(&self, id: TensorId) -> TensorInfo<'a> {
        TensorInfo { id, tensor: &self.tensors[id.0], shape_known: self.shape_known[id.0], graph: *self }
    }

    /// Returns the number of tensors.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }
}

/// A node: op, version, params and operands. Cheap to copy.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    id: NodeId,
    node: &'a Node,
    state: NodeState,
    graph: GraphView<'a>,
}

impl<'a> NodeView<'a> {
    /// Returns the id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the operator.
    pub fn op(&self) -> &'a Op {
        self.node.op()
    }

    /// Returns the version of the operator.
    pub fn version(&self) -> u32 {
        self.node.version()
    }

    /// Returns the typed params.
    pub fn params(&self) -> &'a Params {
        self.node.params()
    }

    /// Returns the operation that a marked composite represents: name, version, attributes, and the subgraph that
    /// computes it with other ops. `None` for other nodes.
    pub fn composite(&self) -> Option<Composite<'a>> {
        Composite::of_builtin(self.graph.model, self.node)
    }

    /// Returns the options of a custom op.
    pub fn custom_options(&self) -> &'a [u8] {
        self.graph.model.bytes().get(self.node.custom_options()).unwrap_or_default()
    }

    /// Returns the state before delegation.
    pub fn state(&self) -> NodeState {
        self.state
    }

    /// Returns the number of inputs, including omitted optional inputs.
    pub fn input_count(&self) -> usize {
        self.node.inputs().len()
    }

    /// Returns the number of outputs.
    pub fn output_count(&self) -> usize {
        self.node.outputs().len()
    }

    /// Returns input `i`, if the node has it.
    pub fn input(&self, i: usize) -> Option<TensorInfo<'a>> {
        self.node.input(i).map(|id| self.graph.tensor(id))
    }

    /// Returns output `i`, if the node has it.
    pub fn output(&self, i: usize) -> Option<TensorInfo<'a>> {
        self.node.outputs().get(i).map(|&id| self.graph.tensor(id))
    }

    /// Returns all inputs, without omitted ones.
    pub fn inputs(&self) -> impl Iterator<Item = TensorInfo<'a>> + use<'a> {
        let graph = self.graph;
        self.node.inputs().iter().flatten().map(move |&id| graph.tensor(id))
    }

    /// Returns all outputs.
    pub fn outputs(&self) -> impl Iterator<Item = TensorInfo<'a>> + use<'a> {
        let graph = self.graph;
        self.node.outputs().iter().map(move |&id| graph.tensor(id))
    }

    /// Returns the graph that contains the node.
    pub fn graph(&self) -> GraphView<'a> {
        self.graph
    }

    /// Returns the node in the model.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Checks that no shape depends on data.
    ///
    /// # Errors
    /// [`Rejection::DynamicShape`].
    pub fn check_static(&self) -> Result<(), Rejection> {
        match self.inputs().chain(self.outputs()).find(|t| t.shape().is_none()) {
            Some(tensor) => Err(Rejection::DynamicShape { tensor: tensor.name().to_owned() }),
            None => Ok(()),
        }
    }
}

/// A tensor: shape, type, quantization and, for a constant, data. Cheap to copy.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    id: TensorId,
    tensor: &'a RuntimeTensor,
    shape_known: bool,
    graph: GraphView<'a>,
}

impl<'a> TensorInfo<'a> {
    /// Returns the id.
    pub fn id(&self) -> TensorId {
        self.id
    }

    /// Returns the name, possibly empty.
    pub fn name(&self) -> &'a str {
        &self.tensor.name
    }

    /// Returns the element type.
    pub fn ty(&self) -> TensorType {
        self.tensor.ty
    }

    /// Returns the shape; `None` if it depends on data.
    pub fn shape(&self) -> Option<&'a Shape> {
        self.shape_known.then_some(&self.tensor.shape)
    }

    /// Returns the quantization, if any.
    pub fn quantization(&self) -> Option<&'a Quantization> {
        self.tensor.quantization.as_deref()
    }

    /// Returns true for a constant of the file, and for the output of a folded node.
    pub fn is_constant(&self) -> bool {
        matches!(self.tensor.placement(), Placement::Constant | Placement::Released)
    }

    /// Returns the constant data. `None` for other tensors, and for a constant that the interpreter released after
    /// kernels were created. Sparse constants are returned as stored; their dense form is the output of their DENSIFY
    /// node.
    pub fn constant(&self) -> Option<&'a [u8]> {
        self.tensor.is_constant().then(|| self.tensor.bytes())
    }

    /// Returns the constant elements; `None` also for another element type.
    pub fn constant_as<T: delegraph_core::Element>(&self) -> Option<&'a [T]> {
        self.tensor.is_constant().then(|| self.tensor.elements().ok()).flatten()
    }

    /// Returns true for state that persists between invocations.
    pub fn is_variable(&self) -> bool {
        self.graph.subgraph().tensor(self.id).is_variable()
    }

    /// Returns the runtime tensor.
    pub fn tensor(&self) -> &'a RuntimeTensor {
        self.tensor
    }
}

impl fmt::Debug for GraphView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphView")
            .field("index", &self.index)
            .field("nodes", &self.states.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for NodeView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeView")
            .field("id", &self.id)
            .field("op", self.op())
            .field("version", &self.version())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TensorInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorInfo")
            .field("id", &self.id)
            .field("name", &self.name())
            .field("ty", &self.ty())
            .field("shape", &self.shape())
            .field("constant", &self.is_constant())
            .finish_non_exhaustive()
    }
}
