//! The kernel of a partition: buffers, pipelines and bind groups created once, one compute pass per run.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll, Waker};
use std::time::Duration;
use std::{iter, mem};

use delegraph_core::error::Location;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Result, Shape, TensorId, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Buffers, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, GraphView, NodeTime,
    Submitted, TensorInfo,
};
use web_time::Instant;

use crate::compile::{Compiler, RunningWarmup, VariantRequest};
use crate::device::{Gpu, POLL_TIMEOUT, Reports, Timer, collect, failed};
use crate::graph::storage_format::StorageFormat;
use crate::graph::{Fault, Graph, Step, ValueId};
use crate::memory::{Dispatch, GpuBuffer, Layout, Memory, Uploaded, plan};

/// Runs one partition.
pub(crate) struct WgpuKernel {
    gpu: Arc<Gpu>,
    compiler: Arc<Compiler>,
    /// The nodes, for error messages.
    nodes: String,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    checks: Vec<DataCheck>,
    dispatches: Vec<Dispatch>,
    /// The buffer from which outputs are read back.
    staging: Option<wgpu::Buffer>,
    timer: Option<Timer>,
    /// Held so that other kernels on the device can share the uploads.
    _uploaded: [Arc<Uploaded>; 2],
    /// Elements of an input, widened to 32-bit words.
    words: Vec<u32>,
    mapping: Arc<Mapping>,
    /// The run that was submitted and is not finished.
    run: Option<Run>,
    /// Reports of the device on commands that it did not report on yet.
    reports: Reports,
    stats: DelegateStats,
    /// FLOAT32 tensors that are stored in 16 bits.
    half_tensors: Vec<TensorId>,
    /// One entry per dispatch if each dispatch is measured.
    node_times: Vec<NodeTime>,
    /// Kernels that the driver compiles in the first run.
    compiling: Vec<delegraph_shaders::Variant>,
    request: Option<Arc<VariantRequest>>,
}

struct Input {
    name: String,
    shape: Shape,
    format: StorageFormat,
    buffer: wgpu::Buffer,
}

struct Output {
    format: StorageFormat,
    buffer: wgpu::Buffer,
    offset: u64,
    /// Offset in the staging buffer, in bytes.
    staged: u64,
    bytes: u64,
    /// For consumers on the device; `None` if the device stores the tensor in another format than the CPU.
    handle: Option<BufferHandle>,
    /// The input variable whose new value this is.
    state: Option<usize>,
}

/// A check of data, whose result is read back with the outputs.
struct DataCheck {
    buffer: wgpu::Buffer,
    offset: u64,
    /// Offset in the staging buffer, in bytes.
    staged: u64,
    bytes: u64,
    fault: Fault,
    node: Location,
}

impl DataCheck {
    /// Returns the error of the first element that fails the check. `result` is what the check wrote.
    fn fault(&self, result: &[u8]) -> Option<Error> {
        let (words, _) = result.as_chunks::<4>();
        let mut pairs = words.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        let [at, element] = pairs.find(|[at, _]| *at != [0; 4])?;
        let at = u32::from_ne_bytes(at).saturating_sub(1);
        let data = self.fault.describe(at, i32::from_ne_bytes(element));
        Some(Error::from(data).at(self.node.clone()))
    }
}

/// Variables among the inputs, by their numbers, and their memory.
type Variables<'a> = Vec<(usize, &'a mut [u8])>;

/// A submitted run whose outputs are to be read back.
struct Run {
    submission: wgpu::SubmissionIndex,
    start: Instant,
    uploaded: Instant,
    /// The threads that compile during a first run.
    warmup: Option<RunningWarmup>,
}

/// The progress of a request to map the staging buffer.
#[derive(Default)]
struct Mapping {
    request: Mutex<Request>,
    changed: Condvar,
}

#[derive(Default)]
struct Request {
    /// Whether the buffer was mapped; `None` until the device is done.
    result: Option<bool>,
    /// The task to wake with the result.
    waker: Option<Waker>,
}

impl Mapping {
    fn lock(&self) -> MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result, if it is available.
    fn result(&self) -> Option<bool> {
        self.lock().result
    }

    /// Clears the result of the last request.
    fn reset(&self) {
        self.lock().result = None;
    }

