//! Tensors in device memory, passed between partitions, and between the application and the delegate.

use std::fmt;
use std::sync::{Arc, mpsc};

use delegraph_core::error::counted;
use delegraph_core::{Error, Result};
use delegraph_delegate_api::{BufferHandle, DeviceBuffer};

use crate::device::{Gpu, POLL_TIMEOUT, failed};

/// A tensor of 32-bit elements in a [`wgpu::Buffer`], in the tensor's own layout.
///
/// A partition's output is valid until the delegate runs that partition again.
pub struct GpuBuffer {
    gpu: Arc<Gpu>,
    buffer: wgpu::Buffer,
    offset: u64,
    bytes: u64,
}

impl GpuBuffer {
    pub(crate) fn new(gpu: &Arc<Gpu>, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Self {
        GpuBuffer { gpu: Arc::clone(gpu), buffer: buffer.clone(), offset, bytes }
    }

    /// Returns a handle for `bytes` bytes of the application's buffer from `offset` on. `usage`, which errors call
    /// `name`, is required.
    pub(crate) fn handle(
        gpu: &Arc<Gpu>,
        buffer: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        (usage, name): (wgpu::BufferUsages, &str),
    ) -> Result<BufferHandle> {
        let wrong = |what: String| Err(Error::InvalidInput(what));
        if !buffer.usage().contains(usage) {
            return wrong(format!("the buffer's usage lacks {name}"));
        }
        if !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            return wrong(format!("offset {offset} and size {bytes} must be multiples of 4"));
        }
        if offset.checked_add(bytes).is_none_or(|end| end > buffer.size()) {
            let size = buffer.size();
            return wrong(format!("{bytes} bytes from offset {offset} on exceed the buffer of {size} bytes"));
        }
        Ok(BufferHandle::new(GpuBuffer::new(gpu, buffer, offset, bytes)))
    }

    /// Returns the buffer, which may hold other tensors, too.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Returns the offset of the tensor in the buffer, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the size of the tensor, in bytes.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(crate) fn is_on(&self, gpu: &Gpu) -> bool {
        self.gpu.is_on_device_of(gpu)
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.buffer.usage().contains(wgpu::BufferUsages::COPY_SRC)
    }

    fn read_now(&self, bytes: &mut [u8]) -> Result<()> {
        let Gpu { device, queue, .. } = &*self.gpu;
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: self.bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.buffer, self.offset, &staging, 0, Some(self.bytes));
        let submission = queue.submit([encoder.finish()]);
        if cfg!(target_arch = "wasm32") {
            return Err(failed("a page cannot wait for the device to read a buffer"));
        }
        let (tell, told) = mpsc::channel();
        // The thread that polls the device delivers the result; the receiver may be dropped by then.
        staging.map_async(wgpu::MapMode::Read, .., move |result| drop(tell.send(result)));
        self.gpu.wait(submission).map_err(failed)?;
        match told.recv_timeout(POLL_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(failed(e.to_string())),
            Err(_) => return Err(failed("the device did not finish")),
        }
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        let Some(data) = view.get(..bytes.len()) else {
            return Err(failed(format!(
                "{} bytes were requested of a tensor of {} bytes",
                bytes.len(),
                self.bytes
            )));
        };
        bytes.copy_from_slice(data);
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        match self.buffer.usage().contains(wgpu::BufferUsages::COPY_DST) {
            true => Ok(()),
            false => Err(Error::InvalidInput("the buffer's usage lacks COPY_DST".into())),
        }
    }
}

impl fmt::Debug for GpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuBuffer({} bytes from {} on of {:?})", self.bytes, self.offset, self.buffer)
    }
}

impl DeviceBuffer for GpuBuffer {
    fn byte_size(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        if !self.is_readable() {
            return Err(Error::InvalidInput("the buffer's usage lacks COPY_SRC".into()));
        }
        let read = || self.read_now(bytes);
        let result = self.gpu.checked(read).unwrap_or_else(|e| Err(failed(e.to_string())));
        result.map_err(|e| match self.gpu.gone() {
            Some(reason) => failed(format!("the device was lost ({reason}), and the tensor's data with it")),
            None => e,
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let has = self.bytes;
        if bytes.len() as u64 != has {
            let given = counted(bytes.len(), "byte");
            return Err(failed(format!("{given} for a tensor of {has} bytes")));
        }
        let write = || self.gpu.queue.write_buffer(&self.buffer, self.offset, bytes);
        self.gpu.checked(write).map_err(|e| failed(e.to_string()))
    }

    fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        self.check_writable()?;
        let Some(source) = source.downcast_ref::<GpuBuffer>().filter(|from| from.is_on(&self.gpu)) else {
            return Ok(false);
        };
        if source.bytes != self.bytes {
            return Err(failed(format!("{} bytes for a tensor of {} bytes", source.bytes, self.bytes)));
        }
        let copy = || {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            let (from, to) = (&source.buffer, &self.buffer);
            encoder.copy_buffer_to_buffer(from, source.offset, to, self.offset, Some(self.bytes));
            self.gpu.queue.submit([encoder.finish()]);
        };
        self.gpu.checked(copy).map_err(|e| failed(e.to_string()))?;
        Ok(true)
    }
}
