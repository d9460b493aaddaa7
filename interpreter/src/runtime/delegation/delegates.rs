//! The delegates of an interpreter, and their failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use delegraph_core::Composite;
use delegraph_core::error::{Error, Result};
use delegraph_delegate_api::{Capabilities, Delegate, PartitionOptions, Policy, Rejection};

/// The delegates of an interpreter, in the order in which they claim.
#[derive(Default)]
pub(crate) struct Delegates {
    pub(super) applied: Vec<Applied>,
    pub(crate) policy: Policy,
    /// The memory limit of the application for devices, in bytes.
    pub(crate) memory: Option<u64>,
    /// The delegate whose failure caused the error that is being returned to the application.
    failing: Option<Failing>,
}

/// The delegate that failed, and the subject of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// The delegate failed while claiming or while creating kernels.
    Delegate(usize),
    /// The kernel of a partition failed; the error names the partition.
    Partition(usize),
}

impl Failing {
    fn index(self) -> usize {
        match self {
            Failing::Delegate(index) | Failing::Partition(index) => index,
        }
    }
}

/// A delegate that an application applied.
pub(super) struct Applied {
    pub(super) delegate: Box<dyn Delegate>,
    pub(super) name: Arc<str>,
    pub(super) limits: PartitionOptions,
    pub(super) failure: Option<Failure>,
}

/// The reason why a delegate is excluded.
pub(super) struct Failure {
    pub(super) message: String,
    exclusion: Exclusion,
}

/// The duration for which a failed delegate is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// Until the next preparation, after a resize for example: it failed while preparing.
    UntilRetry,
    /// For the lifetime of the interpreter: it failed while running.
    Permanent,
}

impl Delegates {
    /// Adds a delegate, after those that are already applied.
    pub(crate) fn add(&mut self, delegate: Box<dyn Delegate>, limits: PartitionOptions) {
        let name = delegate.name().into();
        self.applied.push(Applied { delegate, name, limits, failure: None });
    }

    /// Removes and returns all delegates.
    pub(crate) fn take(&mut self) -> Vec<Box<dyn Delegate>> {
        std::mem::take(&mut self.applied).into_iter().map(|a| a.delegate).collect()
    }

    /// Returns whether no delegate is applied.
    pub(crate) fn is_empty(&self) -> bool {
        self.applied.is_empty()
    }

    /// Returns whether a delegate declares that it runs this composite as a whole.
    pub(crate) fn declare(&self, composite: &Composite<'_>) -> bool {
        self.applied.iter().any(|a| a.delegate.max_versions().check_composite(composite).is_ok())
    }

    /// Returns the numbers of the delegates that declare composites of this name, at any version.
    pub(crate) fn declaring(&self, name: &str) -> Vec<usize> {
        let declares = |a: &Applied| a.delegate.max_versions().max_composite_version(name).is_some();
        self.applied.iter().enumerate().filter(|(_, a)| declares(a)).map(|(i, _)| i).collect()
    }

    /// Returns each delegate that does not declare the composite `name`, with the reason.
    pub(crate) fn undeclared(&self, name: &str, version: u32) -> Vec<(usize, Rejection)> {
        let composite = Composite::new(name, version);
        let reason = |a: &Applied| a.delegate.max_versions().check_composite(&composite).err();
        self.applied.iter().enumerate().filter_map(|(i, a)| Some((i, reason(a)?))).collect()
    }

    /// Records that delegate `index` failed with `error` at `place`: a partition, or empty if the delegate failed while
    /// claiming or creating kernels. Returns the error for the application.
    pub(crate) fn fail(&mut self, index: usize, place: &str, error: Error) -> Error {
        let failing = if place.is_empty() { Failing::Delegate } else { Failing::Partition };
        self.failing = Some(failing(index));
        let applied = self.applied.get_mut(index);
        let delegate = applied.as_ref().map_or_else(String::new, |a| a.name.to_string());
        if let Some(applied) = applied {
            let message = format!("{place}{}", error.chain());
            applied.failure = Some(Failure { message, exclusion: Exclusion::UntilRetry });
        }
        let message = format!("{place}{error}");
        match error.into_source() {
            Some(source) => Error::delegate_caused_by(delegate, message, source),
            None => Error::delegate(delegate, message),
        }
    }

    /// Removes the location from the last error if a delegate failed while claiming or creating kernels: the location
    /// is the node that calls the subgraph which was prepared then, and not the cause.
    pub(crate) fn without_location(&self, error: Error) -> Error {
        match error {
            Error::AtNode { source, .. }
                if matches!(self.failing, Some(Failing::Delegate(_)))
                    && matches!(*source, Error::Delegate { .. }) =>
            {
                *source
            }
            error => error,
        }
    }

    /// Returns whether the last error is a delegate's failure after which the model is prepared again without the
    /// delegate, and excludes the delegate for this duration. With the policy [`Policy::Require`], failures are errors
    /// of the application instead.
    pub(crate) fn exclude_failed(&mut self, exclusion: Exclusion) -> bool {
        let Some(failing) = self.failing.take().filter(|_| self.policy != Policy::Require) else {
            return false;
        };
        if let Some(Applied { name, failure: Some(failure), .. }) = self.applied.get_mut(failing.index()) {
            log::warn!("delegate {name} failed and is left out: {}", failure.message);
            failure.exclusion = exclusion;
        }
        true
    }

    /// Removes the exclusion of delegates that failed in an earlier preparation: shapes may have changed since.
    pub(crate) fn retry(&mut self) {
        self.failing = None;
        for failure in self.applied.iter_mut().map(|a| &mut a.failure) {
            failure.take_if(|f| f.exclusion == Exclusion::UntilRetry);
        }
    }
}

/// The delegate of a claim or partition.
#[derive(Clone)]
pub(crate) struct Claimant {
    /// The delegate's number.
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) capabilities: Capabilities,
}

/// Runs the code of a delegate, and converts a panic to an error.
pub(super) fn contain<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(f).unwrap_or_else(|text| Err(Error::State(format!("it panicked: {text}"))))
}

/// Runs the code of a CPU kernel or of an op's definition, and converts a panic to an error.
pub(crate) fn contain_kernel<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(f).unwrap_or_else(|text| Err(Error::Kernel(format!("the kernel failed unexpectedly: {text}"))))
}

/// # Errors
/// The text of a panic.
fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        // A payload may panic when it is dropped.
        std::mem::forget(panic);
        text
    })
}
