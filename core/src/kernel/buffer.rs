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
}

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

    /// Makes the buffer `len` bytes long, keeping what it holds; new bytes are zero. Shrinking keeps the memory.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        let lines = len.div_ceil(ALIGNMENT);
        if let Some(more) = lines.checked_sub(self.lines.len()) {
            let error = || Error::OutOfMemory(format!("{len} bytes for a tensor"));
            self.lines.try_reserve_exact(more).map_err(|_| error())?;
        }
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; ALIGNMENT]));
        }
        if len > self.len {
            let old = self.len;
            self.all_bytes_mut()[old..len].fill(0);
        }
        self.len = len;
        Ok(())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.all_bytes_mut()[..len]
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
}
