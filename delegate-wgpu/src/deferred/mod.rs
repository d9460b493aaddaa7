//! Partitions of nodes with operands that are known only during a run: axes, paddings, sizes, weights and k as inputs.
//!
//! Such a partition is prepared during the invocation, when its inputs are computed. Its kernel lowers the nodes with
//! these operands as constants, and keeps the result until an operand or a shape changes. Where the operands cannot be
//! lowered, the kernel declines: the nodes run on the CPU, which reports invalid operands.

mod operands;

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, RuntimeTensor};
use delegraph_core::{Error, NodeId, Result, TensorId};
use delegraph_delegate_api::{
    Buffers, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, GraphView, NodeTime, NodeView,
    Rejection, Submitted, TensorInfo,
};

use crate::compile::Compiler;
use crate::device::{Gpu, failed};
use crate::graph::builder::Builder;
use crate::graph::lowering::unsupported;
use crate::graph::snapshot::Snapshot;
use crate::kernel::WgpuKernel;
use crate::ops;
use operands::{MAX_OPERAND_BYTES, deferred, stand_in};

/// Maximum number of bytes of all stand-ins for operands while preparing. The model determines their sizes.
const MAX_TRIED_BYTES: usize = 1 << 30;

/// Maximum number of deferred partitions of a graph. Each has a copy of the graph's structure.
pub(crate) const MAX_PARTITIONS: usize = 64;

/// Finds the nodes that can run once their operands are known.
#[derive(Default)]
pub(crate) struct Trial {
    /// Created with the first node.
    snapshot: Option<Snapshot>,
    bytes: usize,
}

impl Trial {
    /// Returns whether `node` can run once its operands are known; `None` if it has no such operand.
    pub(crate) fn supports(&mut self, gpu: &Gpu, node: NodeView<'_>) -> Option<Result<(), Rejection>> {
        deferred(node).next()?;
        // The shapes of other operands would have to be guessed, too.
        let unknown = node.inputs().find(|tensor| tensor.shape().is_none());
        if let Some(tensor) = unknown {
            return Some(Err(Rejection::DynamicShape { tensor: tensor.name().to_owned() }));
        }
        Some(self.lower(gpu, node))
    }

    fn lower(&mut self, gpu: &Gpu, node: NodeView<'_>) -> Result<(), Rejection> {
        let snapshot = self.snapshot.get_or_insert_with(|| Snapshot::new(&node.graph()));
        let no_room = |e: Error| Rejection::Other(e.to_string());
        for tensor in node.inputs().chain(node.outputs()) {
            snapshot.add(tensor).map_err(no_room)?;
        }
        for (i, tensor) in deferred(node) {
            let data = stand_in(node, i).ok_or_else(|| no_stand_in(i, &tensor))?;
            self.bytes = self.bytes.saturating_add(data.len());
            if self.bytes > MAX_TRIED_BYTES {
                return Err(unsupported(format!(
                    "input {i} (\"{}\") is computed; with it, the computed inputs that were tried have {} bytes; \
                    at most {MAX_TRIED_BYTES} bytes are supported",
                    tensor.name(),
                    self.bytes
                )));
            }
            snapshot.tensors[tensor.id().0].set_constant_copy(&data).map_err(no_room)?;
        }
        let result = match snapshot.infer(node.id()) {
            None => Err(unsupported("computed operands; none were found with which the node is valid")),
            Some(()) => ops::lower(snapshot.view().node(node.id()), &mut Builder::new(gpu), true),
        };
        deferred(node).for_each(|(_, tensor)| snapshot.tensors[tensor.id().0].clear_data());
        result
    }
}

/// Returns the rejection of a node whose input `i` is computed and has no stand-in.
fn no_stand_in(i: usize, tensor: &TensorInfo<'_>) -> Rejection {
    let bytes = tensor.shape().and_then(|shape| tensor.ty().byte_size(shape.checked_elements()?));
    let name = tensor.name();
    unsupported(match bytes {
        Some(bytes) if bytes > MAX_OPERAND_BYTES => format!(
            "input {i} (\"{name}\") is computed and has {bytes} bytes; \
            at most {MAX_OPERAND_BYTES} bytes are supported"
        ),
        _ => format!("input {i} (\"{name}\") is computed; only a constant is supported with these shapes"),
    })
}

