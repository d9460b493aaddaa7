//! Models, and the drafts from which they are verified.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::extension::Extensions;
use super::tensor::writes;
use super::{ModelBytes, NodeId, Signature, Subgraph, Tensor};
use crate::error::{Location, Result};

/// A verified model: every index in it is in range, every constant has the size that its type and shape need, and
/// nodes are in an order in which every input exists before it is read.
///
/// Nothing in a model can be changed. An edit takes the model apart into a [`ModelDraft`], and
/// [`ModelDraft::verify`] turns the draft into a model again:
///
/// ```
/// # use delegraph_core::{Model, ModelBytes};
/// # fn main() -> delegraph_core::Result<()> {
/// # let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
/// let model = Model::from_bytes(ModelBytes::new(file))?;
/// let mut draft = model.into_draft();
/// draft.description = "handwritten digits".into();
/// let edited = draft.verify()?;
/// assert_eq!(edited.description(), "handwritten digits");
/// # Ok(()) }
/// ```
///
/// A node that reads its own output would give a kernel the same buffer as input and output:
///
/// ```
/// # use delegraph_core::{Model, ModelBytes};
/// # let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
/// # let model = Model::from_bytes(ModelBytes::new(file)).unwrap();
/// let mut draft = model.into_draft();
/// let node = &mut draft.subgraphs[0].nodes_mut()[0];
/// let output = node.outputs()[0];
/// node.inputs_mut()[0] = Some(output);
/// assert!(draft.verify().is_err());
/// ```
///
/// Without a draft, such an edit does not compile: neither fields nor accessors of a model give write access to its
/// subgraphs.
///
/// ```compile_fail,E0616
/// # use delegraph_core::{Model, ModelBytes};
/// # let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
/// # let mut model = Model::from_bytes(ModelBytes::new(file)).unwrap();
/// let output = model.subgraphs()[0].nodes()[0].outputs()[0];
/// model.subgraphs()[0].nodes()[0].inputs()[0] = Some(output);
/// ```
///
/// ```compile_fail,E0596
/// # use delegraph_core::{Model, ModelBytes};
/// # let file = include_bytes!("../../../assets/digits/digits_float32.tflite");
/// # let mut model = Model::from_bytes(ModelBytes::new(file)).unwrap();
/// let output = model.subgraphs()[0].nodes()[0].outputs()[0];
/// model.subgraphs()[0].nodes_mut()[0].inputs_mut()[0] = Some(output);
/// ```
#[derive(Debug, Clone)]
pub struct Model {
    parts: ModelDraft,
    extensions: Extensions,
}

/// The parts of a model before they are verified. Nothing in a draft has been checked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelDraft {
    /// The bytes that constants, options and metadata are ranges of.
    pub bytes: ModelBytes,
    /// The file that messages name.
    pub path: Option<PathBuf>,
    /// The author's description of the model.
    pub description: String,
    /// Subgraphs; number 0 is the primary one, the others are entry points of signatures or called by nodes.
    pub subgraphs: Vec<Subgraph>,
    /// Named entry points.
    pub signatures: Vec<Signature>,
    /// Named metadata: name and range of its bytes.
    pub metadata: Vec<(String, Range<usize>)>,
    /// Metadata without a name, which old files have: ranges of its bytes.
    pub unnamed_metadata: Vec<Range<usize>>,
    /// The ZIP archive that follows the model in its file, if there is one. Label files are stored in it.
    pub archive: Option<Range<usize>>,
}

impl ModelDraft {
    /// Creates a draft of `subgraphs` whose constants are ranges of `bytes`, without signatures and metadata.
    pub fn new(bytes: ModelBytes, subgraphs: Vec<Subgraph>) -> Self {
        ModelDraft {
            bytes,
            path: None,
            description: String::new(),
            subgraphs,
            signatures: Vec::new(),
            metadata: Vec::new(),
            unnamed_metadata: Vec::new(),
            archive: None,
        }
    }
}

impl Model {
    /// Creates a model from a draft, which the caller has verified.
    pub(super) fn verified(draft: ModelDraft) -> Self {
        Model { parts: draft, extensions: Extensions::default() }
    }

    /// Creates a model without a file, from `subgraphs` whose constants are ranges of `bytes`.
    ///
    /// # Errors
    /// The errors of [`ModelDraft::verify`].
    pub fn from_subgraphs(bytes: Vec<u8>, subgraphs: Vec<Subgraph>) -> Result<Self> {
        ModelDraft::new(ModelBytes::new(bytes), subgraphs).verify()
    }

    /// Returns the model with other subgraphs, whose constants are ranges of `bytes`, or of the model's own bytes where
    /// that is `None`. Everything else stays the same; the ranges of metadata and of the archive must have the same
    /// contents in `bytes`.
    ///
    /// # Errors
    /// The errors of [`ModelDraft::verify`].
    pub fn with_subgraphs(&self, bytes: Option<ModelBytes>, subgraphs: Vec<Subgraph>) -> Result<Self> {
        let mut draft = self.draft_with(subgraphs);
        if let Some(bytes) = bytes {
            draft.bytes = bytes;
        }
        draft.verify()
    }

