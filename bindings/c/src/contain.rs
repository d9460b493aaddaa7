//! The boundary of the library: panics are caught, and counts of the interface are checked.

use std::ffi::c_int;

use delegraph_ffi::contain::caught;
pub(crate) use delegraph_ffi::contain::text;

use crate::report::Reporter;

/// Runs a function of the interface. A panic is reported, and `otherwise` is the result.
pub(crate) fn guard<T>(name: &str, otherwise: T, f: impl FnOnce() -> T) -> T {
    caught(f).unwrap_or_else(|text| {
        Reporter::default().report(&format!("{name}: internal error: {text}"));
        otherwise
    })
}

/// Returns the `count` values at `values`.
///
/// # Errors
/// A text, if the count is negative, or the pointer is null or misaligned and the count is not 0.
///
/// # Safety
/// `values` is null, or valid for reads of `count` values as long as the result is used.
pub(crate) unsafe fn values<'a, T>(values: *const T, count: c_int) -> Result<&'a [T], String> {
    let count = usize::try_from(count).map_err(|_| format!("a list with the negative length {count}"))?;
    // SAFETY: guaranteed by the caller.
    unsafe { delegraph_ffi::contain::values(values, count) }
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
    fn counts_are_checked() {
        let numbers = [1i32, 2, 3];
        // SAFETY: the pointer is the array's.
        unsafe {
            assert_eq!(values(numbers.as_ptr(), 3), Ok(&numbers[..]));
            assert!(values(numbers.as_ptr(), -1).is_err());
        }
    }
}
