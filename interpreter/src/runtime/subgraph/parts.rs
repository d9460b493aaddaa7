//! Tensors and kernels of a subgraph, which are kept between preparations.

use std::collections::HashSet;
use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, TensorId, min_version};
use delegraph_core::kernel::{
    Budget, Charge, InitContext, InvokeContext, Kernel, Placement, PrepareContext, RuntimeTensor,
};
use delegraph_core::{Composite, OpResolver, TensorType};
use smallvec::SmallVec;

use super::residency::ApplicationBuffers;
use crate::runtime::composites::kernel_key;
use crate::runtime::delegation::contain_kernel;
use crate::runtime::host::Env;
use crate::runtime::memory::Scratch;

/// Tensors and kernels of a subgraph.
pub(crate) struct Parts {
    pub(crate) model: Arc<Model>,
    pub(crate) index: usize,
    pub(crate) tensors: Vec<RuntimeTensor>,
    pub(crate) nodes: Vec<NodeKernel>,
    pub(crate) buffers: ApplicationBuffers,
    pub(crate) initialization: Initialization,
}

/// A node's kernel.
pub(crate) struct NodeKernel {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) side_effects: bool,
    /// Whether the application replaced the builtin kernel.
    pub(crate) overridden: bool,
    /// Whether the node is a composite with a kernel under the composite's name.
    pub(crate) named: bool,
    pub(crate) scratch: Scratch,
    /// The charge for packed constants: the bytes that the kernel declares, or those of the constants if they are more.
    packed: Charge,
}

/// The nodes over constants that initialized variables. Each does so once, regardless of repeated preparation.
#[derive(Debug)]
pub(crate) enum Initialization {
    /// These nodes initialized variables.
    By(HashSet<NodeId>),
    /// All nodes initialized variables, in the subgraph that this one replaced.
    Inherited,
}

impl Initialization {
    /// Returns whether node `id` initialized variables.
    pub(crate) fn includes(&self, id: NodeId) -> bool {
        match self {
            Initialization::By(nodes) => nodes.contains(&id),
            Initialization::Inherited => true,
        }
    }

    /// Records that node `id` initialized variables.
    pub(crate) fn note(&mut self, id: NodeId) {
        if let Initialization::By(nodes) = self {
            nodes.insert(id);
        }
    }
}

/// A failed step of the preparation, with the tensors and kernels.
pub(crate) struct Failed {
    pub(crate) parts: Box<Parts>,
    pub(crate) error: Error,
}

/// How a kernel reads its constant inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConstantUse {
    /// Only in `prepare`, which packed them.
    Packed,
    /// In each invocation.
    Read,
}

/// The requests of a kernel in `prepare`.
pub(crate) struct Requests {
    /// Outputs whose shapes depend on data.
    pub(crate) data_dependent: SmallVec<[TensorId; 2]>,
    pub(crate) constants: ConstantUse,
    /// Inputs that output 0 may overwrite.
    pub(crate) overwritable: SmallVec<[usize; 2]>,
    /// The input that output 0 is a view of.
    pub(crate) view_of: Option<usize>,
}

impl Parts {
    /// Creates a kernel for every node, and points constants at the file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a node without a kernel, and the errors of kernels, with the node.
    pub(crate) fn new(
        model: Arc<Model>,
        index: usize,
        resolver: &dyn OpResolver,
        budget: &Arc<Budget>,
    ) -> Result<Self> {
        let subgraph = &model.subgraphs()[index];
        let mut nodes = Vec::with_capacity(subgraph.nodes().len());
        for id in subgraph.node_ids() {
            budget.check()?;
            let kernel = contain_kernel(|| find_kernel(&model, subgraph, subgraph.node(id), resolver));
            nodes.push(kernel.map_err(|e| e.at(model.locate(index, id)))?);
        }
        let tensors = subgraph.tensors().iter().map(|tensor| RuntimeTensor::with_budget(tensor, budget));
        let mut tensors = tensors.collect::<Result<Vec<_>>>()?;
        for (tensor, file) in tensors.iter_mut().zip(subgraph.tensors()) {
            if let Some(bytes) = model.constant(file) {
                point_at_constant(tensor, bytes)?;
            }
        }
        let (buffers, initialization) = (ApplicationBuffers::default(), Initialization::By(HashSet::new()));
        Ok(Parts { model, index, tensors, nodes, buffers, initialization })
    }

