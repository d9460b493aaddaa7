//! Which versions a model needs, and the release that runs it.

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Result};
use crate::graph::{Model, NodeId};
use crate::op::Op;
use crate::ops::{self, OpDef, OpSignature};
use crate::resolver::required_runtime;
use crate::shape::Shape;
use crate::types::TensorType;

/// The metadata entry that names the oldest TFLite release that runs the model.
const MIN_RUNTIME: &str = "min_runtime_version";
/// Its length; the release is followed by zeros.
const MIN_RUNTIME_BYTES: usize = 16;

/// What [`Model::restamp`] changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restamped {
    /// Ops that have another version now, in the order of their first node.
    pub ops: Vec<RestampedOp>,
    /// `min_runtime_version` of the metadata as it was.
    pub old_runtime: Option<String>,
    /// And as it is.
    pub new_runtime: Option<String>,
}

/// An op that got another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestampedOp {
    /// The op.
    pub op: Op,
    /// The version it had.
    pub from: u32,
    /// The version it has.
    pub to: u32,
    /// Every node of it: subgraph and node.
    pub nodes: Vec<(usize, NodeId)>,
}

impl Model {
    /// Gives every builtin op the lowest version that has what the model uses of it, and names the oldest release
    /// that runs all of them in the metadata. Custom ops keep their versions.
    ///
    /// Nodes of an op that had one version have one version afterwards: the highest that any of them needs. The
    /// model's bytes are written anew.
    ///
    /// # Errors
    /// Those of [`Model::to_bytes`]; the model is unchanged then.
    pub fn restamp(&mut self) -> Result<Restamped> {
        let mut model = self.clone();
        let entries = model.entries(|_| true);
        let mut report =
            Restamped { old_runtime: self.min_runtime_version().map(str::to_owned), ..Default::default() };
        for Entry { op, version, needed, nodes } in entries {
            if needed != version {
                model.set_version(&nodes, needed);
                report.ops.push(RestampedOp { op, from: version, to: needed, nodes });
            }
        }
        model.stamp_runtime();
        report.new_runtime = model.min_runtime_version().map(str::to_owned);
        *self = model.reloaded()?;
        Ok(report)
    }

    /// The model after writing and reading it, which checks all that loading checks.
    pub(super) fn reloaded(&self) -> Result<Model> {
        crate::loader::load(crate::ModelBytes::new(self.to_bytes()?), self.path.clone())
    }

    /// The nodes of builtin ops for which `choose` says so, by op and version.
    fn entries(&self, choose: impl Fn((usize, NodeId)) -> bool) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut indices = HashMap::new();
        for (s, subgraph) in self.subgraphs.iter().enumerate() {
            for (id, node) in subgraph.node_ids().zip(&subgraph.nodes) {
                if node.op.builtin().is_none() || !choose((s, id)) {
                    continue;
                }
                let index = *indices.entry((&node.op, node.version)).or_insert(entries.len());
                if index == entries.len() {
                    let (op, version) = (node.op.clone(), node.version);
                    entries.push(Entry { op, version, needed: 1, nodes: Vec::new() });
                }
                if let Some(entry) = entries.get_mut(index) {
                    entry.needed = entry.needed.max(ops::min_version(subgraph, node));
                    entry.nodes.push((s, id));
                }
            }
        }
        entries
    }

    fn set_version(&mut self, nodes: &[(usize, NodeId)], version: u32) {
        for (s, id) in nodes {
            if let Some(node) = self.subgraphs.get_mut(*s).and_then(|g| g.nodes.get_mut(id.0)) {
                node.version = version;
            }
        }
    }

    /// Fills versions: nodes have the one that `explicit` gives them; all others of an op the lowest that is enough.
    ///
    /// # Errors
    /// An explicit version that is too low.
    pub(super) fn stamp(&mut self, explicit: &BTreeMap<(usize, NodeId), u32>) -> Result<()> {
        for entry in self.entries(|node| !explicit.contains_key(&node)) {
            self.set_version(&entry.nodes, entry.needed);
        }
        for (&(s, id), &version) in explicit {
            self.set_version(&[(s, id)], version);
            let Some((subgraph, node)) = self.subgraphs.get(s).and_then(|g| Some((g, g.nodes.get(id.0)?)))
            else {
                continue;
            };
            let Some(definition) = node.op.builtin().and_then(ops::definition) else { continue };
            let signature = OpSignature::of(subgraph, node);
            let needed = (definition.min_version)(&signature);
            if version < needed {
                let reason = reason(definition, &signature, version, needed);
                let release = definition.min_runtime(needed);
                let since = release.map_or(String::new(), |r| format!("; TFLite has it since {r}"));
                let message = format!(
                    "it is given version {version}, but {reason} version {needed}{since}. Leave the version \
                     out to get the lowest that is enough"
                );
                return Err(Error::InvalidNode(message).at(self.locate(s, id)));
            }
        }
        Ok(())
    }

    /// Names the oldest release that runs the model in its metadata; a model without builtin ops needs none.
    pub(super) fn stamp_runtime(&mut self) {
        let (Some(release), _) = required_runtime(self) else { return };
        let mut padded = [0; MIN_RUNTIME_BYTES];
        for (to, from) in padded.iter_mut().zip(release.bytes()) {
            *to = from;
        }
        self.set_metadata(MIN_RUNTIME, &padded);
    }

    fn set_metadata(&mut self, name: &str, data: &[u8]) {
        if self.metadata(name) == Some(data) {
            return;
        }
        let mut bytes = self.bytes().to_vec();
        let start = bytes.len();
        bytes.extend_from_slice(data);
        let range = start..bytes.len();
        self.bytes = crate::ModelBytes::new(bytes);
        match self.metadata.iter_mut().find(|(n, _)| n == name) {
            Some((_, place)) => *place = range,
            None => self.metadata.push((name.to_owned(), range)),
        }
    }
}

/// Nodes that share an operator code.
struct Entry {
    op: Op,
    version: u32,
    needed: u32,
    nodes: Vec<(usize, NodeId)>,
}

/// What it is about a node that needs `needed`, as the start of a sentence that the version ends: found by taking
/// away one thing after the other.
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
    format!("its {} inputs of shapes {} need", shapes.len(), shapes.join(", "))
}
