//! The interpreter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use delegraph::core::{ModelBytes, Tensor, TensorId};
use delegraph::delegate_api::plugin::KernelLibrary;
use delegraph::interpreter::ResourceLimits;
use delegraph::{Error, Model, Policy, Shape, TensorType};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::arrays::{self, Array, no_data};
use crate::delegates::Delegate;
use crate::error::{exception, text};
use crate::state::{Options, State, Value};
use crate::{details, fork, report};

/// The base of `delegraph.Interpreter`.
///
/// Every call locks the state without waiting: a call during a call of another thread raises an exception. Long calls
/// release the GIL.
#[pyclass(frozen, subclass, weakref, dict, module = "delegraph._native")]
pub(crate) struct Interpreter {
    state: Mutex<Option<State>>,
    views: Arc<AtomicUsize>,
    /// The process that created it, identified by the number of forks before.
    generation: u32,
}

/// The owner of arrays on an interpreter's memory. NumPy holds it as their base.
#[pyclass(frozen, module = "delegraph._native")]
struct View {
    _interpreter: Py<Interpreter>,
    views: Arc<AtomicUsize>,
}

impl Drop for View {
    fn drop(&mut self) {
        self.views.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        if self.is_foreign()
            && let Ok(state) = self.state.get_mut()
        {
            // Its threads exist in the parent process only: joining them would never end.
            std::mem::forget(state.take());
        }
    }
}

#[pymethods]
impl Interpreter {
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn new(_arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>) -> Self {
        Interpreter { state: Mutex::new(None), views: Arc::default(), generation: fork::generation() }
    }

