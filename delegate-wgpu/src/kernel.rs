//! The kernel of a partition: buffers, pipelines and bind groups made once, one compute pass per run.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{Error, Result, Shape, TensorId};
use delegraph_delegate_api::{
    BufferHandle, Buffers, DelegateKernel, DelegateParams, DelegateStats, GraphView,
};
use delegraph_shaders::Binding;

use crate::NAME;
use crate::buffer::GpuBuffer;
use crate::device::Context;
use crate::graph::{Element, Graph, Source, Step, ValueId};
use crate::plan::{Plan, plan};
use crate::upload::{Packer, Range};

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
    /// Booleans on their way to the device, where they take a word each.
    words: Vec<u32>,
    mapping: Arc<Mapping>,
    stats: DelegateStats,
}

struct Input {
    name: String,
    shape: Shape,
    element: Element,
    buffer: wgpu::Buffer,
}

struct Output {
    element: Element,
    buffer: wgpu::Buffer,
    offset: u64,
    /// Where in the staging buffer.
    staged: u64,
    bytes: u64,
    /// For whoever takes it from here; booleans have another layout on the device.
    handle: Option<BufferHandle>,
}

struct Dispatch {
    pipeline: Arc<wgpu::ComputePipeline>,
    group: wgpu::BindGroup,
    workgroups: [u32; 3],
}

/// Measures the compute pass on the device.
struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Where in the staging buffer.
    staged: u64,
    /// Nanoseconds per tick.
    period: f32,
}

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

    /// Whether the buffer was mapped. The device has finished, but where several threads use it, another one may be
    /// about to deliver the news.
    fn get(&self) -> bool {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = Duration::from_secs(10);
        let waited = self.changed.wait_timeout_while(done, patience, |done| done.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.unwrap_or(false)
    }
}

/// Bytes of the two time stamps.
const STAMPS: u64 = 16;

