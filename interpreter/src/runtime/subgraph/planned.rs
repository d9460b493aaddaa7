//! The fourth step of preparing: the placement of every tensor and temporary, and the steps of an invocation.

use std::sync::Arc;

use delegraph_core::TensorType;
use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{NodeId, TensorId};
use delegraph_core::kernel::{AlignedBuffer, Budget, Placement, RuntimeTensor};
use delegraph_delegate_api::{BufferHandle, GraphView, Report};

use super::inferred::{Inference, Schedule};
use super::parts::{Failed, Parts};
use super::prepared::Prepared;
use super::residency::{self, Residency};
use crate::runtime::delegation::{Partition, Preparation, Unit};
use crate::runtime::host::{Env, Settings};
use crate::runtime::memory::{self, Lifetime, Request};

/// Memory of one subgraph, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The arena.
    pub arena_bytes: usize,
    /// The size of the arena if its tensors did not share memory.
    pub naive_bytes: usize,
    /// Maximum number of live bytes at one step: a lower bound of every plan.
    pub lower_bound_bytes: usize,
    /// Constants: those of the file, and those computed from them while preparing. Constants that kernels packed and
    /// released are not included.
    pub weights_bytes: usize,
}

/// A step of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A prepared node.
    Node(NodeId),
    /// A node whose output shares its input's memory. Only data in buffers must be fetched for it.
    View(NodeId),
    /// A node that is prepared when its inputs are computed.
    Deferred(NodeId),
    Partition(usize),
}

/// A subgraph that is ready to be invoked.
pub(crate) struct Planned {
    pub(super) parts: Box<Parts>,
    pub(super) inference: Inference,
    pub(super) report: Report,
    pub(super) partitions: Vec<Partition>,
    pub(super) steps: Vec<Step>,
    /// Per step, whether an invocation with a limit on time reads the clock before it.
    pub(super) clock_reads: Vec<bool>,
    /// `None` if no tensor is ever in a buffer.
    pub(super) residency: Option<Residency>,
    memory: MemoryReport,
    /// Tensors and temporaries point into the arena; [`Planned::into_parts`] removes these pointers.
    _arena: AlignedBuffer,
}

impl Prepared {
    /// Plans memory.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] for an arena above what is left of the limit; [`Error::OutOfMemory`].
    pub(crate) fn plan(self, env: &mut Env<'_>) -> Result<Planned, Failed> {
        let Prepared { mut parts, inference, report, mut partitions, units, sharing } = self;
        let mut layout = Layout {
            parts: &mut parts,
            inference: &inference,
            partitions: &mut partitions,
            units: &units,
            sharing: &sharing,
        };
        let settings = env.services.settings;
        match layout.plan(settings, env.services.budget) {
            Ok(Placed { steps, arena, memory }) => {
                let mut planned = Planned {
                    clock_reads: clock_reads(&parts, &steps),
                    parts,
                    inference,
                    report,
                    partitions,
                    steps,
                    residency: None,
                    memory,
                    _arena: arena,
                };
                planned.plan_residency(settings);
                Ok(planned)
            }
            Err(error) => Err(Failed { parts, error }),
        }
    }
}