    /// Stores the result, and wakes its consumers.
    fn set(&self, mapped: bool) {
        let mut request = self.lock();
        request.result = Some(mapped);
        let waker = request.waker.take();
        drop(request);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the result. Returns false after [`POLL_TIMEOUT`].
    fn wait(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), POLL_TIMEOUT, |r| r.result.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.result.unwrap_or(false)
    }

    /// Returns the result if it is available; otherwise wakes `waker` when it is.
    fn poll(&self, waker: &Waker) -> Option<bool> {
        let mut request = self.lock();
        if request.result.is_none() {
            match &mut request.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        request.result
    }
}

impl WgpuKernel {
    /// Creates all resources for runs of `graph`. `view` is the model's graph, for names.
    pub(crate) fn build(
        gpu: &Arc<Gpu>,
        compiler: &Arc<Compiler>,
        graph: Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let (result, reports) = collect(|| gpu.checked(|| Self::make(gpu, compiler, &graph, params, view)));
        let mut kernel =
            result.map_err(|e| failed(format!("{e}, while preparing {}", describe(params, view))))??;
        kernel.reports = reports;
        Ok(kernel)
    }

    /// Holds `request`, and starts it at the first result.
    pub(crate) fn hold(&mut self, request: Arc<VariantRequest>) {
        self.request = Some(request);
    }

    /// Returns the bytes of device memory that `build` allocates for `graph`.
    pub(crate) fn bytes(gpu: &Gpu, graph: &Graph<'_>) -> Result<u64> {
        let outputs: u64 = graph.read_back().map(|id| staging(graph.value(*id).bytes())).sum();
        let timer = Timer::bytes_for(gpu, graph.steps.len());
        Ok(Layout::new(gpu, graph, &plan(graph))?.bytes() + outputs + timer)
    }

    fn make(
        gpu: &Arc<Gpu>,
        compiler: &Arc<Compiler>,
        graph: &Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let plan = plan(graph);
        let memory = Memory::new(gpu, graph, Layout::new(gpu, graph, &plan)?, view)?;
        let compiling = compiler.compile(memory.kernels.iter().map(|kernel| &kernel.variant));
        let dispatches = graph
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| memory.dispatch(gpu, compiler, graph, i, step, view))
            .collect::<Result<Vec<_>>>()?;
        let input = |(value, &id): (&ValueId, &TensorId)| -> Result<Input> {
            let tensor = view.tensor(id);
            let (buffer, _) = memory.storage(graph, *value)?;
            Ok(Input {
                name: tensor.name().to_owned(),
                shape: tensor.shape().cloned().unwrap_or_default(),
                format: graph.value(*value).format,
                buffer: buffer.clone(),
            })
        };
        let inputs = graph.inputs.iter().zip(&params.inputs).map(input).collect::<Result<Vec<_>>>()?;
        let mut staged = 0;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        let states = graph.outputs.len().saturating_sub(graph.states.len());
        for (i, &id) in graph.outputs.iter().enumerate() {
            let (buffer, range) = memory.storage(graph, id)?;
            let (format, bytes) = (graph.value(id).format, graph.value(id).bytes());
            let state = i.checked_sub(states).and_then(|i| graph.states.get(i)).copied();
            let handle = (format.is_identity() && state.is_none())
                .then(|| BufferHandle::new(GpuBuffer::new(gpu, buffer, range.offset, bytes)));
            let (buffer, offset) = (buffer.clone(), range.offset);
            outputs.push(Output { format, buffer, offset, staged, bytes, handle, state });
            staged += staging(bytes);
        }
        let mut checks = Vec::with_capacity(graph.checks.len());
        for check in &graph.checks {
            let (buffer, range) = memory.storage(graph, check.value)?;
            let node = view.model().locate(view.index(), check.node);
            let (buffer, fault) = (buffer.clone(), check.fault.clone());
            let (offset, bytes) = (range.offset, range.bytes);
            checks.push(DataCheck { buffer, offset, staged, bytes, fault, node });
            staged += staging(bytes);
        }
        let timer = Timer::new(gpu, dispatches.len(), staged);
        let size = staged + timer.as_ref().map_or(0, Timer::bytes);
        let staging = (size > 0).then(|| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let widened = inputs.iter().filter(|i| !i.format.is_identity()).map(|i| i.shape.elements()).max();
        let stats = DelegateStats::default()
            .with_device_bytes(memory.bytes() + size)
            .with_dispatches(dispatches.len());
        log::debug!(
            "{}: {} dispatches, {} slots of {} bytes, {} bytes of constants",
            describe(params, view),
            dispatches.len(),
            plan.bytes.len(),
            plan.bytes.iter().sum::<u64>(),
            memory.uploaded()[0].bytes(),
        );
        let each = timer.as_ref().is_some_and(Timer::each);
        let nodes = dispatches.iter().filter(|_| each).filter_map(|d| d.nodes.first());
        let node_times = nodes.map(|&node| NodeTime::new(node, Duration::ZERO)).collect();
        Ok(WgpuKernel {
            gpu: Arc::clone(gpu),
            compiler: Arc::clone(compiler),
            nodes: describe(params, view),
            inputs,
            outputs,
            checks,
            dispatches,
            staging,
            timer,
            _uploaded: memory.uploaded(),
            words: vec![0; widened.unwrap_or(0)],
            mapping: Arc::default(),
            run: None,
            reports: Reports::default(),
            stats,
            half_tensors: half_tensors(graph, view),
            node_times,
            compiling,
            request: None,
        })
    }