fn failed(message: impl Into<String>) -> Error {
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

    fn make(
        context: &Arc<Context>,
        graph: &Graph<'_>,
        params: &DelegateParams,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let plan = plan(graph);
        let memory = Memory::new(context, graph, &plan)?;
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
                element: graph.value(*value).element,
                buffer: buffer.clone(),
            })
        };
        let inputs = graph.inputs.iter().zip(&params.inputs).map(input).collect::<Result<Vec<_>>>()?;
        let mut staged = 0;
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        for &id in &graph.outputs {
            let (buffer, range) = memory.storage(graph, id)?;
            let (element, bytes) = (graph.value(id).element, graph.value(id).bytes());
            let (device, queue) = (&context.device, &context.queue);
            let handle = (element != Element::Bool)
                .then(|| BufferHandle::new(GpuBuffer::new(device, queue, buffer, range.offset, bytes)));
            let (buffer, offset) = (buffer.clone(), range.offset);
            outputs.push(Output { element, buffer, offset, staged, bytes, handle });
            staged += bytes.next_multiple_of(wgpu::MAP_ALIGNMENT);
        }
        let timer = context.timestamp_period.filter(|_| !dispatches.is_empty());
        let timer = timer.map(|period| Timer::new(context, period, staged));
        let size = staged + if timer.is_some() { STAMPS } else { 0 };
        let staging = (size > 0).then(|| {
            context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let booleans = inputs.iter().filter(|i| i.element == Element::Bool).map(|i| i.shape.elements()).max();
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
            memory.constants.iter().map(wgpu::Buffer::size).sum::<u64>(),
        );
        Ok(WgpuKernel {
            context: Arc::clone(context),
            nodes: describe(params, view),
            inputs,
            outputs,
            dispatches,
            staging,
            timer,
            words: vec![0; booleans.unwrap_or(0)],
            mapping: Arc::default(),
            stats,
        })
    }

    fn upload(&mut self, cx: &mut InvokeContext<'_>, buffers: &Buffers<'_>) -> Result<()> {
        for (i, input) in self.inputs.iter().enumerate() {
            if buffers.input(i).is_some() {
                continue;
            }
            let bytes = cx.input_bytes(i)?;
            let elements = input.shape.elements();
            match input.element {
                Element::Bool => {
                    let words = self.words.get_mut(..elements).unwrap_or_default();
                    words.iter_mut().zip(bytes).for_each(|(word, &byte)| *word = u32::from(byte != 0));
                    self.context.queue.write_buffer(&input.buffer, 0, bytemuck::cast_slice(words));
                }
                _ => self.context.queue.write_buffer(&input.buffer, 0, bytes),
            }
        }
        Ok(())
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
        if !self.dispatches.is_empty() {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: self.timer.as_ref().map(|t| wgpu::ComputePassTimestampWrites {
                    query_set: &t.queries,
                    beginning_of_pass_write_index: Some(0),
                    end_of_pass_write_index: Some(1),
                }),
            });
            for dispatch in &self.dispatches {
                let [x, y, z] = dispatch.workgroups;
                pass.set_pipeline(&dispatch.pipeline);
                pass.set_bind_group(0, &dispatch.group, &[]);
                pass.dispatch_workgroups(x, y, z);
            }
        }
        for (_, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_stay(*i)) {
            let bytes = Some(output.bytes);
            encoder.copy_buffer_to_buffer(&output.buffer, output.offset, staging, output.staged, bytes);
        }
        if let Some(timer) = self.timer.as_ref().filter(|_| read) {
            encoder.resolve_query_set(&timer.queries, 0..2, &timer.resolved, 0);
            encoder.copy_buffer_to_buffer(&timer.resolved, 0, staging, timer.staged, Some(STAMPS));
        }
        encoder.finish()
    }

    /// Waits until the device is done and the staging buffer can be read.
    fn wait(&self, staging: &wgpu::Buffer, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.mapping.set(None);
        let mapping = Arc::clone(&self.mapping);
        staging.map_async(wgpu::MapMode::Read, .., move |result| mapping.set(Some(result.is_ok())));
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        let device = &self.context.device;
        // wgpu panics in `poll` when the device is lost while it waits.
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.poll(wait)));
        if let Some(reason) = self.context.lost() {
            return Err(failed(format!("the device was lost ({reason})")));
        }
        match polled {
            Ok(Ok(_)) if self.mapping.get() => Ok(()),
            Ok(Err(e)) => Err(failed(e.to_string())),
            _ => Err(failed("the device did not finish")),
        }
    }

    fn read_back(
        &mut self,
        staging: &wgpu::Buffer,
        cx: &mut InvokeContext<'_>,
        buffers: &Buffers<'_>,
    ) -> Result<()> {
        let view = staging.get_mapped_range(..).map_err(|e| failed(e.to_string()))?;
        let piece = |from: u64, bytes: u64| {
            let (from, bytes) = (usize::try_from(from).ok()?, usize::try_from(bytes).ok()?);
            view.get(from..from.checked_add(bytes)?)
        };
        for (i, output) in self.outputs.iter().enumerate().filter(|(i, _)| !buffers.may_stay(*i)) {
            let to = cx.output_bytes(i)?;
            let from = piece(output.staged, output.bytes).unwrap_or_default();
            match output.element {
                Element::Bool if from.len() == to.len() * 4 => {
                    let words = from.as_chunks::<4>().0;
                    to.iter_mut().zip(words).for_each(|(to, word)| *to = u8::from(*word != [0; 4]));
                }
                _ if from.len() == to.len() => to.copy_from_slice(from),
                _ => {
                    return Err(failed(format!(
                        "output {i} has {} bytes, expected {}",
                        to.len(),
                        from.len()
                    )));
                }
            }
        }
        if let Some(timer) = &self.timer {
            let stamps = piece(timer.staged, STAMPS).unwrap_or_default().as_chunks::<8>().0;
            if let [begin, end] = stamps {
                let ticks = u64::from_le_bytes(*end).saturating_sub(u64::from_le_bytes(*begin));
                self.stats.device_ms = Some(ticks as f64 * f64::from(timer.period) / 1e6);
            }
        }
        Ok(())
    }

    fn run(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        let Some(staging) = self.staging.clone() else { return Ok(()) };
        let start = Instant::now();
        self.upload(cx, buffers)?;
        let uploaded = Instant::now();
        let read = (0..self.outputs.len()).any(|i| !buffers.may_stay(i));
        let submission = self.context.queue.submit([self.record(&staging, buffers, read)]);
        for (i, output) in self.outputs.iter().enumerate() {
            if let Some(handle) = &output.handle {
                buffers.leave(i, handle.clone());
            }
        }
        if !read {
            // Whoever reads what was left waits for it.
            self.stats.upload_ms = Some((uploaded - start).as_secs_f64() * 1e3);
            (self.stats.device_ms, self.stats.readback_ms) = (None, None);
            return Ok(());
        }
        self.wait(&staging, submission)?;
        let done = Instant::now();
        let result = self.read_back(&staging, cx, buffers);
        staging.unmap();
        let ms = |from: Instant, to: Instant| Some((to - from).as_secs_f64() * 1e3);
        self.stats.upload_ms = ms(start, uploaded);
        self.stats.readback_ms = ms(done, Instant::now());
        if self.timer.is_none() {
            self.stats.device_ms = ms(uploaded, done);
        }
        result
    }
}

