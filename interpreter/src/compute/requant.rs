//! From 32-bit sums back to 8 bits.
//!
//! A real factor is held as a 32-bit fixed-point number and a power of two. LiteRT's optimized kernels round
//! twice: the product to 31 fractional bits, then the shift. Which way a tie of the second rounding goes
//! depends on the kernel: up where a matrix library or a vector instruction does it, away from zero in scalar
//! code.

use super::buffer::AlignedVec;
use super::error::{ComputeError, Result};

/// A real factor: `multiplier · 2^(shift - 31)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multiplier {
    /// 0, or at least 2^30: the fraction, with 31 fractional bits.
    pub multiplier: i32,
    /// Power of two, -31..=30.
    pub shift: i32,
}

/// Where a tie of the right shift goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Towards positive infinity.
    Up,
    /// Away from zero.
    Away,
}

impl Multiplier {
    /// The nearest factor; too small ones become 0, too large ones saturate. Not for negative numbers.
    pub fn from_real(real: f64) -> Self {
        if real.is_nan() || real <= 0.0 {
            return Self::default();
        }
        let (fraction, mut shift) = frexp(real);
        let mut multiplier = (fraction * f64::from(1u32 << 31)).round() as i64;
        if multiplier == 1 << 31 {
            multiplier /= 2;
            shift += 1;
        }
        if shift < -31 {
            return Self::default();
        }
        if shift > 30 {
            return Self { multiplier: i32::MAX, shift: 30 };
        }
        Self { multiplier: multiplier as i32, shift }
    }

    /// `x` times the factor, rounded.
    pub fn apply(self, x: i32, ties: Ties) -> i32 {
        let left = x.wrapping_shl(self.shift.max(0) as u32);
        let high = ((i64::from(left) * i64::from(self.multiplier) + (1 << 30)) >> 31) as i32;
        let right = (-self.shift).clamp(0, 31) as u32;
        if right == 0 {
            return high;
        }
        let correction = if ties == Ties::Away && high < 0 { 1 } else { 0 };
        ((i64::from(high) + (1i64 << (right - 1)) - correction) >> right) as i32
    }
}

/// `x = fraction · 2^exponent` with the fraction in 0.5..1; for positive finite numbers, and infinity as a large one.
fn frexp(x: f64) -> (f64, i32) {
    if x.is_infinite() {
        return (0.5, i32::MAX);
    }
    let scaled = if x < f64::MIN_POSITIVE { x * (1u64 << 54) as f64 } else { x };
    let bits = scaled.to_bits();
    let exponent = ((bits >> 52) & 0x7FF) as i32 - 1022;
    let fraction = f64::from_bits((bits & !(0x7FF << 52)) | (1022 << 52));
    (fraction, if scaled == x { exponent } else { exponent - 54 })
}

/// How 32-bit sums become outputs, for each column of a product.
pub(crate) struct Requant {
    /// Four values for each column, in runs of `padded` columns: multiplier, left shift, right shift, and -1
    /// where ties go away from zero.
    values: AlignedVec<i32>,
    /// For each vector of columns, twice (even columns, odd columns): multiplier, addend, right shift. See
    /// [`RequantPart::wide`].
    wide: AlignedVec<i64>,
    /// For each vector, whether `wide` may be used.
    simple: Vec<bool>,
    padded: usize,
    lanes: usize,
    zero_point: i32,
    low: i32,
    high: i32,
}

/// What a micro-kernel needs of a [`Requant`], from some column on, which begins a vector.
#[derive(Clone, Copy)]
pub(crate) struct RequantPart {
    pub(crate) multiplier: *const i32,
    pub(crate) left: *const i32,
    pub(crate) right: *const i32,
    pub(crate) away: *const i32,
    /// Where all ties of a vector go up and all shifts are to the right by 1 to 22, the two roundings and the
    /// zero point are one 64-bit addition: `(x · multiplier + addend) >> shift`. For each vector: multipliers of
    /// the even columns, of the odd columns, addends likewise, shifts of the even columns, and those of the odd
    /// columns less 32, which leaves these results in the upper halves.
    pub(crate) wide: *const i64,
    /// For each vector, whether that is so.
    pub(crate) simple: *const bool,
    pub(crate) zero_point: i32,
    pub(crate) low: i32,
    pub(crate) high: i32,
}

/// Quantization of an output.
#[derive(Clone, Copy, Debug)]
pub struct OutputQuant<'a> {
    /// A factor for all channels, or one for each: input scale × filter scale / output scale.
    pub multipliers: &'a [Multiplier],
    /// Zero point, in the type of the output.
    pub zero_point: i32,
    /// Bounds that type and fused activation set, inclusive.
    pub low: i32,
    /// See `low`.
    pub high: i32,
    /// Ties of output channels from this one on are rounded away from zero, the others up.
    pub away_from: usize,
}

impl Requant {
    /// For `groups` of `columns` columns, each padded to `padded`, a multiple of `lanes`.
    pub(crate) fn new(
        out: &OutputQuant<'_>,
        (groups, columns, padded): (usize, usize, usize),
        lanes: usize,
    ) -> Result<Self> {
        let count = groups * columns;
        let places = move |c| (c, c / columns * padded + c % columns);
        let padded = super::error::product("multipliers", &[groups, padded])?;
        Self::placed(out, count, padded, lanes, (0..count).map(places))
    }

