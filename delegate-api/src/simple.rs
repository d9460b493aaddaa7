//! A simple trait for delegates.

use delegraph_core::{NodeId, Result};

use crate::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeView,
    PartitionOptions, Rejection, VersionTable,
};

/// A simple trait for delegates: it checks whether a node is supported, and creates a kernel for a partition.
///
/// [`Simple`] turns an implementation into a [`Delegate`].
pub trait SimpleDelegate: Send {
    /// Returns the delegate's name, for reports and error messages.
    fn name(&self) -> &str;

    /// Returns the highest supported version of each op. Checked before [`SimpleDelegate::supports`] is called.
    fn max_versions(&self) -> &VersionTable;

    /// Returns the optional features of the delegate. Defaults to none.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Checks whether the delegate can run the node.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection>;

    /// Creates the kernel that runs a partition.
    ///
    /// # Errors
    /// If no kernel can be created. The delegate then loses all its claims.
    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>>;

    /// Returns limits on delegation. Defaults to none.
    fn partition_options(&self) -> PartitionOptions {
        PartitionOptions::default()
    }

    /// Selects among the supported nodes, for limits on partitions as a whole, such as the memory of a device. Nodes
    /// that are not selected need a reason ([`DelegateContext::reject`]). Defaults to all nodes.
    fn choose(&self, cx: &mut DelegateContext<'_>, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let _ = cx;
        nodes
    }
}

impl<'a> DelegateContext<'a> {
    /// Claims every node that may be claimed and that `delegate` supports, within its limits; rejects the others with
    /// reasons. [`Simple`](crate::Simple) prepares with this function.
    ///
    /// # Errors
    /// If the work was interrupted: see [`DelegateContext::check_interrupted`].
    pub fn claim_supported<D: SimpleDelegate + ?Sized>(&mut self, delegate: &'a mut D) -> Result<()> {
        let mut nodes = Vec::new();
        for node in self.graph().nodes() {
            self.check_interrupted()?;
            match self.may_claim(&node).and_then(|()| delegate.supports(&node)) {
                Ok(()) => nodes.push(node.id()),
                Err(reason) => self.reject(node.id(), reason),
            }
        }
        let nodes = self.limit(&nodes, &delegate.partition_options());
        let nodes = delegate.choose(self, nodes);
        self.claim(&nodes, move |params, graph| delegate.create_kernel(params, graph));
        Ok(())
    }
}

/// Adapts a [`SimpleDelegate`] to a [`Delegate`].
///
/// ```
/// # use delegraph_delegate_api::{Delegate, Simple, SimpleDelegate};
/// fn boxed(delegate: impl SimpleDelegate + 'static) -> Box<dyn Delegate> {
///     Box::new(Simple(delegate))
/// }
/// ```
///
/// A type that implements both traits itself implements [`Delegate::prepare`] with
/// [`DelegateContext::claim_supported`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Simple<D>(pub D);

impl<D: SimpleDelegate> Delegate for Simple<D> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn max_versions(&self) -> &VersionTable {
        self.0.max_versions()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        cx.claim_supported(&mut self.0)
    }
}
