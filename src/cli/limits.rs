//! Limits on delegation: `--max-partitions` and similar options.

use std::collections::BTreeSet;
use std::ops::Range;

use clap::Args;
use delegraph::Model;
use delegraph::core::ops::{DEFS, Params};
use delegraph::core::{NodeId, Op};
use delegraph::delegate_api::PartitionOptions;

use super::failure::{Exit, Failure};
use super::numbers::{ANY, part, whole};
use super::text::plural;

/// Options that exclude nodes from delegation. They apply to each `--delegate`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits on delegates")]
pub(crate) struct Limits {
    /// The maximum number of partitions of each delegate in each subgraph; those with the most nodes are kept
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    max_partitions: Option<usize>,
    /// Partitions of fewer nodes stay on the CPU
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=ANY), allow_negative_numbers = true)]
    min_nodes: Option<usize>,
    /// Only nodes A to B - 1, for example to bisect for a node with wrong results
    #[arg(long, value_name = "A..B", value_parser = range, allow_hyphen_values = true)]
    nodes: Option<Range<usize>>,
    /// Not this op, builtin (CONV_2D) or custom; may be repeated
    #[arg(long = "exclude-op", value_name = "NAME")]
    excluded_ops: Vec<String>,
    /// Not this node; may be repeated
    #[arg(long = "exclude-node", value_name = "N", value_parser = whole::<usize>(0..=ANY), allow_negative_numbers = true)]
    excluded_nodes: Vec<usize>,
}

impl Limits {
    /// The options of the builder.
    pub(crate) fn options(&self) -> PartitionOptions {
        let mut options = PartitionOptions::default()
            .with_min_nodes(self.min_nodes.unwrap_or(1))
            .with_excluded_nodes(self.excluded_nodes.iter().map(|&n| NodeId(n)))
            .with_excluded_ops(self.excluded_ops.iter().map(|name| op(name)));
        options.max_partitions = self.max_partitions;
        options.nodes = self.nodes.clone();
        options
    }

    /// Returns the options as arguments of another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let numbers = [("max-partitions", self.max_partitions), ("min-nodes", self.min_nodes)];
        let numbers = numbers.into_iter().filter_map(|(name, n)| Some(format!("--{name}={}", n?)));
        let nodes = self.nodes.iter().map(|range| format!("--nodes={}..{}", range.start, range.end));
        let ops = self.excluded_ops.iter().map(|name| format!("--exclude-op={name}"));
        let excluded = self.excluded_nodes.iter().map(|n| format!("--exclude-node={n}"));
        numbers.chain(nodes).chain(ops).chain(excluded).collect()
    }

    /// Checks that the options name ops and nodes of the model: others would exclude nothing.
    ///
    /// # Errors
    /// Exit code 2 with the option.
    pub(crate) fn check(&self, model: &Model) -> Result<(), Failure> {
        let ops = ops(model);
        for name in &self.excluded_ops {
            let excluded = op(name);
            if !ops.contains(&excluded.to_string()) {
                let text = match excluded.builtin() {
                    Some(_) => format!("--exclude-op {name}: the model does not have this op"),
                    None => format!(
                        "--exclude-op {name}: no builtin op has this name, and no custom op of the model"
                    ),
                };
                let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
                let help = match ops.as_slice() {
                    [] => "the model has no nodes".into(),
                    ops => format!("the model has: {}", ops.join(", ")),
                };
                return Err(wrong(text, help));
            }
        }
        let count = nodes(model);
        match self.outside(count) {
            Some(text) => {
                let help = match count {
                    0 => "the model has no nodes".into(),
                    count => format!("the largest graph of the model has {}", numbered(count)),
                };
                Err(wrong(text, help))
            }
            None => Ok(()),
        }
    }

    /// As [`Limits::check`], for several models: a node is in at least one of them, as is a custom op. Builtin ops need
    /// not be in any.
    ///
    /// # Errors
    /// Exit code 2 with the option.
    pub(crate) fn check_all(&self, mut models: impl Iterator<Item = Model>) -> Result<(), Failure> {
        let mut customs: Vec<&String> =
            self.excluded_ops.iter().filter(|name| op(name).builtin().is_none()).collect();
        let mut count = 0;
        // Models are built only until every custom op is found and a graph has every node that the options name.
        while !customs.is_empty() || self.outside(count).is_some() {
            let Some(model) = models.next() else { break };
            let ops = ops(&model);
            customs.retain(|name| !ops.contains(&op(name).to_string()));
            count = count.max(nodes(&model));
        }
        if let Some(name) = customs.first() {
            let text =
                format!("--exclude-op {name}: no builtin op has this name, and no custom op of the cases");
            return Err(wrong(text, "`delegraph ops` lists the builtin ops".into()));
        }
        match self.outside(count) {
            Some(text) => {
                let help = match count {
                    0 => "the models of the cases have no nodes".into(),
                    count => format!("the largest graph of the cases has {}", numbered(count)),
                };
                Err(wrong(text, help))
            }
            None => Ok(()),
        }
    }

    /// Returns what is wrong with the first option that names a node outside of a graph with `count` nodes.
    fn outside(&self, count: usize) -> Option<String> {
        let node = self.excluded_nodes.iter().find(|n| **n >= count);
        let range = self.nodes.as_ref().filter(|range| range.end > count);
        let of_range = |range: &Range<usize>| {
            let (first, last) = (range.start.max(count), range.end - 1);
            let missing = match first == last {
                true => format!("node {first} does not exist"),
                false => format!("nodes {first} to {last} do not exist"),
            };
            let Range { start, end } = range;
            format!("--nodes {start}..{end}: the last node of A..B is B - 1, and {missing}")
        };
        node.map(|n| format!("--exclude-node {n}: there is no such node")).or_else(|| range.map(of_range))
    }
}

