//! The inputs and outputs of a partition, and the checks of its data.

use delegraph_core::error::{Location, counted};
use delegraph_core::{Error, Result, Shape, TensorId};
use delegraph_delegate_api::{BufferHandle, GraphView};

use crate::device::{Gpu, failed};
use crate::graph::storage_format::StorageFormat;
use crate::graph::{Fault, Graph, ValueId};
use crate::memory::{GpuBuffer, Memory};

use std::sync::Arc;

/// An input, uploaded before each run.
pub(super) struct Input {
    pub name: String,
    /// The number of the partition's input. Unused for the value of a resource variable.
    pub position: usize,
    pub shape: Shape,
    pub format: StorageFormat,
    pub buffer: wgpu::Buffer,
}

impl Input {
    pub(super) fn new(
        graph: &Graph<'_>,
        memory: &Memory,
        value: ValueId,
        (position, id): (usize, TensorId),
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let tensor = view.tensor(id);
        let (buffer, _) = memory.storage(graph, value)?;
        Ok(Input {
            name: tensor.name().to_owned(),
            position,
            shape: tensor.shape().cloned().unwrap_or_default(),
            format: graph.value(value).format,
            buffer: buffer.clone(),
        })
    }

    /// Uploads elements in the layout of the model's tensor. `words` has a word for each element.
    pub(super) fn write(&self, queue: &wgpu::Queue, bytes: &[u8], words: &mut [u32]) {
        if self.format.is_identity() {
            return queue.write_buffer(&self.buffer, 0, bytes);
        }
        let words = words.get_mut(..self.shape.elements()).unwrap_or_default();
        self.format.widen(bytes, words);
        queue.write_buffer(&self.buffer, 0, bytemuck::cast_slice(words));
    }

    /// Returns whether `from`, in the memory of the device of `gpu`, can be copied to the input.
    pub(super) fn accepts(&self, from: &GpuBuffer, gpu: &Gpu) -> bool {
        let words = if self.format == StorageFormat::WordPair { 2 } else { 1 };
        let bytes = 4 * words * self.shape.elements() as u64;
        let fits = self.format.is_identity() && from.size() == bytes && from.is_readable();
        fits && from.is_on(gpu)
    }
}

/// An output, read back after each run.
pub(super) struct Output {
    pub format: StorageFormat,
    pub buffer: wgpu::Buffer,
    pub offset: u64,
    /// Offset in the staging buffer, in bytes.
    pub staged: u64,
    pub bytes: u64,
    /// For consumers on the device; `None` for variables, and if device and CPU store the tensor in different formats.
    pub handle: Option<BufferHandle>,
    /// The input variable whose new value this is.
    pub state: Option<usize>,
}

impl Output {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        graph: &Graph<'_>,
        memory: &Memory,
        id: ValueId,
        staged: u64,
        state: Option<usize>,
    ) -> Result<Self> {
        let (buffer, range) = memory.storage(graph, id)?;
        let (format, bytes) = (graph.value(id).format, graph.value(id).bytes());
        let handle = (format.is_identity() && state.is_none())
            .then(|| BufferHandle::new(GpuBuffer::new(gpu, buffer, range.offset, bytes)));
        let (buffer, offset) = (buffer.clone(), range.offset);
        Ok(Output { format, buffer, offset, staged, bytes, handle, state })
    }

    /// Copies words of the device to `to`, in the layout of the model's tensor. `i` is the output's number.
    pub(super) fn read(&self, i: usize, from: &[u8], to: &mut [u8]) -> Result<()> {
        if self.format.bytes_of(from.len() / 4) != to.len() {
            let (to, from) = (counted(to.len(), "byte"), from.len());
            return Err(failed(format!("output {i} has {to}, the device holds it in {from} bytes of words")));
        }
        match self.format {
            format if format.is_identity() => to.copy_from_slice(from),
            format => format.narrow(from, to),
        }
        Ok(())
    }
}

/// A check of data, whose result is read back with the outputs.
pub(super) struct DataCheck {
    pub buffer: wgpu::Buffer,
    pub offset: u64,
    /// Offset in the staging buffer, in bytes.
    pub staged: u64,
    pub bytes: u64,
    pub fault: Fault,
    pub node: Location,
}

impl DataCheck {
    /// Returns the error of the first element that fails the check. `result` is the output of the check.
    pub(super) fn fault(&self, result: &[u8]) -> Option<Error> {
        let (words, _) = result.as_chunks::<4>();
        let mut pairs = words.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        let [at, element] = pairs.find(|[at, _]| *at != [0; 4])?;
        let at = u32::from_ne_bytes(at).saturating_sub(1);
        let data = self.fault.describe(at, i32::from_ne_bytes(element));
        Some(Error::from(data).at(self.node.clone()))
    }
}
