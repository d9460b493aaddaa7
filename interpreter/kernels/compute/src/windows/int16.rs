//! Products of 16-bit activations and 8-bit weights.
//!
//! A product is computed as two 8-bit products: an activation is `256 · high + low + 128`, where `high` and `low` are
//! signed bytes, so the sum of products with weights `w` is `256 · Σ high · w + Σ low · w + 128 · Σ w`.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::error::{ComputeError, Result, check_len, check_multiple, product};
use crate::base::isa::Isa;
use crate::base::requant::{Multiplier, Ties};
use crate::matmul::geometry::ConvGeometry;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Maximum number of products of bytes whose sum fits 32 bits.
const MAX_PRODUCTS: usize = 1 << 16;

/// Maximum number of taps of a depthwise window whose sum fits 32 bits.
const MAX_TAPS: usize = 1 << 8;

/// Requantization of sums to 16 bits, per column.
#[derive(Clone, Debug)]
pub struct WideSums {
    /// Constant part of each column's sum: the bias and `128 · Σ w`.
    base: Vec<i64>,
    scale: Scale,
    low: i32,
    high: i32,
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

    fn columns(&self) -> usize {
        match self {
            Scale::Fixed(list) => list.len(),
            Scale::Narrow(list, _) => list.len(),
            Scale::Real(list) => list.len(),
        }
    }
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
        Self::new(totals, bias, scale, bounds)
    }

    fn new(mut base: Vec<i64>, bias: Option<&[i64]>, scale: Scale, [low, high]: [i32; 2]) -> Result<Self> {
        check_len("factors", scale.columns(), base.len())?;
        if let Some(bias) = bias {
            check_len("bias", bias.len(), base.len())?;
            base.iter_mut().zip(bias).for_each(|(base, bias)| *base = base.wrapping_add(*bias));
        }
        Ok(WideSums { base, scale, low, high })
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
            for row in task * chunk..((task + 1) * chunk).min(rows) {
                // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
                let out = unsafe { shared.slice(row * columns, columns) };
                let sums = sums.map(|sums| &sums[row * columns..][..columns]);
                dispatch(isa, HalvesTask { to: self, sums, out });
            }
        });
        Ok(())
    }

    /// Adds the constant part to sums, beginning with column `first`, and scales them.
    #[inline(always)]
    fn finish(&self, first: usize, sums: impl Iterator<Item = i64>, out: &mut [i16]) {
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
        let [high, low] = self.sums;
        let sums = high.iter().zip(low).map(|(high, low)| 256 * i64::from(*high) + i64::from(*low));
        self.to.finish(0, sums, self.out);
    }
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

/// DEPTHWISE_CONV_2D of 16-bit activations with 8-bit weights.
pub struct DepthwiseI16 {
    isa: Isa,
    channels: usize,
    window: [usize; 2],
    /// `[height, width, channels]`.
    weights: AlignedVec<i16>,
    to: WideSums,
}

/// Minimum cost of a pixel, in elements of a cheap function.
const PIXEL_COST: usize = 32;

/// Channels whose sums are accumulated at a time.
const BLOCK: usize = 32;

impl DepthwiseI16 {
    /// For a filter `[1, height, width, channels]` with a `bias` and factor per channel. Results are
    /// clamped to `bounds`.
    ///
    /// # Errors
    /// Fails if lengths do not match, a sum could overflow, or memory cannot be allocated.
    #[allow(clippy::too_many_arguments, reason = "one argument per operand")]
    pub fn new(
        isa: Isa,
        channels: usize,
        window: [usize; 2],
        weights: &[u8],
        bias: Option<&[i64]>,
        scale: Scale,
        bounds: [i32; 2],
    ) -> Result<Self> {
        let taps = product("window", &window)?;
        check_len("weights", weights.len(), product("weights", &[taps, channels])?)?;
        if taps > MAX_TAPS {
            return Err(ComputeError::Range { what: "window: sums of more than 256 products may overflow" });
        }
        let to = WideSums::new(vec![0; channels], bias, scale, bounds)?;
        let mut wide = AlignedVec::zeroed(weights.len())?;
        wide.as_mut_slice().iter_mut().zip(weights).for_each(|(to, w)| *to = w.cast_signed().into());
        Ok(Self { isa, channels, window, weights: wide, to })
    }