/// Returns for each step whether to read the clock before it. Reading takes as long as a node of a few elements, so the
/// clock is not read between builtin kernels that access few bytes. Kernels that run long for their number of bytes
/// read the clock themselves.
fn clock_reads(parts: &Parts, steps: &[Step]) -> Vec<bool> {
    const MAX_BYTES: usize = 1 << 16;
    let subgraph = parts.subgraph();
    // The invocation reads the clock at its beginning.
    let mut bytes = 0;
    let read_before = |step: &Step| {
        let read = bytes > MAX_BYTES;
        bytes = if read { 0 } else { bytes };
        let own = match *step {
            Step::View(_) => 0,
            Step::Node(id) => {
                let (node, kernel) = (subgraph.node(id), &parts.nodes[id.0]);
                let calls = node.op().builtin().is_none() || node.callees().next().is_some();
                let size = |t: TensorId| match &parts.tensors[t.0] {
                    // The length of strings is not known yet.
                    tensor if tensor.ty == TensorType::String => usize::MAX,
                    tensor => tensor.byte_size().unwrap_or(usize::MAX),
                };
                let tensors = node.inputs().iter().flatten().chain(node.outputs());
                // A node without data takes time as well.
                let own = tensors.fold(64, |sum: usize, &t| sum.saturating_add(size(t)));
                if calls || kernel.overridden || kernel.named { usize::MAX } else { own }
            }
            Step::Deferred(_) | Step::Partition(_) => usize::MAX,
        };
        bytes = bytes.saturating_add(own);
        read
    };
    steps.iter().map(read_before).collect()
}

impl Planned {
    /// Drops everything that depends on shapes and delegates.
    pub(crate) fn into_parts(self) -> Box<Parts> {
        let mut parts = self.parts;
        parts.unbind();
        parts
    }

    /// Returns tensors and kernels.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Returns tensors and kernels, mutable. Shapes must not be changed.
    pub(crate) fn parts_mut(&mut self) -> &mut Parts {
        &mut self.parts
    }

    /// Returns the report: runners and rejections of the nodes, partitions, failures of delegates, and composites.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the partitions, by their numbers.
    pub(crate) fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Returns the sizes of the subgraph's memory.
    pub(crate) fn memory(&self) -> MemoryReport {
        self.memory
    }

    /// Returns the graph as delegates saw it, without their claims.
    pub(crate) fn graph(&self) -> GraphView<'_> {
        let Inference { shape_known, states, .. } = &self.inference;
        GraphView::new(&self.parts.model, self.parts.index, &self.parts.tensors, shape_known, states)
    }

    /// Returns the shape of tensor `id` if it does not depend on data.
    pub(crate) fn known_shape(&self, id: TensorId) -> Option<&delegraph_core::Shape> {
        self.inference.shape_known[id.0].then(|| &self.parts.tensors[id.0].shape)
    }

    /// Returns whether tensor `id` can be bound to a buffer of the application without planning again.
    ///
    /// # Errors
    /// [`Error::State`] for a tensor that can never be bound.
    pub(crate) fn is_bound(&self, id: TensorId) -> Result<bool> {
        let tensor = &self.parts.tensors[id.0];
        // Before the first run, a tensor whose shape depends on data has no memory.
        let fixed = self.inference.shape_known[id.0] && tensor.ty != TensorType::String;
        match tensor.placement() {
            Placement::Bound => Ok(true),
            Placement::Arena | Placement::None if fixed => Ok(false),
            _ => Err(Error::State(format!(
                "tensor \"{}\" cannot be bound to a buffer: it is constant, a variable, a string tensor, or \
                 its shape depends on data",
                tensor.name
            ))),
        }
    }

    /// Determines which outputs of partitions may stay with their delegates.
    pub(crate) fn plan_residency(&mut self, settings: Settings) {
        let subgraph = &self.parts.model.subgraphs()[self.parts.index];
        let buffers = &self.parts.buffers;
        let mut on_cpu = vec![settings.preserve_all_tensors; self.parts.tensors.len()];
        for step in &self.steps {
            if let Step::Node(id) | Step::View(id) | Step::Deferred(id) = step {
                subgraph.node(*id).inputs().iter().flatten().for_each(|id| on_cpu[id.0] = true);
            }
        }
        // Kernels of dynamic partitions read data while preparing, or decline the partition.
        for partition in self.partitions.iter().filter(|p| p.preparation == Preparation::Dynamic) {
            partition.params.inputs.iter().for_each(|id| on_cpu[id.0] = true);
        }
        if !settings.keep_outputs {
            let wanted = |id: &&TensorId| !buffers.outputs.iter().any(|(wanted, _)| wanted == *id);
            subgraph.outputs().iter().filter(wanted).for_each(|id| on_cpu[id.0] = true);
        }
        let fixed = self.partitions.iter_mut().filter(|p| p.preparation == Preparation::Static);
        for Partition { params, may_stay, kernel, .. } in fixed {
            for (i, id) in params.outputs.iter().enumerate() {
                may_stay[i] = !on_cpu[id.0] && kernel.keeps(i);
            }
        }
        let used = !buffers.inputs.is_empty() || self.partitions.iter().any(|p| p.may_stay.contains(&true));
        self.residency = used.then(|| Residency::new(self.parts.tensors.len()));
    }

    /// Returns the buffer that holds tensor `id` after the last invocation, if the data are not in the CPU's memory.
    pub(crate) fn buffer(&self, id: TensorId) -> Option<&BufferHandle> {
        self.residency.as_ref()?.get(id)
    }

    /// Copies tensor `id` to the CPU's memory, if it is only in a buffer.
    ///
    /// # Errors
    /// The errors of the buffer.
    pub(crate) fn fetch(&mut self, id: TensorId) -> Result<()> {
        match &mut self.residency {
            Some(residency) => residency.fetch(id, &mut self.parts.tensors),
            None => Ok(()),
        }
    }

    /// Reads an input from `buffer` in every following invocation, or with `None` from the CPU's memory.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a buffer of another size.
    pub(crate) fn set_input_buffer(&mut self, id: TensorId, buffer: Option<BufferHandle>) -> Result<()> {
        let Parts { tensors, buffers, .. } = &mut *self.parts;
        set(&mut buffers.inputs, &tensors[id.0], id, buffer)?;
        self.residency.get_or_insert_with(|| Residency::new(tensors.len()));
        Ok(())
    }

    /// Copies an output to `buffer` in every following invocation; `None` ends this.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a buffer of another size.
    pub(crate) fn set_output_buffer(
        &mut self,
        id: TensorId,
        buffer: Option<BufferHandle>,
        settings: Settings,
    ) -> Result<()> {
        let Parts { tensors, buffers, .. } = &mut *self.parts;
        set(&mut buffers.outputs, &tensors[id.0], id, buffer)?;
        self.plan_residency(settings);
        Ok(())
    }
}

