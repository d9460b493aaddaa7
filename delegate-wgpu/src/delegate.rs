//! The delegate: claims nodes, and creates the kernels of its partitions.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use delegraph_core::error::counted;
use delegraph_core::{BuiltinOp, Error, NodeId, Result, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Capabilities, Delegate, DelegateContext, DelegateKernel, DelegateParams, GraphView,
    NodeView, PartitionOptions, Rejection, VersionTable,
};

use crate::compile::{Compiler, VariantRequest, VariantSearch, Warmup};
use crate::deferred::{self, Allowance, DeferredKernel, Trial};
use crate::device::adapter::{WgpuError, find, has_matrix_units, request};
use crate::device::options::{Precision, WgpuOptions};
use crate::device::{Gpu, NAME};
use crate::graph::Graph;
use crate::graph::builder::Builder;
use crate::kernel::WgpuKernel;
use crate::memory::{GpuBuffer, TextureInput, uploads};
use crate::ops;

/// Runs parts of a model on a GPU.
///
/// All kernels of a delegate share one device and its compiled pipelines. Clones share them too, so that several
/// interpreters can run on one device.
#[derive(Clone)]
pub struct WgpuDelegate {
    gpu: Arc<Gpu>,
    compiler: Arc<Compiler>,
    versions: VersionTable,
    partitions: PartitionOptions,
    max_gpu_bytes: Option<u64>,
    fusion: bool,
    precision: Precision,
    info: wgpu::AdapterInfo,
    requested: RequestedVariants,
}

/// The partitions for which variants for other sizes were requested. Not cloned: a clone may serve another model.
#[derive(Default)]
struct RequestedVariants {
    partitions: HashSet<(usize, Vec<NodeId>)>,
    request: Option<Arc<VariantRequest>>,
}

impl Clone for RequestedVariants {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for WgpuDelegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgpuDelegate")
            .field("adapter", &self.info.name)
            .field("backend", &self.info.backend)
            .field("precision", &self.precision)
            .field("partitions", &self.partitions)
            .field("max_gpu_bytes", &self.max_gpu_bytes)
            .field("fusion", &self.fusion)
            .finish_non_exhaustive()
    }
}

impl WgpuDelegate {
    /// The delegate's name in reports and messages.
    pub const NAME: &'static str = NAME;

    /// Creates a delegate on the adapter that `options` choose. Blocks until the device is open; on the web, and in
    /// applications that must not block, [`WgpuDelegate::new_async`] opens it.
    ///
    /// # Errors
    /// [`WgpuError`] where no adapter matches, or the adapter cannot be opened.
    pub fn new(options: WgpuOptions) -> Result<Self, WgpuError> {
        pollster::block_on(Self::new_async(options))
    }

    /// Creates a delegate on the adapter that `options` choose, opened without blocking. The future works with any
    /// executor.
    ///
    /// ```no_run
    /// # use delegraph_delegate_wgpu::{WgpuDelegate, WgpuError, WgpuOptions};
    /// # async fn open() -> Result<(), WgpuError> {
    /// let delegate = WgpuDelegate::new_async(WgpuOptions::default()).await?;
    /// println!("running on {}", delegate.adapter_info().name);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`WgpuDelegate::new`].
    pub async fn new_async(options: WgpuOptions) -> Result<Self, WgpuError> {
        Self::on_adapter(&find(&options).await?, options).await
    }

    /// As [`WgpuDelegate::new_async`], on an adapter that the application chose; `options.adapter` is ignored.
    ///
    /// # Errors
    /// [`WgpuError::Device`] where the adapter cannot be opened.
    pub async fn on_adapter(adapter: &wgpu::Adapter, options: WgpuOptions) -> Result<Self, WgpuError> {
        // Only kernels of 16-bit operands use them.
        let matrix_units =
            options.matrix_units && options.precision != Precision::F32 && has_matrix_units(adapter);
        let (device, queue) = request(adapter, matrix_units).await?;
        let warmup = Warmup::new(adapter);
        let delegate = Self::make(device, queue, adapter.get_info(), matrix_units, options, warmup);
        delegate.gpu.watch();
        Ok(delegate)
    }

