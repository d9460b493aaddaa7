//! One subgraph at run time: its tensors, its kernels, and the order in which they run.
//!
//! Preparing goes in four passes: shapes are inferred and nodes over constants are computed ("folded"); delegates
//! claim nodes; the kernels that are left prepare; the arena is planned. Nodes whose shapes depend on data are
//! deferred: they are prepared while running, when their inputs are there, and own their memory.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, Node, NodeId, TensorId};
use delegraph_core::kernel::{
    AlignedBuffer, InitContext, InvokeContext, Kernel, Placement, PrepareContext, RuntimeTensor,
};
use delegraph_core::ops::{self, InferredShape};
use delegraph_core::{Composite, OpResolver, Shape, TensorType};
use delegraph_delegate_api::{GraphView, NodeState, Report};
use smallvec::SmallVec;

use crate::constants::{self, Readers};
use crate::devices::Devices;
use crate::engine::Env;
use crate::fusion::inline::kernel_key;
use crate::partition::Partition;

mod layout;

/// How a node gets its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Computed while preparing.
    Folded,
    /// Prepared; runs in every invocation.
    Static,
    /// Its output shares its input's memory: nothing to do.
    View,
    /// Prepared and run when its inputs are there.
    Deferred,
}

/// Temporaries of a step: how many bytes each, and where they are.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) bytes: SmallVec<[usize; 4]>,
    pointers: Vec<(*mut u8, usize)>,
    /// Those that keep what they hold, ascending, each with its number. They have their own memory in place of the
    /// arena's, and ask for none there.
    persistent: SmallVec<[(usize, AlignedBuffer); 1]>,
    /// Memory of deferred and folded nodes, which are not in the arena's plan.
    own: Vec<AlignedBuffer>,
}

// SAFETY: the pointers lead into the arena or into `own`; both belong to the same subgraph and move with it.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) fn pointers(&self) -> &[(*mut u8, usize)] {
        &self.pointers
    }

    /// What a node asked for: bytes of each, and which of them are persistent. Where the persistent ones are as large as
    /// before they keep what they hold; otherwise all of them begin anew, as what one holds goes with the others.
    fn ask(&mut self, mut bytes: SmallVec<[usize; 4]>, persistent: &[usize]) -> Result<()> {
        let sizes: SmallVec<[usize; 2]> = persistent.iter().map(|&i| std::mem::take(&mut bytes[i])).collect();
        self.bytes = bytes;
        if self.persistent.iter().map(|(_, memory)| memory.len()).eq(sizes.iter().copied()) {
            self.persistent.iter_mut().zip(persistent).for_each(|((i, _), &now)| *i = now);
            return Ok(());
        }
        self.persistent.clear();
        for (&i, size) in persistent.iter().zip(sizes) {
            self.persistent.push((i, AlignedBuffer::zeroed(size)?));
        }
        Ok(())
    }

    fn point(&mut self, pointers: Vec<(*mut u8, usize)>) {
        self.pointers = pointers;
        for (number, memory) in &mut self.persistent {
            self.pointers[*number] = (memory.bytes_mut().as_mut_ptr(), memory.len());
        }
    }

    pub(crate) fn allocate(&mut self) -> Result<()> {
        self.own.resize_with(self.bytes.len(), AlignedBuffer::default);
        let mut pointers = std::mem::take(&mut self.pointers);
        pointers.clear();
        for (buffer, &bytes) in self.own.iter_mut().zip(&self.bytes) {
            buffer.resize(bytes)?;
            pointers.push((buffer.bytes_mut().as_mut_ptr(), bytes));
        }
        self.point(pointers);
        Ok(())
    }
}

struct NodeRuntime {
    kernel: Box<dyn Kernel>,
    side_effects: bool,
    overridden: bool,
    /// It is a composite, with a kernel of its name.
    named: bool,
    turn: Turn,
    /// It gave variables their first value.
    begun: bool,
    /// Whether the kernel has packed its constants.
    packed: bool,
    /// The input that output 0 is a view of.
    view_of: Option<usize>,
    /// Inputs that output 0 may be written over.
    overwritable: SmallVec<[usize; 2]>,
    scratch: Scratch,
}

