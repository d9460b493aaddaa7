//! Converts panics to errors, so that none crosses the interface.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Once, OnceLock};

use delegraph_core::{Error, Result};

use super::super::abi::*;
use super::super::raw::{put_message, status_of};

thread_local! {
    /// Whether an exported function runs on this thread. It reports panics, so they print nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The source location of the last panic.
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// Runs `f`, and converts a panic to its text and location.
pub(super) fn contain<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    /// The previous hook. The new hook does not capture it, so that nothing is left on the heap when the library is
    /// unloaded.
    static BEFORE: OnceLock<Hook> = OnceLock::new();
    static HOOK: Once = Once::new();
    // Installed in this library's own copy of the standard library. Panics of other threads of the plugin are passed to
    // the previous hook.
    HOOK.call_once(|| {
        let _ = BEFORE.set(std::panic::take_hook());
        std::panic::set_hook(Box::new(|info| {
            if INSIDE.get() {
                PLACE.set(info.location().map(place).unwrap_or_default());
            } else if let Some(before) = BEFORE.get() {
                before(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(outer);
    result.map_err(|panic| {
        let text = text_of(&*panic);
        // The payload of a panic may panic again when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text + &PLACE.take()
    })
}

/// Returns the file name of the source, without folders of the build machine, and the line.
fn place(location: &std::panic::Location<'_>) -> String {
    let file = location.file().rsplit(['/', '\\']).next().unwrap_or_default();
    format!(" ({file}:{})", location.line())
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
}

/// Runs `f`. A panic is logged, because it cannot be reported to the caller.
pub(super) fn contain_quietly(f: impl FnOnce()) {
    if let Err(panic) = contain(f) {
        log::error!("a plugin panicked: {panic}");
    }
}

/// Runs `f`, and converts an error or a panic to a status and a message.
///
/// # Safety
/// `error` is null or valid for a message.
pub(super) unsafe fn status(error: *mut DelegraphError, f: impl FnOnce() -> Result<()>) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match contain(f) {
            Ok(Ok(())) => DELEGRAPH_OK,
            Ok(Err(e)) => report(error, &e),
            Err(panic) => failed(error, DELEGRAPH_PANICKED, &panic),
        }
    }
}

/// # Safety
/// As [`status`].
pub(super) unsafe fn report(slot: *mut DelegraphError, error: &Error) -> i32 {
    let (status, text) = status_of(error);
    // SAFETY: guaranteed by the caller.
    unsafe { failed(slot, status, &text) }
}

/// # Safety
/// As [`status`].
pub(super) unsafe fn failed(slot: *mut DelegraphError, status: i32, text: &str) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { put_message(slot, text) };
    status
}
