//! Profiling and cancelling of invocations.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use delegraph_core::NodeId;
use delegraph_core::error::Result;
use delegraph_core::kernel::Budget;
use delegraph_delegate_api::NodeTime;
use web_time::Instant;

/// Receives the steps of an invocation.
pub trait Profiler: Send {
    /// Called after each step, on the thread that runs it. The duration of this call is not part of the next step's.
    fn step(&mut self, event: &StepEvent<'_>);

    /// Called by kernels with a long run time: `done` of `total` units of work are done.
    fn progress(&mut self, done: usize, total: usize) {
        let (_, _) = (done, total);
    }
}

/// One step of an invocation.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StepEvent<'a> {
    /// The subgraph.
    pub subgraph: usize,
    /// The nodes that ran: one, or all nodes of a delegate's partition.
    pub nodes: &'a [NodeId],
    /// The delegate that ran them; `None` for a CPU kernel.
    pub delegate: Option<&'a str>,
    /// The time of each node of a partition, if the delegate measures it.
    pub node_times: &'a [NodeTime],
    /// Whether shapes depended on data. The step then also prepared its nodes, and may have allocated.
    pub deferred: bool,
    /// The start of the step.
    pub start: Instant,
    /// The duration of the step. The duration of a node that calls subgraphs includes their steps, which are reported
    /// before it; that of a delegate's step includes the time in which an asynchronous invocation was suspended.
    pub duration: Duration,
}

/// Cancels the work of an interpreter from any thread.
///
/// Preparing and invoking check the token before each node and each pass of a loop, and long-running kernels check it
/// between chunks of their work. A cancelled call ends with [`Error::Cancelled`](delegraph_core::Error::Cancelled), and
/// clears the token for the next call.
#[derive(Debug, Clone)]
pub struct CancellationToken(Arc<Cancellation>);

#[derive(Debug)]
struct Cancellation {
    budget: Arc<Budget>,
    /// Wakes an asynchronous invocation that is suspended.
    waker: Mutex<Option<Waker>>,
}

impl CancellationToken {
    /// Cancels the running call or, if there is none, the next one.
    pub fn cancel(&self) {
        self.0.budget.cancel();
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Clears a pending cancellation. An application calls it before a call to which an earlier cancellation must not
    /// apply.
    pub fn clear(&self) {
        self.0.budget.clear_cancellation();
    }
}

/// The profiler and the cancellation token of an interpreter.
pub(crate) struct Observer {
    pub(crate) profiler: Option<Box<dyn Profiler>>,
    token: CancellationToken,
}

impl Observer {
    /// An observer without a profiler. Its token ends the work that polls `budget`.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        let token = CancellationToken(Arc::new(Cancellation { budget, waker: Mutex::default() }));
        Observer { profiler: None, token }
    }

    /// Returns the token that cancels invocations.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Checks whether the work is cancelled, or its deadline has passed.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.token.0.budget.check()
    }

    /// Registers `waker` to be woken when cancelling is requested.
    pub(crate) fn wake_when_cancelled(&self, waker: &Waker) {
        let mut slot = self.token.0.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        drop(slot);
        // Checked again: a request between the last check and the registration would not wake the task.
        if self.token.0.budget.is_cancelled() {
            waker.wake_by_ref();
        }
    }

    /// Reports a kernel's progress.
    pub(crate) fn progress(&mut self, done: usize, total: usize) {
        if let Some(profiler) = &mut self.profiler {
            profiler.progress(done, total);
        }
    }

    /// Called before a step. Returns the start time if a profiler is set.
    ///
    /// # Errors
    /// The errors of [`Budget::check`].
    pub(crate) fn begin(&self) -> Result<Option<Instant>> {
        self.check_cancelled()?;
        Ok(self.profiler.as_ref().map(|_| Instant::now()))
    }

    /// Called after a step with the time that [`Observer::begin`] returned.
    pub(crate) fn end(
        &mut self,
        start: Option<Instant>,
        (subgraph, nodes): (usize, &[NodeId]),
        delegate: Option<(&str, &[NodeTime])>,
        deferred: bool,
    ) {
        if let (Some(profiler), Some(start)) = (&mut self.profiler, start) {
            let duration = start.elapsed();
            let (delegate, node_times) =
                delegate.map_or((None, &[][..]), |(name, times)| (Some(name), times));
            profiler.step(&StepEvent { subgraph, nodes, delegate, node_times, deferred, start, duration });
        }
    }
}
