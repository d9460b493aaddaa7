//! The nodes of each delegate, as one line each.

use std::collections::{BTreeMap, BTreeSet};

use delegraph::Interpreter;
use delegraph::core::printable;
use delegraph::delegate_api::{Policy, Report, Runner};
use serde::Serialize;

use crate::cli::text::plural;

/// A delegate and the nodes that it runs.
#[derive(Debug, Serialize)]
pub(crate) struct DelegateLine {
    /// The delegate's name.
    pub(crate) delegate: String,
    /// Nodes that it runs.
    pub(crate) nodes: usize,
    /// The number of nodes.
    pub(crate) total: usize,
    /// The partitions that they form.
    pub(crate) partitions: usize,
    /// The most frequent reason why it does not run the other nodes; `None` if it runs all.
    pub(crate) why: Option<String>,
}

impl DelegateLine {
    /// Returns the line as text.
    pub(crate) fn text(&self) -> String {
        let DelegateLine { delegate, nodes, total, partitions, why } = self;
        let partitions = match nodes {
            0 => String::new(),
            _ => format!(" in {}", plural(*partitions, "partition")),
        };
        let why = why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        format!("{delegate}: {nodes} of {}{partitions}{why}\n", plural(*total, "node"))
    }
}

/// The share of delegates in a run. All counts are of the entry subgraph and of the subgraphs that its nodes call, directly
/// or through others, each once. The body of a node that a delegate runs as a whole is not counted, only the node.
#[derive(Debug, Serialize)]
pub(crate) struct Delegation {
    pub(crate) partitions: usize,
    pub(crate) delegated_nodes: usize,
    pub(crate) total_nodes: usize,
    /// The nodes of each delegate, in the order in which they claim.
    pub(crate) delegates: Vec<DelegateLine>,
    /// Delegates that failed, with reasons; their nodes run on the CPU.
    pub(crate) failures: Vec<String>,
}

impl Delegation {
    /// Counts the nodes of a prepared interpreter that runs subgraph `entry`.
    pub(super) fn new(interpreter: &Interpreter, entry: usize, policy: Policy) -> Self {
        let reports = reached(interpreter, entry, policy);
        let names = reports.first().map_or(&[][..], |report| &report.delegates);
        let delegates: Vec<DelegateLine> =
            names.iter().enumerate().map(|(i, name)| line(i, name, &reports, policy)).collect();
        let mut failures: Vec<String> = Vec::new();
        for failure in reports.iter().flat_map(|report| &report.failures).map(ToString::to_string) {
            if !failures.contains(&failure) {
                failures.push(failure);
            }
        }
        Delegation {
            partitions: delegates.iter().map(|line| line.partitions).sum(),
            delegated_nodes: delegates.iter().map(|line| line.nodes).sum(),
            total_nodes: reports.iter().map(|report| report.nodes.len()).sum(),
            delegates,
            failures,
        }
    }

    /// Returns the lines of the delegates as text.
    pub(crate) fn text(&self) -> String {
        self.delegates.iter().map(DelegateLine::text).collect()
    }
}

/// Returns the reports on subgraph `entry` and on the prepared subgraphs that it calls, directly or through others.
fn reached(interpreter: &Interpreter, entry: usize, policy: Policy) -> Vec<&Report> {
    let (mut open, mut seen) = (vec![entry], BTreeSet::from([entry]));
    let mut reports = Vec::new();
    while let Some(index) = open.pop() {
        let Some(report) = interpreter.subgraph_report(index) else { continue };
        reports.push(report);
        let Some(subgraph) = interpreter.model().subgraphs().get(index) else { continue };
        // A delegate runs nodes without the prepared bodies that they call.
        let delegated =
            |runner: &Runner| policy != Policy::Report && matches!(runner, Runner::Delegate { .. });
        let on_cpu = report.nodes.iter().filter(|node| !delegated(&node.runner));
        let nodes = on_cpu.filter_map(|node| subgraph.nodes().get(node.node.0));
        open.extend(nodes.flat_map(|node| node.callees()).filter(|callee| seen.insert(*callee)));
    }
    reports
}

