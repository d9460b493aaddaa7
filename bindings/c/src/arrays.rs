//! `TfLiteIntArray` and `TfLiteFloatArray`: a count, followed by the values, in one allocation of the C library.

use std::ffi::{c_int, c_void};

use delegraph_litert::abi::{FloatArray, IntArray};

/// Allocates an array of `size` values of 4 bytes, zeroed; null if that fails or the size is negative.
fn create(size: c_int) -> *mut c_void {
    // SAFETY: `calloc` takes any numbers.
    bytes(size).map_or(std::ptr::null_mut(), |bytes| unsafe { libc::calloc(1, bytes) })
}

/// Returns the bytes of an array of `size` values.
fn bytes(size: c_int) -> Option<usize> {
    usize::try_from(size).ok()?.checked_mul(size_of::<c_int>())?.checked_add(size_of::<IntArray>())
}

/// Returns the bytes of an array of `size` values, 0 for a negative size.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteIntArrayGetSizeInBytes(size: c_int) -> usize {
    bytes(size).unwrap_or(0)
}

/// Returns the bytes of an array of `size` values, 0 for a negative size and for a number of bytes above the largest
/// `int`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteFloatArrayGetSizeInBytes(size: c_int) -> c_int {
    bytes(size).and_then(|bytes| c_int::try_from(bytes).ok()).unwrap_or(0)
}

/// Allocates an array of `size` integers, all 0; null if that fails or the size is negative.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteIntArrayCreate(size: c_int) -> *mut IntArray {
    let array: *mut IntArray = create(size).cast();
    if !array.is_null() {
        // SAFETY: a new allocation that begins with the count.
        unsafe { (*array).size = size };
    }
    array
}

/// Allocates an array of `size` floats, all 0; null if that fails or the size is negative.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteFloatArrayCreate(size: c_int) -> *mut FloatArray {
    TfLiteIntArrayCreate(size).cast()
}

/// Returns 1 if two arrays have the same values or both are null, 0 otherwise.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteIntArrayEqual(a: *const IntArray, b: *const IntArray) -> c_int {
    // SAFETY: the interface requires null or valid arrays.
    c_int::from(unsafe { a == b || (!a.is_null() && !b.is_null() && ints(a) == ints(b)) })
}

/// Returns 1 if an array has exactly the `size` values at `data`, 0 otherwise.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteIntArrayEqualsArray(
    a: *const IntArray,
    size: c_int,
    data: *const c_int,
) -> c_int {
    // SAFETY: the interface requires null or valid arrays.
    let same =
        unsafe { crate::contain::values(data, size).is_ok_and(|data| !a.is_null() && ints(a) == data) };
    c_int::from(same)
}

/// Returns a copy of an array; null for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteIntArrayCopy(from: *const IntArray) -> *mut IntArray {
    // SAFETY: the interface requires null or a valid array.
    if from.is_null() { std::ptr::null_mut() } else { new(unsafe { ints(from) }) }
}

/// Returns a copy of an array; null for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteFloatArrayCopy(from: *const FloatArray) -> *mut FloatArray {
    // SAFETY: the interface requires null or a valid array. The bits of floats are copied as those of integers.
    unsafe { TfLiteIntArrayCopy(from.cast()) }.cast()
}

/// Frees an array; null is allowed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteIntArrayFree(array: *mut IntArray) {
    // SAFETY: the interface requires null or an array of `TfLiteIntArrayCreate`, which `calloc` allocated.
    unsafe { libc::free(array.cast()) };
}

/// Frees an array; null is allowed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteFloatArrayFree(array: *mut FloatArray) {
    // SAFETY: as for integers.
    unsafe { libc::free(array.cast()) };
}

/// Returns the values of an array; none for null or a negative count.
///
/// # Safety
/// `array` is null, or a valid array that lives as long as the result is used.
pub(crate) unsafe fn ints<'a>(array: *const IntArray) -> &'a [c_int] {
    if array.is_null() || !array.is_aligned() {
        return &[];
    }
    // SAFETY: guaranteed by the caller. The pointer to the values is derived from the pointer to the whole allocation.
    unsafe {
        let size = usize::try_from((*array).size).unwrap_or(0);
        std::slice::from_raw_parts((&raw const (*array).data).cast(), size)
    }
}

