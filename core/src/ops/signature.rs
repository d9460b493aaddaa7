//! A use of an op: the properties that determine its lowest version and its cost.

use super::{Params, TensorType, WrongParams};
use crate::types::Quantization;
use crate::types::Shape;

/// An input or output of a node.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Operand<'a> {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: &'a Shape,
    /// Quantization, if any.
    pub quantization: Option<&'a Quantization>,
    /// Whether the file holds its data.
    pub constant: bool,
    /// Whether the data is stored sparsely.
    pub sparse: bool,
}

impl<'a> Operand<'a> {
    /// Creates an operand without quantization, whose data is neither in the file nor sparse.
    pub fn new(ty: TensorType, shape: &'a Shape) -> Self {
        Operand { ty, shape, quantization: None, constant: false, sparse: false }
    }

    /// Sets [`Operand::quantization`].
    #[must_use]
    pub fn with_quantization(mut self, quantization: Option<&'a Quantization>) -> Self {
        self.quantization = quantization;
        self
    }

    /// Sets [`Operand::constant`].
    #[must_use]
    pub fn with_constant(mut self, constant: bool) -> Self {
        self.constant = constant;
        self
    }

    /// Sets [`Operand::sparse`].
    #[must_use]
    pub fn with_sparse(mut self, sparse: bool) -> Self {
        self.sparse = sparse;
        self
    }

    /// Returns the number of affine scales; 0 without affine quantization.
    pub fn scales(&self) -> usize {
        self.quantization.and_then(Quantization::affine).map_or(0, |a| a.scales.len())
    }
}

/// A node with its operands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpSignature<'a> {
    /// Typed params.
    pub params: &'a Params,
    /// Inputs, `None` if an optional one is left out.
    pub inputs: Vec<Option<Operand<'a>>>,
    /// Outputs.
    pub outputs: Vec<Operand<'a>>,
}

