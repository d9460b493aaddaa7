//! `explain`: who runs each node, or why not.

use std::collections::HashMap;

use delegraph::Interpreter;
use delegraph::core::TensorId;
use delegraph::delegate_api::{NodeReport, PartitionReport, Runner};
use serde::Serialize;

use super::delegates::Engine;
use super::failure::{Exit, Failure};
use super::model::ModelArgument;
use super::output::{Document, Output, bytes, table};

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
    nodes: Vec<NodeLine>,
    partitions: Vec<PartitionLine>,
    /// Delegates that failed: what they claimed went back to the CPU.
    failures: Vec<FailureLine>,
    delegated_nodes: usize,
    /// Nodes over constants: computed while preparing.
    folded_nodes: usize,
    cpu_nodes: usize,
    total_nodes: usize,
    /// Nodes of subgraphs that others call, which no delegate is asked about.
    called_nodes: usize,
    /// The reasons that keep nodes from being delegated; those of most nodes first.
    fix_first: Vec<Obstacle>,
}

#[derive(Serialize)]
struct NodeLine {
    node: usize,
    op: String,
    version: u32,
    /// A delegate's name, `cpu`, `reference` or `folded`.
    runner: String,
    partition: Option<usize>,
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
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
    boundary_bytes: usize,
}

#[derive(Serialize)]
struct TensorLine {
    tensor: usize,
    name: String,
    r#type: &'static str,
}

#[derive(Serialize)]
struct FailureLine {
    delegate: String,
    message: String,
}

#[derive(Serialize)]
struct Obstacle {
    op: String,
    version: u32,
    kind: &'static str,
    reason: String,
    nodes: Vec<usize>,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let interpreter = arguments.engine.build(model)?;
    out.print(&explain(arguments.model.name(), arguments.engine.cpu_name(), &interpreter))?;
    Ok(Exit::Fine)
}

fn explain(model: String, cpu: &'static str, interpreter: &Interpreter) -> Explanation {
    let report = interpreter.report();
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
        let rejections = rejections.collect();
        NodeLine { node: n.node.0, op: n.op.to_string(), version: n.version, runner, partition, rejections }
    };
    let tensors = |ids: &[TensorId]| {
        let tensors = interpreter.model().subgraphs.first().map_or(&[][..], |s| &s.tensors);
        let line = |id: &TensorId| {
            let tensor = tensors.get(id.0)?;
            Some(TensorLine { tensor: id.0, name: tensor.name.to_string(), r#type: tensor.ty.name() })
        };
        ids.iter().filter_map(line).collect()
    };
    let partition = |p: &PartitionReport| PartitionLine {
        delegate: delegate(p.delegate),
        node_count: p.nodes.len(),
        nodes: p.nodes.iter().map(|n| n.0).collect(),
        inputs: tensors(&p.inputs),
        outputs: tensors(&p.outputs),
        boundary_bytes: p.boundary_bytes,
    };
    let count = |wanted: &Runner| report.nodes.iter().filter(|n| n.runner == *wanted).count();
    Explanation {
        model,
        delegates: report.delegates.clone(),
        cpu,
        nodes: report.nodes.iter().map(node).collect(),
        partitions: report.partitions.iter().map(partition).collect(),
        failures: report
            .failures
            .iter()
            .map(|(delegate, message)| FailureLine { delegate: delegate.clone(), message: message.clone() })
            .collect(),
        delegated_nodes: report.delegated_nodes(),
        folded_nodes: count(&Runner::Folded),
        cpu_nodes: count(&Runner::Cpu),
        total_nodes: report.nodes.len(),
        called_nodes: interpreter.model().subgraphs.iter().skip(1).map(|s| s.nodes.len()).sum(),
        fix_first: obstacles(&report.nodes),
    }
}

/// The reasons for which the last delegate asked left nodes to the CPU, by how many nodes they keep there.
fn obstacles(nodes: &[NodeReport]) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = Vec::new();
    let mut known = HashMap::new();
    for node in nodes.iter().filter(|n| n.runner == Runner::Cpu) {
        let Some((_, rejection)) = node.rejections.last() else { continue };
        let (op, version, reason) = (node.op.to_string(), node.version, rejection.to_string());
        let at = *known.entry((op.clone(), version, reason.clone())).or_insert_with(|| {
            obstacles.push(Obstacle { op, version, kind: rejection.kind(), reason, nodes: Vec::new() });
            obstacles.len() - 1
        });
        if let Some(obstacle) = obstacles.get_mut(at) {
            obstacle.nodes.push(node.node.0);
        }
    }
    obstacles.sort_by_key(|o| std::cmp::Reverse(o.nodes.len()));
    obstacles
}

