//! `explain`: what runs each node, or the reason for a rejection, and what to support next.

use delegraph::Interpreter;
use delegraph::core::TensorId;
use delegraph::core::error::{UnresolvedOp, UnresolvedOps};
use delegraph::delegate_api::{
    Advice, Blocker, CompositeReport, CompositeRunner, DelegateFailure, GraphView, NodeReport,
    PartitionReport, Rejection, Report, Runner, Split,
};
use serde::Serialize;
use serde_json::Value;

use super::delegates::Engine;
use super::failure::{Exit, Failure, unresolved_op};
use super::model::ModelArgument;
use super::output::Output;
use super::text::raw_name;
use super::versions::{UnderstatedLine, understated};

mod text;

/// Show what runs each node, or the reason why a delegate does not
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    engine: Engine,
}

#[derive(Serialize)]
struct Explanation {
    model: String,
    delegates: Vec<String>,
    /// The kernels that run unclaimed nodes: `cpu` or `reference`.
    cpu: &'static str,
    /// The section of the entry subgraph.
    #[serde(flatten)]
    entry: Section,
    /// Delegates that failed: what they claimed went back to the CPU.
    failures: Vec<FailureLine>,
    /// Ops without a kernel: the model cannot run, and shapes of the file stand for what they would compute.
    unresolved: Vec<Value>,
    #[serde(skip)]
    unresolved_text: Vec<String>,
    /// Ops whose version is lower than that of the features that their nodes use.
    understated_versions: Vec<UnderstatedLine>,
    /// Nodes of subgraphs other than the entry.
    called_nodes: usize,
    /// Subgraphs other than the entry: bodies of control flow, decompositions of composites, other signatures.
    subgraphs: Vec<SubgraphSection>,
}

#[derive(Serialize)]
struct SubgraphSection {
    subgraph: usize,
    name: String,
    node_count: usize,
    /// False if no node on the CPU calls it: a delegate claimed the caller, or another signature uses it.
    prepared: bool,
    #[serde(flatten)]
    section: Option<Section>,
}

/// The report of one subgraph.
#[derive(Serialize)]
struct Section {
    nodes: Vec<NodeLine>,
    partitions: Vec<PartitionLine>,
    /// The runner of each marked composite.
    composites: Vec<CompositeLine>,
    delegated_nodes: usize,
    /// Nodes over constants: computed while preparing.
    folded_nodes: usize,
    cpu_nodes: usize,
    total_nodes: usize,
    /// Multiply-adds of one run of all nodes.
    multiply_adds: u64,
    /// The reasons that keep nodes from being delegated; those that cost most first.
    fix_first: Vec<BlockerLine>,
    /// Blockers that keep partitions apart together, by their place in `fix_first`.
    fix_pairs: Vec<PairLine>,
    /// The gain of fixing all of `fix_first`, if there are several.
    fix_all: Option<Gain>,
}

#[derive(Serialize)]
struct NodeLine {
    node: usize,
    op: String,
    version: u32,
    /// A delegate's name, `cpu`, `reference`, `folded`, or `none` if no kernel is registered.
    runner: String,
    partition: Option<usize>,
    multiply_adds: u64,
    rejections: Vec<RejectionLine>,
}

#[derive(Serialize)]
struct CompositeLine {
    name: String,
    version: u32,
    /// `delegate`, `kernel`, `inlined` or `called`.
    resolution: &'static str,
    /// The delegate's name, where one has it.
    delegate: Option<String>,
    /// The node, or those of its body where that took its place.
    nodes: Vec<usize>,
    /// Why delegates left it as a whole.
    rejections: Vec<RejectionLine>,
}

#[derive(Serialize)]
struct RejectionLine {
    delegate: String,
    kind: &'static str,
    reason: String,
}

#[derive(Serialize)]
struct PartitionLine {
    delegate: String,
    node_count: usize,
    nodes: Vec<usize>,
    multiply_adds: u64,
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
    /// Floats that the device stores in 16 bits.
    half_tensors: Vec<TensorLine>,
    boundary_bytes: usize,
}

