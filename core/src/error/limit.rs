//! Limits on the resources of a model.

use std::fmt;
use std::time::Duration;

/// A limit of an interpreter on the resources of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of all tensors, temporaries, packed weights and tables together.
    Memory,
    /// Milliseconds.
    Time,
    /// The depth to which calls of subgraphs are nested.
    CallDepth,
    /// Nodes that inlined bodies of composites and functions add.
    InlinedNodes,
    /// The number of times that called subgraphs are prepared during the preparation of one subgraph.
    Preparations,
}

/// A limit, and the need that exceeds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitExceeded {
    /// The limit.
    pub limit: Limit,
    /// The need, or a lower bound of it, in the limit's unit.
    pub needed: u64,
    /// The limit, in its unit.
    pub allowed: u64,
}

impl LimitExceeded {
    /// Creates the error that `needed` is above `limit`, which is `allowed`.
    pub fn new(limit: Limit, needed: u64, allowed: u64) -> Self {
        LimitExceeded { limit, needed, allowed }
    }

    /// Returns the name of the method of the interpreter's limits that sets this one.
    fn setter(&self) -> &'static str {
        match self.limit {
            Limit::Memory => "with_memory",
            Limit::Time => "with_time",
            Limit::CallDepth => "with_call_depth",
            Limit::InlinedNodes => "with_inlined_nodes",
            Limit::Preparations => "with_preparations",
        }
    }

    /// Returns how to raise the limit.
    pub(crate) fn help(&self) -> String {
        let setter = self.setter();
        let api =
            format!("`InterpreterBuilder::limits(ResourceLimits::default().{setter}(…))` raises the limit");
        match self.limit {
            Limit::Memory => format!("{api}; in the command, `--max-memory BYTES`"),
            Limit::Time => format!("{api}; in the command, `--timeout SECONDS`"),
            _ => api,
        }
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitExceeded { needed, allowed, .. } = self;
        match self.limit {
            Limit::Memory => {
                write!(f, "out of memory: {needed} bytes are needed, above the limit of {allowed}")?
            }
            Limit::Time => {
                let seconds = Duration::from_millis(*allowed).as_secs_f64();
                write!(f, "not finished within the time limit of {seconds} s")?;
            }
            Limit::CallDepth => write!(
                f,
                "calls of subgraphs are nested {needed} deep, above the limit of {allowed} (call depth)"
            )?,
            Limit::InlinedNodes => write!(
                f,
                "the bodies of composites and functions have {}, above the limit of {allowed} (inlined nodes)",
                super::counted(needed, "node")
            )?,
            Limit::Preparations => write!(
                f,
                "called subgraphs are prepared {needed} times, above the limit of {allowed} (preparations)"
            )?,
        }
        write!(f, "; `ResourceLimits::{}` raises it", self.setter())
    }
}

impl std::error::Error for LimitExceeded {}
