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

/// Runs a model. One call at a time is possible: a call while another one is running, in another thread or as an
/// invocation, is `DG_BUSY`. `dg_interpreter_cancel` and `dg_interpreter_delete` may be called at any time, from any
/// thread.
pub struct dg_interpreter {
    _private: (),
}

static INTERPRETERS: Table<Session> = Table::new(10);

/// Returns an interpreter.
///
/// # Errors
/// [`dg_status::DG_INVALID_HANDLE`] for an invalid handle.
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
/// Finds kernels. `dg_interpreter_prepare`, or the first function that needs it, infers shapes, applies delegates and
/// plans memory, so that inputs can be resized before.
///
/// `DG_UNSUPPORTED` for ops without a kernel, `DG_DELEGATE` for a delegate that cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_create(
    model: *const dg_model,
    options: *const dg_options,
    interpreter: *mut *mut dg_interpreter,
) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
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

/// Deletes an interpreter; null is allowed. A running call is cancelled and ends later, as does an invocation, whose
/// callback is called. Pointers to data of tensors are invalid from then on.
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

/// Selects a signature by its key. Inputs, outputs, reports and runs then refer to its subgraph. Without a call, they
/// refer to the model's first subgraph.
///
/// `DG_INVALID_ARGUMENT` if the model has no such signature.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_interpreter_select_signature(
    interpreter: *mut dg_interpreter,
    key: *const c_char,
) -> dg_status {
    with(interpreter, |state| {
        // SAFETY: the interface requires null or a text.
        let key = unsafe { utf8(key, "the key") }?;
        state.interpreter.select_signature(key)?;
        state.signature = Some(key.to_owned());
        Ok(())
    })
}

/// Changes the shape of an input to `rank` dimensions, in elements; `dg_interpreter_prepare` sets the shapes of
/// outputs. Inputs lose their data, and their buffers if their size changes.
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
        // SAFETY: the interface requires `rank` values at `dims`.
        let dims = unsafe { contain::values(dims, rank) };
        let dims = dims.map_err(|text| Failure::argument(format!("the shape is {text}")))?;
        Ok(state.interpreter.resize_input(input, dims)?)
    })
}

/// Infers shapes, lets delegates claim nodes, and plans memory, for the first time or after a resize. Runs do the same
/// if necessary; calling this function moves the time and the errors before the first run.
///
/// `DG_INVALID_MODEL` for nodes that do not fit their inputs; with `DG_POLICY_REQUIRE`, `DG_UNSUPPORTED` for nodes that
/// no delegate claims and `DG_DELEGATE` for a delegate that fails; `DG_LIMIT`, `DG_TIME_LIMIT`, `DG_OUT_OF_MEMORY`,
/// `DG_CANCELLED`.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_prepare(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.prepare()?))
}

/// Computes the outputs from the inputs, and returns when they are complete. After an error, outputs and variables have
/// the values that the completed steps wrote.
///
/// Errors are those of `dg_interpreter_prepare`; `DG_INVALID_DATA`, `DG_DELEGATE`. `dg_last_error_node` returns the
/// node.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_invoke(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.invoke()?))
}

/// Cancels the running call, or the invocation, with `DG_CANCELLED`. May be called from any thread. Has no effect if
/// nothing is running.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_cancel(interpreter: *const dg_interpreter) -> dg_status {
    call(|| {
        session(interpreter)?.cancel();
        Ok(())
    })
}

/// Sets variables to their initial values: tensors that keep their data between runs, and resources.
#[unsafe(no_mangle)]
pub extern "C" fn dg_interpreter_reset_variables(interpreter: *mut dg_interpreter) -> dg_status {
    with(interpreter, |state| Ok(state.interpreter.reset_variables()?))
}