/// What runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Node(NodeId),
    Partition(usize),
}

/// Memory of one subgraph, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// The arena.
    pub arena_bytes: usize,
    /// What the same tensors would take without sharing.
    pub naive_bytes: usize,
    /// No plan can do with less.
    pub lower_bound_bytes: usize,
    /// Constants: in the file, and computed from them while preparing, but those that kernels packed instead.
    pub weights_bytes: usize,
}

/// Shapes of tensors, states of nodes, and values of nodes over constants, by node and output.
pub(crate) type Inference = (Vec<Option<Shape>>, Vec<NodeState>, Vec<(NodeId, Vec<Vec<u8>>)>);

pub(crate) struct SubgraphRuntime {
    pub(crate) model: Arc<Model>,
    pub(crate) index: usize,
    pub(crate) tensors: Vec<RuntimeTensor>,
    pub(crate) shape_known: Vec<bool>,
    nodes: Vec<NodeRuntime>,
    pub(crate) steps: Vec<Step>,
    pub(crate) partitions: Vec<Partition>,
    /// What is known of each node before delegation.
    pub(crate) states: Vec<NodeState>,
    /// Who runs what.
    pub(crate) report: Report,
    /// Where tensors are that are not, or not only, in the CPU's memory.
    pub(crate) devices: Devices,
    readers: Readers,
    arena: AlignedBuffer,
    pub(crate) memory: MemoryReport,
    pub(crate) prepared: bool,
}

impl SubgraphRuntime {
    /// Makes a kernel for every node and points constants at the file.
    pub(crate) fn new(model: Arc<Model>, index: usize, resolver: &dyn OpResolver) -> Result<Self> {
        let subgraph = &model.subgraphs[index];
        let mut nodes = Vec::with_capacity(subgraph.nodes.len());
        for id in subgraph.node_ids() {
            let node = subgraph.node(id);
            let at = |e: Error| e.at(model.locate(index, id));
            // A kernel for what a composite stands for comes before one that calls its body.
            let composite = Composite::with_body(&model, node);
            let named = composite.and_then(|c| resolver.find(&kernel_key(&c), c.version));
            let registration = named.or_else(|| resolver.find(&node.op, node.version));
            let registration =
                registration.ok_or_else(|| Error::Unsupported("no kernel".into())).map_err(at)?;
            let custom_options = match composite {
                Some(composite) => composite.bytes,
                None => model.bytes().get(node.custom_options.clone()).unwrap_or_default(),
            };
            let kernel = registration.init(&InitContext { node, subgraph, custom_options }).map_err(at)?;
            nodes.push(NodeRuntime {
                kernel,
                side_effects: registration.has_side_effects(),
                overridden: registration.overrides_builtin(),
                named: named.is_some(),
                turn: Turn::Static,
                packed: false,
                view_of: None,
                overwritable: SmallVec::new(),
                scratch: Scratch::default(),
                begun: false,
            });
        }
        let mut tensors: Vec<RuntimeTensor> = subgraph.tensors.iter().map(RuntimeTensor::new).collect();
        for (tensor, file) in tensors.iter_mut().zip(&subgraph.tensors) {
            if let Some(bytes) = model.constant(file) {
                point_at_constant(tensor, bytes)?;
            }
        }
        let shape_known = vec![true; tensors.len()];
        let steps = subgraph.node_ids().map(Step::Node).collect();
        let (partitions, states, report, devices, readers, arena, memory) = Default::default();
        Ok(SubgraphRuntime {
            index,
            tensors,
            shape_known,
            nodes,
            steps,
            partitions,
            states,
            report,
            devices,
            readers,
            arena,
            memory,
            prepared: false,
            model: model.clone(),
        })
    }

