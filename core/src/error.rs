//! Errors: what was wrong, where, and what to do next.

use std::fmt;
use std::path::PathBuf;

use crate::graph::NodeId;
pub use crate::unresolved::{UnresolvedNode, UnresolvedOp, UnresolvedOps, UnresolvedReason};

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
    /// The application cancelled the invocation.
    #[error("the invocation was cancelled")]
    Cancelled,
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
            Error::OutOfMemory(_)
            | Error::Kernel(_)
            | Error::Delegate { .. }
            | Error::State(_)
            | Error::Cancelled => ErrorKind::Failed,
            Error::AtNode { source, .. } => source.kind(),
        }
    }

    /// What the user can do about it, where there is something to say beyond the message.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Error::InvalidModel { .. } => {
                "the file is damaged, was not written as a .tflite model, or is newer than this build; fetch it \
                 anew or export it again"
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
            Error::InvalidNode(_) => {
                "the model's shapes, types or options do not fit each other; `delegraph inspect MODEL` shows them, and \
                 exporting the model again is the usual cure"
                    .into()
            }
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

pub(crate) fn prefix(path: &Option<PathBuf>) -> String {
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
    /// Its op and version, and the tensors that it writes.
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
