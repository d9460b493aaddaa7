//! Grouping nodes into as few partitions as the graph's order allows.

use std::collections::VecDeque;

use delegraph_core::{NodeId, TensorId};

use crate::{DelegateParams, GraphView};

/// Consecutive nodes that are run by the same side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// True for a partition of the delegate, false for nodes that stay where they are.
    pub delegated: bool,
    /// The nodes, in an order in which they can run.
    pub nodes: Vec<NodeId>,
    /// Tensors that the group reads and does not compute, constants left out; ascending.
    pub inputs: Vec<TensorId>,
    /// Tensors that it computes and that others, or the caller, read; ascending.
    pub outputs: Vec<TensorId>,
}

impl Group {
    /// The group as the params of a delegate's kernel.
    pub fn into_params(self) -> DelegateParams {
        DelegateParams { nodes: self.nodes, inputs: self.inputs, outputs: self.outputs }
    }
}

/// Splits the graph into alternating groups of wanted and other nodes, with as few switches as a greedy sweep
/// finds: from one side it takes every node whose inputs are there, then from the other, until none is left.
/// Nodes with side effects keep their order among themselves. Linear in nodes and operands.
pub fn partition(graph: &GraphView<'_>, wanted: &[bool]) -> Vec<Group> {
    let subgraph = graph.subgraph();
    let count = subgraph.nodes.len();
    // Folded nodes cost nothing and wait for nothing: their outputs are constants already.
    let folded = |i: usize| graph.node(NodeId(i)).state().folded;
    let mut producer = vec![None; subgraph.tensors.len()];
    for (i, node) in subgraph.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|id| producer[id.0] = Some(i));
    }
    let mut waiting = vec![0usize; count];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut last_effect = None;
    for (i, node) in subgraph.nodes.iter().enumerate() {
        if folded(i) {
            continue;
        }
        let data = node.inputs.iter().flatten().filter_map(|id| producer[id.0]).filter(|&p| !folded(p));
        let order = last_effect.filter(|_| graph.node(NodeId(i)).state().side_effects);
        for before in data.chain(order) {
            followers[before].push(i);
            waiting[i] += 1;
        }
        if graph.node(NodeId(i)).state().side_effects {
            last_effect = Some(i);
        }
    }
    // Ready nodes of the two sides, each in file order as far as readiness allows.
    let mut ready: [VecDeque<usize>; 2] = Default::default();
    (0..count).filter(|&i| waiting[i] == 0).for_each(|i| ready[usize::from(wanted[i])].push_back(i));
    let mut side =
        usize::from((0..count).find(|&i| waiting[i] == 0 && !folded(i)).is_some_and(|i| wanted[i]));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut sides = Vec::new();
    while ready.iter().any(|r| !r.is_empty()) {
        let mut nodes = Vec::new();
        while let Some(i) = ready[side].pop_front() {
            nodes.push(i);
            for &f in &followers[i] {
                waiting[f] -= 1;
                if waiting[f] == 0 {
                    ready[usize::from(wanted[f])].push_back(f);
                }
            }
        }
        if !nodes.is_empty() {
            groups.push(nodes);
            sides.push(side == 1);
        }
        side = 1 - side;
    }
    describe(graph, groups, sides, &producer)
}

/// Which tensors cross the borders of each group.
fn describe(
    graph: &GraphView<'_>,
    groups: Vec<Vec<usize>>,
    sides: Vec<bool>,
    producer: &[Option<usize>],
) -> Vec<Group> {
    let subgraph = graph.subgraph();
    let mut group_of = vec![usize::MAX; subgraph.nodes.len()];
    for (g, nodes) in groups.iter().enumerate() {
        nodes.iter().for_each(|&i| group_of[i] = g);
    }
    let mut leaves = vec![false; subgraph.tensors.len()];
    subgraph.outputs.iter().for_each(|id| leaves[id.0] = true);
    for (i, node) in subgraph.nodes.iter().enumerate() {
        for id in node.inputs.iter().flatten() {
            if producer[id.0].is_some_and(|p| group_of[p] != group_of[i]) {
                leaves[id.0] = true;
            }
        }
    }
    let build = |(g, (nodes, delegated)): (usize, (Vec<usize>, bool))| {
        let own = |id: &TensorId| producer[id.0].is_some_and(|p| group_of[p] == g);
        let ids = nodes.iter().flat_map(|&i| subgraph.nodes[i].inputs.iter().flatten());
        let constant = |id: &TensorId| graph.tensor(*id).is_constant();
        let mut inputs: Vec<TensorId> = ids.copied().filter(|id| !own(id) && !constant(id)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let ids = nodes.iter().flat_map(|&i| subgraph.nodes[i].outputs.iter());
        // A folded output is a constant: whoever reads it has it already.
        let mut outputs: Vec<TensorId> = ids.copied().filter(|id| leaves[id.0] && !constant(id)).collect();
        outputs.sort_unstable();
        Group { delegated, nodes: nodes.into_iter().map(NodeId).collect(), inputs, outputs }
    };
    groups.into_iter().zip(sides).enumerate().map(build).collect()
}
