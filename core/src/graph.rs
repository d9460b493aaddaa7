//! The model as a graph of typed, versioned ops.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Location, Result};
use crate::kernel::Shared;
use crate::op::Op;
use crate::ops::Params;
use crate::quantization::{MinMax, Quantization};
use crate::shape::Shape;
use crate::sparsity::Sparsity;
use crate::types::TensorType;

/// Index of a tensor in its subgraph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub usize);

/// Index of a node in its subgraph. It stays valid whatever delegates claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// The bytes of a model file: owned, or shared with whoever mapped them.
#[derive(Clone)]
pub struct ModelBytes(Arc<dyn Backing>);

/// What holds the bytes of a model.
pub trait Backing: AsRef<[u8]> + Send + Sync {
    /// Lets bytes leave memory that can be read again from where they came, as those of a mapped file can. They stay
    /// what they are.
    fn let_go(&self);
}

/// Bytes that have no other place to be.
struct Held<T>(T);

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<T: AsRef<[u8]> + Send + Sync> Backing for Held<T> {
    fn let_go(&self) {}
}

impl ModelBytes {
    /// Bytes held by anything that can be seen as bytes: a `Vec<u8>`, a static slice, a memory map.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        ModelBytes(Arc::new(Held(bytes)))
    }

    /// Bytes that need not stay in memory once kernels have packed what they need of them.
    pub fn backed(bytes: impl Backing + 'static) -> Self {
        ModelBytes(Arc::new(bytes))
    }
}

impl AsRef<[u8]> for ModelBytes {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl fmt::Debug for ModelBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_ref().len())
    }
}

/// A verified model: every index in it is in range, every constant has the size that its type and shape need, and
/// nodes are in an order in which every input exists before it is read.
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) bytes: ModelBytes,
    pub(crate) path: Option<PathBuf>,
    pub(crate) shared: Shared,
    /// What the author wrote about the model.
    pub description: String,
    /// Subgraphs; number 0 is the primary one, the others are entry points of signatures or called by nodes.
    pub subgraphs: Vec<Subgraph>,
    /// Named entry points.
    pub signatures: Vec<Signature>,
    /// Named metadata: name and where its bytes are.
    pub metadata: Vec<(String, Range<usize>)>,
    /// Metadata without a name, as files had it before names came: where its bytes are.
    pub unnamed_metadata: Vec<Range<usize>>,
    /// Where the ZIP archive is that follows the model in its file, if one does. Label files are put there.
    pub archive: Option<Range<usize>>,
}

impl Model {
    /// Verifies `bytes` and builds the graph.
    ///
    /// # Errors
    /// [`Error::InvalidModel`](crate::Error::InvalidModel) with what is wrong and where. Unknown ops are no error
    /// here: whether they can run is for a resolver to say.
    pub fn from_bytes(bytes: ModelBytes) -> Result<Self> {
        crate::loader::load(bytes, None)
    }

    /// Like [`Model::from_bytes`], with the path that error messages name.
    pub fn from_bytes_named(bytes: ModelBytes, path: impl Into<PathBuf>) -> Result<Self> {
        crate::loader::load(bytes, Some(path.into()))
    }

    /// A model made in memory: `subgraphs` whose constants are ranges of `bytes`. What a file's loading checks of
    /// indices and order is checked here, too.
    pub fn from_subgraphs(bytes: Vec<u8>, subgraphs: Vec<Subgraph>) -> Result<Self> {
        crate::loader::from_subgraphs(bytes, subgraphs)
    }

    /// The model with other subgraphs, whose constants are ranges of `bytes`, else of the bytes that it has. All else
    /// stays; ranges of metadata and of the archive must be the same in `bytes`. What [`Model::from_subgraphs`] checks
    /// is checked here, too, and that signatures name tensors that are there.
    ///
    /// # Errors
    /// [`Error::InvalidModel`](crate::Error::InvalidModel) with what is wrong and where.
    pub fn with_subgraphs(&self, bytes: Option<ModelBytes>, subgraphs: Vec<Subgraph>) -> Result<Self> {
        crate::loader::with_subgraphs(self, bytes, subgraphs)
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// A handle that keeps the bytes alive.
    pub fn shared_bytes(&self) -> ModelBytes {
        self.bytes.clone()
    }

    /// Lets the file's bytes leave memory where they can be read again: see [`Backing::let_go`].
    pub fn let_go(&self) {
        self.bytes.0.let_go();
    }

    /// What kernels of all interpreters on this model have in common.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Where the model came from, if it has a path.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.path.as_deref()
    }