    /// Loads a model: from the file `path`, or from the bytes `content`.
    #[allow(clippy::too_many_arguments)] // The keyword arguments of a private function.
    #[pyo3(signature = (path, content, *, threads, reference, preserve_all, delegates, policy, ops, libraries,
        max_memory = None, timeout = None))]
    fn _open(
        &self,
        py: Python<'_>,
        path: Option<std::path::PathBuf>,
        content: Option<Bound<'_, PyBytes>>,
        threads: usize,
        reference: bool,
        preserve_all: bool,
        delegates: Vec<Py<Delegate>>,
        policy: &str,
        ops: Vec<(String, Py<PyAny>)>,
        libraries: Vec<String>,
        max_memory: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limits = limits(max_memory, timeout)?;
        let policy = match policy {
            "prefer" => Policy::Prefer,
            "require" => Policy::Require,
            "report" => Policy::Report,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "policy is prefer, require or report, not {policy}"
                )));
            }
        };
        let mut opened = Vec::new();
        for path in libraries {
            // SAFETY: the program names the library, and so trusts it, as with every extension module it imports.
            let library = unsafe { KernelLibrary::open(&path) };
            opened.push(library.map_err(|e| PyValueError::new_err(Error::external(e).chain()))?);
        }
        let libraries = opened;
        let options = Options { threads, reference, preserve_all, delegates, policy, ops, libraries, limits };
        let content = content.map(PythonBytes::new);
        let state = py.detach(move || {
            let model = match (path, content) {
                (Some(path), _) => delegraph::load(&path).map_err(|e| unreadable(&path, &e))?,
                (None, Some(bytes)) => Model::from_bytes(ModelBytes::new(bytes)).map_err(|e| {
                    PyValueError::new_err(format!("The model is not a valid Flatbuffer buffer: {}", text(&e)))
                })?,
                (None, None) => {
                    return Err(PyValueError::new_err("`model_path` or `model_content` must be specified."));
                }
            };
            State::new(Arc::new(model), options).map_err(|e| {
                Python::attach(|py| {
                    let exception = exception(py, &e);
                    match e.kind() {
                        delegraph::core::error::ErrorKind::Failed => exception,
                        _ => PyValueError::new_err(text(&e)),
                    }
                })
            })
        })?;
        *self.lock_any()? = Some(state);
        Ok(())
    }

    /// Returns a copy of the model's bytes.
    fn _model_content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.lock()?;
        Ok(PyBytes::new(py, state.get()?.model.bytes()))
    }

    /// Plans memory for the current shapes of the inputs, and sets variables to their initial values.
    ///
    /// Raises:
    ///   RuntimeError: if the model cannot run with these shapes, or arrays of `tensor(i)()` are alive.
    fn allocate_tensors(&self, py: Python<'_>) -> PyResult<()> {
        self._ensure_safe()?;
        let result = py.detach(|| Ok::<_, PyErr>(self.lock()?.get_mut()?.allocate()))?;
        result.map_err(|e| prepare_exception(py, &e))
    }

    /// Runs the model. Releases the GIL.
    ///
    /// Raises:
    ///   RuntimeError: before `allocate_tensors`; if a kernel or delegate fails; if arrays of `tensor(i)()` are alive;
    ///     if another thread is in a call of this interpreter.
    fn invoke(&self, py: Python<'_>) -> PyResult<()> {
        self._ensure_safe()?;
        let result = py.detach(|| {
            let mut state = self.lock()?;
            let state = state.get_mut()?;
            if !state.allocated {
                return Err(PyRuntimeError::new_err("Invoke called on model that is not ready."));
            }
            Ok(state.invoke())
        })?;
        result.map_err(|e| exception(py, &e))
    }

    /// Copies `value` to the input with this tensor index.
    ///
    /// Args:
    ///   tensor_index: `index` of `get_input_details()`.
    ///   value: an array, or a value that NumPy converts to one, of the tensor's dtype and shape.
    ///
    /// Raises:
    ///   ValueError: if there is no such tensor, it takes no values, or dtype or shape differ.
    fn set_tensor(&self, py: Python<'_>, tensor_index: isize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut state = self.lock()?;
        let state = state.get_mut()?;
        let id = tensor_id(&state.model, 0, tensor_index)?;
        let result = write(state, 0, id, &Array::of(value)?)?;
        state.inputs_changed = true;
        result.map_err(|e| exception(py, &e))
    }

    /// Returns a copy of a tensor as an array.
    ///
    /// Outputs, inputs, constants and variables have values. An intermediate tensor is computed: the model runs again
    /// with the tensor among its outputs, where it stays. If that would return other values, an exception states what
    /// to pass to the constructor.
    ///
    /// Args:
    ///   tensor_index: `index` of a tensor's details.
    ///   subgraph_index: the subgraph of the tensor.
    ///
    /// Raises:
    ///   ValueError: if there is no such tensor, or it has no value yet.
    #[pyo3(signature = (tensor_index, subgraph_index = 0))]
    fn get_tensor<'py>(
        &self,
        py: Python<'py>,
        tensor_index: isize,
        subgraph_index: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut guard = self.lock()?;
        let state = guard.get_mut()?;
        let subgraph = subgraph_number(&state.model, subgraph_index)?;
        let id = tensor_id(&state.model, subgraph, tensor_index)?;
        match state.value(subgraph, id) {
            Value::Known(tensor, bytes) => {
                return arrays::copy_of(py, tensor.ty, tensor.shape.dims(), bytes);
            }
            Value::Sparse(bytes) => return sparse_values(py, &state.model, subgraph, id, bytes),
            Value::Unallocated => return Err(no_data()),
            Value::Overwritten if subgraph != 0 => return Err(no_data()),
            Value::Overwritten => {}
        }
        drop(guard);
        self._ensure_safe()?;
        let result = py.detach(|| Ok::<_, PyErr>(self.lock()?.get_mut()?.keep(id)))?;
        result.map_err(|e| PyValueError::new_err(text(&e)))?;
        let guard = self.lock()?;
        match guard.get()?.value(0, id) {
            Value::Known(tensor, bytes) => arrays::copy_of(py, tensor.ty, tensor.shape.dims(), bytes),
            _ => Err(no_data()),
        }
    }

    /// Returns an array on the memory of a tensor: writing to it sets an input. Constants are read-only.
    fn _view<'py>(slf: &Bound<'py, Self>, tensor_index: isize) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let mut guard = this.lock()?;
        let state = guard.get_mut()?;
        let id = tensor_id(&state.model, 0, tensor_index)?;
        let (ty, shape, constant) = match state.value(0, id) {
            Value::Known(tensor, bytes) if tensor.ty == TensorType::String => {
                return arrays::copy_of(py, tensor.ty, tensor.shape.dims(), bytes);
            }
            Value::Known(tensor, bytes) => {
                let constant = tensor.is_constant().then_some((bytes.as_ptr(), bytes.len()));
                (tensor.ty, tensor.shape.clone(), constant)
            }
            Value::Overwritten => {
                let text = format!(
                    "tensor {tensor_index} is intermediate and its memory is shared; get_tensor returns its value"
                );
                return Err(PyValueError::new_err(text));
            }
            _ => return Err(no_data()),
        };
        let writable = constant.is_none();
        let data = match constant {
            Some((data, len)) => (data.cast_mut(), len),
            None => {
                state.inputs_changed |= state.input_number(id).is_some();
                let interpreter = state.interpreter().map_err(|e| exception(py, &e))?;
                let bytes = interpreter.tensor_bytes_mut(id).map_err(|e| exception(py, &e))?;
                (bytes.as_mut_ptr(), bytes.len())
            }
        };
        this.views.fetch_add(1, Ordering::Relaxed);
        let view = View { _interpreter: slf.clone().unbind(), views: this.views.clone() };
        let base = Bound::new(py, view)?.into_any();
        // SAFETY: the base holds the interpreter. While it is alive, `_ensure_safe` refuses every call that plans
        // memory again, replaces the interpreter or runs it, so that the memory stays where it is and only calls that
        // hold the GIL write to it. Constants are not writable.
        unsafe { arrays::view(py, ty, shape.dims(), data, writable, base) }
    }

    /// Changes the shape of an input. `allocate_tensors` is required afterwards.
    ///
    /// Args:
    ///   input_index: `index` of `get_input_details()`.
    ///   tensor_size: the shape.
    ///   strict: reject shapes that differ from `shape_signature` in a dimension other than -1.
    ///
    /// Raises:
    ///   ValueError, RuntimeError: if the model does not support the shape.
    #[pyo3(signature = (input_index, tensor_size, strict = false))]
    fn resize_tensor_input(
        &self,
        py: Python<'_>,
        input_index: isize,
        tensor_size: &Bound<'_, PyAny>,
        strict: bool,
    ) -> PyResult<()> {
        self._ensure_safe()?;
        let shape = shape_of(tensor_size)?;
        let mut state = self.lock()?;
        let state = state.get_mut()?;
        let id = usize::try_from(input_index).ok().map(TensorId);
        let input = id.and_then(|id| Some((id, state.input_number(id)?)));
        let (id, input) = input.ok_or_else(|| {
            PyRuntimeError::new_err(format!("tensor {input_index} is not an input and cannot be resized"))
        })?;
        if strict {
            check_strict(&state.model, id, &shape)?;
        }
        if state.resize(input, &shape).map_err(|e| exception(py, &e))? {
            (state.allocated, state.invoked, state.inputs_changed) = (false, false, true);
        }
        Ok(())
    }

    /// Sets variable tensors to their initial values.
    fn reset_all_variables(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.lock()?;
        let state = state.get_mut()?;
        let subgraphs = state.model.subgraphs().len();
        let interpreter = state.interpreter().map_err(|e| exception(py, &e))?;
        (0..subgraphs).try_for_each(|i| interpreter.reset_variable_tensors(i)).map_err(|e| exception(py, &e))
    }

    /// The number of subgraphs of the model.
    fn num_subgraphs(&self) -> PyResult<usize> {
        Ok(self.lock()?.get()?.model.subgraphs().len())
    }

    /// Returns whether no arrays on the interpreter's memory are alive.
    fn _safe_to_run(&self) -> bool {
        self.views.load(Ordering::Relaxed) == 0
    }

    /// Raises RuntimeError while arrays on the interpreter's memory are alive.
    fn _ensure_safe(&self) -> PyResult<()> {
        if self._safe_to_run() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or slice. \
             Be sure to only hold the function returned from tensor() if you are using raw data access.",
        ))
    }

    fn _tensor_count(&self, subgraph_index: isize) -> PyResult<usize> {
        let state = self.lock()?;
        let model = &state.get()?.model;
        let subgraph = subgraph_number(model, subgraph_index)?;
        Ok(model.subgraph(subgraph).map_or(0, |graph| graph.tensors().len()))
    }

    #[pyo3(signature = (tensor_index, subgraph_index = 0))]
    fn _get_tensor_details<'py>(
        &self,
        py: Python<'py>,
        tensor_index: isize,
        subgraph_index: isize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock()?;
        let state = state.get()?;
        let subgraph = subgraph_number(&state.model, subgraph_index)?;
        let id = tensor_id(&state.model, subgraph, tensor_index)?;
        tensor_details(py, state, subgraph, id)
    }

    /// Returns the details of every input, in the model's order.
    fn get_input_details<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let state = self.lock()?;
        let state = state.get()?;
        let ids = state.model.subgraph(0).map_or(&[][..], |graph| graph.inputs());
        ids.iter().map(|&id| tensor_details(py, state, 0, id)).collect()
    }

    /// Returns the details of every output, in the model's order.
    fn get_output_details<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let state = self.lock()?;
        let state = state.get()?;
        let ids = state.model.subgraph(0).map_or(&[][..], |graph| graph.outputs());
        ids.iter().map(|&id| tensor_details(py, state, 0, id)).collect()
    }

    fn _op_count(&self) -> PyResult<usize> {
        Ok(self.lock()?.get()?.model.subgraph(0).map_or(0, |graph| graph.nodes().len()))
    }

    fn _get_op_details<'py>(&self, py: Python<'py>, op_index: usize) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock()?;
        let details = details::node(py, &state.get()?.model, op_index)?;
        details.ok_or_else(|| PyValueError::new_err("Invalid node index"))
    }

    /// Returns the signatures with the tensor indices of inputs and outputs.
    fn _get_full_signature_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock()?;
        let signatures = PyDict::new(py);
        for signature in state.get()?.model.signatures() {
            let ports = |list: &[(String, TensorId)]| -> PyResult<Bound<'py, PyDict>> {
                let ports = PyDict::new(py);
                list.iter().try_for_each(|(name, id)| ports.set_item(name, id.0))?;
                Ok(ports)
            };
            let entry = PyDict::new(py);
            entry.set_item("inputs", ports(signature.inputs())?)?;
            entry.set_item("outputs", ports(signature.outputs())?)?;
            signatures.set_item(signature.key(), entry)?;
        }
        Ok(signatures)
    }

    fn _signature_subgraph(&self, key: &str) -> PyResult<usize> {
        let state = self.lock()?;
        let signature = state.get()?.model.signature(key).map(|signature| signature.subgraph());
        signature.ok_or_else(|| PyValueError::new_err(format!("Invalid signature_key provided: \"{key}\".")))
    }

    /// Runs a subgraph: resizes its inputs to the arrays, prepares, runs, and returns the tensors `outputs`.
    fn _run_subgraph<'py>(
        &self,
        py: Python<'py>,
        subgraph: usize,
        inputs: Vec<(usize, Bound<'py, PyAny>)>,
        outputs: Vec<usize>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self._ensure_safe()?;
        let arrays = inputs.iter().map(|(id, value)| Ok((TensorId(*id), Array::of(value)?)));
        let arrays: Vec<(TensorId, Array<'_>)> = arrays.collect::<PyResult<_>>()?;
        self.select(py, subgraph)?;
        let result = self.run_selected(py, subgraph, &arrays, &outputs);
        self.select(py, 0)?;
        result
    }

    /// Prepares the model if necessary, and returns the report: `delegates`, `nodes` with runners and rejections,
    /// `partitions`, `composites`, `failures`; and the memory in bytes: `arena_bytes`, `weights_bytes`, `device_bytes`.
    ///
    /// Raises:
    ///   RuntimeError, MemoryError: if the model cannot be prepared.
    fn _report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let result = py.detach(|| {
            let mut state = self.lock()?;
            let state = state.get_mut()?;
            Ok::<_, PyErr>(state.interpreter().and_then(|i| i.prepare()))
        })?;
        result.map_err(|e| prepare_exception(py, &e))?;
        let state = self.lock()?;
        let interpreter = state.get()?.running().ok_or_else(no_data)?;
        let result = report::to_python(py, interpreter.report())?;
        let memory = interpreter.memory();
        result.set_item("arena_bytes", memory.arena_bytes)?;
        result.set_item("weights_bytes", memory.weights_bytes)?;
        let device: u64 = interpreter.delegate_stats().iter().map(|stats| stats.device_bytes).sum();
        result.set_item("device_bytes", device)?;
        Ok(result)
    }
}

