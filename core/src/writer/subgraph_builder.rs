//! Subgraphs made from scratch.

use std::sync::Arc;

use smallvec::SmallVec;

use super::data::ALIGNMENT;
use crate::error::{Error, Result, counted};
use crate::graph::{Node, Subgraph, Tensor, TensorId};
use crate::ops::{self, Declared, InferContext, InferTensor, Inferred, InferredShape, Params};
use crate::types::Op;
use crate::types::Quantization;
use crate::types::Shape;
use crate::types::sparsity::Sparsity;
use crate::types::{Element, TensorType};

/// Makes a subgraph for a [`ModelBuilder`](super::ModelBuilder).
///
/// No method fails: [`ModelBuilder::build`](super::ModelBuilder::build) returns the first error, and consequential
/// errors are ignored.
#[derive(Debug, Clone, Default)]
pub struct SubgraphBuilder {
    pub(super) subgraph: Subgraph,
    /// The data of constants and custom options.
    bytes: Vec<u8>,
    /// Versions that were given, by node.
    versions: Vec<(usize, u32)>,
    /// The bodies of composites, by node.
    pub(super) bodies: Vec<(usize, SubgraphBuilder)>,
    error: Option<String>,
}

/// The parts of a finished [`SubgraphBuilder`].
pub(super) struct Parts {
    pub(super) subgraph: Subgraph,
    pub(super) bytes: Vec<u8>,
    pub(super) versions: Vec<(usize, u32)>,
}

impl SubgraphBuilder {
    /// Creates an empty subgraph.
    pub fn new(name: impl Into<String>) -> Self {
        SubgraphBuilder {
            subgraph: Subgraph::new(name, Vec::new(), Vec::new(), [], []),
            ..Default::default()
        }
    }

    /// Adds a tensor that the caller fills.
    pub fn input(&mut self, name: &str, ty: TensorType, shape: impl Into<Shape>) -> TensorId {
        let id = self.tensor(name, ty, shape);
        self.subgraph.inputs_mut().push(id);
        id
    }

    /// Adds a tensor for a node to write, for nodes whose outputs cannot be inferred.
    pub fn tensor(&mut self, name: &str, ty: TensorType, shape: impl Into<Shape>) -> TensorId {
        self.add(Tensor::new(name, ty, shape))
    }

    /// Adds state that is kept between invocations.
    pub fn variable(&mut self, name: &str, ty: TensorType, shape: impl Into<Shape>) -> TensorId {
        self.add(Tensor::new(name, ty, shape).into_variable())
    }

    /// Adds a constant, with its elements in row-major order.
    pub fn constant<T: Element>(&mut self, name: &str, shape: impl Into<Shape>, values: &[T]) -> TensorId {
        self.constant_bytes(name, T::TYPE, shape, bytemuck::cast_slice(values))
    }

    /// Adds a constant, with its bytes as in the file: sub-byte elements are packed, a sparse constant has only its
    /// stored elements.
    pub fn constant_bytes(
        &mut self,
        name: &str,
        ty: TensorType,
        shape: impl Into<Shape>,
        bytes: &[u8],
    ) -> TensorId {
        let data = self.store(bytes);
        self.add(Tensor::new(name, ty, shape).with_data(data))
    }

    /// Adds a constant of strings.
    pub fn strings(&mut self, name: &str, shape: impl Into<Shape>, values: &[impl AsRef<[u8]>]) -> TensorId {
        // Their number, where each begins and where the last one ends, and the strings.
        let mut words = vec![values.len()];
        let mut end = (values.len() + 2) * 4;
        words.push(end);
        for value in values {
            end += value.as_ref().len();
            words.push(end);
        }
        let mut bytes = Vec::with_capacity(end);
        for word in words {
            match i32::try_from(word) {
                Ok(word) => bytes.extend_from_slice(&word.to_le_bytes()),
                Err(_) => {
                    self.fail(format!("the strings of tensor \"{name}\" are longer than the format allows"))
                }
            }
        }
        values.iter().for_each(|value| bytes.extend_from_slice(value.as_ref()));
        self.constant_bytes(name, TensorType::String, shape, &bytes)
    }

    /// Sets how the values of a tensor map to real ones.
    pub fn quantize(&mut self, id: TensorId, quantization: Quantization) {
        self.change(id, |tensor| tensor.set_quantization(quantization));
    }

    /// Sets the sparse storage of a constant: the elements that its bytes represent.
    pub fn sparse(&mut self, id: TensorId, sparsity: Sparsity) {
        self.change(id, |tensor| tensor.set_sparsity(Some(Arc::new(sparsity))));
    }

    /// Sets which dimensions of a tensor may have any size: `None` in `signature`.
    pub fn resizable(&mut self, id: TensorId, signature: impl Into<Vec<Option<usize>>>) {
        self.change(id, |tensor| tensor.set_shape_signature(Some(signature.into())));
    }

