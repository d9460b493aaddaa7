//! The kernel of a partition: buffers, pipelines and bind groups made once, one compute pass per run.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{iter, mem};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Result, Shape, TensorId};
use delegraph_delegate_api::{
    BufferHandle, Buffers, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, GraphView, NodeTime,
};

use crate::NAME;
use crate::buffer::GpuBuffer;
use crate::context::{Context, PATIENCE, refuses_to_map};
use crate::graph::{Graph, ValueId};
use crate::later::Need;
use crate::memory::{Dispatch, Layout, Memory};
use crate::plan::plan;
use crate::timer::Timer;
use crate::upload::Uploaded;
use crate::words::Words;

/// Runs one partition.
pub(crate) struct WgpuKernel {
    context: Arc<Context>,
    /// The nodes, for messages.
    nodes: String,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    dispatches: Vec<Dispatch>,
    /// What outputs are read back from.
    staging: Option<wgpu::Buffer>,
    timer: Option<Timer>,
    /// For other kernels, which find it as long as this one has it.
    _uploaded: [Arc<Uploaded>; 2],
    /// Elements on their way to the device, where they take a word each.
    words: Vec<u32>,
    mapping: Arc<Mapping>,
    stats: DelegateStats,
    /// Where each kernel is measured.
    node_times: Vec<NodeTime>,
    /// What the driver leaves for the first run.
    compiling: Vec<delegraph_shaders::Kernel>,
    need: Option<Arc<Need>>,
}

struct Input {
    name: String,
    shape: Shape,
    how: Words,
    buffer: wgpu::Buffer,
}

struct Output {
    how: Words,
    buffer: wgpu::Buffer,
    offset: u64,
    /// Where in the staging buffer.
    staged: u64,
    bytes: u64,
    /// For whoever takes it from here; elements that are no words have another layout on the device.
    handle: Option<BufferHandle>,
    /// The input whose new value it is, where it is a variable's.
    state: Option<usize>,
}

/// Variables among the inputs, and their memory.
type States<'a> = Vec<(usize, &'a mut [u8])>;

/// What became of a request to map the staging buffer.
#[derive(Default)]
struct Mapping {
    done: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Mapping {
    fn set(&self, done: Option<bool>) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = done;
        self.changed.notify_all();
    }

    /// Whether the buffer was mapped.
    fn get(&self) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(done, PATIENCE, |done| done.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.unwrap_or(false)
    }
}

pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::Delegate { delegate: NAME.into(), message: message.into() }
}

impl WgpuKernel {
    /// Makes everything that runs of `graph` need. `view` is the model's graph, for names.
    pub(crate) fn build(
        context: Arc<Context>,
        graph: Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let result = context.checked(|| Self::make(&context, &graph, params, view));
        result.map_err(|e| failed(format!("{e}, while preparing {}", describe(params, view))))?
    }

    /// Tells `need` of the first result.
    pub(crate) fn need(&mut self, need: Arc<Need>) {
        self.need = Some(need);
    }

    /// Bytes of device memory that `build` needs for `graph`.
    pub(crate) fn bytes(context: &Context, graph: &Graph<'_>) -> Result<u64> {
        let outputs: u64 = graph.outputs.iter().map(|id| staging(graph.value(*id).bytes())).sum();
        let timer = Timer::bytes_for(context, graph.steps.len());
        Ok(Layout::new(context, graph, &plan(graph))?.bytes() + outputs + timer)
    }

