//! Interpreters: creating, resizing, preparing, running.

use std::ffi::c_char;
use std::sync::Arc;

use delegraph_ffi::contain;
use delegraph_ffi::handle::Table;

use crate::error::{Failure, Out, call, dg_status};
use crate::model::{self, dg_model};
use crate::options::{self, dg_options};
use crate::session::Session;
use crate::state::State;
use crate::text::utf8;

/// Runs a model. It takes one call at a time: a call while another one is running, in another thread or as an invocation, is
/// `DG_BUSY`. `dg_interpreter_cancel` and `dg_interpreter_delete` may be called at any time, from any thread.
pub struct dg_interpreter {
    _private: (),
}

static INTERPRETERS: Table<Session> = Table::new(10);

/// Returns an interpreter.
///
/// # Errors
/// [`dg_status::DG_INVALID_HANDLE`] if it is not one.
pub(crate) fn session(interpreter: *const dg_interpreter) -> Result<Arc<Session>, Failure> {
    INTERPRETERS.get(interpreter).ok_or_else(|| Failure::handle("interpreter"))
}

/// Calls `f` with the state of an interpreter.
pub(crate) fn with(
    interpreter: *const dg_interpreter,
    f: impl FnOnce(&mut State) -> Result<(), Failure>,
) -> dg_status {
    call(|| session(interpreter)?.with(f))
}

/// Creates an interpreter of a model. `options` may be null for the defaults. Both may be deleted afterwards.
///
/// Kernels are found now. Shapes are inferred, delegates asked and memory planned by `dg_interpreter_prepare`, or by the first
/// function that needs them, so that inputs can be resized before.
///
/// `DG_UNSUPPORTED` for ops without a kernel, `DG_DELEGATE` for a delegate that cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_create(
    model: *const dg_model,
    options: *const dg_options,
    interpreter: *mut *mut dg_interpreter,
) -> dg_status {
    call(|| {
        // SAFETY: the interface demands null or a place for the result.
        let out = unsafe { Out::new(interpreter, std::ptr::null_mut()) }?;
        let model = model::model(model)?;
        let state = options::copy_of(options)?.build(&model.model)?;
        let handle: *mut dg_interpreter = INTERPRETERS.insert(Session::new(state, model.name.clone()));
        if handle.is_null() {
            return Err(Failure::new(dg_status::DG_LIMIT, "there are too many interpreters"));
        }
        out.set(handle);
        Ok(())
    })
}

/// Deletes an interpreter; null is allowed. A call that is running is cancelled and ends later, and so does an invocation,
/// whose callback is called. Pointers to data of tensors are invalid from then on.
///
/// `DG_INVALID_HANDLE` if it was deleted before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_delete(interpreter: *mut dg_interpreter) -> dg_status {
    call(|| match INTERPRETERS.remove(interpreter) {
        None if !interpreter.is_null() => Err(Failure::handle("interpreter")),
        None => Ok(()),
        Some(session) => {
            session.cancel();
            Ok(())
        }
    })
}

/// Selects a signature by its key. Inputs, outputs, reports and runs are those of its subgraph from then on. Without a call,
/// they are those of the model's first subgraph.
///
/// `DG_INVALID_ARGUMENT` if the model has no such signature.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_select_signature(
    interpreter: *mut dg_interpreter,
    key: *const c_char,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface demands null or a text.
        let key = unsafe { utf8(key, "the key") }?;
        state.interpreter.select_signature(key)?;
        state.signature = Some(key.to_owned());
        Ok(())
    })
}

/// Gives an input another shape of `rank` dimensions, in elements; outputs get theirs in `dg_interpreter_prepare`. Inputs lose
/// their data, and their buffers if their size changes.
///
/// `DG_INVALID_ARGUMENT` if there is no such input, or the model fixes a dimension that would change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_resize_input(
    interpreter: *mut dg_interpreter,
    input: usize,
    dims: *const usize,
    rank: usize,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface demands `rank` values at `dims`.
        let dims = unsafe { contain::values(dims, rank) };
        let dims = dims.map_err(|text| Failure::argument(format!("the shape is {text}")))?;
        Ok(state.interpreter.resize_input(input, dims)?)
    })
}

/// Infers shapes, lets delegates claim nodes, and plans memory, where a resize or nothing at all came before. Runs do the same;
/// this takes the time, and shows the errors, before the first run.
///
/// `DG_INVALID_MODEL` for nodes that do not fit their inputs, `DG_UNSUPPORTED` with `DG_POLICY_REQUIRE`, `DG_LIMIT`,
/// `DG_TIME_LIMIT`, `DG_OUT_OF_MEMORY`.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_prepare(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.prepare()?))
}

/// Computes the outputs from the inputs, and returns when they are there. After an error, outputs and variables have what the
/// steps wrote that ended.
///
/// Errors are those of `dg_interpreter_prepare`; `DG_INVALID_DATA`, `DG_DELEGATE`, `DG_CANCELLED`. `dg_last_error_node` has the
/// node.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_invoke(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.invoke()?))
}

/// Ends the call that is running, or the invocation, with `DG_CANCELLED`. From any thread. Without one, nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_cancel(interpreter: *const dg_interpreter) -> dg_status {
    call(|| {
        session(interpreter)?.cancel();
        Ok(())
    })
}

/// Sets variables to their initial values: those of tensors that keep their data from one run to the next, and of resources.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_reset_variables(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.reset_variables()?))
}
