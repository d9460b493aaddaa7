//! Reading the runtime's structures: every pointer and size is checked before use.

use std::ffi::{CStr, c_char, c_int, c_void};

use delegraph_core::TensorType;

use crate::abi;

/// The maximum length of a list of the runtime. A longer one is invalid.
const LONGEST: usize = 1 << 24;

/// A result whose error is a message, for example about an invalid value of the runtime.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// Returns the pointer, if it is not null and aligned for its type.
pub(crate) fn checked<T>(pointer: *const T, what: &str) -> Result<*const T> {
    if pointer.is_null() {
        return Err(format!("{what} is null"));
    }
    if !pointer.is_aligned() {
        return Err(format!("{what} is not aligned: {pointer:p}"));
    }
    Ok(pointer)
}

/// Returns the integers of a list. A null pointer is an error.
///
/// # Safety
/// `list` is null, or points to a list of the runtime that does not change during `'a`.
pub(crate) unsafe fn ints<'a>(list: *const abi::IntArray, what: &str) -> Result<&'a [c_int]> {
    let list = checked(list, what)?;
    // SAFETY: not null and aligned; it is a list (guaranteed by the caller).
    let (size, data) = unsafe { ((*list).size, (&raw const (*list).data).cast::<c_int>()) };
    let size = length(size, what)?;
    // SAFETY: `size` integers follow.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// Returns the floats of a list. A null pointer is an error.
///
/// # Safety
/// As for [`ints`].
pub(crate) unsafe fn floats<'a>(list: *const abi::FloatArray, what: &str) -> Result<&'a [f32]> {
    let list = checked(list, what)?;
    // SAFETY: not null and aligned; it is a list (guaranteed by the caller).
    let (size, data) = unsafe { ((*list).size, (&raw const (*list).data).cast::<f32>()) };
    let size = length(size, what)?;
    // SAFETY: `size` floats follow.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// Returns the bytes behind a pointer; none if it is null and `len` is 0.
///
/// # Safety
/// `data` is null, or valid for reads of `len` bytes that do not change during `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    let data = checked(data.cast::<u8>(), what)?;
    if isize::try_from(len).is_err() {
        return Err(format!("{what} has {len} bytes"));
    }
    // SAFETY: not null; the bytes are valid (guaranteed by the caller).
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Returns a text; empty if the pointer is null.
///
/// # Safety
/// `text` is null, or ends with a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; it is terminated (guaranteed by the caller).
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns a length that is not negative and within the limit.
pub(crate) fn length(size: c_int, what: &str) -> Result<usize> {
    let checked = usize::try_from(size).ok().filter(|&size| size <= LONGEST);
    checked.ok_or_else(|| format!("{what} has a length of {size}"))
}

/// The element types in the order of their codes of the C interface, which begin with 1 and differ from the format's.
const BY_CODE: [TensorType; 23] = {
    use TensorType::*;
    [
        Float32,
        Int32,
        UInt8,
        Int64,
        String,
        Bool,
        Int16,
        Complex64,
        Int8,
        Float16,
        Float64,
        Complex128,
        UInt64,
        Resource,
        Variant,
        UInt32,
        UInt16,
        Int4,
        BFloat16,
        Int2,
        UInt4,
        Float8E4M3FN,
        Float8E5M2,
    ]
};

/// Returns the element type with this code of the C interface.
pub(crate) fn tensor_type(code: c_int) -> Result<TensorType> {
    let index = usize::try_from(code).ok().and_then(|code| code.checked_sub(1));
    index.and_then(|i| BY_CODE.get(i)).copied().ok_or_else(|| format!("unknown tensor type {code}"))
}

/// Returns the code of an element type; 0 for one that the C interface lacks.
#[cfg(any(feature = "external", test))]
pub(crate) fn type_code(ty: TensorType) -> c_int {
    let index = BY_CODE.iter().position(|&known| known == ty);
    index.and_then(|index| c_int::try_from(index + 1).ok()).unwrap_or_default()
}

/// A list that is passed to the runtime.
pub(crate) struct List(Vec<c_int>);

impl List {
    pub(crate) fn new(items: &[c_int]) -> Result<Self> {
        let size = c_int::try_from(items.len()).map_err(|_| format!("a list of {} items", items.len()))?;
        Ok(List(std::iter::once(size).chain(items.iter().copied()).collect()))
    }

    pub(crate) fn as_ptr(&self) -> *const abi::IntArray {
        self.0.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        let list = List::new(&[3, -1, 7]).unwrap();
        // SAFETY: a list.
        assert_eq!(unsafe { ints(list.as_ptr(), "it") }.unwrap(), [3, -1, 7]);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { ints(std::ptr::null(), "it") }.unwrap_err(), "it is null");
        let negative = [-5_i32, 0];
        // SAFETY: only the length is read.
        let read = unsafe { ints(negative.as_ptr().cast(), "it") };
        assert_eq!(read.unwrap_err(), "it has a length of -5");
        assert!(checked(std::ptr::without_provenance::<u32>(6), "it").unwrap_err().contains("not aligned"));
    }

    #[test]
    fn types_are_numbered_by_the_c_interface() {
        assert_eq!(tensor_type(1), Ok(TensorType::Float32));
        assert_eq!(tensor_type(9), Ok(TensorType::Int8));
        assert_eq!(tensor_type(10), Ok(TensorType::Float16));
        assert_eq!(tensor_type(23), Ok(TensorType::Float8E5M2));
        assert!(TensorType::ALL.iter().copied().all(|ty| tensor_type(type_code(ty)) == Ok(ty)));
        assert!(tensor_type(0).is_err() && tensor_type(24).is_err() && tensor_type(-1).is_err());
    }
}
