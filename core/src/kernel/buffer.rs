//! Memory for tensors.

use crate::error::{Error, Result};

/// Tensors start at multiples of this many bytes: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Zeroed bytes that start at a multiple of 64.
#[derive(Default)]
pub struct AlignedBuffer {
    lines: Vec<Line>,
    len: usize,
    /// Lines before and after the bytes that nobody may write to.
    guard: usize,
}

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
        let all: &[u8] = bytemuck::cast_slice(&self.lines);
        self.guard == 0 || all[..start].iter().chain(&all[start + len..]).all(|&b| b == GUARD_BYTE)
    }

    /// Makes the buffer `len` bytes long, keeping what it holds; new bytes are zero. Shrinking keeps the memory.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        let lines = len.div_ceil(ALIGNMENT) + 2 * self.guard;
        if let Some(more) = lines.checked_sub(self.lines.len()) {
            let error = || Error::OutOfMemory(format!("{len} bytes for a tensor"));
            self.lines.try_reserve_exact(more).map_err(|_| error())?;
        }
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; ALIGNMENT]));
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

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = self.guard * ALIGNMENT;
        &bytemuck::cast_slice(&self.lines)[start..start + self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.guard * ALIGNMENT, self.len);
        &mut self.all_bytes_mut()[start..start + len]
    }

    fn all_bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines)
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