    /// Changes a tensor, for properties without a method of their own. Only its data cannot be changed.
    pub fn change(&mut self, id: TensorId, change: impl FnOnce(&mut Tensor)) {
        match self.subgraph.tensors_mut().get_mut(id.0) {
            Some(tensor) => {
                let data = tensor.data();
                change(tensor);
                tensor.set_data(data);
            }
            None => self.fail(format!("there is no tensor {}", id.0)),
        }
    }

    /// Adds tensors to those that the caller reads.
    pub fn outputs(&mut self, ids: impl IntoIterator<Item = TensorId>) {
        self.subgraph.outputs_mut().extend(ids);
    }

    /// Begins a node of a builtin op. It is added by the method that names its outputs: [`NodeBuilder::output`],
    /// [`NodeBuilder::outputs`] or [`NodeBuilder::writes`].
    pub fn node(&mut self, op: impl Into<Op>, params: impl Into<Params>) -> NodeBuilder<'_> {
        NodeBuilder {
            node: Node::new(op, 1, params, [], []),
            version: None,
            ty: None,
            quantization: None,
            graph: self,
        }
    }

    /// Begins a node of a custom op. The default version is 1.
    pub fn custom(&mut self, name: &str) -> NodeBuilder<'_> {
        self.node(Op::custom(name), Params::Custom)
    }

    pub(super) fn finish(self) -> Result<Parts> {
        match self.error {
            Some(message) => Err(Error::InvalidNode(message)),
            None => Ok(Parts { subgraph: self.subgraph, bytes: self.bytes, versions: self.versions }),
        }
    }

    fn add(&mut self, tensor: Tensor) -> TensorId {
        self.subgraph.add_tensor(tensor)
    }

    fn store(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.bytes.len().next_multiple_of(ALIGNMENT);
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Records an error, if it is the first one.
    pub(super) fn fail(&mut self, message: String) {
        self.error.get_or_insert(message);
    }

    fn infer(
        &self,
        node: &Node,
        outputs: usize,
        declared: Declared<'_>,
    ) -> Result<SmallVec<[Inferred; 2]>, String> {
        let Some(builtin) = node.op().builtin() else {
            return Err("only its author knows the outputs of a custom op".into());
        };
        let Some(definition) = ops::definition(builtin) else {
            return Err("this build does not know the op".into());
        };
        let mut inputs = SmallVec::with_capacity(node.inputs().len());
        for id in node.inputs() {
            let Some(id) = id else {
                inputs.push(None);
                continue;
            };
            let tensor = self.subgraph.tensors().get(id.0);
            let tensor = tensor.ok_or_else(|| format!("it reads tensor {}, which does not exist", id.0))?;
            let stored = tensor.data().filter(|_| tensor.sparsity().is_none());
            inputs.push(Some(InferTensor {
                ty: tensor.ty(),
                shape: tensor.shape(),
                quantization: tensor.quantization(),
                constant: stored.and_then(|range| self.bytes.get(range)),
            }));
        }
        let context = InferContext {
            params: node.params(),
            version: node.version(),
            inputs,
            outputs: std::iter::repeat_n(declared, outputs).collect(),
        };
        let inferred = (definition.infer)(&context).map_err(|e| e.to_string())?;
        match inferred.len() {
            n if n == outputs => Ok(inferred),
            n => Err(format!("it has {}, named: {outputs}", counted(n, "output"))),
        }
    }
}

/// Makes a node of a [`SubgraphBuilder`].
#[derive(Debug)]
#[must_use = "the node is added by `output`, `outputs` or `writes`"]
pub struct NodeBuilder<'g> {
    graph: &'g mut SubgraphBuilder,
    node: Node,
    version: Option<u32>,
    ty: Option<TensorType>,
    quantization: Option<Quantization>,
}

