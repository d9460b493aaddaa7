//! Runs in a thread of the library.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use delegraph_ffi::handle::Table;

use crate::error::{Failure, c_string, call, dg_status, remember};
use crate::interpreter::{dg_interpreter, session};
use crate::session::Session;

/// A run in a thread of the library. Deleted with `dg_invocation_delete`.
pub struct dg_invocation {
    _private: (),
}

/// Called at the end of an invocation, in a thread of the library. `message` is null if `status` is `DG_OK`, and valid until
/// the function returns. The interpreter accepts calls again: the function may read outputs, and start the next
/// invocation, but must not wait for it. The function must return normally, without unwinding or jumping out.
/// `user_data` is used until it returns; `dg_invocation_wait` waits for the return, `dg_interpreter_delete` does not.
pub type dg_done_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, status: dg_status, message: *const c_char)>;

/// No time limit for `dg_invocation_wait`.
pub const DG_FOREVER: u64 = u64::MAX;

/// The object behind a `dg_invocation*`.
struct Invocation {
    session: Weak<Session>,
    /// The thread that runs it.
    thread: OnceLock<ThreadId>,
    progress: Mutex<Progress>,
    ended: Condvar,
}

/// The progress of an invocation.
#[derive(Default)]
struct Progress {
    /// The result of the run, once there is one.
    result: Option<Result<(), Failure>>,
    /// Whether the function of the application has returned. From then on, its data may be invalid.
    returned: bool,
}

impl Invocation {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the calling thread runs the invocation.
    fn is_own_thread(&self) -> bool {
        self.thread.get().is_some_and(|&thread| thread == std::thread::current().id())
    }

    /// Returns the result as visible to the calling thread: after the function of the application has returned, or
    /// inside of it.
    fn seen<'p>(&self, progress: &'p Progress) -> Option<&'p Result<(), Failure>> {
        progress.result.as_ref().filter(|_| progress.returned || self.is_own_thread())
    }
}

static INVOCATIONS: Table<Arc<Invocation>> = Table::new(11);

fn invocation(handle: *const dg_invocation) -> Result<Arc<Invocation>, Failure> {
    INVOCATIONS.get(handle).as_deref().cloned().ok_or_else(|| Failure::handle("invocation"))
}

/// The function of an application, with its data.
struct Callback {
    function: dg_done_fn,
    user_data: *mut c_void,
}

// SAFETY: the pointer is only passed back, and the interface declares that this may be in another thread.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self, result: &Result<(), Failure>) {
        let Some(function) = self.function else { return };
        let text = result.as_ref().err().map(|failure| c_string(&failure.message));
        let status = result.as_ref().err().map_or(dg_status::DG_OK, |failure| failure.status);
        let message = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: the application passed the function for this call; the message lives until it returns.
        unsafe { function(self.user_data, status, message) };
    }
}

/// Starts a run and returns immediately. Its end is reported by `dg_invocation_poll`, `dg_invocation_wait`, or a call
/// of `done`, which may be null. Until its end, other calls on the interpreter are `DG_BUSY`, and data of tensors must
/// not be accessed. `invocation` may be null if `done` is not.
///
/// `DG_BUSY` if a call is running. Errors of the run itself are results of the invocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_start(
    interpreter: *mut dg_interpreter,
    done: dg_done_fn,
    user_data: *mut c_void,
    invocation: *mut *mut dg_invocation,
) -> dg_status {
    call(|| {
        let wanted = !invocation.is_null();
        if !wanted && done.is_none() {
            return Err(Failure::argument("both `invocation` and `done` are null; one of them is needed"));
        }
        if !invocation.is_aligned() {
            return Err(Failure::argument("the pointer that receives the invocation is misaligned"));
        }
        if wanted {
            // SAFETY: the interface requires null or a valid pointer for the result; misaligned pointers are excluded.
            unsafe { invocation.write(std::ptr::null_mut()) };
        }
        let session = session(interpreter)?;
        let own = Arc::new(Invocation {
            session: Arc::downgrade(&session),
            thread: OnceLock::new(),
            progress: Mutex::default(),
            ended: Condvar::new(),
        });
        if wanted {
            let handle: *mut dg_invocation = INVOCATIONS.insert(own.clone());
            if handle.is_null() {
                return Err(Failure::new(dg_status::DG_LIMIT, "there are too many invocations"));
            }
            // Set before the start, because `done` may use it. SAFETY: as above.
            unsafe { invocation.write(handle) };
        }
        let (running, callback) = (own.clone(), Callback { function: done, user_data });
        let started = session.start(move |result, back| {
            // `done` may use the invocation before the starting thread has stored the worker thread.
            let _ = running.thread.set(std::thread::current().id());
            let mut progress = running.progress();
            // The interpreter accepts calls again before the end is reported.
            drop(back);
            progress.result = Some(result.clone());
            drop(progress);
            callback.call(&result);
            running.progress().returned = true;
            running.ended.notify_all();
        });
        match started {
            Ok(thread) => {
                let _ = own.thread.set(thread);
                Ok(())
            }
            Err(failure) => {
                if wanted {
                    // SAFETY: as above.
                    unsafe {
                        drop(INVOCATIONS.remove(invocation.read()));
                        invocation.write(std::ptr::null_mut());
                    }
                }
                Err(failure)
            }
        }
    })
}

