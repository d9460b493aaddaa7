//! The state that an invocation changes, saved so that it can be repeated without a delegate.

use delegraph_core::error::Result;
use delegraph_core::kernel::{Charged, Placement, RuntimeTensor, SavedVariables};
use delegraph_core::{TensorId, TensorType};

use super::engine::{Engine, Slot};

/// Variables of all subgraphs.
pub(super) struct State {
    /// Subgraph, tensor and bytes.
    tensors: Vec<(usize, TensorId, Charged<u8>)>,
    resources: SavedVariables,
}

impl State {
    /// Copies all variables.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`](delegraph_core::Error::LimitExceeded) if there is no memory for a copy.
    pub(super) fn save(engine: &Engine) -> Result<Self> {
        let mut tensors = Vec::new();
        for parts in engine.slots.iter().map(Slot::parts) {
            let all = parts.tensors.iter().enumerate();
            let variables = all.filter(|(_, t)| t.placement() == Placement::Variable);
            for (i, variable) in variables {
                tensors.push((parts.index, TensorId(i), copied(engine, variable)?));
            }
        }
        Ok(State { tensors, resources: engine.resources.save()? })
    }

    /// Restores all variables, and the inputs of subgraph `entry`.
    ///
    /// # Errors
    /// If a tensor cannot be written.
    pub(super) fn restore(self, engine: &mut Engine, entry: usize, inputs: &[Charged<u8>]) -> Result<()> {
        for (index, id, bytes) in &self.tensors {
            if let Some(slot) = engine.slots.get_mut(*index) {
                write(&mut slot.parts_mut().tensors[id.0], bytes)?;
            }
        }
        engine.resources.restore(self.resources);
        if let Some(slot) = engine.slots.get_mut(entry) {
            let parts = slot.parts_mut();
            for (id, bytes) in parts.model.subgraphs()[entry].inputs().iter().zip(inputs) {
                write(&mut parts.tensors[id.0], bytes)?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes of the inputs of subgraph `entry`, which an invocation does not change.
///
/// # Errors
/// As [`State::save`].
pub(super) fn inputs(engine: &Engine, entry: usize) -> Result<Vec<Charged<u8>>> {
    let Some(parts) = engine.slots.get(entry).map(Slot::parts) else { return Ok(Vec::new()) };
    parts.subgraph().inputs().iter().map(|id| copied(engine, &parts.tensors[id.0])).collect()
}

/// Returns a copy of a tensor's bytes, charged to the interpreter's budget.
fn copied(engine: &Engine, tensor: &RuntimeTensor) -> Result<Charged<u8>> {
    let mut copy = engine.budget.filled(0, tensor.bytes().len())?;
    copy.copy_from_slice(tensor.bytes());
    Ok(copy)
}

/// Writes the saved bytes to a tensor.
fn write(tensor: &mut RuntimeTensor, bytes: &[u8]) -> Result<()> {
    if tensor.ty == TensorType::String {
        tensor.allocate_bytes(Placement::Dynamic, bytes.len())?;
    }
    let target = tensor.bytes_mut()?;
    if target.len() == bytes.len() {
        target.copy_from_slice(bytes);
    }
    Ok(())
}
