//! The kernel of a partition: buffers, pipelines and bind groups created once, and one compute pass per run, or per
//! submission of a long run.

mod chunks;
mod mapping;
mod operands;
mod variables;

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;
use std::{iter, mem, vec};

use delegraph_core::error::{Location, counted};
use delegraph_core::kernel::{Budget, InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Result, TensorId, TensorType};
use delegraph_delegate_api::{
    BufferHandle, Buffers, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, GraphView, NodeTime,
    Submitted, TensorInfo,
};
use web_time::Instant;

use crate::compile::{Compiler, RunningWarmup, VariantRequest};
use crate::device::{Gpu, Reports, Timer, collect, failed};
use crate::graph::{Graph, Step, ValueId};
use crate::memory::{Dispatch, GpuBuffer, Layout, Memory, Uploaded, plan};
use mapping::Mapping;
use operands::{DataCheck, Input, Output};
use variables::{AssignedVariables, ReadVariable};

/// Maximum number of unfinished submissions of a long run.
const IN_FLIGHT: usize = 2;

/// Runs one partition.
pub(crate) struct WgpuKernel {
    gpu: Arc<Gpu>,
    compiler: Arc<Compiler>,
    /// The nodes, for error messages.
    nodes: String,
    /// The partition's inputs, then the values of [`WgpuKernel::read`].
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    checks: Vec<DataCheck>,
    /// Resource variables that a run reads before it assigns them.
    read: Vec<ReadVariable>,
    assigned: AssignedVariables,
    /// The error of every run: a node reads a variable of another type or shape than an earlier node assigns.
    contradiction: Option<(Location, String)>,
    dispatches: Vec<Dispatch>,
    /// The dispatches of each submission of a run.
    chunks: Vec<Range<usize>>,
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
    /// The commands of the next run, if all runs have the same.
    recorded: Option<Vec<wgpu::CommandBuffer>>,
    /// Outstanding reports of the device on commands.
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

/// Variables among the inputs, by their numbers, and their memory.
type Variables<'a> = Vec<(usize, &'a mut [u8])>;

/// A submitted run whose outputs are to be read back.
struct Run {
    /// The last submission, and the one before it.
    submissions: [Option<wgpu::SubmissionIndex>; 2],
    /// The commands that are not submitted yet.
    rest: vec::IntoIter<wgpu::CommandBuffer>,
    budget: Arc<Budget>,
    start: Instant,
    uploaded: Instant,
    /// The threads that compile during a first run.
    warmup: Option<RunningWarmup>,
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

    /// Sets the number of each input in the partition, where the kernel does not read all of them.
    pub(crate) fn place_inputs(&mut self, positions: &[usize]) {
        self.inputs.iter_mut().zip(positions).for_each(|(input, position)| input.position = *position);
    }

