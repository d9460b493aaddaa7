//! Random choices from a seed.

use crate::seeded::SplitMix64;

use super::super::prelude::*;

/// The random choices of one case.
pub(in super::super) struct Draw(SplitMix64);

impl Draw {
    /// Creates the choices of case `index` of a group. They do not depend on other cases.
    pub(in super::super) fn new(seed: u64, group: &str, index: usize) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        let group = group.bytes().fold(0xCBF2_9CE4_8422_2325, hash);
        let start = SplitMix64::new(seed ^ group).for_input(index).draw();
        Draw(SplitMix64::new(start))
    }

    /// Returns a seed for data, which differs from that of the listed cases.
    pub(in super::super) fn seed(&mut self) -> u64 {
        self.0.draw() | 1 << 32
    }

    /// Returns a number from 0 to `n - 1`.
    pub(in super::super) fn below(&mut self, n: usize) -> usize {
        (self.0.draw() % n.max(1) as u64) as usize
    }

    /// Returns a size from `low` to `high`, inclusive.
    pub(super) fn size(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns an integer from `low` to `high`, inclusive.
    pub(in super::super) fn int(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low) as usize + 1) as i64
    }

    /// Returns a float from `low` to `high`.
    pub(in super::super) fn real(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.0.draw_f32() + 1.0) / 2.0
    }

    /// Returns one of these values.
    pub(in super::super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Returns true with a probability of `percent` percent.
    pub(in super::super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a shape of this rank with at most `most` elements: mostly small primes, ones and powers of two; rarely
    /// large extents.
    pub(super) fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        let mut shape: Vec<usize> =
            (0..rank).map(|_| self.pick(&[1, 2, 2, 3, 3, 4, 5, 7, 8, 13, 17])).collect();
        while shape.iter().product::<usize>() > most.max(1) {
            let largest = (0..rank).max_by_key(|&i| shape[i]).unwrap_or(0);
            shape[largest] = shape[largest].div_ceil(2);
        }
        // Real tensors often have one long dimension.
        let rest: usize = shape.iter().product();
        if rank > 0 && self.chance(12) && rest > 0 {
            let at = self.below(rank);
            let longest = most / (rest / shape[at]).max(1);
            shape[at] = shape[at].max(self.size(1, longest.clamp(1, 300)));
        }
        shape
    }

    /// Returns a permutation of `n` elements.
    pub(super) fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// Returns a number of channels, often not a multiple of four.
    pub(super) fn channels(&mut self) -> usize {
        self.pick(&[1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 19, 31, 33])
    }

    /// Returns a fused activation; none in half of the draws.
    pub(super) fn activation(&mut self) -> Activation {
        use Activation::{None as Plain, Relu, Relu6, ReluN1To1};
        self.pick(&[Plain, Plain, Plain, Relu, Relu6, ReluN1To1])
    }

    /// Returns a zero point of a quantized type: often near the middle, sometimes at an end.
    pub(in super::super) fn zero(&mut self, ty: TensorType) -> i64 {
        let zero = match self.below(8) {
            0 => -128,
            1 => 127,
            2 => 0,
            _ => self.int(-30, 30),
        };
        match ty {
            Int8 => zero,
            UInt8 => zero + 128,
            _ => 0,
        }
    }

    /// Returns `axis`, counted from the front or, as a negative number, from the end.
    pub(super) fn axis(&mut self, axis: usize, rank: usize) -> i32 {
        if self.chance(50) { axis as i32 } else { axis as i32 - rank as i32 }
    }

    /// Returns a pair of sizes, in most draws two different ones.
    pub(super) fn pair(&mut self, from: &[usize]) -> [usize; 2] {
        [self.pick(from), self.pick(from)]
    }
}

/// Returns the standard deviation of values that are uniformly distributed over the range of the type.
pub(super) fn spread(ty: TensorType) -> f32 {
    match ty {
        Int16 => 18_918.0,
        Int4 | UInt4 => 4.6,
        Int2 => 1.1,
        _ => 74.0,
    }
}

/// Returns an output scale with which values of this deviation use most of the type's range.
pub(super) fn out_scale(draw: &mut Draw, ty: TensorType, deviation: f32) -> f32 {
    let half = if ty == Int16 { 32_768.0 } else { 128.0 };
    // Between few and many saturated elements.
    deviation * draw.real(0.8, 3.5) / half
}
