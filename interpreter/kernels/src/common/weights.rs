//! Operands of multiply-accumulate ops: integer weights of any width, biases, and float activations for integer
//! weights.

use std::sync::Arc;

use delegraph_core::error::counted;
use delegraph_core::kernel::{Budget, Charged, InvokeContext, PrepareContext, Temporary, TensorView};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::sparsity::Sparsity;
use delegraph_core::{Element, Error, Quantization, Result};
use half::f16;

use super::pace::{PIECE, Pace};
use super::prepared::unsupported_type;
use super::quantized::{Multiplier, activation_range};
use delegraph_compute::{Isa, Pixels, Quantizing, compute_error, quantize_pixels, quantize_rows};

/// A weight tensor of INT8, INT4 or INT2, or of UINT8 that holds signed numbers. Weights of 8 bits may be sparse.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    input: usize,
    storage: Storage,
}

#[derive(Debug, Clone)]
enum Storage {
    Bytes,
    Packed {
        bits: usize,
        unpacked: Temporary,
        elements: usize,
    },
    /// Dense form of sparse weights.
    Dense(Arc<Charged<i8>>),
}

impl Weights {
    /// Reads the weights of input `i`.
    pub(crate) fn new(cx: &mut PrepareContext<'_>, i: usize) -> Result<Self> {
        let tensor = cx.input(i)?;
        let elements = tensor.shape().elements();
        let sparsity = tensor.tensor().sparsity.as_deref();
        let storage = match (tensor.ty(), sparsity) {
            (TensorType::Int8 | TensorType::UInt8, None) => Storage::Bytes,
            (TensorType::Int8 | TensorType::UInt8, Some(sparsity)) => {
                Storage::Dense(Arc::new(dense_form(cx.budget(), tensor, sparsity)?))
            }
            (TensorType::Int4, None) => {
                Storage::Packed { bits: 4, unpacked: cx.temporary(elements), elements }
            }
            (TensorType::Int2, None) => {
                Storage::Packed { bits: 2, unpacked: cx.temporary(elements), elements }
            }
            _ => return Err(unsupported_type("weights", tensor)),
        };
        Ok(Weights { input: i, storage })
    }

