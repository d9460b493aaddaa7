//! Interpreters: the functions of `c_api.h` on them, and helpers for other functions.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use delegraph::core::error::{Result, absent};
use delegraph::core::{Error, TensorId};
use delegraph::interpreter::CancellationToken;
use delegraph_ffi::handle::Table;

use crate::arrays::int;
use crate::contain::{guard, values};
use crate::delegate::{self, Pointer};
use crate::model::{MODELS, ModelHandle};
use crate::options::{OPTIONS, Options, OptionsHandle, lock};
use crate::report::Reporter;
use crate::resolver::{self, Builtins};
use crate::state::{Custom, NOT_READY, State};
use crate::tensor::{Tensor, name};
use crate::types::{ERROR, Kind, OK, Status, status};

/// The object behind a `TfLiteInterpreter*`.
pub(crate) struct Interpreter {
    pub(crate) reporter: Reporter,
    cancellable: bool,
    token: Mutex<CancellationToken>,
    inputs: Vec<c_int>,
    outputs: Vec<c_int>,
    signatures: Vec<CString>,
    /// Tensors that keep their value between runs.
    pub(crate) variables: Vec<usize>,
    /// The number of the handle, once there is one.
    handle: OnceLock<usize>,
    state: Mutex<State>,
}

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct InterpreterHandle([u8; 0]);

/// All interpreters.
pub(crate) static INTERPRETERS: Table<Interpreter> = Table::new(Kind::Interpreter as usize);

impl Interpreter {
    /// Creates the interpreter of a model. Its tensors have memory only if the options have delegates.
    ///
    /// # Errors
    /// The errors of [`resolver::build`] and, with delegates, of [`State::allocate`].
    fn new(model: std::sync::Arc<delegraph::Model>, options: &Options, builtins: Builtins) -> Result<Self> {
        let (interpreter, failures) = resolver::build(&model, options, builtins, false)?;
        let (own, chosen) = (model.clone(), options.clone());
        let preserving = Box::new(move || resolver::build(&own, &chosen, builtins, true));
        let graph = model.subgraph(0);
        let indices = |ids: &[TensorId]| ids.iter().map(|id| int(id.0)).collect();
        let inputs = indices(graph.map_or(&[], |graph| graph.inputs()));
        let outputs = indices(graph.map_or(&[], |graph| graph.outputs()));
        let tensors = graph.map_or(&[][..], |graph| graph.tensors()).iter().enumerate();
        let variables = tensors.filter(|(_, tensor)| tensor.is_variable()).map(|(index, _)| index).collect();
        let signatures = model.signatures().iter().map(|signature| name(signature.key())).collect();
        let token = interpreter.cancellation_token();
        let mut state =
            State::new(model, interpreter, options.delegate_fallback, failures, options.reporter, preserving);
        if !options.delegates.is_empty() {
            // As in TensorFlow Lite, delegates claim their nodes now, and the model is ready to run.
            state.allocate(0)?;
        }
        Ok(Interpreter {
            reporter: options.reporter,
            cancellable: options.cancellable,
            token: Mutex::new(token),
            inputs,
            outputs,
            signatures,
            variables,
            handle: OnceLock::new(),
            state: Mutex::new(state),
        })
    }

    /// Calls `f` with the state. Reports and returns `otherwise` if another call is in progress.
    pub(crate) fn with<T>(&self, function: &str, otherwise: T, f: impl FnOnce(&mut State) -> T) -> T {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // The runtime itself tracks the state after a panic.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let text = "another call is in progress; only one thread at a time may call an interpreter";
                self.reporter.report(&format!("{function}: {text}"));
                return otherwise;
            }
        };
        f(&mut state)
    }

    /// As [`Interpreter::with`], for a call that may fail. Errors are reported.
    pub(crate) fn try_with(&self, function: &str, f: impl FnOnce(&mut State) -> Result<()>) -> Status {
        let result = self.with(function, Err(ERROR), |state| {
            // A cancellation applies to the running call only: one that was requested before has no effect.
            self.token().clear();
            f(state).map_err(|error| {
                match &error {
                    // Programs compare this text.
                    Error::State(text) if text == NOT_READY => self.reporter.report(text),
                    _ => self.reporter.report(&format!("{function}: {}", error.chain())),
                }
                status(&error)
            })
        });
        result.err().unwrap_or(OK)
    }

    /// Returns a tensor of a subgraph; null, after a report, if it does not exist.
    pub(crate) fn tensor(&self, function: &str, subgraph: usize, index: c_int) -> *mut Tensor {
        let handle = self.handle.get().copied().unwrap_or(0);
        let null = std::ptr::null_mut();
        let found = self.with(function, Ok(null), |state| match usize::try_from(index) {
            Ok(index) => state.tensor(handle, subgraph, index),
            Err(_) => Err(Error::InvalidInput(format!("the tensor index {index} is negative"))),
        });
        found.unwrap_or_else(|error| {
            self.reporter.report(&format!("{function}: {}", error.chain()));
            null
        })
    }

    fn token(&self) -> MutexGuard<'_, CancellationToken> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places a tensor in memory of the application.
    pub(crate) fn set_custom(&self, state: &mut State, custom: Custom) -> Result<()> {
        let result = state.set_custom(custom);
        *self.token() = state.token();
        result
    }

    /// Cancels the running call. Reports and returns `ERROR` if the options do not enable cancellation.
    pub(crate) fn cancel(&self, function: &str) -> Status {
        if !self.cancellable {
            self.reporter.report(&format!(
                "{function}: cancellation is not enabled (TfLiteInterpreterOptionsEnableCancellation)"
            ));
            return ERROR;
        }
        self.token().cancel();
        OK
    }
}

