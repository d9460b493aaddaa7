//! Graphs.

use std::ffi::{c_char, c_int, c_void};

use delegraph::core::TensorType;
use delegraph::core::error::{Error, Result, absent};

use crate::abi::{self, Delegate, IntArray};
use crate::arrays::{int, ints};
use crate::contain::guard;
use crate::context::functions::{self, place, with};
use crate::context::{self, Context, Node, Phase};
use crate::operator::{OPERATORS, OperatorHandle};
use crate::tensor::Tensor;
use crate::types::{self, Status};

/// Stores the nodes in the order in which they run.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetExecutionPlan(
    context: *mut abi::Context,
    plan: *mut *mut IntArray,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { functions::execution_plan(context, plan) }
}

/// Stores null: there are no external contexts.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetExternalContext(
    context: *mut abi::Context,
    external: *mut *mut c_void,
    _: c_int,
) -> Status {
    // SAFETY: the interface requires a live context, and a valid pointer for the result.
    unsafe {
        with("TfLiteOpaqueContextGetExternalContext", context, |_| {
            *place(external)? = std::ptr::null_mut();
            Ok(())
        })
    }
}

/// Stores a node and its operator, which has no functions.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetNodeAndRegistration(
    context: *mut abi::Context,
    index: c_int,
    node: *mut *mut Node,
    operator: *mut *mut OperatorHandle,
) -> Status {
    // SAFETY: the interface requires a live context, and valid pointers for the results.
    unsafe {
        with("TfLiteOpaqueContextGetNodeAndRegistration", context, |context| {
            let found = functions::find_node(context, index)?;
            *place(node)? = found;
            *place(operator)? = (*found).operator;
            Ok(())
        })
    }
}

/// Assigns nodes to a kernel of the delegate in preparation. On success, the graph owns the operator.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReplaceNodeSubsetsWithDelegateKernels(
    context: *mut abi::Context,
    operator: *mut OperatorHandle,
    nodes: *const IntArray,
    delegate: *mut Delegate,
) -> Status {
    // SAFETY: the interface requires a live context, and null or an array.
    unsafe {
        with("TfLiteOpaqueContextReplaceNodeSubsetsWithDelegateKernels", context, |context| {
            let missing = || Error::InvalidInput("the operator is null or deleted".into());
            let functions = OPERATORS.get(operator).ok_or_else(missing)?.functions();
            context.replace(functions, operator, ints(nodes), delegate)
        })
    }
}

/// Returns a tensor; null if there is no such tensor.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetOpaqueTensor(
    context: *const abi::Context,
    index: c_int,
) -> *mut Tensor {
    let function = "TfLiteOpaqueContextGetOpaqueTensor";
    let mut found = std::ptr::null_mut();
    // SAFETY: the interface requires a live context.
    unsafe {
        with(function, context, |context| {
            let count = context.tensors.len();
            let place = usize::try_from(index).ok().filter(|index| *index < count);
            let missing = || Error::InvalidInput(absent("tensor", index, "the subgraph", count));
            // In the array, since the index is below its length.
            found = context.tensors.pointer().add(place.ok_or_else(missing)?).cast();
            Ok(())
        })
    };
    found
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident: $list:ident;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            context: *const abi::Context,
            list: *mut *const c_int,
            count: *mut c_int,
        ) -> Status {
            // SAFETY: the interface requires a live context, and valid pointers for the results.
            unsafe {
                with(stringify!($name), context, |context| {
                    let values = context.$list.values();
                    *place(list)? = values.as_ptr();
                    *place(count)? = int(values.len());
                    Ok(())
                })
            }
        }
    )* };
}

lists! {
    /// Stores the tensors of the graph's inputs.
    TfLiteOpaqueContextGetInputs: inputs;
    /// Stores the tensors of the graph's outputs.
    TfLiteOpaqueContextGetOutputs: outputs;
    /// Stores the tensors that keep their values between runs.
    TfLiteOpaqueContextGetVariables: variables;
}

/// Returns the result of `f` for a context; `otherwise` for null.
///
/// # Safety
/// The context is null or live.
unsafe fn look<T: Copy>(
    function: &str,
    context: *const abi::Context,
    otherwise: T,
    f: impl FnOnce(&Context) -> T,
) -> T {
    let mut result = otherwise;
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(function, context, |context| {
            result = f(context);
            Ok(())
        })
    };
    result
}

