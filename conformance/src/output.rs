//! The elements of an output.

use delegraph_core::TensorType;
use delegraph_core::kernel::{RuntimeTensor, Strings};

use crate::compare::numbers;

/// An output's elements.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Output {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Whether the tensor has a scale.
    pub quantized: bool,
    /// The elements.
    pub bytes: Vec<u8>,
}

impl Output {
    /// Copies a tensor of an interpreter.
    pub fn of(tensor: &RuntimeTensor) -> Self {
        Output {
            ty: tensor.ty,
            shape: tensor.shape.dims().to_vec(),
            quantized: tensor.quantization.is_some(),
            bytes: tensor.bytes().to_vec(),
        }
    }

    /// Returns the elements as numbers; packed 4-bit and 2-bit types are widened, low bits first. `None` for types that
    /// are not numeric.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let Some(bits) = self.ty.bits().filter(|b| *b < 8) else { return numbers(self.ty, &self.bytes) };
        let signed = self.ty != TensorType::UInt4;
        let value = |i: usize| {
            let raw = self.bytes.get(i * bits / 8).copied().unwrap_or(0) >> (i * bits % 8);
            let raw = (raw & ((1 << bits) - 1)) << (8 - bits);
            if signed { f64::from((raw as i8) >> (8 - bits)) } else { f64::from(raw >> (8 - bits)) }
        };
        Some((0..self.shape.iter().product()).map(value).collect())
    }

    pub(crate) fn strings(&self) -> Option<Strings<'_>> {
        if self.ty == TensorType::String { Strings::parse(&self.bytes).ok() } else { None }
    }
}
