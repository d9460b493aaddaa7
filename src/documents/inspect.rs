//! The contents of a model file, and its requirements.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use super::options::{self, CustomOptions};
use super::text::{bounds, raw_name};
use super::unresolved::unresolved_op;
use super::versions::{UnderstatedLine, understated};
use crate::Model;
use crate::core::error::{UnresolvedOp, UnresolvedOps};
use crate::core::ops::definition;
use crate::core::resolver::{merged_versions, newer_runtime, newest_runtime, required_runtime};
use crate::core::{Op, OpResolver, Quantization, Tensor, TensorId};

/// The contents of a model, and its requirements.
#[derive(Debug, Serialize)]
pub struct Inspection {
    pub(crate) model: String,
    pub(crate) description: String,
    pub(crate) sizes: Sizes,
    pub(crate) runtime: Runtime,
    pub(crate) signatures: Vec<SignatureLine>,
    pub(crate) inputs: Vec<TensorLine>,
    pub(crate) outputs: Vec<TensorLine>,
    pub(crate) subgraphs: Vec<SubgraphLine>,
    pub(crate) ops: Vec<OpLine>,
    pub(crate) custom_ops: Vec<String>,
    pub(crate) quantization: QuantizationCounts,
    /// The options of every node of a custom op.
    pub(crate) custom_options: Vec<CustomOptions>,
    pub(crate) unresolved: Vec<Value>,
    #[serde(skip)]
    #[cfg_attr(not(feature = "cli"), allow(dead_code))]
    pub(crate) unresolved_text: Vec<String>,
    /// Ops whose version is lower than that of the features that their nodes use.
    pub(crate) understated_versions: Vec<UnderstatedLine>,
    pub(crate) metadata: Vec<MetadataLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Sizes {
    pub(crate) file_bytes: usize,
    pub(crate) constant_bytes: usize,
    /// Constant bytes per element type.
    pub(crate) constants: BTreeMap<&'static str, usize>,
}

/// The oldest TFLite release that runs the model.
#[derive(Debug, Serialize)]
pub(crate) struct Runtime {
    /// Derived from the ops and versions.
    pub(crate) required: Option<&'static str>,
    /// Whether the op table contains all of them; otherwise the release is a lower bound.
    pub(crate) complete: bool,
    /// The entry `min_runtime_version` of the model's metadata.
    pub(crate) metadata: Option<String>,
    /// The newest release that the op table knows.
    pub(crate) newest_known: &'static str,
    /// Whether the metadata requires a newer release.
    pub(crate) newer_than_known: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct SignatureLine {
    pub(crate) key: String,
    pub(crate) subgraph: usize,
    pub(crate) inputs: Vec<TensorLine>,
    pub(crate) outputs: Vec<TensorLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TensorLine {
    pub(crate) name: String,
    pub(crate) tensor: usize,
    pub(crate) r#type: &'static str,
    pub(crate) shape: Vec<usize>,
    /// The shape with `null` for dimensions that can be resized, if the file has a shape signature.
    pub(crate) shape_signature: Option<Vec<Option<usize>>>,
    pub(crate) scale: Option<f32>,
    pub(crate) zero_point: Option<i32>,
    /// The kind of quantization, unless it is one pair of scale and zero point.
    pub(crate) quantization: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SubgraphLine {
    pub(crate) name: String,
    pub(crate) nodes: usize,
    pub(crate) tensors: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct OpLine {
    pub(crate) op: String,
    pub(crate) version: u32,
    pub(crate) count: usize,
    /// The ranges of versions with a registered kernel.
    pub(crate) registered: Vec<(u32, u32)>,
    pub(crate) min_runtime: Option<&'static str>,
    pub(crate) resolved: bool,
    /// The reason why it is not resolved.
    pub(crate) why: Option<String>,
    /// The bytes of options of a custom op's nodes.
    pub(crate) custom_option_bytes: Option<usize>,
}

/// The number of tensors per kind of quantization.
#[derive(Debug, Default, Serialize)]
pub(crate) struct QuantizationCounts {
    pub(crate) none: usize,
    pub(crate) per_tensor: usize,
    pub(crate) per_channel: usize,
    pub(crate) blockwise: usize,
    pub(crate) multi_axis: usize,
    pub(crate) custom: usize,
    pub(crate) sparse: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct MetadataLine {
    pub(crate) name: String,
    pub(crate) bytes: usize,
}

/// Describes a model of this name. `resolver` has the kernels, and `unresolved` the ops that it lacks.
pub fn inspect(
    name: String,
    model: &Model,
    resolver: &dyn OpResolver,
    unresolved: Option<&UnresolvedOps>,
) -> Inspection {
    let missing = unresolved.map_or(&[][..], |u| &u.ops);
    let ops = ops(model, resolver, missing);
    let required = required_runtime(model);
    let lines = |subgraph: usize, ids: &[TensorId]| -> Vec<TensorLine> {
        ids.iter().map(|id| line(model.subgraphs()[subgraph].tensor(*id), *id, None)).collect()
    };
    let named = |subgraph: usize, ids: &[(String, TensorId)]| -> Vec<TensorLine> {
        ids.iter().map(|(name, id)| line(model.subgraphs()[subgraph].tensor(*id), *id, Some(name))).collect()
    };
    Inspection {
        model: name,
        description: model.description().to_owned(),
        sizes: sizes(model),
        runtime: Runtime {
            required: required.release,
            complete: required.complete,
            metadata: model.min_runtime_version().map(Into::into),
            newest_known: newest_runtime(),
            newer_than_known: newer_runtime(model).is_some(),
        },
        signatures: model
            .signatures()
            .iter()
            .map(|s| SignatureLine {
                key: s.key().to_owned(),
                subgraph: s.subgraph(),
                inputs: named(s.subgraph(), s.inputs()),
                outputs: named(s.subgraph(), s.outputs()),
            })
            .collect(),
        inputs: model.subgraphs().first().map_or(Vec::new(), |s| lines(0, s.inputs())),
        outputs: model.subgraphs().first().map_or(Vec::new(), |s| lines(0, s.outputs())),
        subgraphs: model
            .subgraphs()
            .iter()
            .map(|s| SubgraphLine {
                name: s.name().to_owned(),
                nodes: s.nodes().len(),
                tensors: s.tensors().len(),
            })
            .collect(),
        custom_ops: custom_ops(&ops),
        custom_options: options::of(model),
        ops: ops.into_iter().map(|(_, line)| line).collect(),
        quantization: quantization(model),
        unresolved: missing.iter().map(unresolved_op).collect(),
        unresolved_text: missing.iter().map(ToString::to_string).collect(),
        understated_versions: understated(model).0,
        metadata: model
            .metadata_entries()
            .iter()
            .map(|(name, range)| MetadataLine { name: name.clone(), bytes: range.len() })
            .collect(),
    }
}

fn line(tensor: &Tensor, id: TensorId, name: Option<&str>) -> TensorLine {
    let affine = tensor.quantization().and_then(|q| q.scale_zero_point());
    TensorLine {
        name: name.unwrap_or(tensor.name()).to_owned(),
        tensor: id.0,
        r#type: tensor.ty().name(),
        shape: tensor.shape().to_vec(),
        shape_signature: tensor.shape_signature().map(<[_]>::to_vec),
        scale: affine.map(|(scale, _)| scale),
        zero_point: affine.map(|(_, zero_point)| zero_point),
        quantization: tensor.quantization().and_then(kind),
    }
}

/// The kind of quantization in words; `None` for the usual one, a scale and a zero point.
fn kind(quantization: &Quantization) -> Option<String> {
    match quantization {
        Quantization::Affine(affine) if affine.scales.len() > 1 => {
            Some(format!("{} scales along dimension {}", affine.scales.len(), affine.dimension))
        }
        Quantization::Affine(_) => None,
        Quantization::Blockwise { block_size, .. } => Some(format!("in blocks of {block_size}")),
        Quantization::MultiAxis { dimensions, .. } => Some(format!("along dimensions {dimensions:?}")),
        Quantization::Custom(custom) => Some(format!("custom, {} B", custom.len())),
        _ => Some("of an unknown kind".into()),
    }
}

/// Every op and version with its uses, in the order of op names.
fn ops(model: &Model, resolver: &dyn OpResolver, missing: &[UnresolvedOp]) -> Vec<(Op, OpLine)> {
    let mut counts: HashMap<(&Op, u32), (usize, usize)> = HashMap::new();
    for node in model.subgraphs().iter().flat_map(|s| s.nodes()) {
        let (count, bytes) = counts.entry((node.op(), node.version())).or_default();
        *count += 1;
        *bytes += node.custom_options().len();
    }
    let line = |((op, version), (count, option_bytes)): ((&Op, u32), (usize, usize))| {
        let definition = op.builtin().and_then(definition);
        let missing = missing.iter().find(|m| m.op == *op && m.version == version);
        let line = OpLine {
            op: raw_name(op),
            version,
            count,
            registered: merged_versions(resolver.versions(op)).iter().map(bounds).collect(),
            min_runtime: definition.and_then(|d| d.min_runtime(version)),
            resolved: missing.is_none(),
            why: missing.map(UnresolvedOp::why),
            custom_option_bytes: op.builtin().is_none().then_some(option_bytes),
        };
        (op.clone(), line)
    };
    let mut ops: Vec<_> = counts.into_iter().map(line).collect();
    ops.sort_by(|(_, a), (_, b)| (&a.op, a.version).cmp(&(&b.op, b.version)));
    ops
}

fn custom_ops(ops: &[(Op, OpLine)]) -> Vec<String> {
    let name = |(op, _): &(Op, OpLine)| match op {
        Op::Custom(name) => Some(name.to_string()),
        Op::Builtin(_) => None,
    };
    let mut names: Vec<String> = ops.iter().filter_map(name).collect();
    names.dedup();
    names
}

/// Returns the sizes. A buffer that several tensors share is counted once.
fn sizes(model: &Model) -> Sizes {
    let mut seen = HashSet::new();
    let mut constants: BTreeMap<&'static str, usize> = BTreeMap::new();
    for tensor in model.subgraphs().iter().flat_map(|s| s.tensors()) {
        if let Some(range) = tensor.data().filter(|r| seen.insert((r.start, r.end))) {
            *constants.entry(tensor.ty().name()).or_default() += range.len();
        }
    }
    Sizes { file_bytes: model.bytes().len(), constant_bytes: constants.values().sum(), constants }
}

fn quantization(model: &Model) -> QuantizationCounts {
    let mut counts = QuantizationCounts::default();
    for tensor in model.subgraphs().iter().flat_map(|s| s.tensors()) {
        let count = match tensor.quantization() {
            None => &mut counts.none,
            Some(Quantization::Affine(affine)) if affine.scales.len() > 1 => &mut counts.per_channel,
            Some(Quantization::Affine(_)) => &mut counts.per_tensor,
            Some(Quantization::Blockwise { .. }) => &mut counts.blockwise,
            Some(Quantization::MultiAxis { .. }) => &mut counts.multi_axis,
            Some(_) => &mut counts.custom,
        };
        *count += 1;
        counts.sparse += usize::from(tensor.sparsity().is_some());
    }
    counts
}
