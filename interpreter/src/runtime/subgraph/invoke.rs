//! Running a planned subgraph, step by step.

use std::task::{Context, Poll};

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::NodeId;
use delegraph_core::kernel::{Budget, Placement, RuntimeTensor};
use delegraph_delegate_api::Submitted;
use delegraph_kernels::{KnownInputs, OutputShapes, infer_outputs};
use web_time::Instant;

use super::empty::{Emptiness, check_rows, emptiness};
use super::inferred::Schedule;
use super::parts::{Parts, is_among};
use super::planned::{Planned, Step};
use super::prepared::failure;
use super::residency::{self, Residency};
use crate::runtime::delegation::{Partition, Preparation, contain_kernel};
use crate::runtime::host::Env;

/// The position of an invocation. Dropping a cursor without [`Planned::abandon`] leaves the work of a delegate to the
/// next invocation, which abandons it.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The next step, or the pending one.
    step: usize,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// No step has run.
    #[default]
    Unstarted,
    /// The steps before `step` have run.
    AtStep,
    /// The kernel of `step` is running. `start` is `None` if no profiler is set.
    Pending { start: Option<Instant> },
}

impl Cursor {
    /// Whether no step has run.
    pub(crate) fn is_unstarted(&self) -> bool {
        matches!(self.state, State::Unstarted)
    }
}

/// The progress of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All outputs are computed.
    Done,
    /// A delegate's kernel is pending.
    Pending,
}

impl Planned {
    /// Runs steps from `cursor` to the end or, with `task`, to the first step whose kernel is pending; `task` is woken
    /// when calling this again may make progress. Without `task` the call blocks.
    ///
    /// # Errors
    /// The errors of kernels, with node or partition; [`Error::Cancelled`]; [`Error::LimitExceeded`]. The invocation
    /// has then ended.
    pub(crate) fn advance(
        &mut self,
        cursor: &mut Cursor,
        env: &mut Env<'_>,
        mut task: Option<&mut Context<'_>>,
    ) -> Result<Progress> {
        if cursor.is_unstarted() {
            if let Some(residency) = &mut self.residency {
                residency.begin(&self.parts.buffers.inputs);
            }
            cursor.state = State::AtStep;
            // Checked here as well, for loops over subgraphs without steps.
            env.services.budget.check()?;
        }
        while let Some(&step) = self.steps.get(cursor.step) {
            match step {
                Step::Node(_) | Step::View(_) if self.runs_unobserved(env) => {
                    self.run_nodes(cursor, env)?;
                    continue;
                }
                Step::Node(id) => {
                    let start = env.services.observer.begin()?;
                    self.fetch_inputs(id)?;
                    contain_kernel(|| self.parts.run_node(id, env)).map_err(|e| self.parts.locate(id, e))?;
                    env.services.observer.end(start, (self.parts.index, &[id]), None, false);
                }
                Step::View(id) => {
                    env.services.observer.check_cancelled()?;
                    self.fetch_inputs(id)?;
                }
                Step::Deferred(id) => {
                    let start = env.services.observer.begin()?;
                    self.fetch_inputs(id)?;
                    contain_kernel(|| self.run_deferred(id, env)).map_err(|e| self.parts.locate(id, e))?;
                    env.services.observer.end(start, (self.parts.index, &[id]), None, true);
                }
                Step::Partition(p) => match self.run_partition(p, cursor, env, task.as_deref_mut())? {
                    Progress::Done => {}
                    Progress::Pending => return Ok(Progress::Pending),
                },
            }
            cursor.step += 1;
        }
        self.deliver()?;
        Ok(Progress::Done)
    }

    /// Whether CPU nodes read only the CPU's memory, and no profiler is set.
    fn runs_unobserved(&self, env: &Env<'_>) -> bool {
        self.residency.as_ref().is_none_or(Residency::is_empty) && env.services.observer.profiler.is_none()
    }

    /// Runs nodes and views from `cursor` to the first step of another kind. A model may have hundreds of nodes that
    /// take 20 ns each.
    fn run_nodes(&mut self, cursor: &mut Cursor, env: &mut Env<'_>) -> Result<()> {
        let (parts, steps, clock_reads) = (&mut *self.parts, &self.steps, &self.clock_reads);
        // The inner result is an interruption, which no node caused.
        let ran = contain_kernel(|| {
            while let Some(&step) = steps.get(cursor.step) {
                let node = match step {
                    Step::Node(id) => Some(id),
                    Step::View(_) => None,
                    Step::Deferred(_) | Step::Partition(_) => break,
                };
                let budget = env.services.budget;
                let reads_clock = clock_reads.get(cursor.step).copied().unwrap_or(true);
                let interruption = if reads_clock {
                    budget.check().err()
                } else {
                    budget.is_cancelled().then_some(Error::Cancelled)
                };
                if let Some(interruption) = interruption {
                    return Ok(Err(interruption));
                }
                if let Some(id) = node {
                    parts.run_node(id, env)?;
                }
                cursor.step += 1;
            }
            Ok(Ok(()))
        });
        ran.map_err(|error| match steps.get(cursor.step) {
            Some(&Step::Node(id)) => parts.locate(id, error),
            _ => error,
        })?
    }

