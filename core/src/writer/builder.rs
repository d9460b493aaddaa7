//! Models made from scratch.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::data::ALIGNMENT;
use super::subgraph_builder::SubgraphBuilder;
use super::versions::{MIN_RUNTIME, stamp_runtime, stamped};
use crate::error::{Error, Result};
use crate::graph::{Model, ModelBytes, ModelDraft, NodeId, Signature, TensorId};
use crate::ops::Params;

/// Makes a model: subgraphs of tensors and nodes, entry points and metadata.
///
/// Subgraphs are made with [`SubgraphBuilder`] and added in order; the first one is the primary one, and params of
/// control flow ops name the others by their position. [`ModelBuilder::build`] makes the checks of loading, and chooses
/// versions: every builtin op gets the lowest version that has the features in use, and the metadata names the oldest
/// TFLite release that runs all of them.
///
/// ```
/// use delegraph_core::ops::fully_connected::FullyConnectedParams;
/// use delegraph_core::ops::softmax::SoftmaxParams;
/// use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};
///
/// # fn main() -> delegraph_core::Result<()> {
/// let mut graph = SubgraphBuilder::new("main");
/// let x = graph.input("x", TensorType::Float32, [1, 2]);
/// let weights = graph.constant("weights", [3, 2], &[0.5f32, 1.0, -1.0, 0.25, 2.0, 0.0]);
/// let bias = graph.constant("bias", [3], &[0f32; 3]);
/// let scores = graph
///     .node(BuiltinOp::FULLY_CONNECTED, FullyConnectedParams::default())
///     .inputs([x, weights, bias])
///     .output("scores");
/// let softmax = SoftmaxParams::default().beta(1.0);
/// let probabilities = graph.node(BuiltinOp::SOFTMAX, softmax).inputs([scores]).output("probabilities");
/// graph.outputs([probabilities]);
///
/// let model = ModelBuilder::new()
///     .description("two numbers to three classes")
///     .subgraph(graph)
///     .signature("serving_default", 0, [("x", x)], [("probabilities", probabilities)])
///     .build()?;
///
/// assert_eq!(**model.subgraphs()[0].tensor(probabilities).shape(), [1, 3]);
/// assert_eq!(model.min_runtime_version(), Some("1.5.0"));
/// let file: Vec<u8> = model.to_bytes()?;
/// # assert_eq!(&file[4..8], b"TFL3");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ModelBuilder {
    description: String,
    subgraphs: Vec<SubgraphBuilder>,
    signatures: Vec<Signature>,
    metadata: Vec<(String, Vec<u8>)>,
}

impl ModelBuilder {
    /// Creates an empty model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the description of the model.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Adds a subgraph. The first one has the index 0.
    #[must_use]
    pub fn subgraph(mut self, subgraph: SubgraphBuilder) -> Self {
        self.subgraphs.push(subgraph);
        self
    }

    /// Adds an entry point: names for inputs and outputs of the subgraph with this index.
    #[must_use]
    pub fn signature<'n>(
        mut self,
        key: impl Into<String>,
        subgraph: usize,
        inputs: impl IntoIterator<Item = (&'n str, TensorId)>,
        outputs: impl IntoIterator<Item = (&'n str, TensorId)>,
    ) -> Self {
        let inputs = inputs.into_iter().map(|(name, id)| (name.to_owned(), id)).collect();
        let outputs = outputs.into_iter().map(|(name, id)| (name.to_owned(), id)).collect();
        self.signatures.push(Signature::new(key, subgraph, inputs, outputs));
        self
    }

    /// Adds named bytes. An entry `min_runtime_version` replaces the generated one.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.metadata.push((name.into(), bytes.into()));
        self
    }

    /// Returns the model. Its bytes are those of a `.tflite` file.
    ///
    /// # Errors
    /// The first error while making a subgraph, the error that loading the file would return, or an explicit version
    /// that is too low, with the node and the version that it needs.
    pub fn build(self) -> Result<Model> {
        let mut data = Pool::default();
        let mut subgraphs = Vec::with_capacity(self.subgraphs.len());
        let mut explicit = BTreeMap::new();
        for (s, builder) in with_bodies(self.subgraphs).into_iter().enumerate() {
            let parts = builder.finish().map_err(|e| match e {
                Error::InvalidNode(message) if s > 0 => {
                    Error::InvalidNode(format!("subgraph {s}, {message}"))
                }
                e => e,
            })?;
            let (mut subgraph, bytes) = (parts.subgraph, parts.bytes);
            let at = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
            for tensor in subgraph.tensors_mut() {
                tensor.set_data(tensor.data().map(|range| data.add(at(&range))));
            }
            for node in subgraph.nodes_mut() {
                node.set_custom_options(data.add(at(&node.custom_options())));
            }
            explicit.extend(parts.versions.into_iter().map(|(node, version)| ((s, NodeId(node)), version)));
            subgraphs.push(subgraph);
        }
        let metadata = self.metadata.into_iter().map(|(name, bytes)| (name, data.add(&bytes))).collect();
        let mut draft = ModelDraft::new(ModelBytes::new(data.bytes), subgraphs);
        (draft.description, draft.signatures, draft.metadata) = (self.description, self.signatures, metadata);
        let named = draft.metadata.iter().any(|(name, _)| name == MIN_RUNTIME);
        let mut draft = stamped(draft.verify()?, &explicit)?.into_draft();
        if !named {
            stamp_runtime(&mut draft);
        }
        draft.verify()?.reloaded()
    }
}

/// Returns the subgraphs, followed by the bodies of composites, and sets the indices by which the composites refer to
/// their bodies.
fn with_bodies(mut subgraphs: Vec<SubgraphBuilder>) -> Vec<SubgraphBuilder> {
    let mut s = 0;
    while let Some(builder) = subgraphs.get_mut(s) {
        let bodies = std::mem::take(&mut builder.bodies);
        for (node, body) in bodies {
            let index = subgraphs.len();
            let node = subgraphs.get_mut(s).and_then(|builder| builder.subgraph.nodes_mut().get_mut(node));
            if let Some(Params::StableHloComposite(params)) = node.map(|node| node.params_mut()) {
                // An index that does not fit would be out of range, which verification rejects.
                params.decomposition_subgraph_index = i32::try_from(index).unwrap_or(i32::MAX);
            }
            subgraphs.push(body);
        }
        s += 1;
    }
    subgraphs
}

/// Bytes in which equal pieces are stored once.
#[derive(Default)]
struct Pool {
    bytes: Vec<u8>,
    places: HashMap<u64, Vec<Range<usize>>>,
}

impl Pool {
    fn add(&mut self, piece: &[u8]) -> Range<usize> {
        if piece.is_empty() {
            return 0..0;
        }
        let mut hasher = DefaultHasher::new();
        piece.hash(&mut hasher);
        let places = self.places.entry(hasher.finish()).or_default();
        if let Some(place) = places.iter().find(|p| self.bytes.get((*p).clone()) == Some(piece)) {
            return place.clone();
        }
        let start = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(piece);
        places.push(start..self.bytes.len());
        start..self.bytes.len()
    }
}
