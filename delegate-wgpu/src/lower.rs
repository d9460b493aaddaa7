//! What a family's `lower` function works with: the node's operands, and the graph that it adds steps to.

use std::borrow::Cow;
use std::collections::HashMap;

use delegraph_core::ops::{Declared, InferContext, InferTensor, WrongParams};
use delegraph_core::quantized::Steps;
use delegraph_core::{NodeId, Params, Quantization, TensorId, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, TensorInfo};
use delegraph_shaders::quantize::{self, Affine, Direction};
use delegraph_shaders::{Caps, ShaderError};

use crate::context::Facts;
use crate::custom::WgpuOp;
use crate::graph::{Element, Graph, Source, Spec, Step, Value, ValueId, Weights};
use crate::ops::Product;
use crate::words::Words;

/// A graph under construction.
pub(crate) struct Builder<'a, 'c> {
    pub graph: Graph<'a>,
    context: &'c Facts,
    values: HashMap<TensorId, ValueId>,
    /// What quantized values stand for, where a step has computed that.
    reals: HashMap<ValueId, ValueId>,
    /// Variables that a node gave a new value, which `values` has.
    written: Vec<TensorId>,
}

impl<'a, 'c> Builder<'a, 'c> {
    pub(crate) fn new(context: &'c Facts) -> Self {
        Builder {
            graph: Graph::default(),
            context,
            values: HashMap::new(),
            reals: HashMap::new(),
            written: Vec::new(),
        }
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

    /// Names the new values of variables, which are among the partition's `inputs`.
    pub(crate) fn add_states(&mut self, inputs: &[TensorId]) {
        for (i, id) in inputs.iter().enumerate().filter(|(_, id)| self.written.contains(id)) {
            if let Some(&value) = self.values.get(id) {
                self.graph.states.push(i);
                self.graph.outputs.push(value);
            }
        }
    }

    fn add(
        &mut self,
        tensor: TensorInfo<'a>,
        source: Source<'a>,
        operand: &str,
    ) -> Result<ValueId, Rejection> {
        let unsupported = || Rejection::UnsupportedType { operand: operand.into(), ty: tensor.ty() };
        let (element, how) = Words::of(tensor.ty()).ok_or_else(unsupported)?;
        let quantization = affine(tensor);
        let mut shape = self.shape_of(tensor)?;
        if how == Words::Pairs {
            shape.push(2);
        }
        let value = Value { shape, element, how, quantization, source };
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
        let each = if tensor.ty() == TensorType::Complex64 { 8 } else { 4 };
        let bytes = dims.checked_elements().and_then(|n| n.checked_mul(each)).ok_or_else(too_large)?;
        if u64::try_from(bytes).map_or(true, |bytes| bytes > most) {
            return Err(too_large());
        }
        dims.iter().map(|&d| u32::try_from(d).map_err(|_| too_large())).collect()
    }

    /// Constant data; what is sparse, in its dense form.
    fn dense(tensor: TensorInfo<'a>) -> Result<Option<Cow<'a, [u8]>>, Rejection> {
        let (Some(bytes), Some(sparsity)) = (tensor.constant(), &tensor.tensor().sparsity) else {
            return Ok(tensor.constant().map(Cow::Borrowed));
        };
        let shape = &tensor.tensor().shape;
        let wrong = |e: String| Rejection::UnsupportedParam(format!("tensor \"{}\": {e}", tensor.name()));
        let element = tensor.ty().bits().filter(|bits| bits.is_multiple_of(8)).map_or(0, |bits| bits / 8);
        let size = shape.checked_elements().and_then(|n| n.checked_mul(element)).filter(|n| *n > 0);
        let mut dense = vec![0; size.ok_or_else(|| wrong("sparse data of this size".into()))?];
        sparsity.densify(shape, element, bytes, &mut dense).map_err(|e| wrong(e.to_string()))?;
        Ok(Some(Cow::Owned(dense)))
    }

    /// Constant data as the device holds it: one word per element.
    fn constant(tensor: TensorInfo<'a>) -> Result<Option<Cow<'a, [u8]>>, Rejection> {
        let Some(bytes) = Self::dense(tensor)? else { return Ok(None) };
        Ok(Some(match Words::of(tensor.ty()) {
            Some((_, how)) if !how.are_kept() => {
                let mut words = how.widened(&bytes);
                // Elements that share a byte may leave a part of the last one over.
                words.truncate(tensor.tensor().shape.elements().saturating_mul(4));
                words.into()
            }
            _ => bytes,
        }))
    }
}

/// Whether several elements share a byte in the model.
fn is_packed(ty: TensorType) -> bool {
    Words::of(ty).is_some_and(|(_, how)| how.are_packed())
}

/// What the integers of a tensor stand for, if that is the same for all of them.
fn affine(tensor: TensorInfo<'_>) -> Option<Affine> {
    let (low, high) = match tensor.ty() {
        TensorType::Int8 => (-128, 127),
        TensorType::UInt8 => (0, 255),
        TensorType::Int16 => (-32768, 32767),
        TensorType::Int4 => (-8, 7),
        TensorType::UInt4 => (0, 15),
        TensorType::Int2 => (-2, 1),
        _ => return None,
    };
    let (scale, zero) = tensor.quantization()?.scale_zero_point()?;
    let usable = scale.is_finite() && scale > 0.0 && (low..=high).contains(&zero);
    usable.then_some(Affine { scale, zero, low, high })
}

/// A node being lowered.
pub(crate) struct Lowering<'a, 'b, 'c> {
    node: NodeView<'a>,
    builder: &'b mut Builder<'a, 'c>,
    /// Whether this only asks if the node is supported: operands that no step computes count as inputs.
    trial: bool,
    /// Results that are to be rounded to the steps of an output.
    rounded: Vec<(ValueId, ValueId)>,
}

impl<'a, 'b, 'c> Lowering<'a, 'b, 'c> {
    pub(crate) fn new(node: NodeView<'a>, builder: &'b mut Builder<'a, 'c>, trial: bool) -> Self {
        Lowering { node, builder, trial, rounded: Vec::new() }
    }

    /// The node.
    pub(crate) fn node(&self) -> NodeView<'a> {
        self.node
    }

    /// Whether a value's integers may stand for real numbers in this node.
    fn is_quantized(&self, id: ValueId) -> bool {
        let value = self.builder.graph.value(id);
        self.is_bytes(id) && value.quantization.is_some()
    }

    /// The node's typed params.
    pub(crate) fn params<T>(&self) -> Result<&'a T, Rejection>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        self.node.params().try_into().map_err(|e: WrongParams| unsupported(e.to_string()))
    }