    /// Returns the bytes of device memory that `build` allocates for `graph`.
    pub(crate) fn bytes(gpu: &Gpu, graph: &Graph<'_>) -> Result<u64> {
        let outputs = graph.outputs.iter().chain(graph.checks.iter().map(|check| &check.value));
        let outputs: u64 = outputs.map(|id| staging(graph.value(*id).bytes())).sum();
        let variables = AssignedVariables::bytes_for(graph) + AssignedVariables::staging_bytes_for(graph);
        let timer = Timer::bytes_for(gpu, graph.steps.len());
        Ok(Layout::new(gpu, graph, &plan(graph))?.bytes() + outputs + variables + timer)
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
        let tensors = params.inputs.iter().copied().chain(graph.read.iter().map(|resource| resource.tensor));
        let input = |(value, tensor): (&ValueId, _)| Input::new(graph, &memory, *value, tensor, view);
        let inputs = graph.inputs.iter().zip(tensors.enumerate()).map(input).collect::<Result<Vec<_>>>()?;
        let mut staged = 0;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        let states = graph.outputs.len().saturating_sub(graph.states.len());
        for (i, &id) in graph.outputs.iter().enumerate() {
            let state = i.checked_sub(states).and_then(|i| graph.states.get(i)).copied();
            let output = Output::new(gpu, graph, &memory, id, staged, state)?;
            staged += staging(output.bytes);
            outputs.push(output);
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
        let assigned = AssignedVariables::new(gpu, graph, &memory, staged)?;
        staged += staging(AssignedVariables::staging_bytes_for(graph));
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
            .with_device_bytes(memory.bytes() + AssignedVariables::bytes_for(graph) + size)
            .with_dispatches(dispatches.len());
        log::debug!(
            "{}: dispatches: {}; slots: {}, of {} bytes; constants: {} bytes",
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
            read: graph.read.iter().map(|resource| ReadVariable::new(resource, view)).collect(),
            assigned,
            contradiction: graph
                .contradiction
                .as_ref()
                .map(|(node, text)| (view.model().locate(view.index(), *node), text.clone())),
            chunks: chunks(&dispatches),
            dispatches,
            staging,
            timer,
            _uploaded: memory.uploaded(),
            words: vec![0; widened.unwrap_or(0)],
            mapping: Arc::default(),
            run: None,
            recorded: None,
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
        let (tensors, resources) = self.inputs.split_at(self.inputs.len() - self.read.len());
        for (i, input) in tensors.iter().enumerate() {
            if buffers.input(input.position).is_some() {
                continue;
            }
            if self.outputs.iter().any(|output| output.state == Some(i)) {
                let bytes = cx.variable_bytes(input.position)?;
                input.write(&self.gpu.queue, bytes, &mut self.words);
                variables.push((i, bytes));
            } else {
                input.write(&self.gpu.queue, cx.input_bytes(input.position)?, &mut self.words);
            }
        }
        for (variable, input) in self.read.iter_mut().zip(resources) {
            variable.upload(cx.host().resources(), input, &self.gpu, &mut self.words)?;
        }
        Ok(variables)
    }

    /// Records one run, a buffer of commands for each chunk. Outputs are copied to the staging buffer; with `read`,
    /// time stamps and mirrored variables, too.
    fn record(
        &self,
        staging: Option<&wgpu::Buffer>,
        buffers: &Buffers<'_>,
        read: bool,
    ) -> Vec<wgpu::CommandBuffer> {
        let new_encoder = || self.gpu.device.create_command_encoder(&Default::default());
        let (mut commands, mut encoder) = (Vec::with_capacity(self.chunks.len()), new_encoder());
        let resources = self.inputs.len() - self.read.len();
        for input in self.inputs.iter().take(resources) {
            if let Some(from) =
                buffers.input(input.position).and_then(BufferHandle::downcast_ref::<GpuBuffer>)
            {
                let bytes = Some(from.size());
                encoder.copy_buffer_to_buffer(from.buffer(), from.offset(), &input.buffer, 0, bytes);
            }
        }
        for (variable, input) in self.read.iter().zip(self.inputs.iter().skip(resources)) {
            variable.record(&mut encoder, input);
        }
        match &self.timer {
            // One pass per dispatch, since not all devices support time stamps within a pass.
            Some(timer) if timer.each() => {
                for (i, dispatch) in self.dispatches.iter().enumerate() {
                    dispatch.record(&mut begin(&mut encoder, timer.writes(i)));
                }
            }
            timer if !self.dispatches.is_empty() => {
                for (i, chunk) in self.chunks.iter().enumerate() {
                    if i > 0 {
                        commands.push(mem::replace(&mut encoder, new_encoder()).finish());
                    }
                    let count = self.chunks.len();
                    let stamps = timer.as_ref().and_then(|timer| timer.writes_of_chunk(i, count));
                    let mut pass = begin(&mut encoder, stamps);
                    self.dispatches[chunk.clone()].iter().for_each(|dispatch| dispatch.record(&mut pass));
                }
            }
            _ => {}
        }
        self.assigned.record(&mut encoder, staging.filter(|_| read));
        let Some(staging) = staging else {
            commands.push(encoder.finish());
            return commands;
        };
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
        commands.push(encoder.finish());
        commands
    }

    /// Returns whether a run with `buffers` has the same commands as every other such run: it neither reads nor keeps
    /// buffers of other kernels, and has no variables.
    fn is_repeatable(&self, buffers: &Buffers<'_>) -> bool {
        self.read.is_empty()
            && self.assigned.is_empty()
            && self.inputs.iter().all(|input| buffers.input(input.position).is_none())
            && (0..self.outputs.len()).all(|i| !buffers.may_keep(i))
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
            output.read(i, piece(output.staged, output.bytes).unwrap_or_default(), to)?;
        }
        self.assigned.assign(cx.host().resources(), Some(&view))?;
        if let Some(timer) = &mut self.timer {
            self.stats.device_time = timer.read(piece(timer.staged(), timer.bytes()).unwrap_or_default());
            self.node_times.iter_mut().zip(timer.times()).for_each(|(node, time)| node.time = time);
        }
        Ok(())
    }

    /// Returns whether a long run has commands that are not submitted yet.
    fn is_partly_submitted(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.rest.len() > 0)
    }

