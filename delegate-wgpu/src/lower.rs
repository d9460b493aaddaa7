//! What a family's `lower` function works with: the node's operands, and the graph that it adds steps to.

use std::borrow::Cow;
use std::collections::HashMap;

use delegraph_core::ops::{Declared, InferContext, InferTensor, WrongParams};
use delegraph_core::{NodeId, Params, TensorId, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, TensorInfo};
use delegraph_shaders::{Caps, ShaderError};

use crate::custom::WgpuOp;
use crate::device::Context;
use crate::graph::{Element, Graph, Source, Spec, Step, Value, ValueId, Weights};

/// A graph under construction.
pub(crate) struct Builder<'a, 'c> {
    pub graph: Graph<'a>,
    context: &'c Context,
    values: HashMap<TensorId, ValueId>,
}

impl<'a, 'c> Builder<'a, 'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Builder { graph: Graph::default(), context, values: HashMap::new() }
    }

    /// Custom ops of the application.
    pub(crate) fn custom_ops(&self) -> &'c [WgpuOp] {
        &self.context.custom_ops
    }

    /// Adds a tensor that the partition gets from elsewhere.
    pub(crate) fn add_input(&mut self, tensor: TensorInfo<'a>) -> Result<ValueId, Rejection> {
        let id = self.add(tensor, Source::Input, "input")?;
        self.graph.inputs.push(id);
        Ok(id)
    }

    /// Names a tensor that others read.
    pub(crate) fn add_output(&mut self, tensor: TensorInfo<'a>) -> Result<(), Rejection> {
        let missing = || Rejection::Other(format!("nothing computes tensor \"{}\"", tensor.name()));
        let id = self.values.get(&tensor.id()).copied().ok_or_else(missing)?;
        self.graph.outputs.push(id);
        Ok(())
    }

    fn add(
        &mut self,
        tensor: TensorInfo<'a>,
        source: Source<'a>,
        operand: &str,
    ) -> Result<ValueId, Rejection> {
        let element = match tensor.ty() {
            TensorType::Float32 => Element::F32,
            TensorType::Int32 => Element::I32,
            TensorType::Bool => Element::Bool,
            ty => return Err(Rejection::UnsupportedType { operand: operand.into(), ty }),
        };
        let value = Value { shape: self.shape_of(tensor)?, element, source };
        let id = self.graph.add(value);
        self.values.insert(tensor.id(), id);
        Ok(id)
    }

    /// The tensor's shape, where it is known, has elements and fits a binding.
    fn shape_of(&self, tensor: TensorInfo<'a>) -> Result<Vec<u32>, Rejection> {
        let name = tensor.name();
        let dynamic = || Rejection::DynamicShape { tensor: name.to_owned() };
        let dims = tensor.shape().ok_or_else(dynamic)?;
        if dims.contains(&0) {
            return Err(Rejection::UnsupportedParam(format!("tensor \"{name}\" has no elements")));
        }
        let limits = &self.context.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let too_large = || {
            let size = format!("tensor \"{name}\" of shape {dims} is above {most} bytes");
            Rejection::DeviceLimit(format!("{size}, the most that a shader can be given"))
        };
        let bytes = dims.checked_elements().and_then(|n| n.checked_mul(4)).ok_or_else(too_large)?;
        if u64::try_from(bytes).map_or(true, |bytes| bytes > most) {
            return Err(too_large());
        }
        dims.iter().map(|&d| u32::try_from(d).map_err(|_| too_large())).collect()
    }

    /// Constant data as the device holds it: one word per element.
    fn constant(tensor: TensorInfo<'a>) -> Result<Option<Cow<'a, [u8]>>, Rejection> {
        let Some(bytes) = tensor.constant() else { return Ok(None) };
        if tensor.tensor().sparsity.is_some() {
            return Err(Rejection::UnsupportedParam(format!("tensor \"{}\" is sparse", tensor.name())));
        }
        Ok(Some(match tensor.ty() {
            TensorType::Bool => {
                Cow::Owned(bytes.iter().flat_map(|&b| u32::from(b != 0).to_le_bytes()).collect())
            }
            _ => Cow::Borrowed(bytes),
        }))
    }
}

/// A node being lowered.
pub(crate) struct Lowering<'a, 'b, 'c> {
    node: NodeView<'a>,
    builder: &'b mut Builder<'a, 'c>,
    /// Whether this only asks if the node is supported: operands that no step computes count as inputs.
    trial: bool,
}

impl<'a, 'b, 'c> Lowering<'a, 'b, 'c> {
    pub(crate) fn new(node: NodeView<'a>, builder: &'b mut Builder<'a, 'c>, trial: bool) -> Self {
        Lowering { node, builder, trial }
    }