    fn make(
        context: &Arc<Context>,
        graph: &Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let plan = plan(graph);
        let memory = Memory::new(context, graph, Layout::new(context, graph, &plan)?, view)?;
        let compiling = context.compile(&memory.kernels);
        let dispatches = graph
            .steps
            .iter()
            .enumerate()
            .map(|(i, step)| memory.dispatch(context, graph, i, step, view))
            .collect::<Result<Vec<_>>>()?;
        let input = |(value, &id): (&ValueId, &TensorId)| -> Result<Input> {
            let tensor = view.tensor(id);
            let (buffer, _) = memory.storage(graph, *value)?;
            Ok(Input {
                name: tensor.name().to_owned(),
                shape: tensor.shape().cloned().unwrap_or_default(),
                how: graph.value(*value).how,
                buffer: buffer.clone(),
            })
        };
        let inputs = graph.inputs.iter().zip(&params.inputs).map(input).collect::<Result<Vec<_>>>()?;
        let mut staged = 0;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        let states = graph.outputs.len().saturating_sub(graph.states.len());
        for (i, &id) in graph.outputs.iter().enumerate() {
            let (buffer, range) = memory.storage(graph, id)?;
            let (how, bytes) = (graph.value(id).how, graph.value(id).bytes());
            let state = i.checked_sub(states).and_then(|i| graph.states.get(i)).copied();
            let handle = (how.are_kept() && state.is_none())
                .then(|| BufferHandle::new(GpuBuffer::new(context, buffer, range.offset, bytes)));
            let (buffer, offset) = (buffer.clone(), range.offset);
            outputs.push(Output { how, buffer, offset, staged, bytes, handle, state });
            staged += staging(bytes);
        }
        let timer = Timer::new(context, dispatches.len(), staged);
        let size = staged + timer.as_ref().map_or(0, Timer::bytes);
        let staging = (size > 0).then(|| {
            context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let widened = inputs.iter().filter(|i| !i.how.are_kept()).map(|i| i.shape.elements()).max();
        let stats = DelegateStats {
            device_bytes: memory.bytes() + size,
            dispatches: dispatches.len(),
            ..DelegateStats::default()
        };
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
        let node_times = nodes.map(|&node| NodeTime { node, time: Duration::ZERO }).collect();
        Ok(WgpuKernel {
            context: Arc::clone(context),
            nodes: describe(params, view),
            inputs,
            outputs,
            dispatches,
            staging,
            timer,
            _uploaded: memory.uploaded(),
            words: vec![0; widened.unwrap_or(0)],
            mapping: Arc::default(),
            stats,
            node_times,
            compiling,
            need: None,
        })
    }

    /// Returns the memory of variables that get a new value.
    fn upload<'a>(&mut self, cx: &mut InvokeContext<'a>, buffers: &Buffers<'_>) -> Result<States<'a>> {
        let mut states = States::new();
        for (i, input) in self.inputs.iter().enumerate() {
            if buffers.input(i).is_some() {
                continue;
            }
            let (words, queue) = (&mut self.words, &self.context.queue);
            let mut write = |bytes: &[u8]| {
                if input.how.are_kept() {
                    return queue.write_buffer(&input.buffer, 0, bytes);
                }
                let words = words.get_mut(..input.shape.elements()).unwrap_or_default();
                input.how.widen(bytes, words);
                queue.write_buffer(&input.buffer, 0, bytemuck::cast_slice(words));
            };
            if self.outputs.iter().any(|output| output.state == Some(i)) {
                let bytes = cx.variable_bytes(i)?;
                write(bytes);
                states.push((i, bytes));
            } else {
                write(cx.input_bytes(i)?);
            }
        }
        Ok(states)
    }

    /// `read`: something is read back afterwards.
    fn record(&self, staging: &wgpu::Buffer, buffers: &Buffers<'_>, read: bool) -> wgpu::CommandBuffer {
        let mut encoder = self.context.device.create_command_encoder(&Default::default());
        for (i, input) in self.inputs.iter().enumerate() {
            if let Some(from) = buffers.input(i).and_then(BufferHandle::downcast::<GpuBuffer>) {
                let bytes = Some(from.size());
                encoder.copy_buffer_to_buffer(from.buffer(), from.offset(), &input.buffer, 0, bytes);
            }
        }
        match &self.timer {
            // A pass for each, which is what can be measured everywhere.
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
        for (_, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_stay(*i)) {
            let bytes = Some(output.bytes);
            encoder.copy_buffer_to_buffer(&output.buffer, output.offset, staging, output.staged, bytes);
        }
        if let Some(timer) = self.timer.as_ref().filter(|_| read) {
            timer.resolve(&mut encoder, staging);
        }
        encoder.finish()
    }

    /// Waits until the device is done and the staging buffer can be read.
    fn wait(&self, staging: &wgpu::Buffer, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.mapping.set(None);
        let mapping = Arc::clone(&self.mapping);
        staging.map_async(wgpu::MapMode::Read, .., move |result| mapping.set(Some(result.is_ok())));
        self.context.wait(submission).map_err(failed)?;
        if self.mapping.get() {
            return Ok(());
        }
        Err(failed(self.context.unfinished(None)))
    }

    fn read_back(
        &mut self,
        staging: &wgpu::Buffer,
        cx: &mut InvokeContext<'_>,
        buffers: &Buffers<'_>,
        states: &mut States<'_>,
    ) -> Result<()> {
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        let piece = |from: u64, bytes: u64| {
            let (from, bytes) = (usize::try_from(from).ok()?, usize::try_from(bytes).ok()?);
            view.get(from..from.checked_add(bytes)?)
        };
        for (i, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_stay(*i)) {
            let to: &mut [u8] = match output.state {
                Some(of) => states.iter_mut().find(|(i, _)| *i == of).map_or(&mut [], |(_, bytes)| bytes),
                None => cx.output_bytes(i)?,
            };
            let from = piece(output.staged, output.bytes).unwrap_or_default();
            if output.how.bytes_of(from.len() / 4) != to.len() {
                let (to, from) = (to.len(), from.len());
                return Err(failed(format!("output {i} has {to} bytes, there are words of {from} bytes")));
            }
            match output.how {
                how if how.are_kept() => to.copy_from_slice(from),
                how => how.narrow(from, to),
            }
        }
        if let Some(timer) = &mut self.timer {
            self.stats.device_ms = timer.read(piece(timer.staged(), timer.bytes()).unwrap_or_default());
            self.node_times.iter_mut().zip(timer.times()).for_each(|(node, time)| node.time = time);
        }
        Ok(())
    }

    fn run(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let Some(staging) = self.staging.clone() else { return Ok(()) };
        let start = Instant::now();
        let mut states = self.upload(cx, buffers)?;
        let uploaded = Instant::now();
        let read = (0..self.outputs.len()).any(|i| !buffers.may_stay(i));
        let submission = self.context.queue.submit([self.record(&staging, buffers, read)]);
        for (i, output) in self.outputs.iter().enumerate() {
            if let Some(handle) = &output.handle {
                buffers.leave(i, handle.clone());
            }
        }
        if !read {
            // Whoever reads what was left waits for it. A lost device would say nothing.
            if refuses_to_map(&staging) {
                return Err(failed(self.context.unfinished(None)));
            }
            self.stats.upload_ms = Some((uploaded - start).as_secs_f64() * 1e3);
            (self.stats.device_ms, self.stats.readback_ms) = (None, None);
            return Ok(());
        }
        let help = self.context.compile_ahead(mem::take(&mut self.compiling));
        self.wait(&staging, submission)?;
        drop(help);
        let done = Instant::now();
        let result = self.read_back(&staging, cx, buffers, &mut states);
        staging.unmap();
        let ms = |from: Instant, to: Instant| Some((to - from).as_secs_f64() * 1e3);
        self.stats.upload_ms = ms(start, uploaded);
        self.stats.readback_ms = ms(done, Instant::now());
        if self.timer.is_none() {
            self.stats.device_ms = ms(uploaded, done);
        }
        result
    }

    /// After an error of validation: the step that cannot be recorded.
    fn culprit(&self) -> Option<&str> {
        let fails = |dispatch: &&Dispatch| {
            let record = || {
                let mut encoder = self.context.device.create_command_encoder(&Default::default());
                dispatch.record(&mut begin(&mut encoder, None));
                encoder.finish()
            };
            self.context.checked(record).is_err()
        };
        // Where the first one fails as well as all others, it is not the steps.
        let first = self.dispatches.iter().position(|d| fails(&d))?;
        let only = first > 0 || self.dispatches.last().is_some_and(|last| !fails(&last));
        (only || self.dispatches.len() == 1).then(|| self.dispatches[first].title.as_str())
    }
}

/// Bytes that an output takes in the staging buffer.
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
        if cx.num_inputs() != self.inputs.len() || cx.num_outputs() != outputs {
            return Err(failed("the partition has other inputs or outputs than it was built for"));
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

    fn device_kernels(&self) -> Vec<DeviceKernel> {
        let times = self.timer.iter().flat_map(|timer| timer.times()).map(Some).chain(iter::repeat(None));
        let kernel = |(d, time): (&Dispatch, Option<Duration>)| DeviceKernel {
            name: d.name.to_owned(),
            nodes: d.nodes.clone(),
            bytes: d.bytes,
            time,
        };
        self.dispatches.iter().zip(times).map(kernel).collect()
    }

    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        let fits = |input: &Input| match buffer.downcast::<GpuBuffer>() {
            Some(from) => {
                let words = if input.how == Words::Pairs { 2 } else { 1 };
                let bytes = 4 * words * input.shape.elements() as u64;
                let fits = input.how.are_kept() && from.size() == bytes && from.is_readable();
                fits && from.is_on(&self.context)
            }
            None => false,
        };
        self.inputs.get(input).is_some_and(fits)
    }

    fn keeps(&self, output: usize) -> bool {
        // Time stamps are read back with an output.
        !self.context.profile && self.outputs.get(output).is_some_and(|output| output.handle.is_some())
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        if let Some(reason) = self.context.lost() {
            return Err(failed(format!("the device was lost ({reason}), while running {}", self.nodes)));
        }
        let context = Arc::clone(&self.context);
        match context.checked(|| self.run(cx, buffers)) {
            Ok(Ok(())) => {
                if let Some(need) = &self.need {
                    need.begin();
                }
                Ok(())
            }
            Ok(Err(Error::Delegate { delegate, message })) => {
                let message = format!("{message}, while running {}", self.nodes);
                Err(Error::Delegate { delegate, message })
            }
            Ok(Err(other)) => Err(other),
            Err(e) => Err(failed(match self.context.gone() {
                Some(reason) => format!("the device was lost ({reason}), while running {}", self.nodes),
                None => format!("{e}, while running {}", self.culprit().unwrap_or(&self.nodes)),
            })),
        }
    }
}

/// Nodes with their ops: all of a few, else how many and the first and last.
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
        // The device is as good as before.
        run_altered(delegate, |_| {}).unwrap();
    }