/// Calls `f` with an interpreter. Reports and returns `otherwise` if there is none.
pub(crate) fn with<T>(
    function: &str,
    handle: *const InterpreterHandle,
    otherwise: T,
    f: impl FnOnce(&Interpreter) -> T,
) -> T
where
    T: Copy,
{
    guard(function, otherwise, || match INTERPRETERS.get(handle) {
        Some(interpreter) => f(&interpreter),
        None => {
            Reporter::default().report(&format!("{function}: the interpreter is null or deleted"));
            otherwise
        }
    })
}

/// Creates an interpreter. Returns null, after a report, on failure.
pub(crate) fn create(
    function: &str,
    model: *const ModelHandle,
    options: *const OptionsHandle,
    builtins: Builtins,
) -> *mut InterpreterHandle {
    guard(function, std::ptr::null_mut(), || {
        let chosen = OPTIONS.get(options).map(|options| lock(&options).clone());
        let reporter = chosen.as_ref().map(|options| options.reporter).unwrap_or_default();
        let report = |text: &str| {
            reporter.report(&format!("{function}: {text}"));
            std::ptr::null_mut()
        };
        let Some(model) = MODELS.get(model) else { return report("the model is null or deleted") };
        if chosen.is_none() && !options.is_null() {
            return report("the options are deleted");
        }
        match Interpreter::new(model.model.clone(), &chosen.unwrap_or_default(), builtins) {
            Ok(interpreter) => {
                let handle: *mut InterpreterHandle = INTERPRETERS.insert(interpreter);
                if let Some(interpreter) = INTERPRETERS.get(handle) {
                    let _ = interpreter.handle.set(handle.addr());
                }
                handle
            }
            Err(error) => {
                if let Error::UnresolvedOps(unresolved) = &error {
                    report_unresolved(reporter, unresolved);
                }
                report(&error.chain())
            }
        }
    })
}

/// Reports ops without a kernel with the text that programs expect.
fn report_unresolved(reporter: Reporter, unresolved: &delegraph::core::error::UnresolvedOps) {
    for op in &unresolved.ops {
        let (name, version) = (&op.op, op.version);
        reporter.report(&format!("Didn't find op for builtin opcode '{name}' version '{version}'."));
    }
}

/// Applies a delegate after those of the options, and plans memory again.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterModifyGraphWithDelegate(
    interpreter: *const InterpreterHandle,
    delegate: *mut crate::abi::Delegate,
) -> Status {
    let function = "TfLiteInterpreterModifyGraphWithDelegate";
    with(function, interpreter, ERROR, |it| {
        it.try_with(function, |state| {
            // SAFETY: the interface requires null or a delegate that outlives the interpreter.
            let opened = unsafe { delegate::open(Pointer(delegate), &state.model, it.reporter) };
            let (delegate, failure) = opened?;
            state.add_delegate(delegate, failure)
        })
    })
}

/// Creates an interpreter with all kernels.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterCreate(
    model: *const ModelHandle,
    options: *const OptionsHandle,
) -> *mut InterpreterHandle {
    create("TfLiteInterpreterCreate", model, options, Builtins::All)
}

/// Creates an interpreter with only the kernels of the options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterCreateWithSelectedOps(
    model: *const ModelHandle,
    options: *const OptionsHandle,
) -> *mut InterpreterHandle {
    create("TfLiteInterpreterCreateWithSelectedOps", model, options, Builtins::None)
}

/// Deletes an interpreter, and its tensors.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterDelete(interpreter: *mut InterpreterHandle) {
    guard("TfLiteInterpreterDelete", (), || drop(INTERPRETERS.remove(interpreter)));
}

/// Returns the number of inputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetInputTensorCount(interpreter: *const InterpreterHandle) -> i32 {
    with("TfLiteInterpreterGetInputTensorCount", interpreter, 0, |it| int(it.inputs.len()))
}

/// Returns the tensor indices of the inputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterInputTensorIndices(
    interpreter: *const InterpreterHandle,
) -> *const c_int {
    with("TfLiteInterpreterInputTensorIndices", interpreter, std::ptr::null(), |it| it.inputs.as_ptr())
}

/// Returns the tensor index of an input; -1 if there is no such input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetInputTensorIndex(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> i32 {
    with("TfLiteInterpreterGetInputTensorIndex", interpreter, -1, |it| at(&it.inputs, index).unwrap_or(-1))
}

