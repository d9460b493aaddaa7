//! How an interpreter is made.

use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::resolver::check_resolved;
use delegraph_core::{Composite, Model, Op, OpResolver};
use delegraph_delegate_api::{Delegate, PartitionOptions, Policy, Report};

use super::Interpreter;
use crate::delegation::{Applied, Delegation};
use crate::engine::{Engine, Settings};
use crate::fusion::{Fused, Pipeline};
use crate::observe::Observer;

/// No tensor and no arena may be larger, unless the application says otherwise: 4 GiB.
pub const DEFAULT_MEMORY_LIMIT: usize = if usize::BITS >= 64 { 4 << 30 } else { usize::MAX / 2 };

/// Makes an [`Interpreter`].
pub struct InterpreterBuilder {
    model: Arc<Model>,
    resolver: Arc<dyn OpResolver>,
    delegation: Delegation,
    threads: usize,
    settings: Settings,
    prepare_later: bool,
    fusion: Option<Pipeline>,
}

impl InterpreterBuilder {
    pub(super) fn new(model: Arc<Model>, resolver: Arc<dyn OpResolver>) -> Self {
        InterpreterBuilder {
            model,
            resolver,
            delegation: Delegation::default(),
            threads: 1,
            settings: Settings {
                memory_limit: DEFAULT_MEMORY_LIMIT,
                preserve_all_tensors: false,
                keep_outputs: false,
            },
            prepare_later: false,
            fusion: None,
        }
    }

    /// Which kernels to use; [`BuiltinOpResolver`] unless this is called.
    #[must_use]
    pub fn resolver(mut self, resolver: impl OpResolver + 'static) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Adds a delegate. Delegates choose in the order in which they are added.
    #[must_use]
    pub fn delegate(self, delegate: Box<dyn Delegate>) -> Self {
        self.delegate_within(delegate, PartitionOptions::default())
    }

    /// Adds a delegate that gets no more than these limits allow, beside its own.
    #[must_use]
    pub fn delegate_within(mut self, delegate: Box<dyn Delegate>, limits: PartitionOptions) -> Self {
        self.delegation.delegates.push(Applied::new(delegate, limits));
        self
    }

    /// What to do about nodes that no delegate takes.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.delegation.policy = policy;
        self
    }

    /// Lets outputs of the model stay in a delegate's buffers: [`Interpreter::output_buffer`] gives them, and
    /// [`Interpreter::fetch_output`] copies one to the CPU's memory. Unless this is called, every output is there after
    /// `invoke`.
    #[must_use]
    pub fn keep_outputs(mut self) -> Self {
        self.settings.keep_outputs = true;
        self
    }

    /// How many threads CPU kernels use; 1 unless this is called.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Bytes that no single tensor and no arena may exceed; [`DEFAULT_MEMORY_LIMIT`] unless this is called.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.settings.memory_limit = bytes;
        self
    }

    /// Has the model rewritten with fewer, larger ops before delegates see it: see [`crate::fusion`]. Composites that one
    /// of the delegates declares, or that the resolver has a kernel for, are left for these.
    #[must_use]
    pub fn fusion(mut self, pipeline: Pipeline) -> Self {
        self.fusion = Some(pipeline);
        self
    }

    /// Lets every tensor keep what it held at the end of an invocation, for [`Interpreter::tensor`]. The arena grows
    /// to hold them all; tensors inside a delegate's partition stay with the delegate.
    #[must_use]
    pub fn preserve_all_tensors(mut self) -> Self {
        self.settings.preserve_all_tensors = true;
        self
    }

    /// Leaves shapes, delegates and memory to the first [`Interpreter::prepare`] (or whatever needs it), so that
    /// inputs can be resized before anything depends on their shapes in the file.
    #[must_use]
    pub fn prepare_later(mut self) -> Self {
        self.prepare_later = true;
        self
    }

    /// Finds a kernel for every node, infers shapes, lets delegates claim nodes, and plans memory.
    ///
    /// # Errors
    /// [`Error::UnresolvedOps`] with every op that has no kernel; whatever is wrong with a node, with its location.
    pub fn build(mut self) -> Result<Interpreter> {
        let mut fused = None;
        if let Some(pipeline) = self.fusion.take() {
            let keep = |c: &Composite<'_>| {
                let mut tables = self.delegation.delegates.iter().map(|a| a.delegate.max_versions());
                self.resolver.find(&Op::custom(c.name), c.version).is_some()
                    || tables.any(|table| table.check_composite(c).is_ok())
            };
            let Fused { model, report } = pipeline.run_keeping(&self.model, &self.resolver, &keep)?;
            (self.model, fused) = (Arc::new(model), Some(report));
        }
        let prepare_later = self.prepare_later;
        let mut interpreter = self.build_as_it_is()?;
        interpreter.fusion = fused;
        interpreter.engine.resolve_composites()?;
        let (subgraph, _) = interpreter.engine.take(0)?;
        interpreter.engine.put(subgraph);
        if !prepare_later {
            interpreter.prepare()?;
        }
        Ok(interpreter)
    }

    /// Without fusion, with composites where they are, and without preparing.
    pub(crate) fn build_as_it_is(self) -> Result<Interpreter> {
        check_resolved(&self.model, &*self.resolver)?;
        let slots = std::iter::repeat_with(|| None).take(self.model.subgraphs.len()).collect();
        let inlined = vec![Vec::new(); self.model.subgraphs.len()];
        let engine = Engine {
            original: self.model.clone(),
            model: self.model,
            inlined,
            stale: false,
            resolver: self.resolver,
            slots,
            resources: Default::default(),
            parallel: crate::threads(self.threads),
            observer: Observer::default(),
            delegation: self.delegation,
            settings: self.settings,
        };
        Ok(Interpreter { engine, nothing: Report::default(), entry: 0, fusion: None })
    }
}
