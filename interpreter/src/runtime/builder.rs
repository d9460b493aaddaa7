//! Options of an interpreter.

use std::fmt;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::check_versions;
use delegraph_core::kernel::{Parallel, Serial};
use delegraph_core::resolver::check_resolved;
use delegraph_core::{Composite, Model, Op, OpResolver};
use delegraph_delegate_api::{Delegate, PartitionOptions, Policy};
use delegraph_kernels::BuiltinOpResolver;
use delegraph_kernels::ThreadPool;

use super::delegation::Delegates;
use super::engine::Engine;
use super::host::{ResourceLimits, Settings};
use super::interpreter::Interpreter;
use super::rewrite::ModelRewrite;

/// Builds an [`Interpreter`].
#[must_use]
pub struct InterpreterBuilder {
    model: Arc<Model>,
    resolver: Arc<dyn OpResolver>,
    delegates: Delegates,
    threads: usize,
    settings: Settings,
    limits: ResourceLimits,
    first_preparation: FirstPreparation,
    rewrite: Option<Box<dyn ModelRewrite>>,
    versions: Versions,
}

impl fmt::Debug for InterpreterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterpreterBuilder")
            .field("model", &self.model.path())
            .field("threads", &self.threads)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// When the first preparation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstPreparation {
    OnBuild,
    OnUse,
}

/// Whether nodes may use features of newer versions than their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Versions {
    Lenient,
    Strict,
}

impl Interpreter {
    /// Returns a builder for `model` with all kernels.
    pub fn builder(model: impl Into<Arc<Model>>) -> InterpreterBuilder {
        Self::builder_with_resolver(model, BuiltinOpResolver::new())
    }

    /// Returns a builder for `model` with the kernels of `resolver`. The linker drops kernels that nothing else refers
    /// to.
    pub fn builder_with_resolver(
        model: impl Into<Arc<Model>>,
        resolver: impl OpResolver + 'static,
    ) -> InterpreterBuilder {
        InterpreterBuilder::new(model.into(), Arc::new(resolver))
    }
}

impl InterpreterBuilder {
    fn new(model: Arc<Model>, resolver: Arc<dyn OpResolver>) -> Self {
        InterpreterBuilder {
            model,
            resolver,
            delegates: Delegates::default(),
            threads: 1,
            settings: Settings { preserve_all_tensors: false, keep_outputs: false },
            limits: ResourceLimits::default(),
            first_preparation: FirstPreparation::OnBuild,
            rewrite: None,
            versions: Versions::Lenient,
        }
    }

    /// Sets the kernels. The default is [`BuiltinOpResolver`].
    pub fn resolver(mut self, resolver: impl OpResolver + 'static) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Adds a delegate. Delegates claim nodes in the order in which they are added.
    pub fn delegate(self, delegate: impl Delegate + 'static) -> Self {
        self.delegate_with(delegate, PartitionOptions::default())
    }

    /// Adds a delegate with the application's limits, in addition to its own limits.
    pub fn delegate_with(mut self, delegate: impl Delegate + 'static, options: PartitionOptions) -> Self {
        self.delegates.add(Box::new(delegate), options);
        self
    }

    /// Sets the policy for nodes that no delegate claims.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.delegates.policy = policy;
        self
    }

    /// Allows outputs of the model to stay in buffers of delegates: [`Interpreter::output_buffer`] returns the buffer,
    /// and [`Interpreter::fetch_output`] copies it to the CPU's memory. By default, every output is in the CPU's memory
    /// after `invoke`.
    pub fn keep_outputs(mut self) -> Self {
        self.settings.keep_outputs = true;
        self
    }

    /// Sets the number of threads for CPU kernels. The default is 1; 0 is the same as 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Limits the resources of the model: memory, time, depth of calls, work while preparing.
    pub fn limits(mut self, limits: ResourceLimits) -> Self {
        // The default refers to the machine's memory, not to the memory of devices.
        let set = limits.memory != ResourceLimits::default().memory;
        self.delegates.memory = set.then(|| u64::try_from(limits.memory).unwrap_or(u64::MAX));
        self.limits = limits;
        self
    }

    /// Rejects a model in which a node uses features of a newer version of its op than its own. Unless this is called,
    /// the CPU kernels run such a node, and delegates reject it where that version is above their maximum.
    pub fn strict_versions(mut self) -> Self {
        self.versions = Versions::Strict;
        self
    }

    /// Rewrites the model before delegates see it.
    pub(crate) fn rewrite(mut self, rewrite: Box<dyn ModelRewrite>) -> Self {
        self.rewrite = Some(rewrite);
        self
    }

    /// Keeps the data of every tensor until the end of an invocation, for [`Interpreter::tensor`]. This enlarges the
    /// arena. Tensors inside a delegate's partition remain with the delegate.
    pub fn preserve_all_tensors(mut self) -> Self {
        self.settings.preserve_all_tensors = true;
        self
    }

    /// Defers shapes, delegates and memory to the first [`Interpreter::prepare`], or the first method that needs them,
    /// so that inputs can be resized before anything depends on their shapes in the file.
    pub fn prepare_later(mut self) -> Self {
        self.first_preparation = FirstPreparation::OnUse;
        self
    }

    /// Finds a kernel for every node, infers shapes, lets delegates claim nodes, and plans memory.
    ///
    /// # Errors
    /// [`Error::UnderstatedVersions`](delegraph_core::Error::UnderstatedVersions) after
    /// [`InterpreterBuilder::strict_versions`];
    /// [`Error::UnresolvedOps`](delegraph_core::Error::UnresolvedOps) with every op that has no kernel; the errors of
    /// the pipeline that [`InterpreterBuilder::fusion`] sets, and of [`Interpreter::prepare`].
    pub fn build(mut self) -> Result<Interpreter> {
        if self.versions == Versions::Strict {
            check_versions(&self.model)?;
        }
        let mut rewrite = self.rewrite.take();
        if let Some(rewrite) = &mut rewrite {
            let keep = |c: &Composite<'_>| {
                self.resolver.find(&Op::custom(c.name), c.version).is_some() || self.delegates.declare(c)
            };
            self.model = rewrite.rewrite(&self.model, &self.resolver, &keep, &self.limits)?;
        }
        check_resolved(&self.model, &*self.resolver)?;
        let parallel: Arc<dyn Parallel> = match self.threads {
            0 | 1 => Arc::new(Serial),
            n => Arc::new(ThreadPool::new(n)),
        };
        let (settings, limits) = (self.settings, self.limits);
        let mut engine = Engine::new(self.model, self.resolver, parallel, self.delegates, settings, limits);
        engine.start_clock();
        engine.resolve_composites()?;
        engine.create(0)?;
        let mut interpreter = Interpreter::new(engine, rewrite);
        if self.first_preparation == FirstPreparation::OnBuild {
            interpreter.prepare()?;
        }
        Ok(interpreter)
    }
}
