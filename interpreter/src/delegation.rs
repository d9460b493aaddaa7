//! Delegation: asking delegates, grouping what they claim, making their kernels, and undoing it all on failure.

use std::panic::{AssertUnwindSafe, catch_unwind};

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{NodeId, TensorId};
use delegraph_core::kernel::{InvokeContext, PrepareContext, RuntimeTensor};
use delegraph_core::ops::Params;
use delegraph_delegate_api::{
    Delegate, DelegateContext, DelegateKernel, DelegateParams, Group, NodeReport, NodeState, PartitionReport,
    Policy, Rejection, Report, Runner, partition,
};
use smallvec::SmallVec;

use crate::engine::Env;
use crate::subgraph::{Scratch, Step, SubgraphRuntime};

/// A partition with its kernel.
pub(crate) struct Partition {
    pub(crate) name: String,
    pub(crate) params: DelegateParams,
    /// The inputs in the form that contexts take.
    pub(crate) inputs: Vec<Option<TensorId>>,
    pub(crate) kernel: Box<dyn DelegateKernel>,
    pub(crate) scratch: Scratch,
}

impl Partition {
    /// Prepares the kernel; returns the bytes of the temporaries that it asks for.
    pub(crate) fn prepare(
        &mut self,
        tensors: &mut [RuntimeTensor],
        env: &mut Env<'_>,
    ) -> Result<SmallVec<[usize; 4]>> {
        let (kernel, threads) = (&mut self.kernel, env.parallel.threads());
        let (inputs, outputs) = (&self.inputs, &self.params.outputs);
        let result = contain(|| {
            let mut cx = PrepareContext::new(&Params::None, 1, inputs, outputs, tensors, false, threads, env);
            kernel.prepare(&mut cx)?;
            Ok(cx.finish().0)
        });
        result.map_err(|e| self.failure(&e))
    }

    pub(crate) fn invoke(&mut self, tensors: &mut [RuntimeTensor], env: &mut Env<'_>) -> Result<()> {
        let (kernel, parallel) = (&mut self.kernel, env.parallel);
        let (inputs, outputs, temporaries) = (&self.inputs, &self.params.outputs, self.scratch.pointers());
        let result = contain(|| {
            // SAFETY: ids come from the subgraph; a partition's outputs are computed in it, its inputs outside; the
            // planner gives tensors and temporaries that are alive at one step disjoint memory.
            let mut cx = unsafe { InvokeContext::new(inputs, outputs, tensors, temporaries, parallel, env) };
            kernel.invoke(&mut cx)
        });
        result.map_err(|e| self.failure(&e))
    }

    fn failure(&self, error: &Error) -> Error {
        let nodes = self.params.nodes.iter().take(6).map(|n| n.0.to_string()).collect::<Vec<_>>().join(", ");
        let more = if self.params.nodes.len() > 6 { ", …" } else { "" };
        Error::Delegate {
            delegate: self.name.clone(),
            message: format!("partition of nodes {nodes}{more}: {error}"),
        }
    }
}

/// Runs a delegate's code: a panic in it becomes an error.
fn contain<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::State(format!("it panicked: {text}")))
    })
}

/// Lets `delegates` claim nodes of a subgraph whose shapes are inferred, and finishes preparing it. A delegate that
/// fails loses all its claims; the report says so.
pub(crate) fn apply(
    subgraph: &mut SubgraphRuntime,
    delegates: &mut [Box<dyn Delegate>],
    policy: Policy,
    env: &mut Env<'_>,
) -> Result<Report> {
    let names: Vec<String> = delegates.iter().map(|d| d.name().to_owned()).collect();
    let mut failures: Vec<Option<String>> = vec![None; delegates.len()];
    loop {
        let outcome = attempt(subgraph, delegates, &failures, policy)?;
        let (report, partitions, steps) = match outcome {
            Attempt::Failed(delegate, message) => {
                log::warn!("delegate {} failed and is left out: {message}", names[delegate]);
                failures[delegate] = Some(message);
                continue;
            }
            Attempt::Done(report, partitions, steps) => (report, partitions, steps),
        };
        if policy == Policy::Require {
            require(&report, &failures)?;
        }
        subgraph.partitions = partitions;
        subgraph.steps = steps;
        match subgraph.finish(env) {
            Err(Error::Delegate { delegate, message }) if policy != Policy::Require => {
                let index = names.iter().position(|n| *n == delegate).filter(|&i| failures[i].is_none());
                let Some(index) = index else { return Err(Error::Delegate { delegate, message }) };
                log::warn!("delegate {delegate} failed and is left out: {message}");
                failures[index] = Some(message);
            }
            result => return result.map(|()| report),
        }
    }
}

enum Attempt {
    Done(Report, Vec<Partition>, Vec<Step>),
    Failed(usize, String),
}

