//! Delegates that Python code names, loads or implements.

#[cfg(unix)]
use std::sync::{Mutex, PoisonError};

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::{self, ParamValue};
use delegraph::core::{Error, NodeId};
use delegraph::delegate_api::plugin::{PluginError, PluginLibrary, PluginOptions};
use delegraph::delegate_api::{
    self, DelegateKernel, DelegateParams, GraphView, NodeView, Rejection, Simple, SimpleDelegate, TensorInfo,
    VersionTable,
};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions, adapters};
#[cfg(unix)]
use delegraph::litert::{ExternalDelegate, ExternalLibrary};
use delegraph::{Result, TensorType};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::arrays;
use crate::error::of_python;
use crate::ops::{as_results, input, options, write_output};
use crate::report::op_name;

/// A delegate for any number of interpreters.
#[pyclass(frozen, module = "delegraph._native")]
pub(crate) struct Delegate {
    source: Source,
}

enum Source {
    Wgpu(Box<WgpuDelegate>),
    Plugin(PluginLibrary, PluginOptions),
    /// With the delegate that was created when the library was loaded, for the first interpreter.
    #[cfg(unix)]
    Litert(ExternalLibrary, PluginOptions, Mutex<Option<ExternalDelegate>>),
    Python {
        object: Py<PyAny>,
        name: String,
        custom_ops: Vec<String>,
    },
}

#[pymethods]
impl Delegate {
    /// The delegate's name in reports.
    #[getter]
    fn name(&self) -> String {
        match &self.source {
            Source::Wgpu(delegate) => delegate_api::Delegate::name(&**delegate).to_owned(),
            Source::Plugin(library, _) => library.path().display().to_string(),
            #[cfg(unix)]
            Source::Litert(library, ..) => library.path().display().to_string(),
            Source::Python { name, .. } => name.clone(),
        }
    }

    fn __repr__(&self) -> String {
        format!("<delegraph delegate {}>", self.name())
    }
}

impl Delegate {
    /// Returns a delegate for one interpreter.
    ///
    /// # Errors
    /// If a library cannot create it.
    pub(crate) fn make(&self) -> Result<Box<dyn delegate_api::Delegate>> {
        Ok(match &self.source {
            Source::Wgpu(delegate) => Box::new((**delegate).clone()),
            Source::Plugin(library, options) => Box::new(library.delegate(options).map_err(Error::external)?),
            #[cfg(unix)]
            Source::Litert(library, options, first) => {
                let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                Box::new(match first {
                    Some(delegate) => delegate,
                    None => library.delegate(options).map_err(Error::external)?,
                })
            }
            Source::Python { object, name, custom_ops } => {
                let builtins = ops::DEFS.iter().map(|def| (def.op, u32::MAX));
                let table: VersionTable = builtins.collect();
                let table = custom_ops.iter().fold(table, |table, name| table.with_custom(name, u32::MAX));
                let object = Python::attach(|py| object.clone_ref(py));
                Box::new(Simple(PythonDelegate { object, name: name.clone(), table }))
            }
        })
    }
}

/// Opens the GPU with the options of `WgpuOptions::NAMED`.
#[pyfunction]
pub(crate) fn wgpu_delegate(py: Python<'_>, options: Vec<(String, String)>) -> PyResult<Delegate> {
    let chosen = WgpuOptions::from_pairs(options).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let delegate = py.detach(|| WgpuDelegate::new(chosen));
    let delegate = delegate.map_err(|e| PyRuntimeError::new_err(format!("delegate wgpu: {e}")))?;
    Ok(Delegate { source: Source::Wgpu(Box::new(delegate)) })
}

/// Loads a Delegraph delegate from a shared library.
#[pyfunction]
pub(crate) fn plugin_delegate(path: &str, options: Vec<(String, String)>) -> PyResult<Delegate> {
    let options = library_options(path, options)?;
    // SAFETY: the program names the library, and so trusts it, as with every extension module that it imports.
    let library = unsafe { PluginLibrary::open(path) }.map_err(library_error)?;
    // Checks the options here rather than in the first interpreter.
    drop(library.delegate(&options).map_err(library_error)?);
    Ok(Delegate { source: Source::Plugin(library, options) })
}

