//! The graph for the application's custom ops and delegates: `TfLiteContext`, which is also the target of a
//! `TfLiteOpaqueContext*`.
//!
//! A context belongs to a subgraph of an interpreter. The kernels of custom ops share a context; a delegate has a
//! context for each of its preparations, which its kernels keep. Code of the application reads and changes a context
//! through the functions of `functions.rs` and of `opaque/`. References into a context end before such code is called.

pub(crate) mod functions;
mod nodes;
mod partition;
mod tensors;
mod variadic;

use std::ffi::{CString, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use delegraph::core::error::{Error, Result, absent};
use delegraph::core::graph::Subgraph;
use delegraph::core::kernel::Budget;
use delegraph::core::{Model, ModelBytes};
use delegraph::delegate_api::{DelegateContext, GraphView};

use crate::abi;
use crate::arrays::{Ints, int};
use crate::operator::Functions;
use crate::report::Reporter;

pub(crate) use nodes::{Node, Nodes};
pub(crate) use partition::Partition;
use partition::Preview;
pub(crate) use tensors::{Added, Tensors};
#[cfg(test)]
pub(crate) use variadic::TfLiteOpaqueContextReportError;
pub(crate) use variadic::report_va;

/// The target of a `TfLiteContext*` of this library.
#[repr(C)]
pub(crate) struct Context {
    raw: abi::Context,
    pub(crate) tensors: Tensors,
    pub(crate) nodes: Nodes,
    pub(crate) plan: Ints,
    pub(crate) inputs: Ints,
    pub(crate) outputs: Ints,
    pub(crate) variables: Ints,
    pub(crate) name: CString,
    /// Keeps the memory of constants and options.
    bytes: ModelBytes,
    metadata: Vec<(CString, std::ops::Range<usize>)>,
    pub(crate) reporter: Reporter,
    pub(crate) budget: Arc<Budget>,
    subgraph: Option<usize>,
    pub(crate) phase: Phase,
    /// Contexts of other subgraphs.
    acquired: Vec<(usize, Arc<Owner>)>,
    /// The number of subgraphs of the model, which a delegate may request.
    subgraphs: usize,
    preview: Preview,
}

/// The purpose of a call of the application's code.
#[derive(Default)]
pub(crate) enum Phase {
    /// Creating or preparing a kernel.
    #[default]
    Prepare,
    /// Running a kernel: shapes are fixed, except those of dynamic tensors.
    Invoke,
    /// Selecting nodes for a delegate.
    Delegate(Delegating),
}

/// The preparation of a delegate.
pub(crate) struct Delegating {
    pub(crate) delegate: *mut abi::Delegate,
    /// The context of the delegate's preparation, which is in progress.
    graph: NonNull<DelegateContext<'static>>,
    pub(crate) replaced: Vec<Replaced>,
    /// Subgraphs that the delegate runs as a part of the calling nodes.
    pub(crate) skipped: Vec<usize>,
}

/// Nodes that a kernel of the delegate runs.
pub(crate) struct Replaced {
    pub(crate) functions: Functions,
    pub(crate) operator: *mut crate::operator::OperatorHandle,
    pub(crate) nodes: Vec<usize>,
}

/// A context at its address. Shared by the kernels that use it.
pub(crate) struct Owner(NonNull<Context>);

// SAFETY: a context is used by kernels and delegates of one interpreter, which is locked while one of its calls is in
// progress. What it points at is owned by it, or belongs to the application, which the interface requires to use an
// interpreter from one thread at a time.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    /// Moves a context to a fixed address.
    fn new(context: Context) -> Arc<Self> {
        let context = NonNull::from(Box::leak(Box::new(context)));
        // SAFETY: the address of a box that was leaked.
        unsafe {
            let raw = &raw mut (*context.as_ptr()).raw;
            (*raw).impl_ = context.as_ptr().cast();
            (*context.as_ptr()).synchronize();
        }
        Arc::new(Owner(context))
    }

    /// Returns the context of a subgraph of a model, for the kernels of custom ops.
    pub(crate) fn of_subgraph(
        model: &Model,
        subgraph: &Subgraph,
        index: Option<usize>,
        reporter: Reporter,
    ) -> Arc<Self> {
        Owner::new(Context::new(model, subgraph, index, reporter))
    }

    /// Returns the context of a graph that delegates see, with its shapes and constants. Constants that are not in the
    /// file have data only as long as `graph` is valid, until [`Context::forget_borrowed`].
    pub(crate) fn of_graph(graph: &GraphView<'_>, reporter: Reporter) -> Arc<Self> {
        let mut context = Context::new(graph.model(), graph.subgraph(), Some(graph.index()), reporter);
        context.read(graph);
        Owner::new(context)
    }

    /// Returns the address for the application.
    pub(crate) fn pointer(&self) -> *mut abi::Context {
        self.0.as_ptr().cast()
    }

    /// Calls `f` with the context. `f` calls no code of the application.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Context) -> T) -> T {
        // SAFETY: the context lives as long as `self`, one thread uses it (see above), and no other reference exists:
        // references end before code of the application is called, and `f` does not call any.
        f(unsafe { &mut *self.0.as_ptr() })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a box, which is dropped once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Context {
    fn new(model: &Model, subgraph: &Subgraph, index: Option<usize>, reporter: Reporter) -> Self {
        let mut tensors = Tensors::of(subgraph);
        for (id, file) in subgraph.tensors().iter().enumerate() {
            if let Some(bytes) = model.constant(file) {
                tensors.set_data(id, bytes.as_ptr().cast_mut(), bytes.len());
            }
        }
        let options = |node: &delegraph::core::graph::Node| {
            model.bytes().get(node.custom_options()).unwrap_or_default()
        };
        let variables = subgraph.tensors().iter().enumerate().filter(|(_, tensor)| tensor.is_variable());
        let metadata = model.metadata_entries().iter();
        Context {
            raw: functions::raw(),
            tensors,
            nodes: Nodes::of(subgraph, options),
            plan: Ints::of(0..subgraph.nodes().len()),
            inputs: Ints::of(subgraph.inputs().iter().map(|id| id.0)),
            outputs: Ints::of(subgraph.outputs().iter().map(|id| id.0)),
            variables: Ints::of(variables.map(|(index, _)| index)),
            name: crate::tensor::name(subgraph.name()),
            bytes: model.shared_bytes(),
            metadata: metadata.map(|(name, range)| (crate::tensor::name(name), range.clone())).collect(),
            reporter,
            budget: Budget::unlimited().clone(),
            subgraph: index,
            phase: Phase::Prepare,
            acquired: Vec::new(),
            subgraphs: model.subgraphs().len(),
            preview: Preview::default(),
        }
    }

    /// Reads the shapes and constants of a graph that are not in the file. The data of constants are not copied.
    fn read(&mut self, graph: &GraphView<'_>) {
        for id in 0..graph.tensor_count().min(self.tensors.len()) {
            let info = graph.tensor(delegraph::core::TensorId(id));
            let in_file = graph.model().constant(graph.subgraph().tensor(info.id())).is_some();
            if !in_file {
                self.tensors.update(id, info.tensor());
                if let Some(bytes) = info.constant() {
                    self.tensors.set_data(id, bytes.as_ptr().cast_mut(), bytes.len());
                    self.tensors.set_allocation_type(id, crate::tensor::allocation::PERSISTENT_RO);
                }
            }
        }
    }

    /// Drops the data of constants that are not in the file.
    pub(crate) fn forget_borrowed(&mut self) {
        for id in 0..self.tensors.in_model() {
            let borrowed = |raw: &&delegraph_litert::abi::Tensor| {
                raw.allocation_type == crate::tensor::allocation::PERSISTENT_RO
            };
            if let Some(bytes) = self.tensors.get(id).filter(borrowed).map(|raw| raw.bytes) {
                self.tensors.set_data(id, std::ptr::null_mut(), bytes);
            }
        }
    }

    /// Updates the fields that code with the classic interface reads.
    pub(crate) fn synchronize(&mut self) {
        self.raw.tensors = self.tensors.pointer();
        self.raw.tensors_size = self.tensors.len();
    }

    /// Sets the number of threads that kernels may use.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.raw.recommended_num_threads = int(threads);
    }

    /// Returns the data of a metadata entry of the model.
    pub(crate) fn metadata(&self, name: &std::ffi::CStr) -> Option<&[u8]> {
        let (_, range) = self.metadata.iter().find(|(known, _)| **known == *name)?;
        self.bytes.as_ref().get(range.clone())
    }

    /// Adds a tensor. Tensors may move.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn add_tensor(&mut self, added: Added) -> Result<usize> {
        let index = self.tensors.add(added);
        self.synchronize();
        index
    }

    /// Changes the shape of a tensor, and allocates memory for it if it is dynamic.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a shape that is null or without a size, and for a tensor that cannot be resized in
    /// this phase; the errors of [`Tensors::reallocate`].
    pub(crate) fn resize(&mut self, index: usize, dims: Ints) -> Result<()> {
        use crate::tensor::allocation;
        let kind = self.tensors.get(index).map_or(0, |raw| raw.allocation_type);
        if matches!(kind, allocation::MMAP_RO | allocation::PERSISTENT_RO) {
            return Err(Error::InvalidInput(format!("tensor {index} is constant and cannot be resized")));
        }
        if dims.pointer().is_null() {
            return Err(Error::InvalidInput("the shape is null".into()));
        }
        if let Phase::Invoke = self.phase
            && kind != allocation::DYNAMIC
        {
            if dims.values() == self.tensors.dims(index) {
                return Ok(());
            }
            return Err(Error::InvalidInput(format!(
                "tensor {index} cannot be resized while the model runs: it was not made dynamic while preparing"
            )));
        }
        let bytes = self.tensors.byte_size(index, dims.values())?;
        self.tensors.set_dims(index, dims);
        match bytes {
            Some(bytes) if kind == allocation::DYNAMIC => self.tensors.reallocate(index, bytes, &self.budget),
            Some(bytes) => {
                self.tensors.set_data(index, std::ptr::null_mut(), bytes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns a list of nodes of the interface as indices.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for nodes that do not exist.
    fn node_indices(&self, nodes: &[c_int]) -> Result<Vec<usize>> {
        let count = self.plan.values().len();
        let missing = |node: c_int| Error::InvalidInput(absent("node", node, "the subgraph", count));
        let index = |&node: &c_int| {
            usize::try_from(node).ok().filter(|index| *index < count).ok_or_else(|| missing(node))
        };
        nodes.iter().map(index).collect()
    }

    /// Replaces nodes by a kernel of the delegate in preparation.
    ///
    /// # Errors
    /// [`Error::State`] unless a delegate is in preparation; [`Error::InvalidInput`] for another delegate, and for
    /// nodes that do not exist.
    pub(crate) fn replace(
        &mut self,
        functions: Functions,
        operator: *mut crate::operator::OperatorHandle,
        nodes: &[c_int],
        delegate: *mut abi::Delegate,
    ) -> Result<()> {
        let nodes = self.node_indices(nodes);
        let Phase::Delegate(delegating) = &mut self.phase else {
            return Err(Error::State("nodes can be replaced only while a delegate is being prepared".into()));
        };
        if delegate != delegating.delegate {
            return Err(Error::InvalidInput("another delegate is being prepared".into()));
        }
        let nodes = nodes?;
        self.nodes.own(operator);
        delegating.replaced.push(Replaced { functions, operator, nodes });
        Ok(())
    }

    /// Begins the preparation of a delegate.
    pub(crate) fn begin(&mut self, delegate: *mut abi::Delegate, graph: &mut DelegateContext<'_>) {
        // The pointer is used only until `end`, which is called before the caller uses `graph` again.
        let graph = NonNull::from(graph).cast::<DelegateContext<'static>>();
        let (replaced, skipped) = Default::default();
        self.phase = Phase::Delegate(Delegating { delegate, graph, replaced, skipped });
    }

    /// Ends the preparation of a delegate. Returns its selection of nodes, and the subgraphs that it skips.
    pub(crate) fn end(&mut self) -> (Vec<Replaced>, Vec<usize>) {
        match std::mem::take(&mut self.phase) {
            Phase::Delegate(delegating) => (delegating.replaced, delegating.skipped),
            _ => Default::default(),
        }
    }

    /// Returns the context of a subgraph: this one, or one that the delegate may only read.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is no such subgraph; [`Error::State`] for another subgraph that was not
    /// requested before, unless a delegate is in preparation.
    pub(crate) fn acquire(&mut self, subgraph: c_int) -> Result<*mut abi::Context> {
        let count = self.subgraphs;
        let index = usize::try_from(subgraph).ok().filter(|index| *index < count);
        let index =
            index.ok_or_else(|| Error::InvalidInput(absent("subgraph", subgraph, "the model", count)))?;
        if self.subgraph == Some(index) {
            return Ok(self.raw.impl_.cast());
        }
        if let Some((_, owner)) = self.acquired.iter().find(|(known, _)| *known == index) {
            return Ok(owner.pointer());
        }
        let Phase::Delegate(delegating) = &self.phase else {
            return Err(Error::State(
                "other subgraphs are available only while a delegate is being prepared".into(),
            ));
        };
        // SAFETY: the delegate's preparation is in progress (`begin`, `end`), and reads the graph only.
        let graph = unsafe { delegating.graph.as_ref() }.graph();
        let owner = match graph.callee(index) {
            Some(callee) => Owner::of_graph(&callee, self.reporter),
            None => {
                let count = graph.model().subgraphs().len();
                let missing = || Error::InvalidInput(absent("subgraph", index, "the model", count));
                let file = graph.model().subgraph(index).ok_or_else(missing)?;
                Owner::of_subgraph(graph.model(), file, Some(index), self.reporter)
            }
        };
        let pointer = owner.pointer();
        self.acquired.push((index, owner));
        Ok(pointer)
    }

    /// Returns whether the model has a subgraph.
    pub(crate) fn has_subgraph(&self, subgraph: c_int) -> bool {
        usize::try_from(subgraph).is_ok_and(|index| index < self.subgraphs)
    }

    /// Computes the partitions that these nodes would form, valid until the next call. Null unless a delegate selects
    /// nodes.
    fn preview(&mut self, nodes: &[usize]) -> *mut abi::DelegateParams {
        let Phase::Delegate(delegating) = &self.phase else { return std::ptr::null_mut() };
        let nodes: Vec<_> = nodes.iter().map(|&node| delegraph::core::NodeId(node)).collect();
        // SAFETY: as in `acquire`.
        let graph = unsafe { delegating.graph.as_ref() };
        let partitions = graph.preview_partitions(&nodes);
        let partitions = partitions.iter().map(|params| Partition::new(params, &graph.graph()));
        self.preview = Preview::new(partitions.collect(), delegating.delegate);
        self.preview.params.as_mut_ptr()
    }

    /// Returns the number of partitions that [`Context::preview`] computed.
    fn preview_len(&self) -> usize {
        self.preview.params.len()
    }
}

/// Returns the context at a pointer of the application; `None` for null and for a pointer that is not a context of this
/// library.
///
/// # Safety
/// The pointer is null, or that of a live context or of another structure of the size of [`abi::Context`]. No other
/// reference to the context exists.
pub(crate) unsafe fn get<'a>(context: *const abi::Context) -> Option<&'a mut Context> {
    if context.is_null() || !context.is_aligned() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    let address = unsafe { (*context).impl_ }.cast::<Context>();
    // SAFETY: only contexts of this library store their own address in `impl_`. `Owner::new` stored it, with the
    // provenance of the whole box.
    (address.cast_const().cast::<c_void>() == context.cast()).then(|| unsafe { &mut *address })
}
