//! Grouping nodes into as few partitions as the graph's order allows.

use std::collections::{BTreeSet, VecDeque};

use delegraph_core::{NodeId, TensorId};

use crate::{DelegateParams, GraphView};

/// Nodes that one owner runs without interruption.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The owner of the nodes: 0 for the CPU, otherwise as passed to [`partition`].
    pub owner: usize,
    /// The nodes, in an order in which they can run.
    pub nodes: Vec<NodeId>,
    /// Tensors that the group reads and does not compute, without constants; ascending.
    pub inputs: Vec<TensorId>,
    /// Tensors that the group computes and that other groups, or the caller, read; ascending.
    pub outputs: Vec<TensorId>,
}

impl Group {
    /// Converts the group into the params of a delegate's kernel.
    pub fn into_params(self) -> DelegateParams {
        DelegateParams { nodes: self.nodes, inputs: self.inputs, outputs: self.outputs }
    }
}

/// Maximum number of owners that are tried as the first one.
const MAX_STARTS: usize = 4;

/// Splits the graph into groups of one owner each, given the owner of every node, with as few groups as a greedy sweep
/// finds. The sweep takes every node of one owner whose inputs are computed, then those of the next owner, until all
/// nodes are taken; it is repeated with each of the first few owners as the first one. Nodes with side effects keep
/// their order among themselves, and [control dependencies](delegraph_core::Model::control_dependencies) hold. Linear
/// in nodes and operands.
pub fn partition(graph: &GraphView<'_>, owners: &[usize]) -> Vec<Group> {
    Partitioner::new(*graph).partition(owners)
}

/// Splits one graph repeatedly, for different owners of its nodes.
pub(crate) struct Partitioner<'a> {
    graph: GraphView<'a>,
    dependencies: Dependencies,
}

impl<'a> Partitioner<'a> {
    pub(crate) fn new(graph: GraphView<'a>) -> Self {
        Partitioner { graph, dependencies: Dependencies::new(&graph) }
    }

    /// As [`partition`].
    pub(crate) fn partition(&self, owners: &[usize]) -> Vec<Group> {
        let mut kinds: Vec<usize> = owners.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        let kind_of: Vec<usize> = owners.iter().map(|o| kinds.partition_point(|k| k < o)).collect();
        let sweeps = (0..kinds.len().min(MAX_STARTS))
            .map(|first| self.dependencies.sweep(&kind_of, kinds.len(), first));
        let groups = sweeps.min_by_key(Vec::len).unwrap_or_default();
        let groups = groups.into_iter().map(|(kind, nodes)| (kinds[kind], nodes)).collect();
        describe(&self.graph, groups, &self.dependencies.producer)
    }
}

/// The order in which data, side effects and control dependencies require nodes to run.
struct Dependencies {
    producer: Vec<Option<usize>>,
    waiting: Vec<usize>,
    followers: Vec<Vec<usize>>,
}

impl Dependencies {
    fn new(graph: &GraphView<'_>) -> Self {
        let subgraph = graph.subgraph();
        let count = subgraph.nodes().len();
        let state = |i: usize| graph.node(NodeId(i)).state();
        let mut producer = vec![None; subgraph.tensors().len()];
        for (i, node) in subgraph.nodes().iter().enumerate() {
            node.outputs().iter().for_each(|id| producer[id.0] = Some(i));
        }
        let mut waiting = vec![0usize; count];
        let mut followers: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut last_effect = None;
        for (i, node) in subgraph.nodes().iter().enumerate() {
            // Folded nodes are independent of all others: their outputs are constants.
            if state(i).folded {
                continue;
            }
            let data =
                node.inputs().iter().flatten().filter_map(|id| producer[id.0]).filter(|&p| !state(p).folded);
            let order = last_effect.filter(|_| state(i).side_effects);
            for before in data.chain(order) {
                followers[before].push(i);
                waiting[i] += 1;
            }
            if state(i).side_effects {
                last_effect = Some(i);
            }
        }
        for (before, after) in graph.model().control_dependencies(graph.index()) {
            if !state(before.0).folded && !state(after.0).folded {
                followers[before.0].push(after.0);
                waiting[after.0] += 1;
            }
        }
        Dependencies { producer, waiting, followers }
    }

    /// The groups, each with its kind, of a sweep that starts with kind `first`.
    fn sweep(&self, kind_of: &[usize], kinds: usize, first: usize) -> Vec<(usize, Vec<usize>)> {
        let mut waiting = self.waiting.clone();
        let mut ready: Vec<VecDeque<usize>> = vec![VecDeque::new(); kinds];
        // Kinds with ready nodes, ordered by the position of their first ready node in the file.
        let mut next: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut groups = Vec::new();
        let mut kind = first;
        for i in (0..waiting.len()).filter(|&i| waiting[i] == 0) {
            ready[kind_of[i]].push_back(i);
        }
        next.extend((0..kinds).filter(|&k| k != first).filter_map(|k| Some((*ready[k].front()?, k))));
        loop {
            let mut nodes = Vec::new();
            while let Some(i) = ready[kind].pop_front() {
                nodes.push(i);
                for &follower in &self.followers[i] {
                    waiting[follower] -= 1;
                    if waiting[follower] == 0 {
                        let other = kind_of[follower];
                        if other != kind && ready[other].is_empty() {
                            next.insert((follower, other));
                        }
                        ready[other].push_back(follower);
                    }
                }
            }
            if !nodes.is_empty() {
                groups.push((kind, nodes));
            }
            match next.pop_first() {
                Some((_, other)) => kind = other,
                None => return groups,
            }
        }
    }
}

/// Adds the tensors that cross the boundary of each group.
fn describe(
    graph: &GraphView<'_>,
    groups: Vec<(usize, Vec<usize>)>,
    producer: &[Option<usize>],
) -> Vec<Group> {
    let subgraph = graph.subgraph();
    let mut group_of = vec![usize::MAX; subgraph.nodes().len()];
    for (g, (_, nodes)) in groups.iter().enumerate() {
        nodes.iter().for_each(|&i| group_of[i] = g);
    }
    // Folded nodes are already computed and read nothing.
    let reads = |i: usize| !graph.node(NodeId(i)).state().folded;
    let mut leaves = vec![false; subgraph.tensors().len()];
    subgraph.outputs().iter().for_each(|id| leaves[id.0] = true);
    for (i, node) in subgraph.nodes().iter().enumerate().filter(|(i, _)| reads(*i)) {
        for id in node.inputs().iter().flatten() {
            if producer[id.0].is_some_and(|p| group_of[p] != group_of[i]) {
                leaves[id.0] = true;
            }
        }
    }
    let build = |(g, (owner, nodes)): (usize, (usize, Vec<usize>))| {
        let own = |id: &TensorId| producer[id.0].is_some_and(|p| group_of[p] == g);
        let reading = nodes.iter().filter(|&&i| reads(i));
        let ids = reading.flat_map(|&i| subgraph.nodes()[i].inputs().iter().flatten());
        let constant = |id: &TensorId| graph.tensor(*id).is_constant();
        let mut inputs: Vec<TensorId> = ids.copied().filter(|id| !own(id) && !constant(id)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let ids = nodes.iter().flat_map(|&i| subgraph.nodes()[i].outputs().iter());
        // A folded output is a constant, which consumers read from the graph.
        let mut outputs: Vec<TensorId> = ids.copied().filter(|id| leaves[id.0] && !constant(id)).collect();
        outputs.sort_unstable();
        Group { owner, nodes: nodes.into_iter().map(NodeId).collect(), inputs, outputs }
    };
    groups.into_iter().enumerate().map(build).collect()
}
