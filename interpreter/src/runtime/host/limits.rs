//! Limits on the resources of a model.

use std::time::Duration;

use delegraph_core::kernel::Budget;
use web_time::Instant;

use super::machine;

/// Limits of an interpreter on the resources of its model. For a model that needs more, calls return
/// [`Error::LimitExceeded`](delegraph_core::Error::LimitExceeded), which names the limit and the need.
///
/// The defaults are above what models for devices need. They keep a malicious file from exhausting memory, stack or
/// time:
///
/// ```
/// # use std::time::Duration;
/// # use delegraph_core::{Model, ModelBytes};
/// use delegraph_interpreter::{Interpreter, ResourceLimits};
///
/// # fn main() -> delegraph_core::Result<()> {
/// # let file = include_bytes!("../../../../assets/digits/digits_float32.tflite");
/// # let model = Model::from_bytes(ModelBytes::new(&file[..]))?;
/// let limits = ResourceLimits::default().with_memory(1 << 30).with_time(Duration::from_secs(8));
/// let mut interpreter = Interpreter::builder(model).limits(limits).build()?;
/// interpreter.invoke()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimits {
    /// Bytes of all tensors, temporaries and variables, of the tables that kernels make, and of the constants that are
    /// computed while preparing, together. The bytes of the file are not included. The default is three quarters of the
    /// memory of the machine, or of its control group.
    pub memory: usize,
    /// The time of one call: `build`, `prepare`, `invoke`. Unlimited by default.
    pub time: Option<Duration>,
    /// The instant at which every call ends, in addition to `time`, and the limit that the error names.
    pub(crate) deadline: Option<(Instant, Duration)>,
    /// The depth to which calls of subgraphs (IF, WHILE, CALL, composites) may be nested; 64.
    pub call_depth: usize,
    /// The number of nodes that inlined bodies of composites and functions may add; 2^18.
    pub inlined_nodes: usize,
    /// How often called subgraphs may be prepared during one preparation of their caller; 2^16. A subgraph that is
    /// called with inputs of several shapes is prepared again for each change of the shape.
    pub preparations: usize,
    /// The multiply-adds for computing constants while preparing, over all subgraphs; 2^34. Nodes over constants that
    /// need more are computed in each invocation instead.
    pub folding_multiply_adds: u64,
    /// The bytes of constants computed while preparing, in addition to 64 times the size of the file; 2^26. Nodes over
    /// constants that need more are computed in each invocation instead.
    pub folded_bytes: usize,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        ResourceLimits {
            memory: machine::memory().map_or(FALLBACK_MEMORY, |bytes| bytes / 4 * 3),
            time: None,
            deadline: None,
            call_depth: 64,
            inlined_nodes: 1 << 18,
            preparations: 1 << 16,
            folding_multiply_adds: 1 << 34,
            folded_bytes: 1 << 26,
        }
    }
}

/// The limit if the machine's memory is unknown: 4 GiB, or half of the address space.
const FALLBACK_MEMORY: usize = if usize::BITS >= 64 { 4 << 30 } else { usize::MAX / 2 };

impl ResourceLimits {
    /// Sets the deadline of a call that begins, if there is one.
    pub(crate) fn start_clock(&self, budget: &Budget) {
        let ResourceLimits { time, deadline, .. } = *self;
        if time.is_none() && deadline.is_none() {
            return;
        }
        let now = Instant::now();
        let of_call = time.and_then(|time| Some((now.checked_add(time)?, time)));
        let ends = of_call.into_iter().chain(deadline);
        match ends.min_by_key(|(at, _)| *at) {
            Some((at, limit)) => budget.set_deadline(at, limit),
            None => budget.clear_deadline(),
        }
    }

    /// Returns the limits of the parts of a call that begins, which together take the time of one call.
    pub(crate) fn of_call(&self) -> Self {
        let mut limits = self.clone();
        let of_call = limits.time.take().and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        limits.deadline = of_call.into_iter().chain(limits.deadline).min_by_key(|(at, _)| *at);
        limits
    }

    /// Sets the limit of memory, in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Sets the time of one call.
    #[must_use]
    pub fn with_time(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.time = time.into();
        self
    }

    /// Sets a deadline for all calls: `time` after this function is called. The time between calls counts as well.
    #[must_use]
    pub fn with_total_time(mut self, time: Duration) -> Self {
        self.deadline = Instant::now().checked_add(time).map(|at| (at, time));
        self
    }

    /// Sets the depth to which calls may be nested. Each level takes some kilobytes of the stack.
    #[must_use]
    pub fn with_call_depth(mut self, depth: usize) -> Self {
        self.call_depth = depth;
        self
    }

    /// Sets the number of nodes that inlining may add.
    #[must_use]
    pub fn with_inlined_nodes(mut self, nodes: usize) -> Self {
        self.inlined_nodes = nodes;
        self
    }

    /// Sets how often called subgraphs may be prepared.
    #[must_use]
    pub fn with_preparations(mut self, preparations: usize) -> Self {
        self.preparations = preparations;
        self
    }

    /// Sets the multiply-adds of computing constants.
    #[must_use]
    pub fn with_folding_multiply_adds(mut self, multiply_adds: u64) -> Self {
        self.folding_multiply_adds = multiply_adds;
        self
    }

    /// Sets the bytes of computed constants, in addition to 64 times the size of the file.
    #[must_use]
    pub fn with_folded_bytes(mut self, bytes: usize) -> Self {
        self.folded_bytes = bytes;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_below_the_machines_memory() {
        let memory = ResourceLimits::default().memory;
        assert!(memory >= 64 << 20);
        if let Some(machine) = machine::memory() {
            assert!(memory < machine);
        }
    }
}