    /// The constant data of a tensor, if it has any.
    pub fn constant(&self, tensor: &Tensor) -> Option<&[u8]> {
        self.bytes().get(tensor.data.clone()?)
    }

    /// The bytes of the metadata entry `name`.
    pub fn metadata(&self, name: &str) -> Option<&[u8]> {
        let (_, range) = self.metadata.iter().find(|(n, _)| n == name)?;
        self.bytes().get(range.clone())
    }

    /// The ZIP archive that follows the model in its file. Offsets in it may count from the start of the file.
    pub fn archive(&self) -> Option<&[u8]> {
        self.bytes().get(self.archive.clone()?)
    }

    /// The oldest TFLite release that runs the model, as its metadata says; it may be absent or wrong.
    pub fn min_runtime_version(&self) -> Option<&str> {
        let bytes = self.metadata("min_runtime_version")?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(bytes.get(..end)?).ok().filter(|s| !s.is_empty())
    }

    /// The location of a node, for error messages.
    pub fn locate(&self, subgraph: usize, node: NodeId) -> Location {
        let describe = |graph: &Subgraph| {
            let n = graph.nodes.get(node.0)?;
            let writes = crate::loader::writes(&graph.tensors, n.outputs.iter().map(|id| id.0));
            Some(format!("{} v{}{writes}", n.op, n.version))
        };
        let op = self.subgraphs.get(subgraph).and_then(describe).unwrap_or_default();
        Location { model: self.path.clone(), subgraph, node, op }
    }

    /// The signature with this key.
    pub fn signature(&self, key: &str) -> Option<&Signature> {
        self.signatures.iter().find(|s| s.key == key)
    }
}

/// One graph of nodes over tensors.
#[derive(Debug, Clone, Default)]
pub struct Subgraph {
    /// Its name, often empty.
    pub name: String,
    /// All tensors.
    pub tensors: Vec<Tensor>,
    /// All nodes, in an order in which they can run.
    pub nodes: Vec<Node>,
    /// Which tensors the caller fills.
    pub inputs: Vec<TensorId>,
    /// Which tensors the caller reads.
    pub outputs: Vec<TensorId>,
    /// Which entry of the model's debug metadata describes it, if any.
    pub debug_metadata: Option<u32>,
}

impl Subgraph {
    /// The tensor `id`. Ids of a verified model's own subgraph are always in range.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0]
    }

    /// The node `id`. Ids of a verified model's own subgraph are always in range.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// Every node's id, in file order.
    pub fn node_ids(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }
}

/// What the file says of a tensor.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name, possibly empty.
    pub name: Arc<str>,
    /// Element type.
    pub ty: TensorType,
    /// Shape; where the signature has unknown dimensions, the shape to start with.
    pub shape: Shape,
    /// Which dimensions may be resized (`None` in it), where the file says.
    pub shape_signature: Option<Vec<Option<usize>>>,
    /// Quantization, if any.
    pub quantization: Option<Arc<Quantization>>,
    /// The range of values that was seen in training or calibration, if any. Nothing computes with it.
    pub min_max: Option<Arc<MinMax>>,
    /// Storage of a sparse constant.
    pub sparsity: Option<Arc<Sparsity>>,
    /// State that lives from one invocation to the next.
    pub is_variable: bool,
    /// Where its constant data is in the file.
    pub data: Option<Range<usize>>,
    /// The file says that the rank is known even where the shape is empty. Nothing computes with it.
    pub has_rank: bool,
    /// What is in a `VARIANT` tensor, if it is one and the file says so.
    pub variants: Vec<VariantType>,
}

