//! An invocation that goes on while the caller does something else.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use delegraph_core::error::{Error, Result};

use crate::{CancellationToken, Interpreter};

/// An invocation on a thread of its own. It holds the interpreter until it is done, and gives it back then: await it
/// in any executor, [`poll`](Invocation::is_done) it, or [`wait`](Invocation::wait).
///
/// Dropping it lets the invocation run to its end unheard; [`Invocation::cancellation_token`] ends it early.
#[must_use = "the interpreter is in it"]
pub struct Invocation {
    shared: Arc<Shared>,
    token: CancellationToken,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    finished: Option<(Interpreter, Result<()>)>,
    done: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, interpreter: Interpreter, result: Result<()>) {
        let waker = {
            let mut state = self.lock();
            state.finished = Some((interpreter, result));
            state.done = true;
            state.waker.take()
        };
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Invocation {
    pub(crate) fn start(mut interpreter: Interpreter) -> Self {
        let shared = Arc::new(Shared::default());
        let token = interpreter.cancellation_token();
        let theirs = Arc::clone(&shared);
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(|| interpreter.invoke()));
            let panicked = |_| Err(Error::State("a kernel panicked; its results are unusable".into()));
            let result = result.unwrap_or_else(panicked);
            theirs.finish(interpreter, result);
        };
        // Where the system has no thread left, the invocation runs here: late, but right.
        let slot = Arc::new(Mutex::new(Some(run)));
        let theirs = Arc::clone(&slot);
        let take = |slot: &Mutex<Option<_>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let spawned = std::thread::Builder::new().name("delegraph-invoke".into()).spawn(move || {
            if let Some(run) = take(&theirs) {
                run();
            }
        });
        if spawned.is_err()
            && let Some(run) = slot.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            run();
        }
        Invocation { shared, token }
    }

    /// Whether awaiting or waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.shared.lock().done
    }

    /// Cancels it.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Blocks until it is done.
    pub fn wait(self) -> (Interpreter, Result<()>) {
        let mut state = self.shared.lock();
        loop {
            match state.finished.take() {
                Some(finished) => return finished,
                None => state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Future for Invocation {
    type Output = (Interpreter, Result<()>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock();
        match state.finished.take() {
            Some(finished) => Poll::Ready(finished),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invocation").field("done", &self.is_done()).finish_non_exhaustive()
    }
}
