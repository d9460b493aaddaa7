//! Uses of ops: their cost, and the lowest version that expresses them.

use super::inferred::{InferredShapes, inferred_shapes};
use super::{Model, Node, Subgraph, Tensor, TensorId};
use crate::error::{Error, Result, UnderstatedVersion};
use crate::ops::{self, Cost, OpSignature, Operand};
use crate::types::Shape;

impl<'a> OpSignature<'a> {
    /// Returns the signature of a node of `subgraph`, with the types and shapes that the file declares.
    ///
    /// # Panics
    /// As [`cost`].
    pub fn of(subgraph: &'a Subgraph, node: &'a Node) -> Self {
        Self::with_shapes(subgraph, node, |_, tensor| tensor.shape())
    }

    /// Returns the signature of a node of `subgraph`, with the types that the file declares and the inferred shapes.
    pub(crate) fn inferred(subgraph: &'a Subgraph, node: &'a Node, shapes: &'a InferredShapes) -> Self {
        Self::with_shapes(subgraph, node, |id, tensor| shapes.of(id, tensor))
    }

    fn with_shapes(
        subgraph: &'a Subgraph,
        node: &'a Node,
        shape: impl Fn(TensorId, &'a Tensor) -> &'a Shape,
    ) -> Self {
        let operand = |id: &TensorId| {
            let tensor = subgraph.tensor(*id);
            Operand {
                ty: tensor.ty(),
                shape: shape(*id, tensor),
                quantization: tensor.quantization(),
                constant: tensor.is_constant(),
                sparse: tensor.sparsity().is_some(),
            }
        };
        OpSignature {
            params: node.params(),
            inputs: node.inputs().iter().map(|id| id.as_ref().map(operand)).collect(),
            outputs: node.outputs().iter().map(operand).collect(),
        }
    }
}

/// Returns the cost of `node` with the shapes that its file declares; for custom ops and ops without a definition, only
/// the bytes are counted.
///
/// # Panics
/// If `node` is not a node of `subgraph`, and an index of its tensors is out of range there.
pub fn cost(subgraph: &Subgraph, node: &Node) -> Cost {
    let signature = OpSignature::of(subgraph, node);
    let definition = node.op().builtin().and_then(ops::definition);
    Cost { multiply_adds: definition.map_or(0, |d| (d.multiply_adds)(&signature)), bytes: signature.bytes() }
}

/// Returns the lowest version of its op that expresses `node` with the shapes that its file declares; custom ops and
/// ops without a definition keep theirs.
///
/// # Panics
/// As [`cost`].
pub fn min_version(subgraph: &Subgraph, node: &Node) -> u32 {
    min_version_of(node, || OpSignature::of(subgraph, node))
}

/// Returns the lowest version of its op that expresses `node` with the inferred shapes.
pub(crate) fn inferred_min_version(subgraph: &Subgraph, node: &Node, shapes: &InferredShapes) -> u32 {
    min_version_of(node, || OpSignature::inferred(subgraph, node, shapes))
}

fn min_version_of<'a>(node: &Node, signature: impl FnOnce() -> OpSignature<'a>) -> u32 {
    match node.op().builtin().and_then(ops::definition) {
        Some(definition) => (definition.min_version)(&signature()),
        None => node.version(),
    }
}

/// Returns the lowest versions for all nodes, in the order of `model`'s subgraphs and nodes. Shapes are those that the
/// declared shapes of the inputs and the file's constants determine; all others are as declared.
pub fn min_versions(model: &Model) -> Vec<Vec<u32>> {
    let subgraphs = model.subgraphs().iter().zip(inferred_shapes(model));
    subgraphs
        .map(|(g, shapes)| g.nodes().iter().map(|n| inferred_min_version(g, n, &shapes)).collect())
        .collect()
}

/// Returns the uses of ops whose version is too low for their features, in the order of their first node. The shapes
/// are those of [`min_versions`].
pub fn understated_versions(model: &Model) -> Vec<UnderstatedVersion> {
    let mut found: Vec<UnderstatedVersion> = Vec::new();
    for (index, (subgraph, shapes)) in model.subgraphs().iter().zip(inferred_shapes(model)).enumerate() {
        for (id, node) in subgraph.node_ids().zip(subgraph.nodes()) {
            let (version, needed) = (node.version(), inferred_min_version(subgraph, node, &shapes));
            if needed <= version {
                continue;
            }
            let same = |u: &&mut UnderstatedVersion| {
                u.op == *node.op() && (u.version, u.needed) == (version, needed)
            };
            match found.iter_mut().find(same) {
                Some(known) => known.nodes.push((index, id)),
                None => {
                    let (op, nodes) = (node.op().clone(), vec![(index, id)]);
                    found.push(UnderstatedVersion { op, version, needed, nodes });
                }
            }
        }
    }
    found
}

/// Checks that every node's version has the features that the node uses.
///
/// # Errors
/// [`Error::UnderstatedVersions`] with all of [`understated_versions`].
pub fn check_versions(model: &Model) -> Result<()> {
    let uses = understated_versions(model);
    if uses.is_empty() {
        return Ok(());
    }
    Err(Error::UnderstatedVersions { path: model.path().map(Into::into), uses })
}