/// The type and shape of what a `VARIANT` tensor holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantType {
    /// Element type.
    pub ty: TensorType,
    /// Shape; `None` stands for an unknown dimension.
    pub shape: Vec<Option<usize>>,
    /// Whether the rank is known; if not, the shape is empty.
    pub has_rank: bool,
}

impl Tensor {
    /// A tensor without data and quantization.
    pub fn new(name: impl Into<Arc<str>>, ty: TensorType, shape: impl Into<Shape>) -> Self {
        Tensor {
            name: name.into(),
            ty,
            shape: shape.into(),
            shape_signature: None,
            quantization: None,
            min_max: None,
            sparsity: None,
            is_variable: false,
            data: None,
            has_rank: false,
            variants: Vec::new(),
        }
    }

    /// True when the file holds its data.
    pub fn is_constant(&self) -> bool {
        self.data.is_some()
    }

    /// Whether a caller may give this input another shape.
    pub fn accepts(&self, shape: &[usize]) -> bool {
        match &self.shape_signature {
            Some(signature) => {
                signature.len() == shape.len()
                    && signature.iter().zip(shape).all(|(s, d)| s.is_none_or(|s| s == *d))
            }
            None => true,
        }
    }
}

/// One operation.
#[derive(Debug, Clone)]
pub struct Node {
    /// Which operator.
    pub op: Op,
    /// The version of the operator that the model asks for.
    pub version: u32,
    /// Its typed params.
    pub params: Params,
    /// The file has no options for the node, which stands for params that are all defaults.
    pub options_left_out: bool,
    /// Inputs; `None` where an optional one is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// Outputs.
    pub outputs: Vec<TensorId>,
    /// Tensors that carry the quantization of values inside the op; `None` where a position is unused.
    pub intermediates: Vec<Option<TensorId>>,
    /// Where the options of a custom op are in the file.
    pub custom_options: Range<usize>,
    /// Which inputs the node changes, as far as the file says. Nothing computes with it.
    pub mutating_variable_inputs: Vec<bool>,
    /// Which entry of the model's debug metadata describes it, if any.
    pub debug_metadata: Option<u32>,
}

impl Node {
    /// A node without intermediates and custom options.
    pub fn new(
        op: impl Into<Op>,
        version: u32,
        params: impl Into<Params>,
        inputs: impl IntoIterator<Item = Option<TensorId>>,
        outputs: impl IntoIterator<Item = TensorId>,
    ) -> Self {
        Node {
            op: op.into(),
            version,
            params: params.into(),
            options_left_out: false,
            inputs: inputs.into_iter().collect(),
            outputs: outputs.into_iter().collect(),
            intermediates: Vec::new(),
            custom_options: 0..0,
            mutating_variable_inputs: Vec::new(),
            debug_metadata: None,
        }
    }

    /// The subgraphs that the node calls.
    pub fn callees(&self) -> impl Iterator<Item = usize> + use<> {
        crate::loader::callees(&self.params).into_iter().filter_map(|index| usize::try_from(index).ok())
    }

    /// Gives the subgraphs that the node calls other numbers.
    pub fn renumber_callees(&mut self, to: impl Fn(usize) -> usize) {
        crate::loader::renumber_callees(&mut self.params, &|index| {
            let renumbered = usize::try_from(index).ok().and_then(|index| i32::try_from(to(index)).ok());
            renumbered.unwrap_or(index)
        });
    }

    /// Input `i`, if the node has it.
    pub fn input(&self, i: usize) -> Option<TensorId> {
        self.inputs.get(i).copied().flatten()
    }
}

/// A named entry point: a subgraph whose inputs and outputs have names.
#[derive(Debug, Clone)]
pub struct Signature {
    /// Its key, unique in the model.
    pub key: String,
    /// Which subgraph it runs.
    pub subgraph: usize,
    /// Input names and tensors.
    pub inputs: Vec<(String, TensorId)>,
    /// Output names and tensors.
    pub outputs: Vec<(String, TensorId)>,
}
