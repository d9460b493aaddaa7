//! What convolutions and matrix products of integer weights share: weights that stay packed, and what becomes of the
//! sums.

use std::borrow::Cow;

use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::Activation as Fused;
use delegraph_core::{Quantization, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::quantize::Affine;
use delegraph_shaders::{
    Activation, DoubleChannel, Epilogue, FixedChannel, IntegerResult, Integers, RealChannel, Scaling, Sums,
    Terms, WideChannel, batch_matmul, fully_connected, row_scales, row_steps,
};

use super::{activation, invalid_scale};
use crate::graph::{Element, ValueId, Weights};
use crate::lower::{Lowering, unsupported};

/// A product whose weights are integers.
pub(super) struct Operands {
    /// Which input holds the activations.
    pub input: usize,
    /// Which input holds the weights.
    pub filter: usize,
    /// Which input holds the bias, if any.
    pub bias: usize,
    /// The dimension of the weights that counts output channels.
    pub dimension: usize,
    pub activation: Fused,
    /// How many output channels round halves upwards; the rest round them away from zero.
    pub upwards: usize,
    /// The output element from which on none does.
    pub tail: usize,
    /// Scales are multiplied in single precision.
    pub single: bool,
    /// Signed weights may have a zero point.
    pub zeros: bool,
    /// What becomes of the sums of activations of 16 bits.
    pub sixteen: Sixteen,
    /// Rows of float activations, each with a scale of its own.
    pub rows: u32,
    /// Output pixels that come from one such row.
    pub row_pixels: u32,
    /// Whether such rows have a zero point.
    pub asymmetric: bool,
}

/// How the kernels on the CPU scale sums of activations of 16 bits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sixteen {
    /// 32 bits of them, as those of bytes.
    Narrow,
    /// 64 bits.
    Wide,
    /// In double precision; of 64 bits, or of 32.
    Double { wraps: bool },
}

/// What the step of the product needs.
pub(crate) struct Product<'a> {
    pub epilogue: Epilogue,
    pub inputs: Vec<ValueId>,
    pub weights: Weights<'a>,
    pub output: ValueId,
}

/// Whether input `i` is weights of integers.
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
    /// `signed`: UINT8 holds signed numbers all the same.
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
            return Err(unsupported(format!("input {i} has no scales per tensor or channel")));
        };
        let scales = match affine.scales.as_slice() {
            [one] => vec![*one; channels],
            scales if scales.len() == channels && affine.dimension == dimension => scales.to_vec(),
            scales => return Err(unsupported(format!("{} scales of {channels} channels", scales.len()))),
        };
        let zero = match affine.zero_points.uniform() {
            Some(one) if !signed && affine.zero_points.len() == 1 => i32::try_from(one).unwrap_or(i32::MAX),
            _ if affine.zero_points.are_zero() => 0,
            _ => return Err(unsupported("weights with zero points")),
        };
        let zero = zero.saturating_sub(if unsigned { 128 } else { 0 });
        if !(-128..=127).contains(&zero) || !scales.iter().all(|s| s.is_finite() && *s >= 0.0) {
            return Err(unsupported(format!("the quantization of input {i}")));
        }
        let last = dimension > 0 && dimension + 1 == shape.len();
        Ok(Filter { weights, bits, zero, scales, last })
    }

    /// `largest`: the largest magnitude of an input, less what stands for zero. `wraps`: sums have 32 bits.
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
        // Channels that come in no fours take as much as three more would.
        let count = 4 * depth as u64;
        let weights = weights.unwrap_or(0);
        let sums = Sums::of(Terms { count, input: largest, weight, weights, wraps });
        let sums = sums.ok_or_else(|| unsupported(format!("sums of {depth} products of such integers")))?;
        Ok(Integers { input_zero, weight_zero: self.zero, bits: self.bits, sums, result })
    }

    /// What the sums of a channel may come to.
    fn largest_sum(&self, largest: u32) -> u64 {
        let depth = (self.weights.len() / self.scales.len().max(1)) as u64;
        depth.saturating_mul(255).saturating_mul(largest.into())
    }
}

