//! Memory for tensors.

use std::collections::TryReserveError;
use std::sync::Arc;

use super::budget::{Budget, Charge};
use crate::error::{Error, Result};

/// Tensors start at multiples of this many bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Zeroed bytes that start at a multiple of 64.
#[derive(Default)]
pub struct AlignedBuffer {
    lines: Lines,
    len: usize,
    /// The number of lines before and after the bytes, to which no kernel may write.
    guard: usize,
    /// The charge for all lines.
    charge: Charge,
}

/// The storage of a buffer's lines.
enum Lines {
    Heap(Vec<Line>),
    /// Whole pages of the system.
    #[cfg(all(feature = "mmap", any(unix, windows)))]
    Pages(memmap2::MmapMut),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Heap(Vec::new())
    }
}

/// The size in bytes from which a buffer has pages of its own, which return to the system when it is released. A heap
/// keeps memory below later allocations, and glibc raises its own threshold for pages with each large block that is
/// released.
#[cfg(any(test, all(feature = "mmap", any(unix, windows))))]
const PAGES: usize = 32 << 10;

/// Lines on each side of a guarded buffer.
const GUARD: usize = 4;

/// The value of the bytes of these lines.
const GUARD_BYTE: u8 = 0xC5;

impl AlignedBuffer {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the allocation fails.
    pub fn zeroed(len: usize) -> Result<Self> {
        let mut buffer = AlignedBuffer::default();
        buffer.resize(len)?;
        Ok(buffer)
    }

    /// An empty buffer whose memory is charged to `budget`.
    ///
    /// # Errors
    /// The errors of [`Budget::charge`].
    pub fn charged(budget: &Arc<Budget>) -> Result<Self> {
        Ok(AlignedBuffer { charge: budget.charge(0)?, ..Default::default() })
    }

    /// Returns an empty buffer whose later allocations are charged to the same budget.
    pub(super) fn emptied(&self) -> Self {
        AlignedBuffer { charge: self.charge.empty(), ..Default::default() }
    }

    /// Ends the charge of `other`, which this buffer replaces. Later growth of this buffer is charged to the same
    /// budget.
    pub(super) fn exchange_budget(&mut self, other: &mut Self) {
        self.charge = std::mem::take(&mut other.charge).empty();
    }

    /// As [`AlignedBuffer::zeroed`], with 256 guard bytes before and after. A test detects with
    /// [`AlignedBuffer::guards_hold`] whether a kernel wrote to them.
    ///
    /// # Errors
    /// As [`AlignedBuffer::zeroed`].
    pub fn guarded(len: usize) -> Result<Self> {
        let mut buffer = AlignedBuffer { guard: GUARD, ..Default::default() };
        buffer.resize(len)?;
        Ok(buffer)
    }

    /// Returns whether no kernel wrote around the bytes of a [guarded](AlignedBuffer::guarded) buffer; true for any
    /// other.
    pub fn guards_hold(&self) -> bool {
        let (start, len) = (self.guard * ALIGNMENT, self.len);
        let all = self.all_bytes();
        self.guard == 0 || all[..start].iter().chain(&all[start + len..]).all(|&b| b == GUARD_BYTE)
    }

