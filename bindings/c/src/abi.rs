//! The layouts of the structures through which the application's custom ops and delegates access a graph.
//!
//! `TfLiteTensor` and `TfLiteNode` are defined in `delegraph_litert::abi`. In opaque interfaces these are only names;
//! code with the classic interface reads their fields.

use std::ffi::{c_char, c_int, c_void};

pub(crate) use delegraph_litert::abi::IntArray;
use delegraph_litert::abi::{Node, Tensor};

use crate::types::Status;

/// Creates the state of a kernel.
pub(crate) type Init = unsafe extern "C" fn(*mut Context, *const c_char, usize) -> *mut c_void;
/// Frees the state of a kernel.
pub(crate) type Free = unsafe extern "C" fn(*mut Context, *mut c_void);
/// Prepares or runs a node.
pub(crate) type NodeFn = unsafe extern "C" fn(*mut Context, *mut Node) -> Status;

/// `TfLiteContext`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) tensors_size: usize,
    pub(crate) get_execution_plan: unsafe extern "C" fn(*mut Context, *mut *mut IntArray) -> Status,
    pub(crate) tensors: *mut Tensor,
    /// The address of the structure, which identifies it.
    pub(crate) impl_: *mut c_void,
    pub(crate) resize_tensor: unsafe extern "C" fn(*mut Context, *mut Tensor, *mut IntArray) -> Status,
    /// Takes a `printf` format and its arguments.
    pub(crate) report_error: unsafe extern "C" fn(*mut Context, *const c_char),
    pub(crate) add_tensors: unsafe extern "C" fn(*mut Context, c_int, *mut c_int) -> Status,
    pub(crate) get_node_and_registration:
        unsafe extern "C" fn(*mut Context, c_int, *mut *mut Node, *mut *mut Registration) -> Status,
    pub(crate) replace_node_subsets:
        unsafe extern "C" fn(*mut Context, Registration, *const IntArray, *mut Delegate) -> Status,
    pub(crate) recommended_num_threads: c_int,
    pub(crate) get_external_context: unsafe extern "C" fn(*mut Context, c_int) -> *mut c_void,
    pub(crate) set_external_context: unsafe extern "C" fn(*mut Context, c_int, *mut c_void),
    pub(crate) allow_fp32_relax_to_fp16: u8,
    pub(crate) profiler: *mut c_void,
    /// Functions of the runtime for microcontrollers. Null.
    pub(crate) micro: [*const c_void; 4],
    pub(crate) resize_tensor_explicit:
        unsafe extern "C" fn(*mut Context, *mut Tensor, c_int, *const c_int) -> Status,
    pub(crate) preview_partitioning:
        unsafe extern "C" fn(*mut Context, *const IntArray, *mut *mut DelegateParams, *mut c_int) -> Status,
    /// Null: code reads the array `tensors` instead.
    pub(crate) get_tensor: *const c_void,
    /// Null.
    pub(crate) get_eval_tensor: *const c_void,
    pub(crate) get_metadata:
        unsafe extern "C" fn(*const Context, *const c_char, *mut *const c_char, *mut usize) -> Status,
    pub(crate) acquire_subgraph: unsafe extern "C" fn(*mut Context, c_int, *mut *mut Context) -> Status,
    pub(crate) release_subgraph: unsafe extern "C" fn(*mut Context, c_int) -> Status,
    /// Null, for fields of newer releases.
    pub(crate) later: [*const c_void; 8],
}

/// `TfLiteRegistration`, up to the fields that every release has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) init: Option<Init>,
    pub(crate) free: Option<Free>,
    pub(crate) prepare: Option<NodeFn>,
    pub(crate) invoke: Option<NodeFn>,
    pub(crate) profiling_string: *const c_void,
    pub(crate) builtin_code: i32,
    pub(crate) custom_name: *const c_char,
    pub(crate) version: c_int,
}

/// A registration that the application reads: the fields of newer releases are zero.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OwnRegistration {
    pub(crate) common: Registration,
    pub(crate) operator: *mut c_void,
    pub(crate) later: [*const c_void; 4],
}

/// `TfLiteDelegate`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Delegate {
    pub(crate) data: *mut c_void,
    pub(crate) prepare: Option<unsafe extern "C" fn(*mut Context, *mut Delegate) -> Status>,
    pub(crate) copy_from_buffer: Option<CopyBuffer>,
    pub(crate) copy_to_buffer: Option<CopyBuffer>,
    pub(crate) free_buffer: Option<unsafe extern "C" fn(*mut Context, *mut Delegate, *mut c_int)>,
    pub(crate) flags: i64,
    /// Null, unless the delegate is opaque; then the other fields are unused.
    pub(crate) builder: *mut OpaqueBuilder,
}

/// Copies between a tensor and a buffer of a delegate.
pub(crate) type CopyBuffer = unsafe extern "C" fn(*mut Context, *mut Delegate, c_int, *mut Tensor) -> Status;

/// `TfLiteDelegateParams`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DelegateParams {
    pub(crate) delegate: *mut Delegate,
    pub(crate) nodes: *mut IntArray,
    pub(crate) inputs: *mut IntArray,
    pub(crate) outputs: *mut IntArray,
}

/// `TfLiteOpaqueDelegateBuilder`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpaqueBuilder {
    pub(crate) data: *mut c_void,
    pub(crate) prepare: Option<unsafe extern "C" fn(*mut Context, *mut Delegate, *mut c_void) -> Status>,
    pub(crate) copy_from_buffer: Option<OpaqueCopyBuffer>,
    pub(crate) copy_to_buffer: Option<OpaqueCopyBuffer>,
    pub(crate) free_buffer:
        Option<unsafe extern "C" fn(*mut Context, *mut Delegate, *mut c_void, *mut c_int)>,
    pub(crate) flags: i64,
}

/// Copies between a tensor and a buffer of an opaque delegate.
pub(crate) type OpaqueCopyBuffer =
    unsafe extern "C" fn(*mut Context, *mut Delegate, *mut c_void, c_int, *mut Tensor) -> Status;

/// `TfLiteOpaqueDelegateParams`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpaqueParams {
    pub(crate) delegate: *mut Delegate,
    pub(crate) delegate_data: *mut c_void,
    pub(crate) nodes: *mut IntArray,
    pub(crate) inputs: *mut IntArray,
    pub(crate) outputs: *mut IntArray,
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The layouts of 64-bit platforms, counted from the published headers.
    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(offset_of!(Context, replace_node_subsets), 64);
        assert_eq!(offset_of!(Context, profiler), 104);
        assert_eq!(offset_of!(Context, resize_tensor_explicit), 144);
        assert_eq!(offset_of!(Context, preview_partitioning), 152);
        assert_eq!(offset_of!(Context, get_metadata), 176);
        assert_eq!(offset_of!(Context, release_subgraph), 192);
        assert_eq!(size_of::<Registration>(), 64);
        assert_eq!(offset_of!(OwnRegistration, operator), 64);
        assert_eq!((size_of::<Delegate>(), offset_of!(Delegate, flags)), (56, 40));
        assert_eq!(size_of::<DelegateParams>(), 32);
        assert_eq!((size_of::<OpaqueBuilder>(), size_of::<OpaqueParams>()), (48, 40));
    }
}