    /// Takes over what the application and earlier invocations left in `old`, a subgraph whose tensors are the first ones
    /// of this one.
    pub(crate) fn inherit(&mut self, old: Self) {
        let subgraph = &self.model.subgraphs[self.index];
        let begun = old.nodes.iter().any(|n| n.begun);
        self.nodes.iter_mut().for_each(|n| n.begun = begun);
        self.devices = old.devices;
        let files = subgraph.tensors.iter().enumerate();
        for (tensor, (slot, (i, file))) in old.tensors.into_iter().zip(self.tensors.iter_mut().zip(files)) {
            if subgraph.inputs.contains(&TensorId(i)) || file.is_variable {
                *slot = tensor;
            }
        }
    }

    /// What inferring found out.
    pub(crate) fn inference(&self, values: bool) -> Inference {
        let shapes = self.tensors.iter().zip(&self.shape_known);
        let shapes = shapes.map(|(t, known)| known.then(|| t.shape.clone())).collect();
        let subgraph = &self.model.subgraphs[self.index];
        let folded = |id: &NodeId| {
            let node = subgraph.node(*id);
            let runtime = &self.nodes[id.0];
            let from_values = !runtime.kernel.needs_shapes_only() || node.inputs.is_empty();
            let variables = node.outputs.iter().any(|t| subgraph.tensor(*t).is_variable);
            runtime.turn == Turn::Folded && from_values && !variables
        };
        let ids = subgraph.node_ids().filter(|id| values && folded(id));
        let bytes = |id: NodeId| {
            let outputs = subgraph.node(id).outputs.iter();
            (id, outputs.map(|t| self.tensors[t.0].bytes().to_vec()).collect())
        };
        (shapes, self.states.clone(), ids.map(bytes).collect())
    }

    /// Whether the node is a composite that a kernel of its name runs.
    pub(crate) fn has_named_kernel(&self, id: NodeId) -> bool {
        self.nodes.get(id.0).is_some_and(|n| n.named)
    }

    /// The first pass: shapes, and everything that constants alone decide.
    pub(crate) fn infer(&mut self, env: &mut Env<'_>) -> Result<()> {
        self.prepared = false;
        self.partitions.clear();
        let model = self.model.clone();
        let subgraph = &model.subgraphs[self.index];
        self.steps = subgraph.node_ids().map(Step::Node).collect();
        self.readers = Readers::new(subgraph);
        let variables = subgraph.tensors.iter().zip(&self.tensors).filter(|(file, _)| file.is_variable);
        let bytes = variables.map(|(_, tensor)| tensor.byte_size());
        env.check_size(bytes.reduce(|sum, bytes| Ok(sum?.saturating_add(bytes?))).unwrap_or(Ok(0))?)?;
        for (i, file) in subgraph.tensors.iter().enumerate() {
            let tensor = &mut self.tensors[i];
            if file.is_constant() {
                continue;
            }
            if file.is_variable {
                if tensor.placement() != Placement::Variable {
                    tensor.allocate(Placement::Variable)?;
                    forget(tensor)?;
                }
                continue;
            }
            // Whether a bound buffer still fits is seen when memory is planned.
            if tensor.placement() != Placement::Bound {
                tensor.clear_data();
            }
            if !subgraph.inputs.contains(&TensorId(i)) {
                tensor.shape = file.shape.clone();
                self.shape_known[i] = false;
            }
        }
        for id in subgraph.node_ids() {
            self.infer_node(id, env).map_err(|e| e.at(model.locate(self.index, id)))?;
        }
        let state = |n: &NodeRuntime| NodeState {
            folded: n.turn == Turn::Folded,
            dynamic: n.turn == Turn::Deferred,
            side_effects: n.side_effects,
            overridden: n.overridden,
            taken: false,
        };
        self.states = self.nodes.iter().map(state).collect();
        self.report = Report::default();
        Ok(())
    }

