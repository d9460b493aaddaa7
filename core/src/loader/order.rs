//! Checks over a whole subgraph: who writes what, and in which order.

use smallvec::{SmallVec, smallvec};

use super::{Invalid, at_node, invalid, writes};
use crate::error::tensor_name;
use crate::graph::{Subgraph, Tensor, TensorId};
use crate::ops::Params;

/// Every id names a tensor, and every constant lies inside the bytes and has the size that it needs. A file's are
/// checked while it is read.
pub(super) fn check_indices(subgraph: &Subgraph, bytes: usize) -> Result<(), Invalid> {
    let count = subgraph.tensors.len();
    let nodes = subgraph.nodes.iter();
    let ends = nodes.flat_map(|n| n.inputs.iter().chain(&n.intermediates).flatten().chain(&n.outputs));
    if let Some(id) = ends.chain(&subgraph.inputs).chain(&subgraph.outputs).find(|id| id.0 >= count) {
        return invalid!("tensor {} is out of range; there are {count}", id.0);
    }
    for (i, tensor) in subgraph.tensors.iter().enumerate() {
        let Some(data) = &tensor.data else { continue };
        let stored = match &tensor.sparsity {
            Some(sparsity) => sparsity.validate(&tensor.shape).map_err(|e| Invalid(e.to_string()))?,
            None => tensor.shape.elements(),
        };
        if data.end > bytes {
            return invalid!(
                "tensor {i} ({}): its data lies outside the model",
                tensor_name(&tensor.name, i)
            );
        }
        let needed = tensor.ty.byte_size(stored);
        if let Some(needed) = needed.filter(|&needed| needed != data.len()) {
            return invalid!(
                "tensor {i} ({}): it has {} bytes of data, its type and shape need {needed}",
                tensor_name(&tensor.name, i),
                data.len()
            );
        }
    }
    Ok(())
}

