//! The unary ops on quantized types.

use delegraph_core::kernel::{PrepareContext, TensorView};
use delegraph_core::ops::TensorType;
use delegraph_core::{Error, Result};

use super::{map, unsupported};
use crate::kernels::fixed_point;
use crate::kernels::lookup::{SigmoidTable, Table16, map_bytes, table_of_8_bits};
use crate::kernels::prepared::Invoke;
use crate::kernels::quantized::{
    HardSwish, Multiplier, QuantizedElement, inverse_root, scale_zero_point_in_range,
};

/// Scale and zero point of input and output.
struct Scales {
    input: (f32, i32),
    output: (f32, i32),
}

impl Scales {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        Ok(Scales {
            input: scale_zero_point_in_range(cx.input(0)?)?,
            output: scale_zero_point_in_range(cx.output(0)?)?,
        })
    }

    /// What input values are multiplied by.
    fn ratio(&self) -> f32 {
        self.input.0 / self.output.0
    }

    /// Demands zero points of 0, as the 16-bit kernels do.
    fn symmetric(self) -> Result<Self> {
        if (self.input.1, self.output.1) == (0, 0) {
            return Ok(self);
        }
        Err(Error::Unsupported(format!(
            "16-bit values with zero points {} and {}",
            self.input.1, self.output.1
        )))
    }
}

/// A function of the stored value, clamped to the type.
fn stored<T: QuantizedElement>(f: impl Fn(i32) -> i32 + Send + 'static) -> Result<Invoke> {
    elements(move |x: T| T::clamped(f(x.into()), T::MIN, T::MAX))
}

/// Of 8 bits all results are computed in advance.
fn elements<T: QuantizedElement>(f: impl Fn(T) -> T + Send + 'static) -> Result<Invoke> {
    if size_of::<T>() == 1 { map_bytes(f) } else { map(f) }
}

fn lookup_8_bits<T: QuantizedElement>(scales: &Scales, f: impl Fn(f32) -> f32) -> Result<Invoke> {
    let table: Vec<T> = table_of_8_bits(scales.input, scales.output, f);
    map_bytes(move |x: T| table[(x.into() - T::MIN) as usize])
}

fn lookup_16_bits(scales: &Scales, f: impl Fn(f32) -> f32) -> Result<Invoke> {
    let table = Table16::single(scales.input, scales.output, f);
    map(move |x: i16| table.at(x))
}

pub(super) fn abs(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let input = cx.input(0)?;
    match input.ty() {
        TensorType::Int32 => return map(i32::wrapping_abs),
        TensorType::Int16 if input.quantization().is_none() => return map(i16::wrapping_abs),
        TensorType::Int16 | TensorType::Int8 => {}
        _ => return unsupported(cx),
    }
    let scales = Scales::new(cx)?;
    let (zero, output_zero) = (scales.input.1, scales.output.1);
    let scaled = scales.input.0 != scales.output.0;
    let multiplier = Multiplier::new(scales.ratio().into())?;
    let f = move |x: i32| {
        let magnitude = (x - zero).abs();
        (if scaled { multiplier.apply(magnitude) } else { magnitude }).wrapping_add(output_zero)
    };
    match input.ty() {
        TensorType::Int8 => stored::<i8>(f),
        _ => scales.symmetric().and_then(|_| stored::<i16>(f)),
    }
}

pub(super) fn exp(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Int8 => lookup_8_bits::<i8>(&Scales::new(cx)?, f32::exp),
        TensorType::Int16 => lookup_16_bits(&Scales::new(cx)?.symmetric()?, f32::exp),
        _ => unsupported(cx),
    }
}

