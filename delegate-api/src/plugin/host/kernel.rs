//! A plugin's kernel as a [`DelegateKernel`].

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use delegraph_core::kernel::Temporary;
use delegraph_core::{Error, InvokeContext, Kernel, NodeId, PrepareContext, Result, Shape, TensorType};

use super::super::abi::*;
use super::super::raw::{MessageRoom, slice};
use super::delegate::Instance;
use super::frames::{Invokes, KernelPrepares, Scope, enter};
use crate::{DelegateKernel, DelegateParams, DelegateStats, GraphView, NodeTime};

/// The kernel that a plugin made.
pub(super) struct KernelHandle {
    kernel: *mut c_void,
    instance: Arc<Instance>,
}

// SAFETY: the interface lets a kernel be used by any thread, one at a time, which `&mut` sees to.
unsafe impl Send for KernelHandle {}

impl KernelHandle {
    /// `None` where there is none.
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
    /// Ascending.
    nodes: Vec<NodeId>,
    /// Of the last run. Asked for after it: a plugin is not to be called through a shared reference.
    times: Vec<NodeTime>,
    inputs: Buffers,
    outputs: Buffers,
    temporaries: Buffers,
    asked: Vec<Temporary>,
}

/// Descriptions of buffers, and pointers to them, both of which live from one run to the next: nothing is allocated
/// in `invoke`.
#[derive(Default)]
struct Buffers {
    // Boxed, so that pointers to them stay right.
    all: Box<[DelegraphBuffer]>,
    pointers: Vec<*const DelegraphBuffer>,
}

// SAFETY: the pointers lead into `all`, or to memory that is only looked at during one call.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new(all: impl IntoIterator<Item = DelegraphBuffer>) -> Self {
        let mut buffers = Buffers { all: all.into_iter().collect(), pointers: Vec::new() };
        buffers.pointers.reserve_exact(buffers.all.len());
        buffers
    }

    /// Pointers to all descriptions as they are now.
    fn pointers(&mut self) -> (*const *const DelegraphBuffer, usize) {
        self.pointers.clear();
        self.pointers.extend(self.all.iter().map(std::ptr::from_ref));
        (self.pointers.as_ptr(), self.pointers.len())
    }
}

fn buffer(element_type: i32, flags: u32) -> DelegraphBuffer {
    let (data, dims) = (std::ptr::null_mut(), std::ptr::null());
    let size = size_of::<DelegraphBuffer>();
    DelegraphBuffer { size, data, data_len: 0, dims, rank: 0, element_type, flags }
}

fn set_shape(buffer: &mut DelegraphBuffer, shape: &Shape) {
    (buffer.dims, buffer.rank) = (shape.dims().as_ptr(), shape.rank());
}

fn set_data(buffer: &mut DelegraphBuffer, bytes: *const u8, len: usize) {
    (buffer.data, buffer.data_len) = (bytes.cast_mut().cast(), len);
}

impl PluginKernel {
    pub(super) fn new(handle: KernelHandle, params: &DelegateParams, graph: &GraphView<'_>) -> Self {
        let describe = |id: &delegraph_core::TensorId| {
            let tensor = graph.tensor(*id);
            let variable = if tensor.is_variable() { DELEGRAPH_TENSOR_VARIABLE } else { 0 };
            let dynamic = if tensor.ty() == TensorType::String { DELEGRAPH_TENSOR_DYNAMIC } else { 0 };
            buffer(tensor.ty() as i32, variable | dynamic)
        };
        let inputs = Buffers::new(
            params
                .inputs
                .iter()
                .map(describe)
                .map(|b| DelegraphBuffer { flags: b.flags & DELEGRAPH_TENSOR_VARIABLE, ..b }),
        );
        let outputs = Buffers::new(params.outputs.iter().map(describe));
        let (mut nodes, temporaries, asked) = (params.nodes.clone(), Buffers::default(), Vec::new());
        nodes.sort_unstable();
        let times = Vec::with_capacity(nodes.len());
        PluginKernel { handle, nodes, times, inputs, outputs, temporaries, asked }
    }

    /// Takes the times of nodes, as far as they are nodes of the partition.
    fn take_times(&mut self) {
        self.times.clear();
        let Some(node_times) = self.handle.instance.library.functions.node_times else { return };
        let mut count = 0;
        // SAFETY: `create_kernel` made the kernel, and `&mut self` keeps others out.
        let list = unsafe { node_times(self.handle.kernel, &raw mut count) };
        // SAFETY: there are as many as it says, of which there is one a node at most, until the kernel is used again.
        let list = unsafe { slice(list, count.min(self.nodes.len())) }.unwrap_or_default();
        let own = list.iter().filter(|t| self.nodes.binary_search(&NodeId(t.node)).is_ok());
        self.times.extend(
            own.map(|t| NodeTime { node: NodeId(t.node), time: Duration::from_nanos(t.nanoseconds) }),
        );
    }

    fn call(&mut self, threads: usize) -> DelegraphKernelCall {
        let ((inputs, input_count), (outputs, output_count)) =
            (self.inputs.pointers(), self.outputs.pointers());
        let (temporaries, temporary_count) = self.temporaries.pointers();
        DelegraphKernelCall {
            size: size_of::<DelegraphKernelCall>(),
            inputs,
            input_count,
            outputs,
            output_count,
            temporaries,
            temporary_count,
            threads,
        }
    }
}

/// What a kernel asks for while it prepares.
struct Asked<'c, 'p> {
    cx: RefCell<&'c mut PrepareContext<'p>>,
    temporaries: RefCell<Vec<Temporary>>,
    dynamic: RefCell<Vec<usize>>,
}

