//! Memory for tensors.

use std::collections::TryReserveError;

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
    /// Lines before and after the bytes that nobody may write to.
    guard: usize,
}

/// Where a buffer's lines are.
enum Lines {
    Heap(Vec<Line>),
    /// Whole pages of the system's.
    #[cfg(any(unix, windows))]
    Pages(memmap2::MmapMut),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Heap(Vec::new())
    }
}

/// From so many bytes on, a buffer that is not held long has pages of its own.
const PAGES: usize = 16 << 10;

/// Lines on each side of a guarded buffer.
const GUARD: usize = 4;

/// What they hold.
const GUARD_BYTE: u8 = 0xC5;

impl AlignedBuffer {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when they cannot be had.
    pub fn zeroed(len: usize) -> Result<Self> {
        let mut buffer = AlignedBuffer::default();
        buffer.resize(len)?;
        Ok(buffer)
    }

    /// As [`AlignedBuffer::zeroed`], for bytes that are soon given up while others are taken that stay: where they are
    /// many, the system has them back then. An allocator could keep them, for there is no telling what lies above.
    ///
    /// # Errors
    /// As there.
    pub fn passing(len: usize) -> Result<Self> {
        #[cfg(any(unix, windows))]
        if len >= PAGES
            && let Some(whole) = len.checked_next_multiple_of(ALIGNMENT)
            && let Ok(pages) = memmap2::MmapMut::map_anon(whole)
        {
            return Ok(AlignedBuffer { lines: Lines::Pages(pages), len, guard: 0 });
        }
        Self::zeroed(len)
    }

    /// As [`AlignedBuffer::zeroed`], with 256 bytes before and after that are watched: a test of a kernel sees with
    /// [`AlignedBuffer::guards_hold`] whether it wrote there.
    ///
    /// # Errors
    /// As there.
    pub fn guarded(len: usize) -> Result<Self> {
        let mut buffer = AlignedBuffer { guard: GUARD, ..Default::default() };
        buffer.resize(len)?;
        Ok(buffer)
    }

    /// Whether nobody wrote around the bytes of a [guarded](AlignedBuffer::guarded) buffer; true for any other.
    pub fn guards_hold(&self) -> bool {
        let (start, len) = (self.guard * ALIGNMENT, self.len);
        let all = self.all_bytes();
        self.guard == 0 || all[..start].iter().chain(&all[start + len..]).all(|&b| b == GUARD_BYTE)
    }

    /// Makes the buffer `len` bytes long, keeping what it holds; new bytes are zero. Shrinking keeps the memory.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        let lines = len.div_ceil(ALIGNMENT) + 2 * self.guard;
        if lines > self.all_bytes().len() / ALIGNMENT {
            self.grow(lines).map_err(|_| Error::OutOfMemory(format!("{len} bytes for a tensor")))?;
        }
        if len > self.len {
            let old = self.len;
            let start = self.guard * ALIGNMENT;
            self.all_bytes_mut()[start + old..start + len].fill(0);
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
        let heap = match &mut self.lines {
            Lines::Heap(heap) => heap,
            #[cfg(any(unix, windows))]
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

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = self.guard * ALIGNMENT;
        &self.all_bytes()[start..start + self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.guard * ALIGNMENT, self.len);
        &mut self.all_bytes_mut()[start..start + len]
    }

    fn all_bytes(&self) -> &[u8] {
        match &self.lines {
            Lines::Heap(heap) => bytemuck::cast_slice(heap),
            #[cfg(any(unix, windows))]
            Lines::Pages(pages) => pages,
        }
    }

    fn all_bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.lines {
            Lines::Heap(heap) => bytemuck::cast_slice_mut(heap),
            #[cfg(any(unix, windows))]
            Lines::Pages(pages) => pages,
        }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without bytes.
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
    fn what_passes_is_like_what_stays() {
        for len in [0, 3, PAGES - 1, PAGES, PAGES + 7, 10 * PAGES + 65] {
            let mut buffer = AlignedBuffer::passing(len).unwrap();
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
        assert!(AlignedBuffer::passing(usize::MAX).is_err());
        assert!(AlignedBuffer::passing(usize::MAX / 4).is_err());
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
