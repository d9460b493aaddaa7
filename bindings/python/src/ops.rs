//! Kernels written in Python.
//!
//! A class is the kernel of a custom op. An instance is created per node with the node's options; `prepare` returns the
//! shapes of the outputs for those of the inputs, and `invoke` computes arrays from arrays. Arrays are copies of the
//! tensors, so that Python code cannot keep memory of the interpreter.

use delegraph::core::error::counted;
use delegraph::core::flex::{Map, Value};
use delegraph::core::kernel::{InitContext, InvokeContext, Kernel, PrepareContext, RuntimeTensor};
use delegraph::{Error, MutableOpResolver, Registration, Result, TensorType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::arrays::{self, Array};
use crate::error::of_python;

/// Registers the class `kernel` for all versions of the custom op `name`.
pub(crate) fn register(resolver: &mut MutableOpResolver, name: &str, kernel: &Py<PyAny>) {
    let kernel = Python::attach(|py| kernel.clone_ref(py));
    let init = move |cx: &InitContext<'_>| {
        Python::attach(|py| PythonKernel::new(py, kernel.bind(py), cx)).map_err(of_python)
    };
    // The method `invoke` may print, count or change files. Nodes with side effects are not computed while preparing.
    resolver.add_custom(name, Registration::new(init).with_side_effects(), 0..=u32::MAX);
}

/// The kernel of one node.
struct PythonKernel {
    object: Py<PyAny>,
    /// The types of the outputs.
    outputs: Vec<TensorType>,
    /// Whether the shape of each output is known only in `invoke`.
    dynamic: Vec<bool>,
}

impl PythonKernel {
    fn new(py: Python<'_>, kernel: &Bound<'_, PyAny>, cx: &InitContext<'_>) -> PyResult<Self> {
        let options = options(py, cx.custom_options)?;
        let object = kernel.call1((options,))?.unbind();
        Ok(PythonKernel { object, outputs: Vec::new(), dynamic: Vec::new() })
    }
}

/// Returns the options of a custom op: a dictionary, or bytes if they are not a FlexBuffer map.
pub(crate) fn options<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if bytes.is_empty() {
        return Ok(PyDict::new(py).into_any());
    }
    match Map::parse(bytes) {
        Ok(map) => of_map(py, &map, MAX_DEPTH),
        Err(_) => Ok(PyBytes::new(py, bytes).into_any()),
    }
}

/// Limits on the depth of nested maps and lists, and on the values of each: a damaged map may contain itself. Further
/// values are left out.
const MAX_DEPTH: usize = 4;
const MAX_VALUES: usize = 256;

fn of_map<'py>(py: Python<'py>, map: &Map<'_>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    for key in map.keys().take(MAX_VALUES) {
        if let Some(value) = map.value(key).map_err(|e| PyValueError::new_err(e.to_string()))? {
            options.set_item(key, of_value(py, &value, depth)?)?;
        }
    }
    Ok(options.into_any())
}

fn too_deep() -> PyErr {
    PyValueError::new_err(format!(
        "the options of the custom op nest maps or lists more than {MAX_DEPTH} levels deep"
    ))
}

fn of_value<'py>(py: Python<'py>, value: &Value<'_>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint(value) => value.into_pyobject(py)?.into_any(),
        Value::Float(value) => value.into_pyobject(py)?.into_any(),
        Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Value::Text(value) => value.into_pyobject(py)?.into_any(),
        Value::Blob(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::List(values) => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let values = values.iter().take(MAX_VALUES).map(|value| of_value(py, value, depth));
            let values = values.collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, values)?.into_any()
        }
        Value::Map(map) => of_map(py, map, depth)?,
        _ => py.None().into_bound(py),
    })
}

impl Kernel for PythonKernel {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let mut outputs = Vec::new();
        for i in 0..cx.output_count() {
            outputs.push(cx.output(i)?.ty());
        }
        let shapes = Python::attach(|py| self.shapes(py, cx, &outputs)).map_err(of_python)?;
        self.dynamic = shapes.iter().map(Option::is_none).collect();
        for (i, shape) in shapes.iter().enumerate() {
            match shape {
                Some(shape) => cx.set_output_shape(i, shape.as_slice())?,
                None => cx.set_output_data_dependent(i)?,
            }
        }
        self.outputs = outputs;
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        Python::attach(|py| {
            let mut inputs = Vec::new();
            for i in 0..cx.input_count() {
                inputs.push(if cx.has_input(i) { Some(input(py, cx, i)?) } else { None });
            }
            let inputs = PyTuple::new(py, inputs).map_err(of_python)?;
            let results = self.object.bind(py).call_method1("invoke", inputs).map_err(of_python)?;
            let results = as_results(&results, self.outputs.len())?;
            for (i, (result, &ty)) in results.iter().zip(&self.outputs).enumerate() {
                let dynamic = self.dynamic.get(i).copied().unwrap_or_default();
                write_output(cx, i, ty, dynamic, result)?;
            }
            Ok(())
        })
    }
}