    /// As [`WgpuDelegate::new`], for applications that also run without a GPU. Where no device is available, the
    /// returned delegate fails in `prepare`: policy `Prefer` then runs the model on the CPU and reports the error,
    /// policy `Require` returns it.
    pub fn open_or_report(options: WgpuOptions) -> Box<dyn Delegate> {
        match Self::new(options) {
            Ok(delegate) => Box::new(delegate),
            Err(error) => Box::new(UnavailableDelegate { error, versions: ops::versions() }),
        }
    }

    /// Creates a delegate on a device that the application opened; `options.adapter` is ignored. WebGPU's default
    /// limits suffice; higher limits are used where the device has them.
    pub fn with_device(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        options: WgpuOptions,
    ) -> Self {
        Self::make(device, queue, info, false, options, None)
    }

    fn make(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: wgpu::AdapterInfo,
        matrix_units: bool,
        options: WgpuOptions,
        warmup: Option<Warmup>,
    ) -> Self {
        let gpu = Arc::new(Gpu::new(device, queue, &info, matrix_units, &options));
        let compiler = Arc::new(Compiler::new(&gpu, &info, &options, warmup));
        let table = ops::versions();
        let versions =
            options.custom_ops.iter().fold(table, |t, op| t.with_custom(op.name(), op.max_version()));
        let WgpuOptions { partitions, max_gpu_bytes, fusion, precision, .. } = options;
        let requested = RequestedVariants::default();
        WgpuDelegate {
            gpu,
            compiler,
            versions,
            partitions,
            max_gpu_bytes,
            fusion,
            precision,
            info,
            requested,
        }
    }

    #[cfg(test)]
    pub(crate) fn kernel(&self, params: &DelegateParams, graph: &GraphView<'_>) -> Result<WgpuKernel> {
        WgpuKernel::build(&self.gpu, &self.compiler, self.lowered(params, graph)?, params, graph)
    }

