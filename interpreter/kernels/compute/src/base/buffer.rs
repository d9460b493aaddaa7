//! Aligned owned buffers, scratch memory, and outputs that several threads write.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};

use bytemuck::Pod;
use delegraph_core::kernel::{ALIGNMENT, AlignedBuffer};

use crate::base::error::{ComputeError, Result};

/// Bytes of a cache line, which is the alignment of packed operands.
pub(crate) const LINE: usize = ALIGNMENT;

/// An owned, zero-initialized buffer that is aligned to 64 bytes.
pub struct AlignedVec<T> {
    buffer: AlignedBuffer,
    element: PhantomData<T>,
}

impl<T> fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AlignedVec").field(&self.buffer).finish()
    }
}

impl<T: Pod> AlignedVec<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// [`ComputeError::TooLarge`] if the size overflows or exceeds the limit of [`within`], or the memory cannot be
    /// allocated.
    pub fn zeroed(len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= LINE) };
        let too_large = ComputeError::TooLarge { what: "packed operands" };
        let bytes = len.checked_mul(size_of::<T>()).ok_or(too_large.clone())?;
        if !take(bytes.div_ceil(LINE).saturating_mul(LINE)) {
            return Err(too_large);
        }
        let buffer = AlignedBuffer::zeroed(bytes).map_err(|_| too_large)?;
        Ok(Self { buffer, element: PhantomData })
    }

    /// Returns the elements.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        bytemuck::cast_slice(self.buffer.bytes())
    }

    /// Returns the elements, to be written.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.buffer.bytes_mut())
    }
}

thread_local! {
    /// The bytes that buffers of this thread may take in total, and the bytes that they have requested. Outside of
    /// [`within`] there is a limit of `usize::MAX`.
    static ALLOWANCE: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
}

/// Calls `make`, in which the buffers ([`AlignedVec`]) of this thread may take `limit` bytes in total, each rounded up
/// to a multiple of 64. Also returns the number of requested bytes, which exceeds the limit if a buffer was refused.
pub fn within<T>(limit: usize, make: impl FnOnce() -> T) -> (T, usize) {
    struct Reset((usize, usize));
    impl Drop for Reset {
        fn drop(&mut self) {
            ALLOWANCE.set(self.0);
        }
    }
    let _reset = Reset(ALLOWANCE.replace((limit, 0)));
    let made = make();
    (made, ALLOWANCE.get().1)
}

/// Counts a request for `bytes` bytes; false if they exceed the allowance.
fn take(bytes: usize) -> bool {
    let (limit, requested) = ALLOWANCE.get();
    let requested = requested.saturating_add(bytes);
    ALLOWANCE.set((limit, requested));
    requested <= limit
}

/// An output that several threads write, each its own part.
#[derive(Clone, Copy)]
pub struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: a `SharedMut` is a slice whose parts threads access exclusively: `slice` requires it, and so does every write
// through `ptr`. That is sound for `T: Send`.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: see `Send`.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Borrows a slice for shared writing.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), borrow: PhantomData }
    }

    /// Pointer to an element. The caller must stay inside the slice, and write only elements that no other thread
    /// accesses.
    #[inline]
    pub fn ptr(&self, index: usize) -> *mut T {
        // Tests of this crate are compiled without debug assertions.
        if cfg!(any(test, debug_assertions)) {
            assert!(index <= self.len, "{index} is beyond {}", self.len);
        }
        self.start.wrapping_add(index)
    }

    /// Returns a part of the slice.
    ///
    /// # Safety
    /// No other live reference may cover any of these elements.
    #[inline]
    pub unsafe fn slice(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part {start}+{len} of {} elements", self.len);
        // SAFETY: in range by the assertion, exclusive by the caller's contract, and valid for the lifetime of the
        // borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

/// A slice in parts that several threads write, each its own. The last part may be shorter.
#[derive(Clone, Copy)]
pub struct Parts<'a, T> {
    whole: SharedMut<'a, T>,
    part: usize,
}

impl<'a, T> Parts<'a, T> {
    /// Parts of `part` elements.
    pub fn new(slice: &'a mut [T], part: usize) -> Self {
        Self { whole: SharedMut::new(slice), part }
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.whole.len.div_ceil(self.part.max(1))
    }

    /// Returns a part.
    ///
    /// # Safety
    /// No other live reference may cover the part: each part may be taken once.
    pub unsafe fn get(&self, index: usize) -> &'a mut [T] {
        let start = index.saturating_mul(self.part).min(self.whole.len);
        // SAFETY: parts do not overlap, and the caller takes each once.
        unsafe { self.whole.slice(start, self.part.min(self.whole.len - start)) }
    }
}

/// Returns the bytes of scratch for `count` aligned values of `T`, regardless of the alignment of the scratch slice.
pub(crate) fn scratch_bytes<T>(count: usize) -> Option<usize> {
    count.checked_mul(size_of::<T>())?.checked_next_multiple_of(LINE)?.checked_add(LINE)
}

/// Splits `count` aligned values off the front of a scratch slice. `None` if it is too short.
pub(crate) fn carve<'a, T: Pod>(scratch: &mut &'a mut [u8], count: usize) -> Option<&'a mut [T]> {
    let skip = scratch.as_ptr().align_offset(LINE);
    let bytes = count.checked_mul(size_of::<T>())?;
    let (_, rest) = std::mem::take(scratch).split_at_mut_checked(skip)?;
    let (mine, rest) = rest.split_at_mut_checked(bytes)?;
    *scratch = rest;
    bytemuck::try_cast_slice_mut(mine).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_keep_to_their_allowance() {
        let two = || (AlignedVec::<u8>::zeroed(100).is_ok(), AlignedVec::<f32>::zeroed(16).is_ok());
        assert_eq!(within(192, two), ((true, true), 192));
        assert_eq!(within(191, two), ((true, false), 192));
        assert_eq!(within(191, || within(0, two)).0, ((false, false), 192));
        assert!(two().1);
    }

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let v = AlignedVec::<f32>::zeroed(len).unwrap();
            assert_eq!(v.as_slice().len(), len);
            assert_eq!(v.as_slice().as_ptr() as usize % LINE, 0);
            assert!(v.as_slice().iter().all(|&x| x == 0.0));
        }
        // Miri ends where memory is exhausted.
        assert!(cfg!(miri) || AlignedVec::<f32>::zeroed(usize::MAX / 8).is_err());
        assert!(AlignedVec::<f32>::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn carving_keeps_alignment_at_any_offset() {
        let mut memory = vec![0u8; 4096];
        for offset in 0..70 {
            let need = scratch_bytes::<u64>(5).unwrap() + scratch_bytes::<f32>(33).unwrap();
            let mut rest = &mut memory[offset..offset + need];
            let a = carve::<u64>(&mut rest, 5).unwrap();
            let b = carve::<f32>(&mut rest, 33).unwrap();
            assert_eq!((a.len(), b.len()), (5, 33));
            assert_eq!((a.as_ptr() as usize % LINE, b.as_ptr() as usize % LINE), (0, 0));
            assert!(carve::<f32>(&mut rest, 1000).is_none());
        }
    }
}
