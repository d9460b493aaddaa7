//! Work that a kernel submits to its device and finishes later.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use delegraph_core::Result;

/// Result of [`DelegateKernel::submit`](crate::DelegateKernel::submit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// The outputs are computed, or left in buffers. Neither `poll` nor `finish` follows.
    Done,
    /// The work runs on the device. `poll` or `wait` follows, then `finish`; or `abandon`.
    Pending,
}

/// Wakes one thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// The waker of this thread, created once so that waiting does not allocate.
    static WAKER: Waker = Arc::new(Unpark(thread::current())).into();
}

/// Polls until the result is ready, and parks the thread in between.
pub(crate) fn block_on(mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<()>>) -> Result<()> {
    WAKER.with(|waker| {
        let mut cx = Context::from_waker(waker);
        loop {
            match poll(&mut cx) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_parked_until_another_one_wakes_it() {
        let (mut polls, mut worker) = (0, None);
        let result = block_on(|cx| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(Ok(()));
            }
            let waker = cx.waker().clone();
            worker = Some(thread::spawn(move || waker.wake()));
            Poll::Pending
        });
        assert!(result.is_ok() && polls >= 3);
        worker.unwrap().join().unwrap();
    }
}
