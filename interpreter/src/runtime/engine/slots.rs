//! The subgraphs of an interpreter, each created at its first use.

use delegraph_core::error::{Error, Result, counted};
use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::{Shape, TensorId, TensorType};
use delegraph_delegate_api::{Callees, GraphView};

use crate::runtime::host::{Env, Services, Subgraphs};
use crate::runtime::subgraph::{Conversions, Cursor, Failed, Inferred, Parts, Planned, Progress, Role};

/// A subgraph and its state of preparation.
pub(crate) enum Slot {
    /// Shapes, delegates or memory are not determined.
    Unprepared(Box<Parts>),
    /// Ready to be invoked.
    Planned(Box<Planned>),
}

impl Slot {
    /// Returns tensors and kernels.
    pub(crate) fn parts(&self) -> &Parts {
        match self {
            Slot::Unprepared(parts) => parts,
            Slot::Planned(planned) => planned.parts(),
        }
    }

    /// Returns tensors and kernels, mutable. Shapes must not be changed.
    pub(crate) fn parts_mut(&mut self) -> &mut Parts {
        match self {
            Slot::Unprepared(parts) => parts,
            Slot::Planned(planned) => planned.parts_mut(),
        }
    }

    /// Drops everything that depends on shapes and delegates.
    pub(crate) fn into_parts(self) -> Box<Parts> {
        match self {
            Slot::Unprepared(parts) => parts,
            Slot::Planned(planned) => planned.into_parts(),
        }
    }

    /// Sets another shape for input `id`. If it differs, the subgraph must be prepared again.
    pub(crate) fn resize_input(self, id: TensorId, shape: &Shape) -> Slot {
        if self.parts().tensors[id.0].shape == *shape {
            return self;
        }
        let mut parts = self.into_parts();
        parts.tensors[id.0].shape = shape.clone();
        Slot::Unprepared(parts)
    }
}

/// Per subgraph, its slot; `None` before its first use, while it is checked out, and after a panic in it.
pub(crate) struct Slots(Vec<Option<Slot>>);

impl Slots {
    /// Creates slots for `count` subgraphs.
    pub(crate) fn new(count: usize) -> Self {
        Slots(std::iter::repeat_with(|| None).take(count).collect())
    }

    /// Returns the slot of subgraph `index`.
    pub(crate) fn get(&self, index: usize) -> Option<&Slot> {
        self.0.get(index)?.as_ref()
    }

    /// Returns the slot of subgraph `index`, mutable.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Slot> {
        self.0.get_mut(index)?.as_mut()
    }

    /// Returns all slots with a subgraph.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter().flatten()
    }

    /// Returns all slots with a subgraph, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.0.iter_mut().flatten()
    }

    /// Requests that every subgraph is prepared again at its next use.
    pub(crate) fn unprepare_all(&mut self) {
        for slot in &mut self.0 {
            *slot = slot.take().map(|slot| Slot::Unprepared(slot.into_parts()));
        }
    }

    /// Replaces each subgraph by the result of `f`.
    ///
    /// # Errors
    /// That of `f`. The subgraph is created again at its next use.
    pub(crate) fn replace_all(&mut self, mut f: impl FnMut(Slot) -> Result<Slot>) -> Result<()> {
        self.0.iter_mut().try_for_each(|slot| {
            *slot = slot.take().map(&mut f).transpose()?;
            Ok(())
        })
    }

    /// Takes subgraph `index` out of its slot, or creates it.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if it does not exist; those of [`Parts::new`].
    pub(crate) fn check_out(&mut self, index: usize, services: &Services<'_>) -> Result<Slot> {
        match self.0.get_mut(index) {
            Some(slot) => match slot.take() {
                Some(slot) => Ok(slot),
                None => {
                    let (model, resolver) = (services.model.clone(), services.resolver);
                    let parts = Parts::new(model, index, resolver, services.budget)?;
                    Ok(Slot::Unprepared(Box::new(parts)))
                }
            },
            None => Err(Error::InvalidNode(format!("subgraph {index} does not exist"))),
        }
    }

    /// Returns a checked-out subgraph to its slot.
    pub(crate) fn check_in(&mut self, slot: Slot) -> &Slot {
        let index = slot.parts().index;
        self.0[index].insert(slot)
    }

    /// Takes subgraph `index` out of its slot and prepares it for inputs of these shapes. On failure, the subgraph is
    /// returned to its slot.
    fn check_out_for(
        &mut self,
        services: &mut Services<'_>,
        index: usize,
        inputs: impl ExactSizeIterator<Item = Shape>,
    ) -> Result<Box<Planned>> {
        let mut slot = self.check_out(index, services)?;
        let ids = services.model.subgraphs()[index].inputs();
        if ids.len() != inputs.len() {
            let (has, given) = (ids.len(), inputs.len());
            self.check_in(slot);
            let text = format!("subgraph {index} has {}, the call passes {given}", counted(has, "input"));
            return Err(Error::InvalidNode(text));
        }
        for (i, (&id, shape)) in ids.iter().zip(inputs).enumerate() {
            let tensor = &slot.parts().tensors[id.0];
            if tensor.is_constant() && tensor.shape != shape {
                let text = format!(
                    "input {i} of subgraph {index} is a constant of shape {}, the call passes {shape}",
                    tensor.shape
                );
                self.check_in(slot);
                return Err(Error::InvalidNode(text));
            }
            slot = slot.resize_input(id, &shape);
        }
        if let Slot::Unprepared(_) = slot
            && let Err(error) = services.usage.count_preparation(services.limits)
        {
            self.check_in(slot);
            return Err(error);
        }
        let mut env = Env::new(services.reborrow(), self);
        prepare(slot, &mut env, Role::Callee).map_err(|Failed { parts, error }| {
            self.check_in(Slot::Unprepared(parts));
            error
        })
    }
}