    /// Returns constant weights, one byte each; `None` for weights that are not constant, sparse, or of another type.
    pub(crate) fn constant(cx: &PrepareContext<'_>, i: usize) -> Result<Option<Charged<u8>>> {
        let Some(tensor) = cx.optional_input(i) else { return Ok(None) };
        let bytes = tensor.constant_bytes().filter(|_| tensor.tensor().sparsity.is_none());
        let Some(bytes) = bytes else { return Ok(None) };
        let unpacked = |bits| unpacked(cx.budget(), bits, bytes, tensor.shape().elements());
        match tensor.ty() {
            TensorType::Int8 | TensorType::UInt8 => {
                let mut copy = cx.budget().filled(0u8, bytes.len())?;
                copy.copy_from_slice(bytes);
                Ok(Some(copy))
            }
            TensorType::Int4 => unpacked(4).map(Some),
            TensorType::Int2 => unpacked(2).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the weights, one byte each. May be called once per `invoke`.
    pub(crate) fn get<'s, 'a: 's>(&'s self, cx: &mut InvokeContext<'a>) -> Result<&'s [i8]> {
        let (bits, temporary, elements) = match &self.storage {
            Storage::Bytes => return Ok(bytemuck::cast_slice(cx.input_bytes(self.input)?)),
            Storage::Dense(dense) => return Ok(&dense[..]),
            Storage::Packed { bits, unpacked, elements } => (*bits, *unpacked, *elements),
        };
        let bytes = cx.input_bytes(self.input)?;
        let unpacked = &mut cx.temporary::<i8>(temporary)?[..elements];
        unpack(cx.budget(), bits, bytes, unpacked)?;
        Ok(unpacked)
    }
}

/// Returns elements of `bits` bits, 2 or 4, as signed bytes.
///
/// # Errors
/// As [`Budget::filled`] and [`Budget::check`].
pub(crate) fn unpacked(
    budget: &Arc<Budget>,
    bits: usize,
    bytes: &[u8],
    elements: usize,
) -> Result<Charged<u8>> {
    let mut all = budget.filled(0u8, elements)?;
    unpack(budget, bits, bytes, bytemuck::cast_slice_mut(&mut all[..]))?;
    Ok(all)
}

/// Writes elements of `bits` bits, 2 or 4, as bytes; polls between pieces.
fn unpack(budget: &Budget, bits: usize, bytes: &[u8], to: &mut [i8]) -> Result<()> {
    /// Unpacks `N` elements of each byte.
    fn piece<const N: usize>(bytes: &[u8], to: &mut [i8]) {
        let bits = 8 / N;
        let (whole, rest) = to.as_chunks_mut::<N>();
        if let Some(byte) = bytes.get(whole.len()) {
            rest.iter_mut().enumerate().for_each(|(i, to)| *to = signed(byte >> (i * bits), bits));
        }
        for (byte, to) in bytes.iter().zip(whole) {
            *to = std::array::from_fn(|i| signed(byte >> (i * bits), bits));
        }
    }
    let pieces = bytes.chunks(PIECE * bits / 8).zip(to.chunks_mut(PIECE));
    for (i, (bytes, to)) in pieces.enumerate() {
        if i > 0 {
            budget.check()?;
        }
        if bits == 4 { piece::<2>(bytes, to) } else { piece::<4>(bytes, to) }
    }
    Ok(())
}

/// Returns the `bits` low bits of a byte as a signed number.
pub(crate) fn signed(value: u8, bits: usize) -> i8 {
    let unused = 8 - bits;
    (value << unused).cast_signed() >> unused
}

/// Returns the dense form of a sparse constant, whose elements are as wide as `T`.
///
/// # Errors
/// [`Error::InvalidNode`] if the storage does not describe the tensor; as [`Budget::filled`] and [`Budget::check`].
pub(crate) fn dense_form<T: Element>(
    budget: &Arc<Budget>,
    tensor: TensorView<'_>,
    sparsity: &Sparsity,
) -> Result<Charged<T>> {
    let mut dense = budget.filled(T::zeroed(), tensor.shape().elements())?;
    let stored = tensor.constant_bytes().unwrap_or_default();
    let bytes = bytemuck::cast_slice_mut(&mut dense[..]);
    densify(budget, sparsity, tensor.shape(), size_of::<T>(), stored, bytes)?;
    Ok(dense)
}

/// Expands stored elements of `width` bytes: see [`Sparsity::densify`].
///
/// # Errors
/// [`Error::InvalidNode`] if the storage does not describe the tensor; as [`Budget::check`].
pub(crate) fn densify(
    budget: &Budget,
    sparsity: &Sparsity,
    shape: &[usize],
    width: usize,
    stored: &[u8],
    dense: &mut [u8],
) -> Result<()> {
    let expanded = sparsity.densify_polled(shape, width, stored, dense, &|| budget.is_interrupted());
    expanded.map_err(|e| Error::InvalidNode(e.to_string()))?;
    budget.check()
}

/// Checks that input `i`, an optional bias, has elements of `T`.
pub(crate) fn check_bias_type<T: Element>(cx: &PrepareContext<'_>, i: usize) -> Result<()> {
    match cx.optional_input(i) {
        Some(bias) if bias.ty() != T::TYPE => Err(unsupported_type("bias", bias)),
        _ => Ok(()),
    }
}

/// `sum` plus the products of `a` and `b`, with their zero points subtracted.
pub(crate) fn integer_dot<A, B>(sum: i32, a: &[A], b: &[B], zero_a: i32, zero_b: i32) -> i32
where
    A: Copy + Into<i32>,
    B: Copy + Into<i32>,
{
    a.iter().zip(b).fold(sum, |sum, (&a, &b)| {
        let (a, b): (i32, i32) = (a.into(), b.into());
        sum.wrapping_add(a.wrapping_sub(zero_a).wrapping_mul(b.wrapping_sub(zero_b)))
    })
}

/// Float activations that are quantized while running, row by row (a batch's image, a vector).
#[derive(Debug, Clone, Copy)]
pub(crate) struct DynamicInput {
    rows: usize,
    row: usize,
    /// The pixels of each row that are quantized, if not all are used.
    pixels: Option<Pixels>,
    /// Number of quantized values of each row.
    kept: usize,
    quantizing: Quantizing,
    quantized: Temporary,
    scales: Temporary,
    zero_points: Temporary,
}

/// The result of [`DynamicInput::quantize`].
pub(crate) struct QuantizedRows<'a> {
    /// All rows.
    pub(crate) values: &'a [i8],
    /// One scale per row.
    pub(crate) scales: &'a [f32],
    /// One zero point per row.
    pub(crate) zero_points: &'a [i32],
}

impl DynamicInput {
    /// For `rows` rows of `row` elements; with zero points if `asymmetric`.
    pub(crate) fn new(
        cx: &mut PrepareContext<'_>,
        rows: usize,
        row: usize,
        asymmetric: bool,
    ) -> Result<Self> {
        Self::of(cx, (rows, row), None, asymmetric)
    }

