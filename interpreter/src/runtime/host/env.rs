//! The environment in which a subgraph is prepared and invoked.

use std::sync::Arc;

use delegraph_core::error::{LimitExceeded, Result};
use delegraph_core::graph::Subgraph;
use delegraph_core::kernel::{Budget, Host, Parallel, Resources, RuntimeTensor, SharedWeights};
use delegraph_core::{Model, OpResolver, Shape};
use delegraph_delegate_api::Callees;

use super::limits::ResourceLimits;
use super::observe::Observer;
use crate::runtime::composites::Origin;
use crate::runtime::delegation::Delegates;

/// Settings of an interpreter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Whether every tensor keeps its memory until the end of the invocation.
    pub(crate) preserve_all_tensors: bool,
    /// Whether outputs of the model may stay with a delegate.
    pub(crate) keep_outputs: bool,
}

/// The work of preparing, which is limited.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Whether preparations are counted. They are not counted in an invocation, which may prepare in each pass of a
    /// loop.
    pub(crate) counting: bool,
    /// The number of preparations of called subgraphs.
    preparations: usize,
    /// Multiply-adds spent on constants.
    pub(crate) folding_multiply_adds: u64,
    /// Bytes of computed constants.
    pub(crate) folded_bytes: usize,
}

impl Usage {
    /// The work at the start of a preparation.
    pub(crate) fn preparing() -> Self {
        Usage { counting: true, ..Self::default() }
    }

    /// Counts the preparation of a called subgraph.
    ///
    /// # Errors
    /// [`LimitExceeded`] above the limit.
    pub(crate) fn count_preparation(&mut self, limits: &ResourceLimits) -> Result<()> {
        if self.counting {
            self.preparations = self.preparations.saturating_add(1);
            let (needed, limit) = (self.preparations, limits.preparations);
            if needed > limit {
                let (needed, allowed) = (needed as u64, limit as u64);
                return Err(LimitExceeded::Preparations { needed, allowed }.into());
            }
        }
        Ok(())
    }
}

/// The parts of an interpreter that all its subgraphs share.
pub(crate) struct Services<'e> {
    pub(crate) model: &'e Arc<Model>,
    pub(crate) resolver: &'e dyn OpResolver,
    pub(crate) resources: &'e mut Resources,
    pub(crate) parallel: &'e dyn Parallel,
    pub(crate) observer: &'e mut Observer,
    pub(crate) delegates: &'e mut Delegates,
    pub(crate) settings: Settings,
    pub(crate) limits: &'e ResourceLimits,
    pub(crate) budget: &'e Arc<Budget>,
    pub(crate) usage: &'e mut Usage,
    /// The depth of calls in which the subgraph is nested.
    pub(crate) depth: usize,
    /// Per subgraph, the composites that were replaced by their bodies.
    pub(crate) inlined: &'e [Vec<Origin>],
}

impl Services<'_> {
    /// Returns the same services for a called subgraph, one call deeper.
    ///
    /// # Errors
    /// [`LimitExceeded`] if calls are nested too deeply: each level uses stack.
    pub(crate) fn nested(&mut self) -> Result<Services<'_>> {
        let (depth, limit) = (self.depth.saturating_add(1), self.limits.call_depth);
        if depth > limit {
            return Err(LimitExceeded::CallDepth { needed: depth as u64, allowed: limit as u64 }.into());
        }
        Ok(Services { depth, ..self.reborrow() })
    }

    /// Returns the same services, borrowed at the same depth of calls.
    pub(crate) fn reborrow(&mut self) -> Services<'_> {
        Services {
            model: self.model,
            resolver: self.resolver,
            resources: &mut *self.resources,
            parallel: self.parallel,
            observer: &mut *self.observer,
            delegates: &mut *self.delegates,
            settings: self.settings,
            limits: self.limits,
            budget: self.budget,
            usage: &mut *self.usage,
            depth: self.depth,
            inlined: self.inlined,
        }
    }
}

/// The other subgraphs of an interpreter, for nodes that call them.
pub(crate) trait Subgraphs: Callees {
    /// Prepares subgraph `index` for inputs of these shapes. Returns the shapes of its outputs, `None` if they depend
    /// on data.
    fn prepare(
        &mut self,
        services: Services<'_>,
        index: usize,
        inputs: &[Shape],
    ) -> Result<Vec<Option<Shape>>>;

    /// Runs subgraph `index` to its end. Blocks while a delegate's kernel is pending.
    fn call<'s>(
        &'s mut self,
        services: Services<'_>,
        index: usize,
        inputs: &[&RuntimeTensor],
    ) -> Result<Vec<&'s RuntimeTensor>>;

    /// Resets the variable tensors of subgraph `index`.
    fn reset(&mut self, index: usize) -> Result<()>;
}

/// The environment of one subgraph, which is also the [`Host`] of its kernels.
pub(crate) struct Env<'e> {
    pub(crate) services: Services<'e>,
    pub(crate) subgraphs: &'e mut (dyn Subgraphs + 'static),
    /// Subgraph and node that is being prepared, if its constants depend on the model alone.
    sharing: Option<(usize, usize)>,
}

impl<'e> Env<'e> {
    pub(crate) fn new(services: Services<'e>, subgraphs: &'e mut (dyn Subgraphs + 'static)) -> Self {
        Env { services, subgraphs, sharing: None }
    }

    /// Sets the node that is prepared next: subgraph and node if its packed constants may be shared with other
    /// interpreters on the model.
    pub(crate) fn share_constants_of(&mut self, node: Option<(usize, usize)>) {
        self.sharing = node;
    }
}

impl Host for Env<'_> {
    fn resources(&mut self) -> &mut Resources {
        self.services.resources
    }

    fn shared(&self) -> Option<(Arc<SharedWeights>, (usize, usize))> {
        self.sharing.map(|node| (self.services.model.extension(), node))
    }

    fn subgraph(&self, index: usize) -> Option<&Subgraph> {
        self.services.model.subgraphs().get(index)
    }

    fn prepare_callee(&mut self, index: usize, inputs: &[Shape]) -> Result<Vec<Option<Shape>>> {
        self.subgraphs.prepare(self.services.nested()?, index, inputs)
    }

    fn budget(&self) -> &Arc<Budget> {
        self.services.budget
    }

    fn is_cancelled(&self) -> bool {
        self.services.budget.is_interrupted()
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.services.observer.progress(done, total);
    }

    fn reset_callee(&mut self, index: usize) -> Result<()> {
        self.subgraphs.reset(index)
    }

    fn call(&mut self, index: usize, inputs: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        self.subgraphs.call(self.services.nested()?, index, inputs)
    }
}
