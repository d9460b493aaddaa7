//! The value of a resource variable in device memory.

use std::sync::Arc;

use delegraph_core::kernel::DeviceValue;
use delegraph_core::{Error, Result};
use delegraph_delegate_api::DeviceBuffer;

use super::GpuBuffer;
use crate::device::{Gpu, failed};
use crate::graph::storage_format::StorageFormat;

/// The value of a resource variable, in the device's format. It is never written while it is the current value.
#[derive(Debug)]
pub(crate) struct StoredValue {
    words: GpuBuffer,
    format: StorageFormat,
}

impl StoredValue {
    /// Allocates memory for a value of `bytes` bytes on the device.
    pub(crate) fn new(gpu: &Arc<Gpu>, bytes: u64, format: StorageFormat) -> Result<Self> {
        let descriptor = wgpu::BufferDescriptor {
            label: Some("variable"),
            size: bytes,
            usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        let buffer = gpu
            .create_buffer(&descriptor)
            .map_err(|e| failed(format!("{bytes} bytes of device memory for a variable: {e}")))?;
        let words = GpuBuffer::new(gpu, &buffer, 0, bytes);
        Ok(StoredValue { words, format })
    }

    /// Allocates memory for another value of the same size and format.
    pub(crate) fn another(&self) -> Result<Self> {
        StoredValue::new(self.words.gpu(), self.words.size(), self.format)
    }

    /// Returns the size on the device, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.words.size()
    }

    /// Returns whether a kernel on the device of `gpu` can copy the value to an input of this format.
    pub(crate) fn fits(&self, gpu: &Gpu, format: StorageFormat) -> bool {
        self.words.is_on(gpu) && self.format == format
    }

    /// Records a copy of the value to the start of `to`.
    pub(crate) fn record_read(&self, encoder: &mut wgpu::CommandEncoder, to: &wgpu::Buffer) {
        encoder.copy_buffer_to_buffer(self.words.buffer(), 0, to, 0, Some(self.words.size()));
    }

    /// Records a copy of `from`, from byte `offset` on, to the value.
    pub(crate) fn record_write(&self, encoder: &mut wgpu::CommandEncoder, from: &wgpu::Buffer, offset: u64) {
        encoder.copy_buffer_to_buffer(from, offset, self.words.buffer(), 0, Some(self.words.size()));
    }

    /// Converts words of the device to the layout of the model's tensor.
    pub(crate) fn narrow(&self, words: &[u8], bytes: &mut [u8]) {
        match self.format {
            format if format.is_identity() && words.len() == bytes.len() => bytes.copy_from_slice(words),
            format => format.narrow(words, bytes),
        }
    }
}

impl DeviceValue for StoredValue {
    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        if self.format.is_identity() {
            return self.words.read(bytes);
        }
        let size = self.words.byte_size();
        let mut words = Vec::new();
        let no_room = |_| Error::OutOfMemory(format!("{size} bytes for the value of a variable"));
        words.try_reserve_exact(size).map_err(no_room)?;
        words.resize(size, 0);
        self.words.read(&mut words)?;
        self.narrow(&words, bytes);
        Ok(())
    }
}
