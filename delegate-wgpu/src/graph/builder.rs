//! A graph under construction: the values of tensors, and the state that nodes read and assign.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use delegraph_core::types::rounded;
use delegraph_core::{Quantization, TensorId, TensorType};
use delegraph_delegate_api::{Rejection, TensorInfo};
use delegraph_shaders::quantize::Affine;

use crate::custom::WgpuOp;
use crate::device::DeviceCaps;
use crate::graph::storage_format::StorageFormat;
use crate::graph::{Graph, Resource, Source, Value, ValueId};

/// A graph under construction.
pub(crate) struct Builder<'a, 'c> {
    pub graph: Graph<'a>,
    pub(super) context: &'c DeviceCaps,
    pub(super) values: HashMap<TensorId, ValueId>,
    /// Maps a quantized value to the value with its real numbers, if a step computes them.
    pub(super) reals: HashMap<ValueId, ValueId>,
    /// Variables that a node assigned; `values` has the new value.
    pub(super) written: Vec<TensorId>,
    /// The current value of each resource variable that a node read or assigned, by its handle.
    pub(super) resources: HashMap<i32, Resource>,
}

impl<'a, 'c> Builder<'a, 'c> {
    pub(crate) fn new(context: &'c DeviceCaps) -> Self {
        Builder {
            graph: Graph::default(),
            context,
            values: HashMap::new(),
            reals: HashMap::new(),
            written: Vec::new(),
            resources: HashMap::new(),
        }
    }

