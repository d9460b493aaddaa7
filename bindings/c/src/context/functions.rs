//! The functions of a context for code with the classic interface.

use std::ffi::{CStr, c_char, c_int, c_void};

use delegraph::core::error::{Error, Result, absent};
use delegraph_litert::abi::{Node, Tensor};

use super::{Context, get};
use crate::abi::{self, Delegate, DelegateParams, IntArray, Registration};
use crate::arrays::{Ints, ints};
use crate::contain::guard;
use crate::operator::{OPERATORS, Operator};
use crate::report::Reporter;
use crate::types::{ERROR, OK, Status, status};

/// Returns the structure for a context without an address.
pub(super) fn raw() -> abi::Context {
    abi::Context {
        tensors_size: 0,
        get_execution_plan: execution_plan,
        tensors: std::ptr::null_mut(),
        impl_: std::ptr::null_mut(),
        resize_tensor,
        report_error: super::variadic::TfLiteOpaqueContextReportError,
        add_tensors,
        get_node_and_registration: node_and_registration,
        replace_node_subsets,
        recommended_num_threads: 1,
        get_external_context: external_context,
        set_external_context,
        allow_fp32_relax_to_fp16: 0,
        profiler: std::ptr::null_mut(),
        micro: [std::ptr::null(); 4],
        resize_tensor_explicit,
        preview_partitioning,
        get_tensor: std::ptr::null(),
        get_eval_tensor: std::ptr::null(),
        get_metadata,
        acquire_subgraph,
        release_subgraph,
        later: [std::ptr::null(); 8],
    }
}

/// Calls `f` with a context. Errors are reported.
///
/// # Safety
/// The condition of [`get`].
pub(crate) unsafe fn with(
    function: &str,
    context: *const abi::Context,
    f: impl FnOnce(&mut Context) -> Result<()>,
) -> Status {
    guard(function, ERROR, || {
        // SAFETY: guaranteed by the caller.
        let Some(context) = (unsafe { get(context) }) else {
            Reporter::default().report(&format!("{function}: the context is null or invalid"));
            return ERROR;
        };
        match f(context) {
            Ok(()) => OK,
            Err(error) => {
                context.reporter.report(&format!("{function}: {}", error.chain()));
                status(&error)
            }
        }
    })
}

/// Checks that a result of a function can be stored.
///
/// # Errors
/// [`Error::InvalidInput`] for a null or misaligned pointer.
///
/// # Safety
/// The pointer is null or valid for writes as long as the result is used.
pub(crate) unsafe fn place<'a, T>(to: *mut T) -> Result<&'a mut T> {
    let null = || Error::InvalidInput("the place for a result is null or misaligned".into());
    // SAFETY: guaranteed by the caller; null and misaligned pointers are excluded.
    (!to.is_null() && to.is_aligned()).then(|| unsafe { &mut *to }).ok_or_else(null)
}

pub(crate) unsafe extern "C" fn execution_plan(
    context: *mut abi::Context,
    plan: *mut *mut IntArray,
) -> Status {
    // SAFETY: the interface requires a live context, and a valid pointer for the result.
    unsafe {
        with("GetExecutionPlan", context, |context| {
            *place(plan)? = context.plan.pointer();
            Ok(())
        })
    }
}

pub(crate) unsafe extern "C" fn resize_tensor(
    context: *mut abi::Context,
    tensor: *mut Tensor,
    dims: *mut IntArray,
) -> Status {
    // SAFETY: the interface requires null or an array of `TfLiteIntArrayCreate`, which the runtime owns from here on.
    let dims = unsafe { Ints::adopt(dims) };
    // SAFETY: the interface requires a live context.
    unsafe { with("ResizeTensor", context, |context| resize(context, tensor, dims)) }
}

unsafe extern "C" fn resize_tensor_explicit(
    context: *mut abi::Context,
    tensor: *mut Tensor,
    rank: c_int,
    dims: *const c_int,
) -> Status {
    // SAFETY: the interface requires a live context, and `rank` dimensions.
    unsafe {
        with("ResizeTensorExplicit", context, |context| {
            let dims = crate::contain::values(dims, rank).map_err(Error::InvalidInput)?;
            resize(context, tensor, Ints::new(dims))
        })
    }
}

fn resize(context: &mut Context, tensor: *const Tensor, dims: Ints) -> Result<()> {
    let index = context.tensors.index_of(tensor);
    let index = index.ok_or_else(|| Error::InvalidInput("the tensor is not one of the context".into()))?;
    context.resize(index, dims)
}

