//! `inspect`: what a model file holds, and what it needs.

use std::collections::{BTreeMap, HashMap, HashSet};

use delegraph::Model;
use delegraph::core::error::{UnresolvedOp, UnresolvedOps};
use delegraph::core::graph::check_versions;
use delegraph::core::ops::definition;
use delegraph::core::resolver::{check_resolved, merged, newer_runtime, newest_runtime, required_runtime};
use delegraph::core::{Op, OpResolver, Quantization, Tensor, TensorId, printable};
use serde::Serialize;
use serde_json::Value;

use super::failure::{Exit, Failure, unresolved_op};
use super::kernels::Kernels;
use super::model::ModelArgument;
use super::ops::ranges;
use super::output::{Document, Output, bytes, table};
use super::text::raw_name;
use super::versions::{UnderstatedLine, understated, warnings};

mod options;

use options::CustomOptions;

/// Show a model's inputs, outputs, ops and sizes, and what is missing to run it
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArgument,
    #[command(flatten)]
    kernels: Kernels,
    /// Refuse a model in which a node uses features of a newer version of its op than its own
    #[arg(long)]
    strict_versions: bool,
}

#[derive(Serialize)]
struct Inspection {
    model: String,
    description: String,
    sizes: Sizes,
    runtime: Runtime,
    signatures: Vec<SignatureLine>,
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
    subgraphs: Vec<SubgraphLine>,
    ops: Vec<OpLine>,
    custom_ops: Vec<String>,
    quantization: QuantizationCounts,
    /// The options of every node of a custom op.
    custom_options: Vec<CustomOptions>,
    unresolved: Vec<Value>,
    #[serde(skip)]
    unresolved_text: Vec<String>,
    /// Ops whose version is lower than that of the features that their nodes use.
    understated_versions: Vec<UnderstatedLine>,
    metadata: Vec<MetadataLine>,
}

#[derive(Serialize)]
struct Sizes {
    file_bytes: usize,
    constant_bytes: usize,
    /// Constant bytes per element type.
    constants: BTreeMap<&'static str, usize>,
}

/// The oldest TFLite release that runs the model.
#[derive(Serialize)]
struct Runtime {
    /// Derived from the ops and versions.
    required: Option<&'static str>,
    /// Whether the op table knows all of them; the release is a lower bound otherwise.
    complete: bool,
    /// The entry `min_runtime_version` of the model's metadata.
    metadata: Option<String>,
    /// The newest release that the op table knows.
    newest_known: &'static str,
    /// Whether the metadata requires a newer release.
    newer_than_known: bool,
}

#[derive(Serialize)]
struct SignatureLine {
    key: String,
    subgraph: usize,
    inputs: Vec<TensorLine>,
    outputs: Vec<TensorLine>,
}

#[derive(Serialize)]
struct TensorLine {
    name: String,
    tensor: usize,
    r#type: &'static str,
    shape: Vec<usize>,
    /// The same with `null` for dimensions that can be resized, where the file has a shape signature.
    shape_signature: Option<Vec<Option<usize>>>,
    scale: Option<f32>,
    zero_point: Option<i32>,
    /// The kind of quantization, unless it is one pair of scale and zero point.
    quantization: Option<String>,
}

#[derive(Serialize)]
struct SubgraphLine {
    name: String,
    nodes: usize,
    tensors: usize,
}

#[derive(Serialize)]
struct OpLine {
    op: String,
    version: u32,
    count: usize,
    /// The ranges of versions that kernels are registered for.
    registered: Vec<(u32, u32)>,
    min_runtime: Option<&'static str>,
    resolved: bool,
    /// Why it is not resolved.
    why: Option<String>,
    /// The bytes of options of a custom op's nodes.
    custom_option_bytes: Option<usize>,
}

/// The number of tensors per kind of quantization.
#[derive(Default, Serialize)]
struct QuantizationCounts {
    none: usize,
    per_tensor: usize,
    per_channel: usize,
    blockwise: usize,
    multi_axis: usize,
    custom: usize,
    sparse: usize,
}

#[derive(Serialize)]
struct MetadataLine {
    name: String,
    bytes: usize,
}

pub(crate) fn run(arguments: &Arguments, out: &Output) -> Result<Exit, Failure> {
    let model = arguments.model.load()?;
    let resolver = arguments.kernels.resolver(false)?;
    if arguments.strict_versions {
        check_versions(&model)?;
    }
    let unresolved = check_resolved(&model, &resolver).err();
    out.print(&inspect(arguments.model.name(), &model, &resolver, unresolved.as_ref()))?;
    Ok(Exit::Fine)
}

fn inspect(
    name: String,
    model: &Model,
    resolver: &dyn OpResolver,
    unresolved: Option<&UnresolvedOps>,
) -> Inspection {
    let missing = unresolved.map_or(&[][..], |u| &u.ops);
    let ops = ops(model, resolver, missing);
    let (required, complete) = required_runtime(model);
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
            required,
            complete,
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
        understated_versions: understated(model),
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
            registered: merged(resolver.versions(op)),
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

/// Tensors may share a buffer; each is counted once.
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
            Some(Quantization::Custom(_)) => &mut counts.custom,
        };
        *count += 1;
        counts.sparse += usize::from(tensor.sparsity().is_some());
    }
    counts
}

