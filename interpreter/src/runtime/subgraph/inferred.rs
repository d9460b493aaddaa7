//! The first step of preparing: shapes, and everything that depends on constants only.

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::kernel::{Budget, Placement};
use delegraph_core::{BuiltinOp, Shape};
use delegraph_delegate_api::NodeState;
use delegraph_kernels::{Environment, Evaluation, KnownInputs, OutputShapes, evaluate, infer_outputs};

use super::empty::{Emptiness, check_rows, emptiness};
use super::folding;
use super::parts::{Failed, NodeKernel, Parts, reset};
use super::waiting::{Conversions, Waiting};
use crate::runtime::delegation::{Candidate, contain_kernel};
use crate::runtime::host::Env;
use crate::runtime::memory::ConstantReaders;

/// The time at which a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Computed while preparing.
    Folded,
    /// Prepared once, runs in every invocation.
    Static,
    /// Prepared and run during the invocation, when its inputs are computed.
    Deferred,
}

/// The results of inference.
pub(crate) struct Inference {
    /// Per tensor, whether its shape is known.
    pub(crate) shape_known: Vec<bool>,
    /// Per node, its schedule.
    pub(crate) schedule: Vec<Schedule>,
    /// Per node, its state before delegation.
    pub(crate) states: Vec<NodeState>,
    pub(crate) readers: ConstantReaders,
    waiting: Waiting,
}

/// Nodes over constants, and the bytes of their outputs.
pub(crate) type FoldedValues = Vec<(NodeId, Vec<Vec<u8>>)>;

/// A subgraph whose shapes are inferred.
pub(crate) struct Inferred {
    pub(crate) parts: Box<Parts>,
    pub(crate) inference: Inference,
}

impl Inferred {
    /// Infers shapes, and folds nodes over constants. `conversions` determines when weights are converted.
    ///
    /// # Errors
    /// The errors of op definitions and kernels, with the node.
    pub(crate) fn new(
        mut parts: Box<Parts>,
        conversions: Conversions,
        env: &mut Env<'_>,
    ) -> Result<Self, Failed> {
        match infer(&mut parts, conversions, env) {
            Ok(inference) => Ok(Inferred { parts, inference }),
            Err(error) => Err(Failed { parts, error }),
        }
    }

    /// Returns, per tensor, its shape; `None` if it depends on data.
    pub(crate) fn shapes(&self) -> Vec<Option<Shape>> {
        let shapes = self.parts.tensors.iter().zip(&self.inference.shape_known);
        shapes.map(|(t, known)| known.then(|| t.shape.clone())).collect()
    }

    /// Returns the values of nodes over constants, without those that depend on shapes only or on variables.
    pub(crate) fn folded_values(&self) -> FoldedValues {
        let (parts, subgraph) = (&self.parts, self.parts.subgraph());
        let folded = |id: &NodeId| {
            let node = subgraph.node(*id);
            let from_values = !parts.nodes[id.0].kernel.needs_shapes_only() || node.inputs().is_empty();
            let variables = node.outputs().iter().any(|t| subgraph.tensor(*t).is_variable());
            // A file stores no constants without elements.
            let any = node.outputs().iter().any(|t| !parts.tensors[t.0].bytes().is_empty());
            self.inference.schedule[id.0] == Schedule::Folded && from_values && any && !variables
        };
        let bytes = |id: NodeId| {
            let outputs = subgraph.node(id).outputs().iter();
            (id, outputs.map(|t| parts.tensors[t.0].bytes().to_vec()).collect())
        };
        subgraph.node_ids().filter(folded).map(bytes).collect()
    }
}

impl Inference {
    /// Returns the subgraph in the form in which it is offered to delegates.
    pub(crate) fn candidate<'a>(&'a self, parts: &'a Parts) -> Candidate<'a> {
        Candidate {
            model: &parts.model,
            index: parts.index,
            tensors: &parts.tensors,
            shape_known: &self.shape_known,
            states: &self.states,
        }
    }

    /// Releases constants that node `id` no longer reads, and that have no other consumers.
    pub(crate) fn release_constants(&mut self, parts: &mut Parts, id: NodeId, env: &Env<'_>) {
        // A delegate that claims the node that calls this subgraph also runs the subgraph, with its constants.
        let seen_by_caller = parts.index != 0 && !env.services.delegates.is_empty();
        if !env.services.settings.preserve_all_tensors && !seen_by_caller {
            let subgraph = &parts.model.subgraphs()[parts.index];
            self.readers.release_inputs(&parts.model, subgraph, subgraph.node(id), &mut parts.tensors);
        }
    }
}

