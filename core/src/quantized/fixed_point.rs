//! Fixed-point arithmetic of quantized ops: the multipliers of TFLite's kernels, rounded at the same places.

use crate::error::{Error, Result};

/// Returns the high half of twice the product, rounded to nearest.
pub fn doubling_high_mul(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    let product = i64::from(a) * i64::from(b);
    let nudge = if product >= 0 { 1 << 30 } else { 1 - (1 << 30) };
    // Rounds towards zero, as the nudge expects.
    ((product + nudge) / (1 << 31)) as i32
}

/// `x / 2^exponent`, rounded to nearest, halves away from zero: 0 beyond an exponent of 31. A negative exponent has the
/// same effect as 0.
pub fn rounding_shift_right(x: i32, exponent: i32) -> i32 {
    if exponent > 31 {
        return 0;
    }
    let exponent = exponent.max(0);
    let mask = ((1i64 << exponent) - 1) as i32;
    let threshold = (mask >> 1) + i32::from(x < 0);
    (x >> exponent) + i32::from((x & mask) > threshold)
}

/// A real factor as `multiplier · 2^(shift - 31)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Multiplier {
    /// From [`Multiplier::new`], the magnitude is 0 or between 2³⁰ and 2³¹.
    pub multiplier: i32,
    /// To the left where positive.
    pub shift: i32,
}

impl Multiplier {
    /// Returns the nearest fixed-point factor. Factors below about 2⁻³² are 0.
    ///
    /// # Errors
    /// If `real` is not finite, or too large.
    pub fn new(real: f64) -> Result<Self> {
        if real == 0.0 {
            return Ok(Multiplier::default());
        }
        let (fraction, mut shift) = split(real);
        let mut fixed = (fraction * (1u64 << 31) as f64).round() as i64;
        if fixed == 1 << 31 {
            fixed /= 2;
            shift += 1;
        }
        if shift < -31 {
            return Ok(Multiplier::default());
        }
        match i32::try_from(fixed) {
            Ok(multiplier) if real.is_finite() && shift <= 30 => Ok(Multiplier { multiplier, shift }),
            _ => Err(Error::Unsupported(format!(
                "rescaling by {real}; only finite factors with a magnitude below 2^30 are supported"
            ))),
        }
    }

    /// Like [`Multiplier::new`], where TFLite's kernels expect a factor between 0 and 1.
    ///
    /// # Errors
    /// If it is not.
    pub fn below_one(real: f64) -> Result<Self> {
        if real > 0.0 && real < 1.0 {
            return Multiplier::new(real);
        }
        Err(Error::Unsupported(format!(
            "rescaling by {real}; only factors above 0 and below 1 are supported"
        )))
    }

    /// `x` times the factor, rounded twice: after the product and after the shift.
    pub fn apply(self, x: i32) -> i32 {
        let left = x.wrapping_shl(self.shift.max(0).cast_unsigned());
        rounding_shift_right(doubling_high_mul(left, self.multiplier), -self.shift.min(0))
    }

    /// Like [`Multiplier::apply`], but halves are rounded upwards both times: as in TFLite's vectorized matrix
    /// products and convolutions.
    pub fn apply_up(self, x: i32) -> i32 {
        let left = x.wrapping_shl(self.shift.max(0).cast_unsigned());
        let high = (i64::from(left) * i64::from(self.multiplier) + (1 << 30)) >> 31;
        match -self.shift.min(0) {
            0 => high as i32,
            right => ((high + (1i64 << (right - 1))) >> right) as i32,
        }
    }

    /// `x` times a factor below 1, rounded once, halves upwards.
    pub fn apply_once(self, x: i32) -> i32 {
        let right = 31 - self.shift.min(0);
        ((i64::from(x) * i64::from(self.multiplier) + (1i64 << (right - 1))) >> right) as i32
    }