impl<'a> OpSignature<'a> {
    /// Creates a node without operands.
    pub fn new(params: &'a Params) -> Self {
        OpSignature { params, inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Sets [`OpSignature::inputs`].
    #[must_use]
    pub fn with_inputs(mut self, inputs: impl IntoIterator<Item = Option<Operand<'a>>>) -> Self {
        self.inputs = inputs.into_iter().collect();
        self
    }

    /// Sets [`OpSignature::outputs`].
    #[must_use]
    pub fn with_outputs(mut self, outputs: impl IntoIterator<Item = Operand<'a>>) -> Self {
        self.outputs = outputs.into_iter().collect();
        self
    }

    /// Returns the typed params, where the node has those of `T`.
    pub fn params<T>(&self) -> Option<&'a T>
    where
        &'a T: TryFrom<&'a Params, Error = WrongParams>,
    {
        self.params.try_into().ok()
    }

    /// Input `i`, if the node has it.
    pub fn input(&self, i: usize) -> Option<&Operand<'a>> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// Returns true if input `i` is given and has one of these types.
    pub fn input_is(&self, i: usize, types: &[TensorType]) -> bool {
        self.input(i).is_some_and(|t| types.contains(&t.ty))
    }

    /// Returns true if output `i` exists and has one of these types.
    pub fn output_is(&self, i: usize, types: &[TensorType]) -> bool {
        self.outputs.get(i).is_some_and(|t| types.contains(&t.ty))
    }

    /// Returns the rank of input `i`; 0 if it is left out.
    pub fn rank(&self, i: usize) -> usize {
        self.input(i).map_or(0, |t| t.shape.rank())
    }

    /// Returns whether input `i` is quantized.
    pub fn quantized(&self, i: usize) -> bool {
        self.input(i).is_some_and(|t| t.quantization.is_some())
    }

    /// Returns whether input `i` has a scale per index of `dimension`, and more than one.
    pub(super) fn per_channel(&self, i: usize, dimension: usize) -> bool {
        self.input(i).is_some_and(|t| t.scales() > 1 && t.shape.get(dimension) == Some(&t.scales()))
    }

    /// Returns whether float activations have 8-bit weights and a float output: kernels quantize these activations on
    /// the fly.
    pub(super) fn hybrid(&self, data: usize, weights: usize) -> bool {
        self.input_is(data, &[TensorType::Float32])
            && self.input_is(weights, &[TensorType::Int8])
            && self.output_is(0, &[TensorType::Float32])
    }

    /// Returns whether inputs 0 and 1 differ in shape, and one has more than four dimensions.
    pub fn broadcasts_beyond_rank_4(&self) -> bool {
        match (self.input(0), self.input(1)) {
            (Some(a), Some(b)) => a.shape != b.shape && a.shape.rank().max(b.shape.rank()) > 4,
            _ => false,
        }
    }

    /// Returns the elements of input `i`; 0 if it is left out.
    pub fn input_elements(&self, i: usize) -> u64 {
        self.input(i).map_or(0, |t| elements(t.shape))
    }

    /// Returns the elements of all outputs.
    pub fn output_elements(&self) -> u64 {
        self.outputs.iter().fold(0, |sum, t| sum.saturating_add(elements(t.shape)))
    }

    /// Returns the bytes that the node reads and writes: every operand once, strings not counted.
    pub fn bytes(&self) -> u64 {
        let bytes = |t: &Operand<'_>| t.ty.byte_size(t.shape.elements()).map_or(0, |n| n as u64);
        let inputs = self.inputs.iter().flatten().map(bytes);
        inputs.chain(self.outputs.iter().map(bytes)).fold(0, u64::saturating_add)
    }
}

fn elements(shape: &Shape) -> u64 {
    shape.checked_elements().map_or(u64::MAX, |n| n as u64)
}

/// Returns the lowest version that has every feature in use: of `(version, in use)` pairs, the highest in use, or 1.
pub fn lowest_with(features: &[(u32, bool)]) -> u32 {
    features.iter().filter(|(_, used)| *used).map(|(version, _)| *version).max().unwrap_or(1)
}

/// Version 1 expresses every use of the op.
pub(super) fn always_1(_: &OpSignature<'_>) -> u32 {
    1
}

/// Multiply-adds of an op that computes each output element by itself.
pub(super) fn per_output(s: &OpSignature<'_>) -> u64 {
    s.output_elements()
}

/// Returns the multiply-adds of an op that reads each element of input 0 once.
pub(super) fn per_input(s: &OpSignature<'_>) -> u64 {
    s.input_elements(0)
}

/// Multiply-adds of an op that only moves data.
pub(super) fn no_arithmetic(_: &OpSignature<'_>) -> u64 {
    0
}

/// Multiply-adds of an op that sums, for each output element, over the weights of one unit in input `weights`, whose
/// dimension `units` enumerates the units.
pub(super) fn per_weight(s: &OpSignature<'_>, weights: usize, units: usize) -> u64 {
    let Some(w) = s.input(weights) else { return 0 };
    let units = w.shape.get(units).map_or(1, |&n| n as u64).max(1);
    s.outputs.first().map_or(0, |o| elements(o.shape)).saturating_mul(elements(w.shape) / units)
}

/// Multiply-adds of a recurrent op: all its weight matrices once per step.
pub(super) fn recurrent(s: &OpSignature<'_>) -> u64 {
    let Some(input) = s.input(0) else { return 0 };
    let steps = elements(input.shape) / input.shape.last().map_or(1, |&n| n as u64).max(1);
    let matrices = s.inputs.iter().skip(1).flatten().filter(|t| t.constant && t.shape.rank() == 2);
    matrices.fold(0u64, |sum, t| sum.saturating_add(elements(t.shape))).saturating_mul(steps)
}

/// The cost of running a node once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Multiply-adds; an elementwise operation counts as one.
    pub multiply_adds: u64,
    /// Bytes read and written, constants included; each operand is counted once.
    pub bytes: u64,
}
