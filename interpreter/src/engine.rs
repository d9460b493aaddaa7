//! All subgraphs of a model at run time, and what kernels get from beyond their node.

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::Subgraph;
use delegraph_core::kernel::{Host, Parallel, Placement, Resources, RuntimeTensor, Shared};
use delegraph_core::{Model, OpResolver, Shape, TensorId, TensorType};
use delegraph_delegate_api::{Callees, GraphView, Report};
use std::sync::Arc;

use crate::delegation::{self, Delegation};
use crate::fusion::inline::Origin;
use crate::observe::Observer;
use crate::subgraph::SubgraphRuntime;

/// All subgraphs, made when they are first needed. One that is running is taken out of its slot.
pub(crate) struct Engine {
    /// The model as it runs: bodies are in the place of composites that nobody runs whole.
    pub(crate) model: Arc<Model>,
    /// The model as it was given.
    pub(crate) original: Arc<Model>,
    /// Per subgraph, the composites whose bodies are in their place.
    pub(crate) inlined: Vec<Vec<Origin>>,
    /// Who runs which composite must be found out anew.
    pub(crate) stale: bool,
    pub(crate) resolver: Arc<dyn OpResolver>,
    pub(crate) slots: Vec<Option<Box<SubgraphRuntime>>>,
    pub(crate) resources: Resources,
    pub(crate) parallel: Arc<dyn Parallel>,
    pub(crate) observer: Observer,
    pub(crate) delegation: Delegation,
    pub(crate) settings: Settings,
}

/// What holds for all subgraphs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// No single tensor, temporary or arena may be larger.
    pub(crate) memory_limit: usize,
    /// Every tensor keeps its memory to the end of the invocation.
    pub(crate) preserve_all_tensors: bool,
    /// Outputs of the model may stay with a delegate.
    pub(crate) keep_outputs: bool,
}

impl Engine {
    /// Takes subgraph `index` out of its slot, and the rest as the environment that it runs in.
    pub(crate) fn take(&mut self, index: usize) -> Result<(Box<SubgraphRuntime>, Env<'_>)> {
        let mut env = Env {
            model: &self.model,
            resolver: &*self.resolver,
            slots: &mut self.slots,
            resources: &mut self.resources,
            parallel: &*self.parallel,
            observer: &mut self.observer,
            delegation: &mut self.delegation,
            settings: self.settings,
            inlined: &self.inlined,
            preparing: None,
        };
        let subgraph = env.take(index)?;
        Ok((subgraph, env))
    }

    /// Gives everything back to the CPU: all subgraphs are prepared anew when they are next needed. Variables keep
    /// their values.
    pub(crate) fn undelegate(&mut self) {
        for subgraph in self.slots.iter_mut().flatten() {
            subgraph.prepared = false;
            subgraph.partitions.clear();
            subgraph.report = Report::default();
        }
    }

    /// Another delegate may want composites whose bodies are in their place.
    pub(crate) fn offer_composites_again(&mut self) {
        self.stale = self.inlined.iter().any(|origins| !origins.is_empty());
    }

    pub(crate) fn put(&mut self, subgraph: Box<SubgraphRuntime>) {
        let index = subgraph.index;
        self.slots[index] = Some(subgraph);
    }
}

/// What a running subgraph gets from the interpreter.
pub(crate) struct Env<'e> {
    model: &'e Arc<Model>,
    resolver: &'e dyn OpResolver,
    pub(crate) slots: &'e mut [Option<Box<SubgraphRuntime>>],
    resources: &'e mut Resources,
    pub(crate) parallel: &'e dyn Parallel,
    pub(crate) observer: &'e mut Observer,
    pub(crate) delegation: &'e mut Delegation,
    pub(crate) settings: Settings,
    /// Per subgraph, the composites whose bodies are in their place.
    pub(crate) inlined: &'e [Vec<Origin>],
    /// The subgraph and the node that is being prepared, if its constants depend on the model alone.
    pub(crate) preparing: Option<(usize, usize)>,
}

