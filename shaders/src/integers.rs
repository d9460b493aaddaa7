//! Convolutions and matrix products of integers.
//!
//! Sums of products are exact: they are accumulated in floats, which represent integers up to 2^24, and where they may
//! exceed that, partial sums are accumulated in integers. Weights are stored four or eight to a word.

use crate::Threshold;
use crate::template::Template;

/// Quantization of the operands and the result of a product of integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integers {
    /// Zero point of the input.
    pub input_zero: i32,
    /// Zero point of the weights.
    pub weight_zero: i32,
    /// Bits of a weight: 4 or 8.
    pub bits: u32,
    /// How products are summed.
    pub sums: Sums,
    /// The conversion of sums to results.
    pub result: IntegerResult,
}

/// The exact summation of products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sums {
    /// In a float accumulator.
    #[default]
    Floats,
    /// Four products in a float accumulator, this number of times; then the float is added to a 32-bit integer, which
    /// wraps.
    Blocks(u32),
    /// Four products in a float (two if `halved`), and the floats in a 32-bit integer, which wraps.
    Words {
        /// Whether a sum of four products may exceed 2^24.
        halved: bool,
    },
    /// As [`Sums::Words`], in a 47-bit integer.
    Pairs {
        /// Whether a sum of four products may exceed 2^24.
        halved: bool,
    },
}

/// Bounds of a sum of products, which determine how it is accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Number of products of a sum, with input channels padded to fours.
    pub count: u64,
    /// Maximum magnitude of the first factor.
    pub input: u32,
    /// Maximum magnitude of the second factor.
    pub weight: u32,
    /// Maximum sum of the magnitudes of second factors.
    pub weights: u64,
    /// Whether sums wrap to 32 bits.
    pub wraps: bool,
}

/// Maximum magnitude up to which all integers are exact in floats.
const MAX_EXACT: u64 = 1 << 24;
/// Lower bound of the maximum magnitude of an 8-bit integer minus its zero point.
const MIN_BYTE_MAGNITUDE: u64 = 128;

impl Sums {
    /// A depth from which products of two 8-bit operands of any zero points are not summed in floats. Sums of a few
    /// elements always are.
    pub(crate) const LONG_DEPTH: Threshold =
        Threshold::AtLeast((MAX_EXACT / (MIN_BYTE_MAGNITUDE * MIN_BYTE_MAGNITUDE)) as u32 + 1);

    /// Returns the fastest exact way, if there is one.
    pub fn of(terms: Terms) -> Option<Self> {
        let (input, weight) = (u64::from(terms.input), u64::from(terms.weight));
        let largest = terms.weights.saturating_mul(input);
        let product = input.saturating_mul(weight).max(1);
        if largest <= MAX_EXACT {
            return Some(Sums::Floats);
        }
        if product.saturating_mul(2) > MAX_EXACT {
            return None;
        }
        let block = u32::try_from(MAX_EXACT / (4 * product)).unwrap_or(u32::MAX);
        let halved = block == 0;
        match terms.wraps || largest < 1 << 31 {
            true if block >= 8 => Some(Sums::Blocks(block)),
            true => Some(Sums::Words { halved }),
            // A partial sum has at least two products, so fewer than 2^15 low halves of 16 bits add up to less than
            // 2^31.
            false => (terms.count < 1 << 16).then_some(Sums::Pairs { halved }),
        }
    }

    /// Sets the values of sums.
    pub(crate) fn apply(self, template: Template) -> Template {
        let (kind, halved) = match self {
            Sums::Floats => (0, false),
            Sums::Blocks(_) => (1, false),
            Sums::Words { halved } => (2, halved),
            Sums::Pairs { halved } => (3, halved),
        };
        template.number("SUMS", kind).flag("HALVED", halved)
    }

    /// Returns the steps of four products in a block, for an invocation that computes every `stride`-th step; 0 without
    /// blocks.
    pub(crate) fn block(self, stride: u32) -> u32 {
        match self {
            // Limited so that a loop's counter does not wrap.
            Sums::Blocks(steps) => steps.clamp(1, 1 << 20).saturating_mul(stride.clamp(1, 1 << 8)),
            _ => 0,
        }
    }
}

/// The conversion of the sums of a product of integers to results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntegerResult {
    /// Quantized integers.
    Fixed {
        /// The arithmetic.
        scaling: Scaling,
        /// Zero point.
        zero: i32,
        /// Minimum of the results.
        low: i32,
        /// Maximum of the results.
        high: i32,
        /// Pixel and channel of the output element from which on all channels round halves away from zero.
        tail: [u32; 2],
    },
    /// Floats, with a [`RealChannel`] per output channel; the epilogue's functions follow.
    Real {
        /// Number of output pixels (or rows) per row of `Input(1)`, which has the scale and the zero point of the input.
        /// 0 if the whole input has the zero point [`Integers::input_zero`], and the channels contain its scale.
        row: u32,
    },
}

