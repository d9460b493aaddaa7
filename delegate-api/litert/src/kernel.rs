//! The kernels of partitions, in the runtime's hands.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use delegraph_core::error::Error;
use delegraph_core::kernel::{
    AlignedBuffer, Host, InvokeContext, Placement, PrepareContext, Resources, RuntimeTensor, Serial,
};
use delegraph_core::{NodeId, Params, Shape, Subgraph, TensorId};
use delegraph_delegate_api::{
    Buffers, DelegateContext, DelegateKernel, DelegateParams, GraphView, KernelFactory,
};

use crate::abi::{self, Status, allocation};
use crate::bridge::{State, lock};
use crate::graph::Graph;
use crate::raw::{self, Result, checked};
use crate::runtime::{Partition, Runtime};

/// Runs foreign code: a panic in it becomes an error.
pub(crate) fn contain<T, E: std::fmt::Display>(f: impl FnOnce() -> Result<T, E>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(format!("it panicked: {text}"))
        }
    }
}

/// A kernel as the runtime holds it.
pub(crate) struct Kernel {
    /// The partition as the runtime describes it.
    pub(crate) partition: Partition,
    state: Arc<State>,
    graph: Arc<Mutex<Graph>>,
    /// All nodes of the claim that the partition is part of.
    claimed: Arc<[NodeId]>,
    made: Made,
}

/// A delegate's kernel, made and prepared for certain shapes, with all that it needs to run.
pub(crate) struct Made {
    /// None where all nodes are computed already.
    kernel: Option<Box<dyn DelegateKernel>>,
    /// The inputs and then the outputs, without data between two runs. The kernel knows them by their place here.
    tensors: Vec<RuntimeTensor>,
    /// The runtime's numbers of them.
    ids: Vec<TensorId>,
    inputs: Vec<Option<TensorId>>,
    outputs: Vec<TensorId>,
    /// Constants that somebody outside of the partition reads, and their shapes.
    constants: Vec<(TensorId, Shape, Vec<u8>)>,
    /// The shapes that everything here follows from.
    basis: Vec<(TensorId, Shape)>,
    temporaries: Vec<AlignedBuffer>,
    pointers: Vec<(*mut u8, usize)>,
}

// SAFETY: the pointers lead into `temporaries`, which moves between threads together with them.
unsafe impl Send for Made {}

impl Made {
    /// Makes and prepares the kernel of a partition of nodes that are all claimed. `claimed` are all nodes of the claim.
    pub(crate) fn new(
        graph: &Graph,
        view: &GraphView<'_>,
        partition: &Partition,
        claimed: &[NodeId],
        factory: &mut KernelFactory<'_>,
    ) -> Result<Self> {
        let nodes: Vec<NodeId> = partition.nodes.iter().map(|&n| graph.node_of(n)).collect::<Result<_>>()?;
        let ids = |list: &[c_int]| -> Result<Vec<TensorId>> {
            list.iter().filter(|&&t| t != -1).map(|&t| tensor_id(t, view)).collect()
        };
        let (mut inputs, all_outputs) = (ids(&partition.inputs)?, ids(&partition.outputs)?);
        inputs.retain(|&id| !view.tensor(id).is_constant());
        let (constants, outputs): (Vec<_>, Vec<_>) =
            all_outputs.into_iter().partition(|&id| view.tensor(id).is_constant());
        let outside =
            |id: &TensorId| view.subgraph().outputs.contains(id) || read_by_others(view, *id, claimed);
        let constants = constants.into_iter().filter(outside).map(|id| {
            let tensor = view.tensor(id).tensor();
            (id, tensor.shape.clone(), tensor.bytes().to_vec())
        });
        let constants = constants.collect();
        let params = DelegateParams { nodes, inputs, outputs };
        let folded = params.nodes.iter().all(|&n| view.node(n).state().folded);
        let kernel = if folded { None } else { Some(contain(|| factory(&params, view))?) };
        let DelegateParams { inputs, outputs, .. } = params;
        let basis = view.subgraph().inputs.iter().chain(&inputs);
        let basis = basis.map(|&id| (id, view.tensor(id).tensor().shape.clone())).collect();
        let ids: Vec<TensorId> = inputs.iter().chain(&outputs).copied().collect();
        let tensor = |id: &TensorId| {
            let mut tensor = RuntimeTensor::new(view.subgraph().tensor(*id));
            tensor.shape.clone_from(&view.tensor(*id).tensor().shape);
            tensor
        };
        let mut made = Made {
            kernel,
            tensors: ids.iter().map(tensor).collect(),
            inputs: (0..inputs.len()).map(|i| Some(TensorId(i))).collect(),
            outputs: (inputs.len()..ids.len()).map(TensorId).collect(),
            ids,
            constants,
            basis,
            temporaries: Vec::new(),
            pointers: Vec::new(),
        };
        made.prepare()?;
        Ok(made)
    }