/// Each tensor has one source, and nodes read only what exists by then. A tensor without elements that nobody
/// writes becomes an empty constant.
pub(super) fn check_nodes(subgraph: &mut Subgraph, subgraphs: usize) -> Result<(), Invalid> {
    let mut available: Vec<bool> =
        subgraph.tensors.iter().map(|t| t.is_constant() || t.is_variable).collect();
    for id in &subgraph.inputs {
        if let Some(slot) = available.get_mut(id.0) {
            *slot = true;
        }
    }
    // Variables that a node gives their first value: one over constants alone, such as the DEQUANTIZE of a state that
    // a file stores in float16.
    let mut begun: Vec<bool> = subgraph.tensors.iter().map(|t| !t.is_variable).collect();
    for id in &subgraph.inputs {
        begun.get_mut(id.0).into_iter().for_each(|b| *b = true);
    }
    for (i, node) in subgraph.nodes.iter().enumerate() {
        let constant = |id: &TensorId| subgraph.tensors.get(id.0).is_some_and(Tensor::is_constant);
        let over_constants = node.op.builtin().is_some()
            && !node.inputs.is_empty()
            && node.inputs.iter().flatten().all(constant);
        let label = writes(&subgraph.tensors, node.outputs.iter().map(|id| id.0));
        let fail = |e| at_node(i, &node.op, &label, e);
        for id in node.inputs.iter().flatten() {
            match (available.get_mut(id.0), subgraph.tensors.get_mut(id.0)) {
                (Some(true), Some(_)) => {}
                (Some(slot), Some(tensor)) if tensor.shape.checked_elements() == Some(0) => {
                    *slot = true;
                    tensor.data = Some(0..0);
                }
                _ => {
                    return Err(fail(Invalid(format!(
                        "it reads tensor {} ({}), which is no input, constant or variable and which no earlier node writes",
                        id.0,
                        subgraph.tensors.get(id.0).map(|t| tensor_name(&t.name, id.0)).unwrap_or_default()
                    ))));
                }
            }
        }
        for id in &node.outputs {
            match available.get_mut(id.0) {
                Some(slot) if !*slot => *slot = true,
                Some(_) if over_constants && begun.get(id.0) == Some(&false) => {}
                _ => {
                    return Err(fail(Invalid(format!(
                        "it writes tensor {}, which is an input, a variable, a constant or written by an earlier node",
                        id.0
                    ))));
                }
            }
            begun.get_mut(id.0).into_iter().for_each(|b| *b = true);
        }
        for callee in callees(&node.params) {
            if usize::try_from(callee).ok().is_none_or(|c| c >= subgraphs) {
                return Err(fail(Invalid(format!(
                    "it calls subgraph {callee}, which does not exist; the file has {subgraphs}"
                ))));
            }
        }
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

/// The subgraphs that a node with these params calls.
pub(crate) fn callees(params: &Params) -> SmallVec<[i32; 2]> {
    match params {
        Params::CallOnce(p) => smallvec![p.init_subgraph_index],
        Params::If(p) => smallvec![p.then_subgraph_index, p.else_subgraph_index],
        Params::While(p) => smallvec![p.cond_subgraph_index, p.body_subgraph_index],
        // An index that is out of range stays out of range.
        Params::Call(p) => smallvec![i32::try_from(p.subgraph).unwrap_or(-1)],
        Params::StablehloWhile(p) => smallvec![p.cond_subgraph_index, p.body_subgraph_index],
        Params::StablehloCase(p) => SmallVec::from_slice(&p.branch_subgraph_indices),
        Params::StableHLOComposite(p) => smallvec![p.decomposition_subgraph_index],
        Params::StablehloScatter(p) => smallvec![p.update_computation_subgraph_index],
        Params::StablehloReduce(p) => smallvec![p.body_subgraph_index],
        Params::StablehloReduceWindow(p) => smallvec![p.body_subgraph_index],
        Params::StablehloSort(p) => smallvec![p.comparator_subgraph_index],
        Params::StablehloCustomCall(p) => SmallVec::from_slice(&p.called_computations),
        _ => SmallVec::new(),
    }
}

/// Gives the subgraphs that a node with these params calls other numbers.
pub(crate) fn renumber_callees(params: &mut Params, to: &dyn Fn(i32) -> i32) {
    let one = |index: &mut i32| *index = to(*index);
    match params {
        Params::CallOnce(p) => one(&mut p.init_subgraph_index),
        Params::If(p) => [&mut p.then_subgraph_index, &mut p.else_subgraph_index].into_iter().for_each(one),
        Params::While(p) => {
            [&mut p.cond_subgraph_index, &mut p.body_subgraph_index].into_iter().for_each(one)
        }
        Params::Call(p) => {
            let renumbered = i32::try_from(p.subgraph).ok().and_then(|index| u32::try_from(to(index)).ok());
            p.subgraph = renumbered.unwrap_or(p.subgraph);
        }
        Params::StablehloWhile(p) => {
            [&mut p.cond_subgraph_index, &mut p.body_subgraph_index].into_iter().for_each(one);
        }
        Params::StablehloCase(p) => p.branch_subgraph_indices.iter_mut().for_each(one),
        Params::StableHLOComposite(p) => one(&mut p.decomposition_subgraph_index),
        Params::StablehloScatter(p) => one(&mut p.update_computation_subgraph_index),
        Params::StablehloReduce(p) => one(&mut p.body_subgraph_index),
        Params::StablehloReduceWindow(p) => one(&mut p.body_subgraph_index),
        Params::StablehloSort(p) => one(&mut p.comparator_subgraph_index),
        Params::StablehloCustomCall(p) => p.called_computations.iter_mut().for_each(one),
        _ => {}
    }
}

/// A subgraph that calls itself, directly or through others, could never return.
pub(super) fn check_calls(subgraphs: &[Subgraph]) -> Result<(), Invalid> {
    let calls: Vec<Vec<usize>> = subgraphs
        .iter()
        .map(|g| {
            g.nodes.iter().flat_map(|n| callees(&n.params)).filter_map(|c| usize::try_from(c).ok()).collect()
        })
        .collect();
    // Remove subgraphs that call nothing any more; what is left calls in a circle.
    let mut done = vec![false; subgraphs.len()];
    loop {
        let ready = |(i, callees): (usize, &Vec<usize>)| {
            let waiting = done.get(i) == Some(&false);
            (waiting && callees.iter().all(|&c| done.get(c) == Some(&true))).then_some(i)
        };
        let next: Vec<usize> = calls.iter().enumerate().filter_map(ready).collect();
        if next.is_empty() {
            break;
        }
        for i in next {
            if let Some(slot) = done.get_mut(i) {
                *slot = true;
            }
        }
    }
    match done.iter().position(|&d| !d) {
        Some(i) => invalid!("subgraph {i} calls itself, directly or through others"),
        None => Ok(()),
    }
}