impl Interpreter {
    /// Returns whether threads of the interpreter exist only in the parent process of a fork.
    fn is_foreign(&self) -> bool {
        let threads = |state: &Option<State>| state.as_ref().is_some_and(|state| state.options.has_threads());
        self.generation != fork::generation() && self.state.try_lock().is_ok_and(|state| threads(&state))
    }

    fn lock_any(&self) -> PyResult<MutexGuard<'_, Option<State>>> {
        self.state.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => PyRuntimeError::new_err(
                "the interpreter is in use by another thread; one call at a time is possible, or an interpreter per thread",
            ),
            TryLockError::Poisoned(_) => PyRuntimeError::new_err("an earlier call of the interpreter panicked"),
        })
    }

    /// Locks the state. Does not wait.
    fn lock(&self) -> PyResult<Locked<'_>> {
        let state = Locked(self.lock_any()?);
        if self.generation != fork::generation() && state.get()?.options.has_threads() {
            return Err(PyRuntimeError::new_err(
                "the interpreter belongs to the process that this one was forked from, with its threads and devices; \
                 create it in this process, or pass it through pickle",
            ));
        }
        Ok(state)
    }

    fn select(&self, py: Python<'_>, subgraph: usize) -> PyResult<()> {
        let mut state = self.lock()?;
        let result = state.get_mut()?.interpreter().and_then(|i| i.select_subgraph(subgraph));
        result.map_err(|e| exception(py, &e))
    }

    fn run_selected<'py>(
        &self,
        py: Python<'py>,
        subgraph: usize,
        inputs: &[(TensorId, Array<'py>)],
        outputs: &[usize],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut guard = self.lock()?;
        let state = guard.get_mut()?;
        for (id, array) in inputs {
            let graph = state.model.subgraph(subgraph);
            let number = graph.and_then(|graph| graph.inputs().iter().position(|input| input == id));
            let number =
                number.ok_or_else(|| PyValueError::new_err(format!("tensor {} is not an input", id.0)))?;
            if state.resize(number, &array.dims()).map_err(|e| exception(py, &e))? && subgraph == 0 {
                (state.allocated, state.invoked) = (false, false);
            }
        }
        drop(guard);
        let prepared = py.detach(|| {
            let mut state = self.lock()?;
            let state = state.get_mut()?;
            if subgraph == 0 {
                return Ok::<_, PyErr>(state.allocate());
            }
            let prepare = |interpreter: &mut delegraph::Interpreter| {
                interpreter.prepare()?;
                interpreter.reset_variable_tensors(subgraph)
            };
            Ok(state.interpreter().and_then(prepare))
        })?;
        prepared.map_err(|e| prepare_exception(py, &e))?;
        let mut guard = self.lock()?;
        for (id, array) in inputs {
            write(guard.get_mut()?, subgraph, *id, array)?.map_err(|e| exception(py, &e))?;
        }
        drop(guard);
        let invoked = py.detach(|| {
            let mut state = self.lock()?;
            let state = state.get_mut()?;
            Ok::<_, PyErr>(if subgraph == 0 {
                state.invoke()
            } else {
                state.interpreter().and_then(|i| i.invoke())
            })
        })?;
        invoked.map_err(|e| exception(py, &e))?;
        let guard = self.lock()?;
        let results = outputs.iter().map(|&id| match guard.get()?.value(subgraph, TensorId(id)) {
            Value::Known(tensor, bytes) => arrays::copy_of(py, tensor.ty, tensor.shape.dims(), bytes),
            _ => Err(no_data()),
        });
        results.collect()
    }
}

