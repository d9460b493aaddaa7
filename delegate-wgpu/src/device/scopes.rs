//! Errors that a device reports for commands.
//!
//! Native backends report at once. A browser reports by promises: those for a kernel's commands are collected
//! ([`collect`]), and polled with its next run ([`Reports::poll`]).

#[cfg(not(target_arch = "wasm32"))]
use blocking as imp;
#[cfg(target_arch = "wasm32")]
use promised as imp;

pub(crate) use imp::{Reports, collect};

/// Runs `f` and returns the first error that `device` reports meanwhile, on this thread.
///
/// In a browser, the error is not known yet: it is among the reports that [`collect`] returns.
pub(crate) fn checked<T>(device: &wgpu::Device, f: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    let scopes = [Internal, OutOfMemory, Validation].map(|filter| device.push_error_scope(filter));
    let result = f();
    let [internal, memory, validation] = scopes;
    // The innermost scope is popped first.
    let errors = [validation, memory, internal].map(|scope| imp::report(scope.pop()));
    errors.into_iter().flatten().next().map_or(Ok(result), Err)
}

#[cfg(not(target_arch = "wasm32"))]
mod blocking {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Reports that are outstanding: none.
    #[derive(Default)]
    pub(crate) struct Reports {}

    impl Reports {
        /// Adds the reports of later commands.
        pub(crate) fn add(&mut self, _: Reports) {}

        /// Returns the first error, if there is one, once all reports have arrived.
        pub(crate) fn poll(&mut self, _: &mut Context<'_>) -> Poll<Option<wgpu::Error>> {
            Poll::Ready(None)
        }
    }

    /// Runs `f` and returns the reports on its commands that are outstanding.
    pub(crate) fn collect<T>(f: impl FnOnce() -> T) -> (T, Reports) {
        (f(), Reports {})
    }

    /// Returns the error of a scope. Its future is ready at the first poll, and waiting allocates nothing.
    pub(super) fn report(scope: impl Future<Output = Option<wgpu::Error>>) -> Option<wgpu::Error> {
        let mut scope = pin!(scope);
        match scope.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error,
            Poll::Pending => pollster::block_on(scope),
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod promised {
    use std::cell::RefCell;
    use std::mem;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    type Report = Pin<Box<dyn Future<Output = Option<wgpu::Error>> + Send>>;

    thread_local! {
        /// The reports of the innermost [`collect`].
        static COLLECTED: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
    }

    /// Reports that are outstanding.
    #[derive(Default)]
    pub(crate) struct Reports {
        outstanding: Vec<Report>,
        error: Option<wgpu::Error>,
    }

    impl Reports {
        /// Adds the reports of later commands.
        pub(crate) fn add(&mut self, later: Reports) {
            self.outstanding.extend(later.outstanding);
        }

        /// Returns the first error, if there is one, once all reports have arrived.
        pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<wgpu::Error>> {
            let error = &mut self.error;
            self.outstanding.retain_mut(|report| match report.as_mut().poll(cx) {
                Poll::Pending => true,
                Poll::Ready(found) => {
                    *error = error.take().or(found);
                    false
                }
            });
            if self.outstanding.is_empty() { Poll::Ready(self.error.take()) } else { Poll::Pending }
        }
    }

    /// Runs `f` and returns the reports on its commands that are outstanding.
    pub(crate) fn collect<T>(f: impl FnOnce() -> T) -> (T, Reports) {
        let outer = COLLECTED.with_borrow_mut(mem::take);
        let result = f();
        let outstanding = COLLECTED.with_borrow_mut(|reports| mem::replace(reports, outer));
        (result, Reports { outstanding, error: None })
    }

    /// Adds the report of a scope, whose error is not known yet, to those of the innermost [`collect`].
    pub(super) fn report(
        scope: impl Future<Output = Option<wgpu::Error>> + Send + 'static,
    ) -> Option<wgpu::Error> {
        COLLECTED.with_borrow_mut(|reports| reports.push(Box::pin(scope)));
        None
    }
}
