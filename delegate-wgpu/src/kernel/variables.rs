//! Resource variables of a partition: a run copies values that the device holds, and leaves new values on the device.
//!
//! The interpreter's [`Resources`] own the values. A run reads the current value from a [`StoredValue`] and writes the
//! new one to another, which becomes the current one when the run ends. A run that fails or is abandoned changes no
//! variable.

use std::any::Any;
use std::sync::Arc;

use delegraph_core::error::Location;
use delegraph_core::kernel::{DeviceValue, Resources};
use delegraph_core::ops::variables::{UNASSIGNED, mismatch};
use delegraph_core::{Error, Result, Shape, TensorType};
use delegraph_delegate_api::GraphView;

use super::operands::Input;
use crate::device::Gpu;
use crate::graph::{Graph, Resource};
use crate::memory::{Memory, StoredValue};

/// New values of at most this many bytes in total are also copied to the CPU by a run that reads back other data: CPU
/// kernels and saved state then need not wait for the device.
const MAX_MIRRORED_BYTES: u64 = 64 << 10;

/// Whether a caller may block until the device has computed a value. A page may not.
const MAY_BLOCK: bool = cfg!(not(target_arch = "wasm32"));

/// A variable that a run reads before it assigns it.
pub(super) struct ReadVariable {
    handle: i32,
    ty: TensorType,
    shape: Shape,
    /// The first node that reads the variable.
    node: Location,
    /// The value that the current run copies; `None` if it was uploaded.
    source: Option<Arc<dyn DeviceValue>>,
}

impl ReadVariable {
    pub(super) fn new(resource: &Resource, view: &GraphView<'_>) -> Self {
        let node = view.model().locate(view.index(), resource.node);
        let Resource { handle, ty, ref shape, .. } = *resource;
        ReadVariable { handle, ty, shape: shape.clone(), node, source: None }
    }

    /// Uploads the value to `input`, unless the device holds it.
    pub(super) fn upload(
        &mut self,
        resources: &mut Resources,
        input: &Input,
        gpu: &Gpu,
        words: &mut [u32],
    ) -> Result<()> {
        let wrong = |text: String| Error::Kernel(text).at(self.node.clone());
        let value = resources.variable_ref(self.handle).ok_or_else(|| wrong(UNASSIGNED.into()))?;
        if value.ty != self.ty || value.shape != self.shape {
            return Err(wrong(mismatch((value.ty, &value.shape), (self.ty, &self.shape))));
        }
        let held = value.on_device();
        self.source = held.filter(|value| stored(value).is_some_and(|v| v.fits(gpu, input.format))).cloned();
        if self.source.is_none()
            && let Some(value) = resources.variable(self.handle)?
        {
            input.write(&gpu.queue, value.bytes(), words);
        }
        Ok(())
    }

    /// Records the copy of a value that the device holds.
    pub(super) fn record(&self, encoder: &mut wgpu::CommandEncoder, input: &Input) {
        if let Some(from) = self.source.as_ref().and_then(stored) {
            from.record_read(encoder, &input.buffer);
        }
    }

    /// Releases the value that the last run copied.
    pub(super) fn release(&mut self) {
        self.source = None;
    }
}

fn stored(value: &Arc<dyn DeviceValue>) -> Option<&StoredValue> {
    let value: &dyn Any = &**value;
    value.downcast_ref()
}

/// A variable that a run assigns.
struct AssignedVariable {
    handle: i32,
    ty: TensorType,
    shape: Shape,
    /// Bytes of the value on the CPU.
    bytes: usize,
    /// The new value in the partition's memory.
    from: wgpu::Buffer,
    offset: u64,
    /// Offset in the staging buffer, in bytes.
    staged: u64,
    /// The current value, and the target of the next run.
    values: Vec<Arc<StoredValue>>,
    /// The target of the current run.
    target: usize,
}

impl AssignedVariable {
    /// Chooses a target that holds no current value.
    fn choose(&mut self) -> Result<()> {
        let is_free = |value: &Arc<StoredValue>| Arc::strong_count(value) == 1;
        self.target = match self.values.iter().position(is_free) {
            Some(target) => target,
            None => {
                let another = self.values.first().map(|value| value.another()).transpose()?;
                self.values.extend(another.map(Arc::new));
                self.values.len().saturating_sub(1)
            }
        };
        Ok(())
    }

