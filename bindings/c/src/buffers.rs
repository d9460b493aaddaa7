//! The functions of `c_api_experimental.h` on variables, memory of the application and buffers of delegates.

use std::ffi::{c_int, c_void};

use delegraph::core::Error;
use delegraph::core::error::absent;
use delegraph::core::kernel::ALIGNMENT;

use crate::abi::Delegate;
use crate::arrays::int;
use crate::context::functions::place;
use crate::delegate::Pointer;
use crate::interpreter::{InterpreterHandle, with};
use crate::state::{Custom, NO_BUFFER};
use crate::tensor::Tensor;
use crate::types::{ERROR, Status};

/// `TfLiteCustomAllocation`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CustomAllocation {
    pub(crate) data: *mut c_void,
    pub(crate) bytes: usize,
}

/// The flag that allows any alignment.
const SKIP_ALIGN_CHECK: i64 = 1;

/// Sets variables to their initial values.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterResetVariableTensors(
    interpreter: *mut InterpreterHandle,
) -> Status {
    let function = "TfLiteInterpreterResetVariableTensors";
    with(function, interpreter, ERROR, |it| it.try_with(function, |state| state.reset_variables()))
}

/// Returns the number of variables of the first subgraph.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetVariableTensorCount(
    interpreter: *const InterpreterHandle,
) -> i32 {
    with("TfLiteInterpreterGetVariableTensorCount", interpreter, 0, |it| int(it.variables.len()))
}

/// Returns a variable; null if there is no such variable.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetVariableTensor(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> *mut Tensor {
    let function = "TfLiteInterpreterGetVariableTensor";
    with(function, interpreter, std::ptr::null_mut(), |it| {
        let variable = usize::try_from(index).ok().and_then(|index| it.variables.get(index));
        variable.map_or(std::ptr::null_mut(), |&variable| it.tensor(function, 0, int(variable)))
    })
}

/// Places a tensor in memory of the application: runs copy inputs from it and outputs to it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterSetCustomAllocationForTensor(
    interpreter: *mut InterpreterHandle,
    tensor: c_int,
    allocation: *const CustomAllocation,
    flags: i64,
) -> Status {
    let function = "TfLiteInterpreterSetCustomAllocationForTensor";
    with(function, interpreter, ERROR, |it| {
        it.try_with(function, |state| {
            let wrong = |text: String| Error::InvalidInput(text);
            if allocation.is_null() || !allocation.is_aligned() {
                return Err(wrong("the allocation is null or misaligned".into()));
            }
            // SAFETY: the interface requires a valid structure; null is excluded.
            let CustomAllocation { data, bytes } = unsafe { *allocation };
            let negative = |_| wrong(format!("the tensor index {tensor} is negative"));
            let tensor = usize::try_from(tensor).map_err(negative)?;
            if data.is_null() && bytes > 0 {
                return Err(wrong("the memory of the allocation is null".into()));
            }
            if flags & SKIP_ALIGN_CHECK == 0 && !data.addr().is_multiple_of(ALIGNMENT) {
                return Err(wrong(format!(
                    "the memory of the allocation does not start at a multiple of {ALIGNMENT}"
                )));
            }
            it.set_custom(state, Custom { tensor, data: data.cast(), bytes })
        })
    })
}

/// Copies a tensor to the CPU's memory if a delegate holds it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterEnsureTensorDataIsReadable(
    interpreter: *mut InterpreterHandle,
    tensor: c_int,
) -> Status {
    let function = "TfLiteInterpreterEnsureTensorDataIsReadable";
    with(function, interpreter, ERROR, |it| it.try_with(function, |state| state.fetch(tensor)))
}

/// Assigns a buffer of a delegate to a tensor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterSetBufferHandle(
    interpreter: *mut InterpreterHandle,
    tensor: *mut Tensor,
    handle: c_int,
    delegate: *mut Delegate,
) -> Status {
    let function = "TfLiteInterpreterSetBufferHandle";
    with(function, interpreter, ERROR, |it| {
        it.try_with(function, |state| match delegate.is_null() {
            true => Err(Error::InvalidInput("the delegate is null".into())),
            false => state.set_buffer(tensor, handle, Pointer(delegate)),
        })
    })
}

/// Stores the buffer of a tensor and its delegate; -1 and null without one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterGetBufferHandle(
    interpreter: *mut InterpreterHandle,
    tensor: c_int,
    handle: *mut c_int,
    delegate: *mut *mut Delegate,
) -> Status {
    let function = "TfLiteInterpreterGetBufferHandle";
    with(function, interpreter, ERROR, |it| {
        it.try_with(function, |state| {
            let count = state.model.subgraph(0).map_or(0, |graph| graph.tensors().len());
            if usize::try_from(tensor).is_err() || usize::try_from(tensor).is_ok_and(|index| index >= count) {
                return Err(Error::InvalidInput(absent("tensor", tensor, "the model", count)));
            }
            let (found, of) = state
                .buffer(tensor)
                .map_or((NO_BUFFER, std::ptr::null_mut()), |buffer| (buffer.handle, buffer.delegate.0));
            // SAFETY: the interface requires places for the results.
            unsafe {
                *place(handle)? = found;
                *place(delegate)? = of;
            }
            Ok(())
        })
    })
}

/// Sets whether outputs may stay in buffers of delegates after a run.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSetAllowBufferHandleOutput(interpreter: *const InterpreterHandle, allow: u8) {
    let function = "TfLiteSetAllowBufferHandleOutput";
    with(function, interpreter, (), |it| it.with(function, (), |state| state.outputs_stay = allow != 0));
}
