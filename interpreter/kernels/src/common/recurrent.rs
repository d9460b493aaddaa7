//! Shared parts of the recurrent ops: time steps, and products of float vectors with float or integer weights.

use delegraph_core::kernel::{Charged, InvokeContext, PrepareContext};
use delegraph_core::ops::TensorType;
use delegraph_core::{Error, Result};

use super::prepared::unsupported_type;
use super::weights::{dense_form, integer_dot, scale_zero_point};
use delegraph_compute::{Isa, Quantizing, Serial, quantize_rows};

/// Order of the vectors of all sequences and time steps in a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Number of sequences.
    pub(crate) batch: usize,
    /// Number of steps of each sequence.
    pub(crate) steps: usize,
    /// Whether time is the outermost dimension.
    pub(crate) time_major: bool,
}

impl Order {
    /// The order of a tensor `[time, batch, …]` or `[batch, time, …]`.
    pub(crate) fn new(shape: &[usize], time_major: bool) -> Self {
        let dim = |i: usize| shape.get(i).copied().unwrap_or(0);
        let (batch, steps) = if time_major { (dim(1), dim(0)) } else { (dim(0), dim(1)) };
        Order { batch, steps, time_major }
    }

    /// Returns the index of the vector of a sequence and a step.
    pub(crate) fn at(&self, batch: usize, step: usize) -> usize {
        if self.time_major { step * self.batch + batch } else { batch * self.steps + step }
    }

    /// Steps in the order in which they run.
    pub(crate) fn walk(&self, backward: bool) -> impl Iterator<Item = usize> + use<> {
        let steps = self.steps;
        (0..steps).map(move |step| if backward { steps - 1 - step } else { step })
    }
}

/// A vector, and its quantized form for products with integer weights.
#[derive(Debug)]
pub(crate) struct Vector<'a> {
    /// A float vector.
    pub(crate) values: &'a [f32],
    quantized: &'a [i8],
    scale: f32,
    zero_point: i32,
}

impl<'a> Vector<'a> {
    /// Quantizes `values` into `quantized`, which has the same length; `asymmetric` adds a zero point.
    pub(crate) fn new(values: &'a [f32], quantized: &'a mut [i8], asymmetric: bool) -> Self {
        let (row, mut scale, mut zero_point) = (values.len().min(quantized.len()), [1.0], [0]);
        let quantizing = Quantizing::new(asymmetric);
        let (from, to) = (&values[..row], &mut quantized[..row]);
        // Cannot fail: the lengths are the same.
        let _ = quantize_rows(Isa::best(), quantizing, row, from, to, &mut scale, &mut zero_point, &Serial);
        Vector { values, quantized, scale: scale[0], zero_point: zero_point[0] }
    }

    /// Scale of the quantized values.
    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }
}

/// Weights of a recurrent op in `prepare`.
#[derive(Debug)]
pub(crate) struct Weights {
    input: usize,
    /// Scale of integer weights.
    scale: Option<f32>,
    /// Dense form of sparse weights.
    dense: Option<Charged<i8>>,
}

impl Weights {
    /// Reads input `i` if the node has it. Integers are signed, regardless of their type.
    pub(crate) fn new(cx: &PrepareContext<'_>, i: usize, sparse: bool) -> Result<Option<Self>> {
        let Some(tensor) = cx.optional_input(i) else { return Ok(None) };
        let scale = match tensor.ty() {
            TensorType::Float32 => None,
            TensorType::Int8 | TensorType::UInt8 => Some(scale_zero_point(tensor)?.0),
            _ => return Err(unsupported_type("weights", tensor)),
        };
        let dense = match tensor.tensor().sparsity.as_deref() {
            None => None,
            Some(sparsity) if sparse && scale.is_some() => Some(dense_form(cx.budget(), tensor, sparsity)?),
            Some(_) => {
                let supported =
                    if sparse { "dense weights and sparse INT8 weights" } else { "dense weights" };
                let (name, ty) = (tensor.name(), tensor.ty());
                let text = format!("sparse weights \"{name}\" of type {ty}; only {supported} are supported");
                return Err(Error::Unsupported(text));
            }
        };
        Ok(Some(Weights { input: i, scale, dense }))
    }

    /// Returns the weights during an invocation.
    pub(crate) fn get<'s, 'a: 's>(&'s self, cx: &mut InvokeContext<'a>) -> Result<Matrix<'s>> {
        Ok(match (self.scale, &self.dense) {
            (Some(scale), Some(dense)) => Matrix::Sparse(dense, scale),
            (Some(scale), None) => Matrix::Integer(bytemuck::cast_slice(cx.input_bytes(self.input)?), scale),
            (None, _) => Matrix::Float(cx.input(self.input)?),
        })
    }
}

/// A weight matrix, or a vector that represents a diagonal matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Matrix<'a> {
    /// Float weights.
    Float(&'a [f32]),
    /// Integer weights and their scale.
    Integer(&'a [i8], f32),
    /// Integer weights that the file stores sparsely, and their scale.
    Sparse(&'a [i8], f32),
}

impl Matrix<'_> {
    /// Adds the product with a vector to `sums`. For sparse weights the vector's integers are multiples of
    /// `sparse_scale` without a zero point, as in TFLite.
    pub(crate) fn multiply_add(&self, vector: &Vector<'_>, sparse_scale: f32, sums: &mut [f32]) {
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

    /// Adds the elementwise product with `values` to `sums`.
    pub(crate) fn scale_add(&self, values: &[f32], sums: &mut [f32]) {
        let pairs = sums.iter_mut().zip(values);
        match self {
            Matrix::Float(weights) => pairs.zip(*weights).for_each(|((sum, x), w)| *sum += w * x),
            Matrix::Integer(weights, scale) | Matrix::Sparse(weights, scale) => {
                pairs.zip(*weights).for_each(|((sum, x), &w)| *sum += scale * f32::from(w) * x);
            }
        }
    }
}