fn set(
    list: &mut Vec<(TensorId, BufferHandle)>,
    tensor: &RuntimeTensor,
    id: TensorId,
    buffer: Option<BufferHandle>,
) -> Result<()> {
    buffer.iter().try_for_each(|buffer| residency::check_size(tensor, buffer))?;
    list.retain(|(other, _)| *other != id);
    list.extend(buffer.map(|buffer| (id, buffer)));
    Ok(())
}

/// The state of planning memory.
struct Layout<'a> {
    parts: &'a mut Parts,
    inference: &'a Inference,
    partitions: &'a mut [Partition],
    units: &'a [Unit],
    sharing: &'a [super::prepared::Sharing],
}

/// The result of planning memory.
struct Placed {
    steps: Vec<Step>,
    arena: AlignedBuffer,
    memory: MemoryReport,
}

/// Lifetimes of tensors. A unit's number is the time at which it runs.
struct Lifetimes {
    /// Per tensor, the tensor whose memory it uses: itself, unless it is a view.
    roots: Vec<usize>,
    /// Per root, the first and the last unit that need its memory.
    spans: Vec<Lifetime>,
    /// Per unit, its step; `None` for nodes that were computed while preparing.
    steps: Vec<Option<Step>>,
}

impl Layout<'_> {
    /// Places every tensor and temporary of known size in one arena.
    fn plan(&mut self, settings: Settings, budget: &Arc<Budget>) -> Result<Placed> {
        for tensor in self.parts.tensors.iter_mut().filter(|t| t.placement() == Placement::Bound) {
            // `Interpreter::resize_input` documents that bound buffers of another size are dropped.
            if tensor.bytes().len() != tensor.byte_size()? {
                tensor.clear_data();
            }
        }
        let Lifetimes { mut roots, mut spans, steps } = self.lifetimes(settings.preserve_all_tensors)?;
        let subgraph = self.parts.subgraph();
        let in_place = steps.iter().enumerate().filter_map(|(unit, step)| match *step {
            Some(Step::Node(id)) => {
                Some((unit, subgraph.node(id), self.sharing[id.0].overwritable.as_slice()))
            }
            _ => None,
        });
        let saved = memory::share(in_place, &self.parts.tensors, &mut roots, &mut spans)?;
        let mut requests = Vec::new();
        let mut owners = Vec::new();
        for (i, span) in spans.iter().enumerate() {
            if let Some((first, last)) = *span {
                requests.push(Request { size: self.parts.tensors[i].byte_size()?, first, last });
                owners.push(i);
            }
        }
        for (unit, step) in steps.iter().enumerate() {
            let bytes = self.temporaries(*step).map_or(&[][..], |scratch| scratch.requests());
            requests.extend(bytes.iter().map(|&size| Request { size, first: unit, last: unit }));
        }
        let overflow = || Error::OutOfMemory("the arena's size overflows".into());
        let plan = memory::plan(&requests).ok_or_else(overflow)?;
        let mut arena = AlignedBuffer::charged(budget)?;
        arena.resize(plan.arena_bytes)?;
        let base = arena.bytes_mut().as_mut_ptr();
        let places: Vec<(*mut u8, usize)> =
            plan.offsets.iter().zip(&requests).map(|(&at, r)| (base.wrapping_add(at), r.size)).collect();
        self.bind(&places, &owners, &roots, &steps);
        let constants = self.parts.tensors.iter().filter(|t| t.is_constant());
        let memory = MemoryReport {
            arena_bytes: plan.arena_bytes,
            naive_bytes: plan.naive_bytes.saturating_add(saved),
            lower_bound_bytes: plan.lower_bound_bytes,
            weights_bytes: constants.map(|t| t.bytes().len()).sum(),
        };
        Ok(Placed { steps: steps.into_iter().flatten().collect(), arena, memory })
    }

    /// Returns the temporaries of a step that are in the arena.
    fn temporaries(&self, step: Option<Step>) -> Option<&memory::Scratch> {
        match step? {
            Step::Node(id) => Some(&self.parts.nodes[id.0].scratch),
            Step::Partition(p) if self.partitions[p].preparation == Preparation::Static => {
                Some(&self.partitions[p].scratch)
            }
            Step::View(_) | Step::Deferred(_) | Step::Partition(_) => None,
        }
    }

    fn lifetimes(&mut self, preserve_all: bool) -> Result<Lifetimes> {
        let model = self.parts.model.clone();
        let subgraph = &model.subgraphs()[self.parts.index];
        let tensors = &mut self.parts.tensors;
        let end = self.units.len();
        let mut roots: Vec<usize> = (0..tensors.len()).collect();
        let mut spans: Vec<Lifetime> = vec![None; tensors.len()];
        let mut steps = Vec::with_capacity(end);
        for input in subgraph.inputs() {
            if tensors[input.0].ty == TensorType::String {
                own_strings(&mut tensors[input.0])?;
            } else if tensors[input.0].placement() == Placement::None {
                // Inputs keep their data until the next invocation.
                spans[input.0] = Some((0, end));
            }
        }
        for (unit, kind) in self.units.iter().enumerate() {
            let (step, inputs, outputs) = match *kind {
                Unit::Node(id) => {
                    let node = subgraph.node(id);
                    let step = match self.inference.schedule[id.0] {
                        Schedule::Folded => None,
                        Schedule::Deferred => Some(Step::Deferred(id)),
                        Schedule::Static => {
                            let viewed = self.sharing[id.0].view_of.and_then(|i| node.input(i));
                            let source = viewed.map(|t| roots[t.0]);
                            let bound =
                                node.outputs().iter().any(|t| tensors[t.0].placement() == Placement::Bound);
                            let size = |t: usize| tensors[t].byte_size().ok();
                            let fits =
                                |t: usize| node.outputs().first().is_some_and(|o| size(o.0) == size(t));
                            let source = source.filter(|&t| spans[t].is_some() && !bound && fits(t));
                            if let (Some(source), Some(output)) = (source, node.outputs().first()) {
                                roots[output.0] = source;
                            }
                            Some(if source.is_some() { Step::View(id) } else { Step::Node(id) })
                        }
                    };
                    (step, node.inputs(), node.outputs())
                }
                Unit::Partition(p) => {
                    let Partition { inputs, params, .. } = &self.partitions[p];
                    (Some(Step::Partition(p)), inputs.as_slice(), params.outputs.as_slice())
                }
            };
            steps.push(step);
            let planned = match step {
                Some(Step::Node(_) | Step::View(_)) => true,
                Some(Step::Partition(p)) => self.partitions[p].preparation == Preparation::Static,
                Some(Step::Deferred(_)) | None => false,
            };
            for id in outputs.iter().filter(|_| planned) {
                match &mut tensors[id.0] {
                    tensor if tensor.ty == TensorType::String => {
                        own_strings(tensor)?;
                        continue;
                    }
                    tensor if tensor.placement() == Placement::Bound => continue,
                    _ => {}
                }
                let span = spans[roots[id.0]].get_or_insert((unit, unit));
                span.1 = span.1.max(unit);
            }
            for id in inputs.iter().flatten() {
                if let Some(span) = &mut spans[roots[id.0]] {
                    span.1 = span.1.max(unit);
                }
            }
        }
        for output in subgraph.outputs() {
            if let Some(span) = &mut spans[roots[output.0]] {
                span.1 = end;
            }
        }
        if preserve_all {
            spans.iter_mut().flatten().for_each(|span| span.1 = end);
        }
        Ok(Lifetimes { roots, spans, steps })
    }

    /// Sets the pointers of tensors and temporaries: first those of `owners`, then temporaries in the order of the
    /// steps.
    fn bind(
        &mut self,
        places: &[(*mut u8, usize)],
        owners: &[usize],
        roots: &[usize],
        steps: &[Option<Step>],
    ) {
        let mut placed = vec![None; self.parts.tensors.len()];
        let (tensors, mut temporaries) = places.split_at(owners.len());
        for (&owner, &place) in owners.iter().zip(tensors) {
            placed[owner] = Some(place);
        }
        for (tensor, &root) in self.parts.tensors.iter_mut().zip(roots) {
            if let Some((data, len)) = placed[root] {
                // SAFETY: the plan keeps `offset + size` within the arena (`memory::plan`). `Planned` holds the arena
                // and the tensors, and removes these pointers before it gives the tensors away (`Planned::into_parts`).
                // Tensors that are alive at one step do not overlap, except where one overwrites another in place
                // (`memory::share`).
                unsafe { tensor.set_data(Placement::Arena, data, len) };
            }
        }
        for step in steps {
            let scratch = match *step {
                Some(Step::Node(id)) => &mut self.parts.nodes[id.0].scratch,
                Some(Step::Partition(p)) if self.partitions[p].preparation == Preparation::Static => {
                    &mut self.partitions[p].scratch
                }
                _ => continue,
            };
            let (own, rest) = temporaries.split_at(scratch.requests().len());
            scratch.bind(own.to_vec());
            temporaries = rest;
        }
    }
}

/// Allocates separate memory for a string tensor, whose size is known only after it is written.
fn own_strings(tensor: &mut RuntimeTensor) -> Result<()> {
    if tensor.placement() == Placement::None { tensor.allocate(Placement::Dynamic) } else { Ok(()) }
}
