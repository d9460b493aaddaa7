//! Polls in kernels that do not divide their work over threads.

use std::sync::Arc;

use delegraph_core::Result;
use delegraph_core::kernel::{Budget, InvokeContext};

/// Number of steps between two polls; a step is about a nanosecond.
const STEPS: usize = 1 << 22;

/// Elements between two polls of [`zip_pieces`]: less than 50 ms with any function.
pub(crate) const PIECE: usize = 1 << 19;

/// Calls `f` with the index of the first element and the elements of pieces of whole rows of `row` elements, and polls
/// between them.
///
/// # Errors
/// The errors of [`InvokeContext::check_interrupted`].
pub(crate) fn zip_pieces<O, I>(
    cx: &InvokeContext<'_>,
    row: usize,
    output: &mut [O],
    input: &[I],
    mut f: impl FnMut(usize, &mut [O], &[I]),
) -> Result<()> {
    let piece = (PIECE / row).max(1).saturating_mul(row);
    for (i, (output, input)) in output.chunks_mut(piece).zip(input.chunks(piece)).enumerate() {
        if i > 0 {
            cx.check_interrupted()?;
        }
        f(i * piece, output, input);
    }
    Ok(())
}

/// Counts the steps of a kernel, and every few milliseconds checks whether the invocation was interrupted.
pub(crate) struct Pace {
    budget: Arc<Budget>,
    left: usize,
}

impl Pace {
    pub(crate) fn new(cx: &InvokeContext<'_>) -> Self {
        Pace { budget: Arc::clone(cx.budget()), left: STEPS }
    }

    /// Counts `steps` steps, and polls if they exceed the steps left until the next poll.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
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
