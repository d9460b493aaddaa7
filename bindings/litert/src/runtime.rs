//! The runtime's functions, with checked arguments and results.

use std::ffi::{CStr, CString, c_int, c_void};

use delegraph_core::Shape;

use crate::abi::{self, Status};
use crate::raw::{self, List, Result, checked};

/// The calling runtime, for one subgraph, during the call.
#[derive(Clone, Copy)]
pub(crate) struct Runtime {
    context: *mut abi::Context,
}

/// A partition that the runtime would form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) nodes: Vec<c_int>,
    pub(crate) inputs: Vec<c_int>,
    pub(crate) outputs: Vec<c_int>,
}

impl Partition {
    /// Reads the params of a partition.
    ///
    /// # Safety
    /// `params` is null, or points at params of the runtime.
    pub(crate) unsafe fn read(params: *const abi::DelegateParams) -> Result<Self> {
        let params = checked(params, "the params of a partition")?;
        // SAFETY: not null and aligned; they are params (guaranteed by the caller), whose lists the runtime keeps.
        unsafe {
            Ok(Partition {
                nodes: raw::ints((*params).nodes, "the nodes of a partition")?.to_vec(),
                inputs: raw::ints((*params).inputs, "the inputs of a partition")?.to_vec(),
                outputs: raw::ints((*params).outputs, "the outputs of a partition")?.to_vec(),
            })
        }
    }
}

impl Runtime {
    /// Returns the runtime behind `context`.
    ///
    /// # Safety
    /// `context` is null, or points at a context that is valid as long as the result is used, and is not used by others
    /// in that time.
    pub(crate) unsafe fn new(context: *mut abi::Context) -> Result<Self> {
        checked(context, "the context")?;
        Ok(Runtime { context })
    }

    fn context(&self) -> &abi::Context {
        // SAFETY: valid, as `new` requires; the reference ends before the runtime is called again.
        unsafe { &*self.context }
    }

    /// Returns the functions that identify the runtime. None of them is null.
    pub(crate) fn functions(&self) -> Result<Vec<*const c_void>> {
        let cx = self.context();
        let functions = [
            cx.get_execution_plan.map(|f| f as *const c_void),
            cx.report_error.map(|f| f as *const c_void),
            cx.resize_tensor.map(|f| f as *const c_void),
            cx.add_tensors.map(|f| f as *const c_void),
            cx.get_node_and_registration.map(|f| f as *const c_void),
            cx.replace_node_subsets_with_delegate_kernels.map(|f| f as *const c_void),
            cx.preview_delegate_partitioning.map(|f| f as *const c_void),
        ];
        functions.into_iter().map(|f| f.ok_or_else(|| "a function of the context is null".into())).collect()
    }

    /// Returns the number of tensors.
    pub(crate) fn tensor_count(&self) -> Result<usize> {
        let count = self.context().tensors_size;
        let count = c_int::try_from(count).map_err(|_| format!("the context has {count} tensors"))?;
        raw::length(count, "the list of tensors")
    }

    /// Returns the tensor `index`. It moves whenever the runtime is called.
    pub(crate) fn tensor(&self, index: usize) -> Result<&abi::Tensor> {
        if index >= self.tensor_count()? {
            return Err(format!("tensor {index} is out of range"));
        }
        let tensors = checked(self.context().tensors.cast_const(), "the list of tensors")?;
        // SAFETY: not null and aligned, and the context declares their number.
        Ok(unsafe { &*tensors.add(index) })
    }

    /// Returns the nodes in execution order.
    pub(crate) fn plan(&self) -> Result<Vec<c_int>> {
        let get = self.context().get_execution_plan.ok_or("GetExecutionPlan is null")?;
        let mut plan = std::ptr::null_mut();
        // SAFETY: the context is the runtime's own, and there is room for the result.
        let status = unsafe { get(self.context, &raw mut plan) };
        succeed(status, "GetExecutionPlan")?;
        // SAFETY: the result of the function is a list or null; it is valid until the next call and is copied.
        Ok(unsafe { raw::ints(plan, "the execution plan") }?.to_vec())
    }