/// Allocates an array with these values; null if that fails.
pub(crate) fn new(values: &[c_int]) -> *mut IntArray {
    let Ok(size) = c_int::try_from(values.len()) else { return std::ptr::null_mut() };
    let array = TfLiteIntArrayCreate(size);
    if !array.is_null() {
        // SAFETY: a new allocation of this size.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), (&raw mut (*array).data).cast(), values.len())
        };
    }
    array
}

/// An array that Rust code owns.
#[derive(Debug)]
pub(crate) struct Ints(*mut IntArray);

// SAFETY: the array is owned, and only read through shared references.
unsafe impl Send for Ints {}
// SAFETY: as above.
unsafe impl Sync for Ints {}

impl Ints {
    /// Returns an array with these values; its pointer is null if memory cannot be allocated.
    pub(crate) fn new(values: &[c_int]) -> Self {
        Ints(new(values))
    }

    /// Returns an array of dimensions or indices. Values above the largest `int` are saturated.
    pub(crate) fn of(values: impl IntoIterator<Item = usize>) -> Self {
        Ints::new(&values.into_iter().map(int).collect::<Vec<_>>())
    }

    /// Takes ownership of an array that the application allocated.
    ///
    /// # Safety
    /// The pointer is null, or an array of [`TfLiteIntArrayCreate`] without another owner: `drop` frees it.
    pub(crate) unsafe fn adopt(array: *mut IntArray) -> Self {
        Ints(array)
    }

    /// Returns the pointer for the application.
    pub(crate) fn pointer(&self) -> *mut IntArray {
        self.0
    }

    /// Returns the values.
    pub(crate) fn values(&self) -> &[c_int] {
        // SAFETY: null, or an array that lives as long as `self`.
        unsafe { ints(self.0) }
    }
}

impl Drop for Ints {
    fn drop(&mut self) {
        // SAFETY: null, or an array of `TfLiteIntArrayCreate` (called by `new`, a condition of `adopt`) without another
        // owner.
        unsafe { TfLiteIntArrayFree(self.0) };
    }
}

/// Returns a number of the model as an `int`, saturated.
pub(crate) fn int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_copied_and_compared() {
        let a = Ints::new(&[1, 2, 3]);
        assert_eq!(a.values(), [1, 2, 3]);
        // SAFETY: valid arrays, and null.
        unsafe {
            let copy = TfLiteIntArrayCopy(a.pointer());
            assert_eq!(TfLiteIntArrayEqual(a.pointer(), copy), 1);
            assert_eq!(TfLiteIntArrayEqualsArray(copy, 3, [1, 2, 3].as_ptr()), 1);
            assert_eq!(TfLiteIntArrayEqualsArray(copy, 2, [1, 2].as_ptr()), 0);
            assert_eq!(TfLiteIntArrayEqualsArray(copy, 3, std::ptr::null()), 0);
            assert_eq!(TfLiteIntArrayEqual(copy, std::ptr::null()), 0);
            TfLiteIntArrayFree(copy);
            TfLiteIntArrayFree(std::ptr::null_mut());
            assert!(TfLiteIntArrayCopy(std::ptr::null()).is_null());
            let floats = TfLiteFloatArrayCreate(2);
            let copy = TfLiteFloatArrayCopy(floats);
            assert_eq!((*copy).size, 2);
            TfLiteFloatArrayFree(floats);
            TfLiteFloatArrayFree(copy);
        }
    }

    #[test]
    fn sizes_are_checked() {
        assert!(TfLiteIntArrayCreate(-1).is_null());
        assert_eq!((TfLiteIntArrayGetSizeInBytes(3), TfLiteIntArrayGetSizeInBytes(-3)), (16, 0));
        assert_eq!((TfLiteFloatArrayGetSizeInBytes(0), TfLiteFloatArrayGetSizeInBytes(c_int::MAX)), (4, 0));
    }
}