    /// Ends an invocation early: drops the work of the pending kernel.
    pub(crate) fn abandon(&mut self, cursor: &Cursor) {
        if let (State::Pending { .. }, Some(Step::Partition(p))) =
            (&cursor.state, self.steps.get(cursor.step))
        {
            self.partitions[*p].abandon();
        }
    }

    /// Submits a partition, or continues with one that is pending.
    fn run_partition(
        &mut self,
        p: usize,
        cursor: &mut Cursor,
        env: &mut Env<'_>,
        task: Option<&mut Context<'_>>,
    ) -> Result<Progress> {
        let start = match cursor.state {
            State::Pending { start } => {
                let cancelled = env.services.observer.check_cancelled();
                cancelled.inspect_err(|_| self.partitions[p].abandon())?;
                start
            }
            State::Unstarted | State::AtStep => {
                let start = env.services.observer.begin()?;
                match self.submit(p, env)? {
                    Submitted::Done => {
                        self.settle(p, start, env);
                        return Ok(Progress::Done);
                    }
                    Submitted::Pending => cursor.state = State::Pending { start },
                }
                start
            }
        };
        let (partition, tensors) = (&mut self.partitions[p], &mut self.parts.tensors);
        let done = match task {
            None => partition.wait(),
            Some(task) => match partition.poll(task) {
                Poll::Ready(done) => done,
                Poll::Pending => {
                    env.services.observer.wake_when_cancelled(task.waker());
                    return Ok(Progress::Pending);
                }
            },
        };
        cursor.state = State::AtStep;
        let parallel = env.services.parallel;
        let finished = done.and_then(|()| partition.finish(tensors, parallel, env));
        finished.map_err(|e| run_failure(partition, e, env))?;
        self.settle(p, start, env);
        Ok(Progress::Done)
    }

    /// Submits a partition, with inputs in buffers that its kernel accepts.
    fn submit(&mut self, p: usize, env: &mut Env<'_>) -> Result<Submitted> {
        if let Some(residency) = self.residency.as_mut().filter(|r| !r.is_empty()) {
            let Partition { params, kernel, taken, .. } = &mut self.partitions[p];
            for (i, &id) in params.inputs.iter().enumerate() {
                taken[i] = residency.get(id).filter(|buffer| kernel.accepts(i, buffer)).cloned();
                if taken[i].is_none() {
                    residency.fetch(id, &mut self.parts.tensors)?;
                }
            }
        }
        let partition = &mut self.partitions[p];
        if partition.preparation == Preparation::Dynamic && !prepare_dynamic(partition, &mut self.parts, env)?
        {
            self.run_declined(p, env)?;
            return Ok(Submitted::Done);
        }
        let (partition, parallel) = (&mut self.partitions[p], env.services.parallel);
        let submitted = partition.submit(&mut self.parts.tensors, parallel, env);
        submitted.map_err(|e| run_failure(partition, e, env))
    }

    /// Runs the nodes of a partition that its kernel declined on the CPU.
    fn run_declined(&mut self, p: usize, env: &mut Env<'_>) -> Result<()> {
        for i in 0..self.partitions[p].params.nodes.len() {
            let id = self.partitions[p].params.nodes[i];
            self.fetch_inputs(id)?;
            if self.inference.schedule[id.0] != Schedule::Folded {
                contain_kernel(|| self.run_deferred(id, env)).map_err(|e| self.parts.locate(id, e))?;
            }
        }
        self.partitions[p].left.fill(None);
        Ok(())
    }

    /// Records where a partition left its outputs, and reports the step.
    fn settle(&mut self, p: usize, start: Option<Instant>, env: &mut Env<'_>) {
        let partition = &mut self.partitions[p];
        if let Some(residency) = &mut self.residency {
            partition.taken.fill(None);
            for (id, left) in partition.params.outputs.iter().zip(&mut partition.left) {
                residency.set(*id, left.take());
            }
        }
        if start.is_some() {
            let (nodes, times) = (partition.params.nodes.as_slice(), partition.kernel.node_times());
            let delegate = Some((&*partition.owner.name, times));
            let deferred = partition.preparation == Preparation::Dynamic;
            env.services.observer.end(start, (self.parts.index, nodes), delegate, deferred);
        }
    }

