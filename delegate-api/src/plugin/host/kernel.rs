//! A plugin's kernel as a [`DelegateKernel`].

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use delegraph_core::{InvokeContext, Kernel, NodeId, PrepareContext, Result};

use super::super::abi::*;
use super::super::raw::slice;
use super::instance::Instance;
use super::operands::{Operands, buffer};
use crate::{DelegateKernel, DelegateParams, DelegateStats, GraphView, NodeTime};

/// A kernel that a plugin created.
pub(super) struct KernelHandle {
    kernel: *mut c_void,
    instance: Arc<Instance>,
}

// SAFETY: the interface allows any thread to use a kernel, one at a time, which `&mut` ensures.
unsafe impl Send for KernelHandle {}

impl KernelHandle {
    /// Returns `None` for a null pointer.
    pub(super) fn new(instance: Arc<Instance>, kernel: *mut c_void) -> Option<Self> {
        if kernel.is_null() { None } else { Some(KernelHandle { kernel, instance }) }
    }
}

impl Drop for KernelHandle {
    fn drop(&mut self) {
        // SAFETY: `create_kernel` made it, and it is destroyed once.
        unsafe { (self.instance.library.functions.destroy_kernel)(self.kernel) };
    }
}

/// Runs a partition with a plugin's kernel.
pub(super) struct PluginKernel {
    handle: KernelHandle,
    /// The nodes, ascending.
    nodes: Vec<NodeId>,
    /// The times of the last run, copied after it: those of the plugin are invalid when the kernel is used again.
    times: Vec<NodeTime>,
    operands: Operands,
}

impl PluginKernel {
    pub(super) fn new(handle: KernelHandle, params: &DelegateParams, graph: &GraphView<'_>) -> Self {
        let describe = |id: &delegraph_core::TensorId| {
            let tensor = graph.tensor(*id);
            Some(buffer(tensor.ty(), tensor.is_variable()))
        };
        let operands =
            Operands::new(params.inputs.iter().map(describe), params.outputs.iter().filter_map(describe));
        let mut nodes = params.nodes.clone();
        nodes.sort_unstable();
        let times = Vec::with_capacity(nodes.len());
        PluginKernel { handle, nodes, times, operands }
    }

    /// Reads the times of nodes, ignoring nodes outside of the partition.
    fn take_times(&mut self) {
        self.times.clear();
        let Some(node_times) = self.handle.instance.library.functions.node_times else { return };
        let mut count = 0;
        // SAFETY: `create_kernel` made the kernel, and `&mut self` is exclusive.
        let list = unsafe { node_times(self.handle.kernel, &raw mut count) };
        // SAFETY: the plugin guarantees `count` entries until the kernel is used again; at most one per node is read.
        let list = unsafe { slice(list, count.min(self.nodes.len())) }.unwrap_or_default();
        let own = list.iter().filter(|t| self.nodes.binary_search(&NodeId(t.node)).is_ok());
        self.times.extend(
            own.map(|t| NodeTime { node: NodeId(t.node), time: Duration::from_nanos(t.nanoseconds) }),
        );
    }
}

impl Kernel for PluginKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let kernel = self.handle.kernel;
        let prepare = self.handle.instance.library.functions.prepare_kernel;
        // SAFETY: `create_kernel` made the kernel, and `&mut self` is exclusive.
        unsafe { self.operands.prepare(cx, kernel, prepare) }
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let kernel = self.handle.kernel;
        let invoke = self.handle.instance.library.functions.invoke_kernel;
        // SAFETY: as in `prepare`.
        unsafe { self.operands.invoke(cx, kernel, invoke) }?;
        self.take_times();
        Ok(())
    }
}

impl DelegateKernel for PluginKernel {
    fn node_times(&self) -> &[NodeTime] {
        &self.times
    }

    fn stats(&self) -> DelegateStats {
        let Some(stats) = self.handle.instance.library.functions.kernel_stats else {
            return DelegateStats::default();
        };
        let mut out = DelegraphStats {
            size: size_of::<DelegraphStats>(),
            device_bytes: 0,
            upload_nanoseconds: DELEGRAPH_TIME_UNKNOWN,
            device_nanoseconds: DELEGRAPH_TIME_UNKNOWN,
            readback_nanoseconds: DELEGRAPH_TIME_UNKNOWN,
            dispatches: 0,
        };
        // SAFETY: `create_kernel` made the kernel. It is not running, which would require `&mut self`.
        unsafe { stats(self.handle.kernel, &raw mut out) };
        let known = |time: u64| (time != DELEGRAPH_TIME_UNKNOWN).then(|| Duration::from_nanos(time));
        DelegateStats {
            device_bytes: out.device_bytes,
            upload_time: known(out.upload_nanoseconds),
            device_time: known(out.device_nanoseconds),
            readback_time: known(out.readback_nanoseconds),
            dispatches: out.dispatches,
        }
    }
}
