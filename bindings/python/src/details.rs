//! Tensors and nodes as dictionaries, with LiteRT's keys and types.

use std::ffi::c_int;

use delegraph::core::sparsity::Level;
use delegraph::core::{Quantization, Tensor, quantization::Affine};
use delegraph::{Model, Shape};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::arrays;

/// Returns the details of a tensor: `name`, `index`, `shape`, `shape_signature`, `dtype`, `quantization`,
/// `quantization_parameters`, `sparsity_parameters`. `shape` is the current one.
pub(crate) fn tensor<'py>(
    py: Python<'py>,
    index: usize,
    tensor: &Tensor,
    shape: &Shape,
) -> PyResult<Bound<'py, PyDict>> {
    let signature: Vec<c_int> = match tensor.shape_signature() {
        Some(signature) if !signature.is_empty() => signature.iter().map(|dim| dim.map_or(-1, int)).collect(),
        _ => shape.dims().iter().copied().map(int).collect(),
    };
    let shape: Vec<c_int> = shape.dims().iter().copied().map(int).collect();
    let details = PyDict::new(py);
    details.set_item("name", tensor.name())?;
    details.set_item("index", index)?;
    details.set_item("shape", arrays::of_ints(py, &shape)?)?;
    details.set_item("shape_signature", arrays::of_ints(py, &signature)?)?;
    details.set_item("dtype", arrays::dtype(py, tensor.ty())?)?;
    let single = tensor.quantization().and_then(Quantization::scale_zero_point);
    let (scale, zero_point) = single.unwrap_or_default();
    details.set_item("quantization", (scale, zero_point))?;
    details.set_item("quantization_parameters", quantization(py, tensor.quantization())?)?;
    details.set_item("sparsity_parameters", sparsity(py, tensor)?)?;
    Ok(details)
}

fn quantization<'py>(py: Python<'py>, quantization: Option<&Quantization>) -> PyResult<Bound<'py, PyDict>> {
    let (scales, zero_points, dimension) = match quantization {
        Some(Quantization::Affine(Affine { scales, zero_points, dimension })) => {
            let zero_points = zero_points.iter().map(|zero| c_int::try_from(zero).unwrap_or_default());
            (scales.as_slice(), zero_points.collect(), *dimension)
        }
        _ => (&[][..], Vec::new(), 0),
    };
    let block_size = match quantization {
        Some(Quantization::Blockwise { block_size, .. } | Quantization::MultiAxis { block_size, .. }) => {
            *block_size
        }
        _ => 0,
    };
    let parameters = PyDict::new(py);
    parameters.set_item("scales", arrays::of_floats(py, scales)?)?;
    parameters.set_item("zero_points", arrays::of_ints(py, &zero_points)?)?;
    parameters.set_item("quantized_dimension", dimension)?;
    parameters.set_item("block_size", block_size)?;
    Ok(parameters)
}

fn sparsity<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyDict>> {
    let parameters = PyDict::new(py);
    let Some(sparsity) = tensor.sparsity() else { return Ok(parameters) };
    let ints = |values: &[usize]| -> Vec<c_int> { values.iter().copied().map(int).collect() };
    parameters.set_item("traversal_order", arrays::of_ints(py, &ints(&sparsity.traversal_order))?)?;
    parameters.set_item("block_map", arrays::of_ints(py, &ints(&sparsity.block_map))?)?;
    let levels = PyList::empty(py);
    for level in &sparsity.levels {
        let metadata = PyDict::new(py);
        match level {
            Level::Dense { size } => {
                metadata.set_item("format", 0)?;
                metadata.set_item("dense_size", *size)?;
            }
            Level::Csr { segments, indices } => {
                metadata.set_item("format", 1)?;
                let segments: Vec<usize> = segments.iter().collect();
                let indices: Vec<usize> = indices.iter().collect();
                metadata.set_item("array_segments", arrays::of_ints(py, &ints(&segments))?)?;
                metadata.set_item("array_indices", arrays::of_ints(py, &ints(&indices))?)?;
            }
        }
        levels.append(metadata)?;
    }
    parameters.set_item("dim_metadata", levels)?;
    Ok(parameters)
}

/// Returns the details of a node of the first subgraph: `index`, `op_name`, `inputs`, `outputs`, `operand_types`,
/// `result_types`. An absent input is -1.
pub(crate) fn node<'py>(
    py: Python<'py>,
    model: &Model,
    index: usize,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(subgraph) = model.subgraph(0) else { return Ok(None) };
    let Some(node) = subgraph.nodes().get(index) else { return Ok(None) };
    let name = match node.op() {
        delegraph::core::Op::Builtin(op) => op.variant_name().unwrap_or("UNKNOWN").to_owned(),
        delegraph::core::Op::Custom(name) => name.to_string(),
    };
    let types =
        |ids: &mut dyn Iterator<Item = delegraph::core::TensorId>| -> PyResult<Vec<Bound<'py, PyAny>>> {
            ids.map(|id| arrays::dtype(py, subgraph.tensor(id).ty())).collect()
        };
    let inputs: Vec<c_int> = node.inputs().iter().map(|id| id.map_or(-1, |id| int(id.0))).collect();
    let outputs: Vec<c_int> = node.outputs().iter().map(|id| int(id.0)).collect();
    let details = PyDict::new(py);
    details.set_item("index", index)?;
    details.set_item("op_name", name)?;
    details.set_item("inputs", arrays::of_ints(py, &inputs)?)?;
    details.set_item("outputs", arrays::of_ints(py, &outputs)?)?;
    details.set_item("operand_types", types(&mut node.inputs().iter().flatten().copied())?)?;
    details.set_item("result_types", types(&mut node.outputs().iter().copied())?)?;
    Ok(Some(details))
}

/// Returns a number of the model as an int32, as in LiteRT.
fn int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}
