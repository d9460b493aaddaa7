//! The table of functions that a delegate calls.

use std::ffi::{c_int, c_void};

use super::{calls, messages};
use crate::abi;

type Replace = unsafe extern "C" fn(
    *mut abi::Context,
    abi::OwnRegistration,
    *const abi::IntArray,
    *mut abi::Delegate,
) -> abi::Status;

/// As [`Replace`], with the known fields of a registration.
type ShortReplace = unsafe extern "C" fn(
    *mut abi::Context,
    abi::Registration,
    *const abi::IntArray,
    *mut abi::Delegate,
) -> abi::Status;

/// Returns a context without tensors.
pub(super) fn context() -> abi::WholeContext {
    let replace: ShortReplace = calls::replace;
    let get: unsafe extern "C" fn(*mut abi::Context, c_int) -> *mut c_void = calls::get_external_context;
    let set: unsafe extern "C" fn(*mut abi::Context, c_int, *mut c_void) = calls::set_external_context;
    let common = abi::Context {
        tensors_size: 0,
        get_execution_plan: Some(calls::get_execution_plan),
        tensors: std::ptr::null_mut(),
        impl_: std::ptr::null_mut(),
        resize_tensor: Some(calls::resize_tensor),
        report_error: Some(messages::function()),
        add_tensors: Some(calls::add_tensors),
        get_node_and_registration: Some(calls::get_node_and_registration),
        // SAFETY: only a delegate calls it, with a structure at least as long as `Registration`, which C passes in memory:
        // see `calls::replace`.
        replace_node_subsets_with_delegate_kernels: Some(unsafe {
            std::mem::transmute::<ShortReplace, Replace>(replace)
        }),
        recommended_num_threads: -1,
        get_external_context: get as *const c_void,
        set_external_context: set as *const c_void,
        allow_fp32_relax_to_fp16: 0,
        profiler: std::ptr::null_mut(),
        unused: [std::ptr::null(); 5],
        preview_delegate_partitioning: Some(calls::preview),
    };
    abi::WholeContext {
        common,
        get_tensor: std::ptr::null(),
        get_eval_tensor: std::ptr::null(),
        get_model_metadata: Some(calls::get_model_metadata),
        acquire_subgraph_context: Some(calls::acquire_subgraph_context),
        release_subgraph_context: Some(calls::release_subgraph_context),
        later: [std::ptr::null(); 8],
    }
}
