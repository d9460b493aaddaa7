//! What a delegate author implements.

use delegraph_core::{Kernel, NodeId, Result, TensorId};

use crate::{DelegateContext, GraphView, NodeView, Rejection, VersionTable};

/// Takes over parts of a graph, with full control over which.
pub trait Delegate: Send {
    /// Its name, for reports and error messages.
    fn name(&self) -> &str;

    /// Up to which version it runs each op. A node that is not covered cannot be claimed.
    fn max_versions(&self) -> &VersionTable;

    /// Looks at the graph, claims what it runs and rejects the rest with reasons. Called again when shapes change.
    ///
    /// An error, or a panic, gives everything back to the CPU.
    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()>;
}

/// Runs one partition. Its inputs and outputs are those of [`DelegateParams`], in that order.
pub trait DelegateKernel: Kernel {
    /// What the kernel measured of itself, for benches and profiles.
    fn stats(&self) -> DelegateStats {
        DelegateStats::default()
    }
}

/// What a delegate's kernel measured of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DelegateStats {
    /// Bytes of device memory that it holds.
    pub device_bytes: u64,
    /// Time of the last upload, in milliseconds.
    pub upload_ms: Option<f64>,
    /// Time on the device in the last run, in milliseconds.
    pub device_ms: Option<f64>,
    /// Time of the last read-back, in milliseconds.
    pub readback_ms: Option<f64>,
    /// How many kernels one run starts on the device.
    pub dispatches: usize,
}

/// One partition: the nodes that a kernel has to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateParams {
    /// The nodes, in an order in which they can run.
    pub nodes: Vec<NodeId>,
    /// Tensors that the partition reads and does not compute. Constants are not among them: the graph has them.
    pub inputs: Vec<TensorId>,
    /// Tensors that it computes and that others, or the caller, read.
    pub outputs: Vec<TensorId>,
}

/// Limits on what is delegated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionOptions {
    /// At most so many partitions, the largest ones. `None`: no limit.
    pub max_partitions: Option<usize>,
    /// Partitions with fewer nodes stay on the CPU.
    pub min_nodes: usize,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        PartitionOptions { max_partitions: None, min_nodes: 1 }
    }
}

/// What an application wants of a delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// An error unless every node is delegated.
    Require,
    /// Delegate what can be; the rest runs on the CPU, and the report says why.
    #[default]
    Prefer,
    /// Only report what would be delegated.
    Report,
}

/// The easy way to write a delegate: every type that implements this is a [`Delegate`].
pub trait SimpleDelegate: Send {
    /// Its name, for reports and error messages.
    fn name(&self) -> &str;

    /// Up to which version it runs each op. Checked before [`SimpleDelegate::supports`] is asked.
    fn max_versions(&self) -> &VersionTable;

    /// Ok when it can run the node.
    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection>;

    /// Makes the kernel that runs a partition.
    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>>;

    /// Limits on what is delegated.
    fn options(&self) -> PartitionOptions {
        PartitionOptions::default()
    }
}

impl<D: SimpleDelegate> Delegate for D {
    fn name(&self) -> &str {
        SimpleDelegate::name(self)
    }

    fn max_versions(&self) -> &VersionTable {
        SimpleDelegate::max_versions(self)
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        let mut nodes = Vec::new();
        for node in graph.nodes() {
            match cx.may_claim(&node).and_then(|()| self.supports(&node)) {
                Ok(()) => nodes.push(node.id()),
                Err(reason) => cx.reject(node.id(), reason),
            }
        }
        let options = self.options();
        let nodes = cx.limit(&nodes, options);
        cx.claim(&nodes, move |params, graph| self.create_kernel(params, graph));
        Ok(())
    }
}
