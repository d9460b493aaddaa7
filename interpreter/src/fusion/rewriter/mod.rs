//! Rewriting of one subgraph.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, Tensor, TensorId};
use delegraph_core::kernel::Budget;
use delegraph_core::{BuiltinOp, Element, Op, Quantization, Shape, TensorType};

use super::known::Known;
use super::report::name_of;
use super::store::Store;
use alike::Alike;

mod alike;

/// A subgraph that a fusion rewrites: nodes and tensors by number, producer and consumers of each tensor, shapes, and
/// constants.
///
/// Numbers of nodes and tensors do not change during a pass; unused ones are removed after it. A new node replaces an
/// existing one, or is inserted before one. After the pass, the nodes are sorted into an order of execution.
pub struct Rewriter<'m> {
    model: &'m Model,
    subgraph: Subgraph,
    nodes: Vec<Option<Node>>,
    /// The position of each node in the order.
    places: Vec<usize>,
    producers: Vec<Option<NodeId>>,
    readers: Vec<Readers>,
    /// Per node, the place of each operand in the readers of its tensor.
    reads: Vec<Vec<usize>>,
    /// Whether each tensor is an output of the subgraph.
    is_output: Vec<bool>,
    shapes: Vec<Option<Shape>>,
    store: &'m mut Store,
    /// Names of ops that were removed and added since the last call of `taken`.
    gone: Vec<String>,
    came: Vec<String>,
    /// Whether a node was changed, removed or added since the last call of `taken`.
    changed: bool,
    alike: Alike,
    /// Constants that [`Rewriter::mapped`] added: no other tensor has their bytes.
    mapped: HashSet<TensorId>,
}

/// The nodes that read a tensor, once per operand.
#[derive(Debug, Clone, Default)]
struct Readers {
    nodes: Vec<NodeId>,
    /// The index of the operand of each.
    operands: Vec<usize>,
}

impl fmt::Debug for Rewriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rewriter")
            .field("subgraph", &self.subgraph.name())
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// A tensor whose consumers read another one instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirect {
    /// The tensor that the consumers read.
    pub from: TensorId,
    /// The tensor that they read instead.
    pub to: TensorId,
}

impl<'m> Rewriter<'m> {
    pub(super) fn new(model: &'m Model, index: usize, known: &Known, store: &'m mut Store) -> Self {
        let mut subgraph = model.subgraphs().get(index).cloned().unwrap_or_default();
        let nodes = std::mem::take(subgraph.nodes_mut());
        let tensors = subgraph.tensors().len();
        let mut shapes = known.shapes.get(index).cloned().unwrap_or_default();
        shapes.resize(tensors, None);
        let mut is_output = vec![false; tensors];
        for output in subgraph.outputs() {
            if let Some(is_output) = is_output.get_mut(output.0) {
                *is_output = true;
            }
        }
        let mut this = Rewriter {
            model,
            subgraph,
            nodes: Vec::with_capacity(nodes.len()),
            places: Vec::with_capacity(nodes.len()),
            producers: vec![None; tensors],
            readers: vec![Readers::default(); tensors],
            reads: Vec::with_capacity(nodes.len()),
            is_output,
            shapes,
            store,
            gone: Vec::new(),
            came: Vec::new(),
            changed: false,
            alike: Alike::default(),
            mapped: HashSet::new(),
        };
        for (place, node) in nodes.into_iter().enumerate() {
            this.add(place, node);
        }
        this
    }

