//! The buffers of a partition, and the dispatches over them.

use std::sync::Arc;
use std::time::Duration;

use delegraph_core::{NodeId, Result};
use delegraph_delegate_api::GraphView;
use delegraph_shaders::Binding;

use crate::compile::Compiler;
use crate::device::{Gpu, failed, time};
use crate::graph::{Graph, Source, Step, ValueId, narrowed};
use crate::memory::plan::Plan;
use crate::memory::upload::{Packer, Range, Uploaded};

/// One step, ready to run.
pub(crate) struct Dispatch {
    pub pipeline: Arc<wgpu::ComputePipeline>,
    pub group: wgpu::BindGroup,
    pub workgroups: [u32; 3],
    /// The kernel's name.
    pub name: &'static str,
    /// The nodes that the step runs.
    pub nodes: Vec<NodeId>,
    /// The nodes with their ops, for messages.
    pub title: String,
    /// Bytes of all bound buffers, read or written.
    pub bytes: u64,
    /// The estimated time, for dividing long runs.
    pub time: Duration,
}

impl Dispatch {
    /// Adds the dispatch to a pass.
    pub(crate) fn record(&self, pass: &mut wgpu::ComputePass<'_>) {
        let [x, y, z] = self.workgroups;
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

/// The buffers of a partition.
pub(crate) struct Memory {
    slots: Vec<wgpu::Buffer>,
    constants: Arc<Uploaded>,
    uniforms: Arc<Uploaded>,
    /// Per value, its range in the constants or its slot.
    values: Vec<Option<Place>>,
    /// Per step, the ranges of its weights and of its uniform block.
    weights: Vec<Option<Range>>,
    blocks: Vec<Range>,
    pub kernels: Vec<delegraph_shaders::Kernel>,
}

#[derive(Clone, Copy)]
enum Place {
    Slot(Range),
    Constant(Range),
}

/// The memory that a partition needs, before it is allocated.
pub(crate) struct Layout<'g> {
    plan: &'g Plan,
    constants: Packer<'g>,
    uniforms: Packer<'g>,
    values: Vec<Option<Place>>,
    weights: Vec<Option<Range>>,
    blocks: Vec<Range>,
    kernels: Vec<delegraph_shaders::Kernel>,
}

impl<'g> Layout<'g> {
    pub(crate) fn new(gpu: &Gpu, graph: &'g Graph<'_>, plan: &'g Plan) -> Result<Self> {
        let limits = &gpu.limits;
        let mut constants = Packer::new(limits.min_storage_buffer_offset_alignment, limits.max_buffer_size);
        let mut uniforms = Packer::new(limits.min_uniform_buffer_offset_alignment, limits.max_buffer_size);
        let (mut weights, mut blocks, mut kernels) = (Vec::new(), Vec::new(), Vec::new());
        let mut values = vec![None; graph.values.len()];
        for (i, slot) in plan.slot.iter().enumerate() {
            let bytes = graph.values[i].bytes();
            values[i] = slot.map(|buffer| Place::Slot(Range { buffer, offset: 0, bytes }));
        }
        for step in &graph.steps {
            let kernel = step.kernel(graph, gpu).map_err(|e| failed(e.to_string()))?;
            blocks.push(uniforms.add(kernel.uniform.clone().into()));
            kernels.push(kernel);
            let packed = step.weights.as_ref().and_then(|w| step.spec.pack_weights(w));
            let packed = packed.map(|w| if step.half_weights { narrowed(&w) } else { w });
            weights.push(packed.map(|w| constants.add(w.into())));
            for id in step.reads().map(|id| graph.root(id).0) {
                if values[id.0].is_none() {
                    let range = match &graph.value(id).source {
                        Source::Constant(data) => constants.add(data.clone()),
                        Source::Table(table) => constants.add_table(table),
                        _ => continue,
                    };
                    values[id.0] = Some(Place::Constant(range));
                }
            }
        }
        let most = limits.max_storage_buffer_binding_size;
        if let Some(range) = weights.iter().flatten().find(|r| r.bytes > most) {
            return Err(failed(format!(
                "weights of {} bytes; at most {most} bytes fit a binding",
                range.bytes
            )));
        }
        Ok(Layout { plan, constants, uniforms, values, weights, blocks, kernels })
    }

    /// Returns the bytes of all buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.plan.bytes.iter().sum::<u64>() + self.constants.bytes() + self.uniforms.bytes()
    }
}

