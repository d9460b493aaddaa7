//! Texts and bytes that the application receives and frees.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex, PoisonError};

use delegraph::core::types::printable_json;
use delegraph_ffi::contain;

use crate::error::{Failure, call, dg_status};

/// All texts that the application holds, by their addresses, so that a double free is detected.
static GIVEN: LazyLock<Mutex<HashMap<usize, Box<[u8]>>>> = LazyLock::new(Mutex::default);

/// Stores bytes with a terminating zero. Returns their address.
pub(crate) fn give(bytes: &[u8]) -> *mut c_char {
    let mut text = Vec::with_capacity(bytes.len() + 1);
    text.extend_from_slice(bytes);
    text.push(0);
    let mut text = text.into_boxed_slice();
    let pointer = text.as_mut_ptr();
    GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(pointer.addr(), text);
    pointer.cast()
}

/// Returns the text at `text`, which is UTF-8. `what` names it in errors.
///
/// # Errors
/// [`dg_status::DG_INVALID_ARGUMENT`] for null, and for other bytes.
///
/// # Safety
/// `text` is null, or ends with a zero byte and lives as long as the result is used.
pub(crate) unsafe fn utf8<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { present(text, what) }?;
    Ok(contain::utf8(text, what)?)
}

/// As [`utf8`], for any bytes.
///
/// # Errors
/// [`dg_status::DG_INVALID_ARGUMENT`] for null.
///
/// # Safety
/// As [`utf8`].
pub(crate) unsafe fn present<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { contain::text(text) }.ok_or_else(|| Failure::argument(format!("{what} is null")))
}

/// Returns a document as JSON.
///
/// # Errors
/// [`dg_status::DG_INTERNAL`] if it cannot be serialized.
pub(crate) fn json(document: &(impl serde::Serialize + ?Sized)) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document);
    let text = text.map_err(|error| Failure::new(dg_status::DG_INTERNAL, error.to_string()))?;
    Ok(printable_json(text))
}

/// Frees a text that a function of this library returned through a `char**`. Null is allowed.
///
/// `DG_INVALID_ARGUMENT` for any other pointer, and for a text that was freed before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_text_free(text: *mut c_char) -> dg_status {
    call(|| {
        if text.is_null() {
            return Ok(());
        }
        let text = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&text.addr());
        text.map(drop).ok_or_else(|| Failure::argument("the text was freed, or is not one of this library"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_freed_once() {
        let text = give(b"a\0b");
        // SAFETY: `give` stores the bytes and a zero.
        assert_eq!(unsafe { std::slice::from_raw_parts(text.cast::<u8>(), 4) }, b"a\0b\0");
        assert_eq!(dg_text_free(text), dg_status::DG_OK);
        assert_eq!(dg_text_free(text), dg_status::DG_INVALID_ARGUMENT);
        assert_eq!(dg_text_free(std::ptr::null_mut()), dg_status::DG_OK);
        let other = 5u8;
        assert_eq!(dg_text_free((&raw const other).cast_mut().cast()), dg_status::DG_INVALID_ARGUMENT);
    }
}
