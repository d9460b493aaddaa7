//! The graph of a delegate and its kernels: the context, with its tensors and nodes.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, Mutex};

use delegraph_core::graph::ModelBytes;
use delegraph_core::kernel::{Budget, Charge};
use delegraph_core::{Error, NodeId};
use delegraph_delegate_api::{DelegateParams, GraphView};

use super::nodes::{ExternalNode, ExternalParams, read_by};
use super::tensors::Tensors;
use crate::abi;
use crate::contain::lock;
use crate::memory::CList;
use crate::raw::{self, Result};

/// A graph. Shared by the kernels of a delegate on it, which may hold pointers into it.
pub(super) struct Graph {
    context: *mut abi::WholeContext,
    /// Held while the delegate runs, which reads and writes the structures.
    pub(super) calling: Mutex<()>,
    /// Never locked while the delegate runs.
    inner: Mutex<Inner>,
    metadata: Vec<(CString, Metadata)>,
    /// Constants and options of custom ops are in these bytes.
    _model: ModelBytes,
}

/// The position of metadata in the model's bytes.
struct Metadata(*const c_char, usize);

// SAFETY: the context belongs to the graph, `calling` keeps all but one thread from it, and the metadata are in the
// model's bytes, which never change.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

struct Inner {
    tensors: Tensors,
    nodes: Vec<Option<ExternalNode>>,
    order: Vec<c_int>,
    /// The lists that were last passed to the delegate.
    plan: Option<CList>,
    previewed: Vec<ExternalParams>,
    preview: Vec<abi::DelegateParams>,
    /// The charge for copied constants.
    charge: Option<Charge>,
}

/// A node that is not in the plan, and the reason.
pub(super) type Withheld = (NodeId, String);

impl Graph {
    /// Describes `view`, with `nodes` as its plan. Also returns the nodes that cannot be described, with the reasons.
    /// Copies at most `limit` bytes of constants.
    pub(super) fn new(
        view: &GraphView<'_>,
        nodes: &[NodeId],
        limit: usize,
        context: abi::WholeContext,
    ) -> Result<(Arc<Self>, Vec<Withheld>)> {
        let (mut described, mut withheld, mut order) = (Vec::new(), Vec::new(), Vec::new());
        described.resize_with(view.subgraph().nodes().len(), || None);
        let mut shown = Vec::new();
        for &id in nodes {
            match ExternalNode::new(&view.node(id)) {
                Ok(node) => {
                    order.push(c_int::try_from(id.0).map_err(|e| e.to_string())?);
                    shown.push(id);
                    if let Some(slot) = described.get_mut(id.0) {
                        *slot = Some(node);
                    }
                }
                Err(reason) => withheld.push((id, reason)),
            }
        }
        let mut tensors = Tensors::new(view, &read_by(view, &shown), limit)?;
        tensors.add_signatures(view)?;
        let metadata = view.model().metadata_entries().iter().filter_map(|(name, range)| {
            let bytes = view.model().bytes().get(range.clone())?;
            Some((CString::new(name.as_str()).ok()?, Metadata(bytes.as_ptr().cast(), bytes.len())))
        });
        let graph = Graph {
            context: Box::into_raw(Box::new(context)),
            calling: Mutex::default(),
            metadata: metadata.collect(),
            _model: view.model().shared_bytes(),
            inner: Mutex::new(Inner {
                tensors,
                nodes: described,
                order,
                plan: None,
                previewed: Vec::new(),
                preview: Vec::new(),
                charge: None,
            }),
        };
        graph.publish(&mut lock(&graph.inner));
        Ok((Arc::new(graph), withheld))
    }

    /// Returns the context, valid as long as the graph.
    pub(super) fn context(&self) -> *mut abi::Context {
        self.context.cast()
    }