impl Memory {
    /// Allocates and fills the buffers of `graph`. `view` is the model's graph, for names.
    pub(crate) fn new(
        gpu: &Gpu,
        graph: &Graph<'_>,
        layout: Layout<'_>,
        view: &GraphView<'_>,
    ) -> Result<Self> {
        let Layout { plan, constants, uniforms, values, weights, blocks, kernels } = layout;
        let slot = |(i, &bytes): (usize, &u64)| {
            use wgpu::BufferUsages as Usage;
            let descriptor = wgpu::BufferDescriptor {
                label: Some("slot"),
                size: bytes,
                usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
                mapped_at_creation: false,
            };
            gpu.create_buffer(&descriptor).map_err(|e| {
                // The step that determines the size of the slot.
                let wants = |id: ValueId| {
                    plan.slot.get(graph.root(id).0.0) == Some(&Some(i)) && graph.value(id).bytes() == bytes
                };
                let step = graph.steps.iter().find(|step| wants(step.output) || step.reads().any(wants));
                let nodes = step.map_or_else(String::new, |step| format!("{}: ", title(&step.nodes, view)));
                failed(format!("{nodes}{bytes} bytes of device memory: {e}"))
            })
        };
        let no_room =
            |what: &'static str| move |e: wgpu::Error| failed(format!("device memory for {what}: {e}"));
        Ok(Memory {
            slots: plan.bytes.iter().enumerate().map(slot).collect::<Result<_>>()?,
            constants: constants
                .finish(gpu, wgpu::BufferUsages::STORAGE)
                .map_err(no_room("weights and constants"))?,
            uniforms: uniforms.finish(gpu, wgpu::BufferUsages::UNIFORM).map_err(no_room("uniform blocks"))?,
            values,
            weights,
            blocks,
            kernels,
        })
    }

    /// Returns the bytes of all buffers, those shared with other kernels included.
    pub(crate) fn bytes(&self) -> u64 {
        let slots: u64 = self.slots.iter().map(wgpu::Buffer::size).sum();
        slots + self.constants.bytes() + self.uniforms.bytes()
    }

    /// Returns the uploads. Other kernels can share them while they are held.
    pub(crate) fn uploaded(&self) -> [Arc<Uploaded>; 2] {
        [Arc::clone(&self.constants), Arc::clone(&self.uniforms)]
    }

    /// Returns the buffer of a value, and its range there.
    pub(crate) fn storage(&self, graph: &Graph<'_>, id: ValueId) -> Result<(&wgpu::Buffer, Range)> {
        let (root, offset) = graph.root(id);
        let missing = || failed("a value has no memory");
        let (buffers, range) = match self.values[root.0].ok_or_else(missing)? {
            Place::Slot(range) => (&self.slots, range),
            Place::Constant(range) => (&self.constants.buffers, range),
        };
        let buffer = buffers.get(range.buffer).ok_or_else(missing)?;
        Ok((buffer, Range { offset: range.offset + offset, bytes: graph.value(id).bytes(), ..range }))
    }

    /// Creates the dispatch of `step`, which is step `i` of `graph`.
    pub(crate) fn dispatch(
        &self,
        gpu: &Gpu,
        compiler: &Compiler,
        graph: &Graph<'_>,
        i: usize,
        step: &Step<'_>,
        view: &GraphView<'_>,
    ) -> Result<Dispatch> {
        let title = title(&step.nodes, view);
        let at = |e: String| failed(format!("{title}: {e}"));
        let kernel = self.kernels.get(i).ok_or_else(|| at("the step has no kernel".into()))?;
        let missing =
            |binding: &Binding| at(format!("kernel {} has no operand for {binding:?}", kernel.variant.name));
        let mut bindings = Vec::with_capacity(kernel.variant.bindings.len());
        for binding in &kernel.variant.bindings {
            let value = match binding {
                Binding::Input(n) => step.inputs.get(usize::from(*n)).copied(),
                Binding::Residual => step.residual,
                Binding::Slope => step.slope,
                Binding::Output => Some(step.output),
                Binding::Weights | Binding::Uniform | Binding::Texture => None,
            };
            bindings.push(match (binding, value) {
                (_, Some(value)) => self.storage(graph, value)?,
                (Binding::Weights, _) => {
                    let range = self.weights[i].ok_or_else(|| missing(binding))?;
                    (&self.constants.buffers[range.buffer], range)
                }
                (Binding::Uniform, _) => (&self.uniforms.buffers[self.blocks[i].buffer], self.blocks[i]),
                _ => return Err(missing(binding)),
            });
        }
        let bytes = bindings.iter().map(|(_, range)| range.bytes).sum();
        let pipeline = compiler.pipeline(&kernel.variant).map_err(|e| at(e.to_string()))?;
        let entry = |(binding, (buffer, range)): (u32, (_, Range))| wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: range.offset,
                size: wgpu::BufferSize::new(range.bytes),
            }),
        };
        let entries: Vec<_> = (0..).zip(bindings).map(entry).collect();
        let group = gpu.checked(|| {
            gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(kernel.variant.name),
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            })
        });
        let group = group.map_err(|e| at(e.to_string()))?;
        let (name, workgroups, nodes) = (kernel.variant.name, kernel.dispatch, step.nodes.clone());
        let time = time::estimate(&gpu.caps, bytes, workgroups, nodes.iter().map(|&id| view.node(id)));
        Ok(Dispatch { pipeline, group, workgroups, name, nodes, title, bytes, time })
    }
}

/// Nodes with their ops: `node 3 (CONV_2D), 4 (ADD)`.
fn title(nodes: &[NodeId], view: &GraphView<'_>) -> String {
    let nodes = nodes.iter().map(|id| format!("{} ({})", id.0, view.node(*id).op()));
    format!("node {}", nodes.collect::<Vec<_>>().join(", "))
}
