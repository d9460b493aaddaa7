//! Removing unused nodes, tensors and subgraphs.

use delegraph_core::graph::{Model, ModelDraft, Node, Subgraph, TensorId};
use delegraph_core::{BuiltinOp, Op, Quantization};

use crate::runtime::{CONTROL, moved};

/// Prefix of subgraphs that have no caller by design.
const VALIDATION: &str = "VALIDATION:";

/// Returns `before` with `subgraphs` instead of its own, without unused nodes, tensors and subgraphs, and without the
/// metadata that refers to nodes by number. Its signatures refer to the new numbers of tensors and subgraphs. Subgraphs
/// that were unreachable before are kept.
pub(super) fn clean(before: &Model, mut subgraphs: Vec<Subgraph>) -> ModelDraft {
    let mut base = before.draft_with(Vec::new());
    base.metadata.retain(|(name, _)| name != CONTROL);
    for subgraph in &mut subgraphs {
        remove_dead_nodes(subgraph);
    }
    let (reached, was) = (reachable(before, &subgraphs), reachable(before, before.subgraphs()));
    let kept: Vec<bool> =
        (0..subgraphs.len()).map(|i| reached[i] || was.get(i).is_some_and(|was| !was)).collect();
    let mut count = 0;
    let mut numbers = Vec::with_capacity(kept.len());
    for kept in &kept {
        numbers.push(count);
        count += usize::from(*kept);
    }
    let number = |index: usize| numbers.get(index).copied().unwrap_or(count);
    // The tensors of each subgraph to which signatures refer.
    let mut named: Vec<Vec<TensorId>> = vec![Vec::new(); subgraphs.len()];
    for signature in before.signatures() {
        if let Some(named) = named.get_mut(signature.subgraph()) {
            named.extend(signature.inputs().iter().chain(signature.outputs()).map(|(_, id)| *id));
        }
    }
    // Per subgraph, the new number of each tensor.
    let mut maps: Vec<Vec<Option<TensorId>>> = vec![Vec::new(); subgraphs.len()];
    let mut result = Vec::new();
    for (i, mut subgraph) in subgraphs.into_iter().enumerate().filter(|(i, _)| kept[*i]) {
        subgraph.nodes_mut().iter_mut().for_each(|node| node.renumber_callees(number));
        let map = remove_dead_tensors(&mut subgraph, &named[i]);
        if !named[i].is_empty() {
            maps[i] = map;
        }
        result.push(subgraph);
    }
    for signature in &mut base.signatures {
        if let Some(map) = maps.get(signature.subgraph()) {
            let number = |(_, id): &mut (_, TensorId)| *id = map.get(id.0).copied().flatten().unwrap_or(*id);
            signature.inputs_mut().iter_mut().for_each(number);
            signature.outputs_mut().iter_mut().for_each(number);
        }
        signature.set_subgraph(number(signature.subgraph()));
    }
    base.subgraphs = result;
    base
}

/// Returns whether the op of a node may do more than compute the outputs.
pub(super) fn has_side_effects(subgraph: &Subgraph, node: &Node) -> bool {
    use BuiltinOp as B;
    let variable = |id: &TensorId| subgraph.tensors().get(id.0).is_some_and(|t| t.is_variable());
    if node.inputs().iter().flatten().chain(node.outputs()).any(variable) {
        return true;
    }
    match node.op() {
        Op::Custom(_) => true,
        Op::Builtin(op) => matches!(
            *op,
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
    let mut used = vec![false; subgraph.tensors().len()];
    for id in subgraph.outputs() {
        if let Some(slot) = used.get_mut(id.0) {
            *slot = true;
        }
    }
    let nodes = std::mem::take(subgraph.nodes_mut());
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes.into_iter().rev() {
        let needed = node.outputs().iter().any(|id| used.get(id.0) == Some(&true));
        if needed || node.outputs().is_empty() || has_side_effects(subgraph, &node) {
            for id in node.inputs().iter().flatten() {
                if let Some(slot) = used.get_mut(id.0) {
                    *slot = true;
                }
            }
            kept.push(node);
        }
    }
    kept.reverse();
    *subgraph.nodes_mut() = kept;
}

/// Returns, per subgraph, whether it is reachable from an entry point.
fn reachable(model: &Model, subgraphs: &[Subgraph]) -> Vec<bool> {
    let mut reached = vec![false; subgraphs.len()];
    let named =
        subgraphs.iter().enumerate().filter(|(_, g)| g.name().starts_with(VALIDATION)).map(|(i, _)| i);
    let mut open: Vec<usize> =
        std::iter::once(0).chain(model.signatures().iter().map(|s| s.subgraph())).chain(named).collect();
    while let Some(i) = open.pop() {
        if let Some(slot) = reached.get_mut(i).filter(|slot| !**slot) {
            *slot = true;
            open.extend(subgraphs.get(i).into_iter().flat_map(|g| g.nodes()).flat_map(Node::callees));
        }
    }
    reached
}

/// Removes unused tensors, and returns the new number of each tensor; `None` for removed ones. `named` are the tensors
/// to which signatures refer.
fn remove_dead_tensors(subgraph: &mut Subgraph, named: &[TensorId]) -> Vec<Option<TensorId>> {
    let mut used = vec![false; subgraph.tensors().len()];
    let nodes = subgraph.nodes().iter().flat_map(|n| {
        n.inputs().iter().flatten().chain(n.outputs()).chain(n.intermediates().iter().flatten()).copied()
    });
    for id in nodes.chain(subgraph.inputs().iter().chain(subgraph.outputs()).chain(named).copied()) {
        if let Some(slot) = used.get_mut(id.0) {
            *slot = true;
        }
    }
    for i in 0..used.len() {
        let Some(quantization) =
            subgraph.tensors().get(i).filter(|_| used[i]).and_then(|t| t.shared_quantization())
        else {
            continue;
        };
        if let Quantization::Blockwise { scales, zero_points, .. }
        | Quantization::MultiAxis { scales, zero_points, .. } = &*quantization
        {
            for id in std::iter::once(scales).chain(zero_points) {
                if let Some(slot) = used.get_mut(id.0) {
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
    let tensors = std::mem::take(subgraph.tensors_mut()).into_iter().zip(&used).filter(|(_, used)| **used);
    *subgraph.tensors_mut() = tensors
        .map(|(mut tensor, _)| {
            if let Some(moved) = tensor.quantization().and_then(|q| moved(q, &to)) {
                tensor.set_quantization(moved);
            }
            tensor
        })
        .collect();
    for node in subgraph.nodes_mut() {
        node.inputs_mut().iter_mut().flatten().for_each(|id| *id = to(id));
        node.outputs_mut().iter_mut().for_each(|id| *id = to(id));
        node.intermediates_mut().iter_mut().flatten().for_each(|id| *id = to(id));
    }
    subgraph.inputs_mut().iter_mut().for_each(|id| *id = to(id));
    subgraph.outputs_mut().iter_mut().for_each(|id| *id = to(id));
    map
}
