//! Convolutions and matrix products with integer weights: weights stay packed on the device, and sums are scaled as in
//! the CPU kernels.

use std::borrow::Cow;

use delegraph_core::error::counted;
use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::Activation as Fused;
use delegraph_core::{Quantization, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::quantize::Affine;
use delegraph_shaders::{
    Activation, DoubleChannel, Epilogue, FixedChannel, IntegerResult, Integers, RealChannel, Scaling, Sums,
    Terms, WideChannel, batch_matmul, fully_connected, row_scales, row_steps,
};

use super::{activation, invalid_scale, mixed_types};
use crate::graph::lowering::{Lowering, Product, no_scale, unsupported};
use crate::graph::{Element, ValueId, Weights};

/// The operands of a product with integer weights, and the arithmetic of the CPU kernel that it reproduces.
pub(super) struct Operands {
    /// The input that holds the activations.
    pub input: usize,
    /// The input that holds the weights.
    pub filter: usize,
    /// The input that holds the bias; `None` if the bias is added in a later step.
    pub bias: Option<usize>,
    /// The dimension of the weights that counts output channels.
    pub dimension: usize,
    /// The activation that is applied to the result.
    pub activation: Fused,
    /// How results of 8-bit activations round halves.
    pub rounding: Rounding,
    /// The precision in which the scales of input and weights are multiplied.
    pub scale_product: ScaleProduct,
    /// The weights that may have a zero point.
    pub weight_zeros: WeightZeros,
    /// How sums of 16-bit activations are scaled.
    pub i16_accumulator: I16Accumulator,
    /// How float activations are quantized while running.
    pub float_rows: FloatRows,
}

/// How results in 32-bit fixed point round halves. CPU kernels that process several channels or elements at once round
/// the remainder differently.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rounding {
    /// Halves are rounded away from zero.
    Away,
    /// Halves are rounded upwards.
    Up,
    /// Halves are rounded upwards in this number of leading output channels, and away from zero in the others.
    UpInLeadingChannels(u32),
    /// Halves are rounded upwards in this number of leading output elements, and away from zero in the others.
    UpInLeadingElements(usize),
}

impl Rounding {
    /// Whether halves of output channel `channel` are rounded upwards, at least in leading elements.
    fn is_up(self, channel: usize) -> bool {
        match self {
            Rounding::Away => false,
            Rounding::Up | Rounding::UpInLeadingElements(_) => true,
            Rounding::UpInLeadingChannels(count) => channel < count as usize,
        }
    }

    /// Row and channel of the first output element that never rounds halves upwards; the row is `u32::MAX` where there
    /// is no such element.
    fn tail(self, channels: usize) -> [u32; 2] {
        match self {
            Rounding::UpInLeadingElements(count) => {
                let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                [place(count / channels.max(1)), place(count % channels.max(1))]
            }
            Rounding::Away | Rounding::Up | Rounding::UpInLeadingChannels(_) => [u32::MAX, 0],
        }
    }
}

/// The precision in which the scales of input and weights are multiplied.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ScaleProduct {
    Single,
    Double,
}

/// The weights that may have a zero point other than 0.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WeightZeros {
    /// UINT8 weights.
    Unsigned,
    /// Weights of any type.
    Any,
}

/// How CPU kernels accumulate and scale sums of 16-bit activations.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum I16Accumulator {
    /// In 32 bits, with the fixed-point factor of 8-bit activations.
    I32,
    /// In 64 bits, with a fixed-point factor.
    I64,
    /// With a factor in double precision; sums are of 32 bits where `wraps`, of 64 bits otherwise.
    Double { wraps: bool },
}

/// Rows of float activations, each quantized with a scale of its own.
#[derive(Clone, Copy)]
pub(super) struct FloatRows {
    /// Number of rows.
    pub count: u32,
    /// Output pixels that are computed from one row.
    pub pixels: u32,
    /// Whether rows have a zero point.
    pub asymmetric: bool,
}

/// Returns whether input `i` holds integer weights.
pub(super) fn are_weights(cx: &Lowering<'_, '_, '_>, i: usize) -> bool {
    use TensorType::{Int2, Int4, Int8, UInt8};
    matches!(cx.ty(i), Some(Int8 | UInt8 | Int4 | Int2))
}

