//! The backend under test, and the steps of an invocation.

use std::fmt;
use std::sync::Arc;

use delegraph_core::error::{Error, ErrorKind};
use delegraph_delegate_api::{Delegate, PartitionOptions, Policy};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter, InterpreterBuilder, ReferenceOpResolver};

use super::problem::{Feed, Problem};
use super::result::Outcome;
use crate::compare::Arithmetic;
use crate::output::Output;

/// Creates a delegate for each interpreter. Expensive objects, such as a device, should be captured by the closure.
pub type MakeDelegate = Arc<dyn Fn() -> delegraph_core::Result<Box<dyn Delegate>> + Send + Sync>;

/// The CPU kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Kernels {
    /// The optimized kernels, the default for applications.
    #[default]
    Optimized,
    /// The reference kernels.
    Reference,
}

impl Kernels {
    fn resolve(self, builder: InterpreterBuilder) -> InterpreterBuilder {
        match self {
            Kernels::Optimized => builder.resolver(BuiltinOpResolver::new()),
            Kernels::Reference => builder.resolver(ReferenceOpResolver::new()),
        }
    }
}

/// Further settings of the interpreters.
type Configure = Arc<dyn Fn(InterpreterBuilder) -> InterpreterBuilder + Send + Sync>;

/// The backend under test.
#[derive(Clone)]
#[non_exhaustive]
pub struct Backend {
    /// Its name in reports.
    pub name: String,
    /// Its device, for reports and expectations: adapter and driver. Empty for the CPU.
    pub device: String,
    /// The kernels for nodes that no delegate claims.
    pub kernels: Kernels,
    /// The guarantees of its arithmetic.
    pub arithmetic: Arithmetic,
    /// The delegate; `None` if the kernels are tested.
    pub delegate: Option<MakeDelegate>,
    /// The application's limits on delegates.
    pub limits: PartitionOptions,
    /// Delegates that are added after the one under test.
    pub more: Vec<MakeDelegate>,
    configure: Option<Configure>,
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("name", &self.name)
            .field("device", &self.device)
            .field("kernels", &self.kernels)
            .field("arithmetic", &self.arithmetic)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Backend {
    /// Creates a backend that tests these CPU kernels.
    pub fn kernels(kernels: Kernels) -> Self {
        let name = if kernels == Kernels::Reference { "reference" } else { "cpu" };
        Backend {
            name: name.into(),
            device: String::new(),
            kernels,
            arithmetic: Arithmetic::Ieee,
            delegate: None,
            limits: PartitionOptions::default(),
            more: Vec::new(),
            configure: None,
        }
    }

    /// Creates a backend that tests a delegate. Unclaimed nodes run on the reference kernels, so that only the delegate
    /// causes differences.
    pub fn delegate(name: impl Into<String>, make: MakeDelegate) -> Self {
        Backend { name: name.into(), delegate: Some(make), ..Backend::kernels(Kernels::Reference) }
    }

    /// Sets the device; see [`Backend::device`].
    #[must_use]
    pub fn with_device(self, device: impl Into<String>) -> Self {
        Backend { device: device.into(), ..self }
    }

    /// Sets the guarantees of its arithmetic. Defaults to IEEE 754.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Self {
        Backend { arithmetic, ..self }
    }

    /// Sets the kernels for nodes that no delegate claims.
    #[must_use]
    pub fn with_kernels(self, kernels: Kernels) -> Self {
        Backend { kernels, ..self }
    }

    /// Adds further settings of the interpreter, such as threads and policy.
    #[must_use]
    pub fn with_configuration(
        self,
        configure: impl Fn(InterpreterBuilder) -> InterpreterBuilder + Send + Sync + 'static,
    ) -> Self {
        Backend { configure: Some(Arc::new(configure)), ..self }
    }

    /// Creates an interpreter for a problem, with the backend's kernels and settings and this delegate; it is not
    /// prepared yet.
    ///
    /// # Errors
    /// The defect of the model, or the reason why a further delegate cannot be created.
    pub(crate) fn build(
        &self,
        problem: &Problem,
        delegate: Option<Box<dyn Delegate>>,
        policy: Option<Policy>,
    ) -> delegraph_core::Result<Interpreter> {
        let mut builder = self.kernels.resolve(Interpreter::builder(Arc::clone(&problem.model)));
        if let Some(configure) = &self.configure {
            builder = configure(builder);
        }
        if let Some(policy) = policy {
            builder = builder.policy(policy);
        }
        if let Some(delegate) = delegate {
            builder = builder.delegate_with(delegate, self.limits.clone());
            for make in &self.more {
                builder = builder.delegate_with(make()?, self.limits.clone());
            }
        }
        let mut interpreter = builder.prepare_later().build()?;
        if let Some(signature) = &problem.signature {
            interpreter.select_signature(signature)?;
        }
        Ok(interpreter)
    }

    /// Creates a delegate; `None` if the kernels are tested.
    ///
    /// # Errors
    /// The reason why it cannot be created.
    pub(crate) fn make(&self) -> delegraph_core::Result<Option<Box<dyn Delegate>>> {
        self.delegate.as_ref().map(|make| make()).transpose()
    }
}

/// Sets the shapes of inputs, and prepares.
pub(crate) fn prepare(interpreter: &mut Interpreter, problem: &Problem) -> delegraph_core::Result<()> {
    for feed in problem.steps.first().map_or(&[][..], |s| &s.feeds) {
        interpreter.resize_input(feed.input, &feed.shape)?;
    }
    interpreter.prepare()
}

/// Fills inputs.
pub(crate) fn feed(interpreter: &mut Interpreter, feeds: &[Feed]) -> delegraph_core::Result<()> {
    for feed in feeds {
        interpreter.set_input_bytes(feed.input, &feed.bytes)?;
    }
    Ok(())
}

/// Returns every output.
pub(crate) fn outputs(interpreter: &Interpreter) -> delegraph_core::Result<Vec<Output>> {
    (0..interpreter.output_count()).map(|i| interpreter.output_tensor(i).map(Output::of)).collect()
}

/// Returns the outcome of a case that ends with this error.
pub(crate) fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Invalid => Outcome::Invalid,
        ErrorKind::Unsupported => Outcome::Unsupported,
        _ => Outcome::Error,
    }
}

pub(crate) fn failed(error: Error) -> (Outcome, String) {
    (outcome_of(&error), error.to_string())
}

pub(crate) fn ran(error: Error, step: usize) -> (Outcome, String) {
    let (outcome, text) = failed(error);
    (outcome, if step > 0 { format!("in invocation {}: {text}", step + 1) } else { text })
}

pub(crate) fn invalid(error: &Error) -> (Outcome, String) {
    (Outcome::Invalid, error.to_string())
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".into())
}