/// The state of an interpreter during one call.
struct Locked<'a>(MutexGuard<'a, Option<State>>);

impl Locked<'_> {
    fn get(&self) -> PyResult<&State> {
        self.0.as_ref().ok_or_else(uninitialized)
    }

    fn get_mut(&mut self) -> PyResult<&mut State> {
        self.0.as_mut().ok_or_else(uninitialized)
    }
}

/// The bytes of a Python `bytes` object, which are immutable.
struct PythonBytes {
    _owner: Py<PyBytes>,
    data: *const u8,
    len: usize,
}

// SAFETY: the bytes of a `bytes` object never change, so that any thread may read them; the reference to the object may
// be dropped on any thread.
unsafe impl Send for PythonBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for PythonBytes {}

impl PythonBytes {
    fn new(bytes: Bound<'_, PyBytes>) -> Self {
        let (data, len) = (bytes.as_bytes().as_ptr(), bytes.as_bytes().len());
        PythonBytes { _owner: bytes.unbind(), data, len }
    }
}

impl AsRef<[u8]> for PythonBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `new` took pointer and length from the object, which `_owner` keeps alive, and whose bytes never
        // move.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// Returns the limits of a model: bytes, and seconds of each call.
fn limits(memory: Option<usize>, timeout: Option<f64>) -> PyResult<ResourceLimits> {
    let mut limits = ResourceLimits::default();
    if let Some(bytes) = memory {
        limits = limits.with_memory(bytes);
    }
    if let Some(seconds) = timeout {
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|e| PyValueError::new_err(format!("timeout {seconds}: {e}")))?;
        limits = limits.with_time(time);
    }
    Ok(limits)
}