    /// Returns the model's parts, to be edited and verified again.
    pub fn into_draft(self) -> ModelDraft {
        self.parts
    }

    /// Returns a copy of the model's parts, to be edited and verified.
    pub fn to_draft(&self) -> ModelDraft {
        self.parts.clone()
    }

    /// Returns a copy of the model's parts with other subgraphs, to be edited and verified.
    pub fn draft_with(&self, subgraphs: Vec<Subgraph>) -> ModelDraft {
        let ModelDraft { bytes, path, description, signatures, metadata, unnamed_metadata, archive, .. } =
            &self.parts;
        ModelDraft {
            bytes: bytes.clone(),
            path: path.clone(),
            description: description.clone(),
            subgraphs,
            signatures: signatures.clone(),
            metadata: metadata.clone(),
            unnamed_metadata: unnamed_metadata.clone(),
            archive: archive.clone(),
        }
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.parts.bytes.as_ref()
    }

    /// Returns a handle that keeps the bytes alive.
    pub fn shared_bytes(&self) -> ModelBytes {
        self.parts.bytes.clone()
    }

    /// Returns the memory of the file's bytes to the system where they can be read again: see
    /// [`Backing::release_pages`](super::Backing::release_pages).
    pub fn release_pages(&self) {
        self.parts.bytes.release_pages();
    }

    /// Returns the value of type `T` that belongs to this model, such as packed weights that all interpreters on it
    /// share. It is made on first use; a copy of the model, and an edited one, start without it.
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.extensions.get()
    }

    /// Returns the path that the model was loaded from, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.parts.path.as_deref()
    }

    /// Returns the author's description of the model; empty if there is none.
    pub fn description(&self) -> &str {
        &self.parts.description
    }

    /// Returns every subgraph; number 0 is the primary one, the others are entry points of signatures or called by
    /// nodes.
    pub fn subgraphs(&self) -> &[Subgraph] {
        &self.parts.subgraphs
    }

    /// Returns the subgraph of this number, if there is one.
    pub fn subgraph(&self, index: usize) -> Option<&Subgraph> {
        self.parts.subgraphs.get(index)
    }

    /// Named entry points.
    pub fn signatures(&self) -> &[Signature] {
        &self.parts.signatures
    }

    /// Returns the signature with this key.
    pub fn signature(&self, key: &str) -> Option<&Signature> {
        self.parts.signatures.iter().find(|s| s.key == key)
    }

    /// Returns the constant data of a tensor, if it has any.
    pub fn constant(&self, tensor: &Tensor) -> Option<&[u8]> {
        self.bytes().get(tensor.data.clone()?)
    }

    /// Returns the bytes of the metadata entry `name`.
    pub fn metadata(&self, name: &str) -> Option<&[u8]> {
        let (_, range) = self.parts.metadata.iter().find(|(n, _)| n == name)?;
        self.bytes().get(range.clone())
    }

    /// Returns every named metadata entry: name and range in [`Model::bytes`].
    pub fn metadata_entries(&self) -> &[(String, Range<usize>)] {
        &self.parts.metadata
    }

    /// Metadata without a name, which old files have: ranges in [`Model::bytes`].
    pub fn unnamed_metadata(&self) -> &[Range<usize>] {
        &self.parts.unnamed_metadata
    }

    /// Returns the ZIP archive that follows the model in its file. Offsets in it may count from the start of the file.
    pub fn archive(&self) -> Option<&[u8]> {
        self.bytes().get(self.archive_range()?)
    }

    /// Returns the range of the archive in [`Model::bytes`].
    pub fn archive_range(&self) -> Option<Range<usize>> {
        self.parts.archive.clone()
    }

    /// Returns the oldest TFLite release that runs the model, as its metadata declares; it may be absent or wrong.
    pub fn min_runtime_version(&self) -> Option<&str> {
        let bytes = self.metadata("min_runtime_version")?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(bytes.get(..end)?).ok().filter(|s| !s.is_empty())
    }

    /// Returns the location of a node, for error messages.
    pub fn locate(&self, subgraph: usize, node: NodeId) -> Location {
        let describe = |graph: &Subgraph| {
            let n = graph.nodes.get(node.0)?;
            let writes = writes(&graph.tensors, n.outputs.iter().map(|id| id.0));
            Some(format!("{} v{}{writes}", n.op.in_short(), n.version))
        };
        let op = self.subgraph(subgraph).and_then(describe).unwrap_or_default();
        Location { model: self.parts.path.clone(), rewritten_by: None, subgraph, node, op }
    }
}
