//! Replaces variables that never change by constants.
//!
//! A resource variable (`VAR_HANDLE`, by container and name) is constant if only an initialization (`CALL_ONCE`)
//! assigns it, once and with a constant.

use std::collections::{HashMap, HashSet};

use delegraph_core::graph::{Model, NodeId, Subgraph, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::{BuiltinOp, Op};

/// A resource variable.
type Name = (String, String);

/// The uses of a resource variable.
#[derive(Default)]
struct Uses {
    /// Subgraph and node of each assignment.
    assigned: Vec<(usize, NodeId)>,
    /// Whether an op other than an assignment may change the variable.
    escapes: bool,
}

/// Returns the subgraphs with constants instead of reads of variables that never change, and the number of replaced
/// reads; `None` if there are none.
pub(super) fn freeze(model: &Model) -> Option<(Vec<Subgraph>, usize)> {
    let uses = analyze(model);
    // The subgraphs that only an initialization calls are those of `initializers` that are not in `others`.
    let mut others: HashSet<usize> = model.signatures().iter().map(|s| s.subgraph()).chain([0]).collect();
    let mut initializers: HashSet<usize> = HashSet::new();
    for node in model.subgraphs().iter().flat_map(|g| g.nodes()) {
        let once = *node.op() == Op::Builtin(BuiltinOp::CALL_ONCE);
        let called = if once { &mut initializers } else { &mut others };
        called.extend(node.callees());
    }
    // The constant value of each variable: subgraph and tensor.
    let mut frozen: HashMap<&Name, (usize, TensorId)> = HashMap::new();
    for (name, uses) in &uses {
        let ([(s, id)], false) = (uses.assigned.as_slice(), uses.escapes) else { continue };
        let Some(subgraph) = model.subgraphs().get(*s) else { continue };
        let value = subgraph.nodes().get(id.0).and_then(|n| n.input(1));
        let Some(value) = value.filter(|v| subgraph.tensors().get(v.0).is_some_and(|t| t.is_constant()))
        else {
            continue;
        };
        if initializers.contains(s) && !others.contains(s) {
            frozen.insert(name, (*s, value));
        }
    }
    let mut subgraphs = model.subgraphs().to_vec();
    let mut reads = 0;
    for (index, subgraph) in subgraphs.iter_mut().enumerate() {
        let handles = handles(&model.subgraphs()[index]);
        let outputs: HashSet<TensorId> = subgraph.outputs().iter().copied().collect();
        let mut same: HashMap<TensorId, TensorId> = HashMap::new();
        let mut kept = Vec::new();
        for node in std::mem::take(subgraph.nodes_mut()) {
            let name = node.input(0).and_then(|id| handles.get(&id));
            let constant = name.and_then(|name| frozen.get(name));
            match (node.op(), constant) {
                (Op::Builtin(BuiltinOp::READ_VARIABLE), Some((s, value))) => {
                    let output = node.outputs().first().copied();
                    let tensor = model.subgraphs().get(*s).and_then(|g| g.tensors().get(value.0)).cloned();
                    match (output, tensor) {
                        (Some(output), Some(tensor)) if !outputs.contains(&output) => {
                            subgraph.tensors_mut().push(tensor);
                            same.insert(output, TensorId(subgraph.tensors().len() - 1));
                            reads += 1;
                        }
                        _ => kept.push(node),
                    }
                }
                _ => kept.push(node),
            }
        }
        for node in &mut kept {
            node.inputs_mut().iter_mut().flatten().for_each(|id| *id = same.get(id).copied().unwrap_or(*id));
        }
        *subgraph.nodes_mut() = kept;
    }
    if reads == 0 {
        return None;
    }
    remove_assignments(&mut subgraphs, frozen.into_keys().collect());
    Some((subgraphs, reads))
}

/// Removes assignments of those variables in `gone` that are no longer read, and calls of initializations that are empty without them.
fn remove_assignments(subgraphs: &mut [Subgraph], mut gone: HashSet<&Name>) {
    for subgraph in subgraphs.iter() {
        let handles = handles(subgraph);
        let nodes = subgraph.nodes().iter();
        for node in nodes.filter(|n| *n.op() == Op::Builtin(BuiltinOp::READ_VARIABLE)) {
            if let Some(still_read) = node.input(0).and_then(|id| handles.get(&id)) {
                gone.remove(still_read);
            }
        }
    }
    for subgraph in subgraphs.iter_mut() {
        let handles = handles(subgraph);
        subgraph.nodes_mut().retain(|n| {
            let name = n.input(0).and_then(|id| handles.get(&id));
            *n.op() != Op::Builtin(BuiltinOp::ASSIGN_VARIABLE)
                || !name.is_some_and(|name| gone.contains(name))
        });
    }
    // Handles without a reader are unused, and so are initializations with nothing else.
    let idle: Vec<bool> = subgraphs
        .iter()
        .map(|g| {
            g.outputs().is_empty() && g.nodes().iter().all(|n| *n.op() == Op::Builtin(BuiltinOp::VAR_HANDLE))
        })
        .collect();
    for subgraph in subgraphs {
        subgraph.nodes_mut().retain(|n| {
            let idle = n.callees().next().is_some_and(|c| idle.get(c) == Some(&true));
            !(*n.op() == Op::Builtin(BuiltinOp::CALL_ONCE) && idle)
        });
    }
}

/// Returns the variable of each tensor that is a handle.
fn handles(subgraph: &Subgraph) -> HashMap<TensorId, Name> {
    let mut handles = HashMap::new();
    for node in subgraph.nodes() {
        if let (Params::VarHandle(p), Some(output)) = (node.params(), node.outputs().first()) {
            handles.insert(*output, (p.container.clone(), p.shared_name.clone()));
        }
    }
    handles
}

fn analyze(model: &Model) -> HashMap<Name, Uses> {
    let mut uses: HashMap<Name, Uses> = HashMap::new();
    for (s, subgraph) in model.subgraphs().iter().enumerate() {
        let handles = handles(subgraph);
        for (id, node) in subgraph.node_ids().zip(subgraph.nodes()) {
            for (i, input) in node.inputs().iter().enumerate() {
                let Some(name) = input.and_then(|input| handles.get(&input)) else { continue };
                let uses = uses.entry(name.clone()).or_default();
                match node.op() {
                    Op::Builtin(BuiltinOp::READ_VARIABLE) if i == 0 => {}
                    Op::Builtin(BuiltinOp::ASSIGN_VARIABLE) if i == 0 => uses.assigned.push((s, id)),
                    _ => uses.escapes = true,
                }
            }
        }
        for id in subgraph.outputs().iter().chain(subgraph.inputs()) {
            if let Some(name) = handles.get(id) {
                uses.entry(name.clone()).or_default().escapes = true;
            }
        }
    }
    uses
}