impl KernelPrepares for Asked<'_, '_> {
    fn temporary(&self, bytes: usize) -> usize {
        let mut all = self.temporaries.borrow_mut();
        all.push(self.cx.borrow_mut().temporary(bytes));
        all.len() - 1
    }

    fn set_output_shape(&self, output: usize, dims: &[usize]) -> Result<()> {
        self.dynamic.borrow_mut().retain(|&o| o != output);
        self.cx.borrow_mut().set_output_shape(output, dims)
    }

    fn set_output_dynamic(&self, output: usize) -> Result<()> {
        self.cx.borrow_mut().set_output_data_dependent(output)?;
        self.dynamic.borrow_mut().push(output);
        Ok(())
    }
}

/// What a kernel asks for while it runs.
struct Running<'c, 'i>(RefCell<&'c mut InvokeContext<'i>>, &'c dyn delegraph_core::kernel::Parallel);

impl Invokes for Running<'_, '_> {
    fn resize_output(&self, output: usize, dims: &[usize], bytes: usize) -> Result<*mut u8> {
        let mut cx = self.0.borrow_mut();
        cx.resize_output_bytes(output, dims, bytes)?;
        cx.output_bytes(output).map(<[u8]>::as_mut_ptr)
    }

    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.1.run(tasks, task);
    }

    fn is_cancelled(&self) -> bool {
        self.0.borrow_mut().host().is_cancelled()
    }

    fn progress(&self, done: usize, total: usize) {
        self.0.borrow_mut().host().progress(done, total);
    }
}

impl Kernel for PluginKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        for (i, buffer) in self.inputs.all.iter_mut().enumerate() {
            let input = cx.input(i)?;
            set_shape(buffer, input.shape());
            let known = input.constant_bytes();
            set_data(buffer, known.map_or(std::ptr::null(), <[u8]>::as_ptr), known.map_or(0, <[u8]>::len));
        }
        for (i, buffer) in self.outputs.all.iter_mut().enumerate() {
            set_shape(buffer, cx.output(i)?.shape());
            set_data(buffer, std::ptr::null(), 0);
        }
        self.temporaries = Buffers::default();
        self.asked.clear();
        let Some(prepare) = self.handle.instance.library.functions.prepare_kernel else { return Ok(()) };
        let call = self.call(cx.threads());
        let kernel = self.handle.kernel;
        let asked =
            Asked { cx: RefCell::new(cx), temporaries: RefCell::default(), dynamic: RefCell::default() };
        enter(Scope::PrepareKernel(&asked), &mut MessageRoom::new(), |context, error| {
            // SAFETY: `create_kernel` made the kernel, `&mut self` keeps others out; `call` describes what is there.
            unsafe { prepare(kernel, context, &raw const call, error) }
        })?;
        self.asked = asked.temporaries.into_inner();
        self.temporaries = Buffers::new(self.asked.iter().map(|_| buffer(TensorType::UInt8 as i32, 0)));
        for output in asked.dynamic.into_inner() {
            if let Some(buffer) = self.outputs.all.get_mut(output) {
                buffer.flags |= DELEGRAPH_TENSOR_DYNAMIC;
            }
        }
        // So that the first run finds room for them.
        self.call(1);
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        for (i, buffer) in self.inputs.all.iter_mut().enumerate() {
            set_shape(buffer, cx.input_shape(i)?);
            if buffer.flags & DELEGRAPH_TENSOR_VARIABLE != 0 {
                let bytes = cx.variable_bytes(i)?;
                set_data(buffer, bytes.as_mut_ptr(), bytes.len());
            } else {
                let bytes = cx.input_bytes(i)?;
                set_data(buffer, bytes.as_ptr(), bytes.len());
            }
        }
        for (i, buffer) in self.outputs.all.iter_mut().enumerate() {
            if buffer.flags & DELEGRAPH_TENSOR_DYNAMIC != 0 {
                set_data(buffer, std::ptr::null(), 0);
                continue;
            }
            set_shape(buffer, cx.output_shape(i)?);
            let bytes = cx.output_bytes(i)?;
            set_data(buffer, bytes.as_mut_ptr(), bytes.len());
        }
        for (temporary, buffer) in self.asked.iter().zip(&mut self.temporaries.all) {
            let bytes = cx.temporary::<u8>(*temporary)?;
            set_data(buffer, bytes.as_mut_ptr(), bytes.len());
        }
        let parallel = cx.parallel();
        let call = self.call(parallel.threads());
        let invoke = self.handle.instance.library.functions.invoke_kernel;
        let running = Running(RefCell::new(cx), parallel);
        enter(Scope::Invoke(&running), &mut MessageRoom::new(), |context, error| {
            // SAFETY: as in `prepare`. Inputs, outputs and temporaries were handed out by the context, which sees to it
            // that they are valid and do not overlap.
            unsafe { invoke(self.handle.kernel, context, &raw const call, error) }
        })?;
        if parallel.take_panicked() {
            return Err(Error::State("a task of it failed on another thread".into()));
        }
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
            upload_ms: -1.0,
            device_ms: -1.0,
            readback_ms: -1.0,
            dispatches: 0,
        };
        // SAFETY: `create_kernel` made the kernel. It is not running: that would need `&mut self`.
        unsafe { stats(self.handle.kernel, &raw mut out) };
        let known = |ms: f64| (ms >= 0.0).then_some(ms);
        DelegateStats {
            device_bytes: out.device_bytes,
            upload_ms: known(out.upload_ms),
            device_ms: known(out.device_ms),
            readback_ms: known(out.readback_ms),
            dispatches: out.dispatches,
        }
    }
}
