//! Elementwise ops of one quantized input: each function maps a stored integer to the integer that is stored for it.

use super::lookup::{Lookup, SigmoidTable};
use super::{Steps, inverse_root, real, sigmoid, symmetric};
use crate::error::{Error, Result};
use crate::quantized::fixed_point::{HardSwish, Multiplier};

/// The multiplier of input values.
fn ratio(from: Steps, to: Steps) -> Result<Multiplier> {
    Multiplier::new((from.scale / to.scale).into())
}

fn check(from: Steps, to: Steps) -> Result<()> {
    if from.is_wide() { symmetric(from, to) } else { Ok(()) }
}

/// ABS.
///
/// # Errors
/// For scales beyond the range of fixed-point factors and, as in this whole module, for 16 bits with zero points.
pub fn abs(from: Steps, to: Steps) -> Result<impl Fn(i32) -> i32> {
    check(from, to)?;
    let (scaled, multiplier) = (from.scale != to.scale, ratio(from, to)?);
    Ok(move |x: i32| {
        let magnitude = x.wrapping_sub(from.zero).wrapping_abs();
        to.clamp((if scaled { multiplier.apply(magnitude) } else { magnitude }).wrapping_add(to.zero))
    })
}

/// RELU and similar ops: rescales to the output, then clamps to two real numbers.
///
/// # Errors
/// As for [`abs`].
pub fn clamp(from: Steps, to: Steps, low: f32, high: f32) -> Result<impl Fn(i32) -> i32> {
    check(from, to)?;
    let ((low, high), multiplier) = (to.between(low, high), ratio(from, to)?);
    Ok(move |x: i32| multiplier.apply(x.wrapping_sub(from.zero)).wrapping_add(to.zero).max(low).min(high))
}

/// LEAKY_RELU.
///
/// # Errors
/// As for [`abs`].
pub fn leaky_relu(from: Steps, to: Steps, alpha: f32) -> Result<impl Fn(i32) -> i32> {
    check(from, to)?;
    let identity = ratio(from, to)?;
    let slope = from.scale * alpha / to.scale;
    let below = Multiplier::new(slope.abs().into())?;
    Ok(move |x: i32| {
        let x = x.wrapping_sub(from.zero);
        let scaled = match x >= 0 {
            true => identity.apply(x),
            // Halves are rounded upwards in 16 bits, downwards in 8.
            false if slope < 0.0 && from.is_wide() => below.apply(-x),
            false if slope < 0.0 => -below.apply(x),
            false => below.apply(x),
        };
        to.clamp(scaled.wrapping_add(to.zero))
    })
}

/// HARD_SWISH, of 8 bits.
///
/// # Errors
/// As for [`HardSwish::new`].
pub fn hard_swish(from: Steps, to: Steps) -> Result<impl Fn(i32) -> i32> {
    let hard_swish = HardSwish::new((from.scale, from.zero), (to.scale, to.zero))?;
    Ok(move |x: i32| to.clamp(hard_swish.apply(x)))
}

/// EXP.
///
/// # Errors
/// As for [`abs`].
pub fn exp(from: Steps, to: Steps) -> Result<Lookup> {
    check(from, to)?;
    Ok(Lookup::new(from, to, f32::exp))
}

/// LOG. Values without a logarithm give the lowest integer.
///
/// # Errors
/// As for [`abs`].
pub fn log(from: Steps, to: Steps) -> Result<Lookup> {
    check(from, to)?;
    let lowest = to.low.saturating_sub(to.zero) as f32 * to.scale;
    Ok(Lookup::new(from, to, |x| if x <= 0.0 { lowest } else { x.ln() }))
}

/// ELU, of 8 bits.
pub fn elu(from: Steps, to: Steps) -> Lookup {
    Lookup::new(from, to, real::elu)
}

/// GELU. 16 bits may have zero points.
pub fn gelu(from: Steps, to: Steps, approximate: bool) -> Lookup {
    Lookup::new(from, to, if approximate { real::approximate_gelu } else { real::gelu })
}

/// SQRT of values of at least 0.
///
/// # Errors
/// As for [`abs`].
pub fn sqrt(from: Steps, to: Steps) -> Result<impl Fn(i32) -> i32> {
    check(from, to)?;
    Ok(move |x: i32| {
        let root = (from.scale * x.wrapping_sub(from.zero) as f32).sqrt();
        to.clamp(((root / to.scale) as i32).saturating_add(to.zero))
    })
}

/// RSQRT of values of at least 0.
#[derive(Debug, Clone)]
pub enum Rsqrt {
    /// In fixed point, of 8 bits.
    Bytes {
        /// The quantization of the input.
        from: Steps,
        /// The quantization of the output.
        to: Steps,
        /// The multiplier of the root of an integer, which has 20 fraction bits.
        last: Multiplier,
    },
    /// By a table, of 16 bits.
    Wide(Lookup),
}

impl Rsqrt {
    /// Fraction bits of the root of an integer.
    const EXTRA: i32 = 20;

