//! What the recurrent ops share: steps in time, and the products of float vectors with float or integer weights.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::{Error, Result};

use super::prepared::unsupported_type;
use super::weights::{integer_dot, quantize_asymmetric, quantize_symmetric, scale_zero_point};

/// Where the vector of a step lies.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// How many sequences.
    pub batch: usize,
    /// How many steps each of them has.
    pub steps: usize,
    /// Whether time is the outermost dimension.
    pub time_major: bool,
}

impl Order {
    /// Of a tensor `[time, batch, …]` or `[batch, time, …]`.
    pub fn new(shape: &[usize], time_major: bool) -> Self {
        let dim = |i: usize| shape.get(i).copied().unwrap_or(0);
        let (batch, steps) = if time_major { (dim(1), dim(0)) } else { (dim(0), dim(1)) };
        Order { batch, steps, time_major }
    }

    /// Which vector it is.
    pub fn at(&self, batch: usize, step: usize) -> usize {
        if self.time_major { step * self.batch + batch } else { batch * self.steps + step }
    }

    /// The steps in the order in which they are taken.
    pub fn walk(&self, backward: bool) -> impl Iterator<Item = usize> + use<> {
        let steps = self.steps;
        (0..steps).map(move |step| if backward { steps - 1 - step } else { step })
    }
}

/// A vector, and what it is where it meets integer weights.
#[derive(Debug)]
pub struct Vector<'a> {
    /// As it is.
    pub values: &'a [f32],
    quantized: &'a [i8],
    scale: f32,
    zero_point: i32,
}

impl<'a> Vector<'a> {
    /// Quantizes `values` into `quantized`, which is as long; `asymmetric` with a zero point.
    pub fn new(values: &'a [f32], quantized: &'a mut [i8], asymmetric: bool) -> Self {
        let (scale, zero_point) = match asymmetric {
            true => quantize_asymmetric(values, quantized),
            false => (quantize_symmetric(values, quantized), 0),
        };
        Vector { values, quantized, scale, zero_point }
    }

    /// The scale of the quantized values.
    pub fn scale(&self) -> f32 {
        self.scale
    }
}

/// The weights of a recurrent op as `prepare` finds them.
#[derive(Debug)]
pub struct Weights {
    input: usize,
    /// The scale of integers.
    scale: Option<f32>,
    /// Sparse weights in their dense form.
    dense: Option<Vec<i8>>,
}

impl Weights {
    /// Input `i`, if the node has it: floats, or integers that are signed whatever their type says.
    pub fn new(cx: &PrepareContext<'_>, i: usize, sparse: bool) -> Result<Option<Self>> {
        let Some(tensor) = cx.optional_input(i) else { return Ok(None) };
        let scale = match tensor.ty() {
            TensorType::Float32 => None,
            TensorType::Int8 | TensorType::UInt8 => Some(scale_zero_point(tensor)?.0),
            _ => return Err(unsupported_type("weights", tensor)),
        };
        let dense = match tensor.tensor().sparsity.as_deref() {
            None => None,
            Some(sparsity) if sparse && scale.is_some() => {
                let mut dense = vec![0i8; tensor.shape().elements()];
                let stored = tensor.constant_bytes().unwrap_or_default();
                let bytes = bytemuck::cast_slice_mut(&mut dense);
                let expanded = sparsity.densify(tensor.shape(), 1, stored, bytes);
                expanded.map_err(|e| Error::InvalidNode(e.to_string()))?;
                Some(dense)
            }
            Some(_) => {
                let text = format!("sparse weights \"{}\" of type {}", tensor.name(), tensor.ty());
                return Err(Error::Unsupported(text));
            }
        };
        Ok(Some(Weights { input: i, scale, dense }))
    }

    /// The weights while the node runs.
    pub fn get<'s, 'a: 's>(&'s self, cx: &mut InvokeContext<'a>) -> Result<Matrix<'s>> {
        Ok(match (self.scale, &self.dense) {
            (Some(scale), Some(dense)) => Matrix::Sparse(dense, scale),
            (Some(scale), None) => Matrix::Integer(bytemuck::cast_slice(cx.input_bytes(self.input)?), scale),
            (None, _) => Matrix::Float(cx.input(self.input)?),
        })
    }
}

/// Weights: a matrix, or a vector that stands for a diagonal one.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// Floats.
    Float(&'a [f32]),
    /// Integers and their scale.
    Integer(&'a [i8], f32),
    /// Integers that the file stores sparsely, and their scale.
    Sparse(&'a [i8], f32),
}

impl Matrix<'_> {
    /// Adds the product with a vector to `sums`. Sparse weights take the vector's integers for multiples of
    /// `sparse_scale` without a zero point, as the field's kernels do.
    pub fn multiply_add(&self, vector: &Vector<'_>, sparse_scale: f32, sums: &mut [f32]) {
        let width = vector.values.len().max(1);
        let mut integers = |weights: &[i8], scale: f32, zero_point: i32| {
            for (sum, row) in sums.iter_mut().zip(weights.chunks_exact(width)) {
                *sum += integer_dot(0, vector.quantized, row, zero_point, 0) as f32 * scale;
            }
        };
        match self {
            Matrix::Float(weights) => {
                for (sum, row) in sums.iter_mut().zip(weights.chunks_exact(width)) {
                    *sum += row.iter().zip(vector.values).map(|(w, x)| w * x).sum::<f32>();
                }
            }
            Matrix::Integer(weights, scale) => integers(weights, scale * vector.scale, vector.zero_point),
            Matrix::Sparse(weights, scale) => integers(weights, scale * sparse_scale, 0),
        }
    }

    /// Adds the product of each element with one of `values` to one of `sums`.
    pub fn scale_add(&self, values: &[f32], sums: &mut [f32]) {
        let pairs = sums.iter_mut().zip(values);
        match self {
            Matrix::Float(weights) => pairs.zip(*weights).for_each(|((sum, x), w)| *sum += w * x),
            Matrix::Integer(weights, scale) | Matrix::Sparse(weights, scale) => {
                pairs.zip(*weights).for_each(|((sum, x), &w)| *sum += scale * f32::from(w) * x);
            }
        }
    }
}