    /// Uploads inputs. Returns the memory of variables that get a new value.
    fn upload<'a>(&mut self, cx: &mut InvokeContext<'a>, buffers: &Buffers<'_>) -> Result<Variables<'a>> {
        let mut variables = Variables::new();
        for (i, input) in self.inputs.iter().enumerate() {
            if buffers.input(i).is_some() {
                continue;
            }
            let (words, queue) = (&mut self.words, &self.gpu.queue);
            let mut write = |bytes: &[u8]| {
                if input.format.is_identity() {
                    return queue.write_buffer(&input.buffer, 0, bytes);
                }
                let words = words.get_mut(..input.shape.elements()).unwrap_or_default();
                input.format.widen(bytes, words);
                queue.write_buffer(&input.buffer, 0, bytemuck::cast_slice(words));
            };
            if self.outputs.iter().any(|output| output.state == Some(i)) {
                let bytes = cx.variable_bytes(i)?;
                write(bytes);
                variables.push((i, bytes));
            } else {
                write(cx.input_bytes(i)?);
            }
        }
        Ok(variables)
    }

    /// Records one run. With `read`, time stamps are copied to the staging buffer.
    fn record(&self, staging: &wgpu::Buffer, buffers: &Buffers<'_>, read: bool) -> wgpu::CommandBuffer {
        let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
        for (i, input) in self.inputs.iter().enumerate() {
            if let Some(from) = buffers.input(i).and_then(BufferHandle::downcast_ref::<GpuBuffer>) {
                let bytes = Some(from.size());
                encoder.copy_buffer_to_buffer(from.buffer(), from.offset(), &input.buffer, 0, bytes);
            }
        }
        match &self.timer {
            // One pass per dispatch: the only time stamps that all devices support.
            Some(timer) if timer.each() => {
                for (i, dispatch) in self.dispatches.iter().enumerate() {
                    dispatch.record(&mut begin(&mut encoder, timer.writes(i)));
                }
            }
            timer if !self.dispatches.is_empty() => {
                let mut pass = begin(&mut encoder, timer.as_ref().and_then(|t| t.writes(0)));
                self.dispatches.iter().for_each(|dispatch| dispatch.record(&mut pass));
            }
            _ => {}
        }
        for (_, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_keep(*i)) {
            let bytes = Some(output.bytes);
            encoder.copy_buffer_to_buffer(&output.buffer, output.offset, staging, output.staged, bytes);
        }
        for check in &self.checks {
            let bytes = Some(check.bytes);
            encoder.copy_buffer_to_buffer(&check.buffer, check.offset, staging, check.staged, bytes);
        }
        if let Some(timer) = self.timer.as_ref().filter(|_| read) {
            timer.resolve(&mut encoder, staging);
        }
        encoder.finish()
    }

