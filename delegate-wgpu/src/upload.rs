//! Data that is uploaded once: weights, constants and uniform blocks, packed into few buffers.

use std::borrow::Cow;

use crate::device::Context;

/// A piece of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Which of the buffers.
    pub buffer: usize,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Pieces of data on their way into buffers.
pub(crate) struct Packer<'a> {
    pieces: Vec<(Cow<'a, [u8]>, Range)>,
    sizes: Vec<u64>,
    alignment: u64,
    most: u64,
}

impl<'a> Packer<'a> {
    /// Pieces start at multiples of `alignment`; no buffer becomes larger than `most` bytes unless one piece is.
    pub(crate) fn new(alignment: u32, most: u64) -> Self {
        Packer { pieces: Vec::new(), sizes: Vec::new(), alignment: alignment.into(), most }
    }

    /// Where `data`, filled up to whole words, will be.
    pub(crate) fn add(&mut self, mut data: Cow<'a, [u8]>) -> Range {
        // Copies and bindings come in words.
        if !data.len().is_multiple_of(4) {
            let words = data.len().next_multiple_of(4);
            data.to_mut().resize(words, 0);
        }
        let bytes = data.len() as u64;
        let start = self.sizes.last().map_or(0, |size| size.next_multiple_of(self.alignment));
        let range = match self.sizes.last_mut() {
            Some(size) if start + bytes <= self.most => {
                *size = start + bytes;
                Range { buffer: self.sizes.len() - 1, offset: start, bytes }
            }
            _ => {
                self.sizes.push(bytes);
                Range { buffer: self.sizes.len() - 1, offset: 0, bytes }
            }
        };
        self.pieces.push((data, range));
        range
    }

    /// Makes and fills the buffers. `None` when the device has no room for them; it says more in an error scope.
    pub(crate) fn finish(self, context: &Context, usage: wgpu::BufferUsages) -> Option<Vec<wgpu::Buffer>> {
        let make = |&size: &u64| {
            context.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: true,
            })
        };
        let buffers: Vec<_> = self.sizes.iter().map(make).collect();
        for (data, range) in &self.pieces {
            let buffer = buffers.get(range.buffer)?;
            let mapped = range.offset..range.offset + range.bytes;
            buffer.get_mapped_range_mut(mapped).ok()?.copy_from_slice(data);
        }
        buffers.iter().for_each(wgpu::Buffer::unmap);
        Some(buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_buffers_limited() {
        let mut packer = Packer::new(256, 600);
        let mut check = |bytes: usize, buffer, offset| {
            let range = packer.add(Cow::Owned(vec![0; bytes]));
            assert_eq!(range, Range { buffer, offset, bytes: bytes as u64 });
        };
        check(100, 0, 0);
        check(300, 0, 256);
        check(4, 1, 0);
        check(1000, 2, 0);
        check(4, 3, 0);
    }
}
