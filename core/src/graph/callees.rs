//! The subgraphs that a node calls.

use smallvec::{SmallVec, smallvec};

use crate::ops::Params;

/// Returns the subgraphs that a node with these params calls.
pub(super) fn callees(params: &Params) -> SmallVec<[i32; 2]> {
    match params {
        Params::CallOnce(p) => smallvec![p.init_subgraph_index],
        Params::If(p) => smallvec![p.then_subgraph_index, p.else_subgraph_index],
        Params::While(p) => smallvec![p.cond_subgraph_index, p.body_subgraph_index],
        // An index that is out of range stays out of range.
        Params::Call(p) => smallvec![i32::try_from(p.subgraph).unwrap_or(-1)],
        Params::StablehloWhile(p) => smallvec![p.cond_subgraph_index, p.body_subgraph_index],
        Params::StablehloCase(p) => SmallVec::from_slice(&p.branch_subgraph_indices),
        Params::StableHloComposite(p) => smallvec![p.decomposition_subgraph_index],
        Params::StablehloScatter(p) => smallvec![p.update_computation_subgraph_index],
        Params::StablehloReduce(p) => smallvec![p.body_subgraph_index],
        Params::StablehloReduceWindow(p) => smallvec![p.body_subgraph_index],
        Params::StablehloSort(p) => smallvec![p.comparator_subgraph_index],
        Params::StablehloCustomCall(p) => SmallVec::from_slice(&p.called_computations),
        _ => SmallVec::new(),
    }
}

/// Renumbers the subgraphs that a node with these params calls.
pub(super) fn renumber_callees(params: &mut Params, to: &dyn Fn(i32) -> i32) {
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
        Params::StableHloComposite(p) => one(&mut p.decomposition_subgraph_index),
        Params::StablehloScatter(p) => one(&mut p.update_computation_subgraph_index),
        Params::StablehloReduce(p) => one(&mut p.body_subgraph_index),
        Params::StablehloReduceWindow(p) => one(&mut p.body_subgraph_index),
        Params::StablehloSort(p) => one(&mut p.comparator_subgraph_index),
        Params::StablehloCustomCall(p) => p.called_computations.iter_mut().for_each(one),
        _ => {}
    }
}
