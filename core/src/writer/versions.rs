//! The versions that a model needs, and the release that runs it.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::graph::{
    InferredShapes, Model, ModelBytes, ModelDraft, NodeId, Subgraph, inferred_min_version, inferred_shapes,
};
use crate::ops::{self, OpDef, OpSignature};
use crate::resolver::required_by;
use crate::types::Op;
use crate::types::Shape;
use crate::types::TensorType;

/// The metadata entry that names the oldest TFLite release that runs the model.
pub(super) const MIN_RUNTIME: &str = "min_runtime_version";
/// The length of the entry; the release is followed by zeros.
const MIN_RUNTIME_BYTES: usize = 16;

/// The changes of [`Model::restamp`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Restamped {
    /// Ops that have another version now, in the order of their first node.
    pub ops: Vec<RestampedOp>,
    /// Ops whose version is newer than the op table: they keep it, `from` and `to` are the same.
    pub unknown: Vec<RestampedOp>,
    /// The previous `min_runtime_version` of the metadata.
    pub old_runtime: Option<String>,
    /// The new `min_runtime_version`.
    pub new_runtime: Option<String>,
}

/// An op that got another version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestampedOp {
    /// The op.
    pub op: Op,
    /// The previous version.
    pub from: u32,
    /// The new version.
    pub to: u32,
    /// Every node of the op: subgraph and node.
    pub nodes: Vec<(usize, NodeId)>,
}

impl Model {
    /// Sets every builtin op to the lowest version that has the features in use (see
    /// [`min_versions`](crate::graph::min_versions)), and writes the oldest release that runs all of them to the
    /// metadata. Custom ops keep their versions, and so do ops whose version is newer than the op table, since their
    /// features are unknown; the metadata stays as it is then.
    ///
    /// Nodes of an op that had one version have one version afterwards: the highest that any of them needs. The
    /// model's bytes are written again.
    ///
    /// # Errors
    /// The errors of [`Model::to_bytes`]; the model is unchanged then.
    pub fn restamp(&mut self) -> Result<Restamped> {
        let mut report =
            Restamped { old_runtime: self.min_runtime_version().map(str::to_owned), ..Default::default() };
        let mut draft = self.to_draft();
        for Entry { op, version, needed, nodes } in entries(self, &inferred_shapes(self), |_| true) {
            if is_newer_than_known(&op, version) {
                report.unknown.push(RestampedOp { op, from: version, to: version, nodes });
            } else if needed != version {
                set_version(&mut draft.subgraphs, &nodes, needed);
                report.ops.push(RestampedOp { op, from: version, to: needed, nodes });
            }
        }
        // The release of an unknown version is unknown, too.
        if report.unknown.is_empty() {
            stamp_runtime(&mut draft);
        }
        let restamped = draft.verify()?.reloaded()?;
        report.new_runtime = restamped.min_runtime_version().map(str::to_owned);
        *self = restamped;
        Ok(report)
    }

    /// Returns the model after writing and reading it, which includes the checks of loading.
    pub(super) fn reloaded(&self) -> Result<Model> {
        crate::loader::load(ModelBytes::new(self.to_bytes()?), self.path().map(Into::into))
    }
}

/// The nodes of builtin ops that `choose` accepts, by op and version. `shapes` holds one entry for each subgraph.
fn entries(model: &Model, shapes: &[InferredShapes], choose: impl Fn((usize, NodeId)) -> bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut indices = HashMap::new();
    for (s, (subgraph, shapes)) in model.subgraphs().iter().zip(shapes).enumerate() {
        for (id, node) in subgraph.node_ids().zip(subgraph.nodes()) {
            if node.op().builtin().is_none() || !choose((s, id)) {
                continue;
            }
            let index = *indices.entry((node.op(), node.version())).or_insert(entries.len());
            if index == entries.len() {
                let (op, version) = (node.op().clone(), node.version());
                entries.push(Entry { op, version, needed: 1, nodes: Vec::new() });
            }
            if let Some(entry) = entries.get_mut(index) {
                entry.needed = entry.needed.max(inferred_min_version(subgraph, node, shapes));
                entry.nodes.push((s, id));
            }
        }
    }
    entries
}

/// Whether the op table has the op, but no version as high as this one.
fn is_newer_than_known(op: &Op, version: u32) -> bool {
    let definition = op.builtin().and_then(ops::definition);
    definition.and_then(|d| d.history.last()).is_some_and(|(newest, _)| version > *newest)
}

fn set_version(subgraphs: &mut [Subgraph], nodes: &[(usize, NodeId)], version: u32) {
    for (s, id) in nodes {
        if let Some(node) = subgraphs.get_mut(*s).and_then(|g| g.nodes_mut().get_mut(id.0)) {
            node.set_version(version);
        }
    }
}

