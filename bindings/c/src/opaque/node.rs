//! Nodes of a graph.

use std::ffi::{c_int, c_void};

use delegraph::core::error::{Error, Result};

use crate::abi;
use crate::arrays::{int, ints};
use crate::contain::{guard, values};
use crate::context::{self, Node};
use crate::report::Reporter;
use crate::tensor::Tensor;
use crate::types::{ERROR, OK, Status};

/// Calls `f` with a node. Reports and returns `otherwise` if it is null.
///
/// # Safety
/// The node is null or live, and no other reference to it exists.
unsafe fn with<T: Copy>(
    function: &str,
    node: *const Node,
    otherwise: T,
    f: impl FnOnce(&Node) -> Result<T>,
) -> T {
    guard(function, otherwise, || {
        let null = || Error::InvalidInput("the node is null or misaligned".into());
        // SAFETY: guaranteed by the caller.
        let node = (!node.is_null() && node.is_aligned()).then(|| unsafe { &*node });
        node.ok_or_else(null).and_then(f).unwrap_or_else(|error| {
            Reporter::default().report(&format!("{function}: {}", error.chain()));
            otherwise
        })
    })
}

/// Returns an input; null if the node does not have it or omits it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetInput(
    context: *const abi::Context,
    node: *const Node,
    index: c_int,
) -> *const Tensor {
    // SAFETY: the interface requires a context and one of its nodes.
    unsafe { tensor("TfLiteOpaqueNodeGetInput", context, node, index, |node| node.raw.inputs) }
}

/// Returns an output; null if the node does not have it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetOutput(
    context: *mut abi::Context,
    node: *const Node,
    index: c_int,
) -> *mut Tensor {
    // SAFETY: as above.
    unsafe { tensor("TfLiteOpaqueNodeGetOutput", context, node, index, |node| node.raw.outputs) }
}

/// # Safety
/// The context is null or live, and the node is null or belongs to it.
unsafe fn tensor(
    function: &str,
    context: *const abi::Context,
    node: *const Node,
    index: c_int,
    list: impl FnOnce(&Node) -> *mut abi::IntArray,
) -> *mut Tensor {
    // SAFETY: guaranteed by the caller; the list is a valid array.
    unsafe {
        with(function, node, std::ptr::null_mut(), |node| match at(ints(list(node)), index) {
            Some(tensor) => Ok(super::context::TfLiteOpaqueContextGetOpaqueTensor(context, tensor)),
            None => Err(Error::InvalidInput(format!("the node has no tensor {index}"))),
        })
    }
}

/// Returns the tensor at a position of a list; `None` for an omitted one.
fn at(list: &[c_int], index: c_int) -> Option<c_int> {
    usize::try_from(index).ok().and_then(|index| list.get(index)).copied().filter(|tensor| *tensor >= 0)
}

/// Returns the number of inputs, including omitted ones; -1 for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeNumberOfInputs(node: *const Node) -> c_int {
    let function = "TfLiteOpaqueNodeNumberOfInputs";
    // SAFETY: the interface requires null or a live node, whose lists are valid.
    unsafe { with(function, node, -1, |node| Ok(int(ints(node.raw.inputs).len()))) }
}

/// Returns the number of outputs; -1 for null.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeNumberOfOutputs(node: *const Node) -> c_int {
    let function = "TfLiteOpaqueNodeNumberOfOutputs";
    // SAFETY: as above.
    unsafe { with(function, node, -1, |node| Ok(int(ints(node.raw.outputs).len()))) }
}

/// Returns the state that `init` created.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetUserData(node: *const Node) -> *mut c_void {
    let function = "TfLiteOpaqueNodeGetUserData";
    // SAFETY: as above.
    unsafe { with(function, node, std::ptr::null_mut(), |node| Ok(node.raw.user_data)) }
}

/// Returns the params of a builtin op, in the structure of `builtin_op_data.h`; null for ops without one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetBuiltinData(node: *const Node) -> *mut c_void {
    let function = "TfLiteOpaqueNodeGetBuiltinData";
    // SAFETY: as above.
    unsafe { with(function, node, std::ptr::null_mut(), |node| Ok(node.raw.builtin_data)) }
}

/// Stores address and size of the options of a custom op; null and 0 for others.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetCustomInitialData(
    node: *const Node,
    data: *mut *const c_void,
    size: *mut c_int,
) -> Status {
    // SAFETY: the interface requires null or a live node, and valid pointers for the results.
    unsafe {
        with("TfLiteOpaqueNodeGetCustomInitialData", node, ERROR, |node| {
            *context::functions::place(data)? = node.raw.custom_initial_data;
            *context::functions::place(size)? = node.raw.custom_initial_data_size;
            Ok(OK)
        })
    }
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident: $list:ident;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            node: *const Node,
            list: *mut *const c_int,
            count: *mut c_int,
        ) -> Status {
            // SAFETY: the interface requires null or a live node, whose lists are valid, and valid pointers for the
            // results.
            unsafe {
                with(stringify!($name), node, ERROR, |node| {
                    let values = ints(node.raw.$list);
                    *context::functions::place(list)? = values.as_ptr();
                    *context::functions::place(count)? = int(values.len());
                    Ok(OK)
                })
            }
        }
    )* };
}

lists! {
    /// Stores the tensors of the inputs; -1 for an omitted one.
    TfLiteOpaqueNodeInputs: inputs;
    /// Stores the tensors of the outputs.
    TfLiteOpaqueNodeOutputs: outputs;
    /// Stores the temporaries that the kernel set.
    TfLiteOpaqueNodeTemporaries: temporaries;
}

/// Sets the temporaries of a node: tensors of `TfLiteOpaqueContextAddTensor`, which get memory when the kernel is prepared.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeSetTemporaries(
    node: *mut Node,
    temporaries: *const c_int,
    count: c_int,
) -> Status {
    let function = "TfLiteOpaqueNodeSetTemporaries";
    guard(function, ERROR, || {
        // SAFETY: the interface requires `count` values, and null or a live node.
        let values = unsafe { values(temporaries, count) };
        let copy = values.map(crate::arrays::new);
        match copy {
            Ok(copy) if !node.is_null() && node.is_aligned() && !copy.is_null() => {
                // SAFETY: as above.
                unsafe { (*node).set_temporaries(copy) };
                OK
            }
            Ok(copy) => {
                // SAFETY: null, or the copy.
                unsafe { crate::arrays::TfLiteIntArrayFree(copy) };
                let text = "the node is null or misaligned, or there is not enough memory";
                Reporter::default().report(&format!("{function}: {text}"));
                ERROR
            }
            Err(text) => {
                Reporter::default().report(&format!("{function}: the temporaries are {text}"));
                ERROR
            }
        }
    })
}

/// Returns the tensor of an input; -1 if the node does not have it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetInputTensorIndex(
    node: *const Node,
    index: c_int,
) -> c_int {
    let function = "TfLiteOpaqueNodeGetInputTensorIndex";
    // SAFETY: the interface requires null or a live node, whose lists are valid.
    unsafe { with(function, node, -1, |node| Ok(at(ints(node.raw.inputs), index).unwrap_or(-1))) }
}

/// Returns the tensor of an output; -1 if the node does not have it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueNodeGetOutputTensorIndex(
    node: *const Node,
    index: c_int,
) -> c_int {
    let function = "TfLiteOpaqueNodeGetOutputTensorIndex";
    // SAFETY: as above.
    unsafe { with(function, node, -1, |node| Ok(at(ints(node.raw.outputs), index).unwrap_or(-1))) }
}
