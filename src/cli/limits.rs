//! Limits on what delegates get: `--max-partitions` and the like.

use std::ops::Range;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use delegraph::Model;
use delegraph::core::{BuiltinOp, NodeId, Op};
use delegraph::delegate_api::PartitionOptions;

/// Options that keep nodes from delegates. They hold for each `--delegate`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits on delegates")]
pub(crate) struct Limits {
    /// At most so many partitions for each delegate, those of most nodes
    #[arg(long, value_name = "N")]
    max_partitions: Option<usize>,
    /// Partitions of fewer nodes stay on the CPU
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    min_nodes: Option<usize>,
    /// Only nodes A to before B; halving the range again and again finds the node that goes wrong
    #[arg(long, value_name = "A..B", value_parser = range)]
    nodes: Option<Range<usize>>,
    /// Not this op, builtin (CONV_2D) or custom; may be repeated
    #[arg(long = "exclude-op", value_name = "NAME")]
    excluded_ops: Vec<String>,
    /// Not this node; may be repeated
    #[arg(long = "exclude-node", value_name = "N")]
    excluded_nodes: Vec<usize>,
}

impl Limits {
    /// As the builder takes them.
    pub(crate) fn options(&self) -> PartitionOptions {
        PartitionOptions {
            max_partitions: self.max_partitions,
            min_nodes: self.min_nodes.unwrap_or(1),
            nodes: self.nodes.clone(),
            excluded_nodes: self.excluded_nodes.iter().map(|&n| NodeId(n)).collect(),
            excluded_ops: self.excluded_ops.iter().map(|name| op(name)).collect(),
            cost: None,
        }
    }

    /// The same options as arguments of another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let numbers = [("max-partitions", self.max_partitions), ("min-nodes", self.min_nodes)];
        let numbers = numbers.into_iter().filter_map(|(name, n)| Some(format!("--{name}={}", n?)));
        let nodes = self.nodes.iter().map(|range| format!("--nodes={}..{}", range.start, range.end));
        let ops = self.excluded_ops.iter().map(|name| format!("--exclude-op={name}"));
        let excluded = self.excluded_nodes.iter().map(|n| format!("--exclude-node={n}"));
        numbers.chain(nodes).chain(ops).chain(excluded).collect()
    }

    /// Warns of ops that nobody knows: a name that is spelled wrong excludes nothing.
    pub(crate) fn check(&self, model: &Model) {
        for name in &self.excluded_ops {
            let excluded = op(name);
            let mut ops = model.subgraphs.iter().flat_map(|s| &s.nodes).map(|n| &n.op);
            if excluded.builtin().is_none() && !ops.any(|op| *op == excluded) {
                log::warn!("--exclude-op {name}: no builtin op has this name, and no custom op of the model");
            }
        }
    }
}

/// The builtin op of this name, else the custom one.
fn op(name: &str) -> Op {
    let mut known = BuiltinOp::ENUM_VALUES.iter();
    let builtin = known.find(|op| op.variant_name().is_some_and(|known| known.eq_ignore_ascii_case(name)));
    builtin.map_or_else(|| Op::custom(name), |&op| Op::Builtin(op))
}

/// `A..B`.
fn range(text: &str) -> Result<Range<usize>, String> {
    let (start, end) = text.split_once("..").ok_or("write A..B")?;
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
    Ok(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
        let expected = PartitionOptions {
            max_partitions: Some(2),
            min_nodes: 3,
            nodes: Some(4..9),
            excluded_nodes: vec![NodeId(5), NodeId(6)],
            excluded_ops: vec![BuiltinOp::CONV_2D.into(), Op::custom("Mine")],
            cost: None,
        };
        assert_eq!(options, expected);
        assert_eq!(limits.arguments(), arguments);
    }

    #[test]
    fn ranges() {
        assert_eq!(range("3..7"), Ok(3..7));
        for wrong in ["3", "a..7", "3..=7", "3..", ""] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&["--min-nodes=0"]).is_err());
    }
}
