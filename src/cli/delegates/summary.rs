//! The nodes of each delegate, as one line each.

use std::collections::BTreeMap;

use delegraph::Interpreter;
use delegraph::core::printable;
use delegraph::delegate_api::{Policy, Rejection, Report, Runner};
use serde::Serialize;

use crate::cli::text::plural;
use crate::documents::explain::reached;

/// A delegate and the nodes that it runs.
#[derive(Debug, Serialize)]
pub(crate) struct DelegateLine {
    /// The delegate's name.
    pub(crate) delegate: String,
    /// Nodes that it runs.
    pub(crate) nodes: usize,
    /// The number of nodes.
    pub(crate) total: usize,
    /// The number of partitions that they form.
    pub(crate) partitions: usize,
    /// The most frequent reason why it does not run the other nodes; `None` if it runs all.
    pub(crate) why: Option<String>,
    /// The number of records to which the line applies, in a batch whose records differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) records: Option<usize>,
}

impl DelegateLine {
    /// Returns the line as text.
    pub(crate) fn text(&self) -> String {
        let DelegateLine { delegate, nodes, total, partitions, why, records } = self;
        let records = records.map(|records| format!(", {}", plural(records, "record"))).unwrap_or_default();
        let partitions = match nodes {
            0 => String::new(),
            _ => format!(" in {}", plural(*partitions, "partition")),
        };
        let why = why.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        let delegate = printable(delegate);
        format!("{delegate}{records}: {nodes} of {}{partitions}{why}\n", plural(*total, "node"))
    }
}

/// The share of delegates in a run. All counts are of the entry subgraph and of the subgraphs that its nodes call,
/// directly or through others, each once. The body of a node that a delegate runs as a whole is not counted, only the
/// node; with [`Policy::Report`], this also applies to a node that a delegate would run.
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
        let reached = reached(interpreter, [entry]);
        let reports: Vec<&Report> =
            reached.into_iter().filter_map(|index| interpreter.subgraph_report(index)).collect();
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

/// A reason why a delegate does not run nodes, and its subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// The nodes are computed while preparing. Named only if there is no other reason.
    Folded,
    /// The composite whose body contains the nodes.
    Composite(String),
    /// The nodes themselves. Ordered last: with the same number of nodes, this reason is preferred to a composite's.
    Node(String),
}

impl Reason {
    fn text(&self) -> &str {
        match self {
            Reason::Folded => "computed while preparing",
            Reason::Composite(text) | Reason::Node(text) => text,
        }
    }
}

fn line(index: usize, name: &str, reports: &[&Report], policy: Policy) -> DelegateLine {
    let mut line =
        DelegateLine { delegate: name.into(), nodes: 0, total: 0, partitions: 0, why: None, records: None };
    // The number of nodes for each reason.
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    let mut count = |reason: Reason, nodes: usize| *reasons.entry(reason).or_default() += nodes;
    let mut others = 0;
    for report in reports {
        let mut refused: BTreeMap<usize, String> = BTreeMap::new();
        for composite in report.composites.iter().filter(|composite| composite.is_inlined()) {
            let Some((_, reason)) = composite.refusals().find(|(delegate, _)| *delegate == index) else {
                continue;
            };
            let text = composite.describe(reason);
            refused.extend(composite.nodes.iter().map(|node| (node.0, text.clone())));
        }
        line.partitions += report.partitions.iter().filter(|p| p.delegate == index).count();
        line.total += report.nodes.len();
        for node in &report.nodes {
            let rejection = node.rejections.iter().find(|(delegate, _)| *delegate == index);
            match (&node.runner, rejection) {
                (Runner::Delegate { delegate, .. }, _) if *delegate == index => line.nodes += 1,
                (Runner::Folded, _) => count(Reason::Folded, 1),
                (_, Some((_, reason))) => {
                    let whole = refused.get(&node.node.0).cloned().map(Reason::Composite);
                    // The delegate runs such a node only as a part of the composite.
                    let only_whole =
                        matches!(reason, Rejection::NotClaimed | Rejection::UnsupportedOp { .. });
                    match whole {
                        Some(whole) if only_whole => count(whole, 1),
                        whole => {
                            count(Reason::Node(reason.to_string()), 1);
                            whole.into_iter().for_each(|whole| count(whole, 0));
                        }
                    }
                }
                (Runner::Delegate { .. }, None) => others += 1,
                _ => {}
            }
        }
    }
    if others > 0 {
        count(Reason::Node("another delegate runs it".into()), others);
    }
    let failures = reports.iter().flat_map(|report| &report.failures);
    let failure = failures.into_iter().find(|failure| failure.delegate == name);
    line.why = match failure {
        Some(failure) => Some(format!("it failed: {}", failure.message.lines().next().unwrap_or_default())),
        None if line.total == 0 => Some("there are no nodes".into()),
        None => why(&reasons),
    };
    if policy == Policy::Report && line.nodes > 0 {
        let would = format!("would run {}, but the policy is `report`", plural(line.nodes, "node"));
        line.why = Some(line.why.map_or(would.clone(), |why| format!("{would}; {why}")));
        (line.nodes, line.partitions) = (0, 0);
    }
    line
}