    /// The node.
    pub(crate) fn node(&self) -> NodeView<'a> {
        self.node
    }

    /// The node's typed params.
    pub(crate) fn params<T>(&self) -> Result<&'a T, Rejection>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        self.node.params().try_into().map_err(|e: WrongParams| unsupported(e.to_string()))
    }

    /// Input `i` on the device, of any type that the device holds.
    pub(crate) fn any_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        if let Some(id) = self.builder.values.get(&tensor.id()) {
            return Ok(*id);
        }
        if tensor.is_variable() {
            return Err(unsupported(format!("input {i} is a variable")));
        }
        let operand = format!("input {i}");
        if let Some(constant) = Builder::constant(tensor)? {
            return self.builder.add(tensor, Source::Constant(constant), &operand);
        }
        if self.trial {
            return self.builder.add(tensor, Source::Input, &operand);
        }
        Err(Rejection::Other(format!("nothing computes input {i} (\"{}\")", tensor.name())))
    }

    /// Input `i` on the device, which must be FLOAT32.
    pub(crate) fn input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.expect(i, TensorType::Float32)?;
        self.any_input(i)
    }

    /// Whether the node has input `i`.
    pub(crate) fn has_input(&self, i: usize) -> bool {
        self.node.input(i).is_some()
    }

    /// Whether the data of input `i` is known while preparing.
    pub(crate) fn is_constant(&self, i: usize) -> bool {
        self.node.input(i).is_some_and(|tensor| tensor.is_constant())
    }

    /// The shape of input `i`.
    pub(crate) fn input_shape(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        self.builder.shape_of(tensor)
    }

    /// Checks the type of input `i`.
    pub(crate) fn expect(&self, i: usize, wanted: TensorType) -> Result<(), Rejection> {
        match self.node.input(i) {
            Some(tensor) if tensor.ty() != wanted => {
                Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty: tensor.ty() })
            }
            _ => Ok(()),
        }
    }

    /// The constant elements of input `i`, which must be FLOAT32.
    pub(crate) fn constant(&self, i: usize) -> Result<&'a [f32], Rejection> {
        self.optional_constant(i)?.ok_or_else(|| unsupported(format!("input {i} is missing")))
    }

    /// The constant elements of input `i`, which must be FLOAT32, if the node has it.
    pub(crate) fn optional_constant(&self, i: usize) -> Result<Option<&'a [f32]>, Rejection> {
        let Some(tensor) = self.node.input(i) else { return Ok(None) };
        self.expect(i, TensorType::Float32)?;
        if tensor.tensor().sparsity.is_some() {
            return Err(unsupported(format!("input {i} is sparse")));
        }
        let elements =
            tensor.constant_as().ok_or_else(|| unsupported(format!("input {i} is not constant")))?;
        Ok(Some(elements))
    }

    /// The shape of input `i`, which must have rank 4.
    pub(crate) fn input_shape4(&self, i: usize) -> Result<[u32; 4], Rejection> {
        let shape = self.input_shape(i)?;
        shape
            .as_slice()
            .try_into()
            .map_err(|_| unsupported(format!("input {i} has rank {}, not 4", shape.len())))
    }

    /// The constant integers of input `i`: an axis, paddings, a permutation.
    pub(crate) fn integers(&self, i: usize) -> Result<Vec<i64>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        let not_constant = || unsupported(format!("input {i} is not constant"));
        match tensor.ty() {
            TensorType::Int32 => {
                let elements: &[i32] = tensor.constant_as().ok_or_else(not_constant)?;
                Ok(elements.iter().map(|&v| v.into()).collect())
            }
            TensorType::Int64 => tensor.constant_as().map(<[i64]>::to_vec).ok_or_else(not_constant),
            ty => Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty }),
        }
    }

    /// Output `i` on the device.
    pub(crate) fn output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        if let Some(id) = self.builder.values.get(&tensor.id()) {
            return Ok(*id);
        }
        self.builder.add(tensor, Source::Steps, &format!("output {i}"))
    }

    /// What the device offers.
    pub(crate) fn caps(&self) -> &'c Caps {
        &self.builder.context.caps
    }

    /// A value between two steps of this node, of a shape that nobody checked yet.
    pub(crate) fn checked_temporary(&mut self, shape: &[u32]) -> Result<ValueId, Rejection> {
        let limits = &self.builder.context.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let bytes = shape.iter().try_fold(4u64, |bytes, &d| bytes.checked_mul(d.into()));
        match bytes.filter(|&bytes| bytes > 0 && bytes <= most) {
            Some(_) => Ok(self.temporary(shape)),
            None => {
                Err(Rejection::DeviceLimit(format!("a temporary of shape {shape:?}, at most {most} bytes")))
            }
        }
    }

    /// A value between two steps of this node.
    pub(crate) fn temporary(&mut self, shape: &[u32]) -> ValueId {
        self.builder.graph.add(Value { shape: shape.to_vec(), element: Element::F32, source: Source::Steps })
    }

    /// Says that output `i` is the bytes of `of` from `offset` on, a multiple of [`Lowering::view_alignment`].
    pub(crate) fn alias(&mut self, i: usize, of: ValueId, offset: u64) -> Result<(), Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        let source = Source::View { of, offset };
        self.builder.add(tensor, source, &format!("output {i}")).map(drop)
    }

    /// Where in another value's memory a value may begin, in bytes.
    pub(crate) fn view_alignment(&self) -> u64 {
        self.builder.context.limits.min_storage_buffer_offset_alignment.into()
    }

    /// The node as shape inference sees it, for what the op definitions work out of operands.
    pub(crate) fn infer(&self) -> InferContext<'a> {
        let node = self.node;
        let input = |i| {
            let tensor = node.input(i)?;
            let (quantization, constant) = (tensor.quantization(), tensor.constant());
            Some(InferTensor { ty: tensor.ty(), shape: &tensor.tensor().shape, quantization, constant })
        };
        let output = |tensor: TensorInfo<'a>| Declared {
            ty: tensor.ty(),
            shape: &tensor.tensor().shape,
            quantization: tensor.quantization(),
        };
        InferContext {
            params: node.params(),
            version: node.version(),
            inputs: (0..node.num_inputs()).map(input).collect(),
            outputs: node.outputs().map(output).collect(),
        }
    }

    /// The shape of output `i`.
    pub(crate) fn output_shape(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        self.builder.shape_of(tensor)
    }

    /// The shape of a value.
    pub(crate) fn shape(&self, id: ValueId) -> Vec<u32> {
        self.builder.graph.value(id).shape.clone()
    }

    /// The shape of a value that must have rank 4.
    pub(crate) fn shape4(&self, id: ValueId) -> Result<[u32; 4], Rejection> {
        let shape = &self.builder.graph.value(id).shape;
        shape.as_slice().try_into().map_err(|_| unsupported(format!("rank {} instead of 4", shape.len())))
    }

    /// What a value holds.
    pub(crate) fn element(&self, id: ValueId) -> Element {
        self.builder.graph.value(id).element
    }

    /// Adds a step.
    pub(crate) fn push(
        &mut self,
        spec: impl Into<Spec>,
        inputs: &[ValueId],
        output: ValueId,
    ) -> Result<(), Rejection> {
        self.push_step(spec.into(), inputs, None, output)
    }

    /// Adds a step with a filter and perhaps a bias.
    pub(crate) fn push_weighted(
        &mut self,
        spec: impl Into<Spec>,
        input: ValueId,
        filter: &'a [f32],
        bias: Option<&'a [f32]>,
        output: ValueId,
    ) -> Result<(), Rejection> {
        let weights = Weights { filter: filter.into(), bias: bias.map(Into::into) };
        self.push_step(spec.into(), &[input], Some(weights), output)
    }

    fn push_step(
        &mut self,
        spec: Spec,
        inputs: &[ValueId],
        weights: Option<Weights<'a>>,
        output: ValueId,
    ) -> Result<(), Rejection> {
        spec.kernel(&self.builder.context.caps).map_err(|e| match e {
            ShaderError::Template { .. } => Rejection::Other(e.to_string()),
            _ => unsupported(e.to_string()),
        })?;
        let most = self.builder.context.limits.max_storage_buffer_binding_size;
        if let Some(weights) = weights.as_ref().filter(|w| size_of_val(&*w.filter) as u64 > most) {
            let bytes = size_of_val(&*weights.filter);
            return Err(Rejection::DeviceLimit(format!(
                "weights of {bytes} bytes, a shader can be given {most}"
            )));
        }
        let nodes: Vec<NodeId> = vec![self.node.id()];
        let (residual, slope) = (None, None);
        let inputs = inputs.to_vec();
        self.builder.graph.steps.push(Step { spec, inputs, weights, residual, slope, output, nodes });
        Ok(())
    }
}

/// A rejection for a param, a shape or a combination of operands.
pub(crate) fn unsupported(text: impl Into<String>) -> Rejection {
    Rejection::UnsupportedParam(text.into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{T, support};
    use delegraph_core::{BuiltinOp, Params};
    use delegraph_delegate_api::Rejection;

    #[test]
    fn types_and_empty_tensors_are_rejected_with_their_operand() {
        let check = |input: T, output: T, expected: Rejection| {
            let said = support(BuiltinOp::EXP, 1, Params::None, &[Some(input)], &[output]);
            assert!(said.is_none_or(|said| said == Err(expected.clone())), "expected {expected}");
        };
        let bytes = T::new(&[2], &[1_i8, 2]);
        let ty = delegraph_core::TensorType::Int8;
        check(bytes.clone(), bytes, Rejection::UnsupportedType { operand: "input 0".into(), ty });
        let empty = T::new::<f32>(&[0], &[]);
        let reason = Rejection::UnsupportedParam("tensor \"t\" has no elements".into());
        check(empty.clone(), empty, reason);
    }
}