/// Returns the status of a run; `None` while it is running. An error becomes the last error of this thread.
fn outcome(result: Option<&Result<(), Failure>>) -> dg_status {
    match result {
        None => dg_status::DG_PENDING,
        Some(Ok(())) => dg_status::DG_OK,
        Some(Err(failure)) => remember(failure),
    }
}

/// Returns the result of the invocation, or `DG_PENDING` while it or its `dg_done_fn` is running. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn dg_invocation_poll(invocation: *const dg_invocation) -> dg_status {
    let mut status = dg_status::DG_PENDING;
    let found = call(|| {
        let invocation = self::invocation(invocation)?;
        status = outcome(invocation.seen(&invocation.progress()));
        Ok(())
    });
    if found == dg_status::DG_OK { status } else { found }
}

/// Waits for the end of the invocation, for at most `nanoseconds`, or without a limit for `DG_FOREVER`. Returns its
/// result, or `DG_PENDING` if it is still running. The invocation ends after its `dg_done_fn` has returned. Any number
/// of threads may wait.
///
/// `DG_STATE` if the invocation can run only after this call has returned: in a `dg_done_fn` of the same interpreter.
#[unsafe(no_mangle)]
pub extern "C" fn dg_invocation_wait(invocation: *const dg_invocation, nanoseconds: u64) -> dg_status {
    let mut status = dg_status::DG_PENDING;
    let found = call(|| {
        let invocation = self::invocation(invocation)?;
        let until = Instant::now().checked_add(Duration::from_nanos(nanoseconds));
        let until = until.filter(|_| nanoseconds != DG_FOREVER);
        let mut progress = invocation.progress();
        if progress.result.is_none() && nanoseconds > 0 && invocation.is_own_thread() {
            return Err(Failure::new(dg_status::DG_STATE, "this thread runs the invocation"));
        }
        while invocation.seen(&progress).is_none() {
            progress = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => invocation.ended.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let waited = invocation.ended.wait_timeout(progress, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        status = outcome(invocation.seen(&progress));
        Ok(())
    });
    if found == dg_status::DG_OK { status } else { found }
}

/// Cancels the invocation with `DG_CANCELLED`. May be called from any thread. Has no effect if it has ended.
#[unsafe(no_mangle)]
pub extern "C" fn dg_invocation_cancel(invocation: *const dg_invocation) -> dg_status {
    call(|| {
        let invocation = self::invocation(invocation)?;
        // The lock keeps the invocation from ending, so that no later call is cancelled instead.
        let progress = invocation.progress();
        if progress.result.is_none()
            && let Some(session) = invocation.session.upgrade()
        {
            session.cancel();
        }
        Ok(())
    })
}

/// Deletes the handle; null is allowed. The run continues, and calls its function at the end.
///
/// `DG_INVALID_HANDLE` if it was deleted before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_invocation_delete(invocation: *mut dg_invocation) -> dg_status {
    call(|| match INVOCATIONS.remove(invocation) {
        None if !invocation.is_null() => Err(Failure::handle("invocation")),
        _ => Ok(()),
    })
}