impl Kernel for WgpuKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        if cx.num_inputs() != self.inputs.len() || cx.num_outputs() != self.outputs.len() {
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

    fn accepts(&self, input: usize, buffer: &BufferHandle) -> bool {
        let fits = |input: &Input| match buffer.downcast::<GpuBuffer>() {
            Some(from) => {
                let bytes = 4 * input.shape.elements() as u64;
                input.element != Element::Bool && from.size() == bytes && from.is_on(&self.context.device)
            }
            None => false,
        };
        self.inputs.get(input).is_some_and(fits)
    }

    fn keeps(&self, output: usize) -> bool {
        self.outputs.get(output).is_some_and(|output| output.handle.is_some())
    }

    fn invoke_with(&mut self, cx: &mut InvokeContext<'_>, buffers: &mut Buffers<'_>) -> Result<()> {
        if let Some(reason) = self.context.lost() {
            return Err(failed(format!("the device was lost ({reason}), while running {}", self.nodes)));
        }
        let context = Arc::clone(&self.context);
        match context.checked(|| self.run(cx, buffers)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Error::Delegate { delegate, message })) => {
                let message = format!("{message}, while running {}", self.nodes);
                Err(Error::Delegate { delegate, message })
            }
            Ok(Err(other)) => Err(other),
            Err(e) => Err(failed(format!("{e}, while running {}", self.nodes))),
        }
    }
}

impl Timer {
    fn new(context: &Context, period: f32, staged: u64) -> Self {
        Timer {
            queries: context.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("time stamps"),
                size: STAMPS,
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            }),
            staged,
            period,
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

/// The buffers of a partition.
struct Memory {
    slots: Vec<wgpu::Buffer>,
    constants: Vec<wgpu::Buffer>,
    uniforms: Vec<wgpu::Buffer>,
    /// Per value, where in the constants it is or in which slot.
    values: Vec<Option<Place>>,
    /// Per step, where its weights and its uniform block are.
    weights: Vec<Option<Range>>,
    blocks: Vec<Range>,
    kernels: Vec<delegraph_shaders::Kernel>,
}

#[derive(Clone, Copy)]
enum Place {
    Slot(Range),
    Constant(Range),
}

impl Memory {
    fn new(context: &Context, graph: &Graph<'_>, plan: &Plan) -> Result<Self> {
        let limits = &context.limits;
        let mut constants = Packer::new(limits.min_storage_buffer_offset_alignment, limits.max_buffer_size);
        let mut uniforms = Packer::new(limits.min_uniform_buffer_offset_alignment, limits.max_buffer_size);
        let (mut weights, mut blocks, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
        let mut values = vec![None; graph.values.len()];
        for (i, slot) in plan.slot.iter().enumerate() {
            let bytes = graph.values[i].bytes();
            values[i] = slot.map(|buffer| Place::Slot(Range { buffer, offset: 0, bytes }));
        }
        for step in &graph.steps {
            let kernel = step.spec.kernel(&context.caps).map_err(|e| failed(e.to_string()))?;
            blocks.push(uniforms.add(kernel.uniform.clone().into()));
            kernels.push(kernel);
            let packed = step.weights.as_ref().and_then(|w| step.spec.pack_weights(w));
            weights.push(packed.map(|w| constants.add(bytemuck::cast_slice(&w).to_vec().into())));
            for id in step.reads().map(|id| graph.root(id).0) {
                if let (Source::Constant(data), None) = (&graph.value(id).source, values[id.0]) {
                    values[id.0] = Some(Place::Constant(constants.add(data.clone())));
                }
            }
        }
        let most = limits.max_storage_buffer_binding_size;
        if let Some(range) = weights.iter().flatten().find(|r| r.bytes > most) {
            return Err(failed(format!("weights of {} bytes, a shader can be given {most}", range.bytes)));
        }
        let slot = |&bytes: &u64| {
            use wgpu::BufferUsages as Usage;
            context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("slot"),
                size: bytes,
                usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
                mapped_at_creation: false,
            })
        };
        let room = || failed("no memory for constants");
        Ok(Memory {
            slots: plan.bytes.iter().map(slot).collect(),
            constants: constants.finish(context, wgpu::BufferUsages::STORAGE).ok_or_else(room)?,
            uniforms: uniforms.finish(context, wgpu::BufferUsages::UNIFORM).ok_or_else(room)?,
            values,
            weights,
            blocks,
            kernels,
        })
    }

