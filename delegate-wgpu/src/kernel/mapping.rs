//! Waiting for the staging buffer to be mapped, by blocking and by polling.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::device::POLL_TIMEOUT;

/// The progress of a request to map the staging buffer.
#[derive(Default)]
pub(super) struct Mapping {
    request: Mutex<Request>,
    changed: Condvar,
}

#[derive(Default)]
struct Request {
    /// Whether the buffer was mapped; `None` until the device is done.
    result: Option<bool>,
    /// The task to wake with the result.
    waker: Option<Waker>,
}

impl Mapping {
    fn lock(&self) -> MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result, if it is available.
    pub(super) fn result(&self) -> Option<bool> {
        self.lock().result
    }

    /// Clears the result of the last request.
    pub(super) fn reset(&self) {
        self.lock().result = None;
    }

    /// Stores the result, and wakes its consumers.
    pub(super) fn set(&self, mapped: bool) {
        let mut request = self.lock();
        request.result = Some(mapped);
        let waker = request.waker.take();
        drop(request);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the result and returns it; false after [`POLL_TIMEOUT`].
    pub(super) fn wait(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), POLL_TIMEOUT, |r| r.result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.result.unwrap_or(false)
    }

    /// Returns the result if it is available; otherwise wakes `waker` when it is.
    pub(super) fn poll(&self, waker: &Waker) -> Option<bool> {
        let mut request = self.lock();
        if request.result.is_none() {
            match &mut request.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        request.result
    }
}
