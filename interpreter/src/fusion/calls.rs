//! How often subgraphs run in an invocation, on which the meaning of state in them depends.

use delegraph_core::graph::Model;
use delegraph_core::ops::Params;

/// Returns for each subgraph whether it can run more than once in an invocation, or for several signatures. One run
/// would then change the state that the next run reads.
pub(super) fn repeated(model: &Model) -> Vec<bool> {
    let mut entries: Vec<usize> = model.signatures().iter().map(|s| s.subgraph()).collect();
    entries.push(0);
    entries.sort_unstable();
    entries.dedup();
    runs(model, &entries, &times).into_iter().map(|n| n > 1).collect()
}

/// Returns how often each subgraph runs when each of the `entries` runs once. `times` returns how often a node with
/// these params runs each subgraph that it calls, per run of the node.
pub(super) fn runs(model: &Model, entries: &[usize], times: &dyn Fn(&Params) -> u64) -> Vec<u64> {
    let graphs = model.subgraphs();
    let mut runs = vec![0u64; graphs.len()];
    for &entry in entries {
        runs.get_mut(entry).into_iter().for_each(|n| *n = 1);
    }
    let nodes = |i: usize| graphs.get(i).into_iter().flat_map(|g| g.nodes());
    let mut callers = vec![0usize; graphs.len()];
    for callee in (0..graphs.len()).flat_map(nodes).flat_map(|node| node.callees()) {
        callers.get_mut(callee).into_iter().for_each(|n| *n = n.saturating_add(1));
    }
    // Callers come before their callees. In a verified model, no subgraph calls itself.
    let mut ready: Vec<usize> =
        callers.iter().enumerate().filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
    while let Some(caller) = ready.pop() {
        let of_caller = runs.get(caller).copied().unwrap_or(0);
        for node in nodes(caller) {
            let more = of_caller.saturating_mul(times(node.params()));
            for callee in node.callees() {
                if let (Some(runs), Some(left)) = (runs.get_mut(callee), callers.get_mut(callee)) {
                    *runs = runs.saturating_add(more);
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        ready.push(callee);
                    }
                }
            }
        }
    }
    runs
}

/// Returns 1 if a node runs each subgraph that it calls at most once, 2 if it may run them repeatedly.
fn times(params: &Params) -> u64 {
    match params {
        Params::Call(_)
        | Params::CallOnce(_)
        | Params::If(_)
        | Params::StablehloCase(_)
        | Params::StableHloComposite(_) => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::control_flow::{CallParams, IfParams, WhileParams};
    use delegraph_core::{BuiltinOp as B, ModelBuilder, SubgraphBuilder, TensorType};

    use super::*;

    /// Returns a subgraph with one BOOL input, which all of the `calls` read.
    fn graph(calls: Vec<(B, Params)>) -> SubgraphBuilder {
        let mut graph = SubgraphBuilder::new("");
        let x = graph.input("x", TensorType::Bool, [1]);
        let mut last = x;
        for (op, params) in calls {
            let inputs = if op == B::IF { vec![x, x] } else { vec![x] };
            last = graph.tensor("y", TensorType::Bool, [1]);
            graph.node(op, params).inputs(inputs).writes([last]);
        }
        if last == x {
            last = graph.node(B::LOGICAL_NOT, Params::None).inputs([x]).output("y");
        }
        graph.outputs([last]);
        graph
    }

    fn call(subgraph: u32) -> (B, Params) {
        (B::CALL, CallParams::default().subgraph(subgraph).into())
    }

    #[test]
    fn runs_multiply_along_calls() {
        let branches = IfParams::default().then_subgraph_index(3).else_subgraph_index(4);
        let passes = WhileParams::default().cond_subgraph_index(5).body_subgraph_index(6);
        let graphs = [
            graph(vec![call(1), call(1), (B::IF, branches.into()), (B::WHILE, passes.into())]),
            graph(vec![call(2)]),
            graph(vec![]),
            graph(vec![]),
            graph(vec![]),
            graph(vec![]),
            graph(vec![call(7)]),
            graph(vec![]),
            // Subgraph 8 has no caller.
            graph(vec![call(2)]),
        ];
        let model = graphs.into_iter().fold(ModelBuilder::new(), ModelBuilder::subgraph).build().unwrap();
        assert_eq!(runs(&model, &[0], &|_| 1), [1, 2, 2, 1, 1, 1, 1, 1, 0]);
        assert_eq!(repeated(&model), [false, true, true, false, false, true, true, true, false]);
    }
}