    /// Returns the model before the pass, for called subgraphs and for custom options.
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Returns every remaining node, in the order of the numbers.
    pub fn nodes(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).map(NodeId).filter(|&id| self.node(id).is_some()).collect()
    }

    /// Returns the node of this number; `None` if it was removed.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)?.as_ref()
    }

    /// Returns the node of this number if it is one of the builtin op `op`.
    pub fn node_of(&self, id: NodeId, op: BuiltinOp) -> Option<&Node> {
        self.node(id).filter(|n| *n.op() == Op::Builtin(op))
    }

    /// Returns a tensor as the file describes it; `None` for a number that does not exist.
    pub fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.subgraph.tensors().get(id.0)
    }

    /// Returns the element type of a tensor.
    pub fn ty(&self, id: TensorId) -> Option<TensorType> {
        self.tensor(id).map(|t| t.ty())
    }

    /// Returns whether a tensor has elements of type float32.
    pub fn is_float(&self, id: TensorId) -> bool {
        self.ty(id) == Some(TensorType::Float32)
    }

    /// Returns the quantization of a tensor.
    pub fn quantization(&self, id: TensorId) -> Option<&Quantization> {
        self.tensor(id)?.quantization()
    }

    /// Returns the shape of a tensor, for the input shapes in the file; `None` if it depends on data.
    pub fn shape(&self, id: TensorId) -> Option<&Shape> {
        self.shapes.get(id.0)?.as_ref()
    }

    /// Returns the inputs of the subgraph.
    pub fn inputs(&self) -> &[TensorId] {
        self.subgraph.inputs()
    }

    /// Returns whether a tensor is an output of the subgraph.
    pub fn is_output(&self, id: TensorId) -> bool {
        self.is_output.get(id.0).copied().unwrap_or(false)
    }

    /// Returns the bytes of a constant of the file, or of a constant that a fusion added; `None` for a sparse constant,
    /// and for other tensors.
    pub fn constant(&self, id: TensorId) -> Option<&[u8]> {
        let tensor = self.tensor(id).filter(|t| t.sparsity().is_none())?;
        self.store.get(self.model, tensor.data()?)
    }

    /// Returns the elements of a float32 constant.
    pub fn floats(&self, id: TensorId) -> Option<Vec<f32>> {
        Some(self.float_chunks(id)?.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Returns the number of elements of a float32 constant, without reading them.
    pub(super) fn float_count(&self, id: TensorId) -> Option<usize> {
        self.float_chunks(id).map(<[_]>::len)
    }

    fn float_chunks(&self, id: TensorId) -> Option<&[[u8; 4]]> {
        let bytes = self.constant(id).filter(|_| self.is_float(id))?;
        Some(bytes.as_chunks::<4>().0)
    }

    /// Returns the elements of a constant of INT32 or INT64.
    pub fn integers(&self, id: TensorId) -> Option<Vec<i64>> {
        let bytes = self.constant(id)?;
        match self.ty(id)? {
            TensorType::Int32 => {
                Some(bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect())
            }
            TensorType::Int64 => {
                Some(bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
            }
            _ => None,
        }
    }

    /// Returns the value of an INT32 or INT64 constant of one element.
    pub(super) fn integer(&self, id: TensorId) -> Option<i64> {
        // A long list is not read.
        self.constant(id).filter(|bytes| bytes.len() <= size_of::<i64>())?;
        match *self.integers(id)?.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a float32 constant of one element.
    pub fn scalar(&self, id: TensorId) -> Option<f32> {
        match self.float_chunks(id)? {
            [value] => Some(f32::from_le_bytes(*value)),
            _ => None,
        }
    }

    /// Returns the node that computes a tensor; `None` for inputs and constants, for example.
    pub fn producer(&self, id: TensorId) -> Option<NodeId> {
        self.producers.get(id.0).copied().flatten()
    }

    /// Returns the node that computes a tensor if it is one of the builtin op `op`.
    pub fn made_by(&self, id: TensorId, op: BuiltinOp) -> Option<(NodeId, &Node)> {
        let producer = self.producer(id)?;
        Some((producer, self.node_of(producer, op)?))
    }

    /// Returns the nodes that read a tensor. A node that reads it twice is listed twice.
    pub fn readers(&self, id: TensorId) -> &[NodeId] {
        self.readers.get(id.0).map_or(&[], |readers| readers.nodes.as_slice())
    }

    /// Returns whether a tensor has a single consumer, which reads it once, and is not an output of the subgraph. A
    /// fusion that replaces the consumer may then remove the tensor.
    pub fn is_private(&self, id: TensorId) -> bool {
        self.readers(id).len() == 1 && !self.is_output(id)
    }

    /// Adds a tensor for a new node to write.
    pub fn new_tensor(&mut self, tensor: Tensor) -> TensorId {
        self.shapes.push(Some(tensor.shape().clone()));
        self.subgraph.tensors_mut().push(tensor);
        self.producers.push(None);
        self.readers.push(Readers::default());
        self.is_output.push(false);
        TensorId(self.subgraph.tensors().len() - 1)
    }

    /// Adds a constant; as [`Rewriter::new_constant_bytes`].
    pub fn new_constant<T: Element>(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        values: &[T],
    ) -> TensorId {
        let tensor = Tensor::new(name, T::TYPE, shape);
        self.new_constant_bytes(tensor, bytemuck::cast_slice(values))
    }

    /// Adds a constant with these bytes. Without memory for them in the limit of the pipeline, it has none, and the pass
    /// ends after the fusion returns.
    pub fn new_constant_bytes(&mut self, mut tensor: Tensor, bytes: &[u8]) -> TensorId {
        tensor.set_data(Some(self.store.add(bytes)));
        self.new_tensor(tensor)
    }

    /// Adds a constant with these bytes, and with the type, shape and quantization of `id`. `None` if `id` does not
    /// exist.
    pub fn constant_like(&mut self, id: TensorId, name: &str, bytes: &[u8]) -> Option<TensorId> {
        let tensor = self.tensor(id)?.clone().with_name(name);
        Some(self.new_constant_bytes(tensor, bytes))
    }

    /// Returns a constant with the elements of the float32 constant `id` after `f`, which gets the index of each element
    /// and its value. It is `new` with these elements, or `id` itself if this pass added it for a single reader, which
    /// must be about to be replaced: a chain of nodes then needs no copy for each. `None` if `id` is not such a constant.
    pub(super) fn mapped(
        &mut self,
        id: TensorId,
        new: Tensor,
        f: impl Fn(usize, f32) -> f32,
    ) -> Option<TensorId> {
        self.float_chunks(id)?;
        let range = self.tensor(id)?.data()?;
        if self.bytes_to_map(id) == 0 {
            self.store.change_floats(&range, f);
            return Some(id);
        }
        let range = self.store.add_copy(self.model, range);
        Some(self.with_floats(new, range, f))
    }

    /// As [`Rewriter::mapped`], for `count` zeros.
    pub(super) fn mapped_zeros(
        &mut self,
        count: usize,
        new: Tensor,
        f: impl Fn(usize, f32) -> f32,
    ) -> TensorId {
        let range = self.store.add_zeros(count.saturating_mul(size_of::<f32>()));
        self.with_floats(new, range, f)
    }

    fn with_floats(
        &mut self,
        mut tensor: Tensor,
        range: std::ops::Range<usize>,
        f: impl Fn(usize, f32) -> f32,
    ) -> TensorId {
        self.store.change_floats(&range, f);
        tensor.set_data(Some(range));
        let id = self.new_tensor(tensor);
        self.mapped.insert(id);
        id
    }

    /// Returns the bytes that [`Rewriter::mapped`] adds for a constant.
    pub(super) fn bytes_to_map(&self, id: TensorId) -> usize {
        let range = self.tensor(id).and_then(|t| t.data()).unwrap_or_default();
        let own = self.mapped.contains(&id) && self.is_private(id);
        if own { 0 } else { range.len() }
    }

    /// Returns whether the budget of the pipeline has room for two constants of together `bytes` bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.store.has_room(bytes)
    }

    /// Returns the memory and time that the pipeline may use.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        self.store.budget()
    }

    /// Checks that all constants could be added, and polls.
    ///
    /// # Errors
    /// Those of [`Store::check`].
    pub(super) fn check(&mut self) -> Result<()> {
        self.store.check()
    }

    /// Returns the first node before `id` with equal results, if there is one. Constants with equal bytes count as the
    /// same input.
    pub(super) fn first_alike(&mut self, id: NodeId) -> Option<NodeId> {
        let mut alike = std::mem::take(&mut self.alike);
        let found = alike.find(self, id);
        self.alike = alike;
        found
    }

    /// Stores the options of a custom op, or other bytes that nodes refer to. Without memory for them in the limit of the
    /// pipeline, the range is empty, and the pass ends after the fusion returns.
    pub fn store(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        self.store.add(bytes)
    }

    /// Adds a subgraph for a node to call, and returns its number. Its constants refer to ranges that
    /// [`Rewriter::store`] returned.
    pub fn new_subgraph(&mut self, subgraph: Subgraph) -> usize {
        self.store.add_subgraph(subgraph)
    }

    /// Changes a node in place: its number and its position remain. Nothing happens if it was removed.
    pub fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let Some(mut node) = self.take(id) else { return };
        change(&mut node);
        self.changed = true;
        self.put(id, node);
    }

    /// Adds `node` at the position of `at`, and removes the nodes `gone`, which usually include `at`. Returns the
    /// number of the new node. Outputs of `gone` that `node` does not write must have no readers other than the nodes
    /// in `gone`.
    pub fn replace(&mut self, at: NodeId, gone: &[NodeId], node: Node) -> NodeId {
        let place = self.places.get(at.0).copied().unwrap_or(self.nodes.len());
        for &id in gone {
            self.remove(id);
        }
        self.came.push(name_of(self.model, &node));
        self.changed = true;
        self.add(place, node)
    }

    /// Adds a node directly before the node `at`, and returns its number.
    pub fn insert(&mut self, at: NodeId, node: Node) -> NodeId {
        let place = self.places.get(at.0).copied().unwrap_or(self.nodes.len());
        self.came.push(name_of(self.model, &node));
        self.changed = true;
        self.add(place, node)
    }

    /// Removes a node.
    pub fn remove(&mut self, id: NodeId) {
        if let Some(node) = self.take(id) {
            self.gone.push(name_of(self.model, &node));
            self.changed = true;
        }
    }

    /// Returns the names of the ops that were removed and added since the last call; `None` if the nodes are unchanged.
    pub(super) fn taken(&mut self) -> Option<(Vec<String>, Vec<String>)> {
        let taken = (std::mem::take(&mut self.gone), std::mem::take(&mut self.came));
        std::mem::take(&mut self.changed).then_some(taken)
    }

    /// Lets all consumers of `from` read `to`. Returns false, and changes nothing, if `from` is an output, or equal to
    /// `to`.
    pub fn redirect(&mut self, Redirect { from, to }: Redirect) -> bool {
        if self.is_output(from) || from == to {
            return false;
        }
        // Each operand is changed alone, since a node may have a hundred thousand.
        let Readers { nodes, operands } =
            self.readers.get_mut(from.0).map(std::mem::take).unwrap_or_default();
        for (id, operand) in nodes.into_iter().zip(operands).rev() {
            let node = self.nodes.get_mut(id.0).and_then(Option::as_mut);
            let Some(input) = node.and_then(|node| node.inputs_mut().get_mut(operand)) else { continue };
            *input = Some(to);
            self.changed = true;
            let place = self.add_reader(to, id, operand);
            if let Some(read) = self.reads.get_mut(id.0).and_then(|reads| reads.get_mut(operand)) {
                *read = place;
            }
        }
        true
    }

    /// Returns the name of a tensor with a suffix, for a related new tensor.
    pub fn name(&self, id: TensorId, suffix: &str) -> Arc<str> {
        format!("{}/{suffix}", self.tensor(id).map_or("", |t| t.name())).into()
    }

    fn add(&mut self, place: usize, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len());
        self.nodes.push(None);
        self.places.push(place);
        self.reads.push(Vec::new());
        self.put(id, node);
        id
    }

    fn put(&mut self, id: NodeId, node: Node) {
        let mut places = Vec::with_capacity(node.inputs().len());
        for (operand, input) in node.inputs().iter().enumerate() {
            places.push(input.map_or(usize::MAX, |input| self.add_reader(input, id, operand)));
        }
        if let Some(reads) = self.reads.get_mut(id.0) {
            *reads = places;
        }
        for output in node.outputs() {
            if let Some(producer) = self.producers.get_mut(output.0) {
                *producer = Some(id);
            }
        }
        if let Some(slot) = self.nodes.get_mut(id.0) {
            *slot = Some(node);
        }
    }

    fn take(&mut self, id: NodeId) -> Option<Node> {
        let node = self.nodes.get_mut(id.0)?.take()?;
        let reads = self.reads.get_mut(id.0).map(std::mem::take).unwrap_or_default();
        let places = node.inputs().iter().zip(reads);
        let mut places: Vec<_> = places.filter_map(|(input, place)| Some(((*input)?, place))).collect();
        // The last ones first, so that removing one does not move another one of this node.
        places.sort_unstable_by_key(|(_, place)| Reverse(*place));
        for (input, place) in places {
            self.remove_reader(input, place);
        }
        for output in node.outputs() {
            if let Some(producer) = self.producers.get_mut(output.0).filter(|p| **p == Some(id)) {
                *producer = None;
            }
        }
        Some(node)
    }

    /// Adds a reader of a tensor, and returns its place.
    fn add_reader(&mut self, id: TensorId, node: NodeId, operand: usize) -> usize {
        let Some(readers) = self.readers.get_mut(id.0) else { return usize::MAX };
        readers.nodes.push(node);
        readers.operands.push(operand);
        readers.nodes.len() - 1
    }

    /// Removes a reader of a tensor; the last one takes its place.
    fn remove_reader(&mut self, id: TensorId, place: usize) {
        let Some(readers) = self.readers.get_mut(id.0).filter(|readers| place < readers.nodes.len()) else {
            return;
        };
        readers.nodes.swap_remove(place);
        readers.operands.swap_remove(place);
        if let (Some(moved), Some(operand)) = (readers.nodes.get(place), readers.operands.get(place))
            && let Some(read) = self.reads.get_mut(moved.0).and_then(|reads| reads.get_mut(*operand))
        {
            *read = place;
        }
    }

    /// Returns the subgraph, with its nodes in an order of execution: that of their positions, except that a node comes
    /// after the producers of its inputs.
    pub(super) fn finish(self) -> Subgraph {
        let Rewriter { mut subgraph, nodes, places, .. } = self;
        let mut order: Vec<usize> = (0..nodes.len()).filter(|&i| nodes[i].is_some()).collect();
        // Of the nodes at one position, the last added one comes first: inserted nodes are computed before.
        order.sort_by_key(|&i| (places[i], std::cmp::Reverse(i)));
        let mut producer = vec![None; subgraph.tensors().len()];
        for &i in &order {
            for output in nodes[i].iter().flat_map(|n| n.outputs()) {
                if let Some(slot) = producer.get_mut(output.0) {
                    *slot = Some(i);
                }
            }
        }
        // A depth-first search without recursion, since a chain may be as long as the model.
        let mut done = vec![false; nodes.len()];
        let mut sorted = Vec::with_capacity(order.len());
        for &start in &order {
            let mut stack = vec![(start, false)];
            while let Some((i, ready)) = stack.pop() {
                if done[i] {
                    continue;
                }
                if ready {
                    done[i] = true;
                    sorted.push(i);
                    continue;
                }
                stack.push((i, true));
                let inputs = nodes[i].iter().flat_map(|n| n.inputs().iter().flatten());
                let needed = inputs.filter_map(|t| producer.get(t.0).copied().flatten());
                stack.extend(needed.filter(|&p| !done[p] && p != i).map(|p| (p, false)));
                if stack.len() > nodes.len() * 64 {
                    // A cycle, which verification reports.
                    break;
                }
            }
        }
        let mut nodes = nodes;
        *subgraph.nodes_mut() =
            sorted.into_iter().filter_map(|i| nodes.get_mut(i).and_then(Option::take)).collect();
        subgraph
    }
}