unsafe extern "C" fn add_tensors(context: *mut abi::Context, count: c_int, first: *mut c_int) -> Status {
    // SAFETY: the interface requires a live context, and null or a valid pointer for the result.
    unsafe {
        with("AddTensors", context, |context| {
            let at = context.tensors.len();
            for _ in 0..count.max(0) {
                context.add_tensor(super::Added {
                    ty: 0,
                    allocation_type: 0,
                    data: std::ptr::null_mut(),
                    params: Default::default(),
                    quantization: delegraph_litert::abi::Quantization {
                        kind: 0,
                        params: std::ptr::null_mut(),
                    },
                })?;
            }
            if !first.is_null() {
                *place(first)? = crate::arrays::int(at);
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn node_and_registration(
    context: *mut abi::Context,
    index: c_int,
    node: *mut *mut Node,
    registration: *mut *mut Registration,
) -> Status {
    // SAFETY: the interface requires a live context, and valid pointers for the results.
    unsafe {
        with("GetNodeAndRegistration", context, |context| {
            let found = find_node(context, index)?;
            *place(node)? = found.cast();
            *place(registration)? = (*found).registration();
            Ok(())
        })
    }
}

/// Returns a node of a context.
///
/// # Errors
/// [`Error::InvalidInput`] if there is none.
pub(crate) fn find_node(context: &Context, index: c_int) -> Result<*mut super::Node> {
    let node = usize::try_from(index).ok().and_then(|index| context.nodes.get(index));
    let count = context.nodes.len();
    node.ok_or_else(|| Error::InvalidInput(absent("node", index, "the subgraph", count)))
}

unsafe extern "C" fn replace_node_subsets(
    context: *mut abi::Context,
    registration: Registration,
    nodes: *const IntArray,
    delegate: *mut Delegate,
) -> Status {
    // SAFETY: the interface requires a live context, a registration with a name or null, and null or an array.
    unsafe {
        with("ReplaceNodeSubsetsWithDelegateKernels", context, |context| {
            let operator = Operator::of_registration(registration, None);
            let (functions, operator) = (operator.functions(), OPERATORS.insert(operator));
            context.replace(functions, operator, ints(nodes), delegate)
        })
    }
}

unsafe extern "C" fn preview_partitioning(
    context: *mut abi::Context,
    nodes: *const IntArray,
    partitions: *mut *mut DelegateParams,
    count: *mut c_int,
) -> Status {
    // SAFETY: the interface requires a live context, null or an array, and valid pointers for the results.
    unsafe {
        with("PreviewDelegatePartitioning", context, |context| {
            let nodes = context.node_indices(ints(nodes))?;
            let (partitions, count) = (place(partitions)?, place(count)?);
            let list = context.preview(&nodes);
            (*partitions, *count) = (list, crate::arrays::int(context.preview_len()));
            Ok(())
        })
    }
}

unsafe extern "C" fn external_context(_: *mut abi::Context, _: c_int) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn set_external_context(_: *mut abi::Context, _: c_int, _: *mut c_void) {}

pub(crate) unsafe extern "C" fn get_metadata(
    context: *const abi::Context,
    name: *const c_char,
    data: *mut *const c_char,
    size: *mut usize,
) -> Status {
    // SAFETY: the interface requires a live context, null or a text, and valid pointers for the results.
    unsafe {
        with("GetModelMetadata", context, |context| {
            let name: Option<&CStr> = crate::contain::text(name);
            let name = name.ok_or_else(|| Error::InvalidInput("the name is null".into()))?;
            let bytes = context.metadata(name);
            let bytes =
                bytes.ok_or_else(|| Error::InvalidInput(format!("the model has no metadata {name:?}")))?;
            (*place(data)?, *place(size)?) = (bytes.as_ptr().cast(), bytes.len());
            Ok(())
        })
    }
}

pub(crate) unsafe extern "C" fn acquire_subgraph(
    context: *mut abi::Context,
    subgraph: c_int,
    acquired: *mut *mut abi::Context,
) -> Status {
    // SAFETY: the interface requires a live context, and a valid pointer for the result.
    unsafe {
        with("AcquireSubgraphContext", context, |context| {
            *place(acquired)? = context.acquire(subgraph)?;
            Ok(())
        })
    }
}

pub(crate) unsafe extern "C" fn release_subgraph(context: *mut abi::Context, subgraph: c_int) -> Status {
    // SAFETY: the interface requires a live context.
    unsafe {
        with("ReleaseSubgraphContext", context, |context| match context.has_subgraph(subgraph) {
            true => Ok(()),
            false => {
                let count = context.subgraphs;
                Err(Error::InvalidInput(absent("subgraph", subgraph, "the model", count)))
            }
        })
    }
}
