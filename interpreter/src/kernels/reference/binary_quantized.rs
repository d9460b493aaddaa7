//! The quantized half of the `binary` family.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::Activation;
use delegraph_core::{Error, Result, TensorType};

use super::binary::elementwise;
use crate::kernels::index::Nest;
use crate::kernels::prepared::{Invoke, unsupported_type};
use crate::kernels::quantized::{
    Multiplier, QuantizedElement, activation_range, doubling_high_mul, reciprocal, rounding_shift_right,
};

pub(super) fn add(cx: &mut PrepareContext<'_>, activation: Activation, pot_scale: bool) -> Result<Invoke> {
    if let Some(shifts) = power_of_two_shifts(cx, pot_scale)? {
        let range = activation_range(activation, cx.output(0)?)?;
        // One of the shifts is 0.
        return elementwise(cx, move |a: i16, b: i16| {
            let sum = rounding_shift_right(a.into(), shifts[0]) + rounding_shift_right(b.into(), shifts[1]);
            i16::clamped(sum.clamp(i16::MIN.into(), i16::MAX.into()), range.0, range.1)
        });
    }
    let scaled = Scaled::new(cx, activation)?;
    if scaled.output.shift > 0 {
        return Err(Error::Unsupported("an output scale so far below the scales of the inputs".into()));
    }
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.ty() == TensorType::Int16 && a.shape() == b.shape() {
        return Ok(add_sixteens(scaled, a.shape().elements() / 16 * 16));
    }
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs(a, b);
        scaled.output(a + b)
    })
}

/// The field's kernel for 16 bits and equal shapes takes 16 elements at once, whose inputs it rounds just once.
fn add_sixteens(scaled: Scaled, together: usize) -> Invoke {
    Box::new(move |cx| {
        let (a, b, output) = (cx.input::<i16>(0)?, cx.input::<i16>(1)?, cx.output::<i16>(0)?);
        for (i, ((o, &a), &b)) in output.iter_mut().zip(a).zip(b).enumerate() {
            let [a, b] = match i < together {
                true => scaled.inputs_with(Multiplier::apply_once, a.into(), b.into()),
                false => scaled.inputs(a.into(), b.into()),
            };
            let (sum, (low, high)) = scaled.output(a + b);
            *o = i16::clamped(sum, low, high);
        }
        Ok(())
    })
}

pub(super) fn sub(cx: &mut PrepareContext<'_>, activation: Activation, pot_scale: bool) -> Result<Invoke> {
    if let Some(shifts) = power_of_two_shifts(cx, pot_scale)? {
        let range = activation_range(activation, cx.output(0)?)?;
        return elementwise(cx, move |a: i16, b: i16| {
            let difference =
                rounding_shift_right(a.into(), shifts[0]) - rounding_shift_right(b.into(), shifts[1]);
            i16::clamped(difference, range.0, range.1)
        });
    }
    let scaled = Scaled::new(cx, activation)?;
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs(a, b);
        scaled.output(a - b)
    })
}

pub(super) fn squared_difference(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.input(0)?.ty() != TensorType::Int8 {
        return Err(unsupported_type("input 0", cx.input(0)?));
    }
    let scaled = Scaled::squared(cx)?;
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs(a, b);
        let difference = a.wrapping_sub(b);
        scaled.output(difference.wrapping_mul(difference))
    })
}

pub(super) fn mul(cx: &mut PrepareContext<'_>, activation: Activation) -> Result<Invoke> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let range = activation_range(activation, output)?;
    if a.ty() == TensorType::Int16 && output.ty() != TensorType::Int16 {
        return mul_fractions(cx, range);
    }
    let ((scale_a, zero_a), (scale_b, zero_b)) = (a.scale_zero_point()?, b.scale_zero_point()?);
    let (scale, zero) = output.scale_zero_point()?;
    if a.ty() == TensorType::Int16 && (zero_a, zero_b, zero) != (0, 0, 0) {
        return Err(Error::Unsupported("INT16 with a zero point that is not 0".into()));
    }
    // In single precision, as the field computes it.
    let multiplier = Multiplier::new((scale_a * scale_b / scale).into())?;
    on_type(cx, move |a, b| {
        let product = (a - zero_a).wrapping_mul(b - zero_b);
        (zero.wrapping_add(multiplier.apply(product)), range)
    })
}