/// Returns the tensors whose data is needed to lower `node`.
pub(crate) fn required(node: NodeView<'_>) -> impl Iterator<Item = TensorId> + '_ {
    deferred(node).map(|(_, tensor)| tensor.id())
}

/// Bytes of device memory that deferred partitions of a delegate may take together; `None`: no limit.
#[derive(Clone)]
pub(crate) struct Allowance(Arc<Mutex<Option<u64>>>);

impl Allowance {
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        Allowance(Arc::new(Mutex::new(bytes)))
    }

    /// Reserves `bytes` bytes; `None` if fewer are left.
    fn take(&self, bytes: u64) -> Option<Reserved> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = &mut *left {
            *left = left.checked_sub(bytes)?;
        }
        Some(Reserved { allowance: self.clone(), bytes })
    }
}

/// Bytes taken from an [`Allowance`], returned when it is dropped.
struct Reserved {
    allowance: Allowance,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(left) = &mut *self.allowance.0.lock().unwrap_or_else(PoisonError::into_inner) {
            *left = left.saturating_add(self.bytes);
        }
    }
}

/// The kernel of a deferred partition.
pub(crate) struct DeferredKernel {
    gpu: Arc<Gpu>,
    compiler: Arc<Compiler>,
    fusion: bool,
    params: DelegateParams,
    /// Per input, whether lowering reads its data.
    is_operand: Vec<bool>,
    /// The partition with the operands of the last run.
    snapshot: Snapshot,
    allowance: Allowance,
    state: State,
}

enum State {
    /// No operands are known.
    New,
    /// Lowered with the operands of the last run.
    Ready(Box<WgpuKernel>, #[allow(dead_code)] Reserved),
    /// The operands of the last run cannot be lowered.
    Declined,
}

impl DeferredKernel {
    /// Creates a kernel for a partition of nodes that a [`Trial`] supports.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        compiler: &Arc<Compiler>,
        fusion: bool,
        allowance: &Allowance,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Self> {
        let mut snapshot = Snapshot::new(graph);
        let mut operands: Vec<TensorId> = Vec::new();
        for &id in &params.nodes {
            let node = graph.node(id);
            node.inputs().chain(node.outputs()).try_for_each(|tensor| snapshot.add(tensor))?;
            operands.extend(required(node));
        }
        operands.sort_unstable();
        let is_operand = params.inputs.iter().map(|id| operands.binary_search(id).is_ok()).collect();
        Ok(DeferredKernel {
            gpu: Arc::clone(gpu),
            compiler: Arc::clone(compiler),
            fusion,
            params: params.clone(),
            is_operand,
            snapshot,
            allowance: allowance.clone(),
            state: State::New,
        })
    }

    /// Takes shapes and operands of a run. Returns whether they differ from those of the last run.
    fn update(&mut self, cx: &mut PrepareContext<'_>) -> Result<bool> {
        let mut changed = matches!(self.state, State::New);
        let budget = Arc::clone(cx.host().budget());
        for (i, (id, is_operand)) in self.params.inputs.iter().zip(&self.is_operand).enumerate() {
            let (input, tensor) = (cx.input(i)?, &mut self.snapshot.tensors[id.0]);
            if tensor.shape != *input.shape() {
                tensor.shape = input.shape().clone();
                changed = true;
            }
            if !is_operand {
                continue;
            }
            let Some(bytes) = input.constant_bytes() else {
                return Err(failed(format!("the data of {} are not known", input.describe())));
            };
            if tensor.is_constant() && tensor.bytes() == bytes {
                continue;
            }
            changed = true;
            if !tensor.is_constant() {
                let mut charged = RuntimeTensor::with_budget(self.snapshot.file(*id), &budget)?;
                (charged.ty, charged.shape) = (input.ty(), input.shape().clone());
                self.snapshot.tensors[id.0] = charged;
            }
            self.snapshot.tensors[id.0].set_constant_copy(bytes)?;
        }
        Ok(changed)
    }