pub(super) fn log(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let ty = cx.input(0)?.ty();
    // What has no logarithm gives the lowest value.
    let ln = |x: f32, lowest: f32| if x <= 0.0 { lowest } else { x.ln() };
    let lowest = |(scale, zero_point): (f32, i32), min: i32| min.saturating_sub(zero_point) as f32 * scale;
    match ty {
        TensorType::Int8 => {
            let scales = Scales::new(cx)?;
            let lowest = lowest(scales.output, i8::MIN.into());
            lookup_8_bits::<i8>(&scales, |x| ln(x, lowest))
        }
        TensorType::Int16 => {
            let scales = Scales::new(cx)?.symmetric()?;
            let lowest = lowest(scales.output, i16::MIN.into());
            lookup_16_bits(&scales, |x| ln(x, lowest))
        }
        _ => unsupported(cx),
    }
}

/// Runs `f` on stored values, where none is below the zero point.
fn not_negative<T: QuantizedElement>(zero: i32, f: impl Fn(T) -> T + Send + 'static) -> Result<Invoke> {
    Ok(Box::new(move |cx| {
        let root = |x: T| match x.into() < zero {
            true => Err(Error::Kernel("the root of a negative number".into())),
            false => Ok(f(x)),
        };
        let (input, output) = (cx.input_unless_overwritten::<T>(0)?, cx.output::<T>(0)?);
        match input {
            Some(input) => output.iter_mut().zip(input).try_for_each(|(o, &x)| root(x).map(|r| *o = r)),
            None => output.iter_mut().try_for_each(|o| root(*o).map(|r| *o = r)),
        }
    }))
}

pub(super) fn sqrt(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn root<T: QuantizedElement>(scales: Scales) -> Result<Invoke> {
        let ((scale, zero), (output_scale, output_zero)) = (scales.input, scales.output);
        not_negative(zero, move |x: T| {
            let real = (scale * (x.into() - zero) as f32).sqrt();
            T::clamped(((real / output_scale) as i32).saturating_add(output_zero), T::MIN, T::MAX)
        })
    }
    match cx.input(0)?.ty() {
        TensorType::Int8 => root::<i8>(Scales::new(cx)?),
        TensorType::Int16 => root::<i16>(Scales::new(cx)?.symmetric()?),
        _ => unsupported(cx),
    }
}

pub(super) fn rsqrt(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Int8 => {
            let scales = Scales::new(cx)?;
            let (zero, output_zero) = (scales.input.1, scales.output.1);
            let scale = 1.0 / f64::from(scales.input.0.sqrt() * scales.output.0);
            let multiplier = Multiplier::new(scale)?;
            // Carries 20 bits behind the point from one step to the next.
            const EXTRA: i32 = 20;
            let last = Multiplier { shift: multiplier.shift - EXTRA, ..multiplier };
            not_negative(zero, move |x: i8| {
                let value = i32::from(x) - zero;
                if value == 0 {
                    return i8::MAX;
                }
                let root = inverse_root(value);
                let root = Multiplier { shift: root.shift + EXTRA, ..root }.apply(1);
                i8::clamped(last.apply(root).wrapping_add(output_zero), i8::MIN.into(), i8::MAX.into())
            })
        }
        TensorType::Int16 => {
            let scales = Scales::new(cx)?.symmetric()?;
            let highest = f32::from(i16::MAX) * scales.output.0;
            let f = |x: f32| if x <= 0.0 { highest } else { 1.0 / x.sqrt() };
            let table = Table16::single(scales.input, scales.output, f);
            not_negative(0, move |x: i16| table.at(x))
        }
        _ => unsupported(cx),
    }
}

pub(super) fn relu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, 0.0, f32::INFINITY)
}

pub(super) fn relu6(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    clamp(cx, 0.0, 6.0)
}

pub(super) fn relu_n1_to_1(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.input(0)?.ty() == TensorType::Int16 { unsupported(cx) } else { clamp(cx, -1.0, 1.0) }
}

pub(super) fn relu_0_to_1(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    if cx.input(0)?.ty() == TensorType::Int16 { unsupported(cx) } else { clamp(cx, 0.0, 1.0) }
}