    /// Convolves `input` `[batch, height, width, channels]` into `out` `[batch, height, width, channels]`. Needs no
    /// scratch.
    ///
    /// # Errors
    /// Fails if the geometry does not match the filter, or an operand has the wrong length.
    pub fn run(&self, geo: &ConvGeometry, input: &[i16], out: &mut [i16], par: &dyn Parallel) -> Result<()> {
        geo.check()?;
        if geo.window != self.window {
            return Err(ComputeError::Range { what: "window" });
        }
        if geo.in_channels != self.channels {
            return Err(ComputeError::Range { what: "input channels" });
        }
        check_len("input", input.len(), geo.input_len()?)?;
        let row = geo.output[1] * self.channels;
        check_len("output", out.len(), product("output", &[geo.batch, geo.output[0], row])?)?;
        if out.is_empty() {
            return Ok(());
        }
        let work =
            row.saturating_mul(self.window[0] * self.window[1]).max(geo.output[1].saturating_mul(PIXEL_COST));
        let rows = geo.batch * geo.output[0];
        let par = threads_for(par, rows.saturating_mul(work));
        let piece = chunk_len(par, rows, work);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(piece), &|task| {
            for at in task * piece..((task + 1) * piece).min(rows) {
                // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
                let out = unsafe { shared.slice(at * row, row) };
                dispatch(self.isa, DepthwiseRow { layer: self, geo, input, row: at, out });
            }
        });
        Ok(())
    }
}

struct DepthwiseRow<'a> {
    layer: &'a DepthwiseI16,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    row: usize,
    out: &'a mut [i16],
}

impl SimdTask for DepthwiseRow<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let DepthwiseRow { layer, geo, input, row, out } = self;
        let channels = layer.channels;
        let (image, y) = (row / geo.output[0], row % geo.output[0]);
        let y0 = geo.origin(0, y);
        let ky = geo.taps(0, y0);
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let x0 = geo.origin(1, x);
            let kx = geo.taps(1, x0);
            // Taps inside the input: offsets of the first channel in the input and in the weights.
            let taps = || {
                let (ky, kx) = (ky.clone(), kx.clone());
                ky.flat_map(move |ky| kx.clone().map(move |kx| (ky, kx))).map(move |(ky, kx)| {
                    let iy = (y0 + (ky * geo.dilation[0]) as isize) as usize;
                    let ix = (x0 + (kx * geo.dilation[1]) as isize) as usize;
                    let pixel = (image * geo.input[0] + iy) * geo.input[1] + ix;
                    (pixel * channels, (ky * geo.window[1] + kx) * channels)
                })
            };
            let weights = layer.weights.as_slice();
            let mut first = 0;
            while first + BLOCK <= channels {
                let mut sums = [0i32; BLOCK];
                for (i, w) in taps() {
                    let (x, w) = (&input[i + first..][..BLOCK], &weights[w + first..][..BLOCK]);
                    for (sum, (x, w)) in sums.iter_mut().zip(x.iter().zip(w)) {
                        *sum += i32::from(*x) * i32::from(*w);
                    }
                }
                layer.to.finish(first, sums.iter().map(|s| i64::from(*s)), &mut out[first..][..BLOCK]);
                first += BLOCK;
            }
            for block in blocks(first..channels) {
                let mut sums = [0i32; BLOCK];
                for (i, w) in taps() {
                    let (x, w) = (
                        &input[i + block.start..][..block.len()],
                        &weights[w + block.start..][..block.len()],
                    );
                    for (sum, (x, w)) in sums.iter_mut().zip(x.iter().zip(w)) {
                        *sum += i32::from(*x) * i32::from(*w);
                    }
                }
                layer.to.finish(block.start, sums.iter().map(|s| i64::from(*s)), &mut out[block]);
            }
        }
    }
}

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(BLOCK).map(move |first| first..(first + BLOCK).min(range.end))
}
