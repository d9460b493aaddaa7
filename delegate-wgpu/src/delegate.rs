//! The delegate: what it claims, and the kernels that it makes.

use std::sync::Arc;

use delegraph_core::{BuiltinOp, Error, Result, TensorType};
use delegraph_delegate_api::{
    DelegateKernel, DelegateParams, GraphView, NodeView, PartitionOptions, Rejection, SimpleDelegate,
    VersionTable,
};

use crate::device::{Context, WgpuError, open};
use crate::kernel::WgpuKernel;
use crate::lower::Builder;
use crate::options::WgpuOptions;
use crate::{NAME, ops, passes};

/// Runs parts of a model on a GPU.
///
/// All kernels of a delegate share one device and its compiled pipelines. So do its clones, which is how several
/// interpreters run on one device.
#[derive(Clone)]
pub struct WgpuDelegate {
    context: Arc<Context>,
    versions: VersionTable,
    partitions: PartitionOptions,
    info: wgpu::AdapterInfo,
}

impl WgpuDelegate {
    /// A delegate on the adapter that `options` choose.
    ///
    /// # Errors
    /// [`WgpuError`] when there is no such adapter, or it cannot be opened.
    pub fn new(options: WgpuOptions) -> Result<Self, WgpuError> {
        let (device, queue, info) = open(&options)?;
        let delegate = Self::with_device(device, queue, info, options);
        delegate.context.watch();
        Ok(delegate)
    }

    /// A delegate on a device that the application opened; `options.adapter` is not looked at. Nothing beyond
    /// WebGPU's default limits is needed of it; what it has beyond them is used.
    pub fn with_device(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        options: WgpuOptions,
    ) -> Self {
        let context = Arc::new(Context::new(device, queue, &info, &options));
        WgpuDelegate { context, versions: ops::versions(), partitions: options.partitions, info }
    }

    pub(crate) fn kernel(&self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<WgpuKernel> {
        let mut builder = Builder::new(&self.context);
        let failed = |message: String| Error::Delegate { delegate: NAME.into(), message };
        for &id in &params.inputs {
            builder.add_input(graph.tensor(id)).map_err(|e| failed(e.to_string()))?;
        }
        for &id in &params.nodes {
            let node = graph.node(id);
            ops::lower(node, &mut builder, false)
                .map_err(|e| failed(format!("node {} ({}): {e}", id.0, node.op())))?;
        }
        for &id in &params.outputs {
            builder.add_output(graph.tensor(id)).map_err(|e| failed(e.to_string()))?;
        }
        let mut lowered = builder.graph;
        let alignment = self.context.limits.min_storage_buffer_offset_alignment;
        passes::optimize(&mut lowered, alignment.into());
        WgpuKernel::build(Arc::clone(&self.context), lowered, params, graph)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The highest version of each op that it runs, on any adapter.
    pub fn supported_versions() -> VersionTable {
        ops::versions()
    }

    /// The types of data on which it runs a builtin op. Ops of [`WgpuDelegate::supported_versions`] without types are
    /// claimed only where their result was computed while preparing.
    pub fn supported_types(op: BuiltinOp) -> &'static [TensorType] {
        ops::types(op)
    }

    /// The device that it runs on, and its queue: for an application that has data there.
    pub fn device_and_queue(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.context.device, &self.context.queue)
    }

    /// How many pipelines were compiled on its device so far, or taken from the cache on disk.
    pub fn compiled_pipelines(&self) -> usize {
        self.context.compiled()
    }

    /// Bytes of weights and constants that are on its device, each counted once however many interpreters use it.
    pub fn uploaded_bytes(&self) -> u64 {
        self.context.uploads().bytes()
    }

    /// The adapter that it runs on.
    pub fn adapter(&self) -> &wgpu::AdapterInfo {
        &self.info
    }
}

impl SimpleDelegate for WgpuDelegate {
    fn name(&self) -> &str {
        NAME
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        ops::lower(*node, &mut Builder::new(&self.context), true)
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        Ok(Box::new(self.kernel(params, graph)?))
    }

    fn options(&self) -> PartitionOptions {
        self.partitions.clone()
    }
}