/// Rescales to the output, then clamps.
fn clamp(cx: &mut PrepareContext<'_>, low: f32, high: f32) -> Result<Invoke> {
    fn clamped<T: QuantizedElement>(scales: &Scales, low: f32, high: f32) -> Result<Invoke> {
        let ((_, zero), (scale, output_zero)) = (scales.input, scales.output);
        let quantize = |real: f32| output_zero.saturating_add((real / scale).round() as i32);
        let low = quantize(low).max(T::MIN);
        let high = if high.is_finite() { quantize(high).min(T::MAX) } else { T::MAX };
        let multiplier = Multiplier::new(scales.ratio().into())?;
        elements(move |x: T| {
            T::clamped(multiplier.apply(x.into() - zero).wrapping_add(output_zero), low, high)
        })
    }
    match cx.input(0)?.ty() {
        TensorType::UInt8 => clamped::<u8>(&Scales::new(cx)?, low, high),
        TensorType::Int8 => clamped::<i8>(&Scales::new(cx)?, low, high),
        TensorType::Int16 => clamped::<i16>(&Scales::new(cx)?.symmetric()?, low, high),
        _ => unsupported(cx),
    }
}

pub(super) fn logistic(cx: &mut PrepareContext<'_>, f: fn(f32) -> f32) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::UInt8 | TensorType::Int8 => check_scale(cx.output(0)?, 1.0 / 256.0)?,
        _ => {}
    }
    match cx.input(0)?.ty() {
        TensorType::UInt8 => lookup_8_bits::<u8>(&Scales::new(cx)?, f),
        TensorType::Int8 => lookup_8_bits::<i8>(&Scales::new(cx)?, f),
        TensorType::Int16 => match sigmoid_input(cx, 0)? {
            SigmoidInput::Fixed(_) => map(|x: i16| fixed_point::logistic::<16>(x.into(), 3) as i16),
            SigmoidInput::Scaled(scaled) => {
                let table = SigmoidTable::default();
                map(move |x: i16| table.logistic(scaled.apply(x)))
            }
        },
        _ => unsupported(cx),
    }
}

pub(super) fn tanh(cx: &mut PrepareContext<'_>, f: fn(f32) -> f32) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::UInt8 => lookup_8_bits::<u8>(&Scales::new(cx)?, f),
        TensorType::Int8 => lookup_8_bits::<i8>(&Scales::new(cx)?, f),
        TensorType::Int16 => match sigmoid_input(cx, 1)? {
            SigmoidInput::Fixed(shift) => map(move |x: i16| {
                let x = (i32::from(x) << shift).clamp(i16::MIN.into(), i16::MAX.into());
                fixed_point::tanh::<16>(x, 3) as i16
            }),
            SigmoidInput::Scaled(scaled) => {
                let table = SigmoidTable::default();
                map(move |x: i16| table.tanh(scaled.apply(x)))
            }
        },
        _ => unsupported(cx),
    }
}

fn check_scale(tensor: TensorView<'_>, want: f32) -> Result<()> {
    let (scale, _) = tensor.scale_zero_point()?;
    if scale == want {
        return Ok(());
    }
    Err(Error::Unsupported(format!("an output scale of {scale}, which must be {want}")))
}

/// How 16-bit inputs of LOGISTIC and TANH are read.
enum SigmoidInput {
    /// The scale is a power of two: as fixed point with 3 whole bits, after this shift.
    Fixed(i32),
    /// Rescaled to the table's unit of 1/12288.
    Scaled(Scaled),
}

/// `x * multiplier / 2^shift`, halves rounded up.
#[derive(Clone, Copy)]
struct Scaled {
    multiplier: i32,
    shift: i32,
}

impl Scaled {
    fn apply(self, x: i16) -> i32 {
        let half = if self.shift > 0 { 1 << (self.shift - 1) } else { 0 };
        (i32::from(x).wrapping_mul(self.multiplier).wrapping_add(half)) >> self.shift
    }
}

