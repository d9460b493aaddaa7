//! Arithmetic of element types.

use delegraph_core::Element;
use half::{bf16, f16};

/// Arithmetic common to all element types. Integers wrap on overflow.
pub(crate) trait Number: Element + PartialOrd + Default {
    const LOWEST: Self;
    const HIGHEST: Self;
    fn truncated(value: i64) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! integer_numbers {
    ($($ty:ty),*) => { $(
        impl Number for $ty {
            const LOWEST: Self = <$ty>::MIN;
            const HIGHEST: Self = <$ty>::MAX;
            fn truncated(value: i64) -> Self {
                value as $ty
            }
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )* };
}
integer_numbers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! float_numbers {
    ($($ty:ty: $from:expr),*) => { $(impl Number for $ty {
        const LOWEST: Self = <$ty>::MIN;
        const HIGHEST: Self = <$ty>::MAX;
        fn truncated(value: i64) -> Self {
            $from(value as f32)
        }
        fn plus(self, other: Self) -> Self {
            self + other
        }
        fn minus(self, other: Self) -> Self {
            self - other
        }
        fn times(self, other: Self) -> Self {
            self * other
        }
    })* };
}
float_numbers!(f32: f32::from, f16: f16::from_f32, bf16: bf16::from_f32, f64: f64::from);

/// Arithmetic of integers.
pub(crate) trait Integer: Number {
    fn quotient(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
    /// `self` to the power of `other`. A negative exponent gives a truncated quotient: 1 or -1 for these two bases, and
    /// 0 for all others, including 0.
    fn power(self, other: Self) -> Self;
    fn shifted_left(self, bits: u32) -> Self;
    fn xor(self, other: Self) -> Self;
    fn shifted_right(self, bits: u32) -> Self;
}

macro_rules! integers {
    ($($ty:ty),*) => { $(
        impl Integer for $ty {
            fn quotient(self, other: Self) -> Self {
                self.wrapping_div(other)
            }
            fn remainder(self, other: Self) -> Self {
                self.wrapping_rem(other)
            }
            #[allow(unused_comparisons)] // never true of unsigned types
            fn power(self, other: Self) -> Self {
                // For the powers of 1 and -1 only the lowest bit of the exponent matters, regardless of its sign.
                let one = self == 1 || (<$ty>::MIN != 0 && self.wrapping_add(1) == 0);
                if other < 0 && !one {
                    return 0;
                }
                let (mut power, mut base, mut exponent) = (1, self, if one { other & 1 } else { other });
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        power = <$ty>::wrapping_mul(power, base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                power
            }
            fn shifted_left(self, bits: u32) -> Self {
                self.checked_shl(bits).unwrap_or(0)
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn shifted_right(self, bits: u32) -> Self {
                self >> bits
            }
        }
    )* };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);
