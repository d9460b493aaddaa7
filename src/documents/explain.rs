//! The runner of each node, or the reason for a rejection, and advice on what to support next.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::text::raw_name;
use super::unresolved::unresolved_op;
use super::versions::{Understated, UnderstatedLine};
use crate::Interpreter;
use crate::core::TensorId;
use crate::core::error::{UnresolvedOp, UnresolvedOps};
use crate::delegate_api::{
    Advice, Blocker, CompositeReport, CompositeRunner, DelegateFailure, GraphView, NodeReport,
    PartitionReport, Rejection, Report, Runner, Split,
};

/// The runner of each node of a model, or the reason for a rejection, and advice on what to support next.
#[derive(Debug, Serialize)]
pub struct Explanation {
    pub(crate) model: String,
    pub(crate) delegates: Vec<String>,
    /// The kernels that run unclaimed nodes: `cpu` or `reference`.
    pub(crate) cpu: &'static str,
    /// The section of the entry subgraph.
    #[serde(flatten)]
    pub(crate) entry: Section,
    /// Delegates that failed. Their nodes returned to the CPU.
    pub(crate) failures: Vec<FailureLine>,
    /// Ops without a kernel: the model cannot run, and their output shapes are taken from the file.
    pub(crate) unresolved: Vec<Value>,
    #[serde(skip)]
    #[cfg_attr(not(feature = "cli"), allow(dead_code))]
    pub(crate) unresolved_text: Vec<String>,
    /// Ops whose version is lower than that of the features that their nodes use.
    pub(crate) understated_versions: Vec<UnderstatedLine>,
    /// Nodes of subgraphs other than the entry.
    pub(crate) called_nodes: usize,
    /// Subgraphs other than the entry: bodies of control flow, decompositions of composites, other signatures.
    pub(crate) subgraphs: Vec<SubgraphSection>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SubgraphSection {
    pub(crate) subgraph: usize,
    pub(crate) name: String,
    pub(crate) node_count: usize,
    /// False if no node on the CPU calls it: a delegate claimed the caller, or another signature uses it.
    pub(crate) prepared: bool,
    /// Whether a node calls it, after functions and composites were inlined.
    #[serde(skip)]
    #[cfg_attr(not(feature = "cli"), allow(dead_code))]
    pub(crate) called: bool,
    #[serde(flatten)]
    pub(crate) section: Option<Section>,
}

/// The report of one subgraph.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) nodes: Vec<NodeLine>,
    pub(crate) partitions: Vec<PartitionLine>,
    /// The runner of each marked composite.
    pub(crate) composites: Vec<CompositeLine>,
    pub(crate) delegated_nodes: usize,
    /// Nodes over constants: computed while preparing.
    pub(crate) folded_nodes: usize,
    pub(crate) cpu_nodes: usize,
    /// Nodes without a kernel that no delegate runs.
    pub(crate) unresolved_nodes: usize,
    pub(crate) total_nodes: usize,
    /// Multiply-adds of one run of all nodes.
    pub(crate) multiply_adds: u64,
    /// The reasons that keep nodes from being delegated; those that cost most first.
    pub(crate) fix_first: Vec<BlockerLine>,
    /// Pairs of blockers that merge more partitions together than separately, by their indices in `fix_first`.
    pub(crate) fix_pairs: Vec<PairLine>,
    /// The gain of fixing all of `fix_first`, if there are several.
    pub(crate) fix_all: Option<Gain>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NodeLine {
    pub(crate) node: usize,
    pub(crate) op: String,
    pub(crate) version: u32,
    /// A delegate's name, `cpu`, `reference`, `folded`, or `none` if no kernel is registered and no delegate claims it.
    pub(crate) runner: String,
    pub(crate) partition: Option<usize>,
    pub(crate) multiply_adds: u64,
    pub(crate) rejections: Vec<RejectionLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CompositeLine {
    pub(crate) name: String,
    pub(crate) version: u32,
    /// `delegate`, `kernel`, `inlined` or `called`.
    pub(crate) resolution: &'static str,
    /// The delegate's name, if a delegate runs it.
    pub(crate) delegate: Option<String>,
    /// The node, or the nodes of its inlined body.
    pub(crate) nodes: Vec<usize>,
    /// The reasons why delegates did not claim it as a whole.
    pub(crate) rejections: Vec<RejectionLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RejectionLine {
    pub(crate) delegate: String,
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct PartitionLine {
    pub(crate) delegate: String,
    pub(crate) node_count: usize,
    pub(crate) nodes: Vec<usize>,
    pub(crate) multiply_adds: u64,
    pub(crate) inputs: Vec<TensorLine>,
    pub(crate) outputs: Vec<TensorLine>,
    /// Floats that the device stores in 16 bits.
    pub(crate) half_tensors: Vec<TensorLine>,
    pub(crate) boundary_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct TensorLine {
    pub(crate) tensor: usize,
    pub(crate) name: String,
    pub(crate) r#type: &'static str,
    /// `None` if it is known only while running.
    pub(crate) shape: Option<Vec<usize>>,
    pub(crate) bytes: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FailureLine {
    pub(crate) delegate: String,
    pub(crate) message: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct BlockerLine {
    pub(crate) delegate: String,
    pub(crate) op: String,
    pub(crate) version: u32,
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    pub(crate) nodes: Vec<usize>,
    /// `None` if it was not tried because there are too many blockers.
    pub(crate) gain: Option<Gain>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PairLine {
    pub(crate) blockers: [usize; 2],
    pub(crate) gain: Gain,
}

/// The effect of claiming the nodes.
#[derive(Debug, Serialize)]
pub(crate) struct Gain {
    pub(crate) partitions_before: usize,
    pub(crate) partitions_after: usize,
    /// Further delegated nodes.
    pub(crate) nodes: usize,
    pub(crate) multiply_adds: u64,
    /// Reduction of the bytes that cross partition borders; negative for an increase.
    pub(crate) boundary_bytes_saved: i64,
}

impl Gain {
    fn new(now: &Split, without: &Split) -> Self {
        Gain {
            partitions_before: now.partitions,
            partitions_after: without.partitions,
            nodes: without.nodes.saturating_sub(now.nodes),
            multiply_adds: without.multiply_adds.saturating_sub(now.multiply_adds),
            boundary_bytes_saved: now
                .boundary_bytes
                .cast_signed()
                .saturating_sub_unsigned(without.boundary_bytes),
        }
    }
}

/// The runner of nodes without a kernel.
const NO_KERNEL: &str = "none";

/// The runner of nodes without a delegate.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Runners<'a> {
    /// The name of the CPU kernels: `cpu` or `reference`.
    pub cpu: &'static str,
    /// Ops that they do not include.
    pub unresolved: Option<&'a UnresolvedOps>,
}

impl<'a> Runners<'a> {
    /// Creates the runners for CPU kernels of this name, `cpu` or `reference`, that include every op of the model.
    #[must_use]
    pub fn new(cpu: &'static str) -> Self {
        Runners { cpu, unresolved: None }
    }

    /// Sets the ops that the CPU kernels do not include.
    #[must_use]
    pub fn with_unresolved(mut self, ops: impl Into<Option<&'a UnresolvedOps>>) -> Self {
        self.unresolved = ops.into();
        self
    }

    fn unresolved(&self) -> &[UnresolvedOp] {
        self.unresolved.map_or(&[], |unresolved| &unresolved.ops)
    }

    /// Returns the name of the runner of this node; `none` without a kernel.
    #[must_use]
    pub fn of(&self, node: &NodeReport) -> &'static str {
        if self.lack(node) { NO_KERNEL } else { self.cpu }
    }

    /// Returns whether the CPU kernels do not include this node's op.
    #[must_use]
    pub fn lack(&self, node: &NodeReport) -> bool {
        self.unresolved().iter().any(|op| op.op == node.op && op.version == node.version)
    }
}

/// Explains the runners of the nodes of a prepared interpreter, whose model has this name. `understated` has the
/// understated versions of the model's file. `None` for a model without subgraphs, and while the first one is not
/// prepared.
pub fn explain(
    model: String,
    runners: Runners<'_>,
    interpreter: &Interpreter,
    understated: Understated,
) -> Option<Explanation> {
    let prepared = |i: usize| Some((interpreter.graph(i)?, interpreter.subgraph_report(i)?));
    let (graph, report) = prepared(0)?;
    let signatures = interpreter.model().signatures().iter().map(|signature| signature.subgraph());
    let running: BTreeSet<usize> = reached(interpreter, signatures.chain([0])).into_iter().collect();
    let all = interpreter.model().subgraphs();
    let called: BTreeSet<usize> =
        all.iter().flat_map(|subgraph| subgraph.nodes()).flat_map(|node| node.callees()).collect();
    let subgraphs: Vec<SubgraphSection> = all
        .iter()
        .enumerate()
        .skip(1)
        .map(|(i, subgraph)| {
            // A body is prepared before a delegate claims the node that calls it.
            let section = prepared(i).filter(|_| running.contains(&i));
            let section = section.map(|(graph, report)| Section::new(&graph, report, runners, &[]));
            SubgraphSection {
                subgraph: i,
                name: subgraph.name().to_owned(),
                node_count: subgraph.nodes().len(),
                prepared: section.is_some(),
                called: called.contains(&i),
                section,
            }
        })
        .collect();
    let failure = |failure: &DelegateFailure| FailureLine {
        delegate: failure.delegate.clone(),
        message: failure.message.clone(),
    };
    Some(Explanation {
        model,
        delegates: report.delegates.clone(),
        cpu: runners.cpu,
        entry: Section::new(&graph, report, runners, &interpreter.half_tensors()),
        failures: report.failures.iter().map(failure).collect(),
        unresolved: runners.unresolved().iter().map(unresolved_op).collect(),
        unresolved_text: runners.unresolved().iter().map(ToString::to_string).collect(),
        understated_versions: understated.0,
        called_nodes: subgraphs.iter().map(|s| s.node_count).sum(),
        subgraphs,
    })
}

/// Returns the prepared subgraphs that run if those in `entries` do: these, and the subgraphs that their nodes call,
/// directly or through others. A delegate runs the nodes that it claims without the subgraphs that they call.
pub(crate) fn reached(interpreter: &Interpreter, entries: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut seen: BTreeSet<usize> = entries.into_iter().collect();
    let mut open: Vec<usize> = seen.iter().copied().collect();
    let mut found = Vec::new();
    while let Some(index) = open.pop() {
        let Some(report) = interpreter.subgraph_report(index) else { continue };
        found.push(index);
        let Some(subgraph) = interpreter.model().subgraphs().get(index) else { continue };
        let on_cpu = report.nodes.iter().filter(|node| !matches!(node.runner, Runner::Delegate { .. }));
        let nodes = on_cpu.filter_map(|node| subgraph.nodes().get(node.node.0));
        open.extend(nodes.flat_map(|node| node.callees()).filter(|callee| seen.insert(*callee)));
    }
    found
}

impl Section {
    /// `halves`: per partition, the floats that the device stores in 16 bits.
    fn new(graph: &GraphView<'_>, report: &Report, runners: Runners<'_>, halves: &[Vec<TensorId>]) -> Self {
        let delegate = |i: usize| report.delegates.get(i).cloned().unwrap_or_default();
        let rejections = |list: &[(usize, Rejection)]| {
            let line = |(d, r): &(usize, Rejection)| RejectionLine {
                delegate: delegate(*d),
                kind: r.kind(),
                reason: r.to_string(),
            };
            list.iter().map(line).collect::<Vec<_>>()
        };
        let node = |n: &NodeReport| {
            let (runner, partition) = match &n.runner {
                Runner::Folded => ("folded".into(), None),
                Runner::Delegate { delegate: d, partition } => (delegate(*d), Some(*partition)),
                _ => (runners.of(n).to_owned(), None),
            };
            NodeLine {
                node: n.node.0,
                op: raw_name(&n.op),
                version: n.version,
                runner,
                partition,
                multiply_adds: graph.node(n.node).cost().multiply_adds,
                rejections: rejections(&n.rejections),
            }
        };
        let tensors = |ids: &[TensorId]| ids.iter().map(|&id| TensorLine::new(graph, id)).collect();
        let partition = |(i, p): (usize, &PartitionReport)| PartitionLine {
            delegate: delegate(p.delegate),
            node_count: p.nodes.len(),
            nodes: p.nodes.iter().map(|n| n.0).collect(),
            multiply_adds: p.multiply_adds,
            inputs: tensors(&p.inputs),
            outputs: tensors(&p.outputs),
            half_tensors: halves.get(i).map_or_else(Vec::new, |halves| tensors(halves)),
            boundary_bytes: p.boundary_bytes,
        };
        let advice = Advice::new(graph, report);
        let gain = |without: &Split| Gain::new(&advice.now, without);
        let blocker = |o: &Blocker| BlockerLine {
            delegate: delegate(o.delegate),
            op: raw_name(&o.op),
            version: o.version,
            kind: o.reason.kind(),
            reason: o.reason.to_string(),
            nodes: o.nodes.iter().map(|n| n.0).collect(),
            gain: o.without.as_ref().map(gain),
        };
        let pairs = advice.pairs.iter();
        let on = |wanted: &Runner| report.nodes.iter().filter(|n| n.runner == *wanted).collect::<Vec<_>>();
        let on_cpu = on(&Runner::Cpu);
        let unresolved = on_cpu.iter().filter(|n| runners.of(n) == NO_KERNEL).count();
        let nodes: Vec<NodeLine> = report.nodes.iter().map(node).collect();
        let composite = |c: &CompositeReport| {
            let (resolution, number) = match c.runner {
                CompositeRunner::Delegate(number) => ("delegate", Some(number)),
                CompositeRunner::Kernel => ("kernel", None),
                CompositeRunner::Inlined => ("inlined", None),
                _ => ("called", None),
            };
            CompositeLine {
                name: c.name.clone(),
                version: c.version,
                resolution,
                delegate: number.map(delegate),
                nodes: c.nodes.iter().map(|n| n.0).collect(),
                rejections: rejections(&c.rejections),
            }
        };
        Section {
            partitions: report.partitions.iter().enumerate().map(partition).collect(),
            composites: report.composites.iter().map(composite).collect(),
            delegated_nodes: report.delegated_nodes(),
            folded_nodes: on(&Runner::Folded).len(),
            cpu_nodes: on_cpu.len() - unresolved,
            unresolved_nodes: unresolved,
            total_nodes: nodes.len(),
            multiply_adds: nodes.iter().fold(0, |sum, n| sum.saturating_add(n.multiply_adds)),
            nodes,
            fix_first: advice.blockers.iter().map(blocker).collect(),
            fix_pairs: pairs.map(|p| PairLine { blockers: p.blockers, gain: gain(&p.without) }).collect(),
            fix_all: advice.all.as_ref().map(gain),
        }
    }
}

impl TensorLine {
    fn new(graph: &GraphView<'_>, id: TensorId) -> Self {
        let tensor = graph.tensor(id);
        let shape = tensor.shape();
        TensorLine {
            tensor: id.0,
            name: tensor.name().to_owned(),
            r#type: tensor.ty().name(),
            shape: shape.map(|s| s.dims().to_vec()),
            bytes: shape.and_then(|_| tensor.tensor().byte_size().ok()),
        }
    }
}