    /// Returns the node `index` and its registration. They move whenever nodes are added.
    pub(crate) fn node(&self, index: c_int) -> Result<(&abi::Node, &abi::Registration)> {
        let get = self.context().get_node_and_registration.ok_or("GetNodeAndRegistration is null")?;
        let (mut node, mut registration) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the context is the runtime's own, and there is room for the results.
        let status = unsafe { get(self.context, index, &raw mut node, &raw mut registration) };
        succeed(status, "GetNodeAndRegistration")?;
        let node = checked(node.cast_const(), "a node")?;
        let registration = checked(registration.cast_const(), "a registration")?;
        // SAFETY: not null and aligned, and of structures that begin with these fields.
        Ok(unsafe { (&*node, &*registration) })
    }

    /// Returns the partitions that would result from claiming these nodes.
    pub(crate) fn preview(&self, nodes: &[c_int]) -> Result<Vec<Partition>> {
        let preview = self.context().preview_delegate_partitioning;
        let preview = preview.ok_or("PreviewDelegatePartitioning is null")?;
        let list = List::new(nodes)?;
        let (mut partitions, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the context is the runtime's own, the list is one, and there is room for the results.
        let status = unsafe { preview(self.context, list.as_ptr(), &raw mut partitions, &raw mut count) };
        succeed(status, "PreviewDelegatePartitioning")?;
        let count = raw::length(count, "the list of partitions")?;
        // SAFETY: the runtime declares their number; they are valid until the next call and are copied.
        (0..count).map(|i| unsafe { Partition::read(partitions.wrapping_add(i)) }).collect()
    }

    /// Makes `delegate` run these nodes: `registration` creates a kernel for each of their partitions.
    pub(crate) fn replace(
        &self,
        nodes: &[c_int],
        registration: abi::OwnRegistration,
        delegate: *mut abi::Delegate,
    ) -> Result<()> {
        let replace = self.context().replace_node_subsets_with_delegate_kernels;
        let replace = replace.ok_or("ReplaceNodeSubsetsWithDelegateKernels is null")?;
        let list = List::new(nodes)?;
        // SAFETY: the context is the runtime's own, the list is valid, and the caller passes the delegate. A
        // registration that is larger than the runtime's own is passed in memory, and the runtime reads the part that
        // it knows.
        let status = unsafe { replace(self.context, registration, list.as_ptr(), delegate) };
        succeed(status, "ReplaceNodeSubsetsWithDelegateKernels")
    }

    /// Sets the shape of a tensor.
    pub(crate) fn resize(&self, index: usize, shape: &[usize]) -> Result<()> {
        let resize = self.context().resize_tensor.ok_or("ResizeTensor is null")?;
        let tensor = std::ptr::from_ref(self.tensor(index)?).cast_mut();
        let list = foreign_list(shape)?;
        // SAFETY: the context and the tensor are the runtime's own; it takes ownership of the list, and always frees
        // it.
        let status = unsafe { resize(self.context, tensor, list) };
        succeed(status, "ResizeTensor")
    }

    /// Returns the current shape of a tensor.
    pub(crate) fn shape(&self, index: usize) -> Result<Shape> {
        // SAFETY: the runtime's list, which is copied.
        let dims = unsafe { raw::ints(self.tensor(index)?.dims, "its shape") }?;
        dims.iter()
            .map(|&d| usize::try_from(d).map_err(|_| format!("tensor {index} has a dimension of {d}")))
            .collect()
    }

    /// Passes a text to the application's error reporter.
    pub(crate) fn report(&self, text: &str) {
        let Some(report) = self.context().report_error else { return };
        let Ok(text) = CString::new(text.replace('\0', " ")) else { return };
        let format: &CStr = c"%s";
        // SAFETY: a format for one text, and that text.
        unsafe { report(self.context, format.as_ptr(), text.as_ptr()) };
    }
}

fn succeed(status: Status, what: &str) -> Result<()> {
    if status == abi::OK { Ok(()) } else { Err(format!("{what} failed with status {status}")) }
}

/// A list that the runtime frees, which it does with the C library's `free`.
#[cfg(unix)]
fn foreign_list(items: &[usize]) -> Result<*mut abi::IntArray> {
    let dimension = |&d| c_int::try_from(d).map_err(|_| format!("a dimension of {d}"));
    let ints: Vec<c_int> = items.iter().map(dimension).collect::<Result<_>>()?;
    Ok(crate::memory::CList::new(&ints)?.into_raw())
}

#[cfg(not(unix))]
fn foreign_list(_: &[usize]) -> Result<*mut abi::IntArray> {
    Err("shapes can be changed on Unix only".into())
}
