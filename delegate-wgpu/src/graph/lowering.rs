//! The context of a family's `lower` function: the node's operands, and the graph that receives its steps.

use std::borrow::Cow;

use delegraph_core::ops::variables::mismatch;
use delegraph_core::ops::{Declared, InferContext, InferTensor, WrongParams};
use delegraph_core::quantized::Steps;
use delegraph_core::{NodeId, Params, Quantization, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, TensorInfo};
use delegraph_shaders::check::{self, Condition};
use delegraph_shaders::quantize::{self, Affine, Direction};
use delegraph_shaders::{Caps, Epilogue, Shader, ShaderError, long};

use crate::graph::builder::{Builder, is_packed};
use crate::graph::storage_format::StorageFormat;
use crate::graph::{Check, Element, Fault, Resource, Source, Spec, Step, Table, Value, ValueId, Weights};

/// The epilogue and the operands of a step that multiplies integers.
pub(crate) struct Product<'a> {
    pub epilogue: Epilogue,
    pub inputs: Vec<ValueId>,
    pub weights: Weights<'a>,
    pub output: ValueId,
}

/// A node being lowered.
pub(crate) struct Lowering<'a, 'b, 'c> {
    node: NodeView<'a>,
    builder: &'b mut Builder<'a, 'c>,
    /// Whether only support is queried: operands without a producer count as inputs.
    trial: bool,
    /// Real results with the quantized outputs that they are rounded to.
    rounded: Vec<(ValueId, ValueId)>,
}

impl<'a, 'b, 'c> Lowering<'a, 'b, 'c> {
    pub(crate) fn new(node: NodeView<'a>, builder: &'b mut Builder<'a, 'c>, trial: bool) -> Self {
        Lowering { node, builder, trial, rounded: Vec::new() }
    }