/// Prepares a subgraph if necessary.
///
/// # Errors
/// The errors of the steps of preparing.
pub(crate) fn prepare(slot: Slot, env: &mut Env<'_>, role: Role) -> Result<Box<Planned>, Failed> {
    match slot {
        Slot::Planned(planned) => Ok(planned),
        Slot::Unprepared(parts) => {
            let planned = Inferred::new(parts, Conversions::BeforePacking, env)?
                .claim(env, role)?
                .prepare(env)?
                .plan(env)?;
            if env.services.parallel.take_panicked() {
                let text = "a kernel failed unexpectedly on one of its threads while preparing";
                return Err(Failed { parts: planned.into_parts(), error: Error::State(text.into()) });
            }
            Ok(Box::new(planned))
        }
    }
}

/// Copies the arguments of a call to the inputs of a subgraph, and runs it to its end.
fn run(planned: &mut Planned, env: &mut Env<'_>, arguments: &[&RuntimeTensor]) -> Result<()> {
    let Parts { model, index, tensors, .. } = planned.parts_mut();
    for (i, (id, argument)) in model.subgraphs()[*index].inputs().iter().zip(arguments).enumerate() {
        let tensor = &mut tensors[id.0];
        if tensor.ty != argument.ty {
            let (has, given) = (tensor.ty, argument.ty);
            let text = format!("input {i} of subgraph {index} is {has}, the call passes {given}");
            return Err(Error::InvalidNode(text));
        }
        if tensor.ty == TensorType::String {
            tensor.allocate_bytes(Placement::Dynamic, argument.bytes().len())?;
        }
        let target = tensor.bytes_mut()?;
        if target.len() != argument.bytes().len() {
            return Err(Error::State(format!("tensor \"{}\" has no value yet", argument.name)));
        }
        target.copy_from_slice(argument.bytes());
    }
    match planned.advance(&mut Cursor::default(), env, None)? {
        Progress::Done => Ok(()),
        Progress::Pending => Err(Error::State("a blocking call returned while a step was pending".into())),
    }
}

impl Callees for Slots {
    fn callee(&self, index: usize) -> Option<GraphView<'_>> {
        match self.get(index)? {
            Slot::Planned(planned) => Some(planned.graph().with_callees(self)),
            Slot::Unprepared(_) => None,
        }
    }
}

impl Subgraphs for Slots {
    fn prepare(
        &mut self,
        mut services: Services<'_>,
        index: usize,
        inputs: &[Shape],
    ) -> Result<Vec<Option<Shape>>> {
        let planned = self.check_out_for(&mut services, index, inputs.iter().cloned())?;
        let outputs = services.model.subgraphs()[index].outputs().iter();
        let shapes = outputs.map(|&id| planned.known_shape(id).cloned()).collect();
        self.check_in(Slot::Planned(planned));
        Ok(shapes)
    }

    fn call<'s>(
        &'s mut self,
        mut services: Services<'_>,
        index: usize,
        inputs: &[&RuntimeTensor],
    ) -> Result<Vec<&'s RuntimeTensor>> {
        let shapes = inputs.iter().map(|t| t.shape.clone());
        let mut planned = self.check_out_for(&mut services, index, shapes)?;
        let outputs = services.model.subgraphs()[index].outputs();
        let result = run(&mut planned, &mut Env::new(services, self), inputs);
        let tensors = &self.check_in(Slot::Planned(planned)).parts().tensors;
        result?;
        Ok(outputs.iter().map(|id| &tensors[id.0]).collect())
    }

    fn reset(&mut self, index: usize) -> Result<()> {
        self.get_mut(index).map_or(Ok(()), |slot| slot.parts_mut().reset_variables())
    }
}
