//! A delegate's kernel, wrapped for the functions of the table.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use delegraph_core::error::counted;
use delegraph_core::kernel::{Host as KernelHost, Parallel, Placement, Resources, RuntimeTensor};
use delegraph_core::{
    Error, InvokeContext, Kernel, Params, PrepareContext, Result, Shape, Subgraph, TensorId, TensorType,
};

use super::super::abi::*;
use super::super::raw::{read, slice};
use super::contain::contain;
use super::host::{Host, Persistent};
use crate::DelegateKernel;

/// A kernel with its own tensors, which represent the application's tensors during a call.
pub(super) struct ExportedKernel<K: Kernel + ?Sized> {
    kernel: Box<K>,
    host: Host,
    /// `Params::Custom` for the kernel of a custom op, otherwise `Params::None`.
    params: Params,
    version: u32,
    persistent: Option<Persistent>,
    /// Inputs, then outputs.
    tensors: Vec<RuntimeTensor>,
    inputs: Vec<Option<TensorId>>,
    outputs: Vec<TensorId>,
    temporaries: Vec<(*mut u8, usize)>,
    application: Application,
    times: Vec<DelegraphNodeTime>,
}

impl<K: Kernel + ?Sized> ExportedKernel<K> {
    /// Creates a kernel with these operands: one input per entry of `left_out`, then outputs.
    pub(super) fn new(kernel: Box<K>, host: Host, tensors: Vec<RuntimeTensor>, left_out: &[bool]) -> Self {
        let input = |(i, left_out): (usize, &bool)| (!left_out).then_some(TensorId(i));
        ExportedKernel {
            kernel,
            host,
            params: Params::None,
            version: 1,
            persistent: None,
            inputs: left_out.iter().enumerate().map(input).collect(),
            outputs: (left_out.len()..tensors.len()).map(TensorId).collect(),
            tensors,
            temporaries: Vec::new(),
            application: Application { host, context: 0, resources: Resources::default() },
            times: Vec::new(),
        }
    }

    /// Sets the version of a custom op, and the function for persistent memory.
    pub(super) fn of_op(mut self, version: u32, persistent: Option<Persistent>) -> Self {
        (self.params, self.version, self.persistent) = (Params::Custom, version, persistent);
        self
    }