fn attempt(
    subgraph: &SubgraphRuntime,
    delegates: &mut [Box<dyn Delegate>],
    failures: &[Option<String>],
    policy: Policy,
) -> Result<Attempt> {
    let names: Vec<String> = delegates.iter().map(|d| d.name().to_owned()).collect();
    let states = subgraph.node_states();
    let mut taken = states.clone();
    // Each delegate sees what those before it took.
    let mut views: Vec<Vec<NodeState>> = vec![Vec::new(); delegates.len()];
    // 0: the CPU; otherwise one more than the number of the claim.
    let mut owners = vec![0usize; states.len()];
    let mut rejections: Vec<Vec<(usize, Rejection)>> = vec![Vec::new(); states.len()];
    let mut claims = Vec::new();
    let mut failed = None;
    for ((index, delegate), view) in delegates.iter_mut().enumerate().zip(&mut views) {
        if let Some(message) = &failures[index] {
            let reason = Rejection::DelegateFailed(message.clone());
            rejections.iter_mut().for_each(|r| r.push((index, reason.clone())));
            continue;
        }
        *view = taken.clone();
        let versions = delegate.max_versions().clone();
        let mut cx = DelegateContext::new(subgraph.graph(view), versions);
        if let Err(error) = contain(|| delegate.prepare(&mut cx)) {
            failed = Some((index, error.to_string()));
            break;
        }
        let (new_claims, reasons) = cx.finish();
        for (node, reason) in reasons.into_iter().enumerate().filter(|(node, _)| !taken[*node].taken) {
            rejections[node].extend(reason.map(|r| (index, r)));
        }
        for claim in new_claims {
            claims.push((index, claim.factory));
            for node in claim.nodes {
                owners[node.0] = claims.len();
                taken[node.0].taken = true;
            }
        }
    }
    if let Some((delegate, message)) = failed {
        return Ok(Attempt::Failed(delegate, message));
    }
    let graph = subgraph.graph(&states);
    let groups = partition(&graph, &owners);
    let mut report = report(subgraph, &names, &states, rejections, failures);
    let mut steps = Vec::new();
    let mut partitions = Vec::new();
    for group in groups {
        let Some((delegate, factory)) = group.owner.checked_sub(1).and_then(|c| claims.get_mut(c)) else {
            steps.extend(group.nodes.into_iter().map(Step::Node));
            continue;
        };
        describe_partition(&mut report, subgraph, *delegate, &group);
        if policy == Policy::Report {
            steps.extend(group.nodes.into_iter().map(Step::Node));
            continue;
        }
        let params = group.into_params();
        match contain(|| factory(&params, &graph)) {
            Ok(kernel) => {
                steps.push(Step::Partition(partitions.len()));
                partitions.push(Partition {
                    name: names[*delegate].clone(),
                    inputs: params.inputs.iter().copied().map(Some).collect(),
                    params,
                    kernel,
                    scratch: Scratch::default(),
                });
            }
            Err(error) => return Ok(Attempt::Failed(*delegate, error.to_string())),
        }
    }
    Ok(Attempt::Done(report, partitions, steps))
}

fn report(
    subgraph: &SubgraphRuntime,
    names: &[String],
    states: &[NodeState],
    rejections: Vec<Vec<(usize, Rejection)>>,
    failures: &[Option<String>],
) -> Report {
    let graph = &subgraph.model.subgraphs[subgraph.index];
    let node = |(i, rejections): (usize, Vec<_>)| NodeReport {
        node: NodeId(i),
        op: graph.nodes[i].op.clone(),
        version: graph.nodes[i].version,
        runner: if states[i].folded { Runner::Folded } else { Runner::Cpu },
        rejections,
    };
    let failed = names.iter().zip(failures).filter_map(|(n, f)| Some((n.clone(), f.clone()?)));
    Report {
        delegates: names.to_vec(),
        nodes: rejections.into_iter().enumerate().map(node).collect(),
        partitions: Vec::new(),
        failures: failed.collect(),
    }
}

fn describe_partition(report: &mut Report, subgraph: &SubgraphRuntime, delegate: usize, group: &Group) {
    let partition = report.partitions.len();
    for node in &group.nodes {
        report.nodes[node.0].runner = Runner::Delegate { delegate, partition };
    }
    let bytes = |id: &TensorId| subgraph.tensors[id.0].byte_size().unwrap_or(0);
    report.partitions.push(PartitionReport {
        delegate,
        nodes: group.nodes.clone(),
        inputs: group.inputs.clone(),
        outputs: group.outputs.clone(),
        boundary_bytes: group.inputs.iter().chain(&group.outputs).map(bytes).sum(),
    });
}

/// Every node must be delegated.
fn require(report: &Report, failures: &[Option<String>]) -> Result<()> {
    if let Some((name, message)) = report.failures.first() {
        return Err(Error::Delegate { delegate: name.clone(), message: message.clone() });
    }
    let left: Vec<_> = report.nodes.iter().filter(|n| !matches!(n.runner, Runner::Delegate { .. })).collect();
    if left.is_empty() || failures.is_empty() {
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
