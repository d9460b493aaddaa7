//! The border of the library: no panic leaves it, and no pointer is used before it is checked for null.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::report::Reporter;

/// Runs a function of the interface. A panic is reported, and `otherwise` is the result.
pub(crate) fn guard<T>(name: &str, otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Reporter::default().report(&format!("{name}: internal error: {text}"));
        otherwise
    })
}

/// Returns the text at `text`; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero byte and lives as long as the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the condition of this function.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Returns the `count` values at `values`.
///
/// # Errors
/// A text, if the count is negative, or the pointer is null or misaligned and the count is not 0.
///
/// # Safety
/// `values` is null, or valid for reads of `count` values as long as the result is used.
pub(crate) unsafe fn values<'a, T>(values: *const T, count: c_int) -> Result<&'a [T], String> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !values.is_null() && values.is_aligned() => {
            // SAFETY: the condition of this function; null and misaligned pointers are excluded.
            Ok(unsafe { std::slice::from_raw_parts(values, count) })
        }
        Ok(count) => Err(format!("a null or misaligned pointer to {count} values")),
        Err(_) => Err(format!("a count of {count}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_the_result() {
        assert_eq!(guard("f", 7, || 3), 3);
        assert_eq!(guard("f", 7, || panic!("expected in this test")), 7);
    }

    #[test]
    fn pointers_and_counts_are_checked() {
        let numbers = [1i32, 2, 3];
        // SAFETY: the pointers are null, or the array's; misaligned ones are not read.
        unsafe {
            assert_eq!(values(numbers.as_ptr(), 3), Ok(&numbers[..]));
            assert_eq!(values::<i32>(std::ptr::null(), 0), Ok(&[][..]));
            assert!(values::<i32>(std::ptr::null(), 1).is_err() && values(numbers.as_ptr(), -1).is_err());
            assert!(values(numbers.as_ptr().byte_add(1), 1).is_err());
            assert!(text(std::ptr::null()).is_none());
            assert_eq!(text(c"abc".as_ptr()), Some(c"abc"));
        }
    }
}