/// The arithmetic that converts sums to integers, and the words of an output channel that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// 32-bit sums, with a [`FixedChannel`] per output channel.
    Narrow,
    /// 64-bit sums, with a [`WideChannel`] per output channel.
    Wide,
    /// Sums of up to 53 bits in double precision, with a [`DoubleChannel`] per output channel.
    Double,
}

/// From a 32-bit sum to an integer: `(sum + bias) * multiplier * 2^(shift - 31)`, rounded after the product and after the
/// shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedChannel {
    /// Added to the sum of products.
    pub bias: i32,
    /// From 2^30 to below 2^31.
    pub multiplier: i32,
    /// From -31 to 30.
    pub shift: i32,
    /// Whether halves are rounded upwards after the shift, instead of away from zero.
    pub up: bool,
}

/// From a 64-bit sum to an integer: `(sum + bias) * multiplier * 2^-right`, rounded once, halves upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideChannel {
    /// Added to the sum of products.
    pub bias: i64,
    /// 15 bits.
    pub multiplier: u32,
    /// From -31 to 63.
    pub right: i32,
}

/// From a sum to an integer in double precision: `(sum + bias) * ratio`, rounded to a double, then to an integer, halves
/// away from zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DoubleChannel {
    /// Added to the sum of products; up to 52 bits.
    pub bias: i64,
    /// A normal number from 2^-70 to below 2^50, or 0.
    pub ratio: f64,
    /// Whether the sum, bias included, wraps to 32 bits.
    pub wraps: bool,
}

/// From a sum to a float: `sum * scale + bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RealChannel {
    /// Scale of the weights; times that of the input, where the whole input has one.
    pub scale: f32,
    /// Added to the scaled sum.
    pub bias: f32,
}

impl FixedChannel {
    /// Returns the words that the kernel reads.
    pub fn words(self) -> [u32; 3] {
        let shift = self.shift * 2 + i32::from(self.up);
        [self.bias, self.multiplier, shift].map(i32::cast_unsigned)
    }
}

impl WideChannel {
    /// Returns the words that the kernel reads.
    pub fn words(self) -> [u32; 4] {
        let [low, high] = halves(self.bias.cast_unsigned());
        [low, high, self.multiplier, self.right.cast_unsigned()]
    }
}

impl DoubleChannel {
    /// Returns the words that the kernel reads; `None` for a ratio outside of the supported range.
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
    /// Returns the words that the kernel reads.
    pub fn words(self) -> [u32; 2] {
        [self.scale.to_bits(), self.bias.to_bits()]
    }
}

impl IntegerResult {
    /// Returns the value of `RESULT` in the sources.
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
    /// Returns the number of words of `count` packed weights.
    pub(crate) fn words(&self, count: u32) -> u32 {
        count.div_ceil(32 / self.bits.clamp(1, 32))
    }

    /// Returns the weights packed in order, followed by the words of the channels.
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

/// Returns the low and the high word of `bits`.
fn halves(bits: u64) -> [u32; 2] {
    [bits as u32, (bits >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_use_the_fastest_exact_accumulator() {
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
    fn depths_decide_about_sums_of_bytes_of_any_zero_point() {
        for magnitude in [128, 200, 255] {
            let sums = |depth: u32| {
                let weights = u64::from(depth) * u64::from(magnitude);
                let (input, weight) = (magnitude, magnitude);
                Sums::of(Terms { count: depth.into(), input, weight, weights, wraps: true })
            };
            assert_eq!(sums(4), Some(Sums::Floats));
            let Threshold::AtLeast(depth) = Sums::LONG_DEPTH else { unreachable!() };
            assert!(matches!(sums(depth), Some(Sums::Blocks(_))), "{magnitude}");
        }
    }

    #[test]
    fn ratios_are_split_into_words() {
        let words = |ratio| DoubleChannel { bias: -1, ratio, wraps: true }.words();
        assert_eq!(words(0.75), Some([u32::MAX, u32::MAX, 0, 0x0018_0000, 53 << 1 | 1]));
        assert_eq!(words(0.0), Some([u32::MAX, u32::MAX, 0, 0, 127 << 1 | 1]));
        for ratio in [-1.0, f64::NAN, f64::INFINITY, 1e-30, 1e30, f64::MIN_POSITIVE / 2.0] {
            assert_eq!(words(ratio), None, "{ratio}");
        }
    }
}