fn uninitialized() -> PyErr {
    PyRuntimeError::new_err("the interpreter is not initialized: a subclass must call `super().__init__`")
}

fn unreadable(path: &std::path::Path, error: &Error) -> PyErr {
    match error {
        Error::Io { source, .. } => PyValueError::new_err(format!(
            "Could not open '{}'.The model allocation is null/empty: {source}",
            path.display()
        )),
        error => PyValueError::new_err(text(error)),
    }
}

/// Returns the exception of preparing. LiteRT raises `RuntimeError` for all failures except of memory.
fn prepare_exception(py: Python<'_>, error: &Error) -> PyErr {
    let exception = exception(py, error);
    if !exception.is_instance_of::<PyValueError>(py) {
        return exception;
    }
    PyRuntimeError::new_err(text(error))
}

fn tensor_id(model: &Model, subgraph: usize, index: isize) -> PyResult<TensorId> {
    let count = model.subgraph(subgraph).map_or(0, |graph| graph.tensors().len());
    match usize::try_from(index) {
        Ok(index) if index < count => Ok(TensorId(index)),
        _ => Err(PyValueError::new_err(format!(
            "Invalid tensor index {index} exceeds max tensor index {count}"
        ))),
    }
}

fn subgraph_number(model: &Model, index: isize) -> PyResult<usize> {
    let count = model.subgraphs().len();
    match usize::try_from(index) {
        Ok(index) if index < count => Ok(index),
        _ => Err(PyValueError::new_err(format!(
            "Invalid subgraph index {index} exceeds max subgraph index {count}"
        ))),
    }
}