    /// For `rows` images of `row` elements, of which only `pixels` are used.
    pub(crate) fn of_pixels(
        cx: &mut PrepareContext<'_>,
        (rows, row): (usize, usize),
        pixels: Pixels,
        asymmetric: bool,
    ) -> Result<Self> {
        Self::of(cx, (rows, row), Some(pixels), asymmetric)
    }

    fn of(
        cx: &mut PrepareContext<'_>,
        (rows, row): (usize, usize),
        pixels: Option<Pixels>,
        asymmetric: bool,
    ) -> Result<Self> {
        let kept = pixels.map_or(row, |pixels| pixels.channels * pixels.count[0] * pixels.count[1]);
        let elements = rows
            .checked_mul(row)
            .and(rows.checked_mul(kept))
            .ok_or_else(|| Error::OutOfMemory(format!("{rows} rows of {row} elements")))?;
        let quantized = cx.temporary_of::<i8>(elements)?;
        let (scales, zero_points) = (cx.temporary_of::<f32>(rows)?, cx.temporary_of::<i32>(rows)?);
        let quantizing = Quantizing::new(asymmetric);
        Ok(DynamicInput { rows, row, pixels, kept, quantizing, quantized, scales, zero_points })
    }

    /// Quantizes `input`. May be called once per `invoke`.
    pub(crate) fn quantize<'a>(
        &self,
        cx: &mut InvokeContext<'a>,
        input: &[f32],
    ) -> Result<QuantizedRows<'a>> {
        let values = &mut cx.temporary::<i8>(self.quantized)?[..self.rows * self.kept];
        let scales = &mut cx.temporary::<f32>(self.scales)?[..self.rows];
        let zero_points = &mut cx.temporary::<i32>(self.zero_points)?[..self.rows];
        let (input, par) = (&input[..input.len().min(self.rows * self.row)], cx.parallel());
        let (isa, row) = (Isa::best(), self.row);
        match self.pixels {
            Some(pixels) => {
                quantize_pixels(isa, self.quantizing, row, pixels, input, values, scales, zero_points, par)
            }
            None => quantize_rows(isa, self.quantizing, row, input, values, scales, zero_points, par),
        }
        .map_err(compute_error)?;
        Ok(QuantizedRows { values, scales, zero_points })
    }
}

/// Bounds of an activation that is a clamp.
pub(crate) fn clamp_bounds(activation: Activation) -> Result<(f32, f32)> {
    activation.clamp().ok_or_else(|| {
        Error::Unsupported(format!("activation {activation:?}; only clamping activations are supported"))
    })
}

/// Returns an activation as a function of floats.
pub(crate) fn float_activation(activation: Activation) -> fn(f32) -> f32 {
    match activation {
        Activation::None => |x| x,
        Activation::Relu => |x| if x < 0.0 { 0.0 } else { x },
        Activation::ReluN1To1 => |x| x.clamp(-1.0, 1.0),
        Activation::Relu6 => |x| x.clamp(0.0, 6.0),
        Activation::Tanh => f32::tanh,
        Activation::SignBit => |x| f32::from(u8::from(x.is_sign_negative())),
    }
}

/// Scale and zero point of a tensor that is quantized per tensor; the scale is positive and finite.
pub(crate) fn scale_zero_point(tensor: TensorView<'_>) -> Result<(f32, i32)> {
    let (scale, zero_point) = tensor.scale_zero_point()?;
    check_scale(tensor, scale)?;
    Ok((scale, zero_point))
}