    fn infer_node(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        let model = self.model.clone();
        let node = model.subgraphs[self.index].node(id);
        self.nodes[id.0].turn = Turn::Deferred;
        if node.inputs.iter().flatten().any(|t| !self.shape_known[t.0]) {
            return Ok(());
        }
        match self.infer_outputs(node, false, env)? {
            Outputs::Known => {}
            Outputs::DataDependent => return Ok(()),
            Outputs::FromKernel => {
                if !self.prepare_node(id, false, env)?.is_empty() {
                    return Ok(());
                }
            }
        }
        for output in &node.outputs {
            env.check_size(self.tensors[output.0].byte_size()?)?;
            self.shape_known[output.0] = true;
        }
        self.nodes[id.0].turn = Turn::Static;
        let runtime = &self.nodes[id.0];
        let constant = node.inputs.iter().flatten().all(|t| self.tensors[t.0].is_constant());
        let builtin = node.op.builtin().is_some() && !runtime.named;
        let foldable = !runtime.side_effects && builtin && !node.outputs.is_empty();
        if foldable && (constant || runtime.kernel.needs_shapes_only()) {
            self.fold(id, node, env)?;
        }
        Ok(())
    }

    /// Asks the op's definition for types and shapes. Custom ops have none: their kernels say.
    fn infer_outputs(&mut self, node: &Node, known: bool, env: &mut Env<'_>) -> Result<Outputs> {
        let Some(definition) = node.op.builtin().and_then(ops::definition) else {
            return Ok(Outputs::FromKernel);
        };
        let threads = env.parallel.threads();
        let cx = PrepareContext::new(
            &node.params,
            node.version,
            &node.inputs,
            &node.outputs,
            &mut self.tensors,
            known,
            threads,
            env,
        );
        let inferred = (definition.infer)(&cx.infer_context())?;
        if inferred.len() != node.outputs.len() {
            let text = format!("the node has {} outputs, the op {}", node.outputs.len(), inferred.len());
            return Err(Error::InvalidNode(text));
        }
        let mut result = Outputs::Known;
        for (i, (output, id)) in inferred.into_iter().zip(&node.outputs).enumerate() {
            let tensor = &mut self.tensors[id.0];
            if tensor.ty != output.ty {
                // Some files declare floats where the op gives quantized values. The op decides, as in the field's
                // runtime; only state already has its memory.
                let (name, declared, given) = (&tensor.name, tensor.ty, output.ty);
                if tensor.placement() == Placement::Variable {
                    let text = format!("output {i} is a variable of {declared}, the op gives {given}");
                    return Err(Error::InvalidNode(text));
                }
                log::warn!(
                    "tensor \"{name}\" is declared {declared}, but its op gives {given}, which is taken"
                );
                tensor.ty = output.ty;
            }
            match output.shape {
                InferredShape::Known(shape) => tensor.shape = shape,
                InferredShape::DataDependent => result = Outputs::DataDependent,
                InferredShape::FromKernel if result == Outputs::Known => result = Outputs::FromKernel,
                InferredShape::FromKernel => {}
            }
        }
        Ok(result)
    }

    /// Calls the kernel's `prepare`; returns the outputs whose shapes depend on data.
    fn prepare_node(
        &mut self,
        id: NodeId,
        known: bool,
        env: &mut Env<'_>,
    ) -> Result<SmallVec<[TensorId; 2]>> {
        let node = &self.model.subgraphs[self.index].nodes[id.0];
        let runtime = &mut self.nodes[id.0];
        let threads = env.parallel.threads();
        env.preparing = self.readers.depends_on_model_alone(node).then_some((self.index, id.0));
        let mut cx = PrepareContext::new(
            &node.params,
            node.version,
            &node.inputs,
            &node.outputs,
            &mut self.tensors,
            known,
            threads,
            env,
        )
        .with_persistent_memory();
        runtime.kernel.prepare(&mut cx)?;
        runtime.packed = cx.is_done_with_constants();
        runtime.overwritable = cx.overwritable().into();
        runtime.view_of = if runtime.kernel.is_view() { Some(0) } else { cx.view_of() };
        let persistent: SmallVec<[usize; 2]> = cx.persistent_requests().into();
        let (bytes, data_dependent) = cx.finish();
        for &bytes in &bytes {
            env.check_size(bytes)?;
        }
        runtime.scratch.ask(bytes, &persistent)?;
        Ok(data_dependent)
    }

