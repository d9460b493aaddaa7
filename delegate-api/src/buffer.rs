//! Tensors that stay with a delegate.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use delegraph_core::{Error, Result};

/// A tensor's data in memory of a delegate's own, its device's say.
///
/// Whoever wants to use it in place gets at the concrete type: `(&*handle as &dyn Any).downcast_ref::<MyBuffer>()`.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Bytes that [`DeviceBuffer::read`] gives: those of the tensor's type and shape.
    fn byte_size(&self) -> usize;

    /// Copies the data to the CPU, in the tensor's own layout.
    ///
    /// # Errors
    /// Where the device fails. `bytes` has [`DeviceBuffer::byte_size`] bytes.
    fn read(&self, bytes: &mut [u8]) -> Result<()>;

    /// Copies data from the CPU, in the tensor's own layout.
    ///
    /// # Errors
    /// Where the buffer cannot be written, as none can that doesn't say how, or the device fails. `bytes` has
    /// [`DeviceBuffer::byte_size`] bytes.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let _ = bytes;
        Err(Error::InvalidInput("the buffer cannot be written".into()))
    }

    /// Copies from another buffer of the same size without a trip over the CPU. `false` where there is no such way, as
    /// from a device to another.
    ///
    /// # Errors
    /// Where the buffer cannot be written, or the device fails.
    fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        let _ = source;
        Ok(false)
    }
}

/// A tensor's data with a delegate. Clones share the buffer.
#[derive(Clone)]
pub struct BufferHandle(Arc<dyn DeviceBuffer>);

impl BufferHandle {
    /// A handle for `buffer`.
    pub fn new(buffer: impl DeviceBuffer) -> Self {
        BufferHandle(Arc::new(buffer))
    }

    /// The buffer, where it is a `T`.
    pub fn downcast<T: DeviceBuffer>(&self) -> Option<&T> {
        let buffer: &dyn Any = &*self.0;
        buffer.downcast_ref()
    }

    /// See [`DeviceBuffer::byte_size`].
    pub fn byte_size(&self) -> usize {
        self.0.byte_size()
    }

    /// See [`DeviceBuffer::read`].
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.read(bytes)
    }

    /// See [`DeviceBuffer::write`].
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }

    /// See [`DeviceBuffer::copy_from`].
    pub fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        self.0.copy_from(source)
    }
}

impl fmt::Debug for BufferHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferHandle({} bytes)", self.byte_size())
    }
}

/// Where the inputs of a partition are, and where its outputs may stay, in one run.
#[derive(Debug)]
pub struct Buffers<'a> {
    inputs: &'a [Option<BufferHandle>],
    may_stay: &'a [bool],
    outputs: &'a mut [Option<BufferHandle>],
}

impl<'a> Buffers<'a> {
    /// Inputs and outputs one by one as in [`DelegateParams`](crate::DelegateParams); `outputs` are filled in by the
    /// kernel.
    pub fn new(
        inputs: &'a [Option<BufferHandle>],
        may_stay: &'a [bool],
        outputs: &'a mut [Option<BufferHandle>],
    ) -> Self {
        Buffers { inputs, may_stay, outputs }
    }

    /// The buffer that input `i` is in. The kernel accepted it; what the CPU's memory holds for this input is stale.
    pub fn input(&self, i: usize) -> Option<&'a BufferHandle> {
        self.inputs.get(i)?.as_ref()
    }

    /// Whether output `i` may stay with the delegate: nobody on the CPU reads it.
    pub fn may_stay(&self, i: usize) -> bool {
        self.may_stay.get(i).is_some_and(|&stay| stay)
    }

    /// Says that output `i` is in `buffer`, and not in the CPU's memory. Ignored where it may not stay.
    pub fn leave(&mut self, i: usize, buffer: BufferHandle) {
        if self.may_stay(i)
            && let Some(output) = self.outputs.get_mut(i)
        {
            *output = Some(buffer);
        }
    }
}
