//! Fixed-point arithmetic of the quantized kernels. Results are bit-exact with the field's: the same multipliers,
//! rounded at the same places.

use delegraph_core::kernel::TensorView;
use delegraph_core::ops::Activation;
use delegraph_core::{Element, Error, Result, TensorType};

/// An integer type that quantized tensors hold.
pub trait QuantizedElement: Element + Into<i32> {
    /// The lowest value.
    const MIN: i32;
    /// The highest value.
    const MAX: i32;

    /// `value` clamped to `low..=high`. `high` lies within the type's range, and wins where `low` is above it.
    fn clamped(value: i32, low: i32, high: i32) -> Self;
}

macro_rules! quantized_elements {
    ($($ty:ty),*) => { $(impl QuantizedElement for $ty {
        const MIN: i32 = <$ty>::MIN as i32;
        const MAX: i32 = <$ty>::MAX as i32;

        fn clamped(value: i32, low: i32, high: i32) -> Self {
            value.max(low).min(high) as $ty
        }
    })* };
}
quantized_elements!(i8, u8, i16, i32);

/// The high half of twice the product, rounded to nearest.
pub fn doubling_high_mul(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    let product = i64::from(a) * i64::from(b);
    let nudge = if product >= 0 { 1 << 30 } else { 1 - (1 << 30) };
    // Rounds towards zero, as the nudge expects.
    ((product + nudge) / (1 << 31)) as i32
}

/// `x / 2^exponent`, rounded to nearest, halves away from zero. `exponent` is within `0..=31`.
pub fn rounding_shift_right(x: i32, exponent: i32) -> i32 {
    let exponent = exponent.clamp(0, 31);
    let mask = ((1i64 << exponent) - 1) as i32;
    let threshold = (mask >> 1) + i32::from(x < 0);
    (x >> exponent) + i32::from((x & mask) > threshold)
}

/// A real factor as `multiplier · 2^(shift - 31)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Multiplier {
    /// Between 2³⁰ and 2³¹, or 0.
    pub multiplier: i32,
    /// To the left where positive.
    pub shift: i32,
}

impl Multiplier {
    /// The nearest fixed-point factor. Factors below 2⁻³² or so are 0.
    ///
    /// # Errors
    /// Where `real` is not finite, or too large.
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
            _ => Err(Error::Unsupported(format!("a quantization that scales by {real}"))),
        }
    }

    /// Like [`Multiplier::new`], where the field's kernels expect a factor between 0 and 1.
    ///
    /// # Errors
    /// Where it is not.
    pub fn below_one(real: f64) -> Result<Self> {
        if real > 0.0 && real < 1.0 {
            return Multiplier::new(real);
        }
        Err(Error::Unsupported(format!("a quantization that scales by {real}, which must be below 1")))
    }

    /// `x` times the factor, rounded twice: after the product and after the shift.
    pub fn apply(self, x: i32) -> i32 {
        let left = x.wrapping_shl(self.shift.max(0).cast_unsigned());
        rounding_shift_right(doubling_high_mul(left, self.multiplier), -self.shift.min(0))
    }

    /// Like [`Multiplier::apply`], but halves are rounded upwards both times: what the field's vectorized matrix
    /// products and convolutions do.
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

    /// An accumulator of up to 48 bits times the factor, of which 16 bits are kept; halves are rounded upwards.
    pub fn apply_wide(self, x: i64) -> i32 {
        let kept = if self.multiplier < 0x7fff_0000 { (self.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
        let product = x.wrapping_mul(kept.into());
        match 15 - self.shift {
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

/// Scale and zero point of a tensor of 8 or 16 bits.
///
/// # Errors
/// Where it is not quantized per tensor, or its zero point lies outside of its type.
pub fn scale_zero_point_in_range(tensor: TensorView<'_>) -> Result<(f32, i32)> {
    let (scale, zero_point) = tensor.scale_zero_point()?;
    let range = match tensor.ty() {
        TensorType::UInt8 => 0..=u8::MAX.into(),
        TensorType::Int8 => i8::MIN.into()..=i8::MAX.into(),
        _ => i16::MIN.into()..=i16::MAX.into(),
    };
    if range.contains(&zero_point) {
        return Ok((scale, zero_point));
    }
    Err(Error::InvalidNode(format!("the zero point {zero_point} of \"{}\" is out of range", tensor.name())))
}

/// What a quantized output may hold: the range of its type, narrowed by the fused activation.
///
/// # Errors
/// For an activation that is no clamp, or a tensor that is not quantized per tensor.
pub fn activation_range(activation: Activation, output: TensorView<'_>) -> Result<(i32, i32)> {
    let (scale, zero_point) = output.scale_zero_point()?;
    let (lowest, highest) = match output.ty() {
        TensorType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        TensorType::UInt8 => (u8::MIN.into(), u8::MAX.into()),
        TensorType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        ty => return Err(Error::Unsupported(format!("a quantized output of type {ty}"))),
    };
    let Some((low, high)) = activation.clamp() else {
        return Err(Error::Unsupported(format!("activation {activation:?} on a quantized output")));
    };
    let quantize = |real: f32| zero_point.saturating_add((real / scale).round() as i32);
    let low = if low.is_finite() { quantize(low).max(lowest) } else { lowest };
    let high = if high.is_finite() { quantize(high).min(highest) } else { highest };
    Ok((low, high))
}

/// `1 / x` for `x` above 0, as a fraction of 31 bits and the power of two to divide it by.
pub fn reciprocal(x: i32) -> (i32, i32) {
    let zeros = x.leading_zeros();
    let shifted = (x.cast_unsigned() << zeros).wrapping_sub(1 << 31).cast_signed();
    (one_over_one_plus(shifted), 31 - zeros.cast_signed())
}

/// `1 / (1 + x)` for `x` in `0..1`, both as fractions of 31 bits: three steps of Newton's method in the arithmetic
/// of the field's fixed-point library.
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

/// `x · 2^exponent`, or the limit of the type that it is beyond.
pub fn saturating_shl(x: i32, exponent: u32) -> i32 {
    (i64::from(x) << exponent).clamp(i32::MIN.into(), i32::MAX.into()) as i32
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

    #[test]
    fn reciprocals() {
        for x in [1, 3, 7, 100, 255, 65_535, i32::MAX] {
            let (fraction, shift) = reciprocal(x);
            let got = f64::from(fraction) / 2f64.powi(31 + shift);
            assert!((got * f64::from(x) - 1.0).abs() < 1e-8, "1 / {x} is not {got}");
        }
    }

    #[test]
    fn inverse_square_roots() {
        for x in [2, 3, 5, 100, 65_025, 1 << 27, i32::MAX] {
            let Multiplier { multiplier, shift } = inverse_root(x);
            let got = f64::from(multiplier) * 2f64.powi(shift - 31);
            assert!((got * f64::from(x).sqrt() - 1.0).abs() < 1e-5, "1 / √{x} is not {got}");
        }
    }
}