    /// Takes over inputs, variables and buffers of `old`, a subgraph whose tensors are the first tensors of this one.
    pub(crate) fn inherit(&mut self, old: Self) {
        let subgraph = &self.model.subgraphs()[self.index];
        let mut kept: Vec<bool> = subgraph.tensors().iter().map(|file| file.is_variable()).collect();
        subgraph.inputs().iter().for_each(|id| kept[id.0] = true);
        self.initialization = match old.initialization {
            Initialization::By(nodes) if nodes.is_empty() => Initialization::By(nodes),
            _ => Initialization::Inherited,
        };
        self.buffers = old.buffers;
        for ((slot, tensor), _) in
            self.tensors.iter_mut().zip(old.tensors).zip(kept).filter(|(_, kept)| *kept)
        {
            *slot = tensor;
        }
    }

    /// Returns the subgraph of the model.
    pub(crate) fn subgraph(&self) -> &Subgraph {
        &self.model.subgraphs()[self.index]
    }

    /// Adds the location of node `id` to an error.
    pub(crate) fn locate(&self, id: NodeId, error: Error) -> Error {
        error.at(self.model.locate(self.index, id))
    }

    /// Returns whether node `id` is a composite with a kernel under its name.
    pub(crate) fn has_named_kernel(&self, id: NodeId) -> bool {
        self.nodes.get(id.0).is_some_and(|n| n.named)
    }

    /// Calls `prepare` of a node's kernel. With `known`, all inputs are computed. With `shared`, the node's constants
    /// are equal in every interpreter on the model.
    ///
    /// # Errors
    /// The kernel's, and [`Error::LimitExceeded`] for a temporary above the limit.
    pub(crate) fn prepare_node(
        &mut self,
        id: NodeId,
        known: bool,
        shared: bool,
        env: &mut Env<'_>,
    ) -> Result<Requests> {
        let node = &self.model.subgraphs()[self.index].nodes()[id.0];
        let runtime = &mut self.nodes[id.0];
        let (threads, budget) = (env.services.parallel.threads(), env.services.budget);
        env.share_constants_of(shared.then_some((self.index, id.0)));
        let (inputs, outputs, tensors) = (node.inputs(), node.outputs(), &mut self.tensors);
        let (params, version) = (node.params(), node.version());
        let mut cx = PrepareContext::new(params, version, inputs, outputs, tensors, env)
            .with_threads(threads)
            .with_known_inputs(known)
            .with_persistent_memory();
        runtime.kernel.prepare(&mut cx)?;
        let constants = if cx.is_done_with_constants() { ConstantUse::Packed } else { ConstantUse::Read };
        let (declared, overwritable) = (cx.packed_bytes(), cx.overwritable().into());
        let view_of = if runtime.kernel.is_view() { Some(0) } else { cx.view_of() };
        let persistent: SmallVec<[usize; 2]> = cx.persistent_requests().into();
        let prepared = cx.finish();
        prepared.temporaries().iter().try_for_each(|&bytes| budget.check_size(bytes))?;
        runtime.scratch.request(prepared.temporaries(), &persistent, budget)?;
        // Drops the old charge first: both are for one copy.
        runtime.packed = Charge::default();
        let mut packed = declared;
        if constants == ConstantUse::Packed {
            let constants = node.inputs().iter().flatten().map(|id| &self.tensors[id.0]);
            let bytes = constants.filter(|t| t.is_constant()).map(|t| t.bytes().len());
            // Kernels of libraries do not declare the memory that they keep.
            packed = packed.max(bytes.fold(0, usize::saturating_add));
        }
        runtime.packed = budget.charge(packed)?;
        let data_dependent = prepared.data_dependent().into();
        Ok(Requests { data_dependent, constants, overwritable, view_of })
    }

    /// Runs a node whose inputs, outputs and temporaries are allocated.
    ///
    /// # Errors
    /// The kernel's.
    #[inline]
    pub(crate) fn run_node(&mut self, id: NodeId, env: &mut Env<'_>) -> Result<()> {
        let node = &self.model.subgraphs()[self.index].nodes()[id.0];
        let runtime = &mut self.nodes[id.0];
        let (parallel, temporaries) = (env.services.parallel, runtime.scratch.pointers());
        // SAFETY: ids are in range and no output is an input (verified by the model's loader and `with_subgraphs`). The
        // planner (`planned`) gives tensors and temporaries that are alive at one step disjoint memory, except for one
        // input whose lifetime ends at the node and which output 0 overwrites entirely (`memory::share`); all others
        // own their memory. `&mut self` and `&mut env` keep other users out.
        let mut cx = unsafe {
            InvokeContext::new(node.inputs(), node.outputs(), &mut self.tensors, temporaries, parallel, env)
        };
        runtime.kernel.invoke(&mut cx)
    }

