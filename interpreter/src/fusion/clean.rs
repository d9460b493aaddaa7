//! Removing what nobody needs: nodes, tensors, subgraphs.

use std::sync::Arc;

use delegraph_core::graph::{Model, Node, Subgraph, TensorId};
use delegraph_core::{BuiltinOp, Op, Quantization};

use super::inline::{CONTROL, moved};

/// Subgraphs of this name belong to no caller.
const VALIDATION: &str = "VALIDATION:";

/// `subgraphs`, which take the place of those of `before`, without what nobody needs, and a model to put them in:
/// its signatures name tensors and subgraphs by their new numbers. Subgraphs that nothing reached before are kept.
pub(super) fn clean(before: &Model, mut subgraphs: Vec<Subgraph>) -> (Model, Vec<Subgraph>) {
    let mut base = before.clone();
    base.metadata.retain(|(name, _)| name != CONTROL);
    for subgraph in &mut subgraphs {
        remove_dead_nodes(subgraph);
    }
    let (reached, was) = (reachable(before, &subgraphs), reachable(before, &before.subgraphs));
    let kept: Vec<bool> =
        (0..subgraphs.len()).map(|i| reached[i] || was.get(i).is_some_and(|was| !was)).collect();
    let number = |index: usize| kept.iter().take(index).filter(|kept| **kept).count();
    let mut result = Vec::new();
    for (i, mut subgraph) in subgraphs.into_iter().enumerate().filter(|(i, _)| kept[*i]) {
        subgraph.nodes.iter_mut().for_each(|node| node.renumber_callees(number));
        let map = remove_dead_tensors(&mut subgraph, |id| {
            let signatures = before.signatures.iter().filter(|s| s.subgraph == i);
            signatures.flat_map(|s| s.inputs.iter().chain(&s.outputs)).any(|(_, named)| *named == id)
        });
        for signature in base.signatures.iter_mut().filter(|s| s.subgraph == i) {
            for (_, id) in signature.inputs.iter_mut().chain(&mut signature.outputs) {
                *id = map.get(id.0).copied().flatten().unwrap_or(*id);
            }
        }
        result.push(subgraph);
    }
    for signature in &mut base.signatures {
        signature.subgraph = number(signature.subgraph);
    }
    (base, result)
}

/// Whether running the node does more than compute its outputs, as far as the op says.
pub(super) fn has_side_effects(subgraph: &Subgraph, node: &Node) -> bool {
    use BuiltinOp as B;
    let variable = |id: &TensorId| subgraph.tensors.get(id.0).is_some_and(|t| t.is_variable);
    if node.inputs.iter().flatten().chain(&node.outputs).any(variable) {
        return true;
    }
    match node.op {
        Op::Custom(_) => true,
        Op::Builtin(op) => matches!(
            op,
            B::CALL_ONCE
                | B::IF
                | B::WHILE
                | B::CALL
                | B::STABLEHLO_WHILE
                | B::STABLEHLO_CASE
                | B::STABLEHLO_CUSTOM_CALL
                | B::STABLEHLO_RNG_BIT_GENERATOR
                | B::ASSIGN_VARIABLE
                | B::HASHTABLE_IMPORT
                | B::RANDOM_STANDARD_NORMAL
                | B::RANDOM_UNIFORM
                | B::MULTINOMIAL
                | B::DELEGATE
        ),
    }
}

fn remove_dead_nodes(subgraph: &mut Subgraph) {
    let mut used = vec![false; subgraph.tensors.len()];
    for id in &subgraph.outputs {
        if let Some(slot) = used.get_mut(id.0) {
            *slot = true;
        }
    }
    let nodes = std::mem::take(&mut subgraph.nodes);
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes.into_iter().rev() {
        let needed = node.outputs.iter().any(|id| used.get(id.0) == Some(&true));
        if needed || node.outputs.is_empty() || has_side_effects(subgraph, &node) {
            for id in node.inputs.iter().flatten() {
                if let Some(slot) = used.get_mut(id.0) {
                    *slot = true;
                }
            }
            kept.push(node);
        }
    }
    kept.reverse();
    subgraph.nodes = kept;
}

/// Per subgraph, whether an entry point reaches it.
fn reachable(model: &Model, subgraphs: &[Subgraph]) -> Vec<bool> {
    let mut reached = vec![false; subgraphs.len()];
    let named = subgraphs.iter().enumerate().filter(|(_, g)| g.name.starts_with(VALIDATION)).map(|(i, _)| i);
    let mut open: Vec<usize> =
        std::iter::once(0).chain(model.signatures.iter().map(|s| s.subgraph)).chain(named).collect();
    while let Some(i) = open.pop() {
        if let Some(slot) = reached.get_mut(i).filter(|slot| !**slot) {
            *slot = true;
            open.extend(subgraphs.get(i).into_iter().flat_map(|g| &g.nodes).flat_map(Node::callees));
        }
    }
    reached
}

/// Returns the number that each tensor has now.
fn remove_dead_tensors(subgraph: &mut Subgraph, named: impl Fn(TensorId) -> bool) -> Vec<Option<TensorId>> {
    let mut used = vec![false; subgraph.tensors.len()];
    let nodes = subgraph.nodes.iter().flat_map(|n| {
        n.inputs.iter().flatten().chain(&n.outputs).chain(n.intermediates.iter().flatten()).copied()
    });
    for id in nodes.chain(subgraph.inputs.iter().chain(&subgraph.outputs).copied()) {
        if let Some(slot) = used.get_mut(id.0) {
            *slot = true;
        }
    }
    for i in 0..used.len() {
        used[i] |= named(TensorId(i));
        let Some(quantization) =
            subgraph.tensors.get(i).filter(|_| used[i]).and_then(|t| t.quantization.clone())
        else {
            continue;
        };
        if let Quantization::Blockwise { scales, zero_points, .. }
        | Quantization::MultiAxis { scales, zero_points, .. } = &*quantization
        {
            for id in std::iter::once(scales).chain(zero_points) {
                if let Some(slot) = used.get_mut(*id) {
                    *slot = true;
                }
            }
        }
    }
    let mut map = Vec::with_capacity(used.len());
    let mut next = 0;
    for &used in &used {
        map.push(used.then_some(TensorId(next)));
        next += usize::from(used);
    }
    let to = |id: &TensorId| map.get(id.0).copied().flatten().unwrap_or(*id);
    let tensors = std::mem::take(&mut subgraph.tensors).into_iter().zip(&used).filter(|(_, used)| **used);
    subgraph.tensors = tensors
        .map(|(mut tensor, _)| {
            if let Some(moved) = tensor.quantization.as_deref().and_then(|q| moved(q, &to)) {
                tensor.quantization = Some(Arc::new(moved));
            }
            tensor
        })
        .collect();
    for node in &mut subgraph.nodes {
        node.inputs.iter_mut().flatten().for_each(|id| *id = to(id));
        node.outputs.iter_mut().for_each(|id| *id = to(id));
        node.intermediates.iter_mut().flatten().for_each(|id| *id = to(id));
    }
    subgraph.inputs.iter_mut().chain(&mut subgraph.outputs).for_each(|id| *id = to(id));
    map
}
