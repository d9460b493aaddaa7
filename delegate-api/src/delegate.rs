//! What a delegate author implements.

use std::time::Duration;

use delegraph_core::kernel::InvokeContext;
use delegraph_core::{Kernel, NodeId, Result, TensorId};

use crate::{
    BufferHandle, Buffers, DelegateContext, GraphView, NodeView, PartitionOptions, Rejection, VersionTable,
};

/// Takes over parts of a graph, with full control over which.
pub trait Delegate: Send {
    /// Its name, for reports and error messages.
    fn name(&self) -> &str;

    /// Up to which version it runs each op. A node that is not covered cannot be claimed.
    fn max_versions(&self) -> &VersionTable;

    /// What it can do beyond the plain case. Nothing, unless this is overridden.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Looks at the graph, claims what it runs and rejects the rest with reasons. Called again when shapes change.
    ///
    /// An error, or a panic, gives everything back to the CPU.
    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()>;
}

/// What a delegate can do beyond the plain case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// It takes nodes whose shapes are known only while running. A partition with such a node is prepared in the
    /// middle of an invocation, when its inputs are there; its kernel gives the shapes of outputs (what it finds are those
    /// of the invocation before), with
    /// [`PrepareContext::set_output_shape`](delegraph_core::kernel::PrepareContext::set_output_shape) or, where data
    /// decides, with [`InvokeContext::resize_output`].
    pub dynamic_shapes: bool,
    /// It wants to be told, before a partition is prepared in the middle of an invocation, the shapes in it that follow
    /// from those of its inputs. Matters only with `dynamic_shapes`.
    pub propagated_shapes: bool,
}

/// Runs one partition. Its inputs and outputs are those of [`DelegateParams`], in that order.
pub trait DelegateKernel: Kernel {
    /// What the kernel measured of itself, for benches and profiles.
    fn stats(&self) -> DelegateStats {
        DelegateStats::default()
    }

    /// How long each node took in the last run, as far as the kernel knows. Asked after each run where an application
    /// profiles.
    fn node_times(&self) -> &[NodeTime] {
        &[]
    }

    /// What one run starts on the device, in order. For reports: asked when somebody wants to see it.
    fn device_kernels(&self) -> Vec<DeviceKernel> {
        Vec::new()
    }

    /// Whether it can take input `input` from `buffer`, where another partition, or the application, left it.
    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        let (_, _) = (input, buffer);
        false
    }

    /// Whether it can leave output `output` in a buffer of its own, so that the data are copied to the CPU only when
    /// somebody there asks for them. Asked once after each `prepare`.
    fn keeps(&self, output: usize) -> bool {
        let _ = output;
        false
    }

    /// As [`Kernel::invoke`], with inputs and outputs that may be in buffers. A kernel that accepts or keeps buffers
    /// implements this instead.
    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let _ = buffers;
        self.invoke(cx)
    }
}

/// How long a node took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeTime {
    /// The node. Of nodes that ran as one, the first.
    pub node: NodeId,
    /// Its time on the device.
    pub time: Duration,
}

/// Something that a partition runs on its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceKernel {
    /// Its name, for people.
    pub name: String,
    /// The nodes of the model that it runs, all of them or a part of each.
    pub nodes: Vec<NodeId>,
    /// Bytes that it reads and writes at least, its weights among them.
    pub bytes: u64,
    /// How long it took in the last run, where that was measured.
    pub time: Option<Duration>,
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

    /// What it can do beyond the plain case. Nothing, unless this is overridden.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

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

    /// Chooses among nodes that it supports, for limits on partitions as a whole: a device's memory, say. All of them,
    /// unless this is overridden. Whatever is left out is to be rejected with a reason.
    fn choose(&self, cx: &mut DelegateContext<'_>, nodes: Vec<NodeId>) -> Vec<NodeId> {
        let _ = cx;
        nodes
    }
}

impl<D: SimpleDelegate> Delegate for D {
    fn name(&self) -> &str {
        SimpleDelegate::name(self)
    }

    fn max_versions(&self) -> &VersionTable {
        SimpleDelegate::max_versions(self)
    }

    fn capabilities(&self) -> Capabilities {
        SimpleDelegate::capabilities(self)
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
        let nodes = cx.limit(&nodes, &self.options());
        let nodes = self.choose(cx, nodes);
        cx.claim(&nodes, move |params, graph| self.create_kernel(params, graph));
        Ok(())
    }
}