impl Env<'_> {
    fn take(&mut self, index: usize) -> Result<Box<SubgraphRuntime>> {
        match self.slots.get_mut(index) {
            Some(slot) => match slot.take() {
                Some(subgraph) => Ok(subgraph),
                None => SubgraphRuntime::new(self.model.clone(), index, self.resolver).map(Box::new),
            },
            None => Err(Error::InvalidNode(format!("subgraph {index} does not exist"))),
        }
    }

    /// Refuses sizes above the limit.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<()> {
        let limit = self.settings.memory_limit;
        if bytes > limit {
            return Err(Error::OutOfMemory(format!("{bytes} bytes are needed, above the limit of {limit}")));
        }
        Ok(())
    }

    fn prepare(&mut self, subgraph: &mut SubgraphRuntime, shapes: &[Shape]) -> Result<()> {
        let inputs = subgraph.model.subgraphs[subgraph.index].inputs.clone();
        if inputs.len() != shapes.len() {
            let (index, has, given) = (subgraph.index, inputs.len(), shapes.len());
            return Err(Error::InvalidNode(format!(
                "subgraph {index} has {has} inputs, the call gives {given}"
            )));
        }
        inputs.iter().zip(shapes).for_each(|(&id, shape)| subgraph.resize_input(id, shape));
        if !subgraph.prepared {
            self.prepare_now(subgraph, false)?;
        }
        Ok(())
    }

    /// Infers shapes, lets delegates claim nodes, prepares kernels and plans memory.
    pub(crate) fn prepare_now(&mut self, subgraph: &mut SubgraphRuntime, entry: bool) -> Result<()> {
        subgraph.infer(self)?;
        delegation::apply(subgraph, self, entry)?;
        subgraph.finish(self)
    }

    fn run(&mut self, subgraph: &mut SubgraphRuntime, inputs: &[&RuntimeTensor]) -> Result<()> {
        let shapes: Vec<Shape> = inputs.iter().map(|t| t.shape.clone()).collect();
        self.prepare(subgraph, &shapes)?;
        let ids: Vec<TensorId> = subgraph.model.subgraphs[subgraph.index].inputs.clone();
        for (id, input) in ids.into_iter().zip(inputs) {
            let tensor = &mut subgraph.tensors[id.0];
            if tensor.ty != input.ty {
                let text = format!("a called subgraph's input is {}, the call gives {}", tensor.ty, input.ty);
                return Err(Error::InvalidNode(text));
            }
            if tensor.ty == TensorType::String {
                tensor.allocate_bytes(Placement::Dynamic, input.bytes().len())?;
            }
            let target = tensor.bytes_mut()?;
            if target.len() != input.bytes().len() {
                return Err(Error::State(format!("tensor \"{}\" has no value yet", input.name)));
            }
            target.copy_from_slice(input.bytes());
        }
        subgraph.invoke(self)
    }
}

impl Callees for Engine {
    fn callee(&self, index: usize) -> Option<GraphView<'_>> {
        let subgraph = self.slots.get(index)?.as_deref().filter(|s| s.prepared)?;
        Some(subgraph.graph(&subgraph.states).with_callees(self))
    }
}

impl Callees for Slots<'_> {
    fn callee(&self, index: usize) -> Option<GraphView<'_>> {
        let subgraph = self.0.get(index)?.as_deref()?;
        Some(subgraph.graph(&subgraph.states).with_callees(self))
    }
}

/// The subgraphs that are not running, for delegates to look at.
pub(crate) struct Slots<'e>(pub(crate) &'e [Option<Box<SubgraphRuntime>>]);

impl Host for Env<'_> {
    fn resources(&mut self) -> &mut Resources {
        self.resources
    }

    fn shared(&self) -> Option<(&Shared, (usize, usize))> {
        self.preparing.map(|node| (self.model.shared(), node))
    }

    fn subgraph(&self, index: usize) -> Option<&Subgraph> {
        self.model.subgraphs.get(index)
    }

    fn prepare_callee(&mut self, index: usize, inputs: &[Shape]) -> Result<Vec<Option<Shape>>> {
        let mut subgraph = self.take(index)?;
        let result = self.prepare(&mut subgraph, inputs);
        let shape = |id: &TensorId| subgraph.shape_known[id.0].then(|| subgraph.tensors[id.0].shape.clone());
        let shapes = subgraph.model.subgraphs[index].outputs.iter().map(shape).collect();
        self.slots[index] = Some(subgraph);
        result.map(|()| shapes)
    }

    fn is_cancelled(&self) -> bool {
        self.observer.token.is_cancelled()
    }

    fn progress(&mut self, done: usize, total: usize) {
        if let Some(profiler) = &mut self.observer.profiler {
            profiler.progress(done, total);
        }
    }

    fn reset_callee(&mut self, index: usize) -> Result<()> {
        match self.slots.get_mut(index) {
            Some(Some(subgraph)) => subgraph.reset_variables(),
            _ => Ok(()),
        }
    }

    fn call(&mut self, index: usize, inputs: &[&RuntimeTensor]) -> Result<Vec<&RuntimeTensor>> {
        let mut subgraph = self.take(index)?;
        let result = self.run(&mut subgraph, inputs);
        let subgraph = &*self.slots[index].insert(subgraph);
        result?;
        Ok(subgraph.model.subgraphs[index].outputs.iter().map(|id| &subgraph.tensors[id.0]).collect())
    }
}
