//! Threads whose work ends with the invocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use delegraph_core::kernel::{Budget, Parallel};

/// Threads that skip the remaining tasks once their budget is interrupted. The results of the kernel are then unusable;
/// [`Budget::check`] at the next step, or at the end of the invocation, is the error.
pub(crate) struct Interruptible {
    inner: Arc<dyn Parallel>,
    budget: Arc<Budget>,
}

impl Interruptible {
    pub(crate) fn new(inner: Arc<dyn Parallel>, budget: Arc<Budget>) -> Self {
        Interruptible { inner, budget }
    }
}

// SAFETY: by the contract of `Parallel`, `inner` calls its function at most once with each number below `tasks`, and
// returns or unwinds after all calls have ended. Each of these calls makes at most one call of `f`, with the same
// number.
unsafe impl Parallel for Interruptible {
    fn threads(&self) -> usize {
        self.inner.threads()
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        // A single task is not skipped: each step checks for an interruption before it runs.
        if tasks < 2 {
            return self.inner.run(tasks, f);
        }
        // Tasks after an interruption do not read the clock: there may be millions.
        let ended = AtomicBool::new(false);
        self.inner.run(tasks, &|task| {
            if ended.load(Ordering::Relaxed) {
                return;
            }
            if self.budget.is_interrupted() {
                ended.store(true, Ordering::Relaxed);
            } else {
                f(task);
            }
        });
    }

    fn is_interrupted(&self) -> bool {
        self.budget.is_interrupted()
    }

    fn take_panicked(&self) -> bool {
        self.inner.take_panicked()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use delegraph_core::kernel::Serial;

    use super::*;

    #[test]
    fn tasks_after_a_cancellation_are_skipped() {
        let budget = Budget::new(0);
        let parallel = Interruptible::new(Arc::new(Serial), budget.clone());
        let ran = AtomicUsize::new(0);
        parallel.run(10, &|task| {
            ran.fetch_add(1, Ordering::Relaxed);
            if task == 3 {
                budget.cancel();
            }
        });
        assert_eq!((ran.into_inner(), parallel.threads()), (4, 1));
    }
}
