//! Tensors that are not in the CPU's memory but in buffers of delegates or of the application.
//!
//! A partition's output stays with its delegate if the kernel can keep it and no step on the CPU reads it. The next
//! partition reads it from the buffer if its kernel accepts the buffer. For all other consumers it is copied first.

use delegraph_core::error::{Error, Result, counted};
use delegraph_core::graph::TensorId;
use delegraph_core::kernel::RuntimeTensor;
use delegraph_delegate_api::BufferHandle;

/// Buffers of the application that hold inputs and receive outputs.
#[derive(Debug, Default)]
pub(crate) struct ApplicationBuffers {
    pub(super) inputs: Vec<(TensorId, BufferHandle)>,
    pub(super) outputs: Vec<(TensorId, BufferHandle)>,
}

/// Drops buffers of tensors whose size changed.
pub(super) fn drop_unfitting(buffers: &mut ApplicationBuffers, tensors: &[RuntimeTensor]) {
    let fits = |(id, buffer): &(TensorId, BufferHandle)| {
        tensors[id.0].byte_size().is_ok_and(|bytes| bytes == buffer.byte_size())
    };
    buffers.inputs.retain(fits);
    buffers.outputs.retain(fits);
}

/// The tensors whose data are in a buffer and not in the CPU's memory.
#[derive(Debug)]
pub(crate) struct Residency {
    buffers: Vec<Option<BufferHandle>>,
    /// The number of tensors with a buffer.
    count: usize,
}

impl Residency {
    /// Creates the residency of `tensors` tensors, all of which are in the CPU's memory.
    pub(super) fn new(tensors: usize) -> Self {
        Residency { buffers: vec![None; tensors], count: 0 }
    }

    /// Begins an invocation: only the application's buffers hold data.
    pub(super) fn begin(&mut self, inputs: &[(TensorId, BufferHandle)]) {
        self.buffers.fill(None);
        self.count = 0;
        inputs.iter().for_each(|(id, buffer)| self.set(*id, Some(buffer.clone())));
    }

    /// Returns whether all tensors are in the CPU's memory.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sets the buffer of tensor `id`.
    pub(super) fn set(&mut self, id: TensorId, buffer: Option<BufferHandle>) {
        if let Some(slot) = self.buffers.get_mut(id.0) {
            self.count += usize::from(buffer.is_some());
            self.count -= usize::from(slot.is_some());
            *slot = buffer;
        }
    }

    /// Returns the buffer that tensor `id` is in; `None` if it is in the CPU's memory.
    pub(super) fn get(&self, id: TensorId) -> Option<&BufferHandle> {
        self.buffers.get(id.0)?.as_ref()
    }

    /// Copies tensor `id` to the CPU's memory, if it is only in a buffer. Blocks until the buffer's device has computed
    /// it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a buffer of another size, and the buffer's errors.
    pub(super) fn fetch(&mut self, id: TensorId, tensors: &mut [RuntimeTensor]) -> Result<()> {
        let Some(buffer) = self.get(id).cloned() else { return Ok(()) };
        let tensor = &mut tensors[id.0];
        let bytes = tensor.bytes_mut()?;
        if bytes.len() != buffer.byte_size() {
            return Err(mismatch(tensor, &buffer));
        }
        buffer.read(bytes)?;
        self.set(id, None);
        Ok(())
    }
}

/// Checks that a buffer has the tensor's size.
///
/// # Errors
/// [`Error::InvalidInput`] for a buffer of another size.
pub(super) fn check_size(tensor: &RuntimeTensor, buffer: &BufferHandle) -> Result<()> {
    if tensor.byte_size()? == buffer.byte_size() { Ok(()) } else { Err(mismatch(tensor, buffer)) }
}

fn mismatch(tensor: &RuntimeTensor, buffer: &BufferHandle) -> Error {
    let (name, has) = (&tensor.name, buffer.byte_size());
    match tensor.byte_size() {
        Ok(needs) => {
            let needs = counted(needs, "byte");
            Error::InvalidInput(format!("tensor \"{name}\" has {needs}, the buffer {has}"))
        }
        Err(error) => error,
    }
}