    fn bytes(&self) -> u64 {
        self.slots.iter().chain(&self.constants).chain(&self.uniforms).map(wgpu::Buffer::size).sum()
    }

    /// The buffer of a value, and where in it.
    fn storage(&self, graph: &Graph<'_>, id: ValueId) -> Result<(&wgpu::Buffer, Range)> {
        let (root, offset) = graph.root(id);
        let missing = || failed("a value has no memory");
        let (buffers, range) = match self.values[root.0].ok_or_else(missing)? {
            Place::Slot(range) => (&self.slots, range),
            Place::Constant(range) => (&self.constants, range),
        };
        let buffer = buffers.get(range.buffer).ok_or_else(missing)?;
        Ok((buffer, Range { offset: range.offset + offset, bytes: graph.value(id).bytes(), ..range }))
    }

    fn dispatch(
        &self,
        context: &Context,
        graph: &Graph<'_>,
        i: usize,
        step: &Step<'_>,
        view: &GraphView<'_>,
    ) -> Result<Dispatch> {
        let at = |e: String| {
            let nodes = step.nodes.iter().map(|id| format!("{} ({})", id.0, view.node(*id).op()));
            failed(format!("node {}: {e}", nodes.collect::<Vec<_>>().join(", ")))
        };
        let kernel = &self.kernels[i];
        let missing = |binding: &Binding| at(format!("{} wants {binding:?}", kernel.name));
        let mut bindings = Vec::with_capacity(kernel.bindings.len());
        for binding in &kernel.bindings {
            let value = match binding {
                Binding::Input(n) => step.inputs.get(usize::from(*n)).copied(),
                Binding::Residual => step.residual,
                Binding::Slope => step.slope,
                Binding::Output => Some(step.output),
                Binding::Weights | Binding::Uniform => None,
            };
            bindings.push(match (binding, value) {
                (_, Some(value)) => self.storage(graph, value)?,
                (Binding::Weights, _) => {
                    let range = self.weights[i].ok_or_else(|| missing(binding))?;
                    (&self.constants[range.buffer], range)
                }
                (Binding::Uniform, _) => (&self.uniforms[self.blocks[i].buffer], self.blocks[i]),
                _ => return Err(missing(binding)),
            });
        }
        let pipeline = context.pipeline(kernel).map_err(|e| at(e.to_string()))?;
        let entry = |(binding, (buffer, range)): (u32, (_, Range))| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: range.offset,
                size: wgpu::BufferSize::new(range.bytes),
            }),
        };
        let entries: Vec<_> = (0..).zip(bindings).map(entry).collect();
        let group = context.checked(|| {
            context.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(kernel.name),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            })
        });
        let group = group.map_err(|e| at(e.to_string()))?;
        Ok(Dispatch { pipeline, group, workgroups: kernel.dispatch })
    }
}
