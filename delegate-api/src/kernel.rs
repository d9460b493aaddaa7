//! The kernel of a partition: its trait, its operands and its measurements.

use std::task::{Context, Poll};
use std::time::Duration;

use delegraph_core::kernel::InvokeContext;
use delegraph_core::{Kernel, NodeId, Result, TensorId};

use crate::submission::block_on;
use crate::{BufferHandle, Buffers, Submitted};

/// Optional features of a delegate. The default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether the delegate supports nodes whose shapes depend on data. A partition with such a node is prepared during
    /// the invocation, when its inputs are computed. Its kernel sets the shapes of outputs with
    /// [`PrepareContext::set_output_shape`](delegraph_core::kernel::PrepareContext::set_output_shape) or, for shapes
    /// that depend on data, with [`InvokeContext::resize_output`]; until then, outputs have the shapes of the previous
    /// invocation.
    pub dynamic_shapes: bool,
    /// Whether the delegate receives the shapes inside of a partition that follow from the shapes of its inputs, before
    /// the partition is prepared during an invocation. Has no effect without `dynamic_shapes`.
    pub propagated_shapes: bool,
}

impl Capabilities {
    /// Sets [`Capabilities::dynamic_shapes`].
    #[must_use]
    pub fn with_dynamic_shapes(mut self, dynamic_shapes: bool) -> Self {
        self.dynamic_shapes = dynamic_shapes;
        self
    }

    /// Sets [`Capabilities::propagated_shapes`].
    #[must_use]
    pub fn with_propagated_shapes(mut self, propagated_shapes: bool) -> Self {
        self.propagated_shapes = propagated_shapes;
        self
    }
}

/// Runs one partition. Its inputs and outputs are those of [`DelegateParams`], in that order.
///
/// An error of a run is a failure of the delegate, unless it has the location of a node and reports invalid data
/// ([`Error::is_invalid_data`](delegraph_core::Error::is_invalid_data)): a CPU kernel would report the same error.
pub trait DelegateKernel: Kernel {
    /// Returns measurements of the kernel, for benchmarks and profiles.
    fn stats(&self) -> DelegateStats {
        DelegateStats::default()
    }

    /// Returns the time of each node in the last run, as far as the kernel measures it. Called after each run while an
    /// application profiles.
    fn node_times(&self) -> &[NodeTime] {
        &[]
    }

    /// Returns the FLOAT32 tensors that the device stores in 16 bits, in ascending order. For reports.
    fn half_tensors(&self) -> &[TensorId] {
        &[]
    }

    /// Returns the kernels that one run starts on the device, in order. For reports; not called during inference.
    fn device_kernels(&self) -> Vec<DeviceKernel> {
        Vec::new()
    }

    /// Returns whether [`Kernel::prepare`] reads the data of inputs although all shapes are known: the partition is then
    /// prepared during each invocation, when its inputs are computed, like a partition whose shapes depend on data.
    /// Called once, after the kernel is created. Has no effect unless
    /// [`GraphView::is_direct`](crate::GraphView::is_direct).
    fn needs_data(&self) -> bool {
        false
    }

    /// Returns whether the kernel cannot run the partition with the inputs of the last `prepare`, which succeeded. The nodes
    /// then run on the CPU in this invocation, and report their own errors. Called for partitions that are prepared during the
    /// invocation.
    fn declines(&self) -> bool {
        false
    }

    /// Returns whether the kernel can read input `input` from `buffer`, where another partition, or the application,
    /// stored it.
    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        let (_, _) = (input, buffer);
        false
    }

    /// Returns whether the kernel can keep output `output` in a buffer of its own, so that the data are copied to the
    /// CPU only on request. Called once after each `prepare`.
    fn keeps(&self, output: usize) -> bool {
        let _ = output;
        false
    }

    /// As [`Kernel::invoke`], with inputs and outputs that may be in buffers. A kernel that accepts or keeps buffers
    /// implements this instead.
    ///
    /// # Errors
    /// As [`Kernel::invoke`].
    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let _ = buffers;
        self.invoke(cx)
    }

    /// Starts one run. A kernel whose device works asynchronously implements this together with
    /// [`poll`](DelegateKernel::poll), [`finish`](DelegateKernel::finish) and [`abandon`](DelegateKernel::abandon): it
    /// reads its inputs here, starts the device, and returns [`Submitted::Pending`]. Outputs are left in buffers
    /// ([`Buffers::keep`]) here or in `finish`. The default runs `invoke_with`.
    ///
    /// The kernel must not keep references into `cx`. An implementation also implements `invoke_with`, for callers that
    /// block for the whole run.
    ///
    /// # Errors
    /// If the run cannot be started; no further function is called for this run.
    fn submit(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<Submitted> {
        self.invoke_with(cx, buffers)?;
        Ok(Submitted::Done)
    }

    /// Returns whether the submitted work is done. Does not block, and wakes `cx` when polling again may make progress.
    ///
    /// # Errors
    /// If the device fails.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Blocks until the submitted work is done. The default polls, and parks the thread in between.
    ///
    /// # Errors
    /// As [`DelegateKernel::poll`].
    fn wait(&mut self) -> Result<()> {
        block_on(|cx| self.poll(cx))
    }

    /// Ends a run whose work is done: copies outputs to the CPU's memory. `buffers` has the same inputs as in `submit`.
    ///
    /// # Errors
    /// If the results cannot be copied.
    fn finish(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let (_, _) = (cx, buffers);
        Ok(())
    }

    /// Drops submitted work, because the invocation was cancelled or its future was dropped. The device may still be
    /// working; its results are not read. `submit` may follow.
    fn abandon(&mut self) {}
}

