//! Signature runners.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, Weak};

use delegraph::core::error::{Result, absent};
use delegraph::core::{Error, TensorId};
use delegraph_ffi::handle::Table;

use crate::arrays::int;
use crate::contain::{guard, text, values};
use crate::interpreter::{INTERPRETERS, Interpreter, InterpreterHandle, shape, with};
use crate::report::Reporter;
use crate::state::State;
use crate::tensor::{Tensor, name};
use crate::types::{ERROR, Kind, Status};

/// The object behind a `TfLiteSignatureRunner*`.
pub(crate) struct Runner {
    interpreter: Weak<Interpreter>,
    subgraph: usize,
    inputs: Vec<Named>,
    outputs: Vec<Named>,
}

/// A tensor with its name in the signature.
struct Named {
    name: CString,
    tensor: TensorId,
}

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct RunnerHandle([u8; 0]);

static RUNNERS: Table<Runner> = Table::new(Kind::SignatureRunner as usize);

impl Runner {
    /// Creates the runner of a signature. Without a key it runs the first subgraph, for models without signatures.
    fn new(interpreter: &Arc<Interpreter>, state: &State, key: Option<&CStr>) -> Result<Self> {
        let model = &state.model;
        let weak = Arc::downgrade(interpreter);
        let Some(key) = key else {
            let graph = model.subgraph(0).filter(|_| model.signatures().is_empty());
            let graph = graph
                .ok_or_else(|| Error::InvalidInput("the key is null, and the model has signatures".into()))?;
            let named = |ids: &[TensorId]| {
                ids.iter().map(|&tensor| Named { name: name(graph.tensor(tensor).name()), tensor }).collect()
            };
            let (inputs, outputs) = (named(graph.inputs()), named(graph.outputs()));
            return Ok(Runner { interpreter: weak, subgraph: 0, inputs, outputs });
        };
        let signature = key.to_str().ok().and_then(|key| model.signature(key));
        let count = model.signatures().len();
        let missing =
            || Error::InvalidInput(absent("signature", format_args!("{key:?}"), "the model", count));
        let signature = signature.ok_or_else(missing)?;
        // TensorFlow Lite has the names in alphabetical order.
        let named = |list: &[(String, TensorId)]| {
            let mut sorted: Vec<_> = list.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            sorted.into_iter().map(|(text, tensor)| Named { name: name(text), tensor: *tensor }).collect()
        };
        let (inputs, outputs) = (named(signature.inputs()), named(signature.outputs()));
        Ok(Runner { interpreter: weak, subgraph: signature.subgraph(), inputs, outputs })
    }
}

/// Calls `f` with a runner. Reports and returns `otherwise` if there is none.
fn with_runner<T: Copy>(
    function: &str,
    handle: *const RunnerHandle,
    otherwise: T,
    f: impl FnOnce(&Runner) -> T,
) -> T {
    guard(function, otherwise, || match RUNNERS.get(handle) {
        Some(runner) => f(&runner),
        None => {
            Reporter::default().report(&format!("{function}: the signature runner is null or deleted"));
            otherwise
        }
    })
}

/// As [`with_runner`], with the runner's interpreter.
fn with_both<T: Copy>(
    function: &str,
    handle: *const RunnerHandle,
    otherwise: T,
    f: impl FnOnce(&Runner, &Interpreter) -> T,
) -> T {
    with_runner(function, handle, otherwise, |runner| match runner.interpreter.upgrade() {
        Some(interpreter) => f(runner, &interpreter),
        None => {
            Reporter::default().report(&format!("{function}: the interpreter was deleted before the runner"));
            otherwise
        }
    })
}

/// Returns the runner of a signature, to be deleted before the interpreter; null if there is no such signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterGetSignatureRunner(
    interpreter: *const InterpreterHandle,
    key: *const c_char,
) -> *mut RunnerHandle {
    let function = "TfLiteInterpreterGetSignatureRunner";
    with(function, interpreter, std::ptr::null_mut(), |it| {
        let Some(shared) = INTERPRETERS.get(interpreter) else { return std::ptr::null_mut() };
        // SAFETY: the interface requires null or a text.
        let key = unsafe { text(key) };
        it.with(function, std::ptr::null_mut(), |state| match Runner::new(&shared, state, key) {
            Ok(runner) => RUNNERS.insert(runner),
            Err(error) => {
                it.reporter.report(&format!("{function}: {}", error.chain()));
                std::ptr::null_mut()
            }
        })
    })
}

/// Deletes a runner.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerDelete(runner: *mut RunnerHandle) {
    guard("TfLiteSignatureRunnerDelete", (), || drop(RUNNERS.remove(runner)));
}

/// Returns the number of inputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerGetInputCount(runner: *const RunnerHandle) -> usize {
    with_runner("TfLiteSignatureRunnerGetInputCount", runner, 0, |it| it.inputs.len())
}

