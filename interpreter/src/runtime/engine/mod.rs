//! All subgraphs of a model at run time.

mod composites;
mod slots;

use std::sync::Arc;
use std::task::Context;

use delegraph_core::error::{Error, Result};
use delegraph_core::kernel::{Budget, Parallel, Resources};
use delegraph_core::{Model, OpResolver, Shape, TensorId};

use crate::runtime::composites::Origin;
use crate::runtime::delegation::{Delegates, Exclusion};
use crate::runtime::host::{Env, Interruptible, Observer, ResourceLimits, Services, Settings, Usage};
use crate::runtime::subgraph::{Conversions, Cursor, Failed, Inferred, Planned, Progress, Role};

use self::slots::prepare;
pub(crate) use self::slots::{Slot, Slots};

/// The subgraphs of a model with their shared services.
pub(crate) struct Engine {
    /// The running model: composites that nothing runs as a whole are replaced by their bodies.
    pub(crate) model: Arc<Model>,
    /// The model that the application passed.
    original: Arc<Model>,
    /// Per subgraph, the composites that were replaced by their bodies.
    inlined: Vec<Vec<Origin>>,
    resolution: Resolution,
    pub(crate) resolver: Arc<dyn OpResolver>,
    pub(crate) slots: Slots,
    pub(crate) resources: Resources,
    pub(crate) parallel: Arc<dyn Parallel>,
    pub(crate) observer: Observer,
    pub(crate) delegates: Delegates,
    pub(crate) settings: Settings,
    pub(crate) limits: ResourceLimits,
    pub(crate) budget: Arc<Budget>,
    usage: Usage,
}

/// Whether composites have been resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    Decided,
    /// To be resolved again from the original model, because delegates have changed.
    Open,
}

impl Engine {
    /// Creates an engine for `model`, with all composites in place.
    pub(crate) fn new(
        model: Arc<Model>,
        resolver: Arc<dyn OpResolver>,
        parallel: Arc<dyn Parallel>,
        delegates: Delegates,
        settings: Settings,
        limits: ResourceLimits,
    ) -> Self {
        let count = model.subgraphs().len();
        let budget = Budget::new(limits.memory);
        Engine {
            original: model.clone(),
            model,
            inlined: vec![Vec::new(); count],
            resolution: Resolution::Decided,
            resolver,
            slots: Slots::new(count),
            resources: Resources::with_budget(budget.clone()),
            parallel: Arc::new(Interruptible::new(parallel, budget.clone())),
            observer: Observer::new(budget.clone()),
            delegates,
            settings,
            limits,
            budget,
            usage: Usage::preparing(),
        }
    }

    /// Returns the slots, and the services that the subgraphs in them share.
    fn split(&mut self) -> (&mut Slots, Services<'_>) {
        let services = Services {
            model: &self.model,
            resolver: &*self.resolver,
            resources: &mut self.resources,
            parallel: &*self.parallel,
            observer: &mut self.observer,
            delegates: &mut self.delegates,
            settings: self.settings,
            limits: &self.limits,
            budget: &self.budget,
            usage: &mut self.usage,
            depth: 0,
            inlined: &self.inlined,
        };
        (&mut self.slots, services)
    }

    /// Sets the deadline of a call that begins.
    pub(crate) fn start_clock(&self) {
        self.limits.start_clock(&self.budget);
    }

    /// Creates subgraph `index` if it does not exist yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a node without a kernel, and the errors of kernels.
    pub(crate) fn create(&mut self, index: usize) -> Result<()> {
        let (slots, services) = self.split();
        let slot = slots.check_out(index, &services)?;
        slots.check_in(slot);
        Ok(())
    }

    /// Returns the planned subgraph `index`; `None` if it is not prepared.
    pub(crate) fn planned(&self, index: usize) -> Option<&Planned> {
        match self.slots.get(index)? {
            Slot::Planned(planned) => Some(planned),
            Slot::Unprepared(_) => None,
        }
    }

    /// As [`Engine::planned`], mutable.
    pub(crate) fn planned_mut(&mut self, index: usize) -> Option<&mut Planned> {
        match self.slots.get_mut(index)? {
            Slot::Planned(planned) => Some(planned),
            Slot::Unprepared(_) => None,
        }
    }

    /// Infers subgraph `index`; returns the result of `f` on it.
    ///
    /// # Errors
    /// Those of op definitions and kernels.
    pub(crate) fn infer<T>(&mut self, index: usize, f: impl FnOnce(&Inferred) -> T) -> Result<T> {
        let (slots, services) = self.split();
        let parts = slots.check_out(index, &services)?.into_parts();
        let (parts, result) = match Inferred::new(parts, Conversions::AtOnce, &mut Env::new(services, slots))
        {
            Ok(inferred) => {
                let read = f(&inferred);
                (inferred.parts, Ok(read))
            }
            Err(Failed { parts, error }) => (parts, Err(error)),
        };
        self.slots.check_in(Slot::Unprepared(parts));
        result
    }

