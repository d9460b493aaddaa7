//! Limits on the resources of a model.

use std::fmt;
use std::time::Duration;

/// A limit of an interpreter on the resources of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of all tensors, temporaries, packed weights and tables together.
    Memory,
    /// The time of one call, or the time until a deadline that all calls share.
    Time,
    /// The depth to which calls of subgraphs are nested.
    CallDepth,
    /// Nodes that inlined bodies of composites and functions add.
    InlinedNodes,
    /// The number of times that called subgraphs are prepared during the preparation of one subgraph.
    Preparations,
}

impl Limit {
    /// Returns the name of the method of the interpreter's limits that sets this one.
    fn setter(self) -> &'static str {
        match self {
            Limit::Memory => "with_memory",
            Limit::Time => "with_time",
            Limit::CallDepth => "with_call_depth",
            Limit::InlinedNodes => "with_inlined_nodes",
            Limit::Preparations => "with_preparations",
        }
    }
}

/// A limit that a model exceeds, and the need, or a lower bound of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitExceeded {
    /// Above [`Limit::Memory`].
    Memory {
        /// The number of bytes that are needed, or a lower bound of it.
        needed: u64,
        /// The limit in bytes.
        allowed: u64,
    },
    /// Not finished within [`Limit::Time`].
    Time {
        /// The limit.
        allowed: Duration,
    },
    /// Above [`Limit::CallDepth`].
    CallDepth {
        /// The depth that is needed, or a lower bound of it.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// Above [`Limit::InlinedNodes`].
    InlinedNodes {
        /// The number of nodes that are added, or a lower bound of it.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// Above [`Limit::Preparations`].
    Preparations {
        /// The number of preparations, or a lower bound of it.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
}

impl LimitExceeded {
    /// Returns the limit.
    pub fn limit(&self) -> Limit {
        match self {
            LimitExceeded::Memory { .. } => Limit::Memory,
            LimitExceeded::Time { .. } => Limit::Time,
            LimitExceeded::CallDepth { .. } => Limit::CallDepth,
            LimitExceeded::InlinedNodes { .. } => Limit::InlinedNodes,
            LimitExceeded::Preparations { .. } => Limit::Preparations,
        }
    }

    /// Returns how to raise the limit.
    pub(crate) fn help(&self) -> String {
        let setter = self.limit().setter();
        format!("`InterpreterBuilder::limits(ResourceLimits::default().{setter}(…))` raises the limit")
    }
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitExceeded::Memory { needed, allowed } => {
                let verb = if *needed == 1 { "is" } else { "are" };
                let needed = super::counted(needed, "byte");
                write!(f, "out of memory: {needed} {verb} needed, above the limit of {allowed}")?
            }
            LimitExceeded::Time { allowed } => {
                write!(f, "not finished within the time limit of {} s", allowed.as_secs_f64())?
            }
            LimitExceeded::CallDepth { needed, allowed } => write!(
                f,
                "calls of subgraphs are nested {needed} deep, above the limit of {allowed} (call depth)"
            )?,
            LimitExceeded::InlinedNodes { needed, allowed } => write!(
                f,
                "the bodies of composites and functions have {}, above the limit of {allowed} (inlined nodes)",
                super::counted(needed, "node")
            )?,
            LimitExceeded::Preparations { needed, allowed } => write!(
                f,
                "called subgraphs are prepared {}, above the limit of {allowed} (preparations)",
                super::counted(needed, "time")
            )?,
        }
        write!(f, "; `ResourceLimits::{}` raises it", self.limit().setter())
    }
}

impl std::error::Error for LimitExceeded {}