fn tensor_details<'py>(
    py: Python<'py>,
    state: &State,
    subgraph: usize,
    id: TensorId,
) -> PyResult<Bound<'py, PyDict>> {
    let tensors = state.model.subgraph(subgraph).map_or(&[][..], |graph| graph.tensors());
    let file: &Tensor = tensors.get(id.0).ok_or_else(no_data)?;
    let current = state.running().and_then(|i| i.subgraph_tensor(subgraph, id));
    details::tensor(py, id.0, file, current.map_or(file.shape(), |tensor| &tensor.shape))
}

/// Writes an array to an input or a variable. The selected subgraph is `subgraph`.
fn write(state: &mut State, subgraph: usize, id: TensorId, array: &Array<'_>) -> PyResult<Result<(), Error>> {
    let input = state.model.subgraph(subgraph).and_then(|graph| graph.inputs().iter().position(|i| *i == id));
    let allocated = subgraph != 0 || state.allocated;
    let interpreter = match state.interpreter() {
        Ok(interpreter) => interpreter,
        Err(error) => return Ok(Err(error)),
    };
    let tensor = match interpreter.tensor(id) {
        Ok(tensor) => tensor,
        Err(error) => return Ok(Err(error)),
    };
    let ty = tensor.ty;
    if !array.fits(ty) {
        return Err(PyValueError::new_err(format!(
            "Cannot set tensor: Got value of type {} but expected type {ty} for input {}, name: {} ",
            array.type_name(),
            id.0,
            tensor.name
        )));
    }
    if ty == TensorType::String {
        let Some(input) = input.filter(|_| allocated) else { return Err(no_data()) };
        // The array must have the shape of the tensor. LiteRT accepts other shapes, and leaves the tensor with a wrong
        // number of strings.
        check_dims(array, &tensor.shape, id)?;
        return array.with_bytes(ty, |bytes| interpreter.set_input_bytes(input, bytes));
    }
    check_dims(array, &tensor.shape, id)?;
    if !allocated {
        return Err(no_data());
    }
    if tensor.is_constant() {
        return Err(PyValueError::new_err(format!("Cannot set tensor: tensor {} is constant.", id.0)));
    }
    array.with_bytes(ty, |bytes| match interpreter.tensor_bytes_mut(id) {
        Ok(target) if target.len() == bytes.len() => {
            target.copy_from_slice(bytes);
            Ok(())
        }
        Ok(_) => Err(Error::InvalidInput("Tensor data is null. Run allocate_tensors() first".into())),
        Err(error) => Err(error),
    })
}

