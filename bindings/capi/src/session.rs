//! The object behind a `dg_interpreter*`: an interpreter that accepts one call at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use delegraph::interpreter::CancellationToken;

use crate::error::{Failure, dg_status};
use crate::state::State;
use crate::worker::Worker;

/// An interpreter that accepts one call at a time.
pub(crate) struct Session {
    /// `None` during an invocation.
    state: Mutex<Option<Box<State>>>,
    token: CancellationToken,
    /// The path of the model, or a description of a model without a path.
    pub(crate) name: String,
    /// The thread of invocations, created by the first one.
    worker: Mutex<Option<Worker>>,
}

impl Session {
    pub(crate) fn new(state: State, name: String) -> Self {
        let token = state.interpreter.cancellation_token();
        Session { state: Mutex::new(Some(Box::new(state))), token, name, worker: Mutex::default() }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Box<State>>>, Failure> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            // The runtime itself tracks the state after a panic.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(busy("another call")),
        };
        if state.is_none() { Err(busy("an invocation")) } else { Ok(state) }
    }

    /// Calls `f` with the interpreter.
    ///
    /// # Errors
    /// [`dg_status::DG_BUSY`] while another call is running; those of `f`.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut state = self.lock()?;
        let state = state.as_mut().ok_or_else(|| busy("an invocation"))?;
        // A cancellation applies to the running call only: one that was requested before has no effect.
        self.token.clear();
        f(state)
    }

    /// Cancels the running call.
    pub(crate) fn cancel(&self) {
        self.token.cancel();
    }

    /// Runs the interpreter in a thread of the session, and then calls `done` there. Until `done` drops its argument,
    /// other calls are [`dg_status::DG_BUSY`]. Returns the thread.
    ///
    /// # Errors
    /// [`dg_status::DG_BUSY`] while another call is running; [`dg_status::DG_OUT_OF_MEMORY`] if the thread cannot be
    /// created or has ended.
    pub(crate) fn start(
        self: &Arc<Self>,
        done: impl FnOnce(Result<(), Failure>, Back) + Send + 'static,
    ) -> Result<ThreadId, Failure> {
        let no_thread = |text: &str| Failure::new(dg_status::DG_OUT_OF_MEMORY, format!("no thread: {text}"));
        let mut slot = self.lock()?;
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = match &mut *worker {
            Some(worker) => worker,
            none => none.insert(Worker::start().map_err(|error| no_thread(&error.to_string()))?),
        };
        let Some(state) = slot.take() else { return Err(busy("an invocation")) };
        drop(slot);
        self.token.clear();
        // The state is returned regardless of the job's outcome.
        let mut back = Back { session: self.clone(), state: Some(state) };
        let job = move || {
            let result = delegraph_ffi::contain::caught(|| back.invoke());
            let internal =
                |text| Err(Failure::new(dg_status::DG_INTERNAL, format!("internal error: {text}")));
            done(result.unwrap_or_else(internal), back);
        };
        if worker.run(job) { Ok(worker.thread()) } else { Err(no_thread("it has ended")) }
    }
}

/// The state of a session during an invocation. Dropping it returns the state to the session.
pub(crate) struct Back {
    session: Arc<Session>,
    state: Option<Box<State>>,
}

impl Back {
    fn invoke(&mut self) -> Result<(), Failure> {
        match &mut self.state {
            Some(state) => Ok(state.invoke()?),
            None => Err(busy("an invocation")),
        }
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        let mut slot = self.session.state.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = self.state.take();
    }
}

fn busy(what: &str) -> Failure {
    let text = format!("{what} is running; an interpreter runs one call at a time");
    Failure::new(dg_status::DG_BUSY, text)
}
