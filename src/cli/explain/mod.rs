//! `explain`: who runs each node, or why not, and what to support next.

use delegraph::Interpreter;
use delegraph::core::TensorId;
use delegraph::delegate_api::{
    Advice, CompositeReport, CompositeRunner, GraphView, NodeReport, Obstacle, PartitionReport, Report,
    Runner, Split,
};
use serde::Serialize;

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::Output;

mod text;

/// Show who runs each node, or the reason why a delegate does not
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
    /// What runs the nodes that nobody takes: `cpu` or `reference`.
    cpu: &'static str,
    /// Of the entry subgraph.
    #[serde(flatten)]
    entry: Section,
    /// Delegates that failed: what they claimed went back to the CPU.
    failures: Vec<FailureLine>,
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
    /// False where nothing that runs on the CPU calls it: a delegate has the caller, or another signature begins there.
    prepared: bool,
    #[serde(flatten)]
    section: Option<Section>,
}

/// What there is to say of one subgraph.
#[derive(Serialize)]
struct Section {
    nodes: Vec<NodeLine>,
    partitions: Vec<PartitionLine>,
    /// What became of each marked composite.
    composites: Vec<CompositeLine>,
    delegated_nodes: usize,
    /// Nodes over constants: computed while preparing.
    folded_nodes: usize,
    cpu_nodes: usize,
    total_nodes: usize,
    /// Of one run of all nodes.
    multiply_adds: u64,
    /// The reasons that keep nodes from being delegated; those that cost most first.
    fix_first: Vec<ObstacleLine>,
    /// Obstacles that keep partitions apart together, by their place in `fix_first`.
    fix_pairs: Vec<PairLine>,
    /// What all of `fix_first` would give together, where there are several.
    fix_all: Option<Gain>,
}

#[derive(Serialize)]
struct NodeLine {
    node: usize,
    op: String,
    version: u32,
    /// A delegate's name, `cpu`, `reference` or `folded`.
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
struct ObstacleLine {
    delegate: String,
    op: String,
    version: u32,
    kind: &'static str,
    reason: String,
    nodes: Vec<usize>,
    /// None where it was not tried: there are very many obstacles.
    gain: Option<Gain>,
}

#[derive(Serialize)]
struct PairLine {
    obstacles: [usize; 2],
    gain: Gain,
}

/// What it would change if nodes were claimed.
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
    let interpreter = arguments.engine.build(model)?;
    out.print(&explain(arguments.model.name(), arguments.engine.cpu_name(), &interpreter)?)?;
    Ok(Exit::Fine)
}

fn explain(model: String, cpu: &'static str, interpreter: &Interpreter) -> Result<Explanation, Failure> {
    let prepared = |i: usize| Some((interpreter.graph(i)?, interpreter.subgraph_report(i)?));
    let (graph, report) = prepared(0).ok_or_else(|| Failure::invalid("the model has no subgraph"))?;
    let called = interpreter.model().subgraphs.iter().enumerate().skip(1);
    let subgraphs: Vec<SubgraphSection> = called
        .map(|(i, subgraph)| {
            let section = prepared(i).map(|(graph, report)| Section::new(&graph, report, cpu));
            SubgraphSection {
                subgraph: i,
                name: subgraph.name.clone(),
                node_count: subgraph.nodes.len(),
                prepared: section.is_some(),
                section,
            }
        })
        .collect();
    let failure = |(delegate, message): &(String, String)| FailureLine {
        delegate: delegate.clone(),
        message: message.clone(),
    };
    Ok(Explanation {
        model,
        delegates: report.delegates.clone(),
        cpu,
        entry: Section::new(&graph, report, cpu),
        failures: report.failures.iter().map(failure).collect(),
        called_nodes: subgraphs.iter().map(|s| s.node_count).sum(),
        subgraphs,
    })
}

impl Section {
    fn new(graph: &GraphView<'_>, report: &Report, cpu: &str) -> Self {
        let delegate = |i: usize| report.delegates.get(i).cloned().unwrap_or_default();
        let node = |n: &NodeReport| {
            let (runner, partition) = match &n.runner {
                Runner::Cpu => (cpu.to_owned(), None),
                Runner::Folded => ("folded".into(), None),
                Runner::Delegate { delegate: d, partition } => (delegate(*d), Some(*partition)),
            };
            let rejections = n.rejections.iter().map(|(d, r)| RejectionLine {
                delegate: delegate(*d),
                kind: r.kind(),
                reason: r.to_string(),
            });
            NodeLine {
                node: n.node.0,
                op: n.op.to_string(),
                version: n.version,
                runner,
                partition,
                multiply_adds: graph.node(n.node).cost().multiply_adds,
                rejections: rejections.collect(),
            }
        };
        let tensors = |ids: &[TensorId]| ids.iter().map(|&id| TensorLine::new(graph, id)).collect();
        let partition = |p: &PartitionReport| PartitionLine {
            delegate: delegate(p.delegate),
            node_count: p.nodes.len(),
            nodes: p.nodes.iter().map(|n| n.0).collect(),
            multiply_adds: p.multiply_adds,
            inputs: tensors(&p.inputs),
            outputs: tensors(&p.outputs),
            boundary_bytes: p.boundary_bytes,
        };
        let advice = Advice::new(graph, report);
        let gain = |without: &Split| Gain::new(&advice.now, without);
        let obstacle = |o: &Obstacle| ObstacleLine {
            delegate: delegate(o.delegate),
            op: o.op.to_string(),
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
                CompositeRunner::Called => ("called", None),
            };
            CompositeLine {
                name: c.name.clone(),
                version: c.version,
                resolution,
                delegate: number.map(delegate),
                nodes: c.nodes.iter().map(|n| n.0).collect(),
            }
        };
        Section {
            partitions: report.partitions.iter().map(partition).collect(),
            composites: report.composites.iter().map(composite).collect(),
            delegated_nodes: report.delegated_nodes(),
            folded_nodes: count(&Runner::Folded),
            cpu_nodes: count(&Runner::Cpu),
            total_nodes: nodes.len(),
            multiply_adds: nodes.iter().fold(0, |sum, n| sum.saturating_add(n.multiply_adds)),
            nodes,
            fix_first: advice.obstacles.iter().map(obstacle).collect(),
            fix_pairs: pairs.map(|p| PairLine { obstacles: p.obstacles, gain: gain(&p.without) }).collect(),
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