struct Filter<'a> {
    weights: Cow<'a, [i8]>,
    bits: u32,
    zero: i32,
    /// One per channel.
    scales: Vec<f32>,
    /// Channels are the innermost dimension.
    last: bool,
}

impl<'a> Filter<'a> {
    /// `signed`: UINT8 weights are read as signed numbers.
    fn new(cx: &Lowering<'a, '_, '_>, i: usize, dimension: usize, signed: bool) -> Result<Self, Rejection> {
        let shape = cx.input_shape(i)?;
        let channels = shape.get(dimension).map_or(0, |&n| n as usize);
        let bytes = cx.dense_bytes(i)?;
        let unpacked = |bits: usize| -> Cow<'a, [i8]> {
            let count = shape.iter().map(|&n| n as usize).product();
            let weight = |at: usize| {
                let byte = bytes.get(at * bits / 8).copied().unwrap_or(0);
                (byte << (8 - bits - at * bits % 8)).cast_signed() >> (8 - bits)
            };
            Cow::Owned((0..count).map(weight).collect())
        };
        let of_bytes = |bytes: Cow<'a, [u8]>| match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytemuck::cast_slice(bytes)),
            Cow::Owned(bytes) => Cow::Owned(bytes.into_iter().map(u8::cast_signed).collect()),
        };
        let ty = cx.ty(i);
        let unsigned = ty == Some(TensorType::UInt8) && !signed;
        let (weights, bits): (Cow<'_, [i8]>, _) = match ty {
            Some(TensorType::UInt8) if unsigned => {
                (bytes.iter().map(|b| (b ^ 0x80).cast_signed()).collect::<Vec<_>>().into(), 8)
            }
            Some(TensorType::Int8 | TensorType::UInt8) => (of_bytes(bytes), 8),
            Some(TensorType::Int4) => (unpacked(4), 4),
            Some(TensorType::Int2) => (unpacked(2), 4),
            _ => return Err(cx.wrong_type(i)),
        };
        let Some(Quantization::Affine(affine)) = cx.quantization(i) else {
            return Err(unsupported(format!(
                "input {i} has no scales; only scales per tensor or per channel are supported"
            )));
        };
        let scales = match affine.scales.as_slice() {
            [one] => vec![*one; channels],
            scales if scales.len() == channels && affine.dimension == dimension => scales.to_vec(),
            scales => {
                return Err(unsupported(format!(
                    "{} scales along dimension {} of {}; \
                        only one per tensor or per channel is supported",
                    scales.len(),
                    affine.dimension,
                    counted(channels, "channel")
                )));
            }
        };
        let zero = match affine.zero_points.uniform() {
            Some(one) if !signed && affine.zero_points.len() == 1 => i32::try_from(one).unwrap_or(i32::MAX),
            _ if affine.zero_points.are_zero() => 0,
            _ => {
                return Err(unsupported(format!(
                    "input {i} has zero points; \
                        only one per tensor, of weights that are not read as signed, is supported"
                )));
            }
        };
        let zero = zero.saturating_sub(if unsigned { 128 } else { 0 });
        if !(-128..=127).contains(&zero) || !scales.iter().all(|s| s.is_finite() && *s > 0.0) {
            return Err(unsupported(format!(
                "input {i} has zero point {zero} after its shift to INT8, or a scale that is \
                    not positive and finite; only zero points of INT8 and positive scales are supported"
            )));
        }
        let last = dimension > 0 && dimension + 1 == shape.len();
        Ok(Filter { weights, bits, zero, scales, last })
    }

    /// Returns the form of the product for the kernel, which determines how sums are accumulated. `largest`: the
    /// largest magnitude of an input minus its zero point. `wraps`: sums have 32 bits.
    fn integers(
        &self,
        input_zero: i32,
        largest: u32,
        wraps: bool,
        result: IntegerResult,
    ) -> Result<Integers, Rejection> {
        let channels = self.scales.len().max(1);
        let magnitude = |&weight: &i8| (i32::from(weight) - self.zero).unsigned_abs();
        let weight = self.weights.iter().map(magnitude).max().unwrap_or(0);
        let depth = self.weights.len() / channels;
        let sum = |channel: &[i8]| channel.iter().map(|w| u64::from(magnitude(w))).sum::<u64>();
        let weights = match self.last {
            false => self.weights.chunks(depth.max(1)).map(sum).max(),
            true => {
                let mut sums = vec![0; channels];
                for pixel in self.weights.chunks(channels) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, w)| *sum += u64::from(magnitude(w)));
                }
                sums.into_iter().max()
            }
        };
        // Channels that are not a multiple of four are padded with up to three more.
        let count = 4 * depth as u64;
        let weights = weights.unwrap_or(0);
        let sums = Sums::of(Terms { count, input: largest, weight, weights, wraps });
        let sums =
            sums.ok_or_else(|| too_large(u32::try_from(depth).unwrap_or(u32::MAX), largest, weight))?;
        Ok(Integers { input_zero, weight_zero: self.zero, bits: self.bits, sums, result })
    }

    /// An upper bound of the magnitude of a channel's sum.
    fn largest_sum(&self, largest: u32) -> u64 {
        let depth = (self.weights.len() / self.scales.len().max(1)) as u64;
        depth.saturating_mul(255).saturating_mul(largest.into())
    }
}

