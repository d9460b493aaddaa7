//! The arithmetic of quantized ops beyond fixed-point multiplication: the factors that kernels prepare, and whole
//! functions of one value. Kernels on every device use this module, so that all of them compute the same integers.
//!
//! Files are named after the op families whose arithmetic they contain.

use crate::error::{Error, Result};
use crate::ops::Activation;
use crate::quantized::fixed_point::{Multiplier, doubling_high_mul, rounding_shift_right, saturating_shl};
use crate::types::TensorType;

pub mod binary;
pub mod concatenation;
pub mod fixed_point;
pub mod lookup;
pub mod lstm;
pub mod real;
pub mod reduce;
pub mod resize;
pub mod sigmoid;
pub mod softmax;
pub mod unary;

/// The quantization of a tensor: an integer represents `scale * (integer - zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// One step.
    pub scale: f32,
    /// The integer that represents zero.
    pub zero: i32,
    /// The lowest integer.
    pub low: i32,
    /// The highest integer.
    pub high: i32,
}

impl Steps {
    /// Creates the quantization of a tensor of INT8, UINT8 or INT16; `None` for other types.
    pub fn new(ty: TensorType, scale: f32, zero: i32) -> Option<Self> {
        let (low, high) = match ty {
            TensorType::Int8 => (i8::MIN.into(), i8::MAX.into()),
            TensorType::UInt8 => (u8::MIN.into(), u8::MAX.into()),
            TensorType::Int16 => (i16::MIN.into(), i16::MAX.into()),
            _ => return None,
        };
        Some(Steps { scale, zero, low, high })
    }

    /// Returns whether the integers have 16 bits.
    pub fn is_wide(self) -> bool {
        self.high.saturating_sub(self.low) > 255
    }

    /// Returns the nearest integer of the type.
    pub fn clamp(self, value: i32) -> i32 {
        value.max(self.low).min(self.high)
    }

    /// Returns the range of results after an activation.
    ///
    /// # Errors
    /// For an activation that is not a clamp.
    pub fn range(self, activation: Activation) -> Result<(i32, i32)> {
        match activation.clamp() {
            Some((low, high)) => Ok(self.between(low, high)),
            None => Err(Error::Unsupported(format!("activation {activation:?} on a quantized output"))),
        }
    }

    /// Returns the integers nearest to two real numbers, within the type. The higher bound applies where they cross.
    pub(crate) fn between(self, low: f32, high: f32) -> (i32, i32) {
        let quantize = |real: f32| self.zero.saturating_add((real / self.scale).round() as i32);
        let low = if low.is_finite() { quantize(low).max(self.low) } else { self.low };
        let high = if high.is_finite() { quantize(high).min(self.high) } else { self.high };
        (low, high)
    }
}

/// Checks that zero points are 0, which the 16-bit kernels require.
///
/// # Errors
/// If they are not.
pub fn symmetric(from: Steps, to: Steps) -> Result<()> {
    if (from.zero, to.zero) == (0, 0) {
        return Ok(());
    }
    Err(Error::Unsupported(format!(
        "16-bit values with zero points {} and {}; only 0 is supported",
        from.zero, to.zero
    )))
}

/// `1 / x` for `x` above 0, as a fraction of 31 bits and the power of two to divide it by.
pub fn reciprocal(x: i32) -> (i32, i32) {
    let zeros = x.leading_zeros();
    let shifted = (x.cast_unsigned() << zeros).wrapping_sub(1 << 31).cast_signed();
    (one_over_one_plus(shifted), 31 - zeros.cast_signed())
}

/// `1 / (1 + x)` for `x` in `0..1`, both as fractions of 31 bits: three steps of Newton's method in the arithmetic
/// of TFLite's fixed-point library.
pub fn one_over_one_plus(x: i32) -> i32 {
    // Numbers with 29 bits after the point.
    const FORTY_EIGHT_17THS: i32 = 1_515_870_810;
    const MINUS_THIRTY_TWO_17THS: i32 = -1_010_580_540;
    let sum = i64::from(x) + i64::from(i32::MAX);
    let half_denominator = ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32;
    let mut y = FORTY_EIGHT_17THS.wrapping_add(doubling_high_mul(half_denominator, MINUS_THIRTY_TWO_17THS));
    for _ in 0..3 {
        let error = (1i32 << 29).wrapping_sub(doubling_high_mul(half_denominator, y));
        y = y.wrapping_add(saturating_shl(doubling_high_mul(y, error), 2));
    }
    saturating_shl(y, 1)
}

/// `1 / sqrt(x)` for `x` above 0: five steps of Newton's method in fixed point.
pub fn inverse_root(x: i32) -> Multiplier {
    let mul = doubling_high_mul;
    if x <= 1 {
        return Multiplier { multiplier: i32::MAX, shift: 0 };
    }
    let (mut x, mut right) = (x, 11);
    while x >= 1 << 29 {
        x /= 4;
        right += 1;
    }
    // Shifted left by pairs of bits until it is within 2²⁷..2²⁹.
    let pairs = (x.leading_zeros().cast_signed() - 1) / 2 - 1;
    right -= pairs;
    x <<= 2 * pairs;
    // Numbers with 3 whole bits; a product of two has 6, of three 9.
    let half = rounding_shift_right(x >> 1, 1);
    let three_halves = (1 << 28) + (1 << 27);
    let mut y = 1 << 28;
    for _ in 0..5 {
        let cube = saturating_shl(mul(mul(y, y), y), 6);
        y = saturating_shl(mul(three_halves, y).wrapping_sub(mul(half, cube)), 3);
    }
    const HALF_ROOT_OF_2: i32 = 1_518_500_250;
    let mut root = mul(y, HALF_ROOT_OF_2);
    if right < 0 {
        root = root.wrapping_shl(right.unsigned_abs());
        right = 0;
    }
    Multiplier { multiplier: root, shift: -right }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reciprocals() {
        for x in [1, 3, 7, 100, 255, 65_535, i32::MAX] {
            let (fraction, shift) = reciprocal(x);
            let got = f64::from(fraction) / 2f64.powi(31 + shift);
            assert!(approx::abs_diff_eq!(got * f64::from(x), 1.0, epsilon = 1e-8), "1 / {x} is not {got}");
        }
    }

    #[test]
    fn inverse_square_roots() {
        for x in [2, 3, 5, 100, 65_025, 1 << 27, i32::MAX] {
            let Multiplier { multiplier, shift } = inverse_root(x);
            let got = f64::from(multiplier) * 2f64.powi(shift - 31);
            assert!(
                approx::abs_diff_eq!(got * f64::from(x).sqrt(), 1.0, epsilon = 1e-5),
                "1 / √{x} is not {got}"
            );
        }
    }
}
