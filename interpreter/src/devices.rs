//! Tensors that delegates, or the application, keep in buffers of their own.
//!
//! A partition's output stays with its delegate when the kernel can keep it and nobody on the CPU reads it; the next
//! partition takes it from there when its kernel accepts the buffer. Whatever else wants it has it copied first.

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{NodeId, TensorId};
use delegraph_delegate_api::BufferHandle;

use crate::engine::Env;
use crate::subgraph::{Step, SubgraphRuntime};

/// Which tensors are in buffers.
#[derive(Default)]
pub(crate) struct Devices {
    /// Per tensor, the buffer that has its data while the CPU's memory does not. Empty where no tensor ever is in one.
    pub(crate) buffers: Vec<Option<BufferHandle>>,
    /// How many are.
    pub(crate) count: usize,
    /// Inputs that the application keeps in buffers.
    inputs: Vec<(TensorId, BufferHandle)>,
    /// Outputs that the application wants in buffers.
    outputs: Vec<(TensorId, BufferHandle)>,
}

impl Devices {
    fn set(&mut self, id: TensorId, buffer: Option<BufferHandle>) {
        if let Some(slot) = self.buffers.get_mut(id.0) {
            self.count += usize::from(buffer.is_some());
            self.count -= usize::from(slot.is_some());
            *slot = buffer;
        }
    }

    /// Where a tensor is, if not in the CPU's memory.
    pub(crate) fn get(&self, id: TensorId) -> Option<&BufferHandle> {
        self.buffers.get(id.0)?.as_ref()
    }
}

impl SubgraphRuntime {
    /// Decides which outputs of partitions may stay with their delegates.
    pub(crate) fn plan_devices(&mut self, env: &Env<'_>) {
        let subgraph = &self.model.subgraphs[self.index];
        let mut on_cpu = vec![env.settings.preserve_all_tensors; self.tensors.len()];
        for step in &self.steps {
            if let Step::Node(id) = step {
                subgraph.node(*id).inputs.iter().flatten().for_each(|id| on_cpu[id.0] = true);
            }
        }
        if !env.settings.keep_outputs {
            let wanted = |id: &&TensorId| !self.devices.outputs.iter().any(|(wanted, _)| wanted == *id);
            subgraph.outputs.iter().filter(wanted).for_each(|id| on_cpu[id.0] = true);
        }
        for p in self.partitions.iter_mut().filter(|p| !p.dynamic) {
            for (i, id) in p.params.outputs.iter().enumerate() {
                p.may_stay[i] = !on_cpu[id.0] && p.kernel.keeps(i);
            }
        }
        let used =
            !self.devices.inputs.is_empty() || self.partitions.iter().any(|p| p.may_stay.contains(&true));
        let count = if used { self.tensors.len() } else { 0 };
        self.devices.buffers = vec![None; count];
        self.devices.count = 0;
    }

    /// At the beginning of an invocation: only the application's own buffers hold anything.
    pub(crate) fn begin_devices(&mut self) {
        if self.devices.buffers.is_empty() {
            return;
        }
        self.devices.buffers.fill(None);
        self.devices.count = 0;
        for i in 0..self.devices.inputs.len() {
            let (id, buffer) = self.devices.inputs[i].clone();
            self.devices.set(id, Some(buffer));
        }
    }

    /// At the end of an invocation: outputs are where the application wants them.
    pub(crate) fn deliver(&mut self) -> Result<()> {
        for i in 0..self.devices.outputs.len() {
            let (id, wanted) = self.devices.outputs[i].clone();
            // A shape that only data decides may be another one than last time.
            self.check_size(id, Some(&wanted))?;
            let there = match self.devices.get(id) {
                Some(source) => wanted.copy_from(source)?,
                None => false,
            };
            if !there {
                self.fetch(id)?;
                wanted.write(self.tensors[id.0].bytes())?;
            }
        }
        Ok(())
    }

    /// Puts an output of a partition where its kernel says it is.
    pub(crate) fn settle(&mut self, p: usize) {
        let partition = &mut self.partitions[p];
        for (id, left) in partition.params.outputs.iter().zip(&mut partition.left) {
            self.devices.set(*id, left.take());
        }
    }

    /// Copies a tensor to the CPU's memory, where it is only in a buffer.
    pub(crate) fn fetch(&mut self, id: TensorId) -> Result<()> {
        let Some(buffer) = self.devices.get(id).cloned() else { return Ok(()) };
        let tensor = &mut self.tensors[id.0];
        let bytes = tensor.bytes_mut()?;
        if bytes.len() != buffer.byte_size() {
            let (name, needs, has) = (&tensor.name, tensor.byte_size()?, buffer.byte_size());
            return Err(Error::InvalidInput(format!(
                "tensor \"{name}\" has {needs} bytes, its buffer {has}"
            )));
        }
        buffer.read(bytes)?;
        self.devices.set(id, None);
        Ok(())
    }

    /// Copies to the CPU's memory whatever a node reads that is only in buffers.
    pub(crate) fn fetch_inputs(&mut self, node: NodeId) -> Result<()> {
        let model = self.model.clone();
        model.subgraphs[self.index].node(node).inputs.iter().flatten().try_for_each(|&id| self.fetch(id))
    }

    /// Has an input taken from `buffer` in every invocation from now on; `None`: from the CPU's memory.
    pub(crate) fn set_input_buffer(&mut self, id: TensorId, buffer: Option<BufferHandle>) -> Result<()> {
        self.check_size(id, buffer.as_ref())?;
        self.devices.inputs.retain(|(other, _)| *other != id);
        self.devices.inputs.extend(buffer.map(|b| (id, b)));
        if self.devices.buffers.is_empty() {
            self.devices.buffers = vec![None; self.tensors.len()];
        }
        Ok(())
    }

    /// Has an output copied to `buffer` in every invocation from now on; `None`: no longer. Call
    /// [`SubgraphRuntime::plan_devices`] afterwards.
    pub(crate) fn set_output_buffer(&mut self, id: TensorId, buffer: Option<BufferHandle>) -> Result<()> {
        self.check_size(id, buffer.as_ref())?;
        self.devices.outputs.retain(|(other, _)| *other != id);
        self.devices.outputs.extend(buffer.map(|b| (id, b)));
        Ok(())
    }

    fn check_size(&self, id: TensorId, buffer: Option<&BufferHandle>) -> Result<()> {
        let Some(has) = buffer.map(BufferHandle::byte_size) else { return Ok(()) };
        let (name, needs) = (&self.tensors[id.0].name, self.tensors[id.0].byte_size()?);
        if needs != has {
            return Err(Error::InvalidInput(format!(
                "tensor \"{name}\" has {needs} bytes, the buffer {has}"
            )));
        }
        Ok(())
    }

    /// Inputs and outputs of another size have left their buffers.
    pub(crate) fn drop_buffers_that_do_not_fit(&mut self) {
        let tensors = &self.tensors;
        let fits =
            |id: &TensorId, b: &BufferHandle| tensors[id.0].byte_size().is_ok_and(|n| n == b.byte_size());
        self.devices.inputs.retain(|(id, buffer)| fits(id, buffer));
        self.devices.outputs.retain(|(id, buffer)| fits(id, buffer));
    }
}
