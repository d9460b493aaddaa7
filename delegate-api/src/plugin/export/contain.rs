//! No panic crosses: it becomes an error with its text.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Once, OnceLock};

use delegraph_core::{Error, Result};

use super::super::abi::*;
use super::super::raw::{put_message, status_of};

thread_local! {
    /// An exported function runs on this thread: a panic is reported by it, and prints nothing.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic was.
    static PLACE: Cell<String> = const { Cell::new(String::new()) };
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// Runs `f`; a panic becomes its text and place.
pub(super) fn contain<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    /// The hook that was there before; not in ours, so that nothing is on the heap when the library is unloaded.
    static BEFORE: OnceLock<Hook> = OnceLock::new();
    static HOOK: Once = Once::new();
    // The hook of this library's own copy of the standard library. Panics of the plugin's other threads go on to
    // whatever hook was there.
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
        // What was thrown may panic again when it is dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        text + &PLACE.take()
    })
}

/// The name of the source file without its folders, which are of no use to anybody else, and the line.
fn place(location: &std::panic::Location<'_>) -> String {
    let file = location.file().rsplit(['/', '\\']).next().unwrap_or_default();
    format!(" ({file}:{})", location.line())
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".into())
}

/// Runs `f`; where nobody can be told of a panic, it is logged.
pub(super) fn contain_quietly(f: impl FnOnce()) {
    if let Err(panic) = contain(f) {
        log::error!("a plugin panicked: {panic}");
    }
}

/// Runs `f`; an error or a panic becomes a status and a message.
///
/// # Safety
/// `error` is null or room for a message.
pub(super) unsafe fn status(error: *mut DelegraphError, f: impl FnOnce() -> Result<()>) -> i32 {
    // SAFETY: this function's condition.
    unsafe {
        match contain(f) {
            Ok(Ok(())) => DELEGRAPH_OK,
            Ok(Err(e)) => report(error, &e),
            Err(panic) => failed(error, DELEGRAPH_PANICKED, &panic),
        }
    }
}

/// # Safety
/// As for [`status`].
pub(super) unsafe fn report(slot: *mut DelegraphError, error: &Error) -> i32 {
    let (status, text) = status_of(error);
    // SAFETY: this function's condition.
    unsafe { failed(slot, status, &text) }
}

/// # Safety
/// As for [`status`].
pub(super) unsafe fn failed(slot: *mut DelegraphError, status: i32, text: &str) -> i32 {
    // SAFETY: this function's condition.
    unsafe { put_message(slot, text) };
    status
}
