//! The report on delegation, and the changes with the largest gain, as JSON.

use delegraph::Interpreter;
use delegraph::core::{Op, TensorId};
use delegraph::delegate_api::{Advice, Report, Runner};
use delegraph::interpreter::kernels::Isa;
use serde::Serialize;

use crate::describe::tensor_name;

/// The report on the selected subgraph, with advice and the memory of its arena.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    delegates: Vec<String>,
    nodes: Vec<Node>,
    partitions: Vec<Partition>,
    failures: Vec<Failure>,
    advice: Vec<Blocker>,
    memory_bytes: usize,
    instruction_set: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    index: usize,
    op: String,
    version: u32,
    /// `cpu`, `folded` or `delegate`.
    runner: &'static str,
    delegate: Option<String>,
    partition: Option<usize>,
    rejections: Vec<Rejected>,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Named>,
    multiply_adds: u64,
}

/// A tensor that a node writes.
#[derive(Serialize)]
struct Named {
    index: usize,
    name: String,
    #[serde(rename = "type")]
    ty: String,
    shape: Vec<usize>,
}

#[derive(Serialize)]
struct Rejected {
    delegate: String,
    kind: &'static str,
    reason: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Partition {
    delegate: String,
    nodes: Vec<usize>,
    multiply_adds: u64,
    boundary_bytes: u64,
    dispatches: usize,
    device_bytes: u64,
    upload_milliseconds: Option<f64>,
    device_milliseconds: Option<f64>,
    readback_milliseconds: Option<f64>,
}

#[derive(Serialize)]
struct Failure {
    delegate: String,
    message: String,
}

/// A reason for which nodes are not delegated, and the partitions without it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blocker {
    delegate: String,
    op: String,
    version: u32,
    reason: String,
    nodes: usize,
    partitions_now: usize,
    partitions_without: Option<usize>,
}

/// Summarizes the report of `interpreter`, whose selected subgraph has this index.
pub(crate) fn summarize(interpreter: &Interpreter, subgraph: usize) -> Summary {
    let report = interpreter.report();
    Summary {
        delegates: report.delegates.clone(),
        nodes: report.nodes.iter().map(|node| describe(interpreter, subgraph, report, node)).collect(),
        partitions: partitions(interpreter, report),
        failures: report
            .failures
            .iter()
            .map(|f| Failure { delegate: f.delegate.clone(), message: f.message.clone() })
            .collect(),
        advice: advice(interpreter, subgraph, report),
        memory_bytes: interpreter.memory().arena_bytes,
        instruction_set: Isa::best().name(),
    }
}

fn describe(
    interpreter: &Interpreter,
    subgraph: usize,
    report: &Report,
    node: &delegraph::delegate_api::NodeReport,
) -> Node {
    let (runner, delegate, partition) = match node.runner {
        Runner::Delegate { delegate, partition } => ("delegate", Some(delegate), Some(partition)),
        Runner::Folded => ("folded", None, None),
        _ => ("cpu", None, None),
    };
    let model = interpreter.model();
    let file = model.subgraph(subgraph).and_then(|subgraph| subgraph.nodes().get(node.node.0));
    let view = interpreter.graph(subgraph);
    let tensor = |id: &TensorId| {
        let now = interpreter.tensor(*id).ok();
        Named {
            index: id.0,
            name: tensor_name(model, subgraph, *id),
            ty: now.map_or_else(String::new, |tensor| tensor.ty.name().to_lowercase()),
            shape: now.map(|tensor| tensor.shape.dims().to_vec()).unwrap_or_default(),
        }
    };
    let rejected = |(delegate, reason): &(usize, delegraph::delegate_api::Rejection)| Rejected {
        delegate: name(report, *delegate),
        kind: reason.kind(),
        reason: reason.to_string(),
    };
    Node {
        index: node.node.0,
        op: op_name(&node.op),
        version: node.version,
        runner,
        delegate: delegate.map(|delegate| name(report, delegate)),
        partition,
        rejections: node.rejections.iter().map(rejected).collect(),
        inputs: file
            .map(|node| node.inputs().iter().map(|id| id.map(|id| id.0)).collect())
            .unwrap_or_default(),
        outputs: file.map(|node| node.outputs().iter().map(tensor).collect()).unwrap_or_default(),
        multiply_adds: view.map_or(0, |view| view.node(node.node).cost().multiply_adds),
    }
}

fn partitions(interpreter: &Interpreter, report: &Report) -> Vec<Partition> {
    let stats = interpreter.delegate_stats();
    let milliseconds = |time: Option<std::time::Duration>| time.map(|time| time.as_nanos() as f64 / 1e6);
    let describe = |(i, partition): (usize, &delegraph::delegate_api::PartitionReport)| {
        let stats = stats.get(i);
        Partition {
            delegate: name(report, partition.delegate),
            nodes: partition.nodes.iter().map(|id| id.0).collect(),
            multiply_adds: partition.multiply_adds,
            boundary_bytes: partition.boundary_bytes,
            dispatches: stats.map_or(0, |stats| stats.dispatches),
            device_bytes: stats.map_or(0, |stats| stats.device_bytes),
            upload_milliseconds: milliseconds(stats.and_then(|stats| stats.upload_time)),
            device_milliseconds: milliseconds(stats.and_then(|stats| stats.device_time)),
            readback_milliseconds: milliseconds(stats.and_then(|stats| stats.readback_time)),
        }
    };
    report.partitions.iter().enumerate().map(describe).collect()
}

fn advice(interpreter: &Interpreter, subgraph: usize, report: &Report) -> Vec<Blocker> {
    let Some(graph) = interpreter.graph(subgraph).filter(|_| !report.delegates.is_empty()) else {
        return Vec::new();
    };
    let advice = Advice::new(&graph, report);
    let blocker = |blocker: &delegraph::delegate_api::Blocker| Blocker {
        delegate: name(report, blocker.delegate),
        op: op_name(&blocker.op),
        version: blocker.version,
        reason: blocker.reason.to_string(),
        nodes: blocker.nodes.len(),
        partitions_now: advice.now.partitions,
        partitions_without: blocker.without.map(|without| without.partitions),
    };
    advice.blockers.iter().map(blocker).collect()
}

/// Returns an op's name without quotes.
fn op_name(op: &Op) -> String {
    match op {
        Op::Custom(name) => name.to_string(),
        op => op.to_string(),
    }
}

fn name(report: &Report, delegate: usize) -> String {
    report.delegates.get(delegate).cloned().unwrap_or_else(|| format!("delegate {delegate}"))
}