impl Document for Explanation {
    fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.model);
        let row = |n: &NodeLine| {
            let runner = n.partition.map_or_else(|| n.runner.clone(), |p| format!("{} #{p}", n.runner));
            let reasons = n.rejections.iter().map(|r| format!("{}: {} ({})", r.delegate, r.reason, r.kind));
            vec![
                n.node.to_string(),
                n.op.clone(),
                n.version.to_string(),
                runner,
                reasons.collect::<Vec<_>>().join("; "),
            ]
        };
        text += &table(
            &["node", "op", "version", "runs on", "why not elsewhere"],
            &[0, 2],
            self.nodes.iter().map(row),
        );
        let row = |(i, p): (usize, &PartitionLine)| {
            let names = |tensors: &[TensorLine]| {
                let name = |t: &TensorLine| {
                    if t.name.is_empty() { format!("#{}", t.tensor) } else { t.name.clone() }
                };
                let shown: Vec<String> = tensors.iter().take(4).map(name).collect();
                let more = tensors.len().saturating_sub(4);
                shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
            };
            vec![
                format!("#{i}"),
                p.delegate.clone(),
                p.node_count.to_string(),
                names(&p.inputs),
                names(&p.outputs),
                bytes(p.boundary_bytes),
            ]
        };
        let partitions = table(
            &["partition", "delegate", "nodes", "inputs", "outputs", "boundary"],
            &[2, 5],
            self.partitions.iter().enumerate().map(row),
        );
        if !partitions.is_empty() {
            text += &format!("\n{partitions}");
        }
        for failure in &self.failures {
            text += &format!("\nfailed and left out: {}: {}\n", failure.delegate, failure.message);
        }
        let (delegated, total, folded) = (self.delegated_nodes, self.total_nodes, self.folded_nodes);
        text += &format!(
            "\n{delegated} of {total} nodes delegated, {} on {}, {folded} computed while preparing\n",
            self.cpu_nodes, self.cpu
        );
        if self.called_nodes > 0 {
            text += &format!("{} nodes of other subgraphs run on {}\n", self.called_nodes, self.cpu);
        }
        if !self.fix_first.is_empty() {
            let row = |o: &Obstacle| {
                vec![
                    o.nodes.len().to_string(),
                    format!("{} v{}", o.op, o.version),
                    o.reason.clone(),
                    o.kind.into(),
                ]
            };
            let rows = self.fix_first.iter().take(5).map(row);
            text +=
                &format!("\nwhat to fix first\n{}", table(&["nodes", "op", "reason", "kind"], &[0], rows));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph::core::{BuiltinOp, NodeId, Op};
    use delegraph::delegate_api::Rejection;

    #[test]
    fn the_reason_of_most_nodes_comes_first() {
        let op = Op::Builtin(BuiltinOp::ADD);
        let node = |i: usize, rejection: Option<Rejection>, runner: Runner| NodeReport {
            node: NodeId(i),
            op: op.clone(),
            version: 1,
            runner,
            rejections: rejection.map(|r| (0, r)).into_iter().collect(),
        };
        let param = |s: &str| Some(Rejection::UnsupportedParam(s.into()));
        let nodes = [
            node(0, param("a"), Runner::Cpu),
            node(1, param("b"), Runner::Cpu),
            node(2, param("b"), Runner::Cpu),
            node(3, param("a"), Runner::Folded),
            node(4, param("a"), Runner::Folded),
            node(5, None, Runner::Cpu),
        ];
        let found: Vec<_> = obstacles(&nodes).into_iter().map(|o| (o.reason, o.nodes)).collect();
        assert_eq!(found, [("b".into(), vec![1, 2]), ("a".into(), vec![0])]);
    }
}
