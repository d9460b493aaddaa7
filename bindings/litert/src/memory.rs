//! Memory of the C library, which either side of the interface may free.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use crate::abi;
use crate::raw::{List, Result};

/// A list in the C library's memory.
pub(crate) struct CList(NonNull<abi::IntArray>);

// SAFETY: the list is owned, and its memory may be freed by any thread.
unsafe impl Send for CList {}

impl CList {
    /// Creates a list.
    pub(crate) fn new(items: &[c_int]) -> Result<Self> {
        let list = List::new(items)?;
        let bytes = (items.len() + 1) * size_of::<c_int>();
        let memory = CMemory::zeroed(bytes)?;
        // SAFETY: both are valid for the same number of bytes, and the memory is new.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr().cast::<u8>(), memory.as_ptr(), bytes) };
        Ok(CList(memory.into_inner().cast()))
    }

    /// Takes ownership of a list of the delegate. A null pointer is an error.
    ///
    /// # Safety
    /// `list` is null, or an owned list in the C library's memory.
    #[cfg(feature = "external")]
    pub(crate) unsafe fn adopt(list: *mut abi::IntArray, what: &str) -> Result<Self> {
        crate::raw::checked(list.cast_const(), what)?;
        NonNull::new(list).map(CList).ok_or_else(|| format!("{what} is null"))
    }

    /// Returns the elements.
    #[cfg(feature = "external")]
    pub(crate) fn items(&self, what: &str) -> Result<&[c_int]> {
        // SAFETY: a list (`new`, `adopt`), which lives as long as `self`.
        unsafe { crate::raw::ints(self.0.as_ptr(), what) }
    }

    #[cfg(feature = "external")]
    pub(crate) fn as_ptr(&self) -> *mut abi::IntArray {
        self.0.as_ptr()
    }

    /// Passes the list to an owner that frees it with the C library's `free`.
    pub(crate) fn into_raw(self) -> *mut abi::IntArray {
        let list = self.0.as_ptr();
        std::mem::forget(self);
        list
    }
}

impl Drop for CList {
    fn drop(&mut self) {
        // SAFETY: memory of the C library, owned by this object.
        unsafe { libc::free(self.0.as_ptr().cast::<c_void>()) };
    }
}

/// Bytes in the C library's memory.
pub(crate) struct CMemory(NonNull<u8>);

// SAFETY: as for `CList`.
unsafe impl Send for CMemory {}

impl CMemory {
    /// Allocates `len` zero bytes, or one if `len` is 0.
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        // SAFETY: any size is allowed.
        let memory = unsafe { libc::calloc(len.max(1), 1) };
        NonNull::new(memory.cast()).map(CMemory).ok_or_else(|| format!("no memory for {len} bytes"))
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Passes the memory to an owner that frees it with the C library's `free`.
    pub(crate) fn into_inner(self) -> NonNull<u8> {
        let memory = self.0;
        std::mem::forget(self);
        memory
    }
}

impl Drop for CMemory {
    fn drop(&mut self) {
        // SAFETY: memory of the C library, owned by this object.
        unsafe { libc::free(self.0.as_ptr().cast::<c_void>()) };
    }
}
