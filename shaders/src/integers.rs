//! Convolutions and matrix products of integers.
//!
//! Sums of products are exact: they are built up in floats, which hold integers up to 2^24, and where they may become
//! larger, parts of them go on in integers. Weights stay packed on the device, four or eight to a word.

use crate::template::Template;

/// What the operands and the result of a product of integers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integers {
    /// What stands for zero in the input.
    pub input_zero: i32,
    /// What stands for zero in the weights.
    pub weight_zero: i32,
    /// Bits of a weight: 4 or 8.
    pub bits: u32,
    /// How products are added up.
    pub sums: Sums,
    /// What the sums become.
    pub result: IntegerResult,
}

/// How the products of a sum are added up, so that nothing is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sums {
    /// In floats.
    #[default]
    Floats,
    /// So many times four products at once in floats, then in an integer of 32 bits, which wraps.
    Blocks(u32),
    /// Four products at once in floats, or `halved` only two, then in an integer of 32 bits, which wraps.
    Words {
        /// Four products may have a sum over 2^24.
        halved: bool,
    },
    /// Like [`Sums::Words`], then in an integer of 47 bits.
    Pairs {
        /// Four products may have a sum over 2^24.
        halved: bool,
    },
}

/// What decides how the products of sums are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Products of a sum; those of four channels count as four, even where channels don't come in fours.
    pub count: u64,
    /// The largest magnitude of the first factor.
    pub input: u32,
    /// The largest magnitude of the second factor.
    pub weight: u32,
    /// The largest sum of magnitudes of second factors.
    pub weights: u64,
    /// Only the low 32 bits of a sum matter.
    pub wraps: bool,
}

/// Integers up to here are exact in floats.
const EXACT: u64 = 1 << 24;

impl Sums {
    /// The fastest way that is exact; none where no way is.
    pub fn of(terms: Terms) -> Option<Self> {
        let (input, weight) = (u64::from(terms.input), u64::from(terms.weight));
        let largest = terms.weights.saturating_mul(input);
        let product = input.saturating_mul(weight).max(1);
        if largest <= EXACT {
            return Some(Sums::Floats);
        }
        if product.saturating_mul(2) > EXACT {
            return None;
        }
        let block = u32::try_from(EXACT / (4 * product)).unwrap_or(u32::MAX);
        let halved = block == 0;
        match terms.wraps || largest < 1 << 31 {
            true if block >= 8 => Some(Sums::Blocks(block)),
            true => Some(Sums::Words { halved }),
            // The low 16 bits of so many parts have a sum of less than 2^31.
            false => (terms.count < 1 << 16).then_some(Sums::Pairs { halved }),
        }
    }

    /// Sets what the sources want to know of sums.
    pub(crate) fn apply(self, template: Template) -> Template {
        let (kind, halved) = match self {
            Sums::Floats => (0, false),
            Sums::Blocks(_) => (1, false),
            Sums::Words { halved } => (2, halved),
            Sums::Pairs { halved } => (3, halved),
        };
        template.number("SUMS", kind).flag("HALVED", halved)
    }

    /// Steps of four products in a block of an invocation that takes every `stride`-th.
    pub(crate) fn block(self, stride: u32) -> u32 {
        match self {
            // Both are limited so that no loop's counter wraps.
            Sums::Blocks(steps) => steps.clamp(1, 1 << 20).saturating_mul(stride.clamp(1, 1 << 8)),
            _ => 0,
        }
    }
}

/// What the sums of a product of integers become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntegerResult {
    /// Integers again.
    Fixed {
        /// How.
        scaling: Scaling,
        /// What stands for zero.
        zero: i32,
        /// The lowest integer.
        low: i32,
        /// The highest integer.
        high: i32,
        /// The first output element, by pixel and channel, from which on channels that round halves upwards don't.
        tail: [u32; 2],
    },
    /// Floats, with a [`RealChannel`] per output channel; the epilogue's functions follow.
    Real {
        /// Output pixels (or rows) that come from one row of `Input(1)`, which holds the scale and the zero point of
        /// so many input rows; 0: the whole input has the zero point above and its scale is in the channels.
        row: u32,
    },
}

/// How sums become integers: which words each output channel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Sums of 32 bits, with a [`FixedChannel`] per output channel.
    Narrow,
    /// Sums of 64 bits, with a [`WideChannel`] per output channel.
    Wide,
    /// Sums of up to 53 bits in double precision, with a [`DoubleChannel`] per output channel.
    Double,
}

/// How a sum of 32 bits becomes an integer: `(sum + bias) * multiplier * 2^(shift - 31)`, rounded after the product and
/// after the shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedChannel {
    /// Added to the sum of products.
    pub bias: i32,
    /// From 2^30 to below 2^31.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
    /// Halves are rounded upwards after the shift, not away from zero.
    pub up: bool,
}

/// How a sum of 64 bits becomes an integer: `(sum + bias) * multiplier * 2^-right`, rounded once, halves upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideChannel {
    /// Added to the sum of products.
    pub bias: i64,
    /// Of 15 bits.
    pub multiplier: u32,
    /// From -31 to 63.
    pub right: i32,
}

