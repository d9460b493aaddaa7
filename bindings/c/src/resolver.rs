//! The kernels and delegates of an interpreter.

use std::sync::Arc;

use delegraph::core::error::{Error, Result};
use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::{Op, OpResolver};
use delegraph::{Interpreter, Model, MutableOpResolver, Registration};
use delegraph_ffi::delegates::{Choice, of_environment};
use delegraph_ffi::resolvers::resolver as kernels_of;

use crate::custom_ops::Kernels;
use crate::delegate;
use crate::kernel::Failure;
use crate::options::Options;

/// The kernels of the library that an interpreter uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtins {
    All,
    None,
}

/// Creates an interpreter that is prepared later, and that keeps the data of all tensors if `preserve` is set. Returns it
/// with the failures of its delegates.
///
/// # Errors
/// The errors of [`delegraph::interpreter::InterpreterBuilder::build`] and of [`of_environment`], and of delegates that
/// cannot be created.
pub(crate) fn build(
    model: &Arc<Model>,
    options: &Options,
    builtins: Builtins,
    preserve: bool,
) -> Result<(Interpreter, Vec<Failure>)> {
    let choice = of_environment()?;
    // Functions that find kernels replace all other kernels.
    let mut resolver = match (builtins, &choice, options.resolver) {
        (Builtins::None, _, _) | (_, _, Some(_)) => MutableOpResolver::new(),
        (Builtins::All, Choice::Reference, _) => kernels_of(true),
        (Builtins::All, _, _) => kernels_of(false),
    };
    let kernels = Kernels::new(model, options.reporter);
    match &options.resolver {
        Some(callbacks) => kernels.add_found(callbacks, &mut resolver),
        None => kernels.add(&options.kernels, &mut resolver),
    }
    add_unresolved(model, &mut resolver);
    let threads = usize::try_from(options.threads).unwrap_or(1).max(1);
    #[cfg_attr(test, expect(unused_mut))]
    let mut builder = Interpreter::builder(model.clone()).resolver(resolver).threads(threads).prepare_later();
    // Tests run damaged models, several at a time.
    #[cfg(test)]
    let mut builder = builder.limits(delegraph::interpreter::ResourceLimits::default().with_memory(64 << 20));
    if preserve {
        builder = builder.preserve_all_tensors();
    }
    let mut failures = Vec::new();
    for &pointer in &options.delegates {
        // SAFETY: the interface requires that the delegate outlives the interpreter.
        let (delegate, failure) = unsafe { delegate::open(pointer, model, options.reporter) }?;
        builder = builder.delegate(delegate);
        failures.extend(failure);
    }
    if let Some(delegate) = choice.delegate() {
        builder = builder.delegate(delegate);
    }
    Ok((builder.build()?, failures))
}

/// Registers a failing kernel for every custom op without a kernel: TensorFlow Lite creates interpreters of such models
/// for delegates, and for inspecting their tensors.
fn add_unresolved(model: &Model, resolver: &mut MutableOpResolver) {
    for node in model.subgraphs().iter().flat_map(|graph| graph.nodes()) {
        if let Op::Custom(name) = node.op()
            && resolver.find(node.op(), node.version()).is_none()
        {
            let name: Arc<str> = Arc::from(&**name);
            let unresolved = name.clone();
            let registration = Registration::new(move |_| Ok(Unresolved(unresolved.clone())));
            resolver.add_custom(&name, registration, node.version());
        }
    }
}

/// The kernel that stands for a missing kernel of a custom op: it fails.
struct Unresolved(Arc<str>);

impl Unresolved {
    fn error(&self) -> Error {
        Error::Unsupported(format!("Encountered unresolved custom op: {}.", self.0))
    }
}

impl Kernel for Unresolved {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Err(self.error())
    }

    fn invoke(&mut self, _: &mut InvokeContext<'_>) -> Result<()> {
        Err(self.error())
    }
}