    /// Lowers the partition; [`State::Declined`] if that is not possible.
    fn build(&mut self) -> Result<State> {
        for &id in &self.params.nodes {
            if self.snapshot.infer(id).is_none() {
                return Ok(State::Declined);
            }
        }
        let data = self.params.inputs.iter().zip(&self.is_operand).enumerate().filter(|(_, (_, is))| !**is);
        let (positions, inputs): (Vec<usize>, Vec<TensorId>) = data.map(|(i, (id, _))| (i, *id)).unzip();
        let params = DelegateParams::new(self.params.nodes.clone())
            .with_inputs(inputs)
            .with_outputs(self.params.outputs.clone());
        let view = self.snapshot.view();
        let lowered = match ops::lower_partition(&self.gpu, self.fusion, &params, &view) {
            Ok(lowered) => lowered,
            Err(error) => {
                log::debug!("declined: {error}");
                return Ok(State::Declined);
            }
        };
        let Some(reserved) = self.allowance.take(WgpuKernel::bytes(&self.gpu, &lowered)?) else {
            log::debug!("declined: above the limit of device memory");
            return Ok(State::Declined);
        };
        let mut kernel = WgpuKernel::build(&self.gpu, &self.compiler, lowered, &params, &view)?;
        kernel.place_inputs(&positions);
        Ok(State::Ready(Box::new(kernel), reserved))
    }

    fn kernel(&mut self) -> Result<&mut WgpuKernel> {
        match &mut self.state {
            State::Ready(kernel, _) => Ok(kernel),
            State::New | State::Declined => Err(failed("the kernel of a deferred partition is not prepared")),
        }
    }

    fn ready(&self) -> Option<&WgpuKernel> {
        match &self.state {
            State::Ready(kernel, _) => Some(kernel),
            State::New | State::Declined => None,
        }
    }
}

impl Kernel for DeferredKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        if self.update(cx)? {
            // Frees the memory of the last operands first: both use one allowance.
            self.state = State::New;
            self.state = self.build()?;
        }
        if self.declines() {
            return Ok(());
        }
        for (i, id) in self.params.outputs.iter().enumerate() {
            cx.set_output_shape(i, self.snapshot.tensors[id.0].shape.clone())?;
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.kernel()?.invoke(cx)
    }
}

impl DelegateKernel for DeferredKernel {
    fn needs_data(&self) -> bool {
        true
    }

    fn declines(&self) -> bool {
        matches!(self.state, State::Declined)
    }

    fn stats(&self) -> DelegateStats {
        self.ready().map(DelegateKernel::stats).unwrap_or_default()
    }

    fn node_times(&self) -> &[NodeTime] {
        self.ready().map_or(&[], DelegateKernel::node_times)
    }

    fn half_tensors(&self) -> &[TensorId] {
        self.ready().map_or(&[], DelegateKernel::half_tensors)
    }

    fn device_kernels(&self) -> Vec<DeviceKernel> {
        self.ready().map(DelegateKernel::device_kernels).unwrap_or_default()
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        self.kernel()?.invoke_with(cx, buffers)
    }

    fn submit(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<Submitted> {
        self.kernel()?.submit(cx, buffers)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.kernel() {
            Ok(kernel) => kernel.poll(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn wait(&mut self) -> Result<()> {
        DelegateKernel::wait(self.kernel()?)
    }

    fn finish(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        self.kernel()?.finish(cx, buffers)
    }

    fn abandon(&mut self) {
        if let Ok(kernel) = self.kernel() {
            kernel.abandon();
        }
    }
}

/// Removes nodes whose operands another node of `nodes` computes: they are not known before the partition runs. Returns
/// the removed nodes.
pub(crate) fn remove_dependent(nodes: &mut Vec<NodeId>, graph: &GraphView<'_>) -> Vec<NodeId> {
    let mut computed = vec![false; graph.tensor_count()];
    for &id in nodes.iter() {
        graph.node(id).outputs().for_each(|tensor| computed[tensor.id().0] = true);
    }
    let (removed, kept) =
        nodes.iter().partition(|id| required(graph.node(**id)).any(|tensor| computed[tensor.0]));
    *nodes = kept;
    removed
}