/// Prepares a product of integer weights with activations of floats, bytes or 16-bit integers.
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

/// Float activations become integers row by row while running.
fn by_rows<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, true)?;
    let bias = cx.optional_constant(operands.bias)?;
    let output = cx.output(0)?;
    if cx.element(output) != Element::F32 {
        return Err(unsupported("an integer output of a float input"));
    }
    let asymmetric = operands.asymmetric;
    let [steps, scales] = steps_of_rows(cx, input, operands.rows, asymmetric)?;
    let channel = |(o, &scale): (usize, &f32)| {
        let bias = bias.as_ref().and_then(|bias| bias.get(o)).copied().unwrap_or(0.0);
        RealChannel { scale, bias }.words()
    };
    let channels = filter.scales.iter().enumerate().flat_map(channel).collect();
    let largest = if asymmetric { 255 } else { 127 };
    let integers = filter.integers(0, largest, true, IntegerResult::Real { row: operands.row_pixels })?;
    Ok(Product {
        epilogue: Epilogue::of_integers(activation(operands.activation)?, integers),
        inputs: vec![steps, scales],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
    })
}

/// The integers of rows of floats, and what they are found with.
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

/// Constant weights of bytes, signed whatever their type says, with one scale.
#[derive(Default)]
pub(super) struct SignedWeights {
    pub weights: Vec<i8>,
    pub scale: f32,
}

/// The weights in input `i`, which is no sparse tensor.
pub(super) fn signed_weights(cx: &Lowering<'_, '_, '_>, i: usize) -> Result<SignedWeights, Rejection> {
    let tensor = cx.node().input(i).ok_or_else(|| unsupported(format!("input {i} is missing")))?;
    if !matches!(tensor.ty(), TensorType::Int8 | TensorType::UInt8) {
        return Err(cx.wrong_type(i));
    }
    if tensor.tensor().sparsity.is_some() {
        return Err(unsupported(format!("sparse integers in input {i}")));
    }
    let scale = cx.quantization(i).and_then(Quantization::scale_zero_point).map(|(scale, _)| scale);
    let scale = scale.filter(|scale| scale.is_finite() && *scale >= 0.0);
    let scale = scale.ok_or_else(|| unsupported(format!("input {i} has no scale of its own")))?;
    let weights = cx.dense_bytes(i)?.iter().map(|b| b.cast_signed()).collect();
    Ok(SignedWeights { weights, scale })
}

/// A product of rows of floats with weights of integers, `[outputs, inputs]`, for which the rows are made integers.
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

/// How sums of 32 bits are built of rows of weights. `largest`: the largest magnitude of what they meet.
pub(super) fn sums_of(filter: &[i8], depth: u32, largest: u32, zero: i32) -> Result<Sums, Rejection> {
    let magnitude = |w: &i8| i32::from(*w).saturating_sub(zero).unsigned_abs();
    let row = |row: &[i8]| row.iter().map(|w| u64::from(magnitude(w))).sum();
    let terms = Terms {
        // Channels that come in no fours take as much as three more would.
        count: 4 * u64::from(depth),
        input: largest,
        weight: filter.iter().map(magnitude).max().unwrap_or(0),
        weights: filter.chunks(depth.max(1) as usize).map(row).max().unwrap_or(0),
        wraps: true,
    };
    Sums::of(terms).ok_or_else(|| unsupported(format!("sums of {depth} products of such integers")))
}

