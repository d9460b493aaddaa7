//! Operands of multiply-accumulate ops: integer weights of any width, biases, and float activations for integer
//! weights.

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged, InvokeContext, PrepareContext, Temporary, TensorView};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{Element, Error, Quantization, Result};
use half::f16;

use super::index::packed;
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
                let mut dense = cx.budget().filled(0i8, elements)?;
                let stored = tensor.constant_bytes().unwrap_or_default();
                let expanded =
                    sparsity.densify(tensor.shape(), 1, stored, bytemuck::cast_slice_mut(&mut dense));
                expanded.map_err(|e| Error::InvalidNode(e.to_string()))?;
                Storage::Dense(Arc::new(dense))
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
    pub(crate) fn constant(cx: &PrepareContext<'_>, i: usize) -> Option<Vec<i8>> {
        let tensor = cx.input(i).ok()?;
        let bytes = tensor.constant_bytes().filter(|_| tensor.tensor().sparsity.is_none())?;
        let unpacked =
            |bits| (0..tensor.shape().elements()).map(move |i| signed(packed(bytes, bits, i), bits));
        Some(match tensor.ty() {
            TensorType::Int8 | TensorType::UInt8 => bytes.iter().map(|b| b.cast_signed()).collect(),
            TensorType::Int4 => unpacked(4).collect(),
            TensorType::Int2 => unpacked(2).collect(),
            _ => return None,
        })
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
        for (i, weight) in unpacked.iter_mut().enumerate() {
            *weight = signed(packed(bytes, bits, i), bits);
        }
        Ok(unpacked)
    }
}

/// Returns the `bits` low bits of a byte as a signed number.
pub(crate) fn signed(value: u8, bits: usize) -> i8 {
    let unused = 8 - bits;
    (value << unused).cast_signed() >> unused
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
            "{} scales for blocks of {block_size} elements do not match tensor \"{}\" of shape {}",
            scales.len(),
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
                let mut multipliers = budget.reserved(scales.len())?;
                scales.iter().try_for_each(|scale| multipliers.push(multiplier(scale)?))?;
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
