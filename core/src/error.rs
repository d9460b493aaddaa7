//! Errors, the places in a model where they occur, and advice.

use std::fmt::{self, Write};
use std::io;
use std::path::PathBuf;

pub use crate::types::counted;
use crate::types::{NodeId, Printable, PrintableLines, printable, printable_lines, short_name};

mod ensure;
mod invalid_data;
mod limit;
mod understated;
mod unresolved;

pub use invalid_data::InvalidData;
pub use limit::{Limit, LimitExceeded};
pub use understated::UnderstatedVersion;
pub use unresolved::{UnresolvedNode, UnresolvedOp, UnresolvedOps, UnresolvedReason};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns the message for an index or name that does not exist: `tensor 9 does not exist; the subgraph has 5 tensors`.
pub fn absent(what: &str, index: impl fmt::Display, owner: &str, count: usize) -> String {
    format!("{what} {index} does not exist; {owner} has {}", counted(count, what))
}

/// An error of any type, as the source of an [`Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An error of reading, writing, preparing or running a model.
///
/// [`Display`](fmt::Display) does not repeat what [`source`](std::error::Error::source) returns: print the chain of
/// sources for the complete message. Names from files are [`printable`] in it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The model's file cannot be read. Made by [`Error::io`].
    #[non_exhaustive]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written. Made by [`Error::write`].
    #[non_exhaustive]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a valid model. Made by [`Error::invalid_model`].
    #[non_exhaustive]
    InvalidModel {
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// The defect, and its place in the file.
        message: String,
    },
    /// The file is valid, but its weights are in other files, which are not supported.
    #[non_exhaustive]
    ExternalData {
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// The tensors, and the names of the other files.
        message: String,
    },
    /// Nodes use features of newer versions than their own, and the application asked for a check of that.
    #[non_exhaustive]
    UnderstatedVersions {
        /// The file, if it has a path.
        path: Option<PathBuf>,
        /// The uses, in the order of their first node.
        uses: Vec<UnderstatedVersion>,
    },
    /// Ops without a registered kernel.
    UnresolvedOps(UnresolvedOps),
    /// The model is valid, but requires an unsupported feature.
    Unsupported(String),
    /// Every node has to be delegated, and some are not.
    #[non_exhaustive]
    NotDelegated {
        /// The number of nodes.
        nodes: usize,
        /// The number of nodes that are not delegated.
        remaining: usize,
        /// The first such nodes: each with its op, and the reasons why delegates rejected it.
        reasons: Vec<String>,
    },
    /// The caller's input does not fit the model.
    InvalidInput(String),
    /// A shape, type or constant inside the model does not fit its op.
    InvalidNode(String),
    /// Memory could not be allocated.
    OutOfMemory(String),
    /// The model needs more than a limit of the interpreter allows.
    LimitExceeded(LimitExceeded),
    /// A kernel found invalid data, such as an index out of range.
    Kernel(String),
    /// A delegate failed. Made by [`Error::delegate`].
    #[non_exhaustive]
    Delegate {
        /// The delegate's name.
        delegate: String,
        /// The failure.
        message: String,
        /// The cause, if it has a type of its own.
        source: Option<BoxError>,
    },
    /// The call is invalid in the current state of the interpreter.
    State(String),
    /// The application cancelled the invocation.
    Cancelled,
    /// An error of a kernel, resolver or delegate with a type of its own. Made by [`Error::external`].
    External(BoxError),
    /// An error at a node. Made by [`Error::at`].
    #[non_exhaustive]
    AtNode {
        /// The node.
        location: Box<Location>,
        /// The error. [`Display`](fmt::Display) contains it, and the chain of sources continues with its source.
        source: Box<Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages contain names from files. Messages of drivers and of other crates have several lines.
        let mut line = Printable(f);
        match self {
            Error::Io { path, .. } => write!(line, "{}: cannot read the file", path.display()),
            Error::Write { path, .. } => write!(line, "cannot write {}", path.display()),
            Error::InvalidModel { path, message } => {
                write!(line, "{}invalid model: {message}", prefix(path))
            }
            Error::ExternalData { path, message } => {
                write!(line, "{}external weights are not supported: {message}", prefix(path))
            }
            Error::UnderstatedVersions { path, uses } => {
                write!(line, "{}versions are too low: ", prefix(path))?;
                uses.iter()
                    .enumerate()
                    .try_for_each(|(i, found)| write!(line, "{}{found}", if i == 0 { "" } else { "; " }))
            }
            Error::UnresolvedOps(unresolved) => unresolved.fmt(f),
            Error::Unsupported(message) => write!(line, "not supported: {message}"),
            Error::NotDelegated { nodes, remaining, reasons } => {
                let verb = if *remaining == 1 { "is" } else { "are" };
                let nodes = counted(nodes, "node");
                write!(
                    line,
                    "not supported: the policy is `require`, but {remaining} of {nodes} {verb} not delegated:"
                )?;
                reasons.iter().try_for_each(|reason| write!(f, "\n{}", printable(reason)))?;
                match remaining.saturating_sub(reasons.len()) {
                    0 => Ok(()),
                    more => write!(f, "\nand {more} more"),
                }
            }
            Error::InvalidInput(message) => write!(line, "invalid input: {message}"),
            Error::InvalidNode(message) => write!(line, "invalid node: {message}"),
            Error::OutOfMemory(message) => write!(line, "out of memory: {message}"),
            Error::LimitExceeded(exceeded) => exceeded.fmt(f),
            Error::Kernel(message) | Error::State(message) => line.write_str(message),
            Error::Delegate { delegate, message, .. } => {
                write!(PrintableLines(f), "delegate {delegate}: {message}")
            }
            Error::Cancelled => f.write_str("the invocation was cancelled"),
            Error::External(error) => write!(PrintableLines(f), "{error}"),
            Error::AtNode { location, source } => write!(f, "{location}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Write { source, .. } => Some(source),
            Error::Delegate { source, .. } => source.as_deref().map(|e| e as _),
            // The messages of these two errors are part of this error's message.
            Error::External(error) => error.source(),
            Error::AtNode { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Error::LimitExceeded(exceeded)
    }
}

impl From<UnresolvedOps> for Error {
    fn from(unresolved: UnresolvedOps) -> Self {
        Error::UnresolvedOps(unresolved)
    }
}

/// The classes of errors, which the command's exit codes distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The model or an input is invalid.
    Invalid,
    /// The model or a request is not supported.
    Unsupported,
    /// A run failed.
    Failed,
}

impl Error {
    /// Creates the error of a model's file that cannot be read.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// Creates the error of a file that cannot be written.
    pub fn write(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Write { path: path.into(), source }
    }

    /// Creates the error of an invalid model. `path` is its file, if it has one; `message` is the defect and its place
    /// in the file.
    pub fn invalid_model(path: Option<PathBuf>, message: impl Into<String>) -> Self {
        Error::InvalidModel { path, message: message.into() }
    }

    /// Creates a failure of a delegate.
    pub fn delegate(delegate: impl Into<String>, message: impl Into<String>) -> Self {
        Error::Delegate { delegate: delegate.into(), message: message.into(), source: None }
    }

    /// Creates a failure of a delegate with its cause. `message` does not repeat the cause.
    pub fn delegate_caused_by(
        delegate: impl Into<String>,
        message: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> Self {
        Error::Delegate { delegate: delegate.into(), message: message.into(), source: Some(source.into()) }
    }

    /// Wraps an error of another type, such as one of a kernel or a delegate.
    pub fn external(error: impl Into<BoxError>) -> Self {
        Error::External(error.into())
    }

    /// Creates the error of a graph of `nodes` nodes of which `remaining` are not delegated; `reasons` names the first
    /// of them.
    pub fn not_delegated(nodes: usize, remaining: usize, reasons: Vec<String>) -> Self {
        Error::NotDelegated { nodes, remaining, reasons }
    }

    /// Returns the error that [`source`](std::error::Error::source) refers to; `None` if there is none, and for
    /// [`Error::External`], whose wrapped error owns its source.
    pub fn into_source(self) -> Option<BoxError> {
        match self {
            Error::Io { source, .. } | Error::Write { source, .. } => Some(source.into()),
            Error::Delegate { source, .. } => source,
            Error::AtNode { source, .. } => source.into_source(),
            _ => None,
        }
    }

    /// Returns the messages of this error and of its chain of sources, separated by colons.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(source) = next {
            text += &printable_lines(&format!(": {source}"));
            next = source.source();
        }
        text
    }

    /// Returns the class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Io { .. }
            | Error::InvalidModel { .. }
            | Error::UnderstatedVersions { .. }
            | Error::InvalidInput(_)
            | Error::InvalidNode(_) => ErrorKind::Invalid,
            Error::UnresolvedOps(_)
            | Error::Unsupported(_)
            | Error::NotDelegated { .. }
            | Error::ExternalData { .. } => ErrorKind::Unsupported,
            Error::Write { .. }
            | Error::OutOfMemory(_)
            | Error::LimitExceeded(_)
            | Error::Kernel(_)
            | Error::Delegate { .. }
            | Error::State(_)
            | Error::Cancelled
            | Error::External(_) => ErrorKind::Failed,
            Error::AtNode { source, .. } => source.kind(),
        }
    }

    /// Advice for the user, beyond the message.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Error::Io { .. } => "check the path and the permissions of the file".into(),
            Error::InvalidModel { .. } => {
                "the file is damaged, was not written as a .tflite model, or is newer than this build; fetch \
                 or export it again"
                    .into()
            }
            Error::ExternalData { .. } => {
                "export the model again with its weights inside the .tflite file".into()
            }
            Error::UnderstatedVersions { .. } => {
                "`delegraph fuse MODEL -o OUT --versions-only` writes the versions that are needed".into()
            }
            Error::UnresolvedOps(unresolved) => unresolved.help(),
            Error::LimitExceeded(exceeded) => exceeded.help(),
            Error::InvalidInput(_) => {
                "`delegraph inspect MODEL` lists the inputs with their types and shapes".into()
            }
            Error::OutOfMemory(_) => {
                "inputs with smaller shapes need less memory".into()
            }
            Error::Delegate { .. } => {
                "run with `--delegate cpu` to check the model itself".into()
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

    /// Whether the application or the time limit ended the work.
    pub fn is_interruption(&self) -> bool {
        match self {
            Error::Cancelled => true,
            Error::LimitExceeded(exceeded) => exceeded.limit() == Limit::Time,
            Error::AtNode { source, .. } => source.is_interruption(),
            _ => false,
        }
    }

    /// Whether data is the cause, at a node: an [`Error::Kernel`] with a location. From a delegate's kernel, such an
    /// error is not a failure of the delegate: a CPU kernel reports the same.
    pub fn is_invalid_data(&self) -> bool {
        matches!(self, Error::AtNode { source, .. } if matches!(**source, Error::Kernel(_)))
    }

    /// The same error with the node at which it occurred. An error that has a node keeps it, and a cancellation has
    /// none.
    #[must_use]
    pub fn at(self, location: Location) -> Self {
        match self {
            Error::AtNode { .. } | Error::Cancelled => self,
            source => Error::AtNode { location: Box::new(location), source: Box::new(source) },
        }
    }
}