    /// Prepares subgraph `index` if necessary. Delegates that fail are excluded, unless the policy requires them.
    ///
    /// # Errors
    /// Those of inference, kernels and, if the policy requires them, delegates.
    pub(crate) fn prepare(&mut self, index: usize) -> Result<()> {
        if self.planned(index).is_some() {
            return Ok(());
        }
        self.start_clock();
        let result = self.prepare_unprepared(index);
        self.end_call(&result);
        result
    }

    fn prepare_unprepared(&mut self, index: usize) -> Result<()> {
        if self.resolution == Resolution::Open {
            self.resolve_composites()?;
        }
        self.delegates.retry();
        loop {
            self.usage = Usage::preparing();
            let (slots, services) = self.split();
            let slot = slots.check_out(index, &services)?;
            let prepared = prepare(slot, &mut Env::new(services, slots), Role::Entry);
            let (slot, result) = match prepared {
                Ok(planned) => (Slot::Planned(planned), Ok(())),
                Err(Failed { parts, error }) => (Slot::Unprepared(parts), Err(error)),
            };
            self.slots.check_in(slot);
            match result {
                Err(error) => {
                    let error = self.delegates.without_location(error);
                    // Each round excludes one more delegate, so the loop ends.
                    if !self.delegates.exclude_failed(Exclusion::UntilRetry) {
                        return Err(error);
                    }
                    self.undelegate();
                }
                // Each round has fewer composites, so the loop ends, too.
                Ok(()) if self.inline_unclaimed()? => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Runs a prepared subgraph from `cursor` on: see [`Planned::advance`].
    ///
    /// # Errors
    /// As [`Planned::advance`]; [`Error::State`] if a kernel panicked on a thread of the pool.
    pub(crate) fn advance(
        &mut self,
        index: usize,
        cursor: &mut Cursor,
        task: Option<&mut Context<'_>>,
    ) -> Result<Progress> {
        if cursor.is_unstarted() {
            self.start_clock();
            self.usage.counting = false;
        }
        let (slots, services) = self.split();
        let parallel = services.parallel;
        let slot = slots.check_out(index, &services)?;
        let Slot::Planned(mut planned) = slot else {
            slots.check_in(slot);
            return Err(Error::State("the subgraph is not prepared".into()));
        };
        let result = planned.advance(cursor, &mut Env::new(services, slots), task);
        slots.check_in(Slot::Planned(planned));
        let panicked = parallel.take_panicked();
        if panicked {
            if let (Some(planned), Ok(Progress::Pending)) = (self.planned_mut(index), &result) {
                planned.abandon(cursor);
            }
            let text = "a kernel failed unexpectedly on one of its threads; its results are unusable";
            return Err(Error::State(text.into()));
        }
        // If the work was interrupted, the last kernel may have skipped the rest of its work.
        let result = match result {
            Ok(Progress::Done) => self.budget.check().map(|()| Progress::Done),
            result => result,
        };
        self.end_call(&result);
        result
    }

    /// Clears a cancellation after a call.
    fn end_call<T>(&self, result: &Result<T>) {
        if matches!(result, Err(Error::Cancelled)) {
            self.budget.clear_cancellation();
        }
    }

    /// Returns all nodes to the CPU: every subgraph is prepared again at its next use. Variables keep their values.
    pub(crate) fn undelegate(&mut self) {
        self.slots.unprepare_all();
    }

    /// Returns every node to the CPU, because delegates have changed. Composites that were replaced by their bodies are
    /// offered to the delegates again.
    pub(crate) fn delegates_changed(&mut self) {
        self.undelegate();
        if self.inlined.iter().any(|origins| !origins.is_empty()) {
            self.resolution = Resolution::Open;
        }
    }

    /// Sets another shape for input `id` of subgraph `index`, whose data are lost.
    ///
    /// # Errors
    /// The errors of [`Engine::create`].
    pub(crate) fn resize_input(&mut self, index: usize, id: TensorId, shape: &Shape) -> Result<()> {
        let (slots, services) = self.split();
        let slot = slots.check_out(index, &services)?.resize_input(id, shape);
        slots.check_in(slot);
        Ok(())
    }

    /// Requests that subgraph `index` is prepared again at its next use.
    ///
    /// # Errors
    /// The errors of [`Engine::create`].
    pub(crate) fn unprepare(&mut self, index: usize) -> Result<()> {
        let (slots, services) = self.split();
        let parts = slots.check_out(index, &services)?.into_parts();
        slots.check_in(Slot::Unprepared(parts));
        Ok(())
    }
}
