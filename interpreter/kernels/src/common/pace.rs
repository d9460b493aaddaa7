//! Polls in kernels whose work is not proportional to the size of their operands.

use std::sync::Arc;

use delegraph_core::Result;
use delegraph_core::kernel::{Budget, InvokeContext};

/// Steps of about a nanosecond between two polls.
const STEPS: usize = 1 << 22;

/// Counts the steps of a kernel, and polls for the end of the invocation every few milliseconds.
pub(crate) struct Pace {
    budget: Arc<Budget>,
    left: usize,
}

impl Pace {
    pub(crate) fn new(cx: &InvokeContext<'_>) -> Self {
        Pace { budget: Arc::clone(cx.budget()), left: STEPS }
    }

    /// Counts `steps`.
    ///
    /// # Errors
    /// Those of [`Budget::check`].
    pub(crate) fn spend(&mut self, steps: usize) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = STEPS;
                self.budget.check()
            }
        }
    }
}