pub(crate) fn prefix(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default()
}

/// Returns a tensor's name for a message: quoted and not too long, or its index where it has none.
pub(crate) fn tensor_name(name: &str, index: usize) -> String {
    if name.is_empty() { format!("tensor {index}") } else { format!("\"{}\"", short_name(name)) }
}

/// The place of a node in a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The file, if it has a path.
    pub model: Option<PathBuf>,
    /// What rewrote the file's model, if the node is one of the rewritten model.
    pub rewritten_by: Option<String>,
    /// The index of the subgraph.
    pub subgraph: usize,
    /// The node.
    pub node: NodeId,
    /// Its op and version, and the tensors that it writes.
    pub op: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Printable(f);
        match &self.rewritten_by {
            Some(author) => write!(line, "{author}: ")?,
            None => write!(line, "{}", prefix(&self.model))?,
        }
        if self.subgraph != 0 {
            write!(line, "subgraph {}, ", self.subgraph)?;
        }
        write!(line, "node {} ({})", self.node.0, self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location() -> Location {
        Location { model: None, rewritten_by: None, subgraph: 0, node: NodeId(3), op: "CONV_2D v1".into() }
    }

    #[test]
    fn the_chain_names_each_cause_once() {
        let lost = io::Error::other("the device was lost");
        let error = Error::delegate_caused_by("npu", "cannot run partition 0", lost).at(location());
        assert_eq!(error.to_string(), "node 3 (CONV_2D v1): delegate npu: cannot run partition 0");
        assert_eq!(error.chain(), format!("{error}: the device was lost"));
        assert_eq!(error.kind(), ErrorKind::Failed);

        let source = io::Error::from(io::ErrorKind::NotFound);
        let text = source.to_string();
        let error = Error::Io { path: "model.tflite".into(), source };
        assert_eq!(error.chain(), format!("model.tflite: cannot read the file: {text}"));

        // A nested error is not repeated.
        let error = Error::external(Error::external(io::Error::other("no power"))).at(location());
        assert_eq!(error.chain(), "node 3 (CONV_2D v1): no power");
        assert_eq!(Error::State("not prepared".into()).chain(), "not prepared");
    }

    #[test]
    fn nodes_of_a_rewritten_model_are_not_those_of_the_file() {
        let of_file = Location { model: Some("a.tflite".into()), ..location() };
        assert_eq!(of_file.to_string(), "a.tflite: node 3 (CONV_2D v1)");
        let rewritten = Location { rewritten_by: Some("the pass \"b\"".into()), ..of_file };
        assert_eq!(rewritten.to_string(), "the pass \"b\": node 3 (CONV_2D v1)");
    }

    #[test]
    fn names_in_messages_cannot_reach_the_terminal() {
        let name = "x\u{1b}[2J\ny";
        let check = |error: Error, lines: usize| {
            let text = error.chain();
            assert!(!text.contains('\u{1b}') && text.contains("x\\u{1b}[2J"), "{text:?}");
            assert_eq!(text.lines().count(), lines, "{text:?}");
        };
        let message = || format!("tensor \"{name}\" is wrong");
        check(Error::InvalidNode(message()), 1);
        check(Error::InvalidInput(message()).at(location()), 1);
        check(Error::Kernel(message()).at(Location { op: message(), ..location() }), 1);
        check(Error::InvalidModel { path: Some(name.into()), message: message() }, 1);
        check(Error::not_delegated(9, 2, vec![message()]), 3);
        // Messages of shader compilers have several lines.
        check(Error::delegate("npu", message()), 2);
        check(Error::external(io::Error::other(message())), 2);
        check(Error::Io { path: "a".into(), source: io::Error::other(message()) }, 2);
    }
}