    fn run_node(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        let node = &self.model.subgraphs[self.index].nodes[id.0];
        let runtime = &mut self.nodes[id.0];
        let parallel = env.parallel;
        // SAFETY: ids are in range and no output is an input (checked when the model was loaded); the planner gives
        // tensors and temporaries that are alive at one step disjoint memory, but for one input that dies where output 0
        // is written over all of it (`in_place`), and all others own theirs; `&mut self` and `&mut env` keep
        // everybody else out.
        let mut cx = unsafe {
            InvokeContext::new(
                &node.inputs,
                &node.outputs,
                &mut self.tensors,
                &runtime.scratch.pointers,
                parallel,
                env,
            )
        };
        runtime.kernel.invoke(&mut cx)
    }

    /// Computes a node whose inputs are constant; its outputs become constants.
    fn fold(&mut self, id: NodeId, node: &Node, env: &mut Env<'_>) -> Result<()> {
        if !self.prepare_node(id, false, env)?.is_empty() {
            self.nodes[id.0].turn = Turn::Deferred;
            node.outputs.iter().for_each(|t| self.shape_known[t.0] = false);
            return Ok(());
        }
        let variable = |t: &TensorId| self.tensors[t.0].placement() == Placement::Variable;
        if node.outputs.iter().any(variable) {
            return self.begin_variables(id, node, env);
        }
        for output in &node.outputs {
            self.tensors[output.0].allocate_passing()?;
        }
        self.compute_now(id, env)?;
        node.outputs.iter().for_each(|t| self.tensors[t.0].freeze());
        let runtime = &self.nodes[id.0];
        self.readers.computed(node, runtime.overridden || runtime.kernel.needs_shapes_only());
        // Delegates see all constants.
        if env.delegation.delegates.is_empty() {
            self.done(id, env);
        }
        Ok(())
    }

    /// Runs a node whose outputs have their memory.
    fn compute_now(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        self.nodes[id.0].scratch.allocate()?;
        self.run_node(id, env)?;
        self.nodes[id.0].scratch = Scratch::default();
        self.nodes[id.0].turn = Turn::Folded;
        Ok(())
    }

    /// A node over constants that writes variables gives them their first value, which is not theirs for long: it runs
    /// once, however often the subgraph is prepared.
    fn begin_variables(&mut self, id: NodeId, node: &Node, env: &mut Env<'_>) -> Result<()> {
        if std::mem::replace(&mut self.nodes[id.0].begun, true) {
            self.nodes[id.0].turn = Turn::Folded;
            return Ok(());
        }
        for output in &node.outputs {
            if self.tensors[output.0].placement() != Placement::Variable {
                let text = "only some of the outputs of a node over constants are variables";
                return Err(Error::InvalidNode(text.into()));
            }
        }
        self.compute_now(id, env)
    }

    /// A node has no more need of its constant inputs.
    fn done(&mut self, id: NodeId, env: &Env<'_>) {
        // A delegate that takes the node that calls this subgraph takes the subgraph, too, with its constants.
        let seen_by_caller = self.index != 0 && !env.delegation.delegates.is_empty();
        if !env.settings.preserve_all_tensors && !seen_by_caller {
            let subgraph = &self.model.subgraphs[self.index];
            self.readers.done(&self.model, subgraph, &subgraph.node(id).inputs, &mut self.tensors);
        }
    }

