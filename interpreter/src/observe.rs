//! Watching an invocation, and ending it early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use delegraph_core::NodeId;
use delegraph_core::error::{Error, Result};

/// Is told of every step of an invocation.
pub trait Profiler: Send {
    /// A step has run. Called between steps, on the thread that invokes; what it takes is not in the next step's time.
    fn step(&mut self, event: &StepEvent<'_>);
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
        delegate: Option<&str>,
        deferred: bool,
    ) {
        if let (Some(profiler), Some(start)) = (&mut self.profiler, start) {
            let duration = start.elapsed();
            profiler.step(&StepEvent { subgraph, nodes, delegate, deferred, start, duration });
        }
    }
}