    /// Input `i` on the device, of any type of which the device holds an element in a word.
    pub(crate) fn any_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.ty(i) {
            Some(ty) if is_packed(ty) => Err(self.wrong_type(i)),
            _ => self.moved_input(i),
        }
    }

    /// The same, of types too of which several elements share a byte, for ops that move elements or know each type.
    pub(crate) fn moved_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.ty(i) {
            Some(TensorType::Complex64) => Err(self.wrong_type(i)),
            _ => self.held_input(i),
        }
    }

    /// Input `i`, complex numbers: the last dimension of the value is for the two parts.
    pub(crate) fn complex_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.expect(i, TensorType::Complex64)?;
        self.held_input(i)
    }

    /// Input `i` on the device, of any type that the device holds; see [`Lowering::complex_input`].
    pub(crate) fn held_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
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

    /// The value of input `i`, a variable of floats or any other input: what the last node that wrote it left there.
    pub(crate) fn state(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.state_of(i, TensorType::Float32)
    }

    /// The same where it has elements of another type.
    pub(crate) fn state_of(&mut self, i: usize, ty: TensorType) -> Result<ValueId, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        if tensor.ty() != ty {
            return Err(self.wrong_type(i));
        }
        if self.trial && tensor.is_variable() && !self.builder.values.contains_key(&tensor.id()) {
            return self.builder.add(tensor, Source::Input, &format!("input {i}"));
        }
        self.any_input(i)
    }

    /// Gives input `i`, where it is a variable, the value that `of` has from `offset` on, a multiple of
    /// [`Lowering::view_alignment`].
    pub(crate) fn set_state(&mut self, i: usize, of: ValueId, offset: u64) -> Result<(), Rejection> {
        let Some(tensor) = self.node.input(i).filter(|tensor| tensor.is_variable()) else { return Ok(()) };
        self.builder.add(tensor, Source::View { of, offset }, &format!("input {i}"))?;
        if !self.builder.written.contains(&tensor.id()) {
            self.builder.written.push(tensor.id());
        }
        Ok(())
    }

    /// The real numbers of input `i` on the device: floats, or what a quantized input stands for.
    pub(crate) fn input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let id = self.any_input(i)?;
        let value = self.builder.graph.value(id);
        if value.element == Element::F32 {
            return Ok(id);
        }
        let Some(affine) = value.quantization.filter(|_| self.is_quantized(id)) else {
            return Err(self.wrong_type(i));
        };
        if let Some(&real) = self.builder.reals.get(&id) {
            return Ok(real);
        }
        let shape = value.shape.clone();
        let real = match &value.source {
            Source::Constant(words) => {
                let words = words.as_chunks::<4>().0.iter().map(|w| i32::from_le_bytes(*w));
                let reals: Vec<f32> = words.map(|q| affine.scale * (q - affine.zero) as f32).collect();
                let source = Source::Constant(bytemuck::pod_collect_to_vec(&reals).into());
                self.builder.graph.add(Value::new(&shape, Element::F32, source))
            }
            _ => {
                let real = self.temporary(&shape);
                let elements = shape.iter().product();
                self.push(quantize::Spec { affine, direction: Direction::ToReal, elements }, &[id], real)?;
                real
            }
        };
        self.builder.reals.insert(id, real);
        Ok(real)
    }

    /// Whether a value holds integers of 8 bits.
    pub(crate) fn is_bytes(&self, id: ValueId) -> bool {
        matches!(self.builder.graph.value(id).how, Words::I8 | Words::U8)
    }

    /// Whether a value's integers take less than a word in the model, so that arithmetic on words differs.
    pub(crate) fn is_narrow(&self, id: ValueId) -> bool {
        self.narrow(id).is_some()
    }

    /// Bits of a value's integers in the model, and whether they are signed, where they take less than a word.
    pub(crate) fn narrow(&self, id: ValueId) -> Option<(u32, bool)> {
        match self.builder.graph.value(id).how {
            Words::I2 => Some((2, true)),
            Words::I4 => Some((4, true)),
            Words::U4 => Some((4, false)),
            Words::I8 => Some((8, true)),
            Words::U8 => Some((8, false)),
            Words::I16 => Some((16, true)),
            Words::U16 => Some((16, false)),
            _ => None,
        }
    }

    /// What the integers of a value stand for, which must be a scale of their own.
    pub(crate) fn steps(&self, id: ValueId) -> Result<Steps, Rejection> {
        let affine = self.affine(id).ok_or_else(|| unsupported("integers without a scale of their own"))?;
        let Affine { scale, zero, low, high } = affine;
        Ok(Steps { scale, zero, low, high })
    }

    /// What the integers of a value stand for.
    pub(crate) fn affine(&self, id: ValueId) -> Option<Affine> {
        self.builder.graph.value(id).quantization
    }

    /// A rejection for the type of input `i`.
    pub(crate) fn wrong_type(&self, i: usize) -> Rejection {
        let ty = self.node.input(i).map_or(TensorType::Float32, |tensor| tensor.ty());
        Rejection::UnsupportedType { operand: format!("input {i}"), ty }
    }

    /// The type of input `i`.
    pub(crate) fn ty(&self, i: usize) -> Option<TensorType> {
        self.node.input(i).map(|tensor| tensor.ty())
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

    /// The constant elements of input `i`, which must be floats.
    pub(crate) fn constant(&self, i: usize) -> Result<Cow<'a, [f32]>, Rejection> {
        self.optional_constant(i)?.ok_or_else(|| unsupported(format!("input {i} is missing")))
    }

    /// The constant elements of input `i`, which must be floats, if the node has it.
    pub(crate) fn optional_constant(&self, i: usize) -> Result<Option<Cow<'a, [f32]>>, Rejection> {
        let Some(tensor) = self.node.input(i) else { return Ok(None) };
        if !matches!(Words::of(tensor.ty()), Some((Element::F32, how)) if how != Words::Pairs) {
            return Err(self.wrong_type(i));
        }
        let words = Builder::constant(tensor)?;
        let words = words.ok_or_else(|| unsupported(format!("input {i} is not constant")))?;
        Ok(Some(match words {
            Cow::Borrowed(bytes) => match bytemuck::try_cast_slice(bytes) {
                Ok(elements) => Cow::Borrowed(elements),
                Err(_) => bytemuck::pod_collect_to_vec(bytes).into(),
            },
            Cow::Owned(bytes) => bytemuck::pod_collect_to_vec(&bytes).into(),
        }))
    }

    /// The quantization of input `i`.
    pub(crate) fn quantization(&self, i: usize) -> Option<&'a Quantization> {
        self.node.input(i).and_then(|tensor| tensor.quantization())
    }

    /// The constant bytes of input `i`; sparse ones in their dense form.
    pub(crate) fn dense_bytes(&self, i: usize) -> Result<Cow<'a, [u8]>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        let bytes = Builder::dense(tensor)?;
        bytes.ok_or_else(|| unsupported(format!("input {i} is not constant")))
    }

    /// The constant words of input `i`, of any type that the device holds.
    pub(crate) fn constant_words(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        if is_packed(tensor.ty()) || matches!(Words::of(tensor.ty()), None | Some((_, Words::Pairs))) {
            return Err(self.wrong_type(i));
        }
        let words = Builder::constant(tensor)?;
        let words = words.ok_or_else(|| unsupported(format!("input {i} is not constant")))?;
        Ok(bytemuck::pod_collect_to_vec(&words))
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
        match self.node.output(i).map(|tensor| tensor.ty()) {
            Some(ty) if is_packed(ty) => {
                Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty })
            }
            _ => self.moved_output(i),
        }
    }

    /// Output `i` on the device, as [`Lowering::moved_input`] has inputs.
    pub(crate) fn moved_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.node.output(i).map(|tensor| tensor.ty()) {
            Some(ty @ TensorType::Complex64) => {
                Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty })
            }
            _ => self.held_output(i),
        }
    }

    /// Output `i` on the device, which may be complex numbers, as those of [`Lowering::complex_input`].
    pub(crate) fn held_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
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
        self.check_size(shape)?;
        Ok(self.temporary(shape))
    }

    /// Checks that a value of this shape, which the model doesn't have, is one that the device can have.
    pub(crate) fn check_size(&self, shape: &[u32]) -> Result<(), Rejection> {
        let limits = &self.builder.context.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let bytes = shape.iter().try_fold(4u64, |bytes, &d| bytes.checked_mul(d.into()));
        match bytes.filter(|&bytes| bytes > 0 && bytes <= most) {
            Some(_) => Ok(()),
            None => {
                Err(Rejection::DeviceLimit(format!("a temporary of shape {shape:?}, at most {most} bytes")))
            }
        }
    }

    /// Where a step writes the real numbers of output `i`. Those of a quantized output are rounded to its steps when
    /// the node is complete.
    pub(crate) fn real_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let id = self.output(i)?;
        let value = self.builder.graph.value(id);
        if value.element == Element::F32 {
            return Ok(id);
        }
        if !self.is_quantized(id) {
            let ty = self.node.output(i).map_or(TensorType::Float32, |tensor| tensor.ty());
            return Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty });
        }
        let shape = value.shape.clone();
        let real = self.temporary(&shape);
        self.rounded.push((real, id));
        Ok(real)
    }

    /// Rounds what is to be rounded. Called once, after the node's own steps.
    pub(crate) fn finish(&mut self) -> Result<(), Rejection> {
        for (real, id) in std::mem::take(&mut self.rounded) {
            self.round(real, id, Direction::Away)?;
        }
        Ok(())
    }

    /// Adds a step that rounds real numbers to the integers of `to`.
    pub(crate) fn round(
        &mut self,
        real: ValueId,
        to: ValueId,
        direction: Direction,
    ) -> Result<(), Rejection> {
        let affine = self.affine(to).ok_or_else(|| unsupported("an output without a scale"))?;
        let elements = self.shape(to).iter().product();
        self.push(quantize::Spec { affine, direction, elements }, &[real], to)
    }

    /// A value of floats between two steps of this node.
    pub(crate) fn temporary(&mut self, shape: &[u32]) -> ValueId {
        self.temporary_of(shape, Element::F32)
    }

    /// A value between two steps of this node.
    pub(crate) fn temporary_of(&mut self, shape: &[u32], element: Element) -> ValueId {
        self.builder.graph.add(Value::new(shape, element, Source::Steps))
    }

    /// The floats of another value from `offset` on, a multiple of [`Lowering::view_alignment`].
    pub(crate) fn view(&mut self, of: ValueId, shape: &[u32], offset: u64) -> ValueId {
        self.builder.graph.add(Value::new(shape, Element::F32, Source::View { of, offset }))
    }

    /// A value between two steps that holds what another one holds, whatever its shape.
    pub(crate) fn temporary_like(&mut self, shape: &[u32], other: ValueId) -> ValueId {
        let Value { element, how, quantization, .. } = *self.builder.graph.value(other);
        let value = Value { shape: shape.to_vec(), element, how, quantization, source: Source::Steps };
        self.builder.graph.add(value)
    }

    /// A constant that the model doesn't have.
    pub(crate) fn new_constant<T: bytemuck::Pod>(
        &mut self,
        shape: &[u32],
        element: Element,
        data: &[T],
    ) -> ValueId {
        let source = Source::Constant(bytemuck::pod_collect_to_vec(data).into());
        self.builder.graph.add(Value::new(shape, element, source))
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

    /// The shape of output `i`, which must have rank 4.
    pub(crate) fn output_shape4(&self, i: usize) -> Result<[u32; 4], Rejection> {
        let shape = self.output_shape(i)?;
        shape
            .as_slice()
            .try_into()
            .map_err(|_| unsupported(format!("output {i} has rank {}, not 4", shape.len())))
    }

    /// Whether input `i` has scales that differ from channel to channel.
    pub(crate) fn has_scales_per_channel(&self, i: usize) -> bool {
        let affine = self.quantization(i).and_then(|q| q.affine());
        affine.is_some_and(|a| a.scales.iter().any(|scale| Some(scale) != a.scales.first()))
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
        filter: Cow<'a, [f32]>,
        bias: Option<Cow<'a, [f32]>>,
        output: ValueId,
    ) -> Result<(), Rejection> {
        let weights = Weights::Floats { filter, bias };
        self.push_step(spec.into(), &[input], Some(weights), output)
    }

    /// Adds a step with weights of integers.
    pub(crate) fn push_product(
        &mut self,
        spec: impl Into<Spec>,
        product: Product<'a>,
    ) -> Result<(), Rejection> {
        self.push_step(spec.into(), &product.inputs, Some(product.weights), product.output)
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
        if let Some(bytes) = weights.as_ref().map(Weights::bytes).filter(|bytes| *bytes > most) {
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
