//! Tensors in device memory, handed from partition to partition and between the application and the delegate.

use std::fmt;
use std::sync::{Arc, mpsc};

use delegraph_core::{Error, Result};
use delegraph_delegate_api::{BufferHandle, DeviceBuffer};

use crate::WgpuDelegate;
use crate::context::{Context, PATIENCE};
use crate::kernel::failed;

/// A tensor of 32-bit elements in a [`wgpu::Buffer`], in the tensor's own layout.
///
/// A partition's output is valid until the delegate runs that partition again.
pub struct GpuBuffer {
    context: Arc<Context>,
    buffer: wgpu::Buffer,
    offset: u64,
    bytes: u64,
}

impl GpuBuffer {
    pub(crate) fn new(context: &Arc<Context>, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Self {
        GpuBuffer { context: Arc::clone(context), buffer: buffer.clone(), offset, bytes }
    }

    /// The buffer. Others may live in it, too.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Where in the buffer the tensor begins, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the tensor.
    pub fn size(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_on(&self, context: &Context) -> bool {
        self.context.is_on_device_of(context)
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.buffer.usage().contains(wgpu::BufferUsages::COPY_SRC)
    }

    fn read_now(&self, bytes: &mut [u8]) -> Result<()> {
        let Context { device, queue, .. } = &*self.context;
        let staging = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: self.bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&self.buffer, self.offset, &staging, 0, Some(self.bytes));
        let submission = queue.submit([encoder.finish()]);
        let (tell, told) = mpsc::channel();
        // Whoever polls the device hears of it; the receiver may be gone by then.
        staging.map_async(wgpu::MapMode::Read, .., move |result| drop(tell.send(result)));
        self.context.wait(submission).map_err(failed)?;
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(failed(e.to_string())),
            Err(_) => return Err(failed("the device did not finish")),
        }
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        let Some(data) = view.get(..bytes.len()) else {
            return Err(failed(format!("{} bytes are wanted, there are {}", bytes.len(), self.bytes)));
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
        let result = self.context.checked(read).unwrap_or_else(|e| Err(failed(e.to_string())));
        result.map_err(|e| match self.context.gone() {
            Some(reason) => failed(format!("the device was lost ({reason}), and the tensor's data with it")),
            None => e,
        })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        self.check_writable()?;
        let has = self.bytes;
        if bytes.len() as u64 != has {
            return Err(failed(format!("{} bytes do not fill a buffer of {has}", bytes.len())));
        }
        let write = || self.context.queue.write_buffer(&self.buffer, self.offset, bytes);
        self.context.checked(write).map_err(|e| failed(e.to_string()))
    }

    fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        self.check_writable()?;
        let Some(source) = source.downcast::<GpuBuffer>().filter(|from| from.is_on(&self.context)) else {
            return Ok(false);
        };
        if source.bytes != self.bytes {
            return Err(failed(format!("{} bytes do not fill a buffer of {}", source.bytes, self.bytes)));
        }
        let copy = || {
            let mut encoder = self.context.device.create_command_encoder(&Default::default());
            let (from, to) = (&source.buffer, &self.buffer);
            encoder.copy_buffer_to_buffer(from, source.offset, to, self.offset, Some(self.bytes));
            self.context.queue.submit([encoder.finish()]);
        };
        self.context.checked(copy).map_err(|e| failed(e.to_string()))?;
        Ok(true)
    }
}

impl WgpuDelegate {
    /// A handle for a tensor in a buffer of the application, on the delegate's device, to be an input
    /// (`Interpreter::set_input_buffer`): the tensor's 32-bit elements, densely packed, from `offset` on.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where the buffer cannot be copied from (`COPY_SRC`), is too small, or `offset` or `bytes`
    /// is not a multiple of 4.
    pub fn buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<BufferHandle> {
        self.handle(buffer, offset, bytes, (wgpu::BufferUsages::COPY_SRC, "COPY_SRC"))
    }

    /// The same for an output (`Interpreter::set_output_buffer`), which is copied there: the buffer's usages must have
    /// `COPY_DST`. With both usages, the handle can be an input as well.
    ///
    /// # Errors
    /// As those of [`WgpuDelegate::buffer`].
    pub fn target_buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<BufferHandle> {
        self.handle(buffer, offset, bytes, (wgpu::BufferUsages::COPY_DST, "COPY_DST"))
    }

    fn handle(
        &self,
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
            return wrong(format!("{bytes} bytes from {offset} on, of a buffer that has {size}"));
        }
        Ok(BufferHandle::new(GpuBuffer::new(self.context(), buffer, offset, bytes)))
    }
}