    /// The third and fourth pass: kernels prepare, and the arena is planned.
    pub(crate) fn finish(&mut self, env: &mut Env<'_>) -> Result<()> {
        let model = self.model.clone();
        // Delegates first: where one fails, constants must still be there for whoever runs its nodes instead.
        for i in 0..self.steps.len() {
            if let Step::Partition(p) = self.steps[i] {
                let partition = &mut self.partitions[p];
                if partition.dynamic {
                    continue;
                }
                if !partition.prepare(&mut self.tensors, false, env)?.is_empty() {
                    let text = "the kernel calls a shape data-dependent that inference knows";
                    return Err(partition.failure(Error::State(text.into()), env));
                }
            }
        }
        for i in 0..self.steps.len() {
            let Step::Node(id) = self.steps[i] else { continue };
            match self.nodes[id.0].turn {
                Turn::Static => {
                    let index = self.index;
                    let location = || model.locate(index, id);
                    let prepared = self.prepare_node(id, false, env);
                    if !prepared.map_err(|e| e.at(location()))?.is_empty() {
                        let text = "the kernel calls a shape data-dependent that inference knows";
                        return Err(Error::State(text.into()).at(location()));
                    }
                    if self.nodes[id.0].packed {
                        self.done(id, env);
                    } else {
                        constants::own_small(model.subgraphs[index].node(id), &mut self.tensors)?;
                    }
                }
                Turn::Folded if !env.delegation.delegates.is_empty() => self.done(id, env),
                _ => {}
            }
        }
        model.let_go();
        self.drop_buffers_that_do_not_fit();
        self.plan_devices(env);
        self.plan_memory(env)?;
        self.prepared = true;
        Ok(())
    }

    /// Runs every step.
    pub(crate) fn invoke(&mut self, env: &mut Env<'_>) -> Result<()> {
        self.begin_devices();
        for i in 0..self.steps.len() {
            let start = env.observer.begin()?;
            match self.steps[i] {
                Step::Node(id) => {
                    let turn = self.nodes[id.0].turn;
                    if self.devices.count > 0 {
                        self.fetch_inputs(id)?;
                    }
                    let result = match turn {
                        Turn::Folded | Turn::View => continue,
                        Turn::Static => self.run_node(id, env),
                        Turn::Deferred => self.run_deferred(id, env),
                    };
                    result.map_err(|e| e.at(self.model.locate(self.index, id)))?;
                    env.observer.end(start, (self.index, &[id]), None, turn == Turn::Deferred);
                }
                Step::Partition(p) => {
                    self.run_partition(p, env)?;
                    let partition = &self.partitions[p];
                    let (nodes, times) = (partition.params.nodes.as_slice(), partition.kernel.node_times());
                    let delegate = Some((&*partition.owner.name, times));
                    env.observer.end(start, (self.index, nodes), delegate, partition.dynamic);
                }
            }
        }
        Ok(())
    }

    /// Runs a partition, which takes inputs from buffers where it can, and may leave outputs in buffers.
    fn run_partition(&mut self, p: usize, env: &mut Env<'_>) -> Result<()> {
        if self.devices.count > 0 {
            for i in 0..self.partitions[p].params.inputs.len() {
                let partition = &mut self.partitions[p];
                let id = partition.params.inputs[i];
                let buffer = self.devices.get(id);
                let taken = buffer.filter(|b| partition.kernel.accepts(i, b)).cloned();
                let left = buffer.is_some() && taken.is_none();
                partition.taken[i] = taken;
                if left {
                    self.fetch(id)?;
                }
            }
        }
        if self.partitions[p].dynamic {
            self.prepare_dynamic(p, env)?;
        }
        let partition = &mut self.partitions[p];
        partition.invoke(&mut self.tensors, env)?;
        partition.taken.fill(None);
        self.settle(p);
        Ok(())
    }

    /// Prepares a partition now that its inputs are there. Its outputs own their memory.
    fn prepare_dynamic(&mut self, p: usize, env: &mut Env<'_>) -> Result<()> {
        let model = self.model.clone();
        if self.partitions[p].owner.capabilities.propagated_shapes {
            for i in 0..self.partitions[p].params.nodes.len() {
                let id = self.partitions[p].params.nodes[i];
                self.infer_outputs(model.subgraphs[self.index].node(id), false, env)
                    .map_err(|e| e.at(model.locate(self.index, id)))?;
            }
        }
        let partition = &mut self.partitions[p];
        let data_dependent = partition.prepare(&mut self.tensors, true, env)?;
        for id in &partition.params.outputs {
            let tensor = &mut self.tensors[id.0];
            if data_dependent.contains(id) {
                tensor.allocate_bytes(Placement::Dynamic, 0)?;
            } else {
                env.check_size(tensor.byte_size()?)?;
                tensor.allocate(Placement::Dynamic)?;
            }
        }
        partition.scratch.allocate()
    }

