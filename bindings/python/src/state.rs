//! An interpreter with its model and options, so that it can be created again.

use std::sync::Arc;

use delegraph::core::error::UnresolvedReason;
use delegraph::core::kernel::{Placement, RuntimeTensor};
use delegraph::core::{OpResolver, TensorId};
use delegraph::delegate_api::plugin::KernelLibrary;
use delegraph::interpreter::ResourceLimits;
use delegraph::{
    BuiltinOpResolver, Error, Interpreter, Model, MutableOpResolver, Policy, ReferenceOpResolver, Result,
};
use pyo3::prelude::*;

use crate::delegates::Delegate;
use crate::ops;

/// The options of an interpreter.
pub(crate) struct Options {
    pub(crate) threads: usize,
    /// Reference kernels instead of the optimized ones.
    pub(crate) reference: bool,
    /// Every tensor keeps its data until the end of an invocation.
    pub(crate) preserve_all: bool,
    pub(crate) delegates: Vec<Py<Delegate>>,
    pub(crate) policy: Policy,
    /// Custom ops with the Python classes that run them.
    pub(crate) ops: Vec<(String, Py<PyAny>)>,
    pub(crate) libraries: Vec<KernelLibrary>,
    pub(crate) limits: ResourceLimits,
}

impl Options {
    fn resolver(&self) -> MutableOpResolver {
        let mut resolver = match self.reference {
            true => MutableOpResolver::extending(ReferenceOpResolver::new()),
            false => MutableOpResolver::extending(BuiltinOpResolver::new()),
        };
        self.libraries.iter().for_each(|library| library.register(&mut resolver));
        self.ops.iter().for_each(|(name, kernel)| ops::register(&mut resolver, name, kernel));
        resolver
    }

    fn build(&self, model: Arc<Model>) -> Result<Interpreter> {
        let mut builder = Interpreter::builder(model).resolver(self.resolver());
        builder = builder.threads(self.threads).policy(self.policy).prepare_later();
        builder = builder.limits(self.limits.clone());
        builder = if self.preserve_all { builder.preserve_all_tensors() } else { builder };
        for delegate in &self.delegates {
            builder = builder.delegate(delegate.get().make()?);
        }
        builder.build()
    }

    /// Returns whether the interpreter has threads or delegates, which do not survive a fork.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads > 1 || !self.delegates.is_empty()
    }
}

/// The value of a tensor.
pub(crate) enum Value<'t> {
    /// The bytes of a tensor with its current shape.
    Known(&'t RuntimeTensor, &'t [u8]),
    /// The stored elements of a sparse constant.
    Sparse(&'t [u8]),
    /// The tensor has no memory yet.
    Unallocated,
    /// The memory of the tensor has been reused by others.
    Overwritten,
}

/// An interpreter and its options.
pub(crate) struct State {
    /// The model of the file.
    pub(crate) model: Arc<Model>,
    pub(crate) options: Options,
    interpreter: Option<Interpreter>,
    /// The reason why there is no interpreter: custom ops without kernels. LiteRT shows such a model, but cannot run
    /// it.
    unresolved: String,
    /// Tensors of the first subgraph that are kept like outputs.
    kept: Vec<TensorId>,
    /// Whether tensors have memory for the current shapes.
    pub(crate) allocated: bool,
    /// Whether outputs belong to the current shapes.
    pub(crate) invoked: bool,
    /// Whether inputs may differ from those of the last invocation.
    pub(crate) inputs_changed: bool,
}

impl State {
    /// Creates the interpreter of a model; its tensors have no memory yet.
    ///
    /// # Errors
    /// The errors of [`delegraph::interpreter::InterpreterBuilder::build`], except for custom ops without kernels.
    pub(crate) fn new(model: Arc<Model>, options: Options) -> Result<Self> {
        let (interpreter, unresolved) = match options.build(model.clone()) {
            Ok(interpreter) => (Some(interpreter), String::new()),
            Err(Error::UnresolvedOps(ops))
                if ops.ops.iter().all(|op| op.reason == UnresolvedReason::MissingCustom) =>
            {
                let names: Vec<String> = ops.ops.iter().map(|op| crate::report::op_name(&op.op)).collect();
                (None, format!("Encountered unresolved custom op: {}.\n{ops}", names.join(", ")))
            }
            Err(error) => return Err(error),
        };
        Ok(State {
            model,
            options,
            interpreter,
            unresolved,
            kept: Vec::new(),
            allocated: false,
            invoked: false,
            inputs_changed: true,
        })
    }

    /// Returns the interpreter.
    ///
    /// # Errors
    /// If custom ops have no kernels.
    pub(crate) fn interpreter(&mut self) -> Result<&mut Interpreter> {
        let unresolved = &self.unresolved;
        self.interpreter.as_mut().ok_or_else(|| Error::State(unresolved.clone()))
    }

    /// Returns the interpreter, if all ops have kernels.
    pub(crate) fn running(&self) -> Option<&Interpreter> {
        self.interpreter.as_ref()
    }

