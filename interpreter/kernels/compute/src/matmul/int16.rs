//! Products of 16-bit activations and 8-bit weights.
//!
//! A product is computed as two 8-bit products: an activation is `256 · high + low + 128`, where `high` and `low` are
//! signed bytes, so the sum of products with weights `w` is `256 · Σ high · w + Σ low · w + 128 · Σ w`.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{ComputeError, Result, check_len, check_multiple};
use crate::base::isa::Isa;
use crate::base::requant_i16::{Scale, ShortSums};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Maximum number of products of bytes whose sum fits 32 bits.
const MAX_PRODUCTS: usize = 1 << 16;

/// Requantization of sums to 16 bits, per column.
#[derive(Clone, Debug)]
pub struct WideSums {
    /// Constant part of each column's sum: the bias and `128 · Σ w`.
    base: Vec<i64>,
    scale: Scale,
    low: i32,
    high: i32,
    /// The same for vectors of 32 bits, if it is possible.
    pub(crate) short: Option<ShortSums>,
}

impl WideSums {
    /// For columns of consecutive weights, one column per factor of `scale`, with one `bias` each. Results are clamped
    /// to `bounds`.
    ///
    /// # Errors
    /// Fails if lengths do not match, or a sum could overflow.
    pub fn of_bytes(weights: &[u8], bias: Option<&[i64]>, scale: Scale, bounds: [i32; 2]) -> Result<Self> {
        let columns = scale.columns();
        let depth = weights.len().checked_div(columns).unwrap_or(0);
        if depth > MAX_PRODUCTS {
            return Err(ComputeError::Range { what: "depth: sums of more than 65536 products may overflow" });
        }
        let total = |column: &[u8]| column.iter().map(|w| 128 * i64::from(w.cast_signed())).sum();
        let totals = weights.chunks_exact(depth.max(1)).map(total).collect();
        let magnitude = |column: &[u8]| column.iter().map(|w| magnitude(*w)).sum();
        let magnitudes: Vec<i64> = weights.chunks_exact(depth.max(1)).map(magnitude).collect();
        Self::new(totals, bias, scale, bounds, (&magnitudes, columns))
    }

    /// `weights` has the sum of the absolute values of each column's weights, and the length of the lists for vectors.
    pub(crate) fn new(
        mut base: Vec<i64>,
        bias: Option<&[i64]>,
        scale: Scale,
        [low, high]: [i32; 2],
        (weights, len): (&[i64], usize),
    ) -> Result<Self> {
        check_len("factors", scale.columns(), base.len())?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), base.len())?;
            base.iter_mut().zip(bias).for_each(|(base, bias)| *base = base.wrapping_add(*bias));
        }
        let short = ShortSums::new(&base, &scale, [low, high], weights, len);
        Ok(WideSums { base, scale, low, high, short })
    }

    /// Computes outputs `[rows, columns]` from the sums of the upper and of the lower halves of the activations.
    ///
    /// # Errors
    /// Fails if lengths do not match.
    pub fn run(&self, isa: Isa, sums: [&[i32]; 2], out: &mut [i16], par: &dyn Parallel) -> Result<()> {
        let columns = self.base.len();
        for sums in sums {
            check_len("sums", sums.len(), out.len())?;
        }
        check_multiple("elements of output", out.len(), columns)?;
        let rows = out.len().checked_div(columns).unwrap_or(0);
        let par = threads_for(par, out.len().saturating_mul(4));
        let chunk = chunk_len(par, rows, columns.saturating_mul(4));
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(chunk), &|task| {
            let (from, count) = (task * chunk * columns, chunk.min(rows - task * chunk) * columns);
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(from, count) };
            dispatch(isa, HalvesTask { to: self, sums: sums.map(|sums| &sums[from..][..count]), out });
        });
        Ok(())
    }

    /// Adds the constant part to sums, beginning with column `first`, and scales them.
    #[inline(always)]
    pub(crate) fn finish(&self, first: usize, sums: impl Iterator<Item = i64>, out: &mut [i16]) {
        let (low, high) = (self.low, self.high);
        let sums = sums.zip(&self.base[first..]).map(|(sum, base)| sum.wrapping_add(*base));
        macro_rules! each {
            ($factors:expr, $sum:ident, $factor:ident => $scaled:expr) => {
                for ((o, $sum), $factor) in out.iter_mut().zip(sums).zip(&$factors[first..]) {
                    let scaled: i32 = $scaled;
                    *o = scaled.max(low).min(high) as i16;
                }
            };
        }
        match &self.scale {
            Scale::Fixed(factors) => each!(factors, sum, factor => {
                let [factor, round, shift] = *factor;
                (sum.wrapping_mul(factor).wrapping_add(round) >> shift) as i32
            }),
            Scale::Narrow(factors, ties) => each!(factors, sum, factor => factor.apply(sum as i32, *ties)),
            Scale::Real(factors) => each!(factors, sum, factor => (sum as f64 * factor).round() as i32),
        }
    }
}

struct HalvesTask<'a> {
    to: &'a WideSums,
    sums: [&'a [i32]; 2],
    out: &'a mut [i16],
}

impl SimdTask for HalvesTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let columns = self.to.base.len().max(1);
        let [high, low] = self.sums.map(|sums| sums.chunks_exact(columns));
        for (out, (high, low)) in self.out.chunks_exact_mut(columns).zip(high.zip(low)) {
            let Some(short) = &self.to.short else {
                let sums = high.iter().zip(low).map(|(high, low)| 256 * i64::from(*high) + i64::from(*low));
                self.to.finish(0, sums, out);
                continue;
            };
            let columns = short.base.iter().zip(&short.factors);
            for ((o, (high, low)), (base, factor)) in out.iter_mut().zip(high.iter().zip(low)).zip(columns) {
                // Only the whole sum is known to fit 32 bits.
                let sum = high.wrapping_mul(256).wrapping_add(*low).wrapping_add(*base);
                *o = short.scale(sum, *factor) as i16;
            }
        }
    }
}

/// Absolute value of a weight.
pub(crate) fn magnitude(weight: u8) -> i64 {
    weight.cast_signed().unsigned_abs().into()
}

/// The lower half of an activation of 0.
pub const LOW_OF_ZERO: u8 = 0x80;

/// Splits activations into their halves, which are signed bytes.
///
/// # Errors
/// Fails if lengths do not match.
pub fn halves(isa: Isa, input: &[i16], high: &mut [u8], low: &mut [u8], par: &dyn Parallel) -> Result<()> {
    check_len("upper halves", high.len(), input.len())?;
    check_len("lower halves", low.len(), input.len())?;
    let par = threads_for(par, input.len());
    let piece = chunk_len(par, input.len(), 1);
    let (high, low) = (SharedMut::new(high), SharedMut::new(low));
    par.run(input.len().div_ceil(piece), &|task| {
        let input = &input[task * piece..((task + 1) * piece).min(input.len())];
        // SAFETY: parts of tasks are disjoint, and `Parallel::run` calls each task at most once.
        let (high, low) =
            unsafe { (high.slice(task * piece, input.len()), low.slice(task * piece, input.len())) };
        dispatch(isa, SplitTask { input, high, low });
    });
    Ok(())
}

struct SplitTask<'a> {
    input: &'a [i16],
    high: &'a mut [u8],
    low: &'a mut [u8],
}

impl SimdTask for SplitTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (x, (high, low)) in self.input.iter().zip(self.high.iter_mut().zip(self.low)) {
            *high = (x >> 8) as u8;
            *low = *x as u8 ^ LOW_OF_ZERO;
        }
    }
}
