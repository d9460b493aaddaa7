//! Fixed-point arithmetic of the quantized kernels. Results are bit-exact with the field's: the same multipliers,
//! rounded at the same places.

pub use delegraph_core::fixed_point::{
    HardSwish, Multiplier, doubling_high_mul, rounding_shift_right, saturating_shl,
};
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

#[cfg(test)]
mod tests {
    use super::*;

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