impl PythonKernel {
    /// Calls `prepare` with the shapes of the inputs, `None` for an absent one. Returns the shapes of the outputs,
    /// `None` if a shape depends on data.
    fn shapes(
        &self,
        py: Python<'_>,
        cx: &PrepareContext<'_>,
        outputs: &[TensorType],
    ) -> PyResult<Vec<Option<Vec<usize>>>> {
        let shapes = PyList::empty(py);
        for i in 0..cx.input_count() {
            match cx.optional_input(i) {
                Some(input) => shapes.append(PyTuple::new(py, input.shape().dims())?)?,
                None => shapes.append(py.None())?,
            }
        }
        let result = self.object.bind(py).call_method1("prepare", (shapes,))?;
        // For a single output, `prepare` may return the shape without a list.
        if outputs.len() == 1
            && let Ok(shape) = result.extract::<Vec<usize>>()
        {
            return Ok(vec![Some(shape)]);
        }
        if outputs.len() == 1 && result.is_none() {
            return Ok(vec![None]);
        }
        let shapes: Vec<Option<Vec<usize>>> = result.extract()?;
        if shapes.len() != outputs.len() {
            let (has, wanted) = (counted(shapes.len(), "shape"), counted(outputs.len(), "output"));
            return Err(PyValueError::new_err(format!("prepare returned {has} for {wanted}")));
        }
        Ok(shapes)
    }
}

/// Returns a copy of input `i` as an array.
pub(crate) fn input<'py>(py: Python<'py>, cx: &InvokeContext<'_>, i: usize) -> Result<Bound<'py, PyAny>> {
    let tensor: &RuntimeTensor = cx.input_tensor(i)?;
    arrays::copy_of(py, tensor.ty, tensor.shape.dims(), tensor.bytes()).map_err(of_python)
}

/// Returns the arrays that Python code returned for `count` outputs: a list or tuple of them, or the only one.
pub(crate) fn as_results<'py>(results: &Bound<'py, PyAny>, count: usize) -> Result<Vec<Bound<'py, PyAny>>> {
    if results.is_instance_of::<PyTuple>() || results.is_instance_of::<PyList>() {
        let listed: Vec<Bound<'py, PyAny>> = results.extract().map_err(of_python)?;
        if listed.len() == count {
            return Ok(listed);
        }
        let verb = if listed.len() == 1 { "is" } else { "are" };
        let (has, wanted) = (counted(listed.len(), "array"), counted(count, "output"));
        return Err(Error::Kernel(format!("{has} {verb} returned for {wanted}")));
    }
    match count {
        1 => Ok(vec![results.clone()]),
        _ => Err(Error::Kernel(format!("one array is returned for {count} outputs"))),
    }
}

/// Writes an array to output `i` of type `ty`. `dynamic`: the array determines its shape.
pub(crate) fn write_output(
    cx: &mut InvokeContext<'_>,
    i: usize,
    ty: TensorType,
    dynamic: bool,
    value: &Bound<'_, PyAny>,
) -> Result<()> {
    let array = Array::of(value).and_then(|array| array.cast(ty)).map_err(of_python)?;
    if !array.fits(ty) {
        let text = format!("output {i} is {ty}; elements of type {} are returned", array.type_name());
        return Err(Error::Kernel(text));
    }
    let dims = array.dims();
    if !dynamic && !array.has_dims(cx.output_shape(i)?.dims()) {
        let shape = cx.output_shape(i)?;
        let text = format!("output {i} has shape {shape}; an array of shape {dims:?} is returned");
        return Err(Error::Kernel(text));
    }
    let mut write = |bytes: &[u8]| -> Result<()> {
        if ty == TensorType::String {
            cx.resize_output_bytes(i, dims.as_slice(), bytes.len())?;
        } else if dynamic {
            cx.resize_output(i, dims.as_slice())?;
        }
        let target = cx.output_bytes(i)?;
        if target.len() != bytes.len() {
            return Err(Error::Kernel(format!(
                "output {i} takes {}, not {}",
                counted(target.len(), "byte"),
                bytes.len()
            )));
        }
        target.copy_from_slice(bytes);
        Ok(())
    };
    array.with_bytes(ty, &mut write).map_err(of_python)?
}
