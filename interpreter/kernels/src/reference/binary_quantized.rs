//! Quantized kernels of the `binary` family.

use delegraph_core::error::InvalidData;
use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::Activation;
use delegraph_core::quantized::binary::{self, Scaled};
use delegraph_core::{Error, Result, TensorType};

use crate::common::elementwise::elementwise;
use crate::common::index::Nest;
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, unsupported_type};
use crate::common::quantized::{
    Multiplier, QuantizedElement, Steps, activation_range, doubling_high_mul, reciprocal,
    rounding_shift_right, steps_of,
};

pub(super) fn add(cx: &mut PrepareContext<'_>, activation: Activation, pot_scale: bool) -> Result<Invoke> {
    if let Some(shifts) = power_of_two_shifts(cx, pot_scale)? {
        let range = activation_range(activation, cx.output(0)?)?;
        // One of the shifts is 0 (`binary::power_of_two_shifts`): only one input is rounded.
        return elementwise(cx, move |a: i16, b: i16| {
            let sum = rounding_shift_right(a.into(), shifts[0]) + rounding_shift_right(b.into(), shifts[1]);
            i16::clamped(sum.clamp(i16::MIN.into(), i16::MAX.into()), range.0, range.1)
        });
    }
    let (scaled, range) = scaled_sum(cx, activation)?;
    if scaled.output.shift > 0 {
        let ([a, b], to) = steps(cx)?;
        return Err(Error::Unsupported(format!(
            "output scale {}, which is not above the resolution of the fixed-point sum of inputs with scales \
             {} and {}",
            to.scale, a.scale, b.scale
        )));
    }
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.ty() == TensorType::Int16 && a.shape() == b.shape() {
        return Ok(add_sixteens(scaled, range, a.shape().elements() / 16 * 16));
    }
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs_with(Multiplier::apply, a, b);
        (scaled.result(a + b), range)
    })
}

/// TFLite's kernel for 16 bits and equal shapes handles groups of 16 elements, whose inputs it rounds once.
fn add_sixteens(scaled: Scaled, (low, high): (i32, i32), together: usize) -> Invoke {
    Box::new(move |cx| {
        let (a, b, output) = (cx.input::<i16>(0)?, cx.input::<i16>(1)?, cx.output::<i16>(0)?);
        let mut pace = Pace::new(cx);
        for (i, ((o, &a), &b)) in output.iter_mut().zip(a).zip(b).enumerate() {
            pace.spend(4)?;
            let [a, b] = match i < together {
                true => scaled.inputs_with(Multiplier::apply_once, a.into(), b.into()),
                false => scaled.inputs_with(Multiplier::apply, a.into(), b.into()),
            };
            *o = i16::clamped(scaled.result(a + b), low, high);
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
    let (scaled, range) = scaled_sum(cx, activation)?;
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs_with(Multiplier::apply, a, b);
        (scaled.result(a - b), range)
    })
}

pub(super) fn squared_difference(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.input(0)?.ty() != TensorType::Int8 {
        return Err(unsupported_type("input 0", cx.input(0)?));
    }
    let range = activation_range(Activation::None, cx.output(0)?)?;
    let (inputs, output) = steps(cx)?;
    let scaled = Scaled::squared(inputs, output)?;
    on_type(cx, move |a, b| {
        let [a, b] = scaled.inputs_with(Multiplier::apply, a, b);
        let difference = a.wrapping_sub(b);
        (scaled.result(difference.wrapping_mul(difference)), range)
    })
}

pub(super) fn mul(cx: &mut PrepareContext<'_>, activation: Activation) -> Result<Invoke> {
    let (a, output) = (cx.input(0)?, cx.output(0)?);
    let range = activation_range(activation, output)?;
    if a.ty() == TensorType::Int16 && output.ty() != TensorType::Int16 {
        return mul_fractions(cx, range);
    }
    let (inputs, to) = steps(cx)?;
    let multiplier = binary::product(inputs, to)?;
    let ([zero_a, zero_b], zero) = (inputs.map(|steps| steps.zero), to.zero);
    on_type(cx, move |a, b| {
        let product = (a - zero_a).wrapping_mul(b - zero_b);
        (zero.wrapping_add(multiplier.apply(product)), range)
    })
}

/// 16-bit fractions whose product has 8 bits.
fn mul_fractions(cx: &mut PrepareContext<'_>, range: (i32, i32)) -> Result<Invoke> {
    fn on<T: QuantizedElement>(cx: &mut PrepareContext<'_>, range: (i32, i32), zero: i32) -> Result<Invoke> {
        elementwise(cx, move |a: i16, b: i16| {
            // The high half of twice the product, which overflows only for the minimum squared.
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
    let (a, output) = (cx.input(0)?, cx.output(0)?);
    let range = activation_range(activation, output)?;
    let (inputs, to) = steps(cx)?;
    let multiplier = binary::quotient(inputs, to)?;
    let ([zero_a, zero_b], zero) = (inputs.map(|steps| steps.zero), to.zero);
    let quotient = move |a: i32, b: i32| {
        let (mut a, mut b) = (a - zero_a, b - zero_b);
        if b < 0 {
            (a, b) = (-a, -b);
        }
        let (inverse, inverse_shift) = reciprocal(b);
        // Shifting left by the redundant sign bits keeps the most bits of the quotient.
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
            return Err(InvalidData::DivisionByZero.into());
        }
        let quotient = |a: T, b: T| {
            let (value, (low, high)) = f(a.into(), b.into());
            T::clamped(value, low, high)
        };
        nest.zip_polled(cx.input(0)?, divisor, cx.output(0)?, quotient, || cx.check_interrupted())
    }))
}

/// `f` returns a value and the range to clamp it to.
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

/// Factors of a sum or a difference, and bounds of the result.
pub(crate) fn scaled_sum(cx: &PrepareContext<'_>, activation: Activation) -> Result<(Scaled, (i32, i32))> {
    let range = activation_range(activation, cx.output(0)?)?;
    let (inputs, output) = steps(cx)?;
    Ok((Scaled::sum(inputs, output)?, range))
}

/// Quantizations of inputs and output.
fn steps(cx: &PrepareContext<'_>) -> Result<([Steps; 2], Steps)> {
    Ok(([steps_of(cx.input(0)?)?, steps_of(cx.input(1)?)?], steps_of(cx.output(0)?)?))
}

/// For 16-bit tensors whose scales are powers of two (`pot_scale_int16`): right shifts of the inputs to the output's
/// scale. `None` for other tensors.
pub(crate) fn power_of_two_shifts(cx: &PrepareContext<'_>, pot_scale: bool) -> Result<Option<[i32; 2]>> {
    if cx.input(0)?.ty() != TensorType::Int16 || !pot_scale {
        return Ok(None);
    }
    let (inputs, output) = steps(cx)?;
    binary::power_of_two_shifts(inputs, output)
}
