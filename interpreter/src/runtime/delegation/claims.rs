//! Claiming: delegates claim nodes, claims are grouped into partitions, and kernels are created for the partitions.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, NodeId, TensorId};
use delegraph_core::kernel::{Budget, RuntimeTensor};
use delegraph_delegate_api::{
    Callees, DelegateContext, DelegateFailure, GraphView, Group, KernelFactory, NodeReport, NodeState,
    PartitionReport, Policy, Rejection, Report, Runner, partition,
};

use super::delegates::{Applied, Claimant, Delegates, contain};
use super::partition::{Partition, Preparation};

/// An inferred subgraph that is offered to delegates.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) model: &'a Model,
    pub(crate) index: usize,
    pub(crate) tensors: &'a [RuntimeTensor],
    /// Per tensor, whether its shape is known.
    pub(crate) shape_known: &'a [bool],
    /// Per node, its state before delegation.
    pub(crate) states: &'a [NodeState],
}

impl<'a> Candidate<'a> {
    /// Returns the graph, with nodes in these states.
    fn graph(&self, states: &'a [NodeState]) -> GraphView<'a> {
        GraphView::new(self.model, self.index, self.tensors, self.shape_known, states).called_directly()
    }
}

/// A unit of execution: a node on the CPU, or a partition by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Node(NodeId),
    Partition(usize),
}

/// The claims of all delegates on a subgraph.
pub(crate) struct Claims {
    pub(crate) report: Report,
    pub(crate) partitions: Vec<Partition>,
    /// Nodes and partitions in execution order.
    pub(crate) units: Vec<Unit>,
}

/// A delegate's number and its error.
pub(crate) type ClaimError = (usize, Error);

/// Lets the delegates claim nodes, and creates the kernels of the partitions. With [`Policy::Report`] the report
/// describes what would be delegated, and all nodes stay on the CPU.
///
/// # Errors
/// The number of the delegate that failed, and its error.
pub(crate) fn claim(
    candidate: Candidate<'_>,
    delegates: &mut Delegates,
    callees: &dyn Callees,
    budget: &Arc<Budget>,
) -> Result<Claims, ClaimError> {
    let states = candidate.states;
    let mut taken = states.to_vec();
    // Each delegate sees the claims of earlier delegates.
    let mut views: Vec<Vec<NodeState>> = vec![Vec::new(); delegates.applied.len()];
    // Per node, 0 for the CPU, otherwise one more than the number of its claim: the form that `partition` requires.
    let mut owners = vec![0usize; states.len()];
    let mut rejections: Vec<Vec<(usize, Rejection)>> = vec![Vec::new(); states.len()];
    let mut claims: Vec<(Claimant, KernelFactory<'_>)> = Vec::new();
    let mut report = report(candidate, delegates);
    let (policy, memory) = (delegates.policy, delegates.memory);
    for ((index, applied), view) in delegates.applied.iter_mut().enumerate().zip(&mut views) {
        if let Some(failure) = &applied.failure {
            let reason = Rejection::DelegateFailed(failure.message.clone());
            rejections.iter_mut().for_each(|r| r.push((index, reason.clone())));
            continue;
        }
        *view = taken.clone();
        let (name, delegate, limits) = (&applied.name, &mut applied.delegate, applied.limits.clone());
        let graph = candidate.graph(view).with_callees(callees);
        let claimed = contain(|| {
            let capabilities = delegate.capabilities();
            let cx = DelegateContext::new(graph, delegate.max_versions().clone()).with_budget(budget);
            let mut cx = cx.with_capabilities(capabilities).with_limits(limits).with_memory_limit(memory);
            delegate.prepare(&mut cx)?;
            Ok((cx.finish(), capabilities))
        });
        let ((new_claims, reasons), capabilities) = claimed.map_err(|e| (index, e))?;
        for (node, reason) in reasons.into_iter().enumerate().filter(|(node, _)| !taken[*node].taken) {
            rejections[node].extend(reason.map(|r| (index, r)));
        }
        for claim in new_claims {
            claims.push((Claimant { index, name: name.clone(), capabilities }, claim.factory));
            for node in claim.nodes {
                owners[node.0] = claims.len();
                taken[node.0].taken = true;
            }
        }
    }
    for (node, rejections) in report.nodes.iter_mut().zip(rejections) {
        node.rejections = rejections;
    }
    let graph = candidate.graph(states).with_callees(callees);
    let groups = partition(&graph, &owners);
    let mut units = Vec::new();
    let mut partitions = Vec::new();
    for group in groups {
        let Some((claimant, factory)) = group.owner.checked_sub(1).and_then(|c| claims.get_mut(c)) else {
            units.extend(group.nodes.into_iter().map(Unit::Node));
            continue;
        };
        describe_partition(&mut report, candidate, claimant.index, &group);
        if policy == Policy::Report {
            units.extend(group.nodes.into_iter().map(Unit::Node));
            continue;
        }
        let dynamic = group.nodes.iter().any(|id| states[id.0].dynamic);
        let params = group.into_params();
        let (kernel, needs_data) = contain(|| {
            let kernel = factory(&params, &graph)?;
            let needs_data = kernel.needs_data();
            Ok((kernel, needs_data))
        })
        .map_err(|e| (claimant.index, e))?;
        let preparation = if dynamic || needs_data { Preparation::Dynamic } else { Preparation::Static };
        units.push(Unit::Partition(partitions.len()));
        let number = partitions.len();
        partitions.push(Partition::new(claimant.clone(), number, params, kernel, preparation));
    }
    Ok(Claims { report, partitions, units })
}

/// Returns the report on a subgraph without any claims.
pub(crate) fn report(candidate: Candidate<'_>, delegates: &Delegates) -> Report {
    let nodes = candidate.model.subgraphs()[candidate.index].nodes();
    let nodes = nodes.iter().zip(candidate.states).enumerate();
    let node = |(i, (node, state)): (usize, (&delegraph_core::Node, &NodeState))| {
        let runner = if state.folded { Runner::Folded } else { Runner::Cpu };
        NodeReport::new(NodeId(i), node.op().clone(), node.version(), runner)
    };
    let failure = |a: &Applied| Some(DelegateFailure::new(&*a.name, a.failure.as_ref()?.message.clone()));
    let names = delegates.applied.iter().map(|a| a.name.to_string()).collect();
    let failures = delegates.applied.iter().filter_map(failure).collect();
    Report::new(names, nodes.map(node).collect()).with_failures(failures)
}

fn describe_partition(report: &mut Report, candidate: Candidate<'_>, delegate: usize, group: &Group) {
    let partition = report.partitions.len();
    for node in &group.nodes {
        report.nodes[node.0].runner = Runner::Delegate { delegate, partition };
    }
    let bytes = |id: &TensorId| candidate.tensors[id.0].byte_size().unwrap_or(0) as u64;
    let graph = candidate.graph(candidate.states);
    let multiply_adds = group.nodes.iter().map(|&id| graph.node(id).cost().multiply_adds);
    let partition = PartitionReport::new(delegate, group.clone().into_params())
        .with_multiply_adds(multiply_adds.fold(0, u64::saturating_add))
        .with_boundary_bytes(group.inputs.iter().chain(&group.outputs).map(bytes).sum());
    report.partitions.push(partition);
}
