//! Delegation: asking delegates, grouping what they claim, making their kernels, and undoing it all on failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{NodeId, TensorId};
use delegraph_delegate_api::{
    Capabilities, Delegate, DelegateContext, Group, KernelFactory, NodeReport, NodeState, PartitionOptions,
    PartitionReport, Policy, Rejection, Report, Runner, partition,
};

use crate::composites;
use crate::engine::{Env, Slots};
use crate::partition::Partition;
use crate::subgraph::{Step, SubgraphRuntime};

/// Subgraphs of this name hold an application's own tests of a delegate: they never run on one.
const VALIDATION: &str = "VALIDATION:";

/// The delegates of an interpreter, in the order in which they choose.
#[derive(Default)]
pub(crate) struct Delegation {
    pub(crate) delegates: Vec<Applied>,
    pub(crate) policy: Policy,
    /// The delegate whose failure is behind the error that is on its way to the application.
    failing: Option<usize>,
}

/// A delegate that an application applied.
pub(crate) struct Applied {
    pub(crate) delegate: Box<dyn Delegate>,
    name: Arc<str>,
    limits: PartitionOptions,
    failure: Option<Failure>,
}

/// Why a delegate is left out.
struct Failure {
    message: String,
    /// It failed while running, so that it is not tried again.
    forever: bool,
}

impl Applied {
    pub(crate) fn new(delegate: Box<dyn Delegate>, limits: PartitionOptions) -> Self {
        let name = delegate.name().into();
        Applied { delegate, name, limits, failure: None }
    }
}

impl Delegation {
    /// Delegate `index` failed with this message; returns the error that says so.
    pub(crate) fn fail(&mut self, index: usize, message: String) -> Error {
        self.failing = Some(index);
        let applied = self.delegates.get_mut(index);
        let delegate = applied.as_ref().map_or_else(String::new, |a| a.name.to_string());
        if let Some(applied) = applied {
            applied.failure = Some(Failure { message: message.clone(), forever: false });
        }
        Error::Delegate { delegate, message }
    }

    /// Whether the error that `prepare` gave is a delegate's failure, after which the model is to be prepared again
    /// without it.
    pub(crate) fn recovers(&mut self) -> bool {
        let failing = self.failing.take().filter(|_| self.policy != Policy::Require);
        let failed = failing.and_then(|index| self.delegates.get(index));
        if let Some(Applied { name, failure: Some(failure), .. }) = failed {
            log::warn!("delegate {name} failed and is left out: {}", failure.message);
        }
        failing.is_some()
    }

    /// As [`Delegation::recovers`], for an error of an invocation: the delegate is not tried again.
    pub(crate) fn recovers_for_good(&mut self) -> bool {
        let index = self.failing;
        let recovers = self.recovers();
        let failed = index.and_then(|i| self.delegates.get_mut(i)).and_then(|a| a.failure.as_mut());
        if let Some(failure) = failed {
            failure.forever = recovers;
        }
        recovers
    }

    /// Delegates that failed while preparing get another chance: shapes have changed.
    pub(crate) fn forgive(&mut self) {
        self.failing = None;
        let failures = self.delegates.iter_mut().map(|a| &mut a.failure);
        failures.filter(|f| f.as_ref().is_some_and(|f| !f.forever)).for_each(|f| *f = None);
    }
}

/// Runs a delegate's code: a panic in it becomes an error.
pub(crate) fn contain<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::State(format!("it panicked: {text}")))
    })
}

/// Lets the delegates claim nodes of a subgraph whose shapes are inferred, and makes the kernels of its partitions.
///
/// An error of a delegate is noted in [`Delegation`]: whoever prepares the model undoes everything and begins again
/// without it.
pub(crate) fn apply(subgraph: &mut SubgraphRuntime, env: &mut Env<'_>, entry: bool) -> Result<()> {
    subgraph.report = report(subgraph, env.delegation);
    let own_name = subgraph.model.subgraphs[subgraph.index].name.as_str();
    if env.delegation.delegates.is_empty() || own_name.starts_with(VALIDATION) {
        composites::report(subgraph, env.inlined);
        return Ok(());
    }
    let policy = env.delegation.policy;
    let found = claim(subgraph, env.delegation, env.slots);
    let (report, partitions, steps) =
        found.map_err(|(index, message)| env.delegation.fail(index, message))?;
    subgraph.report = report;
    // Composites that nobody took are offered again, node by node.
    if entry && policy == Policy::Require && composites::unclaimed(subgraph).next().is_none() {
        require(&subgraph.report)?;
    }
    composites::report(subgraph, env.inlined);
    subgraph.partitions = partitions;
    subgraph.steps = steps;
    Ok(())
}

/// Whose a claim, or a partition, is.
#[derive(Clone)]
pub(crate) struct Claimant {
    /// The delegate's number.
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) capabilities: Capabilities,
}

/// A delegate's number and what went wrong with it.
type Failed = (usize, String);

/// What the delegates make of a subgraph.
type Found = (Report, Vec<Partition>, Vec<Step>);