    fn read_back(
        &mut self,
        staging: &wgpu::Buffer,
        cx: &mut InvokeContext<'_>,
        buffers: &Buffers<'_>,
        variables: &mut Variables<'_>,
    ) -> Result<()> {
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        let piece = |from: u64, bytes: u64| {
            let (from, bytes) = (usize::try_from(from).ok()?, usize::try_from(bytes).ok()?);
            view.get(from..from.checked_add(bytes)?)
        };
        // Outputs and variables keep their values if data is invalid.
        let fault = |check: &DataCheck| check.fault(piece(check.staged, check.bytes).unwrap_or_default());
        if let Some(error) = self.checks.iter().find_map(fault) {
            return Err(error);
        }
        for (i, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_keep(*i)) {
            let to: &mut [u8] = match output.state {
                Some(of) => variables.iter_mut().find(|(i, _)| *i == of).map_or(&mut [], |(_, bytes)| bytes),
                None => cx.output_bytes(i)?,
            };
            let from = piece(output.staged, output.bytes).unwrap_or_default();
            if output.format.bytes_of(from.len() / 4) != to.len() {
                let (to, from) = (to.len(), from.len());
                return Err(failed(format!(
                    "output {i} has {to} bytes, the device holds it in {from} bytes of words"
                )));
            }
            match output.format {
                format if format.is_identity() => to.copy_from_slice(from),
                format => format.narrow(from, to),
            }
        }
        if let Some(timer) = &mut self.timer {
            self.stats.device_time = timer.read(piece(timer.staged(), timer.bytes()).unwrap_or_default());
            self.node_times.iter_mut().zip(timer.times()).for_each(|(node, time)| node.time = time);
        }
        Ok(())
    }

    /// Uploads inputs and submits the dispatches. Returns the memory of variables that get a new value.
    fn start<'a>(
        &mut self,
        cx: &mut InvokeContext<'a>,
        buffers: &mut Buffers<'_>,
    ) -> Result<(Submitted, Variables<'a>)> {
        self.abandon();
        let Some(staging) = self.staging.clone() else { return Ok((Submitted::Done, Variables::new())) };
        let start = Instant::now();
        let variables = self.upload(cx, buffers)?;
        let uploaded = Instant::now();
        let read = !self.checks.is_empty() || (0..self.outputs.len()).any(|i| !buffers.may_keep(i));
        let submission = self.gpu.queue.submit([self.record(&staging, buffers, read)]);
        for (i, output) in self.outputs.iter().enumerate() {
            if let Some(handle) = &output.handle {
                buffers.keep(i, handle.clone());
            }
        }
        if !read {
            // The consumer of the buffers waits for them, so only this check reports a lost device.
            if self.gpu.refuses_to_map() {
                return Err(failed(self.gpu.unfinished(None)));
            }
            self.stats.upload_time = Some(uploaded - start);
            (self.stats.device_time, self.stats.readback_time) = (None, None);
            return Ok((Submitted::Done, variables));
        }
        self.map(&staging);
        let warmup = self.compiler.warm_up(mem::take(&mut self.compiling));
        self.run = Some(Run { submission, start, uploaded, warmup });
        Ok((Submitted::Pending, variables))
    }