/// Integers all the way, in the arithmetic of the kernels on the CPU.
fn fixed<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    from: Affine,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, false)?;
    let bias = bias_integers(cx, operands.bias)?.unwrap_or_default();
    let output = cx.output(0)?;
    let to = cx.affine(output).ok_or_else(|| unsupported("an output without a scale"))?;
    let bytes = cx.is_bytes(input);
    let signed = cx.ty(operands.filter) != Some(TensorType::UInt8);
    if !bytes && to.zero != 0 || signed && filter.zero != 0 && !operands.zeros {
        return Err(unsupported("zero points of 16 bits or of signed weights"));
    }
    let sixteen = if bytes { Sixteen::Narrow } else { operands.sixteen };
    let largest = from.high.abs_diff(from.zero).max(from.low.abs_diff(from.zero));
    let mut channels = Vec::new();
    for (o, &scale) in filter.scales.iter().enumerate() {
        let product = match operands.single {
            true => f64::from(from.scale * scale),
            false => f64::from(from.scale) * f64::from(scale),
        };
        let factor = Multiplier::new(product / f64::from(to.scale)).map_err(invalid_scale)?;
        let bias = bias.get(o).copied().unwrap_or(0);
        match sixteen {
            Sixteen::Narrow => {
                let (Multiplier { multiplier, shift }, up) = (factor, o < operands.upwards);
                channels.extend(FixedChannel { bias: bias as i32, multiplier, shift, up }.words());
            }
            Sixteen::Wide => {
                let (multiplier, right) = factor.wide();
                channels.extend(WideChannel { bias, multiplier: multiplier.unsigned_abs(), right }.words());
            }
            Sixteen::Double { wraps } => {
                let size = bias.unsigned_abs().saturating_add(filter.largest_sum(largest));
                // With sums of up to 53 bits, doubles hold them exactly.
                let ratio = f64::from(from.scale) * f64::from(scale) / f64::from(to.scale);
                let words = DoubleChannel { bias, ratio, wraps }.words().filter(|_| size < 1 << 53);
                let words =
                    words.ok_or_else(|| unsupported(format!("a ratio of {ratio}, a bias of {bias}")))?;
                channels.extend(words);
            }
        }
    }
    let (low, high) = range(operands.activation, to)?;
    let (scaling, wraps) = match sixteen {
        Sixteen::Narrow => (Scaling::Narrow, true),
        Sixteen::Wide => (Scaling::Wide, false),
        Sixteen::Double { wraps } => (Scaling::Double, wraps),
    };
    let outputs = filter.scales.len().max(1);
    let place = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let tail = [place(operands.tail / outputs), place(operands.tail % outputs)];
    let result = IntegerResult::Fixed { scaling, zero: to.zero, low, high, tail };
    let integers = filter.integers(from.zero, largest, wraps, result)?;
    Ok(Product {
        epilogue: Epilogue::of_integers(Activation::None, integers),
        inputs: vec![input],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
    })
}

/// How two computed operands of bytes become integers again, summing over `depth`. `up`: halves are rounded upwards.
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
    let sums = sums.ok_or_else(|| unsupported("products of such integers"))?;
    let ratio = f64::from(a.scale * b.scale) / f64::from(to.scale);
    let Multiplier { multiplier, shift } = Multiplier::new(ratio).map_err(invalid_scale)?;
    let (low, high) = range(fused, to)?;
    let zeros = [a.zero, b.zero];
    Ok(batch_matmul::Steps { zeros, bias, multiplier, shift, up, zero: to.zero, low, high, sums })
}

fn bias_integers(cx: &Lowering<'_, '_, '_>, i: usize) -> Result<Option<Vec<i64>>, Rejection> {
    if cx.has_input(i) { cx.integers(i).map(Some) } else { Ok(None) }
}

/// What a quantized output may hold after an activation.
pub(super) fn range(fused: Fused, output: Affine) -> Result<(i32, i32), Rejection> {
    let Some((low, high)) = fused.clamp() else {
        return Err(unsupported(format!("activation {fused:?} of integers")));
    };
    let bound = |real: f32, limit: i32| match real.is_finite() {
        true => output.zero.saturating_add((real / output.scale).round() as i32),
        false => limit,
    };
    let (low, high) = (bound(low, output.low).max(output.low), bound(high, output.high).min(output.high));
    // The higher bound wins where they cross.
    Ok((low.min(high), high))
}