/// Loads a LiteRT delegate from a shared library.
#[pyfunction]
#[cfg(unix)]
pub(crate) fn litert_delegate(path: &str, options: Vec<(String, String)>) -> PyResult<Delegate> {
    let options = library_options(path, options)?;
    // SAFETY: as in `plugin_delegate`.
    let library = unsafe { ExternalLibrary::open(path) }.map_err(library_error)?;
    let first = Mutex::new(Some(library.delegate(&options).map_err(library_error)?));
    Ok(Delegate { source: Source::Litert(library, options, first) })
}

/// Loads a LiteRT delegate from a shared library.
#[pyfunction]
#[cfg(not(unix))]
pub(crate) fn litert_delegate(path: &str, options: Vec<(String, String)>) -> PyResult<Delegate> {
    library_options(path, options)?;
    Err(PyValueError::new_err(format!("{path}: delegates for LiteRT run on Unix only")))
}

fn library_options(path: &str, options: Vec<(String, String)>) -> PyResult<PluginOptions> {
    let options = PluginOptions::new(options).map_err(|e| PyValueError::new_err(e.to_string()))?;
    if !std::path::Path::new(path).exists() {
        return Err(PyOSError::new_err(format!(
            "{path}: cannot open shared object file: No such file or directory"
        )));
    }
    Ok(options)
}

fn library_error(error: PluginError) -> PyErr {
    PyValueError::new_err(Error::external(error).chain())
}

/// Creates a delegate from a Python object with the methods `supports(node)` and `compile(partition)`.
#[pyfunction]
pub(crate) fn python_delegate(object: &Bound<'_, PyAny>) -> PyResult<Delegate> {
    let name = match object.getattr_opt("name")? {
        Some(name) => name.extract()?,
        None => object.get_type().name()?.to_string(),
    };
    let custom_ops = match object.getattr_opt("custom_ops")? {
        Some(names) => names.extract()?,
        None => Vec::new(),
    };
    for method in ["supports", "compile"] {
        if !object.hasattr(method)? {
            return Err(PyValueError::new_err(format!("a delegate needs the method `{method}`")));
        }
    }
    Ok(Delegate { source: Source::Python { object: object.clone().unbind(), name, custom_ops } })
}

/// Returns the GPU adapters: name, backend, type and driver of each.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let found = py.detach(adapters);
    let list = PyList::empty(py);
    for adapter in &found {
        let entry = PyDict::new(py);
        entry.set_item("name", &adapter.info.name)?;
        entry.set_item("backend", adapter.info.backend.to_string())?;
        entry.set_item("type", format!("{:?}", adapter.info.device_type))?;
        entry.set_item("driver", &adapter.info.driver)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// A delegate written in Python.
struct PythonDelegate {
    object: Py<PyAny>,
    name: String,
    table: VersionTable,
}

impl SimpleDelegate for PythonDelegate {
    fn name(&self) -> &str {
        &self.name
    }

    fn max_versions(&self) -> &VersionTable {
        &self.table
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        node.check_static()?;
        let answer = Python::attach(|py| -> PyResult<Result<(), Rejection>> {
            let answer = self.object.bind(py).call_method1("supports", (describe(py, node)?,))?;
            if let Ok(reason) = answer.cast::<PyString>() {
                return Ok(Err(Rejection::Other(reason.to_cow()?.into_owned())));
            }
            let refused = || Rejection::UnsupportedOp { op: node.op().clone() };
            Ok(if answer.is_truthy()? { Ok(()) } else { Err(refused()) })
        });
        answer.unwrap_or_else(|error| Err(Rejection::Other(format!("`supports` raised {error}"))))
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let kernel = Python::attach(|py| -> PyResult<Py<PyAny>> {
            let partition = PyDict::new(py);
            let nodes = params.nodes.iter().map(|&id: &NodeId| describe(py, &graph.node(id)));
            partition.set_item("nodes", nodes.collect::<PyResult<Vec<_>>>()?)?;
            let tensors = |ids: &[delegraph::core::TensorId]| -> PyResult<Vec<Bound<'_, PyDict>>> {
                ids.iter().map(|&id| tensor(py, &graph.tensor(id))).collect()
            };
            partition.set_item("inputs", tensors(&params.inputs)?)?;
            partition.set_item("outputs", tensors(&params.outputs)?)?;
            Ok(self.object.bind(py).call_method1("compile", (partition,))?.unbind())
        });
        let kernel =
            kernel.map_err(|e| Error::delegate_caused_by(&self.name, "`compile` raised an exception", e))?;
        let outputs = params.outputs.iter().map(|&id| graph.tensor(id).ty()).collect();
        Ok(Box::new(PythonPartition { kernel, outputs }))
    }
}