    #[test]
    fn a_device_without_memory_names_the_node_that_wants_it() {
        let Some(delegate) = delegate() else { return };
        let (device, queue) = delegate.device_and_queue();
        let (device, queue, info) = (device.clone(), queue.clone(), delegate.adapter().clone());
        let delegate = crate::WgpuDelegate::with_device(device, queue, info, Default::default());
        delegate.context().full.store(true, Ordering::Relaxed);
        let error = run_altered(&delegate, |_| {}).unwrap_err().to_string();
        assert!(error.contains("node 0 (ABS): 32 bytes of device memory"), "{error}");
        delegate.context().full.store(false, Ordering::Relaxed);
        run_altered(&delegate, |_| {}).unwrap();
    }

    /// How often the calls of wgpu that a run of `kernel` cannot do without take memory, at least.
    fn bare(kernel: &WgpuKernel) -> usize {
        let (context, staging) = (&kernel.context, kernel.staging.as_ref().unwrap());
        let buffers = Buffers::new(&[], &[], &mut []);
        let once = || {
            let before = allocations();
            let done = context.checked(|| {
                context.queue.write_buffer(&kernel.inputs[0].buffer, 0, &[0; 32]);
                let submission = context.queue.submit([kernel.record(staging, &buffers, true)]);
                kernel.wait(staging, submission).unwrap();
                drop(staging.get_mapped_range(..).unwrap());
                staging.unmap();
            });
            done.unwrap();
            allocations() - before
        };
        (0..RUNS).map(|_| once()).min().unwrap()
    }

    #[test]
    fn only_calls_of_wgpu_take_memory_in_a_run() {
        if delegate().is_none() {
            return;
        }
        // A device of its own: what other tests have wgpu look after would be counted here.
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
            // One or two more are lists of wgpu's that grew.
            assert!(taken <= least + 2, "{count} dispatches: {taken} times, bare calls {least}");
            per_dispatch.push(least);
        }
        // What wgpu takes grows with the dispatches, but by little.
        assert!(per_dispatch[1] <= per_dispatch[0] + 2 * 99, "{per_dispatch:?}");
        println!("1 and 100 dispatches: {per_dispatch:?}");
    }
}