    /// Returns the number of an input of the first subgraph.
    pub(crate) fn input_number(&self, id: TensorId) -> Option<usize> {
        self.model.subgraph(0)?.inputs().iter().position(|input| *input == id)
    }

    /// Prepares the first subgraph, and resets its variables.
    ///
    /// # Errors
    /// The errors of [`Interpreter::prepare`].
    pub(crate) fn allocate(&mut self) -> Result<()> {
        self.allocated = false;
        let interpreter = self.interpreter()?;
        interpreter.prepare()?;
        interpreter.reset_variable_tensors(0)?;
        self.allocated = true;
        Ok(())
    }

    /// Changes the shape of an input of the selected subgraph. Returns whether it differs.
    ///
    /// # Errors
    /// If custom ops have no kernels; the errors of [`Interpreter::resize_input_to_any`].
    pub(crate) fn resize(&mut self, input: usize, shape: &[usize]) -> Result<bool> {
        let interpreter = self.interpreter()?;
        if interpreter.input_tensor(input)?.shape.dims() == shape {
            return Ok(false);
        }
        interpreter.resize_input_to_any(input, shape)?;
        Ok(true)
    }

    /// Runs the first subgraph.
    ///
    /// # Errors
    /// The errors of [`Interpreter::invoke`].
    pub(crate) fn invoke(&mut self) -> Result<()> {
        self.interpreter()?.invoke()?;
        self.invoked = true;
        self.inputs_changed = false;
        Ok(())
    }

    /// Returns the value of a tensor.
    pub(crate) fn value(&self, subgraph: usize, id: TensorId) -> Value<'_> {
        let Some(graph) = self.model.subgraph(subgraph) else { return Value::Unallocated };
        let Some(file) = graph.tensors().get(id.0) else { return Value::Unallocated };
        let current = self.interpreter.as_ref().and_then(|i| i.subgraph_tensor(subgraph, id));
        if let (Some(bytes), Some(tensor)) = (self.model.constant(file), current) {
            return if file.sparsity().is_some() {
                Value::Sparse(bytes)
            } else {
                Value::Known(tensor, bytes)
            };
        }
        if subgraph == 0 && !self.allocated {
            return Value::Unallocated;
        }
        let Some(tensor) = current else { return Value::Unallocated };
        let known = match tensor.placement() {
            Placement::Constant | Placement::Variable | Placement::Bound => true,
            Placement::Arena | Placement::Dynamic => {
                let kept = subgraph == 0 && self.kept.contains(&id);
                kept || self.options.preserve_all
                    || graph.outputs().contains(&id)
                    || graph.inputs().contains(&id)
            }
            // Released, not allocated yet, or in a place that this module does not know.
            _ => false,
        };
        if known {
            return Value::Known(tensor, tensor.bytes());
        }
        let computed = graph.nodes().iter().any(|node| node.outputs().contains(&id));
        if computed { Value::Overwritten } else { Value::Unallocated }
    }

    /// Computes a tensor whose memory others have reused, and keeps it in all following invocations: the model is
    /// prepared again with the tensor as an output, and run with the same inputs.
    ///
    /// # Errors
    /// [`Error::State`] if the same inputs would result in other values, or there was no invocation; the errors of
    /// building and running the interpreter.
    pub(crate) fn keep(&mut self, id: TensorId) -> Result<()> {
        let reason = if !self.invoked {
            Some("`invoke` has not run")
        } else if self.inputs_changed {
            Some("inputs have changed since `invoke`")
        } else if self.has_state() {
            Some("the model has state, so that it cannot run again")
        } else {
            None
        };
        if let Some(reason) = reason {
            let text = format!(
                "tensor {} is intermediate and was not kept, and {reason}: \
                 pass experimental_preserve_all_tensors=True to the Interpreter",
                id.0
            );
            return Err(Error::State(text));
        }
        let mut kept = self.kept.clone();
        kept.push(id);
        let mut draft = self.model.to_draft();
        if let Some(graph) = draft.subgraphs.first_mut() {
            graph.outputs_mut().extend(&kept);
        }
        let mut again = self.options.build(Arc::new(draft.verify()?))?;
        let before = self.interpreter()?;
        for i in 0..before.input_count() {
            let shape = before.input_tensor(i)?.shape.clone();
            again.resize_input_to_any(i, shape.dims())?;
        }
        again.prepare()?;
        for i in 0..before.input_count() {
            let tensor = before.input_tensor(i)?;
            if !tensor.is_constant() {
                again.set_input_bytes(i, tensor.bytes())?;
            }
        }
        again.invoke()?;
        self.interpreter = Some(again);
        self.kept = kept;
        Ok(())
    }

    /// Returns whether an invocation may depend on earlier ones.
    fn has_state(&self) -> bool {
        let resolver = self.options.resolver();
        self.model.subgraphs().iter().any(|graph| {
            let variables = graph.tensors().iter().any(|tensor| tensor.is_variable());
            let effects = |node: &delegraph::core::Node| {
                resolver.find(node.op(), node.version()).is_none_or(|found| found.has_side_effects())
            };
            variables || graph.nodes().iter().any(effects)
        })
    }
}
