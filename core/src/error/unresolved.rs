//! Ops of a model that no registered kernel can run: which, why, where, and what to do.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::prefix;
use crate::schema;
use crate::types::{NodeId, Op, printable, short_name};

/// Why an op has no kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnresolvedReason {
    /// The op is registered, but not at this version.
    Version,
    /// The op's code is known, but no kernel is registered at all.
    NotImplemented,
    /// The op's code is newer than this build's op table.
    UnknownBuiltin,
    /// No custom op of this name is registered.
    MissingCustom,
}

/// A node that uses an op without a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnresolvedNode {
    /// The subgraph that it is in.
    pub subgraph: usize,
    /// The subgraph's name, often empty.
    pub subgraph_name: String,
    /// The node.
    pub node: NodeId,
    /// The tensors that it writes: their names, quoted and shortened, or `tensor 7` where one has no name.
    pub outputs: Vec<String>,
}

impl fmt::Display for UnresolvedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subgraph {
            0 => {}
            s if self.subgraph_name.is_empty() => write!(f, "subgraph {s}, ")?,
            s => write!(f, "subgraph {s} (\"{}\"), ", short_name(&self.subgraph_name))?,
        }
        write!(f, "node {}", self.node.0)?;
        if self.outputs.is_empty() { Ok(()) } else { write!(f, " (writes {})", self.outputs.join(", ")) }
    }
}

/// One op that no kernel can run, with every node that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnresolvedOp {
    /// The op.
    pub op: Op,
    /// The version in the model.
    pub version: u32,
    /// Why it has no kernel.
    pub reason: UnresolvedReason,
    /// The ranges of versions that are registered, ascending and merged.
    pub registered: Vec<RangeInclusive<u32>>,
    /// The lowest and the highest version of the op that the op table knows, if it knows the op.
    pub known: Option<RangeInclusive<u32>>,
    /// The TFLite release that first had this op and version, if the op table knows the version.
    pub min_runtime: Option<&'static str>,
    /// Every node that uses it.
    pub nodes: Vec<UnresolvedNode>,
}

impl UnresolvedOp {
    /// Why there is no kernel, in words that continue a sentence after the op and its version.
    pub fn why(&self) -> String {
        let registered = Ranges(&self.registered);
        // The op table's entry for the version determines the advice.
        let history = match (self.min_runtime, &self.known) {
            (Some(release), _) => format!("TFLite has it since {release}; "),
            (None, Some(known)) => {
                let what = match self.version {
                    version if version > *known.end() => "newer than any version that this build knows",
                    version if version < *known.start() => "older than any version that exists",
                    _ => "not a version that exists",
                };
                format!("{what} ({}); ", Ranges(std::slice::from_ref(known)))
            }
            (None, None) => String::new(),
        };
        match self.reason {
            UnresolvedReason::Version => format!("{history}registered here: {registered}"),
            UnresolvedReason::NotImplemented => {
                format!("{history}the op is known, but no version of it is registered here")
            }
            UnresolvedReason::UnknownBuiltin => {
                let newest = schema::BuiltinOperator::ENUM_MAX;
                format!("no such operator is known; this build knows the codes 0 to {newest}")
            }
            UnresolvedReason::MissingCustom => "no custom op of this name is registered".into(),
        }
    }
}

impl fmt::Display for UnresolvedOp {
    /// The op and why it has no kernel; below, on a line each, the first few nodes that use it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More nodes than this are counted, not named.
        const NAMED: usize = 8;
        write!(f, "{} version {}: {}", self.op.in_short(), self.version, self.why())?;
        for node in self.nodes.iter().take(NAMED) {
            write!(f, "\n    at {node}")?;
        }
        match self.nodes.len().saturating_sub(NAMED) {
            0 => Ok(()),
            1 => f.write_str("\n    and at 1 more node"),
            more => write!(f, "\n    and at {more} more nodes"),
        }
    }
}

/// Ranges of versions as text: `1 to 3, 5`.
struct Ranges<'a>(&'a [RangeInclusive<u32>]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let (low, high) = (range.start(), range.end());
            let comma = if i == 0 { "" } else { ", " };
            if low == high { write!(f, "{comma}{low}")? } else { write!(f, "{comma}{low} to {high}")? }
        }
        Ok(())
    }
}

/// Every op of a model that no registered kernel can run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnresolvedOps {
    /// The model, if it has a path.
    pub model: Option<PathBuf>,
    /// The ops, in the order of their first use.
    pub ops: Vec<UnresolvedOp>,
    /// `min_runtime_version` of the model's metadata, when it is newer than the release that the op table reaches.
    pub newer_runtime: Option<String>,
    /// The newest TFLite release that the op table reaches.
    pub newest_runtime: &'static str,
}

impl UnresolvedOps {
    /// Returns the next step for each kind of missing op.
    pub(crate) fn help(&self) -> String {
        /// A file may have thousands of ops.
        const MAX_STEPS: usize = 8;
        let mut help: Vec<String> = Vec::new();
        for op in &self.ops {
            let version = op.version;
            let step = match (&op.op, op.reason) {
                (Op::Custom(name), _) if name.starts_with("Flex") => {
                    "ops whose names start with \"Flex\" are TensorFlow's own: convert the model again with TFLite's \
                     builtin ops only (without SELECT_TF_OPS)"
                        .into()
                }
                (Op::Custom(name), _) => {
                    format!(
                        "register a kernel for it: `resolver.add_custom(\"{}\", registration, {version})`, or load a \
                         library that has one: `--ops plugin:PATH`",
                        short_name(name)
                    )
                }
                (_, UnresolvedReason::Version) if op.known.as_ref().is_some_and(|known| version < *known.start()) => {
                    "convert the model again: no TFLite runtime has such a version".into()
                }
                (Op::Builtin(_), UnresolvedReason::UnknownBuiltin) => {
                    "a newer release of Delegraph may know the operator".into()
                }
                (Op::Builtin(code), _) => format!(
                    "a newer release of Delegraph may have it; or register a kernel of your own: \
                     `resolver.add_builtin(BuiltinOp::{}, registration, {version})`",
                    code.variant_name().unwrap_or("?")
                ),
            };
            if help.contains(&step) {
                continue;
            }
            if help.len() == MAX_STEPS {
                help.push("and so on for the other ops".into());
                break;
            }
            help.push(step);
        }
        help.join("\n")
    }
}

impl std::error::Error for UnresolvedOps {}

impl fmt::Display for UnresolvedOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More ops than this are counted, not listed.
        const MAX_LISTED: usize = 32;
        let count = match self.ops.len() {
            1 => "1 op has no kernel:".into(),
            n => format!("{n} ops have no kernel:"),
        };
        write!(f, "{}{count}", printable(&prefix(&self.model)))?;
        for op in self.ops.iter().take(MAX_LISTED) {
            write!(f, "\n  {op}")?;
        }
        match self.ops.len().saturating_sub(MAX_LISTED) {
            0 => {}
            1 => f.write_str("\n  and 1 more op")?,
            more => write!(f, "\n  and {more} more ops")?,
        }
        if let Some(version) = &self.newer_runtime {
            let newest = self.newest_runtime;
            write!(
                f,
                "\n  the model's metadata asks for TFLite {}; this build's op table reaches {newest}",
                printable(version)
            )?;
        }
        Ok(())
    }
}