fn infer(parts: &mut Parts, conversions: Conversions, env: &mut Env<'_>) -> Result<Inference> {
    let model = parts.model.clone();
    let subgraph = &model.subgraphs()[parts.index];
    let shape_known = clear(parts, env.services.budget)?;
    let count = subgraph.nodes().len();
    let mut inference = Inference {
        shape_known,
        schedule: Vec::with_capacity(count),
        states: Vec::with_capacity(count),
        readers: ConstantReaders::new(subgraph),
        waiting: Waiting::new(subgraph, conversions, env),
    };
    for id in subgraph.node_ids() {
        let node = subgraph.node(id);
        env.services.budget.check()?;
        let schedule = contain_kernel(|| inference.infer_node(parts, id, node, env));
        let schedule = schedule.map_err(|e| parts.locate(id, e))?;
        inference.schedule.push(schedule);
    }
    let state = |(node, schedule): (&NodeKernel, &Schedule)| {
        NodeState::default()
            .with_folded(*schedule == Schedule::Folded)
            .with_dynamic(*schedule == Schedule::Deferred)
            .with_side_effects(node.side_effects)
            .with_overridden(node.overridden)
    };
    inference.states = parts.nodes.iter().zip(&inference.schedule).map(state).collect();
    Ok(inference)
}

/// Drops the results of an earlier preparation, and allocates variables. Returns, per tensor, whether its shape is
/// known before any node is inferred.
fn clear(parts: &mut Parts, budget: &Budget) -> Result<Vec<bool>> {
    parts.unbind();
    let model = parts.model.clone();
    let subgraph = &model.subgraphs()[parts.index];
    let variables = subgraph.tensors().iter().zip(&parts.tensors).filter(|(file, _)| file.is_variable());
    let bytes = variables.map(|(_, tensor)| tensor.byte_size());
    budget.check_size(bytes.reduce(|sum, bytes| Ok(sum?.saturating_add(bytes?))).unwrap_or(Ok(0))?)?;
    let mut shape_known = vec![true; parts.tensors.len()];
    let mut is_input = vec![false; parts.tensors.len()];
    subgraph.inputs().iter().for_each(|id| is_input[id.0] = true);
    for (i, file) in subgraph.tensors().iter().enumerate() {
        let tensor = &mut parts.tensors[i];
        if file.is_constant() {
            continue;
        }
        if file.is_variable() {
            // A variable that is an input may have another shape than before.
            if tensor.placement() != Placement::Variable || tensor.bytes().len() != tensor.byte_size()? {
                tensor.allocate(Placement::Variable)?;
                reset(tensor)?;
            }
            continue;
        }
        // Planning checks whether a bound buffer still has the required size.
        if tensor.placement() != Placement::Bound {
            tensor.clear_data();
        }
        if !is_input[i] {
            tensor.shape = file.shape().clone();
            shape_known[i] = false;
        }
    }
    Ok(shape_known)
}

