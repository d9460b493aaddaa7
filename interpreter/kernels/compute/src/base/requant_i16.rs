//! Requantization of sums to 16 bits.

use crate::base::requant::{Multiplier, Ties};

/// Requantization of sums that fit 32 bits: `(upper half of sum · factor + half) >> shift`.
#[derive(Clone, Debug)]
pub(crate) struct ShortSums {
    /// Constant part of each column's sum. The list repeats after the last column, up to the length of a row of
    /// weights.
    pub(crate) base: Vec<i32>,
    /// Factors, likewise; not negative.
    pub(crate) factors: Vec<i32>,
    /// Half a unit of the shift.
    pub(crate) half: i32,
    pub(crate) shift: u32,
    /// Bounds of results.
    pub(crate) low: i32,
    pub(crate) high: i32,
}

/// Minimum shift of a product: what is rounded off includes the lower half.
const MIN_SHIFT: i64 = 33;

/// Minimum shift of a product of any 32-bit sum and a factor of 16 bits that is always rounded to 0.
const ZERO_SHIFT: i64 = 47;

impl ShortSums {
    /// For columns with these constant parts and factors, and sums of the absolute values of their weights. `None` if
    /// a sum may not fit 32 bits, or the shifts of columns differ too much for one shift. A list has `len` elements.
    pub(crate) fn new(
        base: &[i64],
        scale: &Scale,
        bounds: [i32; 2],
        weights: &[i64],
        len: usize,
    ) -> Option<Self> {
        let Scale::Fixed(factors) = scale else { return None };
        let [low, high] = bounds.map(|bound| i16::try_from(bound).ok());
        // The constant part of a sum of bytes may include 128 times the weights.
        let fits = |(base, weights): (&i64, &i64)| {
            let room = i64::from(i32::MAX) - weights * ((1 << 15) + 128);
            (-room..=room).contains(base)
        };
        if !base.iter().zip(weights).all(fits) {
            return None;
        }
        let zero = |[factor, _, shift]: [i64; 3]| factor == 0 || shift >= ZERO_SHIFT;
        let shifts = factors.iter().filter(|f| !zero(**f)).map(|[.., shift]| *shift);
        let shift = shifts.max().unwrap_or(0).max(MIN_SHIFT);
        let scaled = |f: &[i64; 3]| match *f {
            f if zero(f) => Some(0),
            [factor, _, right] if factor > 0 && shift - right <= 16 => {
                i32::try_from(factor << (shift - right)).ok()
            }
            _ => None,
        };
        let factors = factors.iter().map(scaled).collect::<Option<Vec<i32>>>()?;
        let shift = (shift - 32) as u32;
        Some(ShortSums {
            base: base.iter().map(|base| *base as i32).cycle().take(len).collect(),
            factors: factors.into_iter().cycle().take(len).collect(),
            half: 1 << (shift - 1),
            shift,
            low: low?.into(),
            high: high?.into(),
        })
    }

    /// Scales a sum, which includes the constant part, to a result.
    #[inline(always)]
    pub(crate) fn scale(&self, sum: i32, factor: i32) -> i32 {
        let high = ((i64::from(sum) * i64::from(factor)) >> 32) as i32;
        (high.wrapping_add(self.half) >> self.shift).max(self.low).min(self.high)
    }
}

/// Scaling of a sum.
#[derive(Clone, Debug)]
pub enum Scale {
    /// Wide sums: `(x · factor + round) >> shift`, per column.
    Fixed(Vec<[i64; 3]>),
    /// 32-bit sums by a [`Multiplier`] per column.
    Narrow(Vec<Multiplier>, Ties),
    /// A real factor per column; ties round away from zero.
    Real(Vec<f64>),
}

impl Scale {
    /// Sums of up to 48 bits times factors that are rounded to 16 bits; ties round up. `None` unless all products are
    /// shifted to the right, by 1 to 62 bits.
    pub fn fixed(multipliers: &[Multiplier]) -> Option<Self> {
        let one = |m: &Multiplier| {
            let kept = if m.multiplier < 0x7fff_0000 { (m.multiplier + (1 << 15)) >> 16 } else { 0x7fff };
            let right = 15 - m.shift;
            (1..=62).contains(&right).then(|| [kept.into(), 1 << (right - 1), right.into()])
        };
        multipliers.iter().map(one).collect::<Option<_>>().map(Scale::Fixed)
    }

    pub(crate) fn columns(&self) -> usize {
        match self {
            Scale::Fixed(list) => list.len(),
            Scale::Narrow(list, _) => list.len(),
            Scale::Real(list) => list.len(),
        }
    }
}