    /// Prepares a node now that its inputs are there, and runs it. Its outputs own their memory.
    fn run_deferred(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        let model = self.model.clone();
        let node = model.subgraphs[self.index].node(id);
        let inferred = self.infer_outputs(node, true, env)?;
        let data_dependent = self.prepare_node(id, true, env)?;
        for output in &node.outputs {
            let tensor = &mut self.tensors[output.0];
            let unknown = inferred == Outputs::DataDependent || data_dependent.contains(output);
            if unknown {
                tensor.allocate_bytes(Placement::Dynamic, 0)?;
            } else {
                env.check_size(tensor.byte_size()?)?;
                tensor.allocate(Placement::Dynamic)?;
            }
        }
        self.nodes[id.0].scratch.allocate()?;
        self.run_node(id, env)
    }

    /// Gives input `i` another shape. What it held is lost.
    pub(crate) fn resize_input(&mut self, id: TensorId, shape: &Shape) {
        if self.tensors[id.0].shape != *shape {
            self.tensors[id.0].shape = shape.clone();
            self.prepared = false;
        }
    }

    /// Lets an input or output live in `buffer`. The first time, memory is planned anew; after that buffers are just
    /// exchanged.
    pub(crate) fn bind(&mut self, id: TensorId, buffer: AlignedBuffer) -> Result<Option<AlignedBuffer>> {
        let tensor = &mut self.tensors[id.0];
        // Before the first run a tensor whose shape depends on data is nowhere yet.
        let fixed = self.shape_known[id.0] && tensor.ty != TensorType::String;
        match tensor.placement() {
            Placement::Bound => {}
            Placement::Arena | Placement::None if fixed => self.prepared = false,
            _ => {
                return Err(Error::State(format!(
                    "tensor \"{}\" cannot live in a buffer of the application: it is constant, a variable, or its \
                     shape depends on data",
                    tensor.name
                )));
            }
        }
        tensor.bind(buffer)
    }

    /// Sets the variable tensors to what they were at first.
    pub(crate) fn reset_variables(&mut self) -> Result<()> {
        self.tensors.iter_mut().filter(|t| t.placement() == Placement::Variable).try_for_each(forget)
    }

    pub(crate) fn graph<'a>(&'a self, states: &'a [NodeState]) -> GraphView<'a> {
        GraphView::new(&self.model, self.index, &self.tensors, &self.shape_known, states)
    }
}

/// What inference knows of a node's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outputs {
    Known,
    DataDependent,
    FromKernel,
}

/// Fills a variable tensor with what it holds at first: zeros, which for a quantized INT8 tensor are its zero point.
fn forget(tensor: &mut RuntimeTensor) -> Result<()> {
    let zero = match (tensor.ty, tensor.scale_zero_point()) {
        (TensorType::Int8, Some((_, zero_point))) => zero_point as u8,
        _ => 0,
    };
    tensor.bytes_mut()?.fill(zero);
    Ok(())
}

/// Gives a string tensor memory of its own: only its kernel, or the caller, knows how much it takes.
fn own_strings(tensor: &mut RuntimeTensor) -> Result<()> {
    if tensor.placement() == Placement::None { tensor.allocate(Placement::Dynamic) } else { Ok(()) }
}

/// Lets a constant tensor read the file's bytes in place, or a copy where the file does not align them.
fn point_at_constant(tensor: &mut RuntimeTensor, bytes: &[u8]) -> Result<()> {
    let align = tensor.ty.bits().map_or(1, |bits| (bits / 8).max(1));
    if !bytes.as_ptr().addr().is_multiple_of(align) {
        return tensor.set_constant_copy(bytes);
    }
    // SAFETY: the model, which the subgraph keeps alive, owns the bytes and never changes them; constants are never
    // written through.
    unsafe { tensor.set_data(Placement::Constant, bytes.as_ptr().cast_mut(), bytes.len()) };
    Ok(())
}