/// 16-bit fractions whose product goes to 8 bits.
fn mul_fractions(cx: &mut PrepareContext<'_>, range: (i32, i32)) -> Result<Invoke> {
    fn on<T: QuantizedElement>(cx: &mut PrepareContext<'_>, range: (i32, i32), zero: i32) -> Result<Invoke> {
        elementwise(cx, move |a: i16, b: i16| {
            // The high half of twice the product, which only the lowest value squared is too large for.
            let product = i32::from(a) * i32::from(b);
            let nudge = if product >= 0 { 1 << 14 } else { 1 - (1 << 14) };
            let product = ((product + nudge) / (1 << 15)).min(i16::MAX.into());
            let rescaled = rounding_shift_right(product, 8);
            T::clamped(rescaled + zero, range.0, range.1)
        })
    }
    let (_, zero) = cx.output(0)?.scale_zero_point()?;
    match cx.output(0)?.ty() {
        TensorType::Int8 => on::<i8>(cx, range, zero),
        _ => on::<u8>(cx, range, zero),
    }
}

pub(super) fn div(cx: &mut PrepareContext<'_>, activation: Activation) -> Result<Invoke> {
    let (a, b, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    let range = activation_range(activation, output)?;
    let ((scale_a, zero_a), (scale_b, zero_b)) = (a.scale_zero_point()?, b.scale_zero_point()?);
    let (scale, zero) = output.scale_zero_point()?;
    let multiplier = Multiplier::new((scale_a / (scale_b * scale)).into())?;
    let quotient = move |a: i32, b: i32| {
        let (mut a, mut b) = (a - zero_a, b - zero_b);
        if b < 0 {
            (a, b) = (-a, -b);
        }
        let (inverse, inverse_shift) = reciprocal(b);
        // As many bits to the left as the sign allows keep the most of the quotient.
        let headroom = if a >= 0 { a.leading_zeros() - 1 } else { (!a).leading_zeros() - 1 };
        let unscaled = doubling_high_mul(a.wrapping_shl(headroom), inverse);
        let shift = multiplier.shift - inverse_shift - headroom.cast_signed();
        let scaled = rounding_shift_right(doubling_high_mul(unscaled, multiplier.multiplier), -shift);
        (zero.wrapping_add(scaled), range)
    };
    match a.ty() {
        TensorType::Int8 => div_on::<i8>(cx, zero_b, quotient),
        TensorType::UInt8 => div_on::<u8>(cx, zero_b, quotient),
        _ => div_on::<i16>(cx, zero_b, quotient),
    }
}

fn div_on<T: QuantizedElement>(
    cx: &mut PrepareContext<'_>,
    zero: i32,
    f: impl Fn(i32, i32) -> (i32, (i32, i32)) + Send + 'static,
) -> Result<Invoke> {
    let nest = Nest::broadcast(cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
    Ok(Box::new(move |cx| {
        let divisor = cx.input::<T>(1)?;
        if divisor.iter().any(|&b| b.into() == zero) {
            return Err(Error::Kernel("division by 0".into()));
        }
        nest.zip(cx.input(0)?, divisor, cx.output(0)?, |a: T, b: T| {
            let (value, (low, high)) = f(a.into(), b.into());
            T::clamped(value, low, high)
        });
        Ok(())
    }))
}

/// `f` gives a value and the range that it is clamped to.
fn on_type(
    cx: &mut PrepareContext<'_>,
    f: impl Fn(i32, i32) -> (i32, (i32, i32)) + Send + 'static,
) -> Result<Invoke> {
    fn on<T: QuantizedElement>(
        cx: &mut PrepareContext<'_>,
        f: impl Fn(i32, i32) -> (i32, (i32, i32)) + Send + 'static,
    ) -> Result<Invoke> {
        elementwise(cx, move |a: T, b: T| {
            let (value, (low, high)) = f(a.into(), b.into());
            T::clamped(value, low, high)
        })
    }
    match cx.input(0)?.ty() {
        TensorType::Int8 => on::<i8>(cx, f),
        TensorType::UInt8 => on::<u8>(cx, f),
        TensorType::Int16 => on::<i16>(cx, f),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

/// Inputs brought to a common scale, twice the larger of theirs, with bits to spare on the right.
pub(in crate::kernels) struct Scaled {
    pub(in crate::kernels) zero_points: [i32; 2],
    pub(in crate::kernels) left_shift: u32,
    pub(in crate::kernels) inputs: [Multiplier; 2],
    pub(in crate::kernels) output: Multiplier,
    pub(in crate::kernels) zero_point: i32,
    pub(in crate::kernels) range: (i32, i32),
}

impl Scaled {
    /// For a sum.
    pub(in crate::kernels) fn new(cx: &PrepareContext<'_>, activation: Activation) -> Result<Self> {
        let left_shift = if cx.input(0)?.ty() == TensorType::Int16 { 15 } else { 20 };
        let range = activation_range(activation, cx.output(0)?)?;
        let (scale, _) = cx.output(0)?.scale_zero_point()?;
        Self::with(cx, left_shift, range, |twice_max| {
            Multiplier::new(twice_max / f64::from((1u32 << left_shift) as f32 * scale))
        })
    }

    /// For the square of a difference.
    fn squared(cx: &PrepareContext<'_>) -> Result<Self> {
        const LEFT_SHIFT: u32 = 7;
        let range = activation_range(Activation::None, cx.output(0)?)?;
        let (scale, _) = cx.output(0)?.scale_zero_point()?;
        Self::with(cx, LEFT_SHIFT, range, |twice_max| {
            Multiplier::below_one(
                twice_max * twice_max / f64::from((1u32 << (2 * LEFT_SHIFT)) as f32 * scale),
            )
        })
    }

    fn with(
        cx: &PrepareContext<'_>,
        left_shift: u32,
        range: (i32, i32),
        output: impl Fn(f64) -> Result<Multiplier>,
    ) -> Result<Self> {
        let ((scale_a, zero_a), (scale_b, zero_b)) =
            (cx.input(0)?.scale_zero_point()?, cx.input(1)?.scale_zero_point()?);
        let (_, zero_point) = cx.output(0)?.scale_zero_point()?;
        if cx.input(0)?.ty() == TensorType::Int16 && (zero_a, zero_b, zero_point) != (0, 0, 0) {
            return Err(Error::Unsupported("INT16 with a zero point that is not 0".into()));
        }
        // Which steps are in single precision matters for the last bit.
        let twice_max = f64::from(2.0 * scale_a.max(scale_b));
        Ok(Scaled {
            zero_points: [zero_a, zero_b],
            left_shift,
            inputs: [
                Multiplier::below_one(f64::from(scale_a) / twice_max)?,
                Multiplier::below_one(f64::from(scale_b) / twice_max)?,
            ],
            output: output(twice_max)?,
            zero_point,
            range,
        })
    }

    fn inputs(&self, a: i32, b: i32) -> [i32; 2] {
        self.inputs_with(Multiplier::apply, a, b)
    }

    fn inputs_with(&self, apply: fn(Multiplier, i32) -> i32, a: i32, b: i32) -> [i32; 2] {
        let scaled = |value: i32, i: usize| {
            let shifted = value.wrapping_sub(self.zero_points[i]).wrapping_shl(self.left_shift);
            apply(self.inputs[i], shifted)
        };
        [scaled(a, 0), scaled(b, 1)]
    }

    fn output(&self, raw: i32) -> (i32, (i32, i32)) {
        (self.output.apply(raw).wrapping_add(self.zero_point), self.range)
    }
}

/// For 16-bit tensors whose scales are all powers of two, where the model asks for it: how far the inputs are
/// shifted right to get the output's scale.
pub(in crate::kernels) fn power_of_two_shifts(
    cx: &PrepareContext<'_>,
    pot_scale: bool,
) -> Result<Option<[i32; 2]>> {
    if cx.input(0)?.ty() != TensorType::Int16 || !pot_scale {
        return Ok(None);
    }
    let log2 = |scale: f32| {
        let log = scale.ln() * (1.0 / 2f32.ln());
        ((log - log.round()).abs() < 1e-3).then_some(log.round() as i32)
    };
    let scale = |i: usize| if i < 2 { cx.input(i) } else { cx.output(0) }.and_then(|t| t.scale_zero_point());
    let ((a, zero_a), (b, zero_b), (output, zero)) = (scale(0)?, scale(1)?, scale(2)?);
    let (Some(a), Some(b), Some(output)) = (log2(a), log2(b), log2(output)) else { return Ok(None) };
    let shifts = [output.saturating_sub(a), output.saturating_sub(b)];
    if shifts.contains(&0) && shifts.iter().all(|s| *s >= 0) && (zero_a, zero_b, zero) == (0, 0, 0) {
        return Ok(Some(shifts));
    }
    Err(Error::Unsupported(format!(
        "INT16 scales of 2^{a} and 2^{b} with an output scale of 2^{output}; one must be the output's, none larger"
    )))
}