/// Returns an input; null, after a report, if there is no such input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetInputTensor(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> *mut Tensor {
    let function = "TfLiteInterpreterGetInputTensor";
    with(function, interpreter, std::ptr::null_mut(), |it| numbered(function, it, "input", &it.inputs, index))
}

/// Changes the shape of an input. It takes effect in `TfLiteInterpreterAllocateTensors`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterResizeInputTensor(
    interpreter: *mut InterpreterHandle,
    index: i32,
    dims: *const c_int,
    rank: i32,
) -> Status {
    let function = "TfLiteInterpreterResizeInputTensor";
    with(function, interpreter, ERROR, |it| {
        // SAFETY: the interface requires `rank` values at `dims`.
        it.try_with(function, |state| state.resize(0, index, &shape(unsafe { values(dims, rank) })?, false))
    })
}

/// Plans memory for the current shapes, and resets variables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterAllocateTensors(interpreter: *mut InterpreterHandle) -> Status {
    let function = "TfLiteInterpreterAllocateTensors";
    with(function, interpreter, ERROR, |it| it.try_with(function, |state| state.allocate(0)))
}

/// Runs the model.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterInvoke(interpreter: *mut InterpreterHandle) -> Status {
    let function = "TfLiteInterpreterInvoke";
    with(function, interpreter, ERROR, |it| it.try_with(function, |state| state.invoke(0)))
}

/// Returns the number of outputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetOutputTensorCount(interpreter: *const InterpreterHandle) -> i32 {
    with("TfLiteInterpreterGetOutputTensorCount", interpreter, 0, |it| int(it.outputs.len()))
}

/// Returns the tensor indices of the outputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOutputTensorIndices(
    interpreter: *const InterpreterHandle,
) -> *const c_int {
    with("TfLiteInterpreterOutputTensorIndices", interpreter, std::ptr::null(), |it| it.outputs.as_ptr())
}

/// Returns the tensor index of an output; -1 if there is no such output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetOutputTensorIndex(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> i32 {
    with("TfLiteInterpreterGetOutputTensorIndex", interpreter, -1, |it| at(&it.outputs, index).unwrap_or(-1))
}

/// Returns an output; null, after a report, if there is no such output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetOutputTensor(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> *const Tensor {
    let function = "TfLiteInterpreterGetOutputTensor";
    with(function, interpreter, std::ptr::null_mut(), |it| {
        numbered(function, it, "output", &it.outputs, index)
    })
}

/// Returns any tensor; null, after a report, if there is no such tensor. Intermediate tensors have no data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetTensor(
    interpreter: *const InterpreterHandle,
    index: c_int,
) -> *mut Tensor {
    let function = "TfLiteInterpreterGetTensor";
    with(function, interpreter, std::ptr::null_mut(), |it| it.tensor(function, 0, index))
}

/// Cancels the running call, from any thread. Fails unless the options enable cancellation.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterCancel(interpreter: *const InterpreterHandle) -> Status {
    let function = "TfLiteInterpreterCancel";
    with(function, interpreter, ERROR, |it| it.cancel(function))
}

/// Returns the number of signatures.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetSignatureCount(interpreter: *const InterpreterHandle) -> i32 {
    with("TfLiteInterpreterGetSignatureCount", interpreter, 0, |it| int(it.signatures.len()))
}

/// Returns the key of a signature; null if there is no such signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterGetSignatureKey(
    interpreter: *const InterpreterHandle,
    index: i32,
) -> *const c_char {
    with("TfLiteInterpreterGetSignatureKey", interpreter, std::ptr::null(), |it| {
        let key = usize::try_from(index).ok().and_then(|index| it.signatures.get(index));
        key.map_or(std::ptr::null(), |key| key.as_ptr())
    })
}

fn at(list: &[c_int], index: i32) -> Option<c_int> {
    usize::try_from(index).ok().and_then(|index| list.get(index)).copied()
}

fn numbered(function: &str, it: &Interpreter, what: &str, list: &[c_int], index: i32) -> *mut Tensor {
    match at(list, index) {
        Some(index) => it.tensor(function, 0, index),
        None => {
            let count = list.len();
            it.reporter.report(&format!("{function}: {}", absent(what, index, "the model", count)));
            std::ptr::null_mut()
        }
    }
}

/// Returns dimensions as a shape.
///
/// # Errors
/// [`Error::InvalidInput`] for a bad pointer, and for a negative dimension.
pub(crate) fn shape(dims: std::result::Result<&[c_int], String>) -> Result<Vec<usize>> {
    let dims = dims.map_err(|text| Error::InvalidInput(format!("the shape is {text}")))?;
    let dim = |&dim: &c_int| usize::try_from(dim);
    let shape = dims.iter().map(dim).collect::<std::result::Result<_, _>>();
    shape.map_err(|_| Error::InvalidInput(format!("the shape {dims:?} has a negative dimension")))
}