/// How a sum becomes an integer in double precision: `(sum + bias) * ratio`, rounded to a double, then to an integer,
/// halves away from zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoubleChannel {
    /// Added to the sum of products; of up to 52 bits.
    pub bias: i64,
    /// A normal number from 2^-70 to below 2^50, or 0.
    pub ratio: f64,
    /// With the bias, the sum has 32 bits and wraps.
    pub wraps: bool,
}

/// How a sum becomes a float: `sum * scale + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RealChannel {
    /// Of a weight, or of the product with an input without rows.
    pub scale: f32,
    /// Added at last.
    pub bias: f32,
}

impl FixedChannel {
    /// As the kernel reads it.
    pub fn words(self) -> [u32; 3] {
        let shift = self.shift * 2 + i32::from(self.up);
        [self.bias, self.multiplier, shift].map(i32::cast_unsigned)
    }
}

impl WideChannel {
    /// As the kernel reads it.
    pub fn words(self) -> [u32; 4] {
        let [low, high] = halves(self.bias.cast_unsigned());
        [low, high, self.multiplier, self.right.cast_unsigned()]
    }
}

impl DoubleChannel {
    /// As the kernel reads it; none where it takes no such ratio.
    pub fn words(self) -> Option<[u32; 5]> {
        let bits = self.ratio.to_bits();
        let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0) - 1023;
        let (fraction, right) = match self.ratio {
            0.0 => (0, 127),
            ratio if ratio > 0.0 && (-70..50).contains(&exponent) => {
                (bits & ((1 << 52) - 1) | 1 << 52, 52 - exponent)
            }
            _ => return None,
        };
        let ([low, high], [fraction, above]) = (halves(self.bias.cast_unsigned()), halves(fraction));
        Some([low, high, fraction, above, right.cast_unsigned() << 1 | u32::from(self.wraps)])
    }
}

impl RealChannel {
    /// As the kernel reads it.
    pub fn words(self) -> [u32; 2] {
        [self.scale.to_bits(), self.bias.to_bits()]
    }
}

impl IntegerResult {
    /// The number that sources know it by.
    pub(crate) fn kind(&self) -> u32 {
        match self {
            IntegerResult::Real { .. } => 0,
            IntegerResult::Fixed { scaling: Scaling::Narrow, .. } => 1,
            IntegerResult::Fixed { scaling: Scaling::Wide, .. } => 2,
            IntegerResult::Fixed { scaling: Scaling::Double, .. } => 3,
        }
    }
}

impl Integers {
    /// Words that `count` weights take.
    pub(crate) fn words(&self, count: u32) -> u32 {
        count.div_ceil(32 / self.bits.clamp(1, 32))
    }

    /// Packs weights one after the other, then the channels.
    pub(crate) fn pack(&self, weights: impl Iterator<Item = i8>, channels: &[u32]) -> Vec<u32> {
        let mut packed = Vec::new();
        let per_word = 32 / self.bits.clamp(1, 32);
        let mask = u32::MAX >> (32 - self.bits.clamp(1, 32));
        for (i, weight) in (0_u32..).zip(weights) {
            let place = i % per_word;
            if place == 0 {
                packed.push(0);
            }
            if let Some(last) = packed.last_mut() {
                *last |= (i32::from(weight).cast_unsigned() & mask) << (place * self.bits);
            }
        }
        packed.extend(channels);
        packed
    }
}

/// The low and the high word.
fn halves(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_as_fast_as_they_can_be_exact() {
        let check = |count: u64, input, weight, weights, wraps, expected| {
            let sums = Sums::of(Terms { count, input, weight, weights, wraps });
            assert_eq!(sums, expected, "{count} products of {input} and {weight}, in all {weights}");
        };
        let words = |halved| Some(Sums::Words { halved });
        check(1000, 255, 127, 65_793, true, Some(Sums::Floats));
        check(1000, 255, 127, 65_794, true, Some(Sums::Blocks(129)));
        check(9, 32_768, 127, 512, false, Some(Sums::Floats));
        check(9, 32_768, 128, 513, false, words(false));
        check(9, 32_768, 129, 513, false, words(true));
        check(2000, 32_768, 8, 9000, true, Some(Sums::Blocks(16)));
        check(2000, 32_768, 127, 65_535, false, words(false));
        check(2000, 32_768, 127, 65_536, false, Some(Sums::Pairs { halved: false }));
        check(2000, 32_768, 127, 65_536, true, words(false));
        check(2000, 32_768, 255, 90_000, false, Some(Sums::Pairs { halved: true }));
        check(70_000, 32_768, 127, 90_000, false, None);
        check(9, 65_536, 255, 300, true, None);
    }

    #[test]
    fn ratios_fall_into_words() {
        let words = |ratio| DoubleChannel { bias: -1, ratio, wraps: true }.words();
        assert_eq!(words(0.75), Some([u32::MAX, u32::MAX, 0, 0x0018_0000, 53 << 1 | 1]));
        assert_eq!(words(0.0), Some([u32::MAX, u32::MAX, 0, 0, 127 << 1 | 1]));
        for ratio in [-1.0, f64::NAN, f64::INFINITY, 1e-30, 1e30, f64::MIN_POSITIVE / 2.0] {
            assert_eq!(words(ratio), None, "{ratio}");
        }
    }
}