#[derive(Serialize)]
struct TensorLine {
    tensor: usize,
    name: String,
    r#type: &'static str,
    /// None where it is known only while running.
    shape: Option<Vec<usize>>,
    bytes: Option<usize>,
}

#[derive(Serialize)]
struct FailureLine {
    delegate: String,
    message: String,
}

#[derive(Serialize)]
struct BlockerLine {
    delegate: String,
    op: String,
    version: u32,
    kind: &'static str,
    reason: String,
    nodes: Vec<usize>,
    /// None where it was not tried: there are very many blockers.
    gain: Option<Gain>,
}

#[derive(Serialize)]
struct PairLine {
    blockers: [usize; 2],
    gain: Gain,
}

/// The effect of claiming the nodes.
#[derive(Serialize)]
struct Gain {
    partitions_before: usize,
    partitions_after: usize,
    /// Delegated then, beside those that are now.
    nodes: usize,
    multiply_adds: u64,
    /// Bytes less over the borders of partitions; negative where there are more.
    boundary_bytes_saved: i64,
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

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let understated = understated(&model);
    let (interpreter, missing) = arguments.engine.build_shown(model)?;
    let runners = Runners { cpu: arguments.engine.cpu_name(), missing: missing.as_ref() };
    out.print(&explain(arguments.model.name(), runners, &interpreter, understated)?)?;
    Ok(Exit::Fine)
}

/// What runs nodes that no delegate runs.
#[derive(Clone, Copy)]
struct Runners<'a> {
    /// The name of the CPU kernels.
    cpu: &'static str,
    /// Ops that they do not include.
    missing: Option<&'a UnresolvedOps>,
}

impl Runners<'_> {
    fn missing(&self) -> &[UnresolvedOp] {
        self.missing.map_or(&[], |missing| &missing.ops)
    }

    /// Returns the name of what runs this node.
    fn of(&self, node: &NodeReport) -> &'static str {
        let missing = |op: &UnresolvedOp| op.op == node.op && op.version == node.version;
        if self.missing().iter().any(missing) { "none" } else { self.cpu }
    }
}

fn explain(
    model: String,
    runners: Runners<'_>,
    interpreter: &Interpreter,
    understated_versions: Vec<UnderstatedLine>,
) -> Result<Explanation, Failure> {
    let prepared = |i: usize| Some((interpreter.graph(i)?, interpreter.subgraph_report(i)?));
    let (graph, report) = prepared(0).ok_or_else(|| Failure::invalid("the model has no subgraph"))?;
    let called = interpreter.model().subgraphs().iter().enumerate().skip(1);
    let subgraphs: Vec<SubgraphSection> = called
        .map(|(i, subgraph)| {
            let section = prepared(i).map(|(graph, report)| Section::new(&graph, report, runners, &[]));
            SubgraphSection {
                subgraph: i,
                name: subgraph.name().to_owned(),
                node_count: subgraph.nodes().len(),
                prepared: section.is_some(),
                section,
            }
        })
        .collect();
    let failure = |failure: &DelegateFailure| FailureLine {
        delegate: failure.delegate.clone(),
        message: failure.message.clone(),
    };
    Ok(Explanation {
        model,
        delegates: report.delegates.clone(),
        cpu: runners.cpu,
        entry: Section::new(&graph, report, runners, &interpreter.half_tensors()),
        failures: report.failures.iter().map(failure).collect(),
        unresolved: runners.missing().iter().map(unresolved_op).collect(),
        unresolved_text: runners.missing().iter().map(ToString::to_string).collect(),
        understated_versions,
        called_nodes: subgraphs.iter().map(|s| s.node_count).sum(),
        subgraphs,
    })
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
        let count = |wanted: &Runner| report.nodes.iter().filter(|n| n.runner == *wanted).count();
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
            folded_nodes: count(&Runner::Folded),
            cpu_nodes: count(&Runner::Cpu),
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