/// Returns `model` with versions: nodes have their `explicit` version; all other nodes of an op have the lowest
/// sufficient one.
///
/// # Errors
/// [`Error::InvalidNode`] at the first node whose explicit version is too low.
pub(super) fn stamped(model: Model, explicit: &BTreeMap<(usize, NodeId), u32>) -> Result<Model> {
    let shapes = inferred_shapes(&model);
    let entries = entries(&model, &shapes, |node| !explicit.contains_key(&node));
    let mut draft = model.into_draft();
    for entry in entries {
        set_version(&mut draft.subgraphs, &entry.nodes, entry.needed);
    }
    for (node, version) in explicit {
        set_version(&mut draft.subgraphs, &[*node], *version);
    }
    let model = draft.verify()?;
    for (&(s, id), &version) in explicit {
        let (Some(subgraph), Some(shapes)) = (model.subgraph(s), shapes.get(s)) else { continue };
        let Some(node) = subgraph.nodes().get(id.0) else { continue };
        let Some(definition) = node.op().builtin().and_then(ops::definition) else { continue };
        let signature = OpSignature::inferred(subgraph, node, shapes);
        let needed = (definition.min_version)(&signature);
        if version < needed {
            let reason = reason(definition, &signature, version, needed);
            let release = definition.min_runtime(needed);
            let since = release.map_or(String::new(), |r| format!("; TFLite has it since {r}"));
            let message = format!(
                "it is given version {version}, but {reason} version {needed}{since}. Leave the version \
                 out to get the lowest that is enough"
            );
            return Err(Error::InvalidNode(message).at(model.locate(s, id)));
        }
    }
    Ok(model)
}

/// Writes the oldest release that runs the model to its metadata. If no op has a release in the op table, the metadata
/// stays as it is.
pub(super) fn stamp_runtime(draft: &mut ModelDraft) {
    let Some(release) = required_by(&draft.subgraphs).release else { return };
    let mut padded = [0; MIN_RUNTIME_BYTES];
    for (to, from) in padded.iter_mut().zip(release.bytes()) {
        *to = from;
    }
    set_metadata(draft, MIN_RUNTIME, &padded);
}

fn set_metadata(draft: &mut ModelDraft, name: &str, data: &[u8]) {
    let place = draft.metadata.iter_mut().find(|(n, _)| n == name).map(|(_, range)| range);
    let bytes = draft.bytes.as_ref();
    if place.as_ref().is_some_and(|range| bytes.get((**range).clone()) == Some(data)) {
        return;
    }
    let start = bytes.len();
    let range = start..start.saturating_add(data.len());
    match place {
        Some(place) => *place = range,
        None => draft.metadata.push((name.to_owned(), range)),
    }
    draft.bytes = ModelBytes::new([bytes, data].concat());
}

/// Nodes that share an operator code.
struct Entry {
    op: Op,
    version: u32,
    needed: u32,
    nodes: Vec<(usize, NodeId)>,
}

/// Returns the kind of property (params, types or shapes) that needs version `needed`, as text that the version
/// follows. It is found by resetting one kind after the other.
fn reason(definition: &OpDef, signature: &OpSignature<'_>, given: u32, needed: u32) -> String {
    let is_less = |changed: &OpSignature<'_>| (definition.min_version)(changed) < needed;
    let mut changed = signature.clone();
    let defaults = definition.codec.defaults();
    if let Ok(defaults) = &defaults {
        changed.params = defaults;
        if is_less(&changed) {
            let newer = definition.codec.fields.iter().filter(|f| f.since > given && f.since <= needed);
            let fields: Vec<&str> = newer.map(|f| f.name).collect();
            return match fields.as_slice() {
                [] => "its params need".into(),
                fields => format!("its params ({}) need", fields.join(", ")),
            };
        }
    }
    let mut changed = signature.clone();
    for operand in changed.inputs.iter_mut().flatten().chain(&mut changed.outputs) {
        operand.ty = TensorType::Float32;
        operand.quantization = None;
        operand.sparse = false;
    }
    if is_less(&changed) {
        let name = |ty: TensorType, scales: usize, sparse: bool| {
            let scales = if scales > 1 { " per channel" } else { "" };
            format!("{ty}{scales}{}", if sparse { " sparse" } else { "" })
        };
        let inputs = signature.inputs.iter().map(|t| match t {
            Some(t) => name(t.ty, t.scales(), t.sparse),
            None => "none".into(),
        });
        let outputs = signature.outputs.iter().map(|t| name(t.ty, t.scales(), t.sparse));
        let (inputs, outputs): (Vec<_>, Vec<_>) = (inputs.collect(), outputs.collect());
        return format!("its types ({} to {}) need", inputs.join(", "), outputs.join(", "));
    }
    let shapes: Vec<String> =
        signature.inputs.iter().map(|t| t.map_or("none".into(), |t| Shape::to_string(t.shape))).collect();
    match shapes.as_slice() {
        [shape] => format!("its input of shape {shape} needs"),
        _ => format!("its {} inputs of shapes {} need", shapes.len(), shapes.join(", ")),
    }
}