/// Prepares a product of integer weights with activations of floats, 8-bit or 16-bit integers.
pub(super) fn product<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let input = cx.any_input(operands.input)?;
    match (cx.element(input), cx.affine(input)) {
        (Element::F32, _) => by_rows(cx, input, operands),
        (Element::I32, Some(affine)) if cx.is_bytes(input) || affine.zero == 0 => {
            fixed(cx, input, affine, operands)
        }
        _ => Err(cx.wrong_type(operands.input)),
    }
}

/// Float activations are quantized row by row while running.
fn by_rows<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, true)?;
    let bias = operands.bias.map_or(Ok(None), |bias| cx.optional_constant(bias))?;
    let output = cx.output(0)?;
    if cx.element(output) != Element::F32 {
        return Err(mixed_types(cx));
    }
    let FloatRows { count, pixels, asymmetric } = operands.float_rows;
    let [steps, scales] = steps_of_rows(cx, input, count, asymmetric)?;
    let channel = |(o, &scale): (usize, &f32)| {
        let bias = bias.as_ref().and_then(|bias| bias.get(o)).copied().unwrap_or(0.0);
        RealChannel { scale, bias }.words()
    };
    let channels = filter.scales.iter().enumerate().flat_map(channel).collect();
    let largest = if asymmetric { 255 } else { 127 };
    let integers = filter.integers(0, largest, true, IntegerResult::Real { row: pixels })?;
    Ok(Product {
        epilogue: Epilogue::of_integers(activation(operands.activation)?, integers),
        inputs: vec![steps, scales],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
    })
}

/// The quantized rows of floats, and their scales.
fn steps_of_rows(
    cx: &mut Lowering<'_, '_, '_>,
    input: ValueId,
    rows: u32,
    asymmetric: bool,
) -> Result<[ValueId; 2], Rejection> {
    let shape = cx.shape(input);
    let depth = shape.iter().product::<u32>().checked_div(rows).unwrap_or(0);
    let scales = cx.temporary(&[rows, 4]);
    cx.push(row_scales::Spec { rows, depth, asymmetric }, &[input], scales)?;
    let steps = cx.temporary_of(&shape, Element::I32);
    let low = if asymmetric { -128 } else { -127 };
    cx.push(row_steps::Spec { rows, depth, low }, &[input, scales], steps)?;
    Ok([steps, scales])
}

/// Constant 8-bit weights with one scale, read as signed numbers regardless of their type.
#[derive(Default)]
pub(super) struct SignedWeights {
    pub weights: Vec<i8>,
    pub scale: f32,
}