fn claim(
    subgraph: &SubgraphRuntime,
    delegation: &mut Delegation,
    slots: &[Option<Box<SubgraphRuntime>>],
) -> Result<Found, Failed> {
    let states = &subgraph.states;
    let slots = Slots(slots);
    let mut taken = states.clone();
    // Each delegate sees what those before it took.
    let mut views: Vec<Vec<NodeState>> = vec![Vec::new(); delegation.delegates.len()];
    // 0: the CPU; otherwise one more than the number of the claim.
    let mut owners = vec![0usize; states.len()];
    let mut rejections: Vec<Vec<(usize, Rejection)>> = vec![Vec::new(); states.len()];
    let mut claims: Vec<(Claimant, KernelFactory<'_>)> = Vec::new();
    let mut report = report(subgraph, delegation);
    let policy = delegation.policy;
    for ((index, applied), view) in delegation.delegates.iter_mut().enumerate().zip(&mut views) {
        if let Some(failure) = &applied.failure {
            let reason = Rejection::DelegateFailed(failure.message.clone());
            rejections.iter_mut().for_each(|r| r.push((index, reason.clone())));
            continue;
        }
        *view = taken.clone();
        let (name, delegate, limits) = (&applied.name, &mut applied.delegate, applied.limits.clone());
        let graph = subgraph.graph(view).with_callees(&slots);
        let claimed = contain(|| {
            let capabilities = delegate.capabilities();
            let cx = DelegateContext::new(graph, delegate.max_versions().clone());
            let mut cx = cx.with_capabilities(capabilities).with_limits(limits);
            delegate.prepare(&mut cx)?;
            Ok((cx.finish(), capabilities))
        });
        let ((new_claims, reasons), capabilities) = claimed.map_err(|e| (index, e.to_string()))?;
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
    let graph = subgraph.graph(states).with_callees(&slots);
    let groups = partition(&graph, &owners);
    let mut steps = Vec::new();
    let mut partitions = Vec::new();
    for group in groups {
        let Some((claimant, factory)) = group.owner.checked_sub(1).and_then(|c| claims.get_mut(c)) else {
            steps.extend(group.nodes.into_iter().map(Step::Node));
            continue;
        };
        describe_partition(&mut report, subgraph, claimant.index, &group);
        if policy == Policy::Report {
            steps.extend(group.nodes.into_iter().map(Step::Node));
            continue;
        }
        let dynamic = group.nodes.iter().any(|id| states[id.0].dynamic);
        let params = group.into_params();
        let kernel = contain(|| factory(&params, &graph)).map_err(|e| (claimant.index, e.to_string()))?;
        steps.push(Step::Partition(partitions.len()));
        partitions.push(Partition::new(claimant.clone(), partitions.len(), params, kernel, dynamic));
    }
    Ok((report, partitions, steps))
}

/// A report of a subgraph of which nothing is delegated yet.
fn report(subgraph: &SubgraphRuntime, delegation: &Delegation) -> Report {
    let nodes = subgraph.model.subgraphs[subgraph.index].nodes.iter().zip(&subgraph.states).enumerate();
    let node = |(i, (node, state)): (usize, (&delegraph_core::Node, &NodeState))| NodeReport {
        node: NodeId(i),
        op: node.op.clone(),
        version: node.version,
        runner: if state.folded { Runner::Folded } else { Runner::Cpu },
        rejections: Vec::new(),
    };
    let failure = |a: &Applied| Some((a.name.to_string(), a.failure.as_ref()?.message.clone()));
    Report {
        delegates: delegation.delegates.iter().map(|a| a.name.to_string()).collect(),
        nodes: nodes.map(node).collect(),
        partitions: Vec::new(),
        failures: delegation.delegates.iter().filter_map(failure).collect(),
        composites: Vec::new(),
    }
}

fn describe_partition(report: &mut Report, subgraph: &SubgraphRuntime, delegate: usize, group: &Group) {
    let partition = report.partitions.len();
    for node in &group.nodes {
        report.nodes[node.0].runner = Runner::Delegate { delegate, partition };
    }
    let bytes = |id: &TensorId| subgraph.tensors[id.0].byte_size().unwrap_or(0);
    let graph = subgraph.graph(&subgraph.states);
    let multiply_adds = group.nodes.iter().map(|&id| graph.node(id).cost().multiply_adds);
    report.partitions.push(PartitionReport {
        delegate,
        multiply_adds: multiply_adds.fold(0, u64::saturating_add),
        nodes: group.nodes.clone(),
        inputs: group.inputs.clone(),
        outputs: group.outputs.clone(),
        boundary_bytes: group.inputs.iter().chain(&group.outputs).map(bytes).sum(),
    });
}

/// Every node must be delegated.
fn require(report: &Report) -> Result<()> {
    let left: Vec<_> = report.nodes.iter().filter(|n| !matches!(n.runner, Runner::Delegate { .. })).collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "the policy is `require`, but {} of {} nodes are not delegated:",
        left.len(),
        report.nodes.len()
    );
    for node in left.iter().take(8) {
        let reason = node.rejections.last().map_or_else(String::new, |(_, r)| format!(": {r}"));
        text.push_str(&format!("\nnode {} ({} v{}){reason}", node.node.0, node.op, node.version));
    }
    if left.len() > 8 {
        text.push_str(&format!("\nand {} more", left.len() - 8));
    }
    Err(Error::Unsupported(text))
}