fn sigmoid_input(cx: &PrepareContext<'_>, highest_shift: i32) -> Result<SigmoidInput> {
    let scales = Scales::new(cx)?.symmetric()?;
    if log2(scales.output.0) != (-15, true) {
        let text = format!("an output scale of {}, which must be 1/32768", scales.output.0);
        return Err(Error::Unsupported(text));
    }
    let (exponent, is_power) = log2(scales.input.0);
    let shift = exponent.saturating_add(12);
    if is_power && (0..=highest_shift).contains(&shift) {
        return Ok(SigmoidInput::Fixed(shift));
    }
    let mut multiplier = f64::from(scales.input.0) * 4096.0 * 3.0;
    let mut shift = 0;
    while multiplier <= 32767.0 / 2.0 && shift <= 30 {
        shift += 1;
        multiplier *= 2.0;
    }
    if multiplier > f64::from(i32::MAX) {
        return Err(Error::Unsupported(format!("an input scale of {}", scales.input.0)));
    }
    Ok(SigmoidInput::Scaled(Scaled { multiplier: multiplier as i32, shift }))
}

/// The nearest power of two, and whether `x` is one.
fn log2(x: f32) -> (i32, bool) {
    let exact = x.ln() * (1.0 / std::f32::consts::LN_2);
    let rounded = exact.round();
    (rounded as i32, (exact - rounded).abs() < 1e-3)
}

pub(super) fn elu(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Int8 => lookup_8_bits::<i8>(&Scales::new(cx)?, super::elu_of),
        _ => unsupported(cx),
    }
}

pub(super) fn gelu(cx: &mut PrepareContext<'_>, f: fn(f32) -> f32) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::UInt8 => lookup_8_bits::<u8>(&Scales::new(cx)?, f),
        TensorType::Int8 => lookup_8_bits::<i8>(&Scales::new(cx)?, f),
        TensorType::Int16 => lookup_16_bits(&Scales::new(cx)?, f),
        _ => unsupported(cx),
    }
}

pub(super) fn leaky_relu(cx: &mut PrepareContext<'_>, alpha: f32) -> Result<Invoke> {
    let ty = cx.input(0)?.ty();
    if !matches!(ty, TensorType::UInt8 | TensorType::Int8 | TensorType::Int16) {
        return unsupported(cx);
    }
    let mut scales = Scales::new(cx)?;
    if ty == TensorType::Int16 {
        scales = scales.symmetric()?;
    }
    let identity = Multiplier::new(scales.ratio().into())?;
    let slope = scales.input.0 * alpha / scales.output.0;
    let below = Multiplier::new(slope.abs().into())?;
    let (zero, output_zero) = (scales.input.1, scales.output.1);
    let f = move |x: i32| {
        let x = x - zero;
        let scaled = match x >= 0 {
            true => identity.apply(x),
            // Halves are rounded upwards in 16 bits, downwards in 8.
            false if slope < 0.0 && ty == TensorType::Int16 => below.apply(-x),
            false if slope < 0.0 => -below.apply(x),
            false => below.apply(x),
        };
        scaled.wrapping_add(output_zero)
    };
    match ty {
        TensorType::UInt8 => stored::<u8>(f),
        TensorType::Int8 => stored::<i8>(f),
        _ => stored::<i16>(f),
    }
}

pub(super) fn hard_swish(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::UInt8 => hard_swish_of(&Scales::new(cx)?).and_then(|h| stored::<u8>(move |x| h.apply(x))),
        TensorType::Int8 => hard_swish_of(&Scales::new(cx)?).and_then(|h| stored::<i8>(move |x| h.apply(x))),
        _ => unsupported(cx),
    }
}

fn hard_swish_of(scales: &Scales) -> Result<HardSwish> {
    HardSwish::new(scales.input, scales.output)
}
