//! Folding: nodes over constants are computed once, instead of whenever the model is prepared.

use std::collections::HashMap;

use delegraph_core::graph::{Model, NodeId, TensorId};
use delegraph_core::{BuiltinOp, Op, TensorType};

use super::known::Known;
use super::report::Change;
use super::rewriter::{Redirect, Rewriter};

/// Results up to this size are folded even if their inputs are smaller.
const SMALL: usize = 1 << 12;

/// Replaces outputs of nodes over constants by constants. A node is not folded if that enlarges the file (float16
/// weights behind DEQUANTIZE, sparse weights behind DENSIFY, FILL): such nodes are computed once in any case, when the
/// model is prepared. A node is not folded either if its result depends on the shape of an input, which may change.
pub(super) fn fold(model: &Model, known: &Known, index: usize, graph: &mut Rewriter<'_>) -> Vec<Change> {
    let Some(subgraph) = model.subgraphs().get(index) else { return Vec::new() };
    let mut constant: Vec<bool> = subgraph.tensors().iter().map(|t| t.is_constant()).collect();
    let mut changes = Vec::new();
    let folded = known.folded.iter().filter(|(s, ..)| *s == index);
    let folded: HashMap<NodeId, &Vec<Vec<u8>>> = folded.map(|(_, id, values)| (*id, values)).collect();
    for (id, node) in subgraph.node_ids().zip(subgraph.nodes()) {
        let Some(&values) = folded.get(&id) else { continue };
        // Folded values may also depend on the shape of an input, through SHAPE for example. Such nodes stay: every
        // input must be in the file, or computed from the file alone.
        if !node.inputs().iter().flatten().all(|t| constant.get(t.0) == Some(&true)) {
            continue;
        }
        node.outputs().iter().for_each(|t| constant[t.0] = true);
        let bytes: usize = values.iter().map(Vec::len).sum();
        let private = |t: &&TensorId| graph.readers(**t).len() == 1 && !graph.is_output(**t);
        // Constants that only this node reads are removed with it.
        let inputs = graph.node(id).into_iter().flat_map(|n| n.inputs().iter().flatten()).filter(private);
        let replaced: usize = inputs.filter_map(|t| graph.constant(*t)).map(<[u8]>::len).sum();
        let expands = matches!(node.op(), Op::Builtin(BuiltinOp::DEQUANTIZE | BuiltinOp::DENSIFY));
        let handles = [TensorType::String, TensorType::Resource, TensorType::Variant];
        let handles = node.outputs().iter().any(|t| graph.ty(*t).is_none_or(|ty| handles.contains(&ty)));
        let read = node.outputs().iter().any(|t| !graph.readers(*t).is_empty());
        if expands || handles || !read || (bytes > SMALL && bytes > replaced) {
            continue;
        }
        if node.outputs().len() != values.len() || node.outputs().iter().any(|t| graph.is_output(*t)) {
            continue;
        }
        let name = node
            .outputs()
            .first()
            .and_then(|t| graph.tensor(*t))
            .map_or(String::new(), |t| t.name().to_string());
        for (output, bytes) in node.outputs().iter().zip(values) {
            let Some(mut tensor) = graph.tensor(*output).cloned() else { continue };
            if let Some(shape) = graph.shape(*output) {
                tensor.set_shape(shape.clone());
            }
            tensor.set_shape_signature(None);
            let folded = graph.new_constant_bytes(tensor, bytes);
            graph.redirect(Redirect { from: *output, to: folded });
        }
        graph.remove(id);
        let Some((from, to)) = graph.taken() else { continue };
        changes.push(Change { pass: "fold-constants".into(), subgraph: index, tensor: name, from, to });
    }
    changes
}
