//! Containment of the delegate's code: panics, and mutexes that a panic may have poisoned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::raw::Result;

/// Runs code of the delegate. A panic becomes an error.
pub(crate) fn contain<T, E: std::fmt::Display>(f: impl FnOnce() -> Result<T, E>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            // Dropping a payload may panic.
            std::mem::forget(panic);
            Err(format!("it panicked: {text}"))
        }
    }
}

/// Locks a mutex. The guarded values stay valid when the delegate panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
