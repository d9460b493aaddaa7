//! What convolutions and matrix products of integer weights share: weights that stay packed, and what becomes of the
//! sums.

use std::borrow::Cow;

use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::Activation as Fused;
use delegraph_core::{Quantization, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::quantize::{Affine, Direction};
use delegraph_shaders::{
    Activation, Epilogue, FixedChannel, IntegerResult, Integers, RealChannel, row_scales, row_steps,
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
    /// Scales are multiplied in single precision.
    pub single: bool,
    /// Rows of float activations, each with a scale of its own.
    pub rows: u32,
    /// Output pixels that come from one such row.
    pub row_pixels: u32,
    /// Whether such rows have a zero point.
    pub asymmetric: bool,
}

/// What the step of the product needs.
pub(crate) struct Product<'a> {
    pub epilogue: Epilogue,
    pub inputs: Vec<ValueId>,
    pub weights: Weights<'a>,
    pub output: ValueId,
    /// Where the result is rounded to, where that is a step of its own.
    rounded: Option<ValueId>,
}

impl Product<'_> {
    /// Adds what follows the product.
    pub(crate) fn finish(&self, cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
        self.rounded.map_or(Ok(()), |to| cx.round(self.output, to, Direction::Away))
    }
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
        let zero = match affine.zero_points.as_slice() {
            [one] if !signed => i32::try_from(*one).unwrap_or(i32::MAX),
            zeros if zeros.iter().all(|zero| *zero == 0) => 0,
            _ => return Err(unsupported("weights with zero points")),
        };
        let zero = zero.saturating_sub(if unsigned { 128 } else { 0 });
        if !(-128..=127).contains(&zero) || !scales.iter().all(|s| s.is_finite() && *s >= 0.0) {
            return Err(unsupported(format!("the quantization of input {i}")));
        }
        Ok(Filter { weights, bits, zero, scales })
    }

    fn integers(&self, input_zero: i32, result: IntegerResult) -> Integers {
        Integers { input_zero, weight_zero: self.zero, bits: self.bits, result }
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
        (Element::I32, Some(affine)) if cx.is_bytes(input) => fixed(cx, input, affine, operands),
        (Element::I32, Some(affine)) if affine.zero == 0 => wide(cx, input, affine, operands),
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
    let shape = cx.shape(input);
    let (rows, asymmetric) = (operands.rows, operands.asymmetric);
    let depth = shape.iter().product::<u32>().checked_div(rows).unwrap_or(0);
    let scales = cx.temporary(&[rows, 4]);
    cx.push(row_scales::Spec { rows, depth, asymmetric }, &[input], scales)?;
    let steps = cx.temporary_of(&shape, Element::I32);
    let low = if asymmetric { -128 } else { -127 };
    cx.push(row_steps::Spec { rows, depth, low }, &[input, scales], steps)?;
    let channel = |(o, &scale): (usize, &f32)| {
        let bias = bias.as_ref().and_then(|bias| bias.get(o)).copied().unwrap_or(0.0);
        RealChannel { scale, bias }.words()
    };
    let channels = filter.scales.iter().enumerate().map(channel).collect();
    let integers = filter.integers(0, IntegerResult::Real { row: operands.row_pixels });
    Ok(Product {
        epilogue: Epilogue::of_integers(activation(operands.activation)?, integers),
        inputs: vec![steps, scales],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
        rounded: None,
    })
}

/// Bytes all the way, in the fixed-point arithmetic of the kernels on the CPU.
fn fixed<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    from: Affine,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, false)?;
    let bias = bias_integers(cx, operands.bias)?;
    let output = cx.output(0)?;
    let to = cx.affine(output).ok_or_else(|| unsupported("an output without a scale"))?;
    let one_scale = filter.scales.iter().all(|scale| Some(scale) == filter.scales.first());
    let mut channels = Vec::with_capacity(filter.scales.len());
    for (o, &scale) in filter.scales.iter().enumerate() {
        let product = match operands.single && one_scale {
            true => f64::from(from.scale * scale),
            false => f64::from(from.scale) * f64::from(scale),
        };
        let factor = Multiplier::new(product / f64::from(to.scale)).map_err(invalid_scale)?;
        let bias = bias.as_ref().and_then(|bias| bias.get(o)).map_or(0, |&bias| bias as i32);
        let up = o < operands.upwards;
        channels.push(FixedChannel { bias, multiplier: factor.multiplier, shift: factor.shift, up }.words());
    }
    let (low, high) = range(operands.activation, to)?;
    let integers = filter.integers(from.zero, IntegerResult::Fixed { zero: to.zero, low, high });
    Ok(Product {
        epilogue: Epilogue::of_integers(Activation::None, integers),
        inputs: vec![input],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
        rounded: None,
    })
}

/// Activations of 16 bits, whose sums need floats.
fn wide<'a>(
    cx: &mut Lowering<'a, '_, '_>,
    input: ValueId,
    from: Affine,
    operands: &Operands,
) -> Result<Product<'a>, Rejection> {
    let filter = Filter::new(cx, operands.filter, operands.dimension, false)?;
    let bias = bias_integers(cx, operands.bias)?;
    let to = cx.output(0)?;
    let shape = cx.shape(to);
    let output = cx.temporary(&shape);
    let channel = |(o, &scale): (usize, &f32)| {
        let scale = f64::from(scale) * f64::from(from.scale);
        let bias = bias.as_ref().and_then(|bias| bias.get(o)).map_or(0.0, |&bias| bias as f64 * scale);
        RealChannel { scale: scale as f32, bias: bias as f32 }.words()
    };
    let channels = filter.scales.iter().enumerate().map(channel).collect();
    let integers = filter.integers(0, IntegerResult::Real { row: 0 });
    Ok(Product {
        epilogue: Epilogue::of_integers(activation(operands.activation)?, integers),
        inputs: vec![input],
        weights: Weights::Integers { filter: filter.weights, channels },
        output,
        rounded: Some(to),
    })
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