    /// Copies the inputs of a node to the CPU's memory if they are only in buffers.
    fn fetch_inputs(&mut self, id: NodeId) -> Result<()> {
        let Some(residency) = self.residency.as_mut().filter(|r| !r.is_empty()) else { return Ok(()) };
        let Parts { model, index, tensors, .. } = &mut *self.parts;
        let inputs = model.subgraphs()[*index].node(id).inputs();
        inputs.iter().flatten().try_for_each(|&id| residency.fetch(id, tensors))
    }

    /// Copies outputs to the buffers of the application.
    fn deliver(&mut self) -> Result<()> {
        let Parts { tensors, buffers, .. } = &mut *self.parts;
        for (id, wanted) in &buffers.outputs {
            // A shape that depends on data may differ from that of the last invocation.
            residency::check_size(&tensors[id.0], wanted)?;
            let source = self.residency.as_ref().and_then(|r| r.get(*id));
            let copied = source.map_or(Ok(false), |source| wanted.copy_from(source))?;
            if !copied {
                if let Some(residency) = &mut self.residency {
                    residency.fetch(*id, tensors)?;
                }
                wanted.write(tensors[id.0].bytes())?;
            }
        }
        Ok(())
    }

    /// Prepares a node whose inputs are computed, and runs it. Its outputs own their memory.
    fn run_deferred(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        let parts = &mut *self.parts;
        let model = parts.model.clone();
        let node = model.subgraphs()[parts.index].node(id);
        let shapes = infer_outputs(node, &mut parts.tensors, KnownInputs::All)?;
        let (kernel, budget) = (&parts.nodes[id.0], env.services.budget);
        if shapes != OutputShapes::Known {
            check_rows(node, kernel, node.inputs().iter().flatten(), &parts.tensors, budget)?;
        } else if emptiness(node, kernel, &parts.tensors, budget)? == Emptiness::Idle {
            let mut outputs = node.outputs().iter();
            return outputs.try_for_each(|output| parts.tensors[output.0].allocate(Placement::Dynamic));
        }
        let shared = self.inference.readers.depends_on_model_alone(node);
        let requests = parts.prepare_node(id, true, shared, env)?;
        let is_dependent = is_among(&requests.data_dependent);
        for output in node.outputs() {
            let tensor = &mut parts.tensors[output.0];
            if shapes == OutputShapes::DataDependent || is_dependent(output) {
                tensor.allocate_bytes(Placement::Dynamic, 0)?;
            } else {
                allocate(tensor, env.services.budget)?;
            }
        }
        parts.nodes[id.0].scratch.allocate(env.services.budget)?;
        parts.run_node(id, env)
    }
}

/// Returns the error of a partition that ran. Invalid data is not a failure of the delegate.
fn run_failure(partition: &Partition, error: Error, env: &mut Env<'_>) -> Error {
    if error.is_invalid_data() { error } else { failure(partition, error, env) }
}

/// Allocates memory for an output whose shape is known only now, unless it is in a buffer of the application.
fn allocate(tensor: &mut RuntimeTensor, budget: &Budget) -> Result<()> {
    let bytes = tensor.byte_size()?;
    if tensor.placement() == Placement::Bound && tensor.bytes().len() == bytes {
        return Ok(());
    }
    budget.check_size(bytes)?;
    tensor.allocate(Placement::Dynamic)
}

/// Prepares a partition whose inputs are computed. Its outputs own their memory. Returns false if the kernel declines.
fn prepare_dynamic(partition: &mut Partition, parts: &mut Parts, env: &mut Env<'_>) -> Result<bool> {
    let (threads, budget) = (env.services.parallel.threads(), env.services.budget);
    if partition.owner.capabilities.propagated_shapes {
        let model = parts.model.clone();
        for &id in &partition.params.nodes {
            let node = model.subgraphs()[parts.index].node(id);
            infer_outputs(node, &mut parts.tensors, KnownInputs::Constants)
                .map_err(|e| parts.locate(id, e))?;
        }
    }
    let tensors = &mut parts.tensors;
    let prepared = partition.prepare(tensors, true, threads, env).and_then(|data_dependent| {
        partition.scratch.requests().iter().try_for_each(|&bytes| budget.check_size(bytes))?;
        Ok(data_dependent)
    });
    let data_dependent = prepared.map_err(|e| failure(partition, e, env))?;
    if partition.kernel.declines() {
        return Ok(false);
    }
    let is_dependent = is_among(&data_dependent);
    for id in &partition.params.outputs {
        let tensor = &mut tensors[id.0];
        if is_dependent(id) {
            tensor.allocate_bytes(Placement::Dynamic, 0)?;
        } else {
            allocate(tensor, budget)?;
        }
    }
    partition.scratch.allocate(budget)?;
    Ok(true)
}