    fn value(&self) -> Option<&Arc<StoredValue>> {
        self.values.get(self.target)
    }
}

/// The variables that a run assigns.
#[derive(Default)]
pub(super) struct AssignedVariables {
    all: Vec<AssignedVariable>,
    /// Whether new values are also copied to the CPU by runs that read back other data.
    mirrored: bool,
}

impl AssignedVariables {
    /// Returns the bytes of device memory, without those of the staging buffer.
    pub(super) fn bytes_for(graph: &Graph<'_>) -> u64 {
        2 * device_bytes(graph)
    }

    /// Returns the bytes in the staging buffer.
    pub(super) fn staging_bytes_for(graph: &Graph<'_>) -> u64 {
        if is_mirrored(graph) { device_bytes(graph) } else { 0 }
    }

    /// Allocates the memory of new values. The staging buffer has room for them from byte `staged` on.
    pub(super) fn new(gpu: &Arc<Gpu>, graph: &Graph<'_>, memory: &Memory, mut staged: u64) -> Result<Self> {
        let mut all = Vec::with_capacity(graph.assigned.len());
        for Resource { handle, ty, shape, value, .. } in &graph.assigned {
            let (buffer, range) = memory.storage(graph, *value)?;
            let (format, device_bytes) = (graph.value(*value).format, graph.value(*value).bytes());
            let values = (0..2).map(|_| StoredValue::new(gpu, device_bytes, format).map(Arc::new));
            all.push(AssignedVariable {
                handle: *handle,
                ty: *ty,
                shape: shape.clone(),
                bytes: usize::try_from(device_bytes / 4).map_or(0, |words| format.bytes_of(words)),
                from: buffer.clone(),
                offset: range.offset,
                staged,
                values: values.collect::<Result<_>>()?,
                target: 0,
            });
            staged += device_bytes;
        }
        Ok(AssignedVariables { all, mirrored: is_mirrored(graph) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns whether every run must copy new values to the CPU, since a consumer there could not wait for them.
    pub(super) fn must_read_back(&self) -> bool {
        !MAY_BLOCK && !self.all.is_empty()
    }

    /// Chooses the memory of the new values of a run.
    pub(super) fn choose(&mut self) -> Result<()> {
        self.all.iter_mut().try_for_each(AssignedVariable::choose)
    }

    /// Records the copies of new values, with `staging` also to the staging buffer.
    pub(super) fn record(&self, encoder: &mut wgpu::CommandEncoder, staging: Option<&wgpu::Buffer>) {
        for variable in &self.all {
            let Some(value) = variable.value() else { continue };
            value.record_write(encoder, &variable.from, variable.offset);
            if let Some(staging) = staging.filter(|_| self.mirrored) {
                let bytes = Some(value.size());
                encoder.copy_buffer_to_buffer(
                    &variable.from,
                    variable.offset,
                    staging,
                    variable.staged,
                    bytes,
                );
            }
        }
    }

    /// Makes the new values of a run the current ones. `staging` is the content of the staging buffer, if the run
    /// filled it.
    pub(super) fn assign(&self, resources: &mut Resources, staging: Option<&[u8]>) -> Result<()> {
        for variable in &self.all {
            let Some(value) = variable.value() else { continue };
            let AssignedVariable { handle, ty, ref shape, bytes, .. } = *variable;
            let held =
                resources.assign_on_device(handle, ty, shape, bytes, Arc::<StoredValue>::clone(value))?;
            let piece = staging.filter(|_| self.mirrored).and_then(|staging| {
                let from = usize::try_from(variable.staged).ok()?;
                staging.get(from..from.checked_add(usize::try_from(value.size()).ok()?)?)
            });
            if let Some(words) = piece {
                value.narrow(words, held.cpu_copy_mut());
            }
        }
        Ok(())
    }
}

fn device_bytes(graph: &Graph<'_>) -> u64 {
    graph.assigned.iter().map(|resource| graph.value(resource.value).bytes()).sum()
}

fn is_mirrored(graph: &Graph<'_>) -> bool {
    !MAY_BLOCK || device_bytes(graph) <= MAX_MIRRORED_BYTES
}
