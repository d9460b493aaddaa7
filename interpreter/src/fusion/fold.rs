//! Computing nodes over constants once, instead of whenever the model is prepared.

use delegraph_core::graph::{Model, NodeId, TensorId};
use delegraph_core::{BuiltinOp, Op, TensorType};

use super::known::Known;
use super::report::Change;
use super::rewriter::Rewriter;

/// A result may be this large even where its inputs are smaller.
const SMALL: usize = 1 << 12;

/// Turns outputs of nodes over constants into constants. Not where that makes the file larger (float16 weights behind
/// DEQUANTIZE, sparse ones behind DENSIFY, FILL): such nodes are computed once in any case, when the model is prepared.
/// Nor where the shape of an input decides, which may be another one then.
pub(super) fn fold(model: &Model, known: &Known, index: usize, graph: &mut Rewriter<'_>) -> Vec<Change> {
    let Some(subgraph) = model.subgraphs.get(index) else { return Vec::new() };
    let mut constant: Vec<bool> = subgraph.tensors.iter().map(|t| t.is_constant()).collect();
    let mut changes = Vec::new();
    let values = |id: NodeId| {
        let mut folded = known.folded.iter();
        folded.find(|(s, node, _)| (*s, *node) == (index, id)).map(|(.., values)| values)
    };
    for (id, node) in subgraph.node_ids().zip(&subgraph.nodes) {
        let Some(values) = values(id) else { continue };
        // RANGE without inputs and the like aside, everything it reads is in the file, or computed from that alone.
        if !node.inputs.iter().flatten().all(|t| constant.get(t.0) == Some(&true)) {
            continue;
        }
        node.outputs.iter().for_each(|t| constant[t.0] = true);
        let bytes: usize = values.iter().map(Vec::len).sum();
        let private = |t: &&TensorId| graph.readers(**t).len() == 1 && !graph.is_output(**t);
        // Of those that were computed just now, the values.
        let inputs = graph.node(id).into_iter().flat_map(|n| n.inputs.iter().flatten()).filter(private);
        let replaced: usize = inputs.filter_map(|t| graph.constant(*t)).map(<[u8]>::len).sum();
        let expands = matches!(node.op, Op::Builtin(BuiltinOp::DEQUANTIZE | BuiltinOp::DENSIFY));
        let handles = [TensorType::String, TensorType::Resource, TensorType::Variant];
        let handles = node.outputs.iter().any(|t| graph.ty(*t).is_none_or(|ty| handles.contains(&ty)));
        let read = node.outputs.iter().any(|t| !graph.readers(*t).is_empty());
        if expands || handles || !read || (bytes > SMALL && bytes > replaced) {
            continue;
        }
        if node.outputs.len() != values.len() || node.outputs.iter().any(|t| graph.is_output(*t)) {
            continue;
        }
        let name =
            node.outputs.first().and_then(|t| graph.tensor(*t)).map_or(String::new(), |t| t.name.to_string());
        for (output, bytes) in node.outputs.iter().zip(values) {
            let Some(mut tensor) = graph.tensor(*output).cloned() else { continue };
            if let Some(shape) = graph.shape(*output) {
                tensor.shape = shape.clone();
            }
            tensor.shape_signature = None;
            let folded = graph.new_constant_bytes(tensor, bytes);
            graph.redirect(*output, folded);
        }
        graph.remove(id);
        let (from, to) = graph.taken();
        changes.push(Change { pass: "fold-constants".into(), subgraph: index, tensor: name, from, to });
    }
    changes
}