    /// Returns the node.
    pub(crate) fn node(&self) -> NodeView<'a> {
        self.node
    }

    /// Whether a value holds 8-bit integers that a single scale maps to real numbers.
    fn is_quantized(&self, id: ValueId) -> bool {
        let value = self.builder.graph.value(id);
        self.is_bytes(id) && value.quantization.is_some()
    }

    /// Returns the node's typed params.
    pub(crate) fn params<T>(&self) -> Result<&'a T, Rejection>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        self.node.params().try_into().map_err(|e: WrongParams| unsupported(e.to_string()))
    }

    /// Input `i` on the device, of any type except packed ones (several elements per byte) and those of 64 bits.
    pub(crate) fn any_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.ty(i) {
            Some(ty) if is_packed(ty) => Err(self.wrong_type(i)),
            _ => self.moved_input(i),
        }
    }

    /// As [`Lowering::any_input`], including packed types: for ops that move elements or handle each type.
    pub(crate) fn moved_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.ty(i) {
            Some(TensorType::Complex64 | TensorType::Int64) => Err(self.wrong_type(i)),
            _ => self.held_input(i),
        }
    }

    /// Input `i` of complex numbers: the value has an innermost dimension for the real and imaginary parts.
    pub(crate) fn complex_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.expect(i, TensorType::Complex64)?;
        self.held_input(i)
    }

    /// Input `i` of 64-bit integers: the value has an innermost dimension for the two words.
    pub(crate) fn long_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.expect(i, TensorType::Int64)?;
        self.held_input(i)
    }

    /// Output `i`, of 64-bit integers: see [`Lowering::long_input`].
    pub(crate) fn long_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.node.output(i).map(|tensor| tensor.ty()) {
            Some(TensorType::Int64) => self.held_output(i),
            ty => {
                let ty = ty.unwrap_or(TensorType::Float32);
                Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty })
            }
        }
    }

    /// Input `i` of INT32 or INT64 indices as 32-bit integers. An index that does not fit 32 bits is saturated, and is
    /// still outside of every dimension.
    pub(crate) fn index_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        if self.ty(i) != Some(TensorType::Int64) {
            self.expect(i, TensorType::Int32)?;
            return self.any_input(i);
        }
        let shape = self.input_shape(i)?;
        if self.is_constant(i) {
            let near = |index: i64| index.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            let indices: Vec<i32> = self.integers(i)?.into_iter().map(near).collect();
            return Ok(self.new_constant(&shape, Element::I32, &indices));
        }
        let input = self.long_input(i)?;
        let narrowed = self.temporary_of(&shape, Element::I32);
        let elements = shape.iter().product();
        self.push(long::Convert { narrows: true, elements }, &[input], narrowed)?;
        Ok(narrowed)
    }

    /// Input `i` on the device, of any type that the device stores; see [`Lowering::complex_input`].
    pub(crate) fn held_input(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        if let Some(id) = self.builder.values.get(&tensor.id()) {
            return Ok(*id);
        }
        if tensor.is_variable() {
            return Err(unsupported(format!("input {i} is a variable; only other tensors are supported")));
        }
        let operand = format!("input {i}");
        if let Some(constant) = Builder::constant(tensor)? {
            return self.builder.add(tensor, Source::Constant(constant), &operand);
        }
        if self.trial {
            return self.builder.add(tensor, Source::Input, &operand);
        }
        Err(Rejection::Other(format!("input {i} (\"{}\") has no producer", tensor.name())))
    }

    /// Returns the current value of input `i`, a FLOAT32 variable or any other FLOAT32 input: the last node that
    /// assigned the variable determines it.
    pub(crate) fn state(&mut self, i: usize) -> Result<ValueId, Rejection> {
        self.state_of(i, TensorType::Float32)
    }

    /// As [`Lowering::state`], for elements of another type.
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

    /// Assigns the bytes of `of` from `offset` on to input `i`, where it is a variable. `offset` is a multiple of
    /// [`Lowering::view_alignment`].
    pub(crate) fn set_state(&mut self, i: usize, of: ValueId, offset: u64) -> Result<(), Rejection> {
        let Some(tensor) = self.node.input(i).filter(|tensor| tensor.is_variable()) else { return Ok(()) };
        self.builder.add(tensor, Source::View { of, offset }, &format!("input {i}"))?;
        if !self.builder.written.contains(&tensor.id()) {
            self.builder.written.push(tensor.id());
        }
        Ok(())
    }

    /// Makes output 0 the current value of a resource variable.
    pub(crate) fn read_resource(&mut self, handle: i32) -> Result<(), Rejection> {
        let tensor = self.node.output(0).ok_or_else(|| unsupported("output 0 is missing"))?;
        let shape = tensor.shape().cloned().unwrap_or_default();
        let (ty, node) = (tensor.ty(), self.node.id());
        match self.builder.resources.get(&handle) {
            None => {
                let value = self.builder.add(tensor, Source::Input, "output 0")?;
                let read = Resource { handle, tensor: tensor.id(), ty, shape, value, node };
                self.builder.resources.insert(handle, read.clone());
                self.builder.graph.read.push(read);
            }
            Some(held) if held.ty == ty && held.shape == shape => {
                let value = held.value;
                self.alias(0, value, 0)?;
            }
            Some(held) => {
                let text = mismatch((held.ty, &held.shape), (ty, &shape));
                self.held_output(0)?;
                self.builder.graph.contradiction.get_or_insert((node, text));
            }
        }
        Ok(())
    }

    /// Makes `value`, which is input 1, the current value of a resource variable.
    pub(crate) fn assign_resource(&mut self, handle: i32, value: ValueId) -> Result<(), Rejection> {
        let tensor = self.node.input(1).ok_or_else(|| unsupported("input 1 is missing"))?;
        let shape = tensor.shape().cloned().unwrap_or_default();
        let assigned =
            Resource { handle, tensor: tensor.id(), ty: tensor.ty(), shape, value, node: self.node.id() };
        self.builder.resources.insert(handle, assigned.clone());
        let all = &mut self.builder.graph.assigned;
        all.retain(|earlier| earlier.handle != handle);
        all.push(assigned);
        Ok(())
    }

    /// Returns the real numbers of input `i` on the device: floats, or dequantized integers.
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

    /// Returns whether a value holds 8-bit integers.
    pub(crate) fn is_bytes(&self, id: ValueId) -> bool {
        matches!(self.builder.graph.value(id).format, StorageFormat::I8 | StorageFormat::U8)
    }

    /// Returns whether a value's integers are narrower than a word in the model, so that arithmetic on words gives
    /// other results.
    pub(crate) fn is_narrow(&self, id: ValueId) -> bool {
        self.narrow(id).is_some()
    }

    /// Bits and signedness of a value's integers in the model, where they are narrower than a word.
    pub(crate) fn narrow(&self, id: ValueId) -> Option<(u32, bool)> {
        match self.builder.graph.value(id).format {
            StorageFormat::I2 => Some((2, true)),
            StorageFormat::I4 => Some((4, true)),
            StorageFormat::U4 => Some((4, false)),
            StorageFormat::I8 => Some((8, true)),
            StorageFormat::U8 => Some((8, false)),
            StorageFormat::I16 => Some((16, true)),
            StorageFormat::U16 => Some((16, false)),
            _ => None,
        }
    }

    /// Returns the quantization of a value, which must have a single scale.
    pub(crate) fn steps(&self, id: ValueId) -> Result<Steps, Rejection> {
        let affine = self.affine(id).ok_or_else(no_scale)?;
        let Affine { scale, zero, low, high } = affine;
        Ok(Steps { scale, zero, low, high })
    }

    /// Returns the quantization of a value if all elements share it.
    pub(crate) fn affine(&self, id: ValueId) -> Option<Affine> {
        self.builder.graph.value(id).quantization
    }

    /// Returns a rejection of input `i` for its type.
    pub(crate) fn wrong_type(&self, i: usize) -> Rejection {
        let ty = self.node.input(i).map_or(TensorType::Float32, |tensor| tensor.ty());
        Rejection::UnsupportedType { operand: format!("input {i}"), ty }
    }

    /// Returns the type of input `i`.
    pub(crate) fn ty(&self, i: usize) -> Option<TensorType> {
        self.node.input(i).map(|tensor| tensor.ty())
    }

    /// Returns whether the node has input `i`.
    pub(crate) fn has_input(&self, i: usize) -> bool {
        self.node.input(i).is_some()
    }

    /// Returns whether the data of input `i` is constant.
    pub(crate) fn is_constant(&self, i: usize) -> bool {
        self.node.input(i).is_some_and(|tensor| tensor.is_constant())
    }

    /// Returns the shape of input `i`.
    pub(crate) fn input_shape(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        self.builder.shape_of(tensor)
    }

    /// Checks the type of input `i`, if the node has this input.
    pub(crate) fn expect(&self, i: usize, wanted: TensorType) -> Result<(), Rejection> {
        match self.node.input(i) {
            Some(tensor) if tensor.ty() != wanted => {
                Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty: tensor.ty() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the constant elements of input `i`, which must be floats.
    pub(crate) fn constant(&self, i: usize) -> Result<Cow<'a, [f32]>, Rejection> {
        self.optional_constant(i)?.ok_or_else(|| unsupported(format!("input {i} is missing")))
    }

    /// Returns the constant elements of input `i`, which must be floats; `None` if the node omits it.
    pub(crate) fn optional_constant(&self, i: usize) -> Result<Option<Cow<'a, [f32]>>, Rejection> {
        let Some(tensor) = self.node.input(i) else { return Ok(None) };
        let known = StorageFormat::of(tensor.ty());
        if !matches!(known, Some((Element::F32, format)) if format != StorageFormat::WordPair) {
            return Err(self.wrong_type(i));
        }
        let words = Builder::constant(tensor)?;
        let words = words.ok_or_else(|| computed(i))?;
        Ok(Some(match words {
            Cow::Borrowed(bytes) => match bytemuck::try_cast_slice(bytes) {
                Ok(elements) => Cow::Borrowed(elements),
                Err(_) => bytemuck::pod_collect_to_vec(bytes).into(),
            },
            Cow::Owned(bytes) => bytemuck::pod_collect_to_vec(&bytes).into(),
        }))
    }

    /// Returns the quantization of input `i`.
    pub(crate) fn quantization(&self, i: usize) -> Option<&'a Quantization> {
        self.node.input(i).and_then(|tensor| tensor.quantization())
    }

    /// Returns the constant bytes of input `i`; sparse data is expanded.
    pub(crate) fn dense_bytes(&self, i: usize) -> Result<Cow<'a, [u8]>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        let bytes = Builder::dense(tensor)?;
        bytes.ok_or_else(|| computed(i))
    }

    /// Returns the constant words of input `i`, of a type that [`Lowering::any_input`] accepts.
    pub(crate) fn constant_words(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        if is_packed(tensor.ty())
            || matches!(StorageFormat::of(tensor.ty()), None | Some((_, StorageFormat::WordPair)))
        {
            return Err(self.wrong_type(i));
        }
        let words = Builder::constant(tensor)?;
        let words = words.ok_or_else(|| computed(i))?;
        Ok(bytemuck::pod_collect_to_vec(&words))
    }

    /// Returns the shape of input `i`, which must have rank 4.
    pub(crate) fn input_shape4(&self, i: usize) -> Result<[u32; 4], Rejection> {
        let shape = self.input_shape(i)?;
        shape
            .as_slice()
            .try_into()
            .map_err(|_| unsupported(format!("input {i} has rank {}; only rank 4 is supported", shape.len())))
    }

    /// Returns the constant integers of input `i`: an axis, paddings, a permutation.
    pub(crate) fn integers(&self, i: usize) -> Result<Vec<i64>, Rejection> {
        let tensor = self.node.input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
        let not_constant = || computed(i);
        match tensor.ty() {
            TensorType::Int32 => {
                let elements: &[i32] = tensor.constant_as().ok_or_else(not_constant)?;
                Ok(elements.iter().map(|&v| v.into()).collect())
            }
            TensorType::Int64 => tensor.constant_as().map(<[i64]>::to_vec).ok_or_else(not_constant),
            ty => Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty }),
        }
    }

    /// Returns output `i` on the device, of a type that [`Lowering::any_input`] accepts.
    pub(crate) fn output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.node.output(i).map(|tensor| tensor.ty()) {
            Some(ty) if is_packed(ty) => {
                Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty })
            }
            _ => self.moved_output(i),
        }
    }

    /// As [`Lowering::output`], with the types of [`Lowering::moved_input`].
    pub(crate) fn moved_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        match self.node.output(i).map(|tensor| tensor.ty()) {
            Some(ty @ (TensorType::Complex64 | TensorType::Int64)) => {
                Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty })
            }
            _ => self.held_output(i),
        }
    }

    /// As [`Lowering::output`], with the types of [`Lowering::held_input`].
    pub(crate) fn held_output(&mut self, i: usize) -> Result<ValueId, Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        if let Some(id) = self.builder.values.get(&tensor.id()) {
            return Ok(*id);
        }
        self.builder.add(tensor, Source::Steps, &format!("output {i}"))
    }

    /// Returns the shader capabilities of the device.
    pub(crate) fn caps(&self) -> &'c Caps {
        &self.builder.context.caps
    }

    /// Tables of the functions of quantized LSTM cells; `make` computes them on the first request.
    pub(crate) fn cell_tables(&self, make: impl FnOnce() -> [Vec<i16>; 3]) -> &'c [Vec<i16>; 3] {
        self.builder.context.cell_tables.get_or_init(make)
    }

    /// Returns a value between two steps of this node, whose size is checked against the device's limits.
    pub(crate) fn checked_temporary(&mut self, shape: &[u32]) -> Result<ValueId, Rejection> {
        self.check_size(shape)?;
        Ok(self.temporary(shape))
    }

    /// Checks that the device can allocate and bind a value of this shape.
    pub(crate) fn check_size(&self, shape: &[u32]) -> Result<(), Rejection> {
        let limits = &self.builder.context.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let bytes = shape.iter().try_fold(4u64, |bytes, &d| bytes.checked_mul(d.into()));
        match bytes.filter(|&bytes| bytes > 0 && bytes <= most) {
            Some(_) => Ok(()),
            None => Err(Rejection::DeviceLimit(format!(
                "a temporary of shape {shape:?}; at most {most} bytes fit a binding"
            ))),
        }
    }

    /// Returns the value for the real numbers of output `i`. [`Lowering::finish`] rounds them where the output is
    /// quantized.
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

    /// Adds the steps that round results to quantized outputs. Called once, after the node's own steps.
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
        let affine = self.affine(to).ok_or_else(no_scale)?;
        let elements = self.shape(to).iter().product();
        self.push(quantize::Spec { affine, direction, elements }, &[real], to)
    }

    /// Returns a value of floats between two steps of this node.
    pub(crate) fn temporary(&mut self, shape: &[u32]) -> ValueId {
        self.temporary_of(shape, Element::F32)
    }

    /// Returns a value between two steps of this node.
    pub(crate) fn temporary_of(&mut self, shape: &[u32], element: Element) -> ValueId {
        self.builder.graph.add(Value::new(shape, element, Source::Steps))
    }

    /// Returns the floats of another value from byte `offset` on, a multiple of [`Lowering::view_alignment`].
    pub(crate) fn view(&mut self, of: ValueId, shape: &[u32], offset: u64) -> ValueId {
        self.builder.graph.add(Value::new(shape, Element::F32, Source::View { of, offset }))
    }

    /// Returns a value between two steps with the type and quantization of another one.
    pub(crate) fn temporary_like(&mut self, shape: &[u32], other: ValueId) -> ValueId {
        let Value { element, format, quantization, .. } = *self.builder.graph.value(other);
        let value = Value { format, quantization, ..Value::new(shape, element, Source::Steps) };
        self.builder.graph.add(value)
    }

    /// Creates a constant without a tensor of the model.
    pub(crate) fn new_constant<T: bytemuck::Pod>(
        &mut self,
        shape: &[u32],
        element: Element,
        data: &[T],
    ) -> ValueId {
        let source = Source::Constant(bytemuck::pod_collect_to_vec(data).into());
        self.builder.graph.add(Value::new(shape, element, source))
    }

    /// Adds a table of a quantized function.
    pub(crate) fn table(&mut self, table: Table) -> ValueId {
        self.builder.graph.add(Value::new(&[table.count()], Element::I32, Source::Table(table)))
    }

    /// Makes output `i` a view of `of` from byte `offset` on, a multiple of [`Lowering::view_alignment`].
    pub(crate) fn alias(&mut self, i: usize, of: ValueId, offset: u64) -> Result<(), Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        let source = Source::View { of, offset };
        self.builder.add(tensor, source, &format!("output {i}")).map(drop)
    }

    /// Returns the alignment of views in another value's memory, in bytes.
    pub(crate) fn view_alignment(&self) -> u64 {
        self.builder.context.view_alignment()
    }

    /// Returns the node in the form that shape inference reads, for functions of the op's definition.
    pub(crate) fn infer(&self) -> InferContext<'a> {
        let node = self.node;
        let input = |i| {
            let tensor = node.input(i)?;
            let input = InferTensor::new(tensor.ty(), &tensor.tensor().shape);
            Some(input.with_quantization(tensor.quantization()).with_constant(tensor.constant()))
        };
        let output = |tensor: TensorInfo<'a>| {
            Declared::new(tensor.ty(), &tensor.tensor().shape).with_quantization(tensor.quantization())
        };
        InferContext::new(node.params(), node.version())
            .with_inputs((0..node.input_count()).map(input))
            .with_outputs(node.outputs().map(output))
    }

    /// Returns the shape of output `i`.
    pub(crate) fn output_shape(&self, i: usize) -> Result<Vec<u32>, Rejection> {
        let tensor = self.node.output(i).ok_or_else(|| unsupported(format!("output {i} is missing")))?;
        self.builder.shape_of(tensor)
    }

    /// Returns the shape of output `i`, which must have rank 4.
    pub(crate) fn output_shape4(&self, i: usize) -> Result<[u32; 4], Rejection> {
        let shape = self.output_shape(i)?;
        shape.as_slice().try_into().map_err(|_| {
            unsupported(format!("output {i} has rank {}; only rank 4 is supported", shape.len()))
        })
    }

    /// Returns whether input `i` has different scales per channel.
    pub(crate) fn has_scales_per_channel(&self, i: usize) -> bool {
        let affine = self.quantization(i).and_then(|q| q.affine());
        affine.is_some_and(|a| a.scales.iter().any(|scale| Some(scale) != a.scales.first()))
    }

    /// Returns the shape of a value.
    pub(crate) fn shape(&self, id: ValueId) -> Vec<u32> {
        self.builder.graph.value(id).shape.clone()
    }

    /// Returns the shape of a value that must have rank 4.
    pub(crate) fn shape4(&self, id: ValueId) -> Result<[u32; 4], Rejection> {
        let shape = &self.builder.graph.value(id).shape;
        shape
            .as_slice()
            .try_into()
            .map_err(|_| unsupported(format!("rank {}; only rank 4 is supported", shape.len())))
    }

    /// Returns the element type of a value.
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

    /// Checks the elements of a value in each run; `fault` is the error where one does not meet the condition. The
    /// caller rejects constants that do not meet it.
    pub(crate) fn check(&mut self, id: ValueId, condition: Condition, fault: Fault) -> Result<(), Rejection> {
        if let Source::Constant(_) = self.builder.graph.value(self.builder.graph.root(id).0).source {
            return Ok(());
        }
        let spec = check::Spec { elements: self.shape(id).iter().product(), condition };
        let value = self.temporary_of(&spec.output(self.caps()), Element::U32);
        self.push(spec, &[id], value)?;
        let node = self.node.id();
        self.builder.graph.checks.push(Check { value, node, fault });
        Ok(())
    }

    /// Adds a step with a filter and an optional bias.
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

    /// Adds a step with integer weights.
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
                "weights of {bytes} bytes; at most {most} bytes fit a binding"
            )));
        }
        let nodes: Vec<NodeId> = vec![self.node.id()];
        let (residual, slope) = (None, None);
        let inputs = inputs.to_vec();
        let step = Step { spec, inputs, weights, half_weights: false, residual, slope, output, nodes };
        self.builder.graph.steps.push(step);
        Ok(())
    }
}

/// Returns a rejection of a computed operand that must be constant.
pub(crate) fn computed(input: usize) -> Rejection {
    unsupported(format!("input {input} is computed; only constants are supported"))
}

/// Returns a rejection of integers whose quantization is not a single scale.
pub(crate) fn no_scale() -> Rejection {
    let supported = "only one positive scale per tensor, with a zero point in the type's range, is supported";
    unsupported(format!("integers without a usable quantization; {supported}"))
}

/// Returns a rejection of a param, a shape or a combination of operands.
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
            let answer = support(BuiltinOp::EXP, 1, Params::None, &[Some(input)], &[output]);
            assert!(answer.is_none_or(|answer| answer == Err(expected.clone())), "expected {expected}");
        };
        let bytes = T::new(&[2], &[1_i8, 2]);
        let ty = delegraph_core::TensorType::Int8;
        check(bytes.clone(), bytes, Rejection::UnsupportedType { operand: "input 0".into(), ty });
        let empty = T::new::<f32>(&[0], &[]);
        let reason = Rejection::UnsupportedParam(
            "tensor \"t\" has no elements; only non-empty tensors are supported".into(),
        );
        check(empty.clone(), empty, reason);
    }
}