fn wrong(text: String, help: String) -> Failure {
    Failure::new(Exit::Usage, text).with_help(help)
}

/// Returns a number of nodes, at least 1, and their numbers: `1 node, number 0`, `9 nodes, 0 to 8`.
fn numbered(count: usize) -> String {
    match count {
        1 => "1 node, number 0".into(),
        count => format!("{}, 0 to {}", plural(count, "node"), count.saturating_sub(1)),
    }
}

/// Returns the names of the model's ops.
fn ops(model: &Model) -> BTreeSet<String> {
    model.subgraphs().iter().flat_map(|s| s.nodes()).map(|n| n.op().to_string()).collect()
}

/// Returns the number of nodes of the largest subgraph, with the bodies of composites and functions in their places, as
/// the interpreter inlines them.
fn nodes(model: &Model) -> usize {
    let mut known = vec![None; model.subgraphs().len()];
    (0..known.len()).map(|index| inlined(model, index, &mut known, 0)).max().unwrap_or(0)
}

/// The depth to which bodies are followed; deeper ones count as having any number of nodes.
const MAX_DEPTH: usize = 64;

fn inlined(model: &Model, index: usize, known: &mut [Option<usize>], depth: usize) -> usize {
    if let Some(count) = known.get(index).copied().flatten() {
        return count;
    }
    if depth > MAX_DEPTH {
        return usize::MAX;
    }
    let mut count = 0usize;
    for node in model.subgraphs().get(index).into_iter().flat_map(|s| s.nodes()) {
        let is_inlined = matches!(node.params(), Params::StableHloComposite(_) | Params::Call(_));
        let bodies = node.callees().filter(|_| is_inlined);
        let body = bodies.map(|body| inlined(model, body, known, depth + 1)).fold(0, usize::saturating_add);
        count = count.saturating_add(body.max(1));
    }
    if let Some(slot) = known.get_mut(index) {
        *slot = Some(count);
    }
    count
}

/// The builtin op of this name or, if there is none, the custom one.
fn op(name: &str) -> Op {
    let mut known = DEFS.iter().map(|def| def.op);
    let builtin = known.find(|op| op.variant_name().is_some_and(|known| known.eq_ignore_ascii_case(name)));
    builtin.map_or_else(|| Op::custom(name), Op::Builtin)
}

/// Parses `A..B`.
fn range(text: &str) -> Result<Range<usize>, String> {
    let ends = text.split_once("..").filter(|(start, end)| !start.is_empty() && !end.is_empty());
    let (start, end) = ends.ok_or("write A..B for nodes A to B - 1: 0..5 is the first five")?;
    let (start, end) = (part(start)?, part(end)?);
    if start < end {
        Ok(start..end)
    } else {
        Err(format!("{start}..{end} contains no node; B must be above A"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use delegraph::core::BuiltinOp;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        limits: Limits,
    }

    fn parse(arguments: &[&str]) -> Result<Limits, clap::Error> {
        Ok(Command::try_parse_from([&["test"], arguments].concat())?.limits)
    }

    #[test]
    fn none_unless_given() {
        assert_eq!(parse(&[]).unwrap().options(), PartitionOptions::default());
    }

    #[test]
    fn they_survive_the_way_to_another_process() {
        let arguments = [
            "--max-partitions=2",
            "--min-nodes=3",
            "--nodes=4..9",
            "--exclude-op=conv_2d",
            "--exclude-op=Mine",
            "--exclude-node=5",
            "--exclude-node=6",
        ];
        let limits = parse(&arguments).unwrap();
        let options = limits.options();
        let expected = PartitionOptions::default()
            .with_max_partitions(2)
            .with_min_nodes(3)
            .with_nodes(4..9)
            .with_excluded_nodes([NodeId(5), NodeId(6)])
            .with_excluded_ops([BuiltinOp::CONV_2D.into(), Op::custom("Mine")]);
        assert_eq!(options, expected);
        assert_eq!(limits.arguments(), arguments);
    }

    #[test]
    fn nodes_are_numbered() {
        assert_eq!([1, 2, 9].map(numbered), ["1 node, number 0", "2 nodes, 0 to 1", "9 nodes, 0 to 8"]);
    }

    #[test]
    fn nodes_that_are_missing_are_named() {
        let outside = |argument: &str, count| parse(&[argument]).unwrap().outside(count);
        let text = "the last node of A..B is B - 1, and";
        assert_eq!(outside("--nodes=3..5", 5), None);
        assert_eq!(outside("--nodes=3..5", 4), Some(format!("--nodes 3..5: {text} node 4 does not exist")));
        assert_eq!(
            outside("--nodes=3..9", 1),
            Some(format!("--nodes 3..9: {text} nodes 3 to 8 do not exist"))
        );
        assert_eq!(
            outside("--exclude-node=4", 4).as_deref(),
            Some("--exclude-node 4: there is no such node")
        );
    }

    #[test]
    fn ranges() {
        assert_eq!(range("3..7"), Ok(3..7));
        for wrong in ["3", "a..7", "3..=7", "3..", "", "5..2", "5..5", "-1..3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&["--min-nodes=0"]).is_err());
    }
}