    /// As [`WgpuKernel::start`], with the checks around it.
    fn submit_run<'a>(
        &mut self,
        cx: &mut InvokeContext<'a>,
        buffers: &mut Buffers<'_>,
    ) -> Result<(Submitted, Variables<'a>)> {
        if let Some(reason) = self.gpu.lost() {
            return Err(failed(format!("the device was lost ({reason}), while running {}", self.nodes)));
        }
        if let Poll::Ready(Some(error)) = self.reports.poll(&mut task::Context::from_waker(Waker::noop())) {
            return Err(failed(format!("{error}, while running {}", self.nodes)));
        }
        let (submitted, variables) = self.located(|kernel| kernel.start(cx, buffers))?;
        if let (Submitted::Done, Some(request)) = (submitted, &self.request) {
            request.start();
        }
        Ok((submitted, variables))
    }

    /// Requests to map the staging buffer once the device is done.
    fn map(&self, staging: &wgpu::Buffer) {
        self.mapping.reset();
        let mapping = Arc::clone(&self.mapping);
        staging.map_async(wgpu::MapMode::Read, .., move |result| mapping.set(result.is_ok()));
    }

    /// Blocks until the device is done and the staging buffer is mapped.
    fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.gpu.wait(submission).map_err(failed)?;
        if self.mapping.wait() { Ok(()) } else { Err(failed(self.gpu.unfinished(None))) }
    }

    /// Copies outputs out of the staging buffer.
    fn end(
        &mut self,
        cx: &mut InvokeContext<'_>,
        buffers: &Buffers<'_>,
        mut variables: Variables<'_>,
    ) -> Result<()> {
        let (Some(staging), Some(run)) = (self.staging.clone(), self.run.take()) else { return Ok(()) };
        let Run { start, uploaded, warmup, .. } = run;
        drop(warmup);
        let done = Instant::now();
        let result = self.read_back(&staging, cx, buffers, &mut variables);
        staging.unmap();
        self.stats.upload_time = Some(uploaded - start);
        self.stats.readback_time = Some(done.elapsed());
        if self.timer.is_none() {
            self.stats.device_time = Some(done - uploaded);
        }
        result?;
        if let Some(request) = &self.request {
            request.start();
        }
        Ok(())
    }

    /// Runs `f`. An error names the nodes of the partition, or the node of the command that the device rejected.
    fn located<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let gpu = Arc::clone(&self.gpu);
        let (result, reports) = collect(|| gpu.checked(|| f(&mut *self)));
        self.reports.add(reports);
        match result {
            Ok(result) => result.map_err(|e| self.locate(e)),
            Err(e) => Err(failed(match self.gpu.gone() {
                Some(reason) => format!("the device was lost ({reason}), while running {}", self.nodes),
                None => format!("{e}, while running {}", self.culprit().unwrap_or(&self.nodes)),
            })),
        }
    }

    /// Adds the nodes to an error of this delegate.
    fn locate(&self, error: Error) -> Error {
        match error {
            Error::Delegate { message, .. } => failed(format!("{message}, while running {}", self.nodes)),
            other => other,
        }
    }

    /// Returns the dispatch that cannot be recorded, after a validation error.
    fn culprit(&self) -> Option<&str> {
        let fails = |dispatch: &&Dispatch| {
            let record = || {
                let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
                dispatch.record(&mut begin(&mut encoder, None));
                encoder.finish()
            };
            self.gpu.checked(record).is_err()
        };
        // If every dispatch fails, no single dispatch is the cause.
        let first = self.dispatches.iter().position(|d| fails(&d))?;
        let only = first > 0 || self.dispatches.last().is_some_and(|last| !fails(&last));
        (only || self.dispatches.len() == 1).then(|| self.dispatches[first].title.as_str())
    }
}

/// Bytes that an output occupies in the staging buffer.
fn staging(bytes: u64) -> u64 {
    bytes.next_multiple_of(wgpu::MAP_ALIGNMENT)
}

/// Begins a compute pass.
fn begin<'e>(
    encoder: &'e mut wgpu::CommandEncoder,
    timestamp_writes: Option<wgpu::ComputePassTimestampWrites<'_>>,
) -> wgpu::ComputePass<'e> {
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes })
}

impl Kernel for WgpuKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let outputs = self.outputs.iter().filter(|output| output.state.is_none()).count();
        if cx.input_count() != self.inputs.len() || cx.output_count() != outputs {
            return Err(failed(format!(
                "the partition has {} inputs and {} outputs, the kernel was built for {} and {outputs}",
                cx.input_count(),
                cx.output_count(),
                self.inputs.len(),
            )));
        }
        for (i, input) in self.inputs.iter().enumerate() {
            let shape = cx.input(i)?.shape();
            if *shape != input.shape {
                return Err(failed(format!(
                    "tensor \"{}\" has shape {shape}, the kernel was built for {}",
                    input.name, input.shape
                )));
            }
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        self.invoke_with(cx, &mut Buffers::new(&[], &[], &mut []))
    }
}

impl DelegateKernel for WgpuKernel {
    fn stats(&self) -> DelegateStats {
        self.stats
    }

    fn node_times(&self) -> &[NodeTime] {
        &self.node_times
    }

    fn half_tensors(&self) -> &[TensorId] {
        &self.half_tensors
    }