fn line(index: usize, name: &str, reports: &[&Report], policy: Policy) -> DelegateLine {
    let mut line = DelegateLine { delegate: name.into(), nodes: 0, total: 0, partitions: 0, why: None };
    // The number of nodes for each reason.
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut others = 0;
    for report in reports {
        let mut refused: BTreeMap<usize, String> = BTreeMap::new();
        for composite in report.composites.iter().filter(|composite| composite.is_inlined()) {
            let Some((_, reason)) = composite.refusals().find(|(delegate, _)| *delegate == index) else {
                continue;
            };
            let text = format!("composite \"{}\": {reason}", printable(&composite.name));
            refused.extend(composite.nodes.iter().map(|node| (node.0, text.clone())));
        }
        line.partitions += report.partitions.iter().filter(|p| p.delegate == index).count();
        line.total += report.nodes.len();
        for node in &report.nodes {
            let rejection = node.rejections.iter().find(|(delegate, _)| *delegate == index);
            match (&node.runner, rejection) {
                (Runner::Delegate { delegate, .. }, _) if *delegate == index => line.nodes += 1,
                (Runner::Folded, _) => *reasons.entry("computed while preparing".into()).or_default() += 1,
                (_, Some((_, reason))) => {
                    // The delegate would run the node as a part of the composite.
                    let reason = refused.get(&node.node.0).cloned().unwrap_or_else(|| reason.to_string());
                    *reasons.entry(reason).or_default() += 1;
                }
                (Runner::Delegate { .. }, None) => others += 1,
                _ => {}
            }
        }
    }
    if others > 0 {
        *reasons.entry("another delegate runs it".into()).or_default() += others;
    }
    let failures = reports.iter().flat_map(|report| &report.failures);
    let failure = failures.into_iter().find(|failure| failure.delegate == name);
    line.why = match failure {
        Some(failure) => Some(format!("it failed: {}", failure.message.lines().next().unwrap_or_default())),
        None if line.total == 0 => Some("the model has no nodes".into()),
        None => why(&reasons),
    };
    if policy == Policy::Report && line.nodes > 0 {
        let would = format!("would run {}, but the policy is `report`", plural(line.nodes, "node"));
        line.why = Some(line.why.map_or(would.clone(), |why| format!("{would}; {why}")));
        (line.nodes, line.partitions) = (0, 0);
    }
    line
}

/// Returns the reason of most nodes, and the number of others.
fn why(reasons: &BTreeMap<String, usize>) -> Option<String> {
    let (reason, nodes) = reasons.iter().max_by_key(|(_, nodes)| **nodes)?;
    let more = match reasons.len() - 1 {
        0 => String::new(),
        more => format!(" and {}, which `delegraph explain` lists", plural(more, "other reason")),
    };
    Some(format!("{reason} ({}){more}", plural(*nodes, "node")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_most_nodes_is_named() {
        let reasons = |list: &[(&str, usize)]| list.iter().map(|(r, n)| ((*r).to_owned(), *n)).collect();
        assert_eq!(why(&reasons(&[])), None);
        assert_eq!(why(&reasons(&[("excluded", 1)])).as_deref(), Some("excluded (1 node)"));
        assert_eq!(
            why(&reasons(&[("a", 2), ("b", 3), ("c", 1)])).as_deref(),
            Some("b (3 nodes) and 2 other reasons, which `delegraph explain` lists")
        );
    }

    #[test]
    fn lines() {
        let line = |nodes, partitions, why: Option<&str>| {
            let (delegate, why) = ("npu".to_owned(), why.map(str::to_owned));
            DelegateLine { delegate, nodes, total: 9, partitions, why }.text()
        };
        assert_eq!(line(9, 1, None), "npu: 9 of 9 nodes in 1 partition\n");
        assert_eq!(line(0, 0, Some("no")), "npu: 0 of 9 nodes; no\n");
    }
}
