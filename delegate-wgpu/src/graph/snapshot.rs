//! A copy of some nodes and tensors of a model, whose shapes and constants can be changed: for lowering nodes with data
//! that differs from the interpreter's graph.

use delegraph_core::graph::Tensor;
use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{Model, NodeId, Result, Shape, TensorId};
use delegraph_delegate_api::{GraphView, NodeState, TensorInfo};

use super::symbolic_dims::infer;

/// A copy of a graph, with the data of the added tensors.
pub(crate) struct Snapshot {
    // Declared, and therefore dropped, before the model: constants point into its bytes.
    pub tensors: Vec<RuntimeTensor>,
    known: Vec<bool>,
    states: Vec<NodeState>,
    model: Model,
    index: usize,
}

impl Snapshot {
    /// Copies the structure of a graph.
    pub(crate) fn new(view: &GraphView<'_>) -> Self {
        Snapshot {
            tensors: view.subgraph().tensors().iter().map(RuntimeTensor::new).collect(),
            known: vec![true; view.tensor_count()],
            states: view.nodes().map(|node| node.state()).collect(),
            model: view.model().clone(),
            index: view.index(),
        }
    }

    /// Copies the type, the shape and constant data of a tensor. A constant of the file is not copied but referred to.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](delegraph_core::Error::OutOfMemory) if a copy cannot be allocated.
    pub(crate) fn add(&mut self, info: TensorInfo<'_>) -> Result<()> {
        let tensor = &mut self.tensors[info.id().0];
        tensor.ty = info.ty();
        tensor.shape = info.tensor().shape.clone();
        tensor.clear_data();
        let Some(bytes) = info.constant() else { return Ok(()) };
        let file = self.model.constant(&self.model.subgraphs()[self.index].tensors()[info.id().0]);
        if file.is_some_and(|file| std::ptr::eq(file, bytes)) {
            let data = bytes.as_ptr().cast_mut();
            // SAFETY: the bytes are the model's, which are immutable and live as long as `self.model`; `self.tensors`
            // is declared before it and dropped first. Constants are never written through this pointer.
            unsafe { tensor.set_data(Placement::Constant, data, bytes.len()) };
            return Ok(());
        }
        tensor.set_constant_copy(bytes)
    }

    /// Returns a tensor as the file describes it.
    pub(crate) fn file(&self, id: TensorId) -> &Tensor {
        self.model.subgraphs()[self.index].tensor(id)
    }

    /// Returns the graph.
    pub(crate) fn view(&self) -> GraphView<'_> {
        GraphView::new(&self.model, self.index, &self.tensors, &self.known, &self.states)
    }

    /// Sets the shapes of a node's outputs to those inferred from its inputs; `None` if the op does not accept the
    /// inputs, or its shapes cannot be inferred.
    pub(crate) fn infer(&mut self, id: NodeId) -> Option<()> {
        let node = self.view().node(id);
        let shape = |i| node.input(i).map(|tensor| tensor.tensor().shape.clone());
        let shapes: Vec<Option<Shape>> = (0..node.input_count()).map(shape).collect();
        let outputs: Vec<_> = node.outputs().map(|tensor| tensor.id()).collect();
        let inferred = infer(node, &shapes)?;
        for (id, shape) in outputs.into_iter().zip(inferred) {
            let tensor = &mut self.tensors[id.0];
            tensor.shape = shape;
        }
        Some(())
    }
}