    /// Submits the next commands of the run, and requests the outputs after the last ones. Returns whether all commands
    /// are submitted.
    fn submit_next(&mut self) -> bool {
        let Some(run) = &mut self.run else { return true };
        if let Some(commands) = run.rest.next() {
            let submission = self.gpu.queue.submit([commands]);
            run.submissions = [Some(submission), run.submissions[0].take()];
        }
        let is_last = run.rest.len() == 0;
        if let Some(staging) = self.staging.as_ref().filter(|_| is_last) {
            self.map(staging);
        }
        is_last
    }

    /// Submits the rest of a long run, at most two submissions at a time. Fails once the run is interrupted.
    fn wait_and_submit(&mut self) -> Result<()> {
        while let Some(run) = self.run.as_mut().filter(|run| run.rest.len() > 0) {
            if let Some(earlier) = run.submissions[1].take() {
                self.gpu.wait(earlier).map_err(failed)?;
            }
            run.budget.check()?;
            self.submit_next();
        }
        Ok(())
    }

    /// As [`WgpuKernel::wait_and_submit`], without waiting: submits once an earlier submission is done.
    fn submit_if_done(&mut self) -> Result<()> {
        let Some(run) = self.run.as_mut().filter(|run| run.rest.len() > 0) else { return Ok(()) };
        run.budget.check()?;
        if let Some(earlier) = &run.submissions[1]
            && !self.gpu.is_done(earlier.clone()).map_err(failed)?
        {
            return Ok(());
        }
        self.submit_next();
        Ok(())
    }