impl Inference {
    /// Computes the constants among a node's inputs that are waiting (see [`Waiting`]).
    ///
    /// # Errors
    /// The errors of their kernels, with the node that computes them.
    pub(crate) fn compute_inputs(&mut self, parts: &mut Parts, node: &Node, env: &mut Env<'_>) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        for tensor in node.inputs().iter().flatten() {
            let Some(id) = self.waiting.take(*tensor) else { continue };
            let model = parts.model.clone();
            let producer = model.subgraphs()[parts.index].node(id);
            // A chain of waiting nodes has two nodes at most (see [`Waiting::admits`]), so the recursion is not deeper.
            self.compute_inputs(parts, producer, env)?;
            // DEQUANTIZE writes its whole output, so that old contents of the buffer do not matter.
            if producer.op().builtin() == Some(BuiltinOp::DEQUANTIZE)
                && let Some(spare) = self.readers.take_spare()
                && spare.capacity() > 0
            {
                parts.tensors[tensor.0].lend(spare);
            }
            if self.fold(parts, id, producer, env).map_err(|e| parts.locate(id, e))? != Schedule::Folded {
                return Err(Error::State("the shape of converted weights depends on data".into()));
            }
        }
        Ok(())
    }

    fn infer_node(
        &mut self,
        parts: &mut Parts,
        id: NodeId,
        node: &Node,
        env: &mut Env<'_>,
    ) -> Result<Schedule> {
        if node.inputs().iter().flatten().any(|t| !self.shape_known[t.0]) {
            return Ok(Schedule::Deferred);
        }
        match infer_outputs(node, &mut parts.tensors, KnownInputs::Constants)? {
            OutputShapes::Known => {}
            OutputShapes::DataDependent => return Ok(Schedule::Deferred),
            OutputShapes::FromKernel => {
                let inputs = node.inputs().iter().flatten();
                check_rows(node, &parts.nodes[id.0], inputs, &parts.tensors, env.services.budget)?;
                self.compute_inputs(parts, node, env)?;
                let shared = self.readers.depends_on_model_alone(node);
                if !parts.prepare_node(id, false, shared, env)?.data_dependent.is_empty() {
                    return Ok(Schedule::Deferred);
                }
            }
        }
        for output in node.outputs() {
            let tensor = &parts.tensors[output.0];
            env.services.budget.check_size(tensor.byte_size()?)?;
        }
        let runtime = &parts.nodes[id.0];
        if emptiness(node, runtime, &parts.tensors, env.services.budget)? == Emptiness::Idle {
            for output in node.outputs() {
                parts.tensors[output.0].allocate(Placement::Dynamic)?;
                parts.tensors[output.0].freeze();
                self.shape_known[output.0] = true;
            }
            self.readers.folded(node, true);
            return Ok(Schedule::Folded);
        }
        let waits = |t: &TensorId| self.waiting.contains(*t);
        let constant = node.inputs().iter().flatten().all(|t| parts.tensors[t.0].is_constant() || waits(t));
        let builtin = node.op().builtin().is_some() && !runtime.named;
        let foldable = !runtime.side_effects && builtin && !node.outputs().is_empty();
        let foldable = foldable && (constant || runtime.kernel.needs_shapes_only());
        let schedule = if foldable && folding::is_worthwhile(parts, node, env)? {
            if !runtime.overridden && self.waiting.admits(node, parts.subgraph(), &parts.tensors) {
                self.waiting.insert(node.outputs()[0], id);
                self.readers.keep_spare();
                self.readers.folded(node, false);
                Schedule::Folded
            } else {
                self.compute_inputs(parts, node, env)?;
                self.fold(parts, id, node, env)?
            }
        } else {
            Schedule::Static
        };
        if schedule != Schedule::Deferred {
            node.outputs().iter().for_each(|t| self.shape_known[t.0] = true);
        }
        Ok(schedule)
    }

    /// Computes a node whose inputs are constant; its outputs become constants. Variables among them are initialized
    /// instead, once.
    fn fold(&mut self, parts: &mut Parts, id: NodeId, node: &Node, env: &mut Env<'_>) -> Result<Schedule> {
        let variable = |t: &TensorId| parts.tensors[t.0].placement() == Placement::Variable;
        let variables = node.outputs().iter().filter(|t| variable(t)).count();
        if variables > 0 && parts.initialization.includes(id) {
            return Ok(Schedule::Folded);
        }
        env.share_constants_of(self.readers.depends_on_model_alone(node).then_some((parts.index, id.0)));
        let parallel = env.services.parallel;
        let runtime = &mut parts.nodes[id.0];
        let mut environment = Environment { host: env, parallel };
        let kernel = &mut *runtime.kernel;
        match evaluate(node, kernel, &mut parts.tensors, KnownInputs::Constants, &mut environment)? {
            Evaluation::Computed => {}
            Evaluation::DataDependent => return Ok(Schedule::Deferred),
        }
        if variables > 0 {
            if variables < node.outputs().len() {
                let text = "only some of the outputs of a node over constants are variables";
                return Err(Error::InvalidNode(text.into()));
            }
            parts.initialization.note(id);
            return Ok(Schedule::Folded);
        }
        let instance_specific = runtime.overridden || runtime.kernel.needs_shapes_only();
        self.readers.folded(node, instance_specific);
        // Delegates may read all constants.
        if env.services.delegates.is_empty() {
            self.release_constants(parts, id, env);
        }
        Ok(Schedule::Folded)
    }
}