    /// Creates the function between tensors with these quantizations.
    ///
    /// # Errors
    /// As for [`abs`].
    pub fn new(from: Steps, to: Steps) -> Result<Self> {
        if from.is_wide() {
            symmetric(from, to)?;
            let highest = to.high as f32 * to.scale;
            let f = |x: f32| if x <= 0.0 { highest } else { 1.0 / x.sqrt() };
            return Ok(Rsqrt::Wide(Lookup::new(from, to, f)));
        }
        let multiplier = Multiplier::new(1.0 / f64::from(from.scale.sqrt() * to.scale))?;
        let last = Multiplier { shift: multiplier.shift - Self::EXTRA, ..multiplier };
        Ok(Rsqrt::Bytes { from, to, last })
    }

    /// Returns the function at `value`, which is one of its type.
    pub fn at(&self, value: i32) -> i32 {
        let (from, to, last) = match self {
            Rsqrt::Wide(table) => return table.at(value),
            Rsqrt::Bytes { from, to, last } => (from, to, last),
        };
        let value = value.wrapping_sub(from.zero);
        if value == 0 {
            return to.high;
        }
        let root = inverse_root(value);
        let root = Multiplier { shift: root.shift + Self::EXTRA, ..root }.apply(1);
        to.clamp(last.apply(root).wrapping_add(to.zero))
    }
}

/// LOGISTIC or TANH.
#[derive(Debug, Clone)]
pub enum Sigmoid {
    /// Of 8-bit integers.
    Bytes(Lookup),
    /// Of 16-bit integers whose scale is a power of two: TANH if true, as fixed point with 3 integer bits after this
    /// shift to the left.
    Fixed(bool, i32),
    /// Of 16-bit integers, rescaled to the table's unit of 1/12288; TANH if true.
    Scaled(bool, Unit, SigmoidTable),
}

impl Sigmoid {
    /// LOGISTIC.
    ///
    /// # Errors
    /// For output scales that the op does not have, and as for [`abs`].
    pub fn logistic(from: Steps, to: Steps) -> Result<Self> {
        if from.is_wide() {
            return Self::wide(from, to, false);
        }
        if to.scale != 1.0 / 256.0 {
            let want = 1.0 / 256.0;
            return Err(Error::Unsupported(format!("an output scale of {}, which must be {want}", to.scale)));
        }
        Ok(Sigmoid::Bytes(Lookup::new(from, to, real::logistic)))
    }

    /// TANH.
    ///
    /// # Errors
    /// As for [`Sigmoid::logistic`].
    pub fn tanh(from: Steps, to: Steps) -> Result<Self> {
        if from.is_wide() {
            Self::wide(from, to, true)
        } else {
            Ok(Sigmoid::Bytes(Lookup::new(from, to, f32::tanh)))
        }
    }

    fn wide(from: Steps, to: Steps, tanh: bool) -> Result<Self> {
        symmetric(from, to)?;
        if log2(to.scale) != (-15, true) {
            let text = format!("an output scale of {}, which must be 1/32768", to.scale);
            return Err(Error::Unsupported(text));
        }
        let (exponent, is_power) = log2(from.scale);
        let shift = exponent.saturating_add(12);
        if is_power && (0..=i32::from(tanh)).contains(&shift) {
            return Ok(Sigmoid::Fixed(tanh, shift));
        }
        Ok(Sigmoid::Scaled(tanh, Unit::new(from.scale)?, SigmoidTable::default()))
    }

    /// Returns the function at `value`, which is one of its type.
    pub fn at(&self, value: i32) -> i32 {
        match self {
            Sigmoid::Bytes(table) => table.at(value),
            Sigmoid::Fixed(false, _) => sigmoid::logistic::<16>(value, 3),
            Sigmoid::Fixed(true, shift) => {
                sigmoid::tanh::<16>((value << shift).clamp(i16::MIN.into(), i16::MAX.into()), 3)
            }
            Sigmoid::Scaled(false, unit, table) => table.logistic(unit.apply(value)).into(),
            Sigmoid::Scaled(true, unit, table) => table.tanh(unit.apply(value)).into(),
        }
    }
}

/// `x * multiplier / 2^shift`, halves rounded up.
#[derive(Debug, Clone, Copy)]
pub struct Unit {
    multiplier: i32,
    shift: i32,
}

impl Unit {
    fn new(scale: f32) -> Result<Self> {
        let mut multiplier = f64::from(scale) * 4096.0 * 3.0;
        let mut shift = 0;
        while multiplier <= 32767.0 / 2.0 && shift <= 30 {
            shift += 1;
            multiplier *= 2.0;
        }
        if multiplier > f64::from(i32::MAX) {
            return Err(Error::Unsupported(format!(
                "input scale {scale}; only scales below {:.2} are supported",
                f64::from(i32::MAX) / 12288.0
            )));
        }
        Ok(Unit { multiplier: multiplier as i32, shift })
    }

    fn apply(self, x: i32) -> i32 {
        let half = if self.shift > 0 { 1 << (self.shift - 1) } else { 0 };
        (x.wrapping_mul(self.multiplier).wrapping_add(half)) >> self.shift
    }
}

/// Returns the exponent of the nearest power of two, and whether `x` is near that power.
fn log2(x: f32) -> (i32, bool) {
    let exact = x.ln() * (1.0 / std::f32::consts::LN_2);
    let rounded = exact.round();
    (rounded as i32, (exact - rounded).abs() < 1e-3)
}