impl Document for Inspection {
    fn text(&self) -> String {
        let sizes = &self.sizes;
        let mut text = format!("{}: {}\n", self.model, bytes(sizes.file_bytes));
        if !self.description.is_empty() {
            text += &format!("{}\n", printable(&self.description));
        }
        text += &format!("constants: {}", bytes(sizes.constant_bytes));
        let each: Vec<String> = sizes.constants.iter().map(|(ty, n)| format!("{ty} {}", bytes(*n))).collect();
        text += &if each.is_empty() { "\n".into() } else { format!(" ({})\n", each.join(", ")) };
        text += &self.runtime.text(self.unresolved.is_empty());

        text += &format!("\n{}", ports("inputs", &self.inputs));
        text += &format!("\n{}", ports("outputs", &self.outputs));
        for signature in &self.signatures {
            let key = printable(&signature.key);
            text += &format!("\nsignature \"{key}\" (subgraph {})\n", signature.subgraph);
            text += &ports("inputs", &signature.inputs);
            text += &ports("outputs", &signature.outputs);
        }
        let row = |o: &OpLine| {
            let options = o.custom_option_bytes.map(|n| format!("options: {}", bytes(n)));
            let missing = (!o.resolved).then(|| "no kernel".into());
            let notes: Vec<String> = [missing, options].into_iter().flatten().collect();
            let registered = if o.registered.is_empty() { "none".into() } else { ranges(&o.registered) };
            let since = o.min_runtime.unwrap_or("?");
            let (version, count) = (o.version.to_string(), o.count.to_string());
            vec![o.op.clone(), version, count, registered, since.into(), notes.join("; ")]
        };
        let header = ["op", "version", "nodes", "registered", "since TFLite", ""];
        text += &format!("\n{}", table(&header, &[1, 2], self.ops.iter().map(row)));
        if self.subgraphs.len() > 1 {
            let row = |(i, s): (usize, &SubgraphLine)| {
                vec![i.to_string(), s.name.clone(), s.nodes.to_string(), s.tensors.to_string()]
            };
            let rows = self.subgraphs.iter().enumerate().map(row);
            text += &format!("\n{}", table(&["subgraph", "name", "nodes", "tensors"], &[0, 2, 3], rows));
        }
        text += &format!("\n{}", self.quantization.text());
        if !self.metadata.is_empty() {
            let entries: Vec<String> = self
                .metadata
                .iter()
                .map(|m| format!("{} ({})", printable(&m.name), bytes(m.bytes)))
                .collect();
            text += &format!("metadata: {}\n", entries.join(", "));
        }
        text += &warnings(&self.understated_versions);
        text += &options::text(&self.custom_options);
        if !self.unresolved_text.is_empty() {
            text += &format!("\nops without a kernel:\n  {}\n", self.unresolved_text.join("\n  "));
        }
        text
    }
}

impl Runtime {
    fn text(&self, resolved: bool) -> String {
        let needs = match self.required {
            Some(release) if self.complete => format!("its ops need TFLite {release} or newer"),
            Some(release) => {
                format!("its ops need TFLite {release} at least; this build does not know all of them")
            }
            None if self.complete => "its ops need no particular TFLite".into(),
            None => "its ops are unknown to this build".into(),
        };
        let declared = match &self.metadata {
            Some(release) => format!("its metadata (min_runtime_version) declares {}", printable(release)),
            None => "its metadata does not declare a release".into(),
        };
        let newer = match (self.newer_than_known, resolved) {
            (false, _) => String::new(),
            (true, resolved) => format!(
                "; that is newer than {}, the newest that this build knows{}",
                self.newest_known,
                if resolved { ", but every op has a kernel and it runs all the same" } else { "" }
            ),
        };
        format!("{needs}; {declared}{newer}\n")
    }
}

impl QuantizationCounts {
    fn text(&self) -> String {
        let kinds = [
            (self.per_tensor, "per tensor"),
            (self.per_channel, "per channel"),
            (self.blockwise, "in blocks"),
            (self.multi_axis, "along several axes"),
            (self.custom, "in a custom way"),
        ];
        let kinds: Vec<String> =
            kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
        let kinds = if kinds.is_empty() { "none".into() } else { kinds.join(", ") };
        let sparse = if self.sparse > 0 { format!("; {} sparse", self.sparse) } else { String::new() };
        format!("quantized tensors: {kinds}; {} not quantized{sparse}\n", self.none)
    }
}

fn ports(title: &str, tensors: &[TensorLine]) -> String {
    let row = |t: &TensorLine| {
        let dim = |d: &Option<usize>| d.map_or_else(|| "?".into(), |d: usize| d.to_string());
        let signature = t.shape_signature.as_ref().filter(|s| s.iter().any(Option::is_none));
        let shape = match signature {
            Some(s) => format!("[{}]", s.iter().map(dim).collect::<Vec<_>>().join(", ")),
            None => format!("{:?}", t.shape),
        };
        let quantization = t.scale.zip(t.zero_point).map(|(s, z)| format!("scale {s}, zero point {z}"));
        let quantization = quantization.or_else(|| t.quantization.clone());
        vec![t.name.clone(), t.r#type.into(), shape, quantization.unwrap_or_default()]
    };
    table(&[title, "type", "shape", ""], &[], tensors.iter().map(row))
}