    /// Custom ops of the application.
    pub(crate) fn custom_ops(&self) -> &'c [WgpuOp] {
        &self.context.custom_ops
    }

    /// Adds an input of the partition.
    pub(crate) fn add_input(&mut self, tensor: TensorInfo<'a>) -> Result<ValueId, Rejection> {
        let id = self.add(tensor, Source::Input, "input")?;
        self.graph.inputs.push(id);
        Ok(id)
    }

    /// Marks a tensor as an output of the partition.
    pub(crate) fn add_output(&mut self, tensor: TensorInfo<'a>) -> Result<(), Rejection> {
        let missing = || Rejection::Other(format!("tensor \"{}\" has no producer", tensor.name()));
        let id = self.values.get(&tensor.id()).copied().ok_or_else(missing)?;
        self.graph.outputs.push(id);
        Ok(())
    }

    /// Marks the new values of variables as outputs; the variables are among the partition's `inputs`.
    pub(crate) fn add_states(&mut self, inputs: &[TensorId]) {
        for (i, id) in inputs.iter().enumerate().filter(|(_, id)| self.written.contains(id)) {
            if let Some(&value) = self.values.get(id) {
                self.graph.states.push(i);
                self.graph.outputs.push(value);
            }
        }
    }

    /// Adds the values of resource variables that the partition reads to its inputs. Called after the other inputs are
    /// added.
    pub(crate) fn add_resources(&mut self) {
        self.graph.inputs.extend(self.graph.read.iter().map(|resource| resource.value));
    }

    pub(super) fn add(
        &mut self,
        tensor: TensorInfo<'a>,
        source: Source<'a>,
        operand: &str,
    ) -> Result<ValueId, Rejection> {
        let unsupported = || Rejection::UnsupportedType { operand: operand.into(), ty: tensor.ty() };
        let (element, format) = StorageFormat::of(tensor.ty()).ok_or_else(unsupported)?;
        let quantization = affine(tensor)?;
        let mut shape = self.shape_of(tensor)?;
        if format == StorageFormat::WordPair {
            shape.push(2);
        }
        let value =
            Value { shape, element, format, quantization, half: false, source, tensor: Some(tensor.id()) };
        let id = self.graph.add(value);
        self.values.insert(tensor.id(), id);
        Ok(id)
    }

    /// Returns the tensor's dimensions. Rejects dynamic shapes, tensors without elements, and tensors that exceed a
    /// binding.
    pub(super) fn shape_of(&self, tensor: TensorInfo<'a>) -> Result<Vec<u32>, Rejection> {
        let name = tensor.name();
        let dynamic = || Rejection::DynamicShape { tensor: name.to_owned() };
        let dims = tensor.shape().ok_or_else(dynamic)?;
        if dims.contains(&0) {
            return Err(Rejection::UnsupportedParam(format!(
                "tensor \"{name}\" has no elements; only non-empty tensors are supported"
            )));
        }
        let limits = &self.context.limits;
        let most = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let too_large = || {
            let limit = format!("at most {most} bytes fit a binding");
            Rejection::DeviceLimit(format!("tensor \"{name}\" of shape {dims}; {limit}"))
        };
        let each = if matches!(tensor.ty(), TensorType::Complex64 | TensorType::Int64) { 8 } else { 4 };
        let bytes = dims.checked_elements().and_then(|n| n.checked_mul(each)).ok_or_else(too_large)?;
        if u64::try_from(bytes).map_or(true, |bytes| bytes > most) {
            return Err(too_large());
        }
        dims.iter().map(|&d| u32::try_from(d).map_err(|_| too_large())).collect()
    }

    /// Returns constant data; sparse data is expanded.
    pub(super) fn dense(tensor: TensorInfo<'a>) -> Result<Option<Cow<'a, [u8]>>, Rejection> {
        let (Some(bytes), Some(sparsity)) = (tensor.constant(), &tensor.tensor().sparsity) else {
            return Ok(tensor.constant().map(Cow::Borrowed));
        };
        let shape = &tensor.tensor().shape;
        let wrong = |e: String| Rejection::UnsupportedParam(format!("tensor \"{}\": {e}", tensor.name()));
        let element = tensor.ty().bits().filter(|bits| bits.is_multiple_of(8)).map_or(0, |bits| bits / 8);
        let size = shape.checked_elements().and_then(|n| n.checked_mul(element)).filter(|n| *n > 0);
        let mut dense = vec![
            0;
            size.ok_or_else(|| wrong(format!(
                "sparse data of shape {shape}; only sizes that fit memory are supported"
            )))?
        ];
        sparsity.densify(shape, element, bytes, &mut dense).map_err(|e| wrong(e.to_string()))?;
        Ok(Some(Cow::Owned(dense)))
    }

    /// Returns constant data in the device's format: one word per element, or two for 64-bit types.
    pub(super) fn constant(tensor: TensorInfo<'a>) -> Result<Option<Cow<'a, [u8]>>, Rejection> {
        let Some(bytes) = Self::dense(tensor)? else { return Ok(None) };
        Ok(Some(match StorageFormat::of(tensor.ty()) {
            Some((_, format)) if !format.is_identity() => {
                let mut words = format.widened(&bytes);
                // Packed elements may leave unused bits in the last byte.
                words.truncate(tensor.tensor().shape.elements().saturating_mul(4));
                words.into()
            }
            _ => bytes,
        }))
    }
}

/// Whether several elements share a byte in the model.
pub(super) fn is_packed(ty: TensorType) -> bool {
    StorageFormat::of(ty).is_some_and(|(_, format)| format.is_packed())
}

/// The supported scales. Their ratios and products are within the range of FLOAT32.
const SCALES: RangeInclusive<f32> = 1e-12..=1e12;

/// Returns the quantization of a tensor if all elements share it.
fn affine(tensor: TensorInfo<'_>) -> Result<Option<Affine>, Rejection> {
    let (low, high) = match tensor.ty() {
        TensorType::Int8 => (-128, 127),
        TensorType::UInt8 => (0, 255),
        TensorType::Int16 => (-32768, 32767),
        TensorType::Int4 => (-8, 7),
        TensorType::UInt4 => (0, 15),
        TensorType::Int2 => (-2, 1),
        _ => return Ok(None),
    };
    let Some((scale, zero)) = tensor.quantization().and_then(Quantization::scale_zero_point) else {
        return Ok(None);
    };
    if SCALES.contains(&scale) && (low..=high).contains(&zero) {
        return Ok(Some(Affine { scale, zero, low, high }));
    }
    Err(Rejection::UnsupportedParam(format!(
        "tensor \"{}\" has scale {} and zero point {zero}; scales from {} to {} and zero points from {low} to {high} are \
         supported",
        tensor.name(),
        rounded(scale.into()),
        rounded((*SCALES.start()).into()),
        rounded((*SCALES.end()).into())
    )))
}