/// The time of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTime {
    /// The node; the first one of nodes that ran together.
    pub node: NodeId,
    /// The time on the device.
    pub time: Duration,
}

impl NodeTime {
    /// Creates a measurement: the time of `node` on the device.
    pub fn new(node: NodeId, time: Duration) -> Self {
        NodeTime { node, time }
    }
}

/// A kernel that a partition starts on its device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceKernel {
    /// The kernel's name, for display.
    pub name: String,
    /// The nodes of the model that the kernel runs, completely or in part.
    pub nodes: Vec<NodeId>,
    /// The minimum number of bytes that the kernel reads and writes, including weights.
    pub bytes: u64,
    /// The time in the last run, if it was measured.
    pub time: Option<Duration>,
}

impl DeviceKernel {
    /// Creates a kernel for `nodes`, without bytes and time.
    pub fn new(name: impl Into<String>, nodes: Vec<NodeId>) -> Self {
        DeviceKernel { name: name.into(), nodes, bytes: 0, time: None }
    }

    /// Sets [`DeviceKernel::bytes`].
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets [`DeviceKernel::time`].
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }
}

/// Measurements of a delegate's kernel. Times that were not measured are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelegateStats {
    /// Bytes of device memory that the kernel holds.
    pub device_bytes: u64,
    /// Time of the last upload.
    pub upload_time: Option<Duration>,
    /// Time on the device in the last run.
    pub device_time: Option<Duration>,
    /// Time of the last read-back.
    pub readback_time: Option<Duration>,
    /// Number of kernels that one run starts on the device.
    pub dispatches: usize,
}

impl DelegateStats {
    /// Sets [`DelegateStats::device_bytes`].
    #[must_use]
    pub fn with_device_bytes(mut self, device_bytes: u64) -> Self {
        self.device_bytes = device_bytes;
        self
    }

    /// Sets [`DelegateStats::upload_time`].
    #[must_use]
    pub fn with_upload_time(mut self, upload_time: Duration) -> Self {
        self.upload_time = Some(upload_time);
        self
    }

    /// Sets [`DelegateStats::device_time`].
    #[must_use]
    pub fn with_device_time(mut self, device_time: Duration) -> Self {
        self.device_time = Some(device_time);
        self
    }

    /// Sets [`DelegateStats::readback_time`].
    #[must_use]
    pub fn with_readback_time(mut self, readback_time: Duration) -> Self {
        self.readback_time = Some(readback_time);
        self
    }

    /// Sets [`DelegateStats::dispatches`].
    #[must_use]
    pub fn with_dispatches(mut self, dispatches: usize) -> Self {
        self.dispatches = dispatches;
        self
    }
}

/// One partition: the nodes that a kernel runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DelegateParams {
    /// The nodes, in an order in which they can run.
    pub nodes: Vec<NodeId>,
    /// Tensors that the partition reads and does not compute, without constants, which are part of the graph.
    pub inputs: Vec<TensorId>,
    /// Tensors that the partition computes and that other nodes, or the caller, read.
    pub outputs: Vec<TensorId>,
}

impl DelegateParams {
    /// Creates a partition of these nodes, without inputs and outputs.
    pub fn new(nodes: Vec<NodeId>) -> Self {
        DelegateParams { nodes, ..DelegateParams::default() }
    }

    /// Sets [`DelegateParams::inputs`].
    #[must_use]
    pub fn with_inputs(mut self, inputs: Vec<TensorId>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Sets [`DelegateParams::outputs`].
    #[must_use]
    pub fn with_outputs(mut self, outputs: Vec<TensorId>) -> Self {
        self.outputs = outputs;
        self
    }
}
