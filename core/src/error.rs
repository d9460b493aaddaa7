//! Errors: what was wrong, where, and what to do next.

use std::fmt;
use std::path::PathBuf;

use crate::graph::NodeId;
use crate::op::Op;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong between a file and its outputs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is no valid model.
    #[error("{}invalid model: {message}", prefix(path))]
    InvalidModel {
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// What is wrong and where.
        message: String,
    },
    /// The file is valid, but its weights are in other files, which this build does not read.
    #[error("{}external weights are not supported: {message}", prefix(path))]
    ExternalData {
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// Which tensors, and what the other files are called.
        message: String,
    },
    /// Ops that no registered kernel can run.
    #[error(transparent)]
    UnresolvedOps(#[from] UnresolvedOps),
    /// The model is valid, but asks for something that this build does not do.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The caller's input does not fit the model.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// A shape, type or constant inside the model does not fit its op.
    #[error("invalid node: {0}")]
    InvalidNode(String),
    /// Memory that could not be had, or that is above the limit set.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A kernel found data that it cannot work on, such as an index out of range.
    #[error("{0}")]
    Kernel(String),
    /// A delegate failed.
    #[error("delegate {delegate}: {message}")]
    Delegate {
        /// Its name.
        delegate: String,
        /// What went wrong.
        message: String,
    },
    /// The interpreter is not in a state for this call.
    #[error("{0}")]
    State(String),
    /// Something went wrong at a node.
    #[error("{location}: {source}")]
    AtNode {
        /// Which node.
        location: Box<Location>,
        /// What went wrong there.
        source: Box<Error>,
    },
}

/// The classes of errors, as the command's exit codes tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The model or an input is invalid.
    Invalid,
    /// The model or a request is not supported.
    Unsupported,
    /// It ran, but failed.
    Failed,
}

impl Error {
    /// Which class of error this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidModel { .. } | Error::InvalidInput(_) | Error::InvalidNode(_) => ErrorKind::Invalid,
            Error::UnresolvedOps(_) | Error::Unsupported(_) | Error::ExternalData { .. } => {
                ErrorKind::Unsupported
            }
            Error::OutOfMemory(_) | Error::Kernel(_) | Error::Delegate { .. } | Error::State(_) => {
                ErrorKind::Failed
            }
            Error::AtNode { source, .. } => source.kind(),
        }
    }

    /// What the user can do about it, where there is something to say beyond the message.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Error::InvalidModel { .. } => {
                "the file is damaged or was not written as a .tflite model; export it again or fetch it anew"
                    .into()
            }
            Error::ExternalData { .. } => {
                "export the model again with its weights inside the .tflite file".into()
            }
            Error::UnresolvedOps(unresolved) => unresolved.help(),
            Error::InvalidInput(_) => {
                "`delegraph inspect MODEL` lists the inputs with their types and shapes".into()
            }
            Error::Delegate { .. } => {
                "run with `--delegate cpu` to see whether the model itself is fine".into()
            }
            Error::AtNode { source, .. } => return source.help(),
            _ => return None,
        })
    }

    /// The same error, with the node that it happened at.
    #[must_use]
    pub fn at(self, location: Location) -> Self {
        match self {
            Error::AtNode { .. } => self,
            source => Error::AtNode { location: Box::new(location), source: Box::new(source) },
        }
    }
}

impl From<crate::ops::InferError> for Error {
    fn from(error: crate::ops::InferError) -> Self {
        Error::InvalidNode(error.0)
    }
}

impl From<crate::ops::WrongParams> for Error {
    fn from(error: crate::ops::WrongParams) -> Self {
        Error::InvalidNode(error.to_string())
    }
}

fn prefix(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default()
}

/// A tensor's name for a message: quoted and not too long, or its index where it has none.
pub(crate) fn tensor_name(name: &str, index: usize) -> String {
    // Converters join the names of all ops that they fused into one.
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        _ if name.is_empty() => format!("tensor {index}"),
        Some((end, _)) => format!("\"{}…\"", name.get(..end).unwrap_or(name)),
        None => format!("\"{name}\""),
    }
}

/// Where in a model something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file, if it has a path.
    pub model: Option<PathBuf>,
    /// The subgraph.
    pub subgraph: usize,
    /// The node.
    pub node: NodeId,
    /// Its op and version.
    pub op: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", prefix(&self.model))?;
        if self.subgraph != 0 {
            write!(f, "subgraph {}, ", self.subgraph)?;
        }
        write!(f, "node {} ({})", self.node.0, self.op)
    }
}

/// Why an op has no kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnresolvedReason {
    /// The op is registered, but only up to a lower version, or only from a higher one.
    Version,
    /// The op's code is known, but no kernel is registered at all.
    NotImplemented,
    /// The op's code is newer than this build's op table.
    UnknownBuiltin,
    /// No custom op of this name is registered.
    MissingCustom,
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
    /// The versions that are registered.
    pub registered: Vec<(u32, u32)>,
    /// The TFLite release that first had this op and version, if the op table knows.
    pub min_runtime: Option<&'static str>,
    /// Every node that uses it: subgraph and node.
    pub nodes: Vec<(usize, NodeId)>,
}

impl fmt::Display for UnresolvedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, version) = (&self.op, self.version);
        match self.reason {
            UnresolvedReason::Version => {
                write!(f, "{op} version {version}: the version is not registered; registered: ")?;
                for (i, (low, high)) in self.registered.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    if low == high {
                        write!(f, "{comma}{low}")?
                    } else {
                        write!(f, "{comma}{low} to {high}")?
                    }
                }
            }
            UnresolvedReason::NotImplemented => {
                write!(f, "{op} version {version}: no kernel for this op yet")?
            }
            UnresolvedReason::UnknownBuiltin => {
                write!(f, "{op} version {version}: the code is newer than this build's op table")?;
            }
            UnresolvedReason::MissingCustom => write!(f, "{op} version {version}: not registered")?,
        }
        if let Some(release) = self.min_runtime {
            write!(f, " (TFLite has it since {release})")?;
        }
        let shown = self.nodes.iter().take(8).map(|(subgraph, node)| match subgraph {
            0 => node.0.to_string(),
            s => format!("{s}:{}", node.0),
        });
        write!(f, "; at node {}", shown.collect::<Vec<_>>().join(", "))?;
        match self.nodes.len().checked_sub(8) {
            Some(more) if more > 0 => write!(f, " and {more} more"),
            _ => Ok(()),
        }
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
    fn help(&self) -> String {
        let mut help = Vec::new();
        let has = |reason| self.ops.iter().any(|op| op.reason == reason);
        if has(UnresolvedReason::MissingCustom) {
            help.push("register the custom ops with `resolver.add_custom(name, registration, versions)`");
        }
        if has(UnresolvedReason::Version) {
            help.push("convert the model for an older runtime, or use a newer Delegraph");
        }
        if has(UnresolvedReason::NotImplemented) || has(UnresolvedReason::UnknownBuiltin) {
            help.push("use a newer Delegraph, or register your own kernel with `resolver.add_builtin`");
        }
        help.join("; ")
    }
}

impl std::error::Error for UnresolvedOps {}

impl fmt::Display for UnresolvedOps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}not supported yet: ", prefix(&self.model))?;
        for (i, op) in self.ops.iter().enumerate() {
            write!(f, "{}{op}", if i == 0 { "" } else { "\n" })?;
        }
        if let Some(version) = &self.newer_runtime {
            write!(f, "\nthe model says that it needs runtime {version}, newer than this build's op table")?;
        }
        Ok(())
    }
}
