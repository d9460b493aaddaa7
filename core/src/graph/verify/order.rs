//! Checks over a whole subgraph: the node that writes each tensor, and the order of nodes.

use super::{Invalid, at_node, invalid, writes};
use crate::error::tensor_name;
use crate::graph::callees::callees;
use crate::graph::{Node, Subgraph, Tensor, TensorId};
use crate::ops::Params;
use crate::types::short_name;

/// Checks that each tensor has one source, that nodes read only tensors that exist at that point, and that the
/// subgraphs that nodes call exist. A tensor without elements that no node writes becomes an empty constant.
pub(super) fn check_nodes(subgraph: &mut Subgraph, subgraphs: usize) -> Result<(), Invalid> {
    let mut available: Vec<bool> =
        subgraph.tensors.iter().map(|t| t.is_constant() || t.external_data || t.is_variable).collect();
    for id in &subgraph.inputs {
        if let Some(slot) = available.get_mut(id.0) {
            *slot = true;
        }
    }
    // False for a variable that no node has written yet. A node of which all inputs are constants may initialize such a
    // variable, such as the DEQUANTIZE of a float16 state.
    let mut begun: Vec<bool> = subgraph.tensors.iter().map(|t| !t.is_variable).collect();
    for id in &subgraph.inputs {
        begun.get_mut(id.0).into_iter().for_each(|b| *b = true);
    }
    for (i, node) in subgraph.nodes.iter().enumerate() {
        check_node(node, &mut subgraph.tensors, (&mut available, &mut begun), subgraphs).map_err(|e| {
            at_node(i, &node.op, &writes(&subgraph.tensors, node.outputs.iter().map(|id| id.0)), e)
        })?;
    }
    for id in &subgraph.outputs {
        match (available.get(id.0), subgraph.tensors.get_mut(id.0)) {
            (Some(true), _) => {}
            (_, Some(tensor)) if tensor.shape.checked_elements() == Some(0) => tensor.data = Some(0..0),
            (_, tensor) => {
                let name = tensor.map(|t| tensor_name(&t.name, id.0)).unwrap_or_default();
                return invalid!("the graph's output tensor {} ({name}) is never written", id.0);
            }
        }
    }
    Ok(())
}

/// Checks a node after all earlier ones: `available` is true for tensors that it can read, `begun` false for variables that
/// no node has written yet.
fn check_node(
    node: &Node,
    tensors: &mut [Tensor],
    (available, begun): (&mut [bool], &mut [bool]),
    subgraphs: usize,
) -> Result<(), Invalid> {
    let constant = |id: &TensorId| tensors.get(id.0).is_some_and(Tensor::is_constant);
    let over_constants =
        node.op.builtin().is_some() && !node.inputs.is_empty() && node.inputs.iter().flatten().all(constant);
    for id in node.inputs.iter().flatten() {
        match (available.get_mut(id.0), tensors.get_mut(id.0)) {
            (Some(true), Some(_)) => {}
            (Some(slot), Some(tensor)) if tensor.shape.checked_elements() == Some(0) => {
                *slot = true;
                tensor.data = Some(0..0);
            }
            _ => {
                return invalid!(
                    "it reads tensor {} ({}), which is not an input, constant or variable and which no earlier node writes",
                    id.0,
                    tensors.get(id.0).map(|t| tensor_name(&t.name, id.0)).unwrap_or_default()
                );
            }
        }
    }
    for id in &node.outputs {
        match available.get_mut(id.0) {
            Some(slot) if !*slot => *slot = true,
            Some(_) if over_constants && begun.get(id.0) == Some(&false) => {}
            _ => {
                return invalid!(
                    "it writes tensor {}, which is an input, a variable, a constant or written by an earlier node",
                    id.0
                );
            }
        }
        begun.get_mut(id.0).into_iter().for_each(|b| *b = true);
    }
    // The format's default, 0, stands for version 1.
    if let Params::StableHloComposite(composite) = &node.params
        && composite.version < 0
    {
        let (name, version) = (short_name(&composite.name), composite.version);
        return invalid!("composite \"{name}\" has version {version}; versions start at 1");
    }
    for callee in callees(&node.params) {
        if usize::try_from(callee).ok().is_none_or(|c| c >= subgraphs) {
            return invalid!("it calls subgraph {callee}, which does not exist; the file has {subgraphs}");
        }
    }
    Ok(())
}

/// Rejects recursion: a subgraph must not call itself, directly or through others.
pub(super) fn check_calls(subgraphs: &[Subgraph]) -> Result<(), Invalid> {
    // Per subgraph: the subgraphs that call it, and the number of its own calls that are not removed yet.
    let mut callers: Vec<Vec<usize>> = vec![Vec::new(); subgraphs.len()];
    let mut calls = vec![0usize; subgraphs.len()];
    for (i, subgraph) in subgraphs.iter().enumerate() {
        for callee in subgraph.nodes.iter().flat_map(|n| callees(&n.params)) {
            let callers = usize::try_from(callee).ok().and_then(|callee| callers.get_mut(callee));
            if let (Some(callers), Some(calls)) = (callers, calls.get_mut(i)) {
                callers.push(i);
                *calls = calls.saturating_add(1);
            }
        }
    }
    // Removes subgraphs without calls, and the calls of them; the remaining subgraphs contain a cycle.
    let mut ready: Vec<usize> = calls.iter().enumerate().filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
    while let Some(done) = ready.pop() {
        for caller in callers.get_mut(done).map(std::mem::take).unwrap_or_default() {
            if let Some(calls) = calls.get_mut(caller) {
                *calls = calls.saturating_sub(1);
                if *calls == 0 {
                    ready.push(caller);
                }
            }
        }
    }
    match calls.iter().position(|&n| n > 0) {
        Some(i) => invalid!("subgraph {i} calls itself, directly or through others"),
        None => Ok(()),
    }
}
