//! Shapes that are known before anything runs.

use std::collections::HashMap;

use super::verify::MAX_RANK;
use super::{Model, Node, Subgraph, Tensor, TensorId};
use crate::ops::{self, Declared, InferContext, InferTensor, InferredShape};
use crate::types::Shape;

/// The constants that determine shapes are short. Longer ones are withheld from inference, which bounds its time.
const MAX_OPERAND_BYTES: usize = 4096;

/// The inferred shapes of a subgraph's tensors, where they differ from those that the file declares.
#[derive(Debug, Default)]
pub(crate) struct InferredShapes(HashMap<TensorId, Shape>);

impl InferredShapes {
    /// Returns the inferred shape of `tensor`, which has the index `id`; the declared one if inference found none.
    pub(super) fn of<'a>(&'a self, id: TensorId, tensor: &'a Tensor) -> &'a Shape {
        self.0.get(&id).unwrap_or(tensor.shape())
    }
}

/// Infers the shapes of every subgraph from the declared shapes of its inputs and from the file's constants. No node
/// runs: shapes that depend on computed values, on kernels or on called subgraphs remain as declared, as do those of
/// nodes that inference rejects.
pub(crate) fn inferred_shapes(model: &Model) -> Vec<InferredShapes> {
    let mut is_called = vec![false; model.subgraphs().len()];
    for index in model.subgraphs().iter().flat_map(Subgraph::nodes).flat_map(Node::callees) {
        if let Some(called) = is_called.get_mut(index) {
            *called = true;
        }
    }
    model.subgraphs().iter().zip(is_called).map(|(g, called)| infer(model, g, called)).collect()
}

fn infer(model: &Model, subgraph: &Subgraph, is_called: bool) -> InferredShapes {
    let mut shapes = InferredShapes::default();
    let is_fixed = |t: &Tensor| t.is_constant() || t.has_external_data() || t.is_variable();
    let mut known: Vec<bool> = subgraph.tensors().iter().map(is_fixed).collect();
    for id in subgraph.inputs() {
        // An empty shape stands for an unknown one, which the caller determines.
        let unknown = is_called && subgraph.tensors().get(id.0).is_some_and(|t| t.shape().rank() == 0);
        if let Some(known) = known.get_mut(id.0) {
            *known |= !unknown;
        }
    }
    for node in subgraph.nodes() {
        if !node.inputs().iter().flatten().all(|id| known.get(id.0) == Some(&true)) {
            continue;
        }
        let Some(outputs) = infer_outputs(model, subgraph, node, &shapes) else { continue };
        for (id, shape) in node.outputs().iter().zip(outputs) {
            let (Some(tensor), Some(known)) = (subgraph.tensors().get(id.0), known.get_mut(id.0)) else {
                continue;
            };
            let Some(shape) = shape.filter(|shape| !tensor.is_variable() && is_possible(shape)) else {
                continue;
            };
            *known = true;
            if shape != *tensor.shape() {
                shapes.0.insert(*id, shape);
            }
        }
    }
    shapes
}

/// Returns the shapes of a node's outputs, `None` for those that are not known. `None` for all if the op has no
/// definition, or if its definition rejects the node.
fn infer_outputs(
    model: &Model,
    subgraph: &Subgraph,
    node: &Node,
    shapes: &InferredShapes,
) -> Option<Vec<Option<Shape>>> {
    let definition = node.op().builtin().and_then(ops::definition)?;
    let input = |id: TensorId| {
        let tensor = subgraph.tensors().get(id.0)?;
        let dense = model.constant(tensor).filter(|_| tensor.sparsity().is_none());
        let input = InferTensor::new(tensor.ty(), shapes.of(id, tensor))
            .with_quantization(tensor.quantization())
            .with_constant(dense.filter(|data| data.len() <= MAX_OPERAND_BYTES));
        Some(input)
    };
    let outputs = node.outputs().iter().filter_map(|id| subgraph.tensors().get(id.0));
    let outputs = outputs.map(|t| Declared::new(t.ty(), t.shape()).with_quantization(t.quantization()));
    let cx = InferContext::new(node.params(), node.version())
        .with_inputs(node.inputs().iter().map(|id| id.and_then(input)))
        .with_outputs(outputs);
    let inferred = (definition.infer)(&cx).ok().filter(|found| found.len() == node.outputs().len())?;
    let shape = |shape| match shape {
        InferredShape::Known(shape) => Some(shape),
        InferredShape::DataDependent | InferredShape::FromKernel => None,
    };
    Some(inferred.into_iter().map(|output| shape(output.shape)).collect())
}

/// Returns whether the bytes of a tensor of this shape and any type can be addressed, and a file may declare its rank.
fn is_possible(shape: &Shape) -> bool {
    const MAX_ELEMENT_BYTES: usize = 16;
    let elements = shape.checked_elements().filter(|_| shape.rank() <= MAX_RANK);
    elements.and_then(|n| n.checked_mul(MAX_ELEMENT_BYTES)).is_some()
}
