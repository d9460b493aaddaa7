//! Convolutions and matrix products of integers.
//!
//! Sums of products are built up in floats, which hold them exactly up to 2^24 and to seven digits beyond. Weights
//! stay packed on the device, four or eight to a word.

/// What the operands and the result of a product of integers are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integers {
    /// What stands for zero in the input.
    pub input_zero: i32,
    /// What stands for zero in the weights.
    pub weight_zero: i32,
    /// Bits of a weight: 4 or 8.
    pub bits: u32,
    /// What the sums become.
    pub result: IntegerResult,
}

/// What the sums of a product of integers become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntegerResult {
    /// Integers again, with a [`FixedChannel`] per output channel.
    Fixed {
        /// What stands for zero.
        zero: i32,
        /// The lowest integer.
        low: i32,
        /// The highest integer.
        high: i32,
    },
    /// Floats, with a [`RealChannel`] per output channel; the epilogue's functions follow.
    Real {
        /// Output pixels (or rows) that come from one row of `Input(1)`, which holds the scale and the zero point of
        /// so many input rows; 0: the whole input has the zero point above and its scale is in the channels.
        row: u32,
    },
}

/// How a sum becomes an integer: `(sum + bias) * multiplier * 2^(shift - 31)`, rounded.
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

impl RealChannel {
    /// As the kernel reads it.
    pub fn words(self) -> [u32; 3] {
        [self.scale.to_bits(), self.bias.to_bits(), 0]
    }
}

impl Integers {
    /// Words that `count` weights take.
    pub(crate) fn words(&self, count: u32) -> u32 {
        count.div_ceil(32 / self.bits.clamp(1, 32))
    }

    /// Packs weights one after the other, then the channels.
    pub(crate) fn pack(&self, weights: impl Iterator<Item = i8>, channels: &[[u32; 3]]) -> Vec<u32> {
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
        packed.extend(channels.as_flattened());
        packed
    }
}
