//! The trait that a delegate implements, and how an application uses it.

use delegraph_core::Result;

use crate::{Capabilities, DelegateContext, VersionTable};

/// Takes over parts of a graph, with full control over the choice of nodes.
pub trait Delegate: Send {
    /// Returns the delegate's name, for reports and error messages.
    fn name(&self) -> &str;

    /// Returns the highest supported version of each op. A node that the table does not cover cannot be claimed.
    fn max_versions(&self) -> &VersionTable;

    /// Returns the optional features of the delegate. Defaults to none.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Claims the nodes that the delegate runs, and rejects the others with reasons. Called again when shapes change.
    ///
    /// # Errors
    /// Any error, or a panic, is a failure of the delegate, which loses all its claims; with [`Policy::Require`] it is
    /// an error of the application. The error of an interrupted `prepare` ([`DelegateContext::check_interrupted`]) is
    /// not a failure.
    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()>;
}

impl<D: Delegate + ?Sized> Delegate for Box<D> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn max_versions(&self) -> &VersionTable {
        (**self).max_versions()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        (**self).prepare(cx)
    }
}

/// The policy of an application for its delegates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Preparing fails unless every node is delegated.
    Require,
    /// Claimed nodes are delegated; the others run on the CPU, and the report has the reasons.
    #[default]
    Prefer,
    /// Claims are reported; all nodes run on the CPU.
    Report,
}