/// Returns the name of an input; null if there is no such input.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerGetInputName(
    runner: *const RunnerHandle,
    index: i32,
) -> *const c_char {
    let function = "TfLiteSignatureRunnerGetInputName";
    with_runner(function, runner, std::ptr::null(), |it| name_at(&it.inputs, index))
}

/// Returns the number of outputs.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerGetOutputCount(runner: *const RunnerHandle) -> usize {
    with_runner("TfLiteSignatureRunnerGetOutputCount", runner, 0, |it| it.outputs.len())
}

/// Returns the name of an output; null if there is no such output.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerGetOutputName(
    runner: *const RunnerHandle,
    index: i32,
) -> *const c_char {
    let function = "TfLiteSignatureRunnerGetOutputName";
    with_runner(function, runner, std::ptr::null(), |it| name_at(&it.outputs, index))
}

/// Changes the shape of an input, in the dimensions that the model does not fix.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteSignatureRunnerResizeInputTensor(
    runner: *mut RunnerHandle,
    input: *const c_char,
    dims: *const c_int,
    rank: i32,
) -> Status {
    let function = "TfLiteSignatureRunnerResizeInputTensor";
    with_both(function, runner, ERROR, |runner, it| {
        it.try_with(function, |state| {
            // SAFETY: the interface requires null or a text, and `rank` values at `dims`.
            let (input, dims) = unsafe { (text(input), values(dims, rank)) };
            let tensor = find("input", &runner.inputs, input)?;
            let graph = state.model.subgraph(runner.subgraph);
            let position = graph.and_then(|graph| graph.inputs().iter().position(|id| *id == tensor));
            let missing = || Error::InvalidInput("the signature's input is not one of its subgraph".into());
            state.resize(runner.subgraph, int(position.ok_or_else(missing)?), &shape(dims)?, true)
        })
    })
}

/// Plans memory for the current shapes, and resets variables.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerAllocateTensors(runner: *mut RunnerHandle) -> Status {
    let function = "TfLiteSignatureRunnerAllocateTensors";
    with_both(function, runner, ERROR, |runner, it| {
        it.try_with(function, |state| state.allocate(runner.subgraph))
    })
}

/// Returns an input; null if there is none with this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteSignatureRunnerGetInputTensor(
    runner: *mut RunnerHandle,
    input: *const c_char,
) -> *mut Tensor {
    // SAFETY: the interface requires null or a text.
    unsafe { tensor("TfLiteSignatureRunnerGetInputTensor", "input", runner, |it| &it.inputs, input) }
}

/// Returns an output; null if there is none with this name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteSignatureRunnerGetOutputTensor(
    runner: *const RunnerHandle,
    output: *const c_char,
) -> *const Tensor {
    // SAFETY: the interface requires null or a text.
    unsafe { tensor("TfLiteSignatureRunnerGetOutputTensor", "output", runner, |it| &it.outputs, output) }
}

/// Runs the signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerInvoke(runner: *mut RunnerHandle) -> Status {
    let function = "TfLiteSignatureRunnerInvoke";
    with_both(function, runner, ERROR, |runner, it| {
        it.try_with(function, |state| state.invoke(runner.subgraph))
    })
}

/// Cancels the running call, from any thread. Fails unless the options enable cancellation.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteSignatureRunnerCancel(runner: *mut RunnerHandle) -> Status {
    let function = "TfLiteSignatureRunnerCancel";
    with_both(function, runner, ERROR, |_, it| it.cancel(function))
}

fn name_at(list: &[Named], index: i32) -> *const c_char {
    let named = usize::try_from(index).ok().and_then(|index| list.get(index));
    named.map_or(std::ptr::null(), |named| named.name.as_ptr())
}

/// `what` is `input` or `output`, for the error.
fn find(what: &str, list: &[Named], name: Option<&CStr>) -> Result<TensorId> {
    let named = name.and_then(|name| list.iter().find(|named| *named.name == *name));
    named.map(|named| named.tensor).ok_or_else(|| {
        let asked = name.map_or_else(|| "with a null name".to_owned(), |name| format!("{name:?}"));
        let names: Vec<String> = list.iter().map(|named| format!("{:?}", named.name)).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::InvalidInput(format!("{what} {asked} does not exist; the signature has {has}"))
    })
}

/// # Safety
/// `name` is null or a text.
unsafe fn tensor(
    function: &str,
    what: &str,
    runner: *const RunnerHandle,
    list: impl Fn(&Runner) -> &[Named],
    name: *const c_char,
) -> *mut Tensor {
    with_both(function, runner, std::ptr::null_mut(), |runner, it| {
        // SAFETY: guaranteed by the caller.
        match find(what, list(runner), unsafe { text(name) }) {
            Ok(id) => it.tensor(function, runner.subgraph, int(id.0)),
            Err(error) => {
                it.reporter.report(&format!("{function}: {}", error.chain()));
                std::ptr::null_mut()
            }
        }
    })
}