    /// Returns the factor as `multiplier · 2^-right` with the 16 bits (sign included) of it that
    /// [`Multiplier::apply_wide`] keeps.
    pub fn wide(self) -> (i32, i32) {
        let kept = if self.multiplier < 0x7fff_0000 { (self.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
        (kept, 15 - self.shift)
    }

    /// Returns an accumulator of up to 48 bits times the factor, of which 16 bits are kept; halves are rounded upwards.
    pub fn apply_wide(self, x: i64) -> i32 {
        let (kept, right) = self.wide();
        let product = x.wrapping_mul(kept.into());
        match right {
            right @ 1.. => (product.wrapping_add(1i64 << (right - 1)) >> right) as i32,
            left => product.wrapping_shl((-left).cast_unsigned()) as i32,
        }
    }
}

/// `real = fraction · 2^exponent` with the fraction's magnitude in `0.5..1`.
fn split(real: f64) -> (f64, i32) {
    let bits = real.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    if exponent == 0 {
        // A subnormal number: scaled up first.
        let (fraction, exponent) = split(real * 2f64.powi(64));
        return (fraction, exponent - 64);
    }
    let fraction = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    (fraction, exponent - 1022)
}

/// `x · 2^exponent`, saturated to the range of the type.
pub fn saturating_shl(x: i32, exponent: u32) -> i32 {
    (i64::from(x) << exponent).clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// `x · relu6(x + 3) / 6` on 16-bit intermediate values.
#[derive(Debug, Clone, Copy)]
pub struct HardSwish {
    input_zero: i32,
    output_zero: i32,
    /// To the output's scale, times 128.
    output: Multiplier,
    /// To a scale where 3 is 32768.
    gate: Multiplier,
}

impl HardSwish {
    /// Creates the function between an input and an output with these scales and zero points.
    ///
    /// # Errors
    /// If the output's scale is too small next to the input's.
    pub fn new(input: (f32, i32), output: (f32, i32)) -> Result<Self> {
        let fine_scale = (1.0 / 128.0) * input.0;
        let multiplier = |real: f32| -> Result<Multiplier> {
            let Multiplier { multiplier, shift } = Multiplier::new(real.into())?;
            // 16 bits of the multiplier are kept.
            let high = (i64::from(multiplier) + (1 << 15)) >> 16;
            Ok(Multiplier { multiplier: high.min(i16::MAX.into()) as i32, shift })
        };
        let factor = multiplier(fine_scale / output.0)?;
        if factor.shift > 0 {
            return Err(Error::Unsupported(format!(
                "output scale {}; with input scale {}, only output scales above {fine_scale} are supported",
                output.0, input.0
            )));
        }
        Ok(HardSwish {
            input_zero: input.1,
            output_zero: output.1,
            output: factor,
            gate: multiplier(fine_scale / (3.0 / 32768.0))?,
        })
    }

    /// Returns the function at a stored value, in 16 bits: not clamped to the output's type yet.
    pub fn apply(self, x: i32) -> i32 {
        let (low, high) = (i32::from(i16::MIN), i32::from(i16::MAX));
        let round_mul = |a: i32, b: i32| {
            let nudge = if a * b >= 0 { 1 << 14 } else { 1 - (1 << 14) };
            ((a * b + nudge) / (1 << 15)).min(high)
        };
        let shl = |x: i32, by: i32| (i64::from(x) << by.min(32)).clamp(low.into(), high.into()) as i32;
        let fine = (x - self.input_zero) * 128;
        let mut gate = fine;
        if self.gate.shift > 0 {
            gate = shl(gate, self.gate.shift - 1);
        }
        gate = round_mul(gate, self.gate.multiplier);
        if self.gate.shift > 0 {
            gate = shl(gate, 1);
        }
        gate = rounding_shift_right(gate, -self.gate.shift.min(0));
        // From -1..1 to 0..1.
        gate = (gate + (1 << 15)) >> 1;
        // Not rounded, which cancels the bias of the products before.
        let product = gate * round_mul(fine, self.output.multiplier) / (1 << 15);
        let output = rounding_shift_right(product, -self.output.shift);
        i32::from((output as i16).wrapping_add(self.output_zero as i16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_halves_away_from_zero() {
        for (x, want) in [(5, 3), (-5, -3), (4, 2), (6, 3), (-6, -3), (7, 4)] {
            assert_eq!(rounding_shift_right(x, 1), want, "{x} / 2");
        }
        assert_eq!(rounding_shift_right(i32::MIN, 31), -1);
        assert_eq!(rounding_shift_right(i32::MAX, 31), 1);
        assert_eq!(rounding_shift_right(i32::MAX, 32), 0, "just below a half");
        assert_eq!(rounding_shift_right(-i32::MAX, 40), 0);
        assert_eq!(doubling_high_mul(i32::MIN, i32::MIN), i32::MAX);
        assert_eq!(doubling_high_mul(1 << 30, 3), 2, "1.5 is rounded up");
    }

    #[test]
    fn multipliers() {
        let check = |real: f64, want: (i32, i32)| {
            let m = Multiplier::new(real).unwrap();
            assert_eq!((m.multiplier, m.shift), want, "{real}");
        };
        check(1.0, (1 << 30, 1));
        check(0.75, (3 << 29, 0));
        check(0.1, (1_717_986_918, -3));
        check(0.0, (0, 0));
        check(1e-12, (0, 0));
        check(1.0 - 1e-12, (1 << 30, 1));
        assert!(Multiplier::new(f64::INFINITY).is_err());
        assert!(Multiplier::new(f64::NAN).is_err());
        assert!(Multiplier::new(1e12).is_err());
        assert!(Multiplier::below_one(1.0).is_err());
        assert_eq!(Multiplier::new(2.5).unwrap().apply(1000), 2500);
        assert_eq!(Multiplier::new(0.1).unwrap().apply(-15), -2);
        assert_eq!(Multiplier::new(0.1).unwrap().apply_up(-15), -1);
        assert_eq!(Multiplier::new(2.5).unwrap().apply_up(1001), 2503, "2502.5 is rounded up");
        assert_eq!(Multiplier::new(0.1).unwrap().apply_wide(30_000), 3000);
        assert_eq!(Multiplier::new(1000.0).unwrap().apply_wide(-3), -3000);
    }
}