    /// Lowers a partition and runs all passes.
    fn lowered<'g>(&self, params: &DelegateParams, graph: &GraphView<'g>) -> Result<Graph<'g>> {
        ops::lower_partition(&self.gpu, self.fusion, params, graph)
    }

    /// Selects, among nodes that run once their operands are known, those that the limits allow in separate partitions.
    fn defer(&self, cx: &mut DelegateContext<'_>, nodes: &mut Vec<NodeId>) {
        let graph = cx.graph();
        for id in deferred::remove_dependent(nodes, &graph) {
            let text =
                "an operand that preparation needs is computed in the same partition; it stays on the CPU";
            cx.reject(id, Rejection::Other(text.into()));
        }
        if self.partitions.max_partitions.is_some() {
            let text = "its operands are known at run time only, which needs another partition";
            nodes.drain(..).for_each(|id| cx.reject(id, Rejection::Other(text.into())));
        }
        let partitions = cx.preview_partitions(nodes);
        for id in partitions.into_iter().skip(deferred::MAX_PARTITIONS).flat_map(|partition| partition.nodes)
        {
            let max = deferred::MAX_PARTITIONS;
            cx.reject(id, Rejection::TooManyPartitions { max });
            nodes.retain(|node| *node != id);
        }
        *nodes = cx.limit(nodes, &self.partitions);
    }

    /// Selects nodes whose partitions fit into `most` bytes, partitions with the most multiply-adds first. Of a
    /// partition that does not fit, the leading nodes that fit are selected. Returns them, and the bytes that are left.
    fn fit(&self, cx: &mut DelegateContext<'_>, nodes: &[NodeId], most: u64) -> (Vec<NodeId>, u64) {
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
                let bytes = |p| WgpuKernel::bytes(&self.gpu, &self.lowered(p, &graph).ok()?).ok();
                parts.iter().map(bytes).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
            };
            let nodes = &partition.nodes;
            let needs = bytes(cx, nodes);
            let (mut fits, mut taken, mut above) = match needs.filter(|&bytes| bytes <= left) {
                Some(bytes) => (nodes.len(), bytes, nodes.len() + 1),
                None => (0, 0, nodes.len()),
            };
            // The search assumes that memory grows with the number of nodes, which has few exceptions. The bytes of the
            // result are exact.
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
                    "a partition{needs}; {} left of the limit of {most}; `max_gpu_bytes` raises it",
                    counted(left, "byte")
                )
            };
            outside.iter().for_each(|&id| cx.reject(id, Rejection::DeviceLimit(reason())));
            left -= taken;
        }
        kept.sort_unstable();
        (kept, left)
    }

    #[cfg(test)]
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Returns the highest version of each op that the delegate runs, on any adapter.
    pub fn supported_versions() -> VersionTable {
        ops::versions()
    }

    /// Returns the types of data on which the delegate runs a builtin op. Ops of [`WgpuDelegate::supported_versions`]
    /// without types are claimed only where their outputs are constant.
    pub fn supported_types(op: BuiltinOp) -> &'static [TensorType] {
        ops::types(op)
    }

    /// Returns the device and queue that the delegate uses, for applications whose data is on that device.
    pub fn device_and_queue(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.gpu.device, &self.gpu.queue)
    }

    /// Returns the number of pipelines compiled on the device so far, those loaded from the cache file included.
    pub fn compiled_pipelines(&self) -> usize {
        self.compiler.compiled()
    }

    /// Waits until the kernels for other input sizes are compiled. From then on, `resize_input` compiles nothing.
    pub fn finish_compiling(&self) {
        self.compiler.finish_compiling();
    }

    /// Returns the bytes of weights and constants on the device, each counted once regardless of the number of
    /// interpreters that use it.
    pub fn uploaded_bytes(&self) -> u64 {
        uploads(&self.gpu).bytes()
    }

    /// Returns the reason why the device was lost; `None` if it was not, and for a device that the application opened.
    pub fn loss_reason(&self) -> Option<String> {
        self.gpu.lost()
    }

    /// Returns the name, driver and backend of the device's adapter.
    pub fn adapter_info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }
}

/// Tensors of the application on the device.
impl WgpuDelegate {
    /// Returns a handle for an input tensor in a buffer of the application on the delegate's device
    /// (`Interpreter::set_input_buffer`). The tensor's 32-bit elements are densely packed, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the buffer lacks the usage `COPY_SRC` or is too small, or `offset` or `bytes` is
    /// not a multiple of 4.
    pub fn input_buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<BufferHandle> {
        GpuBuffer::handle(&self.gpu, buffer, offset, bytes, (wgpu::BufferUsages::COPY_SRC, "COPY_SRC"))
    }