    fn device_kernels(&self) -> Vec<DeviceKernel> {
        let times = self.timer.iter().flat_map(|timer| timer.times()).map(Some).chain(iter::repeat(None));
        let kernel = |(d, time): (&Dispatch, Option<Duration>)| {
            let mut kernel = DeviceKernel::new(d.name, d.nodes.clone()).with_bytes(d.bytes);
            kernel.time = time;
            kernel
        };
        self.dispatches.iter().zip(times).map(kernel).collect()
    }

    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        let fits = |input: &Input| match buffer.downcast_ref::<GpuBuffer>() {
            Some(from) => {
                let words = if input.format == StorageFormat::WordPair { 2 } else { 1 };
                let bytes = 4 * words * input.shape.elements() as u64;
                let fits = input.format.is_identity() && from.size() == bytes && from.is_readable();
                fits && from.is_on(&self.gpu)
            }
            None => false,
        };
        self.inputs.get(input).is_some_and(fits)
    }

    fn keeps(&self, output: usize) -> bool {
        // Time stamps are read back together with an output.
        !self.gpu.profile && self.outputs.get(output).is_some_and(|output| output.handle.is_some())
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        match self.submit_run(cx, buffers)? {
            (Submitted::Done, _) => Ok(()),
            (Submitted::Pending, variables) => {
                DelegateKernel::wait(self)?;
                self.located(|kernel| kernel.end(cx, buffers, variables))
            }
        }
    }

    fn submit(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<Submitted> {
        self.submit_run(cx, buffers).map(|(submitted, _)| submitted)
    }

    /// In a browser, the callback of the mapped buffer wakes the task. Elsewhere wgpu delivers callbacks only while a
    /// thread polls the device: each call polls it once, without blocking, and wakes the task immediately to poll
    /// again.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<()>> {
        if self.run.is_none() {
            return Poll::Ready(Ok(()));
        }
        if let Err(message) = self.gpu.progress() {
            return Poll::Ready(Err(self.locate(failed(message))));
        }
        match self.mapping.poll(cx.waker()) {
            Some(true) => self.reports.poll(cx).map(|error| match error {
                None => Ok(()),
                Some(error) => Err(self.locate(failed(error.to_string()))),
            }),
            Some(false) => Poll::Ready(Err(self.locate(failed(self.gpu.unfinished(None))))),
            None => {
                if cfg!(not(target_arch = "wasm32")) {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        match self.run.as_ref().map(|run| run.submission.clone()) {
            Some(submission) => self.wait_for(submission).map_err(|e| self.locate(e)),
            None => Ok(()),
        }
    }

    fn finish(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let states = self.outputs.iter().filter_map(|output| output.state);
        let variables = states.map(|i| Ok((i, cx.variable_bytes(i)?))).collect::<Result<_>>()?;
        self.located(|kernel| kernel.end(cx, buffers, variables))
    }

    fn abandon(&mut self) {
        if self.run.take().is_none() {
            return;
        }
        // A late callback of this run must not be taken for the callback of the next run.
        let mapping = mem::take(&mut self.mapping);
        let Some(staging) = &self.staging else { return };
        match mapping.result() {
            Some(true) => return staging.unmap(),
            Some(false) => return,
            None => {}
        }
        // A buffer that is still to be mapped cannot be unmapped safely while other threads poll the device.
        let descriptor = wgpu::BufferDescriptor {
            label: Some("staging"),
            size: staging.size(),
            usage: staging.usage(),
            mapped_at_creation: false,
        };
        match self.gpu.create_buffer(&descriptor) {
            Ok(fresh) => self.staging = Some(fresh),
            Err(_) => staging.unmap(),
        }
    }
}

/// Lists the FLOAT32 tensors of `graph` that are stored in 16 bits. Those of values that passes removed are not stored.
fn half_tensors(graph: &Graph<'_>, view: &GraphView<'_>) -> Vec<TensorId> {
    let weights = |step: &Step<'_>| {
        let nodes = step.nodes.iter().filter(|_| step.half_weights);
        let tensors = nodes.flat_map(|id| view.node(*id).inputs()).filter(TensorInfo::is_constant);
        tensors.map(|tensor| tensor.id()).collect::<Vec<_>>()
    };
    let used: HashSet<ValueId> =
        graph.steps.iter().flat_map(|step| step.reads().chain([step.output])).collect();
    let values = used.into_iter().map(|id| graph.value(id)).filter(|value| value.half);
    let tensors = values.filter_map(|value| value.tensor).chain(graph.steps.iter().flat_map(weights));
    let is_float = |id: &TensorId| view.tensor(*id).ty() == TensorType::Float32;
    tensors.filter(is_float).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Nodes with their ops: all of them up to four, otherwise the number and the first and last.
fn describe(params: &DelegateParams, view: &GraphView<'_>) -> String {
    let one = |id: &delegraph_core::NodeId| format!("{} ({})", id.0, view.node(*id).op());
    match params.nodes.as_slice() {
        [only] => format!("node {}", one(only)),
        [first, .., last] if params.nodes.len() > 4 => {
            format!("{} nodes from {} to {}", params.nodes.len(), one(first), one(last))
        }
        few => format!("nodes {}", few.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::testing::{RUNS, allocations, delegate, run_altered};

    #[test]
    fn an_error_of_validation_names_the_node_and_its_op() {
        let Some(delegate) = delegate() else { return };
        let beyond_limits = |kernel: &mut WgpuKernel| kernel.dispatches[0].workgroups = [u32::MAX, 1, 1];
        let error = run_altered(delegate, beyond_limits).unwrap_err().to_string();
        assert!(error.contains("group size") && error.ends_with("while running node 0 (ABS)"), "{error}");
    }

    #[test]
    fn a_kernel_without_its_buffer_is_an_error() {
        let Some(delegate) = delegate() else { return };
        let destroy = |kernel: &mut WgpuKernel| kernel.outputs[0].buffer.destroy();
        let error = run_altered(delegate, destroy).unwrap_err().to_string();
        assert!(error.contains("destroyed") && error.contains("node 0 (ABS)"), "{error}");
        // The device still works.
        run_altered(delegate, |_| {}).unwrap();
    }

    #[test]
    fn out_of_memory_names_the_node() {
        let Some(delegate) = delegate() else { return };
        let (device, queue) = delegate.device_and_queue();
        let (device, queue, info) = (device.clone(), queue.clone(), delegate.adapter().clone());
        let delegate = crate::WgpuDelegate::with_device(device, queue, info, Default::default());
        delegate.gpu().full.store(true, Ordering::Relaxed);
        let error = run_altered(&delegate, |_| {}).unwrap_err().to_string();
        assert!(error.contains("node 0 (ABS): 32 bytes of device memory"), "{error}");
        delegate.gpu().full.store(false, Ordering::Relaxed);
        run_altered(&delegate, |_| {}).unwrap();
    }

    /// Returns the minimum number of allocations by the wgpu calls that a run of `kernel` requires.
    fn bare(kernel: &WgpuKernel) -> usize {
        let (gpu, staging) = (&kernel.gpu, kernel.staging.as_ref().unwrap());
        let buffers = Buffers::new(&[], &[], &mut []);
        let once = || {
            let before = allocations();
            // Starting and finishing are checked separately, as in a run.
            let submit = || {
                gpu.queue.write_buffer(&kernel.inputs[0].buffer, 0, &[0; 32]);
                let submission = gpu.queue.submit([kernel.record(staging, &buffers, true)]);
                kernel.map(staging);
                submission
            };
            let submission = gpu.checked(submit).unwrap();
            kernel.wait_for(submission).unwrap();
            let finish = || {
                drop(staging.get_mapped_range(..).unwrap());
                staging.unmap();
            };
            gpu.checked(finish).unwrap();
            allocations() - before
        };
        (0..RUNS).map(|_| once()).min().unwrap()
    }

    #[test]
    fn only_wgpu_allocates_in_a_run() {
        if delegate().is_none() {
            return;
        }
        // A separate device, since wgpu's allocations for other tests would be counted.
        let delegate = &crate::WgpuDelegate::new(Default::default()).unwrap();
        let mut per_dispatch = Vec::new();
        for count in [1, 100] {
            let mut least = 0;
            let taken = run_altered(delegate, |kernel| {
                let one = &kernel.dispatches[0];
                let again = |_| Dispatch {
                    pipeline: Arc::clone(&one.pipeline),
                    group: one.group.clone(),
                    nodes: Vec::new(),
                    title: String::new(),
                    ..*one
                };
                let more: Vec<_> = (1..count).map(again).collect();
                kernel.dispatches.extend(more);
                least = bare(kernel);
            });
            let taken = taken.unwrap();
            // Lists inside wgpu may grow once or twice.
            assert!(taken <= least + 2, "{count} dispatches: {taken} times, bare calls {least}");
            per_dispatch.push(least);
        }
        // wgpu's allocations grow with the number of dispatches, by at most two each.
        assert!(per_dispatch[1] <= per_dispatch[0] + 2 * 99, "{per_dispatch:?}");
        println!("1 and 100 dispatches: {per_dispatch:?}");
    }
}