/// Returns the number of nodes, kernels of delegates included.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetNumNodes(context: *const abi::Context) -> usize {
    // SAFETY: the interface requires a live context.
    unsafe { look("TfLiteOpaqueContextGetNumNodes", context, 0, |context| context.nodes.len()) }
}

/// Returns the number of tensors, added ones included.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetNumTensors(context: *const abi::Context) -> usize {
    // SAFETY: as above.
    unsafe { look("TfLiteOpaqueContextGetNumTensors", context, 0, |context| context.tensors.len()) }
}

/// Returns the name of the graph.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetName(context: *const abi::Context) -> *const c_char {
    // SAFETY: as above.
    unsafe { look("TfLiteOpaqueContextGetName", context, std::ptr::null(), |context| context.name.as_ptr()) }
}

/// Changes the shape of a tensor. The graph owns the array from here on, also on failure.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextResizeTensor(
    context: *mut abi::Context,
    tensor: *mut Tensor,
    dims: *mut IntArray,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { functions::resize_tensor(context, tensor.cast(), dims) }
}

/// Stores the context of a subgraph, during the preparation of a delegate.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextAcquireSubgraphContext(
    context: *mut abi::Context,
    subgraph: c_int,
    acquired: *mut *mut abi::Context,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { functions::acquire_subgraph(context, subgraph, acquired) }
}

/// Ends the use of the context of a subgraph.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReleaseSubgraphContext(
    context: *mut abi::Context,
    subgraph: c_int,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { functions::release_subgraph(context, subgraph) }
}

/// Records that the delegate in preparation runs a subgraph as a part of the calling nodes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextMarkSubgraphAsDelegationSkippable(
    context: *mut abi::Context,
    subgraph: c_int,
) -> Status {
    // SAFETY: the interface requires a live context.
    unsafe {
        with("TfLiteOpaqueContextMarkSubgraphAsDelegationSkippable", context, |context| {
            let index =
                usize::try_from(subgraph).ok().filter(|_| subgraph > 0 && context.has_subgraph(subgraph));
            let index = index.ok_or_else(|| {
                Error::InvalidInput(format!("there is no subgraph {subgraph}, or it is the first"))
            })?;
            match &mut context.phase {
                Phase::Delegate(delegating) => {
                    delegating.skipped.push(index);
                    Ok(())
                }
                _ => {
                    Err(Error::State("a delegate can skip subgraphs only while it is being prepared".into()))
                }
            }
        })
    }
}

/// Fails: the file of a model is not kept open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetNodeInitDataMmapInfo(
    context: *const abi::Context,
    _: *const Node,
    _: *mut c_int,
    _: *mut i64,
    _: *mut i64,
) -> Status {
    // SAFETY: the interface requires a live context.
    unsafe {
        with("TfLiteOpaqueContextGetNodeInitDataMmapInfo", context, |_| {
            Err(Error::Unsupported("the file of the model is not open".into()))
        })
    }
}

/// Stores the bytes of an element of a type.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetSizeOfType(
    context: *mut abi::Context,
    ty: c_int,
    bytes: *mut usize,
) -> Status {
    // SAFETY: the interface requires a live context, and a valid pointer for the result.
    unsafe {
        with("TfLiteOpaqueContextGetSizeOfType", context, |_| {
            let bits: Result<usize> = types::element(ty)
                .and_then(TensorType::bits)
                .ok_or_else(|| Error::InvalidInput(format!("elements of the type {ty} have no size")));
            *place(bytes)? = bits?.div_ceil(8);
            Ok(())
        })
    }
}

/// Stores address and size of metadata of the model.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextGetMetadata(
    context: *mut abi::Context,
    name: *const c_char,
    data: *mut *const c_char,
    size: *mut usize,
) -> Status {
    // SAFETY: the conditions are the same.
    unsafe { functions::get_metadata(context, name, data, size) }
}

/// Reports a message with a list of arguments of its format.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextReportErrorVa(
    context: *mut abi::Context,
    format: *const c_char,
    arguments: *mut c_void,
) {
    guard("TfLiteOpaqueContextReportErrorVa", (), || {
        // SAFETY: the conditions are the same.
        unsafe { context::report_va(context, format, arguments) };
    });
}