fn check_dims(array: &Array<'_>, shape: &Shape, id: TensorId) -> PyResult<()> {
    if array.has_dims(shape.dims()) {
        return Ok(());
    }
    let dims = array.dims();
    let (got, expected, at) = match dims.iter().zip(shape.dims()).position(|(a, b)| a != b) {
        Some(i) if dims.len() == shape.rank() => {
            (dims[i], shape.dims()[i], format!("dimension {i} of input {}", id.0))
        }
        _ => (dims.len(), shape.rank(), format!("input {}", id.0)),
    };
    Err(PyValueError::new_err(format!(
        "Cannot set tensor: Dimension mismatch. Got {got} but expected {expected} for {at}."
    )))
}

/// Reads a shape: whole numbers from 0 to the largest int32, of any type of number.
fn shape_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let mut shape = Vec::new();
    let dims = value.try_iter().map_err(|_| PyValueError::new_err("a shape is a list of integers"))?;
    for dim in dims {
        let dim = dim?;
        let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64);
        let number = dim.extract::<i64>().ok().or_else(|| whole(dim.extract::<f64>().ok()?));
        let number = number.ok_or_else(|| {
            let name = dim.get_type().to_string();
            let text = format!("a dimension is an integer, not {dim} of {name}");
            if dim.is_instance_of::<PyString>() {
                PyValueError::new_err(text)
            } else {
                PyTypeError::new_err(text)
            }
        })?;
        let valid = usize::try_from(number).ok().filter(|_| number <= i64::from(i32::MAX));
        let range =
            || PyValueError::new_err(format!("a dimension must be between 0 and {}, is {number}", i32::MAX));
        shape.push(valid.ok_or_else(range)?);
    }
    Ok(shape)
}

/// Compares a shape with the signature of an input, like LiteRT in strict mode.
fn check_strict(model: &Model, id: TensorId, shape: &[usize]) -> PyResult<()> {
    let Some(file) = model.subgraph(0).and_then(|graph| graph.tensors().get(id.0)) else { return Ok(()) };
    let fixed = match file.shape_signature() {
        Some(signature) if !signature.is_empty() => signature.to_vec(),
        _ => file.shape().dims().iter().copied().map(Some).collect(),
    };
    let fits = fixed.len() == shape.len() && fixed.iter().zip(shape).all(|(s, d)| s.is_none_or(|s| s == *d));
    if fits {
        return Ok(());
    }
    let dims: Vec<String> = fixed.iter().map(|dim| dim.map_or("-1".into(), |d| d.to_string())).collect();
    Err(PyRuntimeError::new_err(format!(
        "Attempting to resize dimensions of tensor {} that are not mutable (-1 in shape_signature): it takes [{}], not {shape:?}.",
        id.0,
        dims.join(", ")
    )))
}

/// Returns the stored elements of a sparse constant as a list, as LiteRT does.
fn sparse_values<'py>(
    py: Python<'py>,
    model: &Model,
    subgraph: usize,
    id: TensorId,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let file = model.subgraph(subgraph).and_then(|graph| graph.tensors().get(id.0)).ok_or_else(no_data)?;
    let bits = file.ty().bits().ok_or_else(no_data)?;
    let count = bytes.len().saturating_mul(8) / bits.max(1);
    arrays::copy_of(py, file.ty(), &[count], bytes)
}
