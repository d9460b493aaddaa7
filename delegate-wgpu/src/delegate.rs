//! The delegate: what it claims, and the kernels that it makes.

use std::collections::HashSet;
use std::sync::Arc;

use delegraph_core::{BuiltinOp, Error, NodeId, Result, TensorType};
use delegraph_delegate_api::{
    Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView, NodeView, PartitionOptions,
    Rejection, SimpleDelegate, VersionTable,
};

use crate::ahead::Ahead;
use crate::context::Context;
use crate::device::{WgpuError, open};
use crate::graph::Graph;
use crate::kernel::WgpuKernel;
use crate::later::Need;
use crate::lower::Builder;
use crate::options::WgpuOptions;
use crate::twins::Twins;
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
    max_gpu_bytes: Option<u64>,
    fusion: bool,
    info: wgpu::AdapterInfo,
    foreseen: Foreseen,
}

/// The partitions, each by its subgraph and its nodes, whose kernels for other sizes were asked for, and by whom. A clone
/// may serve another model.
#[derive(Default)]
struct Foreseen {
    partitions: HashSet<(usize, Vec<NodeId>)>,
    need: Option<Arc<Need>>,
}

impl Clone for Foreseen {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl WgpuDelegate {
    /// A delegate on the adapter that `options` choose.
    ///
    /// # Errors
    /// [`WgpuError`] when there is no such adapter, or it cannot be opened.
    pub fn new(options: WgpuOptions) -> Result<Self, WgpuError> {
        let (device, queue, adapter) = open(&options)?;
        let (info, ahead) = (adapter.get_info(), Ahead::new(&adapter));
        let delegate = Self::make(device, queue, info, options, ahead);
        delegate.context.watch();
        Ok(delegate)
    }

    /// As [`WgpuDelegate::new`], for applications that go on without one: where it cannot be had, what is returned fails
    /// while preparing. Policy `Prefer` then runs the model on the CPU, and the report says why; `Require` is the error.
    pub fn open_or_report(options: WgpuOptions) -> Box<dyn Delegate> {
        match Self::new(options) {
            Ok(delegate) => Box::new(delegate),
            Err(error) => Box::new(Missing { error, versions: ops::versions() }),
        }
    }

    /// A delegate on a device that the application opened; `options.adapter` is not looked at. Nothing beyond
    /// WebGPU's default limits is needed of it; what it has beyond them is used.
    pub fn with_device(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        options: WgpuOptions,
    ) -> Self {
        Self::make(device, queue, info, options, None)
    }

    fn make(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        options: WgpuOptions,
        ahead: Option<Ahead>,
    ) -> Self {
        let context = Arc::new(Context::new(device, queue, &info, &options, ahead));
        let table = ops::versions();
        let versions =
            options.custom_ops.iter().fold(table, |t, op| t.with_custom(op.name(), op.max_version()));
        let WgpuOptions { partitions, max_gpu_bytes, fusion, .. } = options;
        let foreseen = Foreseen::default();
        WgpuDelegate { context, versions, partitions, max_gpu_bytes, fusion, info, foreseen }
    }

    #[cfg(test)]
    pub(crate) fn kernel(&self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<WgpuKernel> {
        WgpuKernel::build(Arc::clone(&self.context), self.lowered(params, graph)?, params, graph)
    }

    /// A partition as steps, after all passes.
    fn lowered<'g>(&self, params: &DelegateParams, graph: &GraphView<'g>) -> Result<Graph<'g>> {
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
        builder.add_states(&params.inputs);
        let mut lowered = builder.graph;
        let alignment = self.context.limits.min_storage_buffer_offset_alignment;
        if self.fusion {
            passes::optimize(&mut lowered, alignment.into());
        }
        if self.context.caps.software {
            // Nothing is gained by less to read, and unpacking takes time.
            return Ok(lowered);
        }
        passes::halve_weights(&mut lowered);
        Ok(lowered)
    }

    /// Those of `nodes` whose partitions have room in `most` bytes: partitions with most arithmetic first, and of one
    /// that does not fit, as many nodes from its beginning as do.
    fn fit(&self, cx: &mut DelegateContext<'_>, nodes: &[NodeId], most: u64) -> Vec<NodeId> {
        let graph = cx.graph();
        let mut partitions = cx.preview_partitions(nodes);
        let work = |p: &DelegateParams| {
            let each = p.nodes.iter().map(|&id| graph.node(id).cost().multiply_adds);
            std::cmp::Reverse(each.fold(0, u64::saturating_add))
        };
        partitions.sort_by_cached_key(work);
        let (mut kept, mut left) = (Vec::new(), most);
        for partition in partitions {
            let bytes = |cx: &DelegateContext<'_>, nodes: &[NodeId]| -> Option<u64> {
                let parts = cx.preview_partitions(nodes);
                let bytes = |p| WgpuKernel::bytes(&self.context, &self.lowered(p, &graph).ok()?).ok();
                parts.iter().map(bytes).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
            };
            let nodes = &partition.nodes;
            let needs = bytes(cx, nodes);
            let (mut fits, mut taken, mut above) = match needs.filter(|&bytes| bytes <= left) {
                Some(bytes) => (nodes.len(), bytes, nodes.len() + 1),
                None => (0, 0, nodes.len()),
            };
            // More nodes need more, or nearly so; what is taken was computed in any case.
            while fits + 1 < above {
                let count = (fits + above) / 2;
                match bytes(cx, &nodes[..count]).filter(|&bytes| bytes <= left) {
                    Some(bytes) => (fits, taken) = (count, bytes),
                    None => above = count,
                }
            }
            let (inside, outside) = nodes.split_at(fits);
            kept.extend_from_slice(inside);
            let reason = || {
                let needs = needs.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
                format!(
                    "its partition{needs} has no room in the {left} that are left of max_gpu_bytes, {most}"
                )
            };
            outside.iter().for_each(|&id| cx.reject(id, Rejection::DeviceLimit(reason())));
            left -= taken;
        }
        kept.sort_unstable();
        kept
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

    /// Waits until the kernels that other sizes of the models' inputs need are compiled, too: from then on, no
    /// `resize_input` compiles anything.
    pub fn finish_compiling(&self) {
        self.context.finish_compiling();
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

/// In the place of a delegate that cannot be had.
struct Missing {
    error: WgpuError,
    versions: VersionTable,
}

impl Delegate for Missing {
    fn name(&self) -> &str {
        NAME
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn prepare<'a>(&'a mut self, _: &mut DelegateContext<'a>) -> Result<()> {
        Err(self.error.clone().into())
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
        let lowered = self.lowered(params, graph)?;
        let need = Arc::clone(self.foreseen.need.get_or_insert_with(|| self.context.need()));
        let new = self.foreseen.partitions.insert((graph.index(), params.nodes.clone()));
        let twins = new.then(|| Twins::new(self.context.facts(), self.fusion, &lowered, params, graph));
        let mut kernel = WgpuKernel::build(Arc::clone(&self.context), lowered, params, graph)?;
        if let Some(twins) = twins {
            self.context.compile_later(twins, &need);
        }
        kernel.need(need);
        Ok(Box::new(kernel))
    }

    fn options(&self) -> PartitionOptions {
        self.partitions.clone()
    }

    fn choose(&self, cx: &mut DelegateContext<'_>, nodes: Vec<NodeId>) -> Vec<NodeId> {
        match self.max_gpu_bytes {
            Some(most) => self.fit(cx, &nodes, most),
            None => nodes,
        }
    }
}