impl NodeBuilder<'_> {
    /// Sets the inputs of the node.
    pub fn inputs(self, ids: impl IntoIterator<Item = TensorId>) -> Self {
        self.optional_inputs(ids.into_iter().map(Some))
    }

    /// Sets the inputs of the node; `None` for an omitted optional input.
    pub fn optional_inputs(mut self, ids: impl IntoIterator<Item = Option<TensorId>>) -> Self {
        self.node.set_inputs(ids);
        self
    }

    /// Tensors that carry the quantization of values inside the op; `None` if a position is unused.
    pub fn intermediates(mut self, ids: impl IntoIterator<Item = Option<TensorId>>) -> Self {
        self.node.set_intermediates(ids);
        self
    }

    /// Sets the inputs that the node changes.
    pub fn mutating(mut self, inputs: impl Into<Vec<bool>>) -> Self {
        self.node.set_mutating_variable_inputs(inputs);
        self
    }

    /// Sets the version of the op. By default, a builtin op gets the lowest version that is sufficient for all its
    /// nodes without an explicit version.
    pub fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the options of a custom op: bytes that its kernel understands. Most kernels expect a FlexBuffer, as the
    /// `flexbuffers` crate makes it:
    ///
    /// ```
    /// # use delegraph_core::{ModelBuilder, SubgraphBuilder, TensorType};
    /// let mut options = flexbuffers::Builder::default();
    /// let mut map = options.start_map();
    /// map.push("alpha", 0.25f32);
    /// map.end_map();
    ///
    /// let mut graph = SubgraphBuilder::new("main");
    /// let x = graph.input("x", TensorType::Float32, [4]);
    /// let y = graph.tensor("y", TensorType::Float32, [4]);
    /// graph.custom("MyOp").inputs([x]).options(options.view()).writes([y]);
    /// graph.outputs([y]);
    /// let model = ModelBuilder::new().subgraph(graph).build()?;
    /// # assert_eq!(&model.bytes()[model.subgraphs()[0].nodes()[0].custom_options()], options.view());
    /// # Ok::<(), delegraph_core::Error>(())
    /// ```
    pub fn options(mut self, bytes: &[u8]) -> Self {
        self.node.set_custom_options(self.graph.store(bytes));
        self
    }

    /// Sets the element type of the outputs, for ops whose inputs and params do not determine it (QUANTIZE).
    pub fn output_type(mut self, ty: TensorType) -> Self {
        self.ty = Some(ty);
        self
    }

    /// Sets the quantization of the outputs. It is never inferred.
    pub fn output_quantization(mut self, quantization: Quantization) -> Self {
        self.quantization = Some(quantization);
        self
    }

    /// Adds the node and its only output, whose type and shape are inferred.
    pub fn output(self, name: &str) -> TensorId {
        let [id] = self.outputs([name]);
        id
    }

    /// Adds the node and its outputs, whose types and shapes are inferred. Where they depend on data or on another
    /// subgraph, make them with [`SubgraphBuilder::tensor`] and use [`NodeBuilder::writes`].
    pub fn outputs<const N: usize>(mut self, names: [&str; N]) -> [TensorId; N] {
        let first = self.node.inputs().iter().flatten().next();
        let first = first.and_then(|id| self.graph.subgraph.tensors().get(id.0)).map(|t| t.ty());
        let ty = self.ty.or(first).unwrap_or(TensorType::Float32);
        let shape = Shape::default();
        let quantization = self.quantization.take().map(Arc::new);
        let declared = Declared { ty, shape: &shape, quantization: quantization.as_deref() };
        // A newer version allows more in inference.
        let definition = self.node.op().builtin().and_then(ops::definition);
        let newest = definition.and_then(|d| d.history.last()).map_or(1, |(version, _)| *version);
        let probe = self.node.clone().with_version(self.version.unwrap_or(newest));
        let shapes = self.graph.infer(&probe, N, declared).and_then(|inferred| {
            let known = |output: Inferred| match output.shape {
                InferredShape::Known(shape) => Ok((output.ty, shape)),
                InferredShape::DataDependent => Err("the shape of its output depends on data".to_owned()),
                InferredShape::FromKernel => {
                    Err("the shape of its output depends on another subgraph".to_owned())
                }
            };
            inferred.into_iter().map(known).collect::<Result<Vec<_>, _>>()
        });
        let shapes = shapes.unwrap_or_else(|message| {
            let hint = "the outputs can be made with `tensor` and given with `writes`";
            self.fail(&names.join("\", \""), format!("{message}; {hint}"));
            Vec::new()
        });
        let mut shapes = shapes.into_iter();
        let ids = names.map(|name| {
            let (ty, shape) = shapes.next().unwrap_or((ty, shape.clone()));
            let quantization = quantization.clone();
            self.graph.add(Tensor::new(name, ty, shape).with_quantization(quantization))
        });
        self.writes(ids);
        ids
    }

    /// Adds the node, which writes these tensors.
    pub fn writes(mut self, ids: impl IntoIterator<Item = TensorId>) {
        self.node.set_outputs(ids);
        if let (Op::Custom(_), Some(version)) = (self.node.op(), self.version) {
            self.node.set_version(version);
        } else if let Some(version) = self.version {
            self.graph.versions.push((self.graph.subgraph.nodes().len(), version));
        }
        self.graph.subgraph.nodes_mut().push(self.node);
    }

    /// Records an error of the node that writes `names`.
    fn fail(&mut self, names: &str, message: String) {
        let (node, op) = (self.graph.subgraph.nodes().len(), self.node.op());
        let message = format!("node {node} ({op}, writes \"{names}\"): {message}");
        self.graph.fail(message);
    }
}