/// A partition that a Python function runs.
struct PythonPartition {
    kernel: Py<PyAny>,
    outputs: Vec<TensorType>,
}

impl Kernel for PythonPartition {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        Python::attach(|py| {
            let inputs = PyList::empty(py);
            for i in 0..cx.input_count() {
                inputs.append(input(py, cx, i)?).map_err(of_python)?;
            }
            let results = self.kernel.bind(py).call1((inputs,)).map_err(of_python)?;
            let results = as_results(&results, self.outputs.len())?;
            for (i, (result, &ty)) in results.iter().zip(&self.outputs).enumerate() {
                write_output(cx, i, ty, false, result)?;
            }
            Ok(())
        })
    }
}

impl DelegateKernel for PythonPartition {}

/// Returns a node as a dictionary: `index`, `op`, `version`, `inputs`, `outputs` (of tensors), `params`, and the
/// `options` of a custom op.
fn describe<'py>(py: Python<'py>, node: &NodeView<'_>) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("index", node.id().0)?;
    result.set_item("op", op_name(node.op()))?;
    result.set_item("version", node.version())?;
    let inputs = (0..node.input_count()).map(|i| node.input(i).map(|info| tensor(py, &info)).transpose());
    result.set_item("inputs", inputs.collect::<PyResult<Vec<_>>>()?)?;
    result
        .set_item("outputs", node.outputs().map(|info| tensor(py, &info)).collect::<PyResult<Vec<_>>>()?)?;
    let params = PyDict::new(py);
    let definition = node.op().builtin().and_then(ops::definition);
    for field in definition.iter().flat_map(|definition| definition.codec.fields) {
        if let Some(value) = node.node().param(field.name) {
            params.set_item(field.name, param(py, &value)?)?;
        }
    }
    result.set_item("params", params)?;
    result.set_item("options", options(py, node.custom_options())?)?;
    Ok(result)
}

fn tensor<'py>(py: Python<'py>, info: &TensorInfo<'_>) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("index", info.id().0)?;
    result.set_item("name", info.name())?;
    result.set_item("dtype", arrays::dtype(py, info.ty())?)?;
    result.set_item("shape", info.shape().map(|shape| shape.to_vec()))?;
    let single = info.quantization().and_then(delegraph::core::Quantization::scale_zero_point);
    result.set_item("quantization", single)?;
    let constant = match (info.constant(), info.shape()) {
        (Some(bytes), Some(shape)) => arrays::copy_of(py, info.ty(), shape.dims(), bytes).ok(),
        _ => None,
    };
    result.set_item("value", constant)?;
    Ok(result)
}

fn param<'py>(py: Python<'py>, value: &ParamValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        ParamValue::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        ParamValue::Int(value) => value.into_pyobject(py)?.into_any(),
        ParamValue::Float(value) => value.into_pyobject(py)?.into_any(),
        ParamValue::Enum(_, name) => PyString::new(py, name).into_any(),
        ParamValue::Text(text) => PyString::new(py, text).into_any(),
        ParamValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        ParamValue::Bools(values) => PyList::new(py, values.iter())?.into_any(),
        ParamValue::Ints32(values) => PyList::new(py, values.iter())?.into_any(),
        ParamValue::Ints(values) => PyList::new(py, values.iter())?.into_any(),
        ParamValue::Floats(values) => PyList::new(py, values.iter())?.into_any(),
        ParamValue::Enums(values) => PyList::new(py, values.iter().map(|(_, name)| name))?.into_any(),
        other => PyString::new(py, &format!("{other:?}")).into_any(),
    })
}