    /// Uploads inputs and submits the dispatches; if outputs are read back, only the first [`IN_FLIGHT`] chunks of a
    /// long run. Returns the memory of variables that get a new value.
    fn start<'a>(
        &mut self,
        cx: &mut InvokeContext<'a>,
        buffers: &mut Buffers<'_>,
    ) -> Result<(Submitted, Variables<'a>)> {
        self.abandon();
        if let Some((node, text)) = &self.contradiction {
            return Err(Error::Kernel(text.clone()).at(node.clone()));
        }
        let staging = self.staging.clone();
        if staging.is_none() && self.assigned.is_empty() {
            return Ok((Submitted::Done, Variables::new()));
        }
        let start = Instant::now();
        self.assigned.choose()?;
        let variables = self.upload(cx, buffers)?;
        let uploaded = Instant::now();
        let read = !self.checks.is_empty()
            || self.assigned.must_read_back()
            || (0..self.outputs.len()).any(|i| !buffers.may_keep(i));
        let repeatable = self.is_repeatable(buffers);
        let recorded = if repeatable { self.recorded.take() } else { None };
        let commands = recorded.unwrap_or_else(|| self.record(staging.as_ref(), buffers, read));
        let mut commands = commands.into_iter();
        let reads = staging.is_some() && read;
        // Without outputs to read back, nothing waits for the end of the run.
        let all = if reads { IN_FLIGHT } else { usize::MAX };
        let mut submissions = [None, None];
        for commands in commands.by_ref().take(all) {
            submissions = [Some(self.gpu.queue.submit([commands])), submissions[0].take()];
        }
        for (i, output) in self.outputs.iter().enumerate() {
            if let Some(handle) = &output.handle {
                buffers.keep(i, handle.clone());
            }
        }
        let Some(staging) = staging.filter(|_| read) else {
            // The consumer of the buffers waits for them, so only this check reports a lost device.
            if self.gpu.refuses_to_map() {
                return Err(failed(self.gpu.unfinished(None)));
            }
            self.assigned.assign(cx.host().resources(), None)?;
            self.read.iter_mut().for_each(ReadVariable::release);
            self.stats.upload_time = Some(uploaded - start);
            (self.stats.device_time, self.stats.readback_time) = (None, None);
            return Ok((Submitted::Done, variables));
        };
        match commands.len() {
            0 => self.map(&staging),
            _ => self.mapping.reset(),
        }
        let warmup = self.compiler.warm_up(mem::take(&mut self.compiling));
        if repeatable {
            // While the device runs; a buffer of commands can be submitted only once.
            self.recorded = Some(self.record(Some(&staging), buffers, read));
        }
        let budget = Arc::clone(cx.host().budget());
        self.run = Some(Run { submissions, rest: commands, budget, start, uploaded, warmup });
        Ok((Submitted::Pending, variables))
    }

    /// As [`WgpuKernel::start`]; fails if the device is lost, or reported an error of an earlier run. Starts the
    /// request for variants if the run is done.
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
        self.read.iter_mut().for_each(ReadVariable::release);
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

    /// Returns the title of the first dispatch that cannot be recorded, after a validation error; `None` if all of
    /// several dispatches fail.
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

/// Returns the dispatches of each submission of a run.
fn chunks(dispatches: &[Dispatch]) -> Vec<Range<usize>> {
    if cfg!(target_arch = "wasm32") {
        // A page cannot ask whether a submission is done.
        return iter::once(0..dispatches.len()).collect();
    }
    chunks::chunks(dispatches.iter().map(|dispatch| dispatch.time))
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
        let inputs = self.inputs.len() - self.read.len();
        if cx.input_count() != inputs || cx.output_count() != outputs {
            return Err(failed(format!(
                "the partition has {} and {}, the kernel was built for {inputs} and {outputs}",
                counted(cx.input_count(), "input"),
                counted(cx.output_count(), "output")
            )));
        }
        for (i, input) in self.inputs.iter().enumerate().take(inputs) {
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
        let input = self.inputs.get(input).zip(buffer.downcast_ref::<GpuBuffer>());
        input.is_some_and(|(input, from)| input.accepts(from, &self.gpu))
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
        // Every check of the device's errors is a wait in a browser.
        if self.is_partly_submitted()
            && let Err(error) = self.located(WgpuKernel::submit_if_done)
        {
            return Poll::Ready(Err(error));
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
        if self.is_partly_submitted() {
            self.located(WgpuKernel::wait_and_submit)?;
        }
        match self.run.as_mut().and_then(|run| run.submissions[0].take()) {
            Some(submission) => self.wait_for(submission).map_err(|e| self.locate(e)),
            None => Ok(()),
        }
    }

    fn finish(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let mut variables = Variables::new();
        for i in self.outputs.iter().filter_map(|output| output.state) {
            let position = self.inputs.get(i).map_or(i, |input| input.position);
            variables.push((i, cx.variable_bytes(position)?));
        }
        self.located(|kernel| kernel.end(cx, buffers, variables))
    }

    fn abandon(&mut self) {
        self.read.iter_mut().for_each(ReadVariable::release);
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
        // A buffer with a pending map request cannot be unmapped safely while other threads poll the device.
        let descriptor = wgpu::BufferDescriptor {
            label: Some("staging"),
            size: staging.size(),
            usage: staging.usage(),
            mapped_at_creation: false,
        };
        match self.gpu.create_buffer(&descriptor) {
            Ok(fresh) => {
                self.staging = Some(fresh);
                // Recorded commands copy to the buffer that was replaced.
                self.recorded = None;
            }
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
mod tests;
