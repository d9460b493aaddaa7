//! The boundary of a library: no panic leaves it, and no pointer is used before it is checked for null.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use delegraph::core::error::{Error, Result};

/// Runs `f`, and catches a panic.
///
/// # Errors
/// The message of a panic.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(panic) => {
                // Dropping a payload of another type may panic.
                std::mem::forget(panic);
                String::new()
            }
        },
    })
}

/// Returns the text at `text`; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero byte and lives as long as the result is used.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: guaranteed by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Returns the `count` values at `values`.
///
/// # Errors
/// A text, if the count is not 0 and the pointer is null or misaligned, or the values exceed the address space.
///
/// # Safety
/// `values` is null, misaligned, or valid for reads of `count` initialized values as long as the result is used.
pub unsafe fn values<'a, T>(values: *const T, count: usize) -> Result<&'a [T], String> {
    let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
    match bytes {
        _ if count == 0 => Ok(&[]),
        None => Err(format!("a count of {count}, which memory cannot hold")),
        Some(_) if !values.is_null() && values.is_aligned() => {
            // SAFETY: guaranteed by the caller; null and misaligned pointers, and sizes above `isize::MAX`, are
            // excluded.
            Ok(unsafe { std::slice::from_raw_parts(values, count) })
        }
        Some(_) => Err(format!("a null or misaligned pointer to {count} values")),
    }
}

/// Returns a path: any bytes on Unix, UTF-8 elsewhere.
///
/// # Errors
/// [`Error::InvalidInput`] for bytes that are not UTF-8; never on Unix.
#[cfg(unix)]
pub fn path(path: &CStr) -> Result<&Path> {
    use std::os::unix::ffi::OsStrExt;
    Ok(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

/// Returns a path: any bytes on Unix, UTF-8 elsewhere.
///
/// # Errors
/// [`Error::InvalidInput`] for bytes that are not UTF-8; never on Unix.
#[cfg(not(unix))]
pub fn path(path: &CStr) -> Result<&Path> {
    let text = path.to_str().map_err(|_| Error::InvalidInput("the path is not UTF-8".into()))?;
    Ok(Path::new(text))
}

/// Returns text that is UTF-8. `what` names it in the error.
///
/// # Errors
/// [`Error::InvalidInput`] for other bytes.
pub fn utf8<'a>(text: &'a CStr, what: &str) -> Result<&'a str> {
    text.to_str().map_err(|_| {
        Error::InvalidInput(format!("{what} must be UTF-8, is \"{}\"", text.to_bytes().escape_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(caught(|| 3), Ok(3));
        let text: Result<(), String> = caught(|| panic!("expected in this test: {}", 5));
        assert_eq!(text, Err("expected in this test: 5".into()));
    }

    #[test]
    fn pointers_and_counts_are_checked() {
        let numbers = [1i32, 2, 3];
        // SAFETY: the pointers are null, or the array's; misaligned ones are not read.
        unsafe {
            assert_eq!(values(numbers.as_ptr(), 3), Ok(&numbers[..]));
            assert_eq!(values::<i32>(std::ptr::null(), 0), Ok(&[][..]));
            assert!(values::<i32>(std::ptr::null(), 1).is_err());
            assert!(values(numbers.as_ptr(), usize::MAX / 4).is_err());
            assert!(values(numbers.as_ptr(), usize::MAX).is_err());
            assert!(values(numbers.as_ptr().byte_add(1), 1).is_err());
            assert!(text(std::ptr::null()).is_none());
            assert_eq!(text(c"abc".as_ptr()), Some(c"abc"));
        }
    }

    #[test]
    fn payloads_that_panic_when_dropped_are_not_dropped() {
        struct Payload;
        impl Drop for Payload {
            fn drop(&mut self) {
                panic!("the payload was dropped");
            }
        }
        assert_eq!(caught(|| std::panic::panic_any(Payload)), Err(String::new()));
        assert_eq!(caught(|| panic!("a {}", "text")), Err("a text".into()));
        assert_eq!(caught(|| panic!("text")), Err("text".into()));
    }

    #[test]
    fn texts_are_utf8() {
        assert_eq!(utf8(c"ab", "the name").ok(), Some("ab"));
        let error = utf8(c"a\xff", "the name").err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("invalid input: the name must be UTF-8, is \"a\\xff\""));
    }
}