    /// Returns whether tensor `i` of a call represents an omitted input.
    fn is_left_out(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_none)
    }

    /// # Safety
    /// `call` follows the interface.
    pub(super) unsafe fn prepare(
        &mut self,
        context: DelegraphContext,
        call: *const DelegraphKernelCall,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let call = unsafe { self.take_shapes(call) }?;
        // An application that prepares the kernel during an invocation passes the data of all inputs.
        let mut known = call.input_count > 0;
        for i in 0..self.tensors.len() {
            if self.is_left_out(i) {
                continue;
            }
            let tensor = &mut self.tensors[i];
            tensor.clear_data();
            // SAFETY: guaranteed by the caller.
            let buffer = unsafe { buffer(&call, i) }?;
            if buffer.flags & DELEGRAPH_TENSOR_VARIABLE != 0 {
                // SAFETY: a range of zero bytes is valid for reads and writes.
                unsafe { tensor.set_data(Placement::Variable, std::ptr::null_mut(), 0) };
            } else if i < call.input_count && !buffer.data.is_null() {
                let constant = buffer.flags & DELEGRAPH_TENSOR_CONSTANT != 0;
                let placement = if constant { Placement::Constant } else { Placement::Arena };
                // SAFETY: the application's memory, valid during the call; cleared below.
                unsafe { tensor.set_data(placement, buffer.data.cast(), buffer.data_len) };
            } else if i < call.input_count {
                known = false;
            }
        }
        let shapes: Vec<Shape> = self.outputs.iter().map(|id| self.tensors[id.0].shape.clone()).collect();
        let (inputs, outputs, tensors) = (&self.inputs, &self.outputs, &mut self.tensors);
        let threads = call.threads.max(1);
        self.application.context = context;
        let host = &mut self.application;
        let (params, version) = (&self.params, self.version);
        let mut cx = PrepareContext::new(params, version, inputs, outputs, tensors, host)
            .with_threads(threads)
            .with_known_inputs(known);
        if self.persistent.is_some() {
            cx = cx.with_persistent_memory();
        }
        let prepared = self.kernel.prepare(&mut cx);
        let kept: Vec<usize> = cx.persistent_requests().to_vec();
        let requests = cx.finish();
        let (temporaries, dynamic) = (requests.temporaries(), requests.data_dependent());
        tensors.iter_mut().for_each(RuntimeTensor::clear_data);
        prepared?;
        for ((i, id), before) in outputs.iter().enumerate().zip(shapes) {
            if dynamic.contains(id) {
                self.host.set_output_dynamic(context, i)?;
            } else if tensors[id.0].shape != before || matches!(self.params, Params::Custom) {
                self.host.set_output_shape(context, i, &tensors[id.0].shape)?;
            }
        }
        for (i, &bytes) in temporaries.iter().enumerate() {
            match self.persistent.filter(|_| kept.contains(&i)) {
                Some(persistent) => self.host.persistent(context, bytes, persistent)?,
                None => self.host.temporary(context, bytes)?,
            }
        }
        self.temporaries = Vec::with_capacity(temporaries.len());
        Ok(())
    }

    /// # Safety
    /// `call` follows the interface.
    pub(super) unsafe fn invoke(
        &mut self,
        context: DelegraphContext,
        call: *const DelegraphKernelCall,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let call = unsafe { self.take_shapes(call) }?;
        // SAFETY: guaranteed by the caller.
        let result = unsafe { self.take_data(&call) }.and_then(|()| self.run(context, &call));
        // The memory belongs to the application again.
        self.tensors.iter_mut().for_each(RuntimeTensor::clear_data);
        self.temporaries.clear();
        result
    }

    fn run(&mut self, context: DelegraphContext, call: &DelegraphKernelCall) -> Result<()> {
        let threads = Threads {
            host: self.host,
            context,
            threads: call.threads.max(1),
            failed: AtomicBool::new(false),
        };
        self.application.context = context;
        // SAFETY: ids are below the number of tensors, and no output is an input. The application guarantees that
        // memory of tensors and temporaries is valid until the call returns, and does not overlap.
        let mut cx = unsafe {
            let (inputs, outputs) = (&self.inputs, &self.outputs);
            let tensors = &mut self.tensors;
            InvokeContext::new(inputs, outputs, tensors, &self.temporaries, &threads, &mut self.application)
        };
        self.kernel.invoke(&mut cx)?;
        drop(cx);
        if threads.take_panicked() {
            return Err(Error::State("a task panicked on another thread".into()));
        }
        for (i, id) in self.outputs.iter().enumerate() {
            let tensor = &self.tensors[id.0];
            if tensor.placement() == Placement::Dynamic {
                self.host.write_output(context, i, &tensor.shape, tensor.bytes())?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// `call` follows the interface.
    unsafe fn take_shapes(&mut self, call: *const DelegraphKernelCall) -> Result<DelegraphKernelCall> {
        // SAFETY: guaranteed by the caller.
        let call = unsafe { read(call) }.ok_or_else(|| Error::State("there is no call".into()))?;
        if (call.input_count, call.output_count) != (self.inputs.len(), self.outputs.len()) {
            return Err(Error::State("the numbers of inputs and outputs differ from the partition".into()));
        }
        for i in 0..self.tensors.len() {
            if self.is_left_out(i) {
                continue;
            }
            let tensor = &mut self.tensors[i];
            // SAFETY: guaranteed by the caller.
            let buffer = unsafe { buffer(&call, i) }?;
            // SAFETY: guaranteed by the caller.
            let dims = unsafe { slice(buffer.dims, buffer.rank) }.unwrap_or_default();
            if tensor.shape.dims() != dims {
                tensor.shape = dims.into();
            }
        }
        Ok(call)
    }

    /// # Safety
    /// `call` follows the interface, and was checked by `take_shapes`.
    unsafe fn take_data(&mut self, call: &DelegraphKernelCall) -> Result<()> {
        for i in 0..self.tensors.len() {
            if self.is_left_out(i) {
                continue;
            }
            let tensor = &mut self.tensors[i];
            // SAFETY: guaranteed by the caller.
            let buffer = unsafe { buffer(call, i) }?;
            if i >= call.input_count && buffer.flags & DELEGRAPH_TENSOR_DYNAMIC != 0 {
                tensor.allocate_bytes(Placement::Dynamic, 0)?;
                continue;
            }
            let needed = tensor.byte_size()?;
            if buffer.data_len < needed && tensor.ty != TensorType::String {
                return Err(Error::State(format!(
                    "tensor \"{}\" has {}, its type and shape need {needed}",
                    tensor.name,
                    counted(buffer.data_len, "byte")
                )));
            }
            let variable = buffer.flags & DELEGRAPH_TENSOR_VARIABLE != 0;
            let placement = if variable { Placement::Variable } else { Placement::Arena };
            // SAFETY: the application's memory is valid until the call returns; `invoke` clears the pointer before
            // that.
            unsafe { tensor.set_data(placement, buffer.data.cast(), buffer.data_len) };
        }
        self.temporaries.clear();
        // SAFETY: guaranteed by the caller.
        for pointer in unsafe { slice(call.temporaries, call.temporary_count) }.unwrap_or_default() {
            // SAFETY: as above.
            let buffer =
                unsafe { read(*pointer) }.ok_or_else(|| Error::State("a temporary is missing".into()))?;
            self.temporaries.push((buffer.data.cast(), buffer.data_len));
        }
        Ok(())
    }
}

impl ExportedKernel<dyn DelegateKernel> {
    pub(super) fn stats(&self) -> DelegraphStats {
        let stats = self.kernel.stats();
        let known = |time: Option<Duration>| time.map_or(DELEGRAPH_TIME_UNKNOWN, nanoseconds);
        DelegraphStats {
            size: size_of::<DelegraphStats>(),
            device_bytes: stats.device_bytes,
            upload_nanoseconds: known(stats.upload_time),
            device_nanoseconds: known(stats.device_time),
            readback_nanoseconds: known(stats.readback_time),
            dispatches: stats.dispatches,
        }
    }

    pub(super) fn node_times(&mut self) -> &[DelegraphNodeTime] {
        let times = self.kernel.node_times().iter();
        self.times.clear();
        self.times
            .extend(times.map(|t| DelegraphNodeTime { node: t.node.0, nanoseconds: nanoseconds(t.time) }));
        &self.times
    }
}

/// Returns the nanoseconds of a time, at most `u64::MAX`.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns tensor `i` of a call: inputs, then outputs.
///
/// # Safety
/// `call` follows the interface.
unsafe fn buffer(call: &DelegraphKernelCall, i: usize) -> Result<DelegraphBuffer> {
    // SAFETY: guaranteed by the caller.
    let (inputs, outputs) =
        unsafe { (slice(call.inputs, call.input_count), slice(call.outputs, call.output_count)) };
    let (inputs, outputs) = (inputs.unwrap_or_default(), outputs.unwrap_or_default());
    let pointer = inputs.iter().chain(outputs).nth(i);
    // SAFETY: guaranteed by the caller.
    pointer
        .and_then(|p| unsafe { read(*p) })
        .ok_or_else(|| Error::State(format!("tensor {i} of a call is missing")))
}

/// The application's threads.
struct Threads {
    host: Host,
    context: DelegraphContext,
    threads: usize,
    failed: AtomicBool,
}

// SAFETY: the application's `parallel` calls `task` once per index and returns when all calls have ended, as the ABI
// requires; `task` calls `f` with that index.
unsafe impl Parallel for Threads {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        struct Work<'w> {
            f: &'w (dyn Fn(usize) + Sync),
            failed: &'w AtomicBool,
        }
        unsafe extern "C" fn task(user: *mut c_void, index: usize) {
            // SAFETY: `user` points to the work below, which outlives the call that receives it.
            let work = unsafe { &*user.cast::<Work<'_>>() };
            if contain(|| (work.f)(index)).is_err() {
                work.failed.store(true, Ordering::Relaxed);
            }
        }
        let work = Work { f, failed: &self.failed };
        let user = std::ptr::from_ref(&work).cast_mut().cast();
        if !self.host.parallel(self.context, tasks, task, user) {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    fn take_panicked(&self) -> bool {
        self.failed.swap(false, Ordering::Relaxed)
    }
}

/// The application's services for kernels. Resource variables and subgraphs of the interpreter are not available in
/// plugins, which cannot claim nodes that use resource variables.
struct Application {
    host: Host,
    context: DelegraphContext,
    resources: Resources,
}

fn unreachable() -> Error {
    Error::Unsupported("a kernel of a plugin cannot call other subgraphs of the model".into())
}

impl KernelHost for Application {
    fn resources(&mut self) -> &mut Resources {
        &mut self.resources
    }

    fn subgraph(&self, _: usize) -> Option<&Subgraph> {
        None
    }

    fn prepare_callee(&mut self, _: usize, _: &[Shape]) -> Result<Vec<Option<Shape>>> {
        Err(unreachable())
    }

    fn reset_callee(&mut self, _: usize) -> Result<()> {
        Err(unreachable())
    }

    fn call(&mut self, _: usize, _: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        Err(unreachable())
    }

    fn is_cancelled(&self) -> bool {
        self.host.is_cancelled(self.context)
    }

    fn progress(&mut self, done: usize, total: usize) {
        self.host.progress(self.context, done, total);
    }
}
