//! Data that is uploaded once: weights, constants and uniform blocks, packed into few buffers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::{Gpu, checked};
use crate::graph::Table;

/// A range of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Index of the buffer.
    pub buffer: usize,
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Data of one range.
enum Piece<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Computed when the buffers are filled.
    Table(Table),
}

/// Packs data into buffers.
pub(crate) struct Packer<'a> {
    pieces: Vec<(Piece<'a>, Range)>,
    /// Per hash of the data, its range.
    places: HashMap<blake3::Hash, Range>,
    /// Hashes all pieces in their order.
    hasher: blake3::Hasher,
    sizes: Vec<u64>,
    alignment: u64,
    most: u64,
}

impl<'a> Packer<'a> {
    /// Creates a packer. Pieces start at multiples of `alignment`. No buffer is larger than `most` bytes unless a
    /// single piece is.
    pub(crate) fn new(alignment: u32, most: u64) -> Self {
        let (pieces, places, hasher, sizes) = Default::default();
        Packer { pieces, places, hasher, sizes, alignment: alignment.into(), most }
    }

    /// Adds `data`, padded to whole words, and returns its range. Equal data is stored once.
    pub(crate) fn add(&mut self, mut data: Cow<'a, [u8]>) -> Range {
        // Copies and bindings consist of 32-bit words.
        if !data.len().is_multiple_of(4) {
            let words = data.len().next_multiple_of(4);
            data.to_mut().resize(words, 0);
        }
        let (bytes, hash) = (data.len() as u64, blake3::hash(&data));
        self.place(bytes, hash, || Piece::Bytes(data))
    }

    /// Adds a table and returns its range. Equal tables are stored once.
    pub(crate) fn add_table(&mut self, table: &Table) -> Range {
        let bytes = u64::from(table.count()) * 4;
        self.place(bytes, table.hash(), || Piece::Table(table.clone()))
    }

    /// Returns the range of data with this hash: `data`, unless equal data has one.
    fn place(&mut self, bytes: u64, hash: blake3::Hash, data: impl FnOnce() -> Piece<'a>) -> Range {
        if let Some(range) = self.places.get(&hash) {
            return *range;
        }
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
        for number in [range.buffer as u64, range.offset, range.bytes] {
            self.hasher.update(&number.to_le_bytes());
        }
        self.hasher.update(hash.as_bytes());
        self.places.insert(hash, range);
        self.pieces.push((data(), range));
        range
    }

    /// Returns the bytes of all buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Allocates and fills the buffers, or returns those that another kernel on the device filled with the same data.
    pub(crate) fn finish(self, gpu: &Gpu, usage: wgpu::BufferUsages) -> Result<Arc<Uploaded>, wgpu::Error> {
        uploads(gpu).get(self.hash(usage), || {
            checked(&gpu.device, || {
                let buffers = self.sizes.iter().map(|&size| {
                    gpu.device.create_buffer(&wgpu::BufferDescriptor {
                        label: None,
                        size,
                        usage,
                        mapped_at_creation: true,
                    })
                });
                let buffers: Vec<_> = buffers.collect();
                for (data, range) in &self.pieces {
                    let Some(buffer) = buffers.get(range.buffer) else { continue };
                    let mapped = range.offset..range.offset + range.bytes;
                    // If the allocation failed, there is no range to fill; the error scope reports the reason.
                    if let Ok(mut view) = buffer.get_mapped_range_mut(mapped) {
                        match data {
                            Piece::Bytes(bytes) => view.copy_from_slice(bytes),
                            Piece::Table(table) => {
                                let entries: Vec<i32> = table.entries().collect();
                                view.copy_from_slice(bytemuck::cast_slice(&entries));
                            }
                        }
                    }
                }
                buffers.iter().for_each(wgpu::Buffer::unmap);
                Uploaded { buffers }
            })
        })
    }

    /// Hashes the contents and the usage of the buffers.
    fn hash(&self, usage: wgpu::BufferUsages) -> blake3::Hash {
        let mut hasher = self.hasher.clone();
        hasher.update(&usage.bits().to_le_bytes());
        hasher.finalize()
    }
}

/// Buffers that are filled once and never written again.
pub(crate) struct Uploaded {
    /// Indexed by [`Range::buffer`].
    pub buffers: Vec<wgpu::Buffer>,
}

impl Uploaded {
    /// Returns the bytes of all buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffers.iter().map(wgpu::Buffer::size).sum()
    }
}

/// Uploads on a device that are in use: kernels with the same data share them.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<blake3::Hash, Weak<Uploaded>>>);

/// Returns the uploads on the device of `gpu`.
pub(crate) fn uploads(gpu: &Gpu) -> Arc<Uploads> {
    gpu.shared().state(Uploads::default)
}

impl Uploads {
    fn get(
        &self,
        hash: blake3::Hash,
        make: impl FnOnce() -> Result<Uploaded, wgpu::Error>,
    ) -> Result<Arc<Uploaded>, wgpu::Error> {
        // Locked during the upload, so that a thread that needs the same data waits instead of uploading it again.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(&hash).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        all.retain(|_, uploaded| uploaded.strong_count() > 0);
        all.insert(hash, Arc::downgrade(&made));
        Ok(made)
    }

    /// Returns the bytes of all uploads in use.
    pub(crate) fn bytes(&self) -> u64 {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(Weak::upgrade).map(|uploaded| uploaded.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use delegraph_core::TensorType;
    use delegraph_core::quantized::Steps;

    #[test]
    fn pieces_are_aligned_and_buffers_limited() {
        let mut packer = Packer::new(256, 600);
        let mut value = 0;
        let mut check = |bytes: usize, buffer, offset| {
            value += 1;
            let range = packer.add(Cow::Owned(vec![value; bytes]));
            assert_eq!(range, Range { buffer, offset, bytes: bytes as u64 });
        };
        check(100, 0, 0);
        check(300, 0, 256);
        check(4, 1, 0);
        check(1000, 2, 0);
        check(4, 3, 0);
    }

    #[test]
    fn equal_pieces_are_one() {
        let mut packer = Packer::new(16, 600);
        let first = packer.add(Cow::Owned(vec![1, 2, 3, 4]));
        let other = packer.add(Cow::Owned(vec![1, 2, 3]));
        assert_ne!(first, other);
        assert_eq!(packer.add(Cow::Borrowed(&[1, 2, 3, 4])), first);
        assert_eq!(packer.add(Cow::Borrowed(&[1, 2, 3, 0])), other);
        assert_eq!(packer.bytes(), 20);
    }
    #[test]
    fn equal_tables_are_one_and_none_is_the_constant_of_its_key() {
        let steps = |scale| Steps::new(TensorType::Int16, scale, 0).unwrap();
        let table = |scale| Table::new(&"twice", steps(0.5), steps(scale), |x| 2 * x);
        let mut packer = Packer::new(16, 1 << 20);
        let first = packer.add_table(&table(0.5));
        assert_eq!(first, Range { buffer: 0, offset: 0, bytes: 4 << 16 });
        assert_eq!(packer.add_table(&table(0.5)), first);
        assert_ne!(packer.add_table(&table(0.25)), first);
        let key = format!("{:?} {:?} {:?}", "twice", steps(0.5), steps(0.5));
        assert_ne!(packer.add(Cow::Owned(key.into_bytes())), first);
    }
}