/// Checks that a tensor's zero point is 0, which 16-bit activations must have.
pub(crate) fn check_symmetric(tensor: TensorView<'_>) -> Result<()> {
    match scale_zero_point(tensor)?.1 {
        0 => Ok(()),
        zero_point => Err(Error::Unsupported(format!(
            "tensor \"{}\" of type {} with zero point {zero_point}; only 0 is supported",
            tensor.name(),
            tensor.ty()
        ))),
    }
}

fn check_scale(tensor: TensorView<'_>, scale: f32) -> Result<()> {
    if scale.is_finite() && scale > 0.0 {
        return Ok(());
    }
    Err(Error::InvalidNode(format!(
        "tensor \"{}\" has the scale {scale}, which must be positive and finite",
        tensor.name()
    )))
}

/// Scales of matrix `i` of `rows` rows that is quantized per block, row by row, and the size of a block. `None` for
/// other quantizations.
pub(crate) fn block_scales(
    cx: &PrepareContext<'_>,
    i: usize,
    (rows, width): (usize, usize),
) -> Result<Option<(Charged<f32>, usize)>> {
    let matrix = cx.input(i)?;
    let Some(Quantization::Blockwise { scales, zero_points, block_size }) = matrix.quantization() else {
        return Ok(None);
    };
    if zero_points.is_some() {
        return Err(Error::Unsupported(format!(
            "zero points per block of tensor \"{}\"; only zero points of 0 are supported",
            matrix.name()
        )));
    }
    let tensor = cx.quantization_tensor(*scales)?;
    let scales = cx.budget().collect(tensor.elements::<f16>()?.iter().map(|scale| scale.to_f32()))?;
    let blocks = width.checked_div(*block_size).filter(|blocks| blocks * block_size == width);
    if blocks.and_then(|blocks| blocks.checked_mul(rows)) != Some(scales.len()) {
        return Err(Error::InvalidNode(format!(
            "{} for blocks of {} do not match tensor \"{}\" of shape {}",
            counted(scales.len(), "scale"),
            counted(block_size, "element"),
            matrix.name(),
            matrix.shape()
        )));
    }
    Ok(Some((scales, *block_size)))
}

/// Scales of weights: one, or one per index of `dimension` with zero points of 0.
pub(crate) fn weight_scales<'a>(weights: TensorView<'a>, dimension: usize) -> Result<&'a [f32]> {
    let name = weights.name();
    let affine = match weights.quantization() {
        Some(Quantization::Affine(affine)) => affine,
        Some(_) => {
            let text =
                format!("the quantization of tensor \"{name}\", which is neither per tensor nor per channel");
            return Err(Error::Unsupported(text));
        }
        None => return Err(Error::InvalidNode(format!("tensor \"{name}\" must have a scale"))),
    };
    // The scale of a channel may be 0 if all of its weights are zero.
    let empty = |scale| affine.scales.len() > 1 && scale == 0.0;
    affine
        .scales
        .iter()
        .filter(|&&scale| !empty(scale))
        .try_for_each(|&scale| check_scale(weights, scale))?;
    let channels = weights.shape().get(dimension).copied().unwrap_or(1);
    match affine.scales.len() {
        1 => {}
        n if n == channels && affine.dimension == dimension => {}
        n => {
            return Err(Error::InvalidNode(format!(
                "tensor \"{}\" of shape {} has {n} scales along dimension {}, expected them along {dimension}",
                weights.name(),
                weights.shape(),
                affine.dimension
            )));
        }
    }
    match affine.zero_points.are_zero() {
        false if affine.scales.len() > 1 => Err(with_zero_point(weights)),
        _ => Ok(&affine.scales),
    }
}

/// Returns one scale for each of `channels` channels: a single scale is repeated.
pub(crate) fn channel_scales(
    cx: &PrepareContext<'_>,
    scales: &[f32],
    channels: usize,
) -> Result<Charged<f32>> {
    cx.budget().collect((0..channels).map(|i| scales[i % scales.len()]))
}

fn with_zero_point(weights: TensorView<'_>) -> Error {
    Error::Unsupported(format!(
        "weights \"{}\" of type {} with a zero point; only 0 is supported",
        weights.name(),
        weights.ty()
    ))
}

/// Checks that the zero points of weights are 0.
pub(crate) fn check_zero_points(weights: TensorView<'_>) -> Result<()> {
    match weights.quantization().and_then(|q| q.affine()) {
        Some(affine) if !affine.zero_points.are_zero() => Err(with_zero_point(weights)),
        _ => Ok(()),
    }
}