/// Returns the reason of most nodes that run, and the number of others.
fn why(reasons: &BTreeMap<Reason, usize>) -> Option<String> {
    let (reason, nodes) =
        reasons.iter().max_by_key(|(reason, nodes)| (**reason != Reason::Folded, **nodes))?;
    let more = match reasons.len() - 1 {
        0 => String::new(),
        more => format!(" and {}, which `delegraph explain` lists", plural(more, "other reason")),
    };
    Some(format!("{} ({}){more}", reason.text(), plural(*nodes, "node")))
}

#[cfg(test)]
mod tests {
    use delegraph::core::{BuiltinOp, NodeId};
    use delegraph::delegate_api::{CompositeReport, CompositeRunner, NodeReport};

    use super::*;

    #[test]
    fn the_reason_of_most_nodes_is_named() {
        let reasons = |list: &[(&str, usize)]| {
            list.iter().map(|(reason, nodes)| (Reason::Node((*reason).to_owned()), *nodes)).collect()
        };
        assert_eq!(why(&reasons(&[])), None);
        assert_eq!(why(&reasons(&[("excluded", 1)])).as_deref(), Some("excluded (1 node)"));
        assert_eq!(
            why(&reasons(&[("a", 2), ("b", 3), ("c", 1)])).as_deref(),
            Some("b (3 nodes) and 2 other reasons, which `delegraph explain` lists")
        );
        let mut reasons = BTreeMap::from([(Reason::Folded, 74)]);
        assert_eq!(why(&reasons).as_deref(), Some("computed while preparing (74 nodes)"));
        reasons.insert(Reason::Node("a".into()), 2);
        assert_eq!(
            why(&reasons).as_deref(),
            Some("a (2 nodes) and 1 other reason, which `delegraph explain` lists")
        );
    }

    /// The reason on the line of a delegate that rejected the nodes of an inlined composite, version 3.
    fn why_inlined(nodes: &[Option<Rejection>], whole: Rejection) -> Option<String> {
        let node = |(i, reason): (usize, &Option<Rejection>)| {
            let runner = match reason {
                Some(_) => Runner::Cpu,
                None => Runner::Delegate { delegate: 0, partition: 0 },
            };
            let rejections = reason.iter().map(|reason| (0, reason.clone())).collect();
            NodeReport::new(NodeId(i), BuiltinOp::ADD.into(), 1, runner).with_rejections(rejections)
        };
        let ids = (0..nodes.len()).map(NodeId).collect();
        let mut report = Report::new(vec!["npu".into()], nodes.iter().enumerate().map(node).collect());
        report.composites = vec![
            CompositeReport::new("acme.f", 3, CompositeRunner::Inlined, ids)
                .with_rejections(vec![(0, whole)])
                .with_declared_by(vec![0]),
        ];
        line(0, "npu", &[&report], Policy::Prefer).why
    }

    #[test]
    fn reasons_of_nodes_come_before_those_of_their_composite() {
        let too_high = || Rejection::CompositeVersionTooHigh { name: "acme.f".into(), version: 3, max: 2 };
        let of_composite = "composite \"acme.f\" version 3 is above the highest supported, 2";
        let small = || Some(Rejection::PartitionTooSmall { nodes: 2, min: 3 });
        let of_node = "its partition has 2 nodes, fewer than the minimum of 3";
        let excluded = || Some(Rejection::Excluded("MUL is excluded".into()));
        let unsupported = || Some(Rejection::UnsupportedOp { op: BuiltinOp::ADD.into() });
        let check = |nodes: &[Option<Rejection>], whole: Rejection, expected: &str| {
            assert_eq!(why_inlined(nodes, whole).as_deref(), Some(expected));
        };
        let other = " and 1 other reason, which `delegraph explain` lists";
        check(&[small(), small()], too_high(), &format!("{of_node} (2 nodes){other}"));
        check(&[None, excluded()], too_high(), &format!("MUL is excluded (1 node){other}"));
        check(&[unsupported(), excluded()], too_high(), &format!("MUL is excluded (1 node){other}"));
        // Nodes without a reason of their own.
        for reason in [unsupported(), Some(Rejection::NotClaimed)] {
            check(&[reason.clone(), reason], too_high(), &format!("{of_composite} (2 nodes)"));
        }
        // The composite is declared, and rejected as unsupported.
        let whole = Rejection::UnsupportedComposite { name: "acme.f".into() };
        let text = "composite \"acme.f\" is not supported (2 nodes)";
        check(&[unsupported(), unsupported()], whole, text);
        let whole = Rejection::UnsupportedParam("an axis of 3".into());
        check(&[Some(Rejection::NotClaimed)], whole, "composite \"acme.f\": an axis of 3 (1 node)");
    }

    #[test]
    fn lines() {
        let line = |nodes, partitions, why: Option<&str>| {
            let (delegate, why) = ("npu".to_owned(), why.map(str::to_owned));
            DelegateLine { delegate, nodes, total: 9, partitions, why, records: None }.text()
        };
        assert_eq!(line(9, 1, None), "npu: 9 of 9 nodes in 1 partition\n");
        assert_eq!(line(0, 0, Some("no")), "npu: 0 of 9 nodes; no\n");
    }
}
