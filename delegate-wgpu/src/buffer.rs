//! Tensors in device memory, handed from partition to partition and between the application and the delegate.

use std::fmt;
use std::sync::{Arc, mpsc};

use delegraph_core::{Error, Result};
use delegraph_delegate_api::{BufferHandle, DeviceBuffer};

use crate::context::Context;
use crate::{NAME, WgpuDelegate};

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
        let failed = |e: String| Error::Delegate { delegate: NAME.into(), message: e };
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
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        device.poll(wait).map_err(|e| failed(e.to_string()))?;
        match told.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(failed(e.to_string())),
            Err(_) => return Err(failed("the device did not finish".into())),
        }
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        match view.get(..bytes.len()) {
            Some(data) => bytes.copy_from_slice(data),
            None => {
                return Err(failed(format!("{} bytes are wanted, there are {}", bytes.len(), self.bytes)));
            }
        }
        Ok(())
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
        let wrong = |what: String| Err(Error::InvalidInput(what));
        if !buffer.usage().contains(wgpu::BufferUsages::COPY_SRC) {
            return wrong("the buffer's usage lacks COPY_SRC".into());
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