/// Steps of a [`Pace`] for a multiplier.
const MULTIPLIER_STEPS: usize = 16;

/// Requantization of the accumulators of a convolution or matrix product.
#[derive(Debug)]
pub(crate) struct Requantize {
    multipliers: Charged<Multiplier>,
    zero_point: i32,
    low: i32,
    high: i32,
}

impl Requantize {
    /// Requantization from accumulators of `input` and `weights` to `output`, with one multiplier per index of the
    /// weights' `dimension`.
    ///
    /// TFLite multiplies the scales of uint8 tensors in single precision, and FULLY_CONNECTED also does so for weights
    /// with one scale (`single`).
    ///
    /// # Errors
    /// Fails if a quantization is missing or cannot be expressed as fixed-point multipliers, or if the activation is
    /// not a clamp.
    pub(crate) fn new(
        budget: &Arc<Budget>,
        (input, weights): (TensorView<'_>, TensorView<'_>),
        output: TensorView<'_>,
        dimension: usize,
        activation: Activation,
        single: bool,
    ) -> Result<Self> {
        let scales = weight_scales(weights, dimension)?;
        let ((input_scale, _), (output_scale, zero_point)) =
            (scale_zero_point(input)?, scale_zero_point(output)?);
        let multiplier = |&scale: &f32| {
            let product = match single {
                true => f64::from(input_scale * scale),
                false => f64::from(input_scale) * f64::from(scale),
            };
            Multiplier::new(product / f64::from(output_scale))
        };
        let multipliers = match scales {
            [one] => budget.filled(multiplier(one)?, weights.shape().get(dimension).copied().unwrap_or(1))?,
            _ => {
                let (mut multipliers, mut pace) = (budget.reserved(scales.len())?, Pace::of(budget));
                scales.iter().try_for_each(|scale| {
                    pace.spend(MULTIPLIER_STEPS)?;
                    multipliers.push(multiplier(scale)?)
                })?;
                multipliers
            }
        };
        let (low, high) = activation_range(activation, output)?;
        Ok(Requantize { multipliers, zero_point, low, high })
    }

    /// Returns the multipliers, the output's zero point, and its bounds.
    pub(crate) fn parts(&self) -> (&[Multiplier], i32, [i32; 2]) {
        (&self.multipliers, self.zero_point, [self.low, self.high])
    }

    /// Returns the output of `channel`; ties round up.
    pub(crate) fn apply_up(&self, channel: usize, accumulator: i32) -> i32 {
        self.finish(self.multipliers[channel].apply_up(accumulator))
    }

    /// Returns the output of `channel`; ties round away from zero.
    pub(crate) fn apply(&self, channel: usize, accumulator: i32) -> i32 {
        self.finish(self.multipliers[channel].apply(accumulator))
    }

    /// Returns the output of `channel` from a wide accumulator.
    pub(crate) fn apply_wide(&self, channel: usize, accumulator: i64) -> i32 {
        self.finish(self.multipliers[channel].apply_wide(accumulator))
    }

    fn finish(&self, scaled: i32) -> i32 {
        scaled.wrapping_add(self.zero_point).max(self.low).min(self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::index::packed;

    #[test]
    fn elements_below_a_byte_are_unpacked_in_any_number() {
        let bytes = [0x1b, 0xe4, 0x7f, 0x80];
        for bits in [2, 4] {
            for elements in 0..=8 * bytes.len() / bits {
                let want: Vec<u8> =
                    (0..elements).map(|i| signed(packed(&bytes, bits, i), bits).cast_unsigned()).collect();
                let got = unpacked(Budget::unlimited(), bits, &bytes, elements).unwrap();
                assert_eq!(*got, want[..], "{elements} elements of {bits} bits");
            }
        }
    }

    #[test]
    fn unpacking_ends_when_it_is_cancelled() {
        let budget = Budget::new(usize::MAX);
        budget.cancel();
        for bits in [2, 4] {
            let unpacked = |elements: usize| unpacked(&budget, bits, &vec![0; elements], elements);
            assert!(unpacked(PIECE).is_ok());
            assert!(matches!(unpacked(PIECE + 1), Err(Error::Cancelled)));
        }
    }
}