    /// Returns whether the plan has no nodes.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.inner).order.is_empty()
    }

    /// Runs `f` with the tensors. `f` must not call the delegate.
    pub(super) fn with_tensors<T>(&self, f: impl FnOnce(&mut Tensors) -> T) -> T {
        f(&mut lock(&self.inner).tensors)
    }

    /// Charges the copied constants to `budget`, once.
    pub(super) fn charge(&self, budget: &Arc<Budget>) -> Result<(), Error> {
        let mut inner = lock(&self.inner);
        if inner.charge.is_none() {
            inner.charge = Some(budget.charge(inner.tensors.copied_bytes())?);
        }
        Ok(())
    }

    /// Sets the number of threads that kernels may use.
    pub(super) fn set_threads(&self, threads: usize) {
        // SAFETY: the graph's own context. The kernels of a graph belong to one interpreter, which prepares them one at
        // a time, and the delegate does not run.
        unsafe { (*self.context).common.recommended_num_threads = c_int::try_from(threads).unwrap_or(-1) };
    }

    /// Points the context at the tensors.
    fn publish(&self, inner: &mut Inner) {
        let (tensors, count) = inner.tensors.array();
        // SAFETY: the graph's own context; the delegate does not run, or it calls back and expects the tensors to move.
        unsafe {
            (*self.context).common.tensors = tensors;
            (*self.context).common.tensors_size = count;
        }
    }

    /// Returns the plan, valid until the next call.
    pub(super) fn plan(&self) -> Result<*mut abi::IntArray> {
        let mut inner = lock(&self.inner);
        let list = CList::new(&inner.order)?;
        let pointer = list.as_ptr();
        inner.plan = Some(list);
        Ok(pointer)
    }

    /// Returns the structures of a node.
    pub(super) fn node(&self, index: c_int) -> Result<(*mut abi::Node, *mut abi::Registration)> {
        let mut inner = lock(&self.inner);
        let node = usize::try_from(index).ok().and_then(|index| inner.nodes.get_mut(index)?.as_mut());
        node.map(ExternalNode::structures).ok_or_else(|| format!("node {index} is not in the execution plan"))
    }

    /// Returns the nodes of a list of the delegate.
    ///
    /// # Errors
    /// If one is not in the plan, or occurs twice.
    ///
    /// # Safety
    /// `list` is null or a list.
    pub(super) unsafe fn listed(&self, list: *const abi::IntArray) -> Result<Vec<NodeId>> {
        // SAFETY: guaranteed by the caller.
        let items = unsafe { raw::ints(list, "the list of nodes") }?;
        let inner = lock(&self.inner);
        let mut seen = vec![false; inner.nodes.len()];
        let node = |&index: &c_int| {
            let id =
                usize::try_from(index).ok().filter(|&id| inner.nodes.get(id).is_some_and(Option::is_some));
            let id = id.ok_or_else(|| format!("node {index} is not in the execution plan"))?;
            let seen = seen.get_mut(id).ok_or("a node is out of range")?;
            match std::mem::replace(seen, true) {
                true => Err(format!("node {index} is in the list twice")),
                false => Ok(NodeId(id)),
            }
        };
        items.iter().map(node).collect()
    }

    /// Returns the structures of partitions, valid until the next call.
    pub(super) fn preview(
        &self,
        view: &GraphView<'_>,
        partitions: &[DelegateParams],
        delegate: *mut abi::Delegate,
    ) -> Result<(*mut abi::DelegateParams, c_int)> {
        let mut inner = lock(&self.inner);
        let params = partitions.iter().map(|params| ExternalParams::new(view, params, delegate));
        inner.previewed = params.collect::<Result<_>>()?;
        inner.preview = inner.previewed.iter().map(ExternalParams::copy).collect();
        let count = c_int::try_from(partitions.len()).map_err(|e| e.to_string())?;
        Ok((inner.preview.as_mut_ptr(), count))
    }

    /// Sets the shape of a tensor, and takes ownership of `dims`. `own` has the outputs of the requesting kernel.
    ///
    /// # Errors
    /// If `dims` is null, or the kernel may not resize the tensor; the errors of [`Tensors::resize`].
    ///
    /// # Safety
    /// `dims` is null, or an owned list in the C library's memory.
    pub(super) unsafe fn resize(
        &self,
        tensor: *const abi::Tensor,
        dims: *mut abi::IntArray,
        own: &Resizable<'_>,
    ) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        let dims = unsafe { CList::adopt(dims, "the new shape") }?;
        let mut inner = lock(&self.inner);
        let index = inner.tensors.index_of(tensor)?;
        let now = inner.tensors.get(index)?;
        // SAFETY: a list of this library, or of the delegate.
        let same = unsafe { raw::ints(now.dims, "its shape") }
            .is_ok_and(|now| dims.items("").is_ok_and(|new| new == now));
        let dynamic = now.allocation_type == abi::allocation::DYNAMIC;
        if same && !(dynamic && now.data.is_null()) {
            return Ok(());
        }
        let allowed =
            index >= inner.tensors.given() || (own.outputs.contains(&index) && (dynamic || own.all));
        if !allowed {
            let name = inner.tensors.name(index);
            return Err(format!(
                "ResizeTensor of tensor {name}, which is neither a temporary nor a dynamic output"
            ));
        }
        inner.tensors.resize(index, dims, own.budget)
    }

    /// Adds tensors. Returns the number of the first one.
    pub(super) fn add_tensors(&self, count: c_int) -> Result<c_int> {
        let mut inner = lock(&self.inner);
        let first = inner.tensors.add(count)?;
        self.publish(&mut inner);
        c_int::try_from(first).map_err(|e| e.to_string())
    }

    /// Returns the metadata of this name.
    pub(super) fn metadata(&self, name: &str) -> Option<(*const c_char, usize)> {
        let found = self.metadata.iter().find(|(known, _)| known.to_bytes() == name.as_bytes());
        found.map(|(_, Metadata(data, len))| (*data, *len))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: `new` created it with `Box::into_raw`, and no kernel holds it.
        drop(unsafe { Box::from_raw(self.context) });
    }
}

/// The tensors that a kernel may resize.
#[derive(Clone, Copy, Default)]
pub(super) struct Resizable<'a> {
    /// The outputs of the kernel.
    pub(super) outputs: &'a [usize],
    /// Whether outputs that are not dynamic may also be resized.
    pub(super) all: bool,
    /// The budget for memory.
    pub(super) budget: Option<&'a Arc<Budget>>,
}
