//! Limits on delegation: `--max-partitions` and similar options.

use std::collections::BTreeSet;
use std::ops::Range;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use delegraph::Model;
use delegraph::core::ops::DEFS;
use delegraph::core::{BuiltinOp, NodeId, Op};
use delegraph::delegate_api::PartitionOptions;

use super::failure::{Exit, Failure};
use super::text::plural;

/// Options that exclude nodes from delegation. They apply to each `--delegate`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits on delegates")]
pub(crate) struct Limits {
    /// The maximum number of partitions for each delegate; those with the most nodes are kept
    #[arg(long, value_name = "N")]
    max_partitions: Option<usize>,
    /// Partitions of fewer nodes stay on the CPU
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    min_nodes: Option<usize>,
    /// Only nodes A to before B, which is above A; halving the range again and again finds the node that goes wrong
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

    /// Checks that the options name ops and nodes that exist: a misspelled one would exclude nothing.
    ///
    /// # Errors
    /// Exit code 2 with the option.
    pub(crate) fn check(&self, model: &Model) -> Result<(), Failure> {
        let wrong = |text: String, help: String| Err(Failure::new(Exit::Usage, text).with_help(help));
        let ops: BTreeSet<String> =
            model.subgraphs().iter().flat_map(|s| s.nodes()).map(|n| n.op().to_string()).collect();
        for name in &self.excluded_ops {
            let excluded = op(name);
            if excluded.builtin().is_none() && !ops.contains(&excluded.to_string()) {
                let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
                return wrong(
                    format!(
                        "--exclude-op {name}: no builtin op has this name, and no custom op of the model"
                    ),
                    format!("the model has: {}", ops.join(", ")),
                );
            }
        }
        // Inlined bodies of composites have node numbers above those of the file.
        if ops.contains(&Op::Builtin(BuiltinOp::STABLEHLO_COMPOSITE).to_string()) {
            return Ok(());
        }
        let count = model.subgraphs().iter().map(|s| s.nodes().len()).max().unwrap_or(0);
        let has = || format!("the largest graph of the model has {}, numbered from 0", plural(count, "node"));
        if let Some(n) = self.excluded_nodes.iter().find(|n| **n >= count) {
            return wrong(format!("--exclude-node {n}: there is no such node"), has());
        }
        match &self.nodes {
            Some(range) if range.start >= count => {
                wrong(format!("--nodes {}..{}: there is no such node", range.start, range.end), has())
            }
            _ => Ok(()),
        }
    }
}

/// The builtin op of this name or, if there is none, the custom one.
fn op(name: &str) -> Op {
    let mut known = DEFS.iter().map(|def| def.op);
    let builtin = known.find(|op| op.variant_name().is_some_and(|known| known.eq_ignore_ascii_case(name)));
    builtin.map_or_else(|| Op::custom(name), Op::Builtin)
}

/// `A..B`.
fn range(text: &str) -> Result<Range<usize>, String> {
    let (start, end) = text.split_once("..").ok_or("write A..B")?;
    let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number"));
    let (start, end) = (number(start)?, number(end)?);
    if start < end {
        Ok(start..end)
    } else {
        Err(format!("{start}..{end} contains no node; B must be above A"))
    }
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
    fn ranges() {
        assert_eq!(range("3..7"), Ok(3..7));
        for wrong in ["3", "a..7", "3..=7", "3..", "", "5..2", "5..5", "-1..3"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        assert!(parse(&["--min-nodes=0"]).is_err());
    }
}