/// Returns the weights in input `i`, which must be dense.
pub(super) fn signed_weights(cx: &Lowering<'_, '_, '_>, i: usize) -> Result<SignedWeights, Rejection> {
    let tensor = cx.node().input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
    if !matches!(tensor.ty(), TensorType::Int8 | TensorType::UInt8) {
        return Err(cx.wrong_type(i));
    }
    if tensor.tensor().sparsity.is_some() {
        return Err(unsupported(format!("input {i} is sparse; only dense weights are supported")));
    }
    let scale = cx.quantization(i).and_then(Quantization::scale_zero_point).map(|(scale, _)| scale);
    let scale = scale.filter(|scale| scale.is_finite() && *scale >= 0.0);
    let scale = scale.ok_or_else(|| {
        unsupported(format!("input {i} has no scale per tensor; only a finite scale from 0 on is supported"))
    })?;
    let weights = cx.dense_bytes(i)?.iter().map(|b| b.cast_signed()).collect();
    Ok(SignedWeights { weights, scale })
}

/// Adds a product of float rows, quantized while running, with integer weights `[outputs, inputs]`.
pub(super) fn push_rows(
    cx: &mut Lowering<'_, '_, '_>,
    [rows, inputs, outputs]: [u32; 3],
    input: ValueId,
    filter: Vec<i8>,
    channels: &[RealChannel],
    asymmetric: bool,
    output: ValueId,
) -> Result<(), Rejection> {
    let [steps, scales] = steps_of_rows(cx, input, rows, asymmetric)?;
    let result = IntegerResult::Real { row: 1 };
    let sums = sums_of(&filter, inputs, if asymmetric { 255 } else { 127 }, 0)?;
    let integers = Integers { input_zero: 0, weight_zero: 0, bits: 8, sums, result };
    let epilogue = Epilogue::of_integers(Activation::None, integers);
    let channels = channels.iter().flat_map(|channel| channel.words()).collect();
    let weights = Weights::Integers { filter: filter.into(), channels };
    let spec = fully_connected::Spec { rows, inputs, outputs, epilogue };
    cx.push_product(spec, Product { epilogue, inputs: vec![steps, scales], weights, output })
}

/// A rejection of sums of `depth` products whose factors have magnitudes up to `input` and `weight`.
fn too_large(depth: u32, input: u32, weight: u32) -> Rejection {
    let sums = format!("sums of {depth} products of integers up to {input} and {weight}");
    unsupported(format!("{sums}; only sums that fit the accumulator are supported"))
}

/// Returns how sums over rows of weights are accumulated; they wrap to 32 bits. `largest`: the largest magnitude of the
/// other factor. `zero`: the zero point of the weights.
pub(super) fn sums_of(filter: &[i8], depth: u32, largest: u32, zero: i32) -> Result<Sums, Rejection> {
    let magnitude = |w: &i8| i32::from(*w).saturating_sub(zero).unsigned_abs();
    let row = |row: &[i8]| row.iter().map(|w| u64::from(magnitude(w))).sum();
    let terms = Terms {
        // Channels that are not a multiple of four are padded with up to three more.
        count: 4 * u64::from(depth),
        input: largest,
        weight: filter.iter().map(magnitude).max().unwrap_or(0),
        weights: filter.chunks(depth.max(1) as usize).map(row).max().unwrap_or(0),
        wraps: true,
    };
    Sums::of(terms).ok_or_else(|| too_large(depth, largest, terms.weight))
}