    /// Returns a handle for an output tensor (`Interpreter::set_output_buffer`), which is copied into the buffer; the
    /// buffer needs the usage `COPY_DST`. A buffer with both usages can also be an input.
    ///
    /// # Errors
    /// As [`WgpuDelegate::input_buffer`].
    pub fn output_buffer(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<BufferHandle> {
        GpuBuffer::handle(&self.gpu, buffer, offset, bytes, (wgpu::BufferUsages::COPY_DST, "COPY_DST"))
    }

    /// Returns an input that converts textures to FLOAT32 tensors of shape `[1, height, width, channels]`, with 1
    /// channel (luminance), 3 (RGB) or 4 (RGBA). The elements are in `0.0..=1.0` in the usual formats;
    /// [`TextureInput::set_scale`] and [`TextureInput::set_offset`] map them to another range.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for other shapes, [`Error::Delegate`] if the device is out of memory or lost.
    pub fn texture_input(&self, shape: [usize; 4]) -> Result<TextureInput> {
        TextureInput::new(&self.gpu, &self.compiler, shape)
    }
}

/// A delegate whose device is not available; `prepare` fails.
struct UnavailableDelegate {
    error: WgpuError,
    versions: VersionTable,
}

impl Delegate for UnavailableDelegate {
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

impl Delegate for WgpuDelegate {
    fn name(&self) -> &str {
        NAME
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn capabilities(&self) -> Capabilities {
        // For nodes whose operands are known only at run time: see `deferred`.
        Capabilities::default().with_dynamic_shapes(true)
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        if self.precision == Precision::F16 && !self.gpu.halves {
            let message = format!(
                "{} has no 16-bit floats (SHADER_F16); only precision f32, or auto, is supported on it",
                self.info.name
            );
            return Err(Error::delegate(NAME, message));
        }
        let (mut nodes, mut deferred, mut trial) = (Vec::new(), Vec::new(), Trial::default());
        for node in cx.graph().nodes() {
            cx.check_interrupted()?;
            let may = cx.may_claim(&node);
            let Err(reason) = may.and_then(|()| self.supports(&node)) else {
                nodes.push(node.id());
                continue;
            };
            let later = cx.graph().is_direct() && cx.may_claim(&node).is_ok();
            match later.then(|| trial.supports(&self.gpu, node)).flatten() {
                Some(Ok(())) => deferred.push(node.id()),
                Some(Err(reason)) => cx.reject(node.id(), reason),
                None => cx.reject(node.id(), reason),
            }
        }
        let mut nodes = cx.limit(&nodes, &self.partitions);
        let mut left = self.max_gpu_bytes.or(cx.memory_limit());
        if let Some(most) = left {
            let (kept, rest) = self.fit(cx, &nodes, most);
            (nodes, left) = (kept, Some(rest));
        }
        self.defer(cx, &mut deferred);
        let (gpu, compiler, fusion) = (Arc::clone(&self.gpu), Arc::clone(&self.compiler), self.fusion);
        let allowance = Allowance::new(left);
        cx.claim(&nodes, move |params, graph| self.create_kernel(params, graph));
        cx.claim(&deferred, move |params, graph| {
            let kernel = DeferredKernel::new(&gpu, &compiler, fusion, &allowance, params, graph)?;
            Ok(Box::new(kernel))
        });
        Ok(())
    }
}

impl WgpuDelegate {
    /// Returns whether a node can run with the shapes and constants that are known.
    pub(crate) fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        ops::lower(*node, &mut Builder::new(&self.gpu), true)
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let lowered = self.lowered(params, graph)?;
        let request = Arc::clone(self.requested.request.get_or_insert_with(|| self.compiler.request()));
        let new = self.requested.partitions.insert((graph.index(), params.nodes.clone()));
        let variants =
            new.then(|| VariantSearch::new(self.gpu.device_caps(), self.fusion, &lowered, params, graph));
        let mut kernel = WgpuKernel::build(&self.gpu, &self.compiler, lowered, params, graph)?;
        if let Some(variants) = variants {
            self.compiler.compile_later(variants, &request);
        }
        kernel.hold(request);
        Ok(Box::new(kernel))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn threads_share_delegates_and_buffers() {
        fn check<T: Send + Sync>() {}
        check::<WgpuDelegate>();
        check::<WgpuOptions>();
        check::<TextureInput>();
        check::<GpuBuffer>();
        check::<BufferHandle>();
    }

    #[test]
    fn a_device_is_opened_by_polling_alone() {
        let mut future = pin!(WgpuDelegate::new_async(WgpuOptions::default()));
        let opened = loop {
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(opened) => break opened,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        match (opened, WgpuDelegate::new(WgpuOptions::default())) {
            (Ok(one), Ok(other)) => assert_eq!(one.adapter_info(), other.adapter_info()),
            (Err(WgpuError::NoAdapter), Err(WgpuError::NoAdapter)) => eprintln!("skipped: no adapter"),
            (one, other) => panic!("{:?}, blocking {:?}", one.map(drop), other.map(drop)),
        }
    }
}