    /// For some channels in another order: column `i` of `count` is that of channel `order(i)`, if there is one.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn ordered(
        out: &OutputQuant<'_>,
        (channels, count): (usize, usize),
        lanes: usize,
        order: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        Self::placed(
            out,
            channels,
            count,
            lanes,
            (0..count).map(|i| (order(i), i)).filter(|&(c, _)| c < channels),
        )
    }

    /// `places` are pairs of a channel, of which there are `count`, and its column.
    fn placed(
        out: &OutputQuant<'_>,
        count: usize,
        padded_count: usize,
        lanes: usize,
        places: impl Iterator<Item = (usize, usize)>,
    ) -> Result<Self> {
        if out.multipliers.len() != 1 && out.multipliers.len() != count {
            let got = out.multipliers.len();
            return Err(ComputeError::Length { what: "multipliers", needed: count, got });
        }
        if out.low > out.high {
            return Err(ComputeError::Range { what: "bounds of the output" });
        }
        let mut values = AlignedVec::zeroed(super::error::product("multipliers", &[padded_count, 4])?)?;
        let v = values.as_mut_slice();
        for (c, at) in places {
            let m = if let [one] = out.multipliers { *one } else { out.multipliers[c] };
            if m.multiplier < 0 || !(-31..=30).contains(&m.shift) {
                return Err(ComputeError::Range { what: "multiplier" });
            }
            v[at] = m.multiplier;
            v[padded_count + at] = m.shift.max(0);
            v[2 * padded_count + at] = (-m.shift).max(0);
            v[3 * padded_count + at] = if c >= out.away_from { -1 } else { 0 };
        }
        let mut wide = AlignedVec::zeroed(super::error::product("multipliers", &[padded_count, 3])?)?;
        let mut simple = Vec::with_capacity(padded_count / lanes);
        for (vector, wide) in wide.as_mut_slice().chunks_exact_mut(3 * lanes).enumerate() {
            let mut all = true;
            for i in 0..lanes {
                let at = vector * lanes + i;
                // Columns that don't exist have neither multiplier nor shift, and no say.
                let right = v[2 * padded_count + at];
                // Beyond 22 bits the shifted zero point would no longer fit beside the product.
                let fits = (1..=22).contains(&right);
                all &= v[at] == 0 || (fits && v[3 * padded_count + at] == 0);
                let right = i64::from(right.clamp(1, 22));
                let zero = i64::from(out.zero_point) << (31 + right);
                let half = i % 2 * (lanes / 2) + i / 2;
                wide[half] = i64::from(v[at]);
                wide[lanes + half] = (1 << 30) + (1 << (30 + right)) + zero;
                wide[2 * lanes + half] = if i % 2 == 0 { 31 + right } else { right - 1 };
            }
            simple.push(all && i8::MIN as i32 <= out.zero_point && out.zero_point <= u8::MAX as i32);
        }
        let (zero_point, low, high) = (out.zero_point, out.low, out.high);
        Ok(Self { values, wide, simple, padded: padded_count, lanes, zero_point, low, high })
    }

    /// The values of `count` columns from `first` on, which begins a vector.
    pub(crate) fn part(&self, first: usize, count: usize) -> RequantPart {
        let run = |i: usize| self.values.as_slice()[i * self.padded + first..][..count].as_ptr();
        RequantPart {
            multiplier: run(0),
            left: run(1),
            right: run(2),
            away: run(3),
            wide: self.wide.as_slice()[3 * first..][..3 * count].as_ptr(),
            simple: self.simple[first / self.lanes..][..count / self.lanes].as_ptr(),
            zero_point: self.zero_point,
            low: self.low,
            high: self.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_exact_where_they_can_be() {
        for (real, multiplier, shift) in [
            (0.5, 1 << 30, 0),
            (1.0, 1 << 30, 1),
            (0.25, 1 << 30, -1),
            (0.75, 3 << 29, 0),
            (1e-20, 0, 0),
            (0.0, 0, 0),
            (f64::NAN, 0, 0),
            (1e30, i32::MAX, 30),
            (f64::INFINITY, i32::MAX, 30),
            (5e-324, 0, 0),
            (0.999_999_999_9, 1 << 30, 1),
        ] {
            assert_eq!(Multiplier::from_real(real), Multiplier { multiplier, shift }, "{real}");
        }
    }

    #[test]
    fn ties_go_where_they_are_told() {
        let half = Multiplier { multiplier: 1 << 30, shift: 0 };
        // The first rounding always goes up.
        assert_eq!([-3, -1, 1, 3].map(|x| half.apply(x, Ties::Away)), [-1, 0, 1, 2]);
        let quarter = Multiplier::from_real(0.25);
        assert_eq!([-6, -2, 2, 6].map(|x| quarter.apply(x, Ties::Up)), [-1, 0, 1, 2]);
        assert_eq!([-6, -2, 2, 6].map(|x| quarter.apply(x, Ties::Away)), [-2, -1, 1, 2]);
        let eight = Multiplier::from_real(8.0);
        assert_eq!(eight.apply(-5, Ties::Up), -40);
    }
}
