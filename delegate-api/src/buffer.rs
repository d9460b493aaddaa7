//! Tensors that stay in the memory of a delegate.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use delegraph_core::{Error, Result};

/// A tensor's data in memory of a delegate, such as that of its device.
///
/// [`BufferHandle::downcast_ref`] gives access to the concrete type, to use the data in place.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Returns the number of bytes that [`DeviceBuffer::read`] returns: those of the tensor's type and shape.
    fn byte_size(&self) -> usize;

    /// Copies the data to the CPU, in the tensor's own layout. `bytes` has [`DeviceBuffer::byte_size`] bytes.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&self, bytes: &mut [u8]) -> Result<()>;

    /// Copies data from the CPU, in the tensor's own layout. `bytes` has [`DeviceBuffer::byte_size`] bytes.
    ///
    /// # Errors
    /// If the buffer is read-only, which is the default, or the device fails.
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let _ = bytes;
        Err(Error::InvalidInput("the buffer is read-only".into()))
    }

    /// Copies from another buffer of the same size without the CPU. Returns `false` if that is not possible, for example
    /// between devices; nothing is copied then.
    ///
    /// # Errors
    /// If the buffer is read-only, or the device fails.
    fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        let _ = source;
        Ok(false)
    }
}

/// A shared [`DeviceBuffer`]. Clones refer to the same buffer.
#[derive(Clone)]
pub struct BufferHandle(Arc<dyn DeviceBuffer>);

impl BufferHandle {
    /// Creates a handle for `buffer`.
    pub fn new(buffer: impl DeviceBuffer) -> Self {
        BufferHandle(Arc::new(buffer))
    }

    /// Returns the buffer, if it is a `T`.
    pub fn downcast_ref<T: DeviceBuffer>(&self) -> Option<&T> {
        let buffer: &dyn Any = &*self.0;
        buffer.downcast_ref()
    }

    /// See [`DeviceBuffer::byte_size`].
    pub fn byte_size(&self) -> usize {
        self.0.byte_size()
    }

    /// See [`DeviceBuffer::read`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::read`].
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.read(bytes)
    }

    /// See [`DeviceBuffer::write`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::write`].
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.0.write(bytes)
    }

    /// See [`DeviceBuffer::copy_from`].
    ///
    /// # Errors
    /// As [`DeviceBuffer::copy_from`].
    pub fn copy_from(&self, source: &BufferHandle) -> Result<bool> {
        self.0.copy_from(source)
    }
}

impl fmt::Debug for BufferHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferHandle({} bytes)", self.byte_size())
    }
}

/// The buffers of a partition's inputs and outputs in one run.
#[derive(Debug)]
pub struct Buffers<'a> {
    inputs: &'a [Option<BufferHandle>],
    may_keep: &'a [bool],
    outputs: &'a mut [Option<BufferHandle>],
}

impl<'a> Buffers<'a> {
    /// Creates the buffers of a run, with inputs and outputs in the order of [`DelegateParams`](crate::DelegateParams).
    /// The kernel fills in `outputs` as far as `may_keep` allows.
    pub fn new(
        inputs: &'a [Option<BufferHandle>],
        may_keep: &'a [bool],
        outputs: &'a mut [Option<BufferHandle>],
    ) -> Self {
        Buffers { inputs, may_keep, outputs }
    }

    /// Returns the buffer of input `i`, which the kernel accepted; the input's data in the CPU's memory are stale then.
    /// `None` if the data are in the CPU's memory.
    pub fn input(&self, i: usize) -> Option<&'a BufferHandle> {
        self.inputs.get(i)?.as_ref()
    }

    /// Returns whether output `i` may stay in a buffer: it has no consumer on the CPU.
    pub fn may_keep(&self, i: usize) -> bool {
        self.may_keep.get(i).is_some_and(|&keep| keep)
    }

    /// Reports that output `i` is in `buffer`, and not in the CPU's memory. Has no effect unless
    /// [`Buffers::may_keep`] allows it.
    pub fn keep(&mut self, i: usize, buffer: BufferHandle) {
        if self.may_keep(i)
            && let Some(output) = self.outputs.get_mut(i)
        {
            *output = Some(buffer);
        }
    }
}