    fn prepare(&mut self) -> Result<()> {
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        let (tensors, inputs, outputs, mut host) =
            (&mut self.tensors, &self.inputs, &self.outputs, Alone::default());
        let shapes = |tensors: &[RuntimeTensor]| tensors.iter().map(|t| t.shape.clone()).collect::<Vec<_>>();
        let before = shapes(tensors);
        let (bytes, data_dependent) = contain(|| {
            let params = &Params::None;
            let mut cx = PrepareContext::new(params, 1, inputs, outputs, tensors, false, 1, &mut host);
            kernel.prepare(&mut cx)?;
            Ok::<_, Error>(cx.finish())
        })?;
        if !data_dependent.is_empty() || shapes(tensors) != before {
            return Err("its kernel changed the shape of an output".into());
        }
        for bytes in bytes {
            let mut buffer = AlignedBuffer::zeroed(bytes).map_err(|e| e.to_string())?;
            self.pointers.push((buffer.bytes_mut().as_mut_ptr(), bytes));
            self.temporaries.push(buffer);
        }
        Ok(())
    }

    /// The shapes among the basis that the runtime has otherwise now.
    fn changed(&self, runtime: &Runtime) -> Result<bool> {
        for (id, shape) in &self.basis {
            if runtime.shape(id.0)? != *shape {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives the runtime's tensors the shapes of what will be written to them.
    fn fit_outputs(&self, runtime: &Runtime) -> Result<()> {
        let outputs =
            self.outputs.iter().filter_map(|id| Some((self.ids.get(id.0)?, &self.tensors.get(id.0)?.shape)));
        let constants = self.constants.iter().map(|(id, shape, _)| (id, shape));
        for (id, shape) in outputs.chain(constants) {
            let tensor = runtime.tensor(id.0)?;
            let missing = tensor.allocation_type == allocation::DYNAMIC && tensor.data.is_null();
            if missing || runtime.shape(id.0)? != *shape {
                runtime.resize(id.0, shape)?;
            }
        }
        Ok(())
    }

    fn invoke(&mut self, runtime: &Runtime) -> Result<()> {
        let result = self.run(runtime);
        // The runtime's memory is not ours beyond this call.
        self.tensors.iter_mut().for_each(RuntimeTensor::clear_data);
        result
    }

    fn run(&mut self, runtime: &Runtime) -> Result<()> {
        for (id, _, bytes) in &self.constants {
            let target = memory(runtime, *id, bytes.len())?;
            // SAFETY: `memory` found that the runtime has as many bytes there, which are not ours.
            unsafe { std::ptr::copy(bytes.as_ptr(), target, bytes.len()) };
        }
        let Some(kernel) = &mut self.kernel else { return Ok(()) };
        let mut copies = Vec::new();
        for (i, (tensor, &id)) in self.tensors.iter_mut().zip(&self.ids).enumerate() {
            let len = tensor.byte_size().map_err(|e| e.to_string())?;
            let data = memory(runtime, id, len)?;
            let align = tensor.ty.bits().map_or(1, |bits| (bits / 8).max(1));
            let variable = runtime.tensor(id.0)?.is_variable == 1;
            if data.addr().is_multiple_of(align) || len == 0 {
                let placement = if variable { Placement::Variable } else { Placement::Arena };
                // SAFETY: the runtime has `len` bytes there, which are the kernel's until it returns; inputs that are
                // no variables are only read.
                unsafe { tensor.set_data(placement, data, len) };
                continue;
            }
            // An application may bind buffers that start anywhere.
            if variable {
                return Err(format!("variable {} starts at {data:p}, which is not aligned", id.0));
            }
            tensor.allocate_bytes(Placement::Arena, len).map_err(|e| e.to_string())?;
            if i >= self.inputs.len() {
                copies.push((i, data));
            } else {
                // SAFETY: as above, and the tensor has memory of its own.
                let source = unsafe { raw::bytes(data.cast(), len, "an input") }?;
                tensor.bytes_mut().map_err(|e| e.to_string())?.copy_from_slice(source);
            }
        }
        let (inputs, outputs, temporaries) = (&self.inputs, &self.outputs, &self.pointers);
        let (tensors, mut host) = (&mut self.tensors, Alone::default());
        contain(|| {
            // SAFETY: ids are places in `tensors`; a partition's outputs are computed in it, its inputs outside; the
            // runtime gives tensors that are alive at one node disjoint memory, and temporaries are ours.
            let mut cx =
                unsafe { InvokeContext::new(inputs, outputs, tensors, temporaries, &Serial, &mut host) };
            // Everything is in the runtime's memory.
            kernel.invoke_with(&mut cx, &mut Buffers::new(&[], &[], &mut []))
        })?;
        for (i, target) in copies {
            let source = self.tensors.get(i).map(RuntimeTensor::bytes).unwrap_or_default();
            // SAFETY: the runtime has as many bytes there (see above).
            unsafe { std::ptr::copy(source.as_ptr(), target, source.len()) };
        }
        Ok(())
    }
}

fn tensor_id(index: c_int, view: &GraphView<'_>) -> Result<TensorId> {
    let id = usize::try_from(index).ok().filter(|&i| i < view.tensor_count());
    id.map(TensorId).ok_or_else(|| format!("a partition has tensor {index}, which there is not"))
}

/// Whether a node that is not claimed reads the tensor.
pub(crate) fn read_by_others(view: &GraphView<'_>, id: TensorId, claimed: &[NodeId]) -> bool {
    let reads = |node: NodeId| view.node(node).node().inputs.contains(&Some(id));
    view.nodes().any(|node| reads(node.id()) && !claimed.contains(&node.id()))
}

/// The memory of a tensor, of at least `len` bytes.
fn memory(runtime: &Runtime, id: TensorId, len: usize) -> Result<*mut u8> {
    let tensor = runtime.tensor(id.0)?;
    if tensor.bytes < len || (tensor.data.is_null() && len > 0) {
        let (has, at) = (tensor.bytes, tensor.data);
        return Err(format!("tensor {} needs {len} bytes, the runtime has {has} at {at:p}", id.0));
    }
    Ok(tensor.data.cast())
}

impl Kernel {
    pub(crate) fn new(
        partition: Partition,
        state: Arc<State>,
        graph: Arc<Mutex<Graph>>,
        claimed: Arc<[NodeId]>,
        made: Made,
    ) -> Self {
        Kernel { partition, state, graph, claimed, made }
    }

    /// The runtime prepares the node: makes the kernel anew where shapes changed.
    fn prepare(&mut self, runtime: &Runtime) -> Result<()> {
        if self.made.changed(runtime)? {
            self.made = self.remake(runtime)?;
        }
        self.made.fit_outputs(runtime)
    }

    fn remake(&self, runtime: &Runtime) -> Result<Made> {
        let mut graph = lock(&self.graph);
        let basis = self.made.basis.iter().map(|(id, _)| Ok((*id, runtime.shape(id.0)?)));
        let actual: HashMap<TensorId, Shape> = basis.collect::<Result<_>>()?;
        graph.infer(&actual);
        let made = self.remade(&graph);
        graph.forget();
        made
    }

    fn remade(&self, graph: &Graph) -> Result<Made> {
        let nodes: Vec<NodeId> =
            self.partition.nodes.iter().map(|&n| graph.node_of(n)).collect::<Result<_>>()?;
        let states = graph.states_of(&nodes);
        let view = graph.view_with(&states);
        let mut delegate = lock(&self.state.delegate);
        let mut cx = DelegateContext::new(view, delegate.max_versions().clone());
        contain(|| delegate.prepare(&mut cx))?;
        let (mut claims, reasons) = cx.finish();
        let claim = claims.iter_mut().find(|claim| nodes.iter().all(|n| claim.nodes.contains(n)));
        let Some(claim) = claim else {
            let reason = nodes.iter().find_map(|n| {
                let reason = graph.withheld(*n).map(str::to_owned);
                reason.or_else(|| reasons.get(n.0)?.as_ref().map(ToString::to_string))
            });
            let reason = reason.unwrap_or_else(|| "not claimed any more".into());
            return Err(format!("the nodes cannot be delegated with the new shapes: {reason}"));
        };
        Made::new(graph, &view, &self.partition, &self.claimed, &mut claim.factory)
    }

    /// The error with where it happened.
    fn failure(&self, error: &str) -> String {
        let nodes: Vec<String> = self.partition.nodes.iter().take(6).map(c_int::to_string).collect();
        let more = if self.partition.nodes.len() > 6 { ", …" } else { "" };
        let name = self.state.name.to_string_lossy();
        format!("delegate {name}: partition of nodes {}{more}: {error}", nodes.join(", "))
    }
}

/// There is nothing beyond the partition that a kernel could reach.
#[derive(Default)]
pub(crate) struct Alone(Resources);

fn unreachable_subgraph<T>() -> delegraph_core::Result<T> {
    Err(Error::Unsupported("calling other subgraphs from a delegate of this runtime".into()))
}

impl Host for Alone {
    fn resources(&mut self) -> &mut Resources {
        &mut self.0
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> delegraph_core::Result<Vec<Option<Shape>>> {
        unreachable_subgraph()
    }

    fn reset_callee(&mut self, _: usize) -> delegraph_core::Result<()> {
        unreachable_subgraph()
    }

    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> delegraph_core::Result<Vec<&RuntimeTensor>> {
        unreachable_subgraph()
    }
}

/// The registration of our kernels.
pub(crate) fn registration(state: &State) -> abi::OwnRegistration {
    let common = abi::Registration {
        init: Some(init),
        free: Some(free),
        prepare: Some(prepare),
        invoke: Some(invoke),
        profiling_string: std::ptr::null(),
        builtin_code: delegraph_core::BuiltinOp::DELEGATE.0,
        custom_name: state.name.as_ptr(),
        version: 1,
    };
    abi::OwnRegistration { common, later: [std::ptr::null(); 8] }
}

/// Hands the kernel of a partition, which `Prepare` made, to the runtime.
unsafe extern "C" fn init(context: *mut abi::Context, params: *const c_char, _: usize) -> *mut c_void {
    let found = contain(|| {
        let params = checked(params.cast::<abi::DelegateParams>(), "the params of a partition")?;
        // SAFETY: the runtime calls with the params of a partition, and with the delegate that it was given.
        let (partition, state) = unsafe { (Partition::read(params)?, State::of((*params).delegate)?) };
        state
            .take(&partition)
            .ok_or_else(|| "the runtime made another partition than it announced".to_owned())
    });
    match found {
        Ok(kernel) => Box::into_raw(kernel).cast(),
        Err(text) => {
            // SAFETY: the runtime's own context.
            let _ = unsafe { Runtime::new(context) }.map(|runtime| runtime.report(&text));
            std::ptr::without_provenance_mut(abi::INIT_FAILED)
        }
    }
}

unsafe extern "C" fn free(_: *mut abi::Context, kernel: *mut c_void) {
    if kernel.is_null() || kernel.addr() == abi::INIT_FAILED {
        return;
    }
    // SAFETY: what `init` gave, which the runtime frees once.
    let kernel = unsafe { Box::from_raw(kernel.cast::<Kernel>()) };
    let _ = contain(|| {
        drop(kernel);
        Ok::<_, String>(())
    });
}

/// Calls `f` with the kernel of a node; reports what goes wrong.
///
/// # Safety
/// The runtime calls with its context and a node of ours.
unsafe fn with_kernel(
    context: *mut abi::Context,
    node: *mut abi::Node,
    f: impl FnOnce(&mut Kernel, &Runtime) -> Result<()>,
) -> Status {
    // SAFETY: the runtime's own context.
    let Ok(runtime) = (unsafe { Runtime::new(context) }) else { return abi::ERROR };
    let result = contain(|| {
        let node = checked(node.cast_const(), "the node")?;
        // SAFETY: not null and aligned.
        let kernel = checked(unsafe { (*node).user_data }.cast::<Kernel>().cast_const(), "the kernel")?;
        // SAFETY: what `init` gave for this node; the runtime uses a node on one thread at a time.
        let kernel = unsafe { &mut *kernel.cast_mut() };
        f(kernel, &runtime).map_err(|e| kernel.failure(&e))
    });
    match result {
        Ok(()) => abi::OK,
        Err(text) => {
            runtime.report(&text);
            abi::ERROR
        }
    }
}

unsafe extern "C" fn prepare(context: *mut abi::Context, node: *mut abi::Node) -> Status {
    // SAFETY: called by the runtime.
    unsafe { with_kernel(context, node, Kernel::prepare) }
}

unsafe extern "C" fn invoke(context: *mut abi::Context, node: *mut abi::Node) -> Status {
    // SAFETY: called by the runtime.
    unsafe { with_kernel(context, node, |kernel, runtime| kernel.made.invoke(runtime)) }
}