/// Integers without conversion to floats, in the arithmetic of the CPU kernels.
fn fixed<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    from: Affine,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, false)?;
    let bias = bias_integers(cx, operands.bias)?.unwrap_or_default();
    let output = cx.output(0)?;
    let to = cx.affine(output).ok_or_else(no_scale)?;
    let bytes = cx.is_bytes(input);
    let signed = cx.ty(operands.filter) != Some(TensorType::UInt8);
    if !bytes && to.zero != 0 || signed && filter.zero != 0 && operands.weight_zeros == WeightZeros::Unsigned
    {
        return Err(unsupported(format!(
            "output zero point {}, weight zero point {}; \
                only 0 is supported for 16-bit outputs and signed weights",
            to.zero, filter.zero
        )));
    }
    let accumulator = if bytes { I16Accumulator::I32 } else { operands.i16_accumulator };
    let largest = from.high.abs_diff(from.zero).max(from.low.abs_diff(from.zero));
    let mut channels = Vec::new();
    for (o, &scale) in filter.scales.iter().enumerate() {
        let product = match operands.scale_product {
            ScaleProduct::Single => f64::from(from.scale * scale),
            ScaleProduct::Double => f64::from(from.scale) * f64::from(scale),
        };
        let factor = Multiplier::new(product / f64::from(to.scale)).map_err(invalid_scale)?;
        let bias = bias.get(o).copied().unwrap_or(0);
        match accumulator {
            I16Accumulator::I32 => {
                let (Multiplier { multiplier, shift }, up) = (factor, operands.rounding.is_up(o));
                channels.extend(FixedChannel { bias: bias as i32, multiplier, shift, up }.words());
            }
            I16Accumulator::I64 => {
                let (multiplier, right) = factor.wide();
                channels.extend(WideChannel { bias, multiplier: multiplier.unsigned_abs(), right }.words());
            }
            I16Accumulator::Double { wraps } => {
                let size = bias.unsigned_abs().saturating_add(filter.largest_sum(largest));
                // Doubles hold sums of up to 53 bits exactly.
                let ratio = f64::from(from.scale) * f64::from(scale) / f64::from(to.scale);
                let words = DoubleChannel { bias, ratio, wraps }.words().filter(|_| size < 1 << 53);
                let words = words.ok_or_else(|| {
                    unsupported(format!(
                        "scale ratio {ratio} and sums of up to {size}; \
                        only ratios of 0 or from 2^-70 to below 2^50, and sums below 2^53, are supported"
                    ))
                })?;
                channels.extend(words);
            }
        }
    }
    let (low, high) = range(operands.activation, to)?;
    let (scaling, wraps) = match accumulator {
        I16Accumulator::I32 => (Scaling::Narrow, true),
        I16Accumulator::I64 => (Scaling::Wide, false),
        I16Accumulator::Double { wraps } => (Scaling::Double, wraps),
    };
    let tail = operands.rounding.tail(filter.scales.len());
    let result = IntegerResult::Fixed { scaling, zero: to.zero, low, high, tail };
    let integers = filter.integers(from.zero, largest, wraps, result)?;
    Ok(Product {
        epilogue: Epilogue::of_integers(Activation::None, integers),
        inputs: vec![input],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
    })
}

/// Returns how sums over `depth` products of two computed 8-bit operands are scaled. `up`: halves are rounded upwards.
pub(super) fn steps(
    [a, b, to]: [Affine; 3],
    depth: u32,
    bias: bool,
    up: bool,
    fused: Fused,
) -> Result<batch_matmul::Steps, Rejection> {
    let largest = |of: Affine| of.high.abs_diff(of.zero).max(of.low.abs_diff(of.zero));
    let (input, weight) = (largest(a), largest(b));
    let weights = u64::from(depth).saturating_mul(weight.into());
    let sums = Sums::of(Terms { count: depth.into(), input, weight, weights, wraps: true });
    let sums = sums.ok_or_else(|| too_large(depth, input, weight))?;
    let ratio = f64::from(a.scale * b.scale) / f64::from(to.scale);
    let Multiplier { multiplier, shift } = Multiplier::new(ratio).map_err(invalid_scale)?;
    let (low, high) = range(fused, to)?;
    let zeros = [a.zero, b.zero];
    Ok(batch_matmul::Steps { zeros, bias, multiplier, shift, up, zero: to.zero, low, high, sums })
}

fn bias_integers(cx: &Lowering<'_, '_, '_>, i: Option<usize>) -> Result<Option<Vec<i64>>, Rejection> {
    i.filter(|&i| cx.has_input(i)).map(|i| cx.integers(i)).transpose()
}

/// Returns the range of a quantized output after an activation.
pub(super) fn range(fused: Fused, output: Affine) -> Result<(i32, i32), Rejection> {
    let Some((low, high)) = fused.clamp() else {
        return Err(unsupported(format!(
            "activation {fused:?} of integers; only activations that clamp are supported"
        )));
    };
    let bound = |real: f32, limit: i32| match real.is_finite() {
        true => output.zero.saturating_add((real / output.scale).round() as i32),
        false => limit,
    };
    let (low, high) = (bound(low, output.low).max(output.low), bound(high, output.high).min(output.high));
    // The upper bound takes precedence where the bounds cross.
    Ok((low.min(high), high))
}
