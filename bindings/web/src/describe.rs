//! A model's inputs, outputs and signatures as JSON.

use delegraph::core::{Quantization, TensorId, quantization::Affine};
use delegraph::{Interpreter, Model};
use serde::Serialize;

/// The selected signature, or the model's first subgraph.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Description {
    description: String,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    signatures: Vec<Signature>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    shape: Vec<usize>,
    /// As in the file; -1 for dimensions that may be resized.
    shape_signature: Vec<i64>,
    quantization: Option<Scales>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Scales {
    scales: Vec<f32>,
    zero_points: Vec<i64>,
    dimension: usize,
}

#[derive(Serialize)]
struct Signature {
    key: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

/// Describes what `interpreter` runs: the signature `key`, or the first subgraph.
pub(crate) fn describe(interpreter: &Interpreter, key: Option<&str>) -> Description {
    let model = interpreter.model();
    let signature = key.and_then(|key| model.signature(key));
    let subgraph = signature.map_or(0, |signature| signature.subgraph());
    let ids = model.subgraph(subgraph).map(|subgraph| (subgraph.inputs(), subgraph.outputs()));
    let (inputs, outputs) = ids.unwrap_or_default();
    // Without a selected signature, the names of the one that describes the first subgraph are used.
    let named = signature.or_else(|| model.signatures().iter().find(|s| s.subgraph() == subgraph));
    let name = |names: Option<&[(String, TensorId)]>, id: TensorId| {
        let found = names.and_then(|names| names.iter().find(|(_, of)| *of == id));
        found.map_or_else(|| tensor_name(model, subgraph, id), |(name, _)| name.clone())
    };
    let tensor = |names, id: TensorId| {
        let file = model.subgraph(subgraph).map(|subgraph| subgraph.tensor(id));
        let now = interpreter.tensor(id).ok();
        let shape = now.map(|tensor| tensor.shape.dims()).or(file.map(|tensor| tensor.shape().dims()));
        let shape = shape.unwrap_or_default().to_vec();
        let signature = file.and_then(|tensor| tensor.shape_signature());
        Tensor {
            name: name(names, id),
            ty: file.map_or("", |tensor| tensor.ty().name()).to_lowercase(),
            shape_signature: match signature.filter(|dims| !dims.is_empty()) {
                Some(dims) => dims.iter().map(|dim| dim.map_or(-1, number)).collect(),
                None => shape.iter().copied().map(number).collect(),
            },
            shape,
            quantization: file.and_then(|tensor| scales(tensor.quantization()?)),
        }
    };
    Description {
        description: model.description().to_owned(),
        inputs: inputs.iter().map(|id| tensor(named.map(|s| s.inputs()), *id)).collect(),
        outputs: outputs.iter().map(|id| tensor(named.map(|s| s.outputs()), *id)).collect(),
        signatures: model.signatures().iter().map(signature_names).collect(),
    }
}

fn signature_names(signature: &delegraph::core::Signature) -> Signature {
    let names = |tensors: &[(String, TensorId)]| tensors.iter().map(|(name, _)| name.clone()).collect();
    Signature {
        key: signature.key().to_owned(),
        inputs: names(signature.inputs()),
        outputs: names(signature.outputs()),
    }
}

/// Returns a tensor's name, or its number where it has none.
pub(crate) fn tensor_name(model: &Model, subgraph: usize, id: TensorId) -> String {
    let name = model.subgraph(subgraph).map_or("", |subgraph| subgraph.tensor(id).name());
    if name.is_empty() { format!("tensor {}", id.0) } else { name.to_owned() }
}

fn scales(quantization: &Quantization) -> Option<Scales> {
    let Quantization::Affine(Affine { scales, zero_points, dimension }) = quantization else { return None };
    (!scales.is_empty()).then(|| Scales {
        scales: scales.to_vec(),
        zero_points: zero_points.iter().collect(),
        dimension: *dimension,
    })
}

fn number(dim: usize) -> i64 {
    i64::try_from(dim).unwrap_or(i64::MAX)
}