    /// Resets the variable tensors to their initial value.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub(crate) fn reset_variables(&mut self) -> Result<()> {
        self.tensors.iter_mut().filter(|t| t.placement() == Placement::Variable).try_for_each(reset)
    }

    /// As [`Parts::reset_variables`], for these tensors. Tensors that are not variables are unchanged.
    ///
    /// # Errors
    /// If a variable cannot be written.
    pub(crate) fn reset_some_variables(&mut self, ids: &[TensorId]) -> Result<()> {
        ids.iter().try_for_each(|id| match self.tensors.get_mut(id.0) {
            Some(tensor) if tensor.placement() == Placement::Variable => reset(tensor),
            _ => Ok(()),
        })
    }

    /// Drops pointers into the arena, before the arena itself is dropped.
    pub(crate) fn unbind(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.scratch.unbind());
        self.tensors
            .iter_mut()
            .filter(|t| t.placement() == Placement::Arena)
            .for_each(RuntimeTensor::clear_data);
    }
}

/// Returns a function that tells whether a tensor is one of `ids`, of which there may be millions.
pub(crate) fn is_among(ids: &[TensorId]) -> impl Fn(&TensorId) -> bool + '_ {
    // Number of ids up to which they are compared, since a set allocates memory.
    const FEW: usize = 16;
    let many: HashSet<TensorId> = ids.iter().copied().filter(|_| ids.len() > FEW).collect();
    move |id| if ids.len() > FEW { many.contains(id) } else { ids.contains(id) }
}

/// Returns the kernel of a node. For a composite, a kernel of its name is preferred to one that calls its body. A node
/// whose version is below what its params and types need gets a kernel of the needed version where there is one, since
/// kernels of lower versions ignore those params.
fn find_kernel(
    model: &Model,
    subgraph: &Subgraph,
    node: &Node,
    resolver: &dyn OpResolver,
) -> Result<NodeKernel> {
    let composite = Composite::of_builtin(model, node);
    let named = composite.and_then(|c| resolver.find(&kernel_key(&c), c.version));
    let needed = min_version(subgraph, node);
    let above = (needed > node.version()).then(|| resolver.find(node.op(), needed)).flatten();
    let registration = named.or(above).or_else(|| resolver.find(node.op(), node.version()));
    let registration = registration.ok_or_else(|| Error::Unsupported("no kernel".into()))?;
    let custom_options = match composite {
        Some(composite) => composite.bytes,
        None => model.bytes().get(node.custom_options()).unwrap_or_default(),
    };
    Ok(NodeKernel {
        kernel: registration.init(&InitContext::new(node, subgraph).with_custom_options(custom_options))?,
        side_effects: registration.has_side_effects(),
        overridden: registration.overrides_builtin(),
        named: named.is_some(),
        scratch: Scratch::default(),
        packed: Charge::default(),
    })
}

/// Fills a variable with its initial value: zeros, or the zero point of a quantized INT8 tensor.
pub(crate) fn reset(tensor: &mut RuntimeTensor) -> Result<()> {
    let zero = match (tensor.ty, tensor.scale_zero_point()) {
        (TensorType::Int8, Some((_, zero_point))) => zero_point as u8,
        _ => 0,
    };
    tensor.bytes_mut()?.fill(zero);
    Ok(())
}

/// Points a constant tensor at the bytes of the file, or at a copy where the file does not align them.
fn point_at_constant(tensor: &mut RuntimeTensor, bytes: &[u8]) -> Result<()> {
    let align = tensor.ty.bits().map_or(1, |bits| (bits / 8).max(1));
    if !bytes.as_ptr().addr().is_multiple_of(align) {
        return tensor.set_constant_copy(bytes);
    }
    // SAFETY: `Parts` holds the model, which owns the bytes and never changes them; a constant is never written.
    unsafe { tensor.set_data(Placement::Constant, bytes.as_ptr().cast_mut(), bytes.len()) };
    Ok(())
}
