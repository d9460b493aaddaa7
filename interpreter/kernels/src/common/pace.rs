//! Polls in kernels that do not divide their work over threads.

use std::sync::Arc;

use delegraph_core::Result;
use delegraph_core::kernel::{Budget, InvokeContext, Parallel};

/// Number of steps between two polls; a step is about a nanosecond.
const STEPS: usize = 1 << 22;

/// Products of a matrix product per step.
pub(crate) const PRODUCTS: usize = 16;

/// Steps of a [`Pace`] for a string of unknown length.
pub(crate) const STRING_STEPS: usize = 8;

/// Steps of a [`Polls`] for an image whose work is too small to be interrupted, beside its elements.
pub(crate) const IMAGE_STEPS: usize = 512;

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
        Pace::of(cx.budget())
    }

    /// For work while preparing.
    pub(crate) fn of(budget: &Arc<Budget>) -> Self {
        Pace { budget: Arc::clone(budget), left: STEPS }
    }

    /// Folds pieces of a row, as [`Iterator::fold`], and counts `steps` steps per element.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn fold<T, A>(
        &mut self,
        steps: usize,
        row: &[T],
        init: A,
        f: impl Fn(A, &[T]) -> A,
    ) -> Result<A> {
        row.chunks(PIECE).try_fold(init, |all, piece| {
            self.spend(piece.len().saturating_mul(steps))?;
            Ok(f(all, piece))
        })
    }

    /// Calls `f` with pieces of a row and of its output, and counts `steps` steps per element.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn zip<T, O>(
        &mut self,
        steps: usize,
        row: &[T],
        output: &mut [O],
        mut f: impl FnMut(&[T], &mut [O]),
    ) -> Result<()> {
        row.chunks(PIECE).zip(output.chunks_mut(PIECE)).try_for_each(|(row, output)| {
            self.spend(row.len().saturating_mul(steps))?;
            f(row, output);
            Ok(())
        })
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

/// As [`Pace`], for code without a context: counts the steps, and returns whether the work is to end.
pub(crate) struct Polls<'p> {
    parallel: &'p dyn Parallel,
    left: usize,
}

impl<'p> Polls<'p> {
    pub(crate) fn new(parallel: &'p dyn Parallel) -> Self {
        Polls { parallel, left: STEPS }
    }

    /// Counts `steps` steps. Polls if they exceed the steps left until the next poll, and returns whether the work is
    /// interrupted.
    pub(crate) fn interrupted_after(&mut self, steps: usize) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                false
            }
            None => {
                let interrupted = self.parallel.is_interrupted();
                // Once interrupted, the next call returns so again.
                self.left = if interrupted { 0 } else { STEPS };
                interrupted
            }
        }
    }
}
