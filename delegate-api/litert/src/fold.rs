//! Nodes over constants that runtimes keep in the graph: weights stored in fewer bits or sparsely, and then reshaped.

use delegraph_core::kernel::RuntimeTensor;
use delegraph_core::quantization::Affine;
use delegraph_core::{BuiltinOp, Node, TensorType};

/// Computes the output of `node` if all its inputs are constant and it is of a kind that is computed here: then the
/// output is constant from now on.
pub(crate) fn fold(node: &Node, tensors: &mut [RuntimeTensor]) -> bool {
    let (Some(op), [output], Some(input)) = (node.op.builtin(), node.outputs.as_slice(), node.input(0))
    else {
        return false;
    };
    let constant = |id| tensors.get(id).is_some_and(RuntimeTensor::is_constant);
    if !node.inputs.iter().flatten().all(|id| constant(id.0)) {
        return false;
    }
    let (Some(from), Some(to)) = (tensors.get(input.0), tensors.get(output.0)) else { return false };
    let bytes = match op {
        BuiltinOp::DEQUANTIZE if from.sparsity.is_none() && to.ty == TensorType::Float32 => dequantized(from),
        BuiltinOp::DENSIFY => densified(from),
        BuiltinOp::RESHAPE | BuiltinOp::SQUEEZE | BuiltinOp::EXPAND_DIMS if from.sparsity.is_none() => {
            Some(from.bytes().to_vec())
        }
        _ => None,
    };
    let Some(bytes) = bytes.filter(|bytes| to.byte_size().is_ok_and(|size| size == bytes.len())) else {
        return false;
    };
    tensors.get_mut(output.0).is_some_and(|tensor| tensor.set_constant_copy(&bytes).is_ok())
}

fn dequantized(from: &RuntimeTensor) -> Option<Vec<u8>> {
    let bytes = |floats: &mut dyn Iterator<Item = f32>| floats.flat_map(f32::to_ne_bytes).collect();
    let source = from.bytes();
    if from.ty == TensorType::Float16 {
        let mut floats = source.as_chunks().0.iter().map(|b| half::f16::from_ne_bytes(*b).to_f32());
        return Some(bytes(&mut floats));
    }
    let affine = from.quantization.as_ref()?.affine()?;
    let values: Vec<i32> = match from.ty {
        TensorType::Int8 => source.iter().map(|&b| i32::from(b as i8)).collect(),
        TensorType::UInt8 => source.iter().map(|&b| i32::from(b)).collect(),
        TensorType::Int16 => source.as_chunks().0.iter().map(|b| i32::from(i16::from_ne_bytes(*b))).collect(),
        _ => return None,
    };
    let channels = Channels::new(affine, &from.shape)?;
    let mut floats = values.iter().enumerate().map(|(i, &value)| {
        let (scale, zero_point) = channels.at(i);
        (f64::from(scale) * f64::from(value.wrapping_sub(zero_point))) as f32
    });
    Some(bytes(&mut floats))
}

/// Which scale and zero point an element has.
struct Channels {
    pairs: Vec<(f32, i32)>,
    /// Elements between one channel and the next.
    stride: usize,
}

impl Channels {
    fn new(affine: &Affine, shape: &[usize]) -> Option<Self> {
        let zero_points = affine.zero_points.iter().map(|&z| i32::try_from(z).ok());
        let pairs: Vec<(f32, i32)> =
            affine.scales.iter().zip(zero_points).map(|(&s, z)| z.map(|z| (s, z))).collect::<Option<_>>()?;
        if pairs.is_empty() || (pairs.len() > 1 && shape.get(affine.dimension) != Some(&pairs.len())) {
            return None;
        }
        let inner = shape.get(affine.dimension.saturating_add(1)..).unwrap_or_default();
        Some(Channels { pairs, stride: delegraph_core::shape::checked_product(inner)?.max(1) })
    }

    fn at(&self, element: usize) -> (f32, i32) {
        let channel = element.checked_div(self.stride).unwrap_or(0);
        self.pairs.get(channel.checked_rem(self.pairs.len()).unwrap_or(0)).copied().unwrap_or_default()
    }
}

fn densified(from: &RuntimeTensor) -> Option<Vec<u8>> {
    let sparsity = from.sparsity.as_ref()?;
    let element = from.ty.bits().filter(|bits| bits.is_multiple_of(8))? / 8;
    let mut dense = vec![0; from.ty.byte_size(from.shape.checked_elements()?)?];
    sparsity.densify(&from.shape, element, from.bytes(), &mut dense).ok()?;
    Some(dense)
}
