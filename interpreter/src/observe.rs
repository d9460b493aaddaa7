//! Watching an invocation, and ending it early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use delegraph_core::NodeId;
use delegraph_core::error::{Error, Result};
use delegraph_delegate_api::NodeTime;

/// Is told of every step of an invocation.
pub trait Profiler: Send {
    /// A step has run. Called between steps, on the thread that invokes; what it takes is not in the next step's time.
    fn step(&mut self, event: &StepEvent<'_>);

    /// A kernel that takes long says that it did `done` of `total` of what it counts.
    fn progress(&mut self, done: usize, total: usize) {
        let (_, _) = (done, total);
    }
}

/// One step of an invocation.
#[derive(Debug, Clone, Copy)]
pub struct StepEvent<'a> {
    /// The subgraph.
    pub subgraph: usize,
    /// The nodes that ran: one, or all those of a delegate's partition.
    pub nodes: &'a [NodeId],
    /// The delegate that ran them; `None` for a CPU kernel.
    pub delegate: Option<&'a str>,
    /// How long the nodes of a partition took each, as far as the delegate knows.
    pub node_times: &'a [NodeTime],
    /// True where shapes depended on data, so that the step prepared, and may have allocated, too.
    pub deferred: bool,
    /// When it began.
    pub start: Instant,
    /// How long it took. The time of a node that calls subgraphs includes theirs, which are reported before it.
    pub duration: Duration,
}

/// Cancels invocations of an interpreter from anywhere.
///
/// An invocation looks at the token before each step. The one that finds it cancelled ends with
/// [`Error::Cancelled`], and the next may run.
#[derive(Debug, Clone, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Cancels the invocation that is running or, where none is, the next.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The invocation has ended early.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }

    fn check(&self) -> Result<()> {
        // A plain load first: a swap would make every step write to a line that other threads may look at.
        if self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel) {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// What an interpreter's owner wants to know and to say while it runs.
#[derive(Default)]
pub(crate) struct Observer {
    pub(crate) profiler: Option<Box<dyn Profiler>>,
    pub(crate) token: CancellationToken,
}

impl Observer {
    /// Before a step: an error where the invocation is cancelled; when the step begins, where somebody measures.
    pub(crate) fn begin(&self) -> Result<Option<Instant>> {
        self.token.check()?;
        Ok(self.profiler.as_ref().map(|_| Instant::now()))
    }

    /// After a step that [`Observer::begin`] gave a time for.
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
