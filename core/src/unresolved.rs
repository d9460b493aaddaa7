//! Ops of a model that no registered kernel can run: which, why, where, and what to do.

use std::fmt;
use std::path::PathBuf;

use crate::error::prefix;
use crate::graph::NodeId;
use crate::op::Op;
use crate::resolver::newest_runtime;
use crate::schema;

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
pub struct UnresolvedNode {
    /// The subgraph that it is in.
    pub subgraph: usize,
    /// The subgraph's name, often empty.
    pub subgraph_name: String,
    /// The node.
    pub node: NodeId,
    /// What it writes: names of tensors, quoted and shortened, or `tensor 7` where one has no name.
    pub outputs: Vec<String>,
}

impl fmt::Display for UnresolvedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subgraph {
            0 => {}
            s if self.subgraph_name.is_empty() => write!(f, "subgraph {s}, ")?,
            s => write!(f, "subgraph {s} (\"{}\"), ", self.subgraph_name)?,
        }
        write!(f, "node {}", self.node.0)?;
        if self.outputs.is_empty() { Ok(()) } else { write!(f, " (writes {})", self.outputs.join(", ")) }
    }
}

/// One op that no kernel can run, with every node that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedOp {
    /// The op.
    pub op: Op,
    /// The version that the model asks for.
    pub version: u32,
    /// Why it has no kernel.
    pub reason: UnresolvedReason,
    /// The ranges of versions that are registered, ascending and merged.
    pub registered: Vec<(u32, u32)>,
    /// The lowest and the highest version of the op that the op table knows, if it knows the op.
    pub known: Option<(u32, u32)>,
    /// The TFLite release that first had this op and version, if the op table knows the version.
    pub min_runtime: Option<&'static str>,
    /// Every node that uses it.
    pub nodes: Vec<UnresolvedNode>,
}

impl UnresolvedOp {
    /// Why there is no kernel, in words; a sentence that goes on after the op and its version.
    pub fn why(&self) -> String {
        let (version, registered) = (self.version, Ranges(&self.registered));
        // What the op table says of a version decides what can be done about it.
        let unheard_of = match self.known {
            _ if self.min_runtime.is_some() => None,
            Some((_, high)) if version > high => Some("newer than any this build knows"),
            Some((low, _)) if version < low => Some("older than any that exists"),
            Some(_) => Some("not one that exists"),
            None => None,
        };
        let known = self.known.map(|range| Ranges(&[range]).to_string()).unwrap_or_default();
        let unheard_of = unheard_of.map(|text| format!("version {version} is {text} ({known}); "));
        let since = self.min_runtime.map(|release| format!("TFLite has it since {release}; "));
        let prefix = unheard_of.or(since).unwrap_or_default();
        match self.reason {
            UnresolvedReason::Version => format!("{prefix}registered here: {registered}"),
            UnresolvedReason::NotImplemented => {
                format!("{prefix}no kernel is registered here for any version")
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
    /// The op and why it has no kernel; on the line below, the first few nodes that use it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More nodes than this are counted, not named.
        const NAMED: usize = 8;
        write!(f, "{} version {}: {}\n    at ", self.op, self.version, self.why())?;
        for (i, node) in self.nodes.iter().take(NAMED).enumerate() {
            write!(f, "{}{node}", if i == 0 { "" } else { "; " })?;
        }
        match self.nodes.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Ranges of versions as text: `1 to 3, 5`.
struct Ranges<'a>(&'a [(u32, u32)]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (low, high)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            if low == high { write!(f, "{comma}{low}")? } else { write!(f, "{comma}{low} to {high}")? }
        }
        Ok(())
    }
}

/// Every op of a model that no registered kernel can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedOps {
    /// The model, if it has a path.
    pub model: Option<PathBuf>,
    /// The ops, in the order of their first use.
    pub ops: Vec<UnresolvedOp>,
    /// `min_runtime_version` of the model's metadata, when it is newer than the release that the op table reaches.
    pub newer_runtime: Option<String>,
}

impl UnresolvedOps {
    /// What to do: one step for each kind of op that is missing.
    pub(crate) fn help(&self) -> String {
        let mut help: Vec<String> = Vec::new();
        let mut say = |text: String| {
            if !help.contains(&text) {
                help.push(text);
            }
        };
        for op in &self.ops {
            let version = op.version;
            match (&op.op, op.reason) {
                (Op::Custom(name), _) if name.starts_with("Flex") => {
                    say("ops whose names start with \"Flex\" are TensorFlow's: convert the model again with \
                     TFLite's builtin ops only (without SELECT_TF_OPS)"
                        .into())
                }
                (Op::Custom(name), _) => say(format!(
                    "register a kernel for the custom op: `resolver.add_custom(\"{name}\", registration, {version})`"
                )),
                (_, UnresolvedReason::Version) if op.known.is_some_and(|(low, _)| version < low) => {
                    say("convert the model again: no TFLite runtime has such a version".into());
                }
                (Op::Builtin(code), UnresolvedReason::Version | UnresolvedReason::NotImplemented) => {
                    say("use a newer release of Delegraph".into());
                    let name = code.variant_name().unwrap_or("?");
                    say(format!(
                        "or register a kernel of your own: `resolver.add_builtin(BuiltinOp::{name}, registration, {version})`"
                    ));
                }
                (Op::Builtin(_), _) => say("use a newer release of Delegraph".into()),
            }
        }
        help.join("\n")
    }
}

impl std::error::Error for UnresolvedOps {}

impl fmt::Display for UnresolvedOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self.ops.len() {
            1 => "1 op has no kernel".into(),
            n => format!("{n} ops have no kernel"),
        };
        write!(f, "{}{count}", prefix(&self.model))?;
        for op in &self.ops {
            write!(f, "\n  {op}")?;
        }
        if let Some(version) = &self.newer_runtime {
            let newest = newest_runtime();
            write!(
                f,
                "\n  the model's metadata asks for TFLite {version}; this build's op table reaches {newest}"
            )?;
        }
        Ok(())
    }
}