    /// Resizes the buffer to `len` bytes and keeps its contents; new bytes are zero. Shrinking keeps the memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where memory cannot be allocated; those of [`Budget::charge`] where it is charged.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        let lines = len.div_ceil(ALIGNMENT) + 2 * self.guard;
        let had = self.all_bytes().len();
        if lines > had / ALIGNMENT {
            self.charge.resize(lines.saturating_mul(ALIGNMENT))?;
            self.grow(lines).map_err(|_| Error::OutOfMemory(format!("{len} bytes for a tensor")))?;
        }
        if len > self.len {
            let start = self.guard * ALIGNMENT;
            let old = start + self.len;
            // New lines are zero.
            self.all_bytes_mut()[old..(start + len).min(had.max(old))].fill(0);
        }
        self.len = len;
        if self.guard > 0 {
            let start = self.guard * ALIGNMENT;
            let all = self.all_bytes_mut();
            all[..start].fill(GUARD_BYTE);
            all[start + len..].fill(GUARD_BYTE);
        }
        Ok(())
    }

    fn grow(&mut self, lines: usize) -> std::result::Result<(), TryReserveError> {
        #[cfg(all(feature = "mmap", any(unix, windows)))]
        if !cfg!(buffers_on_heap)
            && let Some(bytes) = lines.checked_mul(ALIGNMENT).filter(|&bytes| bytes >= PAGES)
            && let Ok(mut pages) = memmap2::MmapMut::map_anon(bytes)
        {
            let had = self.all_bytes();
            pages[..had.len()].copy_from_slice(had);
            self.lines = Lines::Pages(pages);
            return Ok(());
        }
        #[allow(clippy::infallible_destructuring_match)] // Without `mmap` there is only one variant.
        let heap = match &mut self.lines {
            Lines::Heap(heap) => heap,
            // The system had no more pages.
            #[cfg(all(feature = "mmap", any(unix, windows)))]
            Lines::Pages(pages) => {
                let mut heap = Vec::new();
                heap.try_reserve_exact(lines)?;
                heap.extend_from_slice(bytemuck::try_cast_slice::<u8, Line>(pages).unwrap_or_default());
                self.lines = Lines::Heap(heap);
                return self.grow(lines);
            }
        };
        heap.try_reserve_exact(lines.saturating_sub(heap.len()))?;
        heap.resize(lines, Line([0; ALIGNMENT]));
        Ok(())
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.all_bytes().len().saturating_sub(2 * self.guard * ALIGNMENT)
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let start = self.guard * ALIGNMENT;
        &self.all_bytes()[start..start + self.len]
    }

    /// Returns the bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.guard * ALIGNMENT, self.len);
        &mut self.all_bytes_mut()[start..start + len]
    }

    #[inline]
    fn all_bytes(&self) -> &[u8] {
        match &self.lines {
            Lines::Heap(heap) => bytemuck::cast_slice(heap),
            #[cfg(all(feature = "mmap", any(unix, windows)))]
            Lines::Pages(pages) => pages,
        }
    }

    #[inline]
    fn all_bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.lines {
            Lines::Heap(heap) => bytemuck::cast_slice_mut(heap),
            #[cfg(all(feature = "mmap", any(unix, windows)))]
            Lines::Pages(pages) => pages,
        }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_zeros_and_keeps_alignment() {
        let mut buffer = AlignedBuffer::zeroed(3).unwrap();
        buffer.bytes_mut().fill(7);
        buffer.resize(1).unwrap();
        buffer.resize(130).unwrap();
        assert_eq!(buffer.bytes()[0], 7);
        assert!(buffer.bytes()[1..].iter().all(|&b| b == 0));
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        assert!(AlignedBuffer::zeroed(usize::MAX / 2).is_err());
    }

    #[test]
    fn large_buffers_are_like_small_ones() {
        for len in [0, 3, PAGES - 1, PAGES, PAGES + 7, 10 * PAGES + 65] {
            let mut buffer = AlignedBuffer::zeroed(len).unwrap();
            assert_eq!(buffer.bytes(), vec![0; len]);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.guards_hold());
            buffer.bytes_mut().fill(7);
            buffer.resize(len / 2).unwrap();
            buffer.resize(3 * len + 5).unwrap();
            assert_eq!(buffer.bytes()[..len / 2], vec![7; len / 2]);
            assert_eq!(buffer.bytes()[len / 2..], vec![0; 3 * len + 5 - len / 2]);
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        }
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
        // Miri aborts when memory is exhausted.
        assert!(cfg!(miri) || AlignedBuffer::zeroed(usize::MAX / 4).is_err());
    }

    #[test]
    fn guards_are_watched_on_both_sides() {
        for place in [-1isize, 70, 63 - 256, 70 + 200] {
            let mut buffer = AlignedBuffer::guarded(70).unwrap();
            buffer.bytes_mut().fill(9);
            buffer.resize(60).unwrap();
            buffer.resize(70).unwrap();
            assert_eq!((buffer.bytes()[59], buffer.bytes()[60], buffer.len()), (9, 0, 70));
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.guards_hold());
            let at = (GUARD * ALIGNMENT).checked_add_signed(place).unwrap();
            buffer.all_bytes_mut()[at] = 0;
            assert!(!buffer.guards_hold(), "{place}");
        }
        assert!(AlignedBuffer::zeroed(3).unwrap().guards_hold());
    }
}
