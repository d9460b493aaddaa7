//! Normalization in single precision: to mean zero and variance one, to mean square one, or to length one.

use delegraph_core::kernel::{Parallel, Serial};

use crate::base::buffer::SharedMut;
use crate::base::error::{Result, check_len, check_multiple};
use crate::base::isa::Isa;
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Cost of an element, in elements of a cheap function.
const COST: usize = 3;

/// Elements between two polls inside a task, unless a position has more: some 10 ms.
const POLLED: usize = 4 << 20;

/// `(x - mean) / √(variance + ε) · factor + term`, over groups of channels at several positions.
#[derive(Clone, Copy, Debug)]
pub struct Normalize {
    /// Whether to subtract the mean and add terms; otherwise the result is `x / √(mean square + ε) · factor`.
    pub centered: bool,
    /// Added to the variance or to the mean square.
    pub epsilon: f32,
    /// Channels at each position.
    pub channels: usize,
    /// Groups of channels that are normalized separately.
    pub groups: usize,
    /// Positions that are normalized together.
    pub positions: usize,
}

impl Normalize {
    /// Normalizes `x` `[…, positions, channels]`. Factors and, if `centered`, terms are `[channels]`; otherwise terms
    /// are empty.
    ///
    /// # Errors
    /// Fails if lengths do not match, or `groups` does not divide `channels`.
    pub fn run(
        &self,
        isa: Isa,
        [x, factors, terms]: [&[f32]; 3],
        out: &mut [f32],
        par: &dyn Parallel,
    ) -> Result<()> {
        check_len("output", out.len(), x.len())?;
        check_len("factors", factors.len(), self.channels)?;
        check_len("terms", terms.len(), if self.centered { self.channels } else { 0 })?;
        check_multiple("channels", self.channels, self.groups)?;
        let whole = self.positions.saturating_mul(self.channels);
        check_multiple("elements of input", x.len(), whole)?;
        let Some(vectors) = x.len().checked_div(whole) else { return Ok(()) };
        let jobs = vectors * self.groups;
        let par = threads_for(par, x.len().saturating_mul(COST));
        let chunk = chunk_len(par, jobs, whole / self.groups.max(1) * COST);
        let out = SharedMut::new(out);
        par.run(jobs.div_ceil(chunk), &|task| {
            let jobs = task * chunk..((task + 1) * chunk).min(jobs);
            dispatch(isa, Jobs { shape: self, x, factors, terms, out, jobs, par });
        });
        Ok(())
    }
}

struct Jobs<'a> {
    shape: &'a Normalize,
    x: &'a [f32],
    factors: &'a [f32],
    terms: &'a [f32],
    out: SharedMut<'a, f32>,
    jobs: std::ops::Range<usize>,
    par: &'a dyn Parallel,
}

impl SimdTask for Jobs<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Normalize { centered, epsilon, channels, groups, positions } = *self.shape;
        let width = channels / groups;
        let count = (positions * width) as f32;
        let (sizes, polled) = ([positions, channels, width], (POLLED / width.max(1)).max(1));
        for job in self.jobs {
            let (vector, first) = (job / groups, job % groups * width);
            let start = vector * positions * channels + first;
            // SAFETY: `run` checked that there are whole vectors of `positions · channels` elements, and `channels`
            // factors and terms. Jobs are below the number of vectors times groups, and write disjoint groups. The
            // instructions exist by the caller's contract.
            unsafe {
                let from = self.x.as_ptr().add(start);
                let mean = match centered {
                    true => total::<S, false>(from, sizes, 0.0, (self.par, polled)) / count,
                    false => 0.0,
                };
                let variance = total::<S, true>(from, sizes, mean, (self.par, polled)) / count;
                let (mean, scale) = (S::splat(mean), S::splat(1.0 / (variance + epsilon).sqrt()));
                let factors = self.factors.as_ptr().add(first);
                let mut left = polled;
                for position in 0..positions {
                    if left == 0 {
                        if self.par.is_interrupted() {
                            return;
                        }
                        left = polled;
                    }
                    left -= 1;
                    let from = from.add(position * channels);
                    let to = self.out.ptr(start + position * channels);
                    let mut i = 0;
                    while i < width {
                        let n = (width - i).min(S::LANES);
                        let (x, factor) = match n == S::LANES {
                            true => (S::load(from.add(i)), S::load(factors.add(i))),
                            false => (S::load_n(from.add(i), n), S::load_n(factors.add(i), n)),
                        };
                        let normal = S::mul(S::sub(x, mean), scale);
                        let y = match centered {
                            true => {
                                let terms = self.terms.as_ptr().add(first + i);
                                let term = if n == S::LANES { S::load(terms) } else { S::load_n(terms, n) };
                                S::fma(normal, factor, term)
                            }
                            false => S::mul(normal, factor),
                        };
                        match n == S::LANES {
                            true => S::store(to.add(i), y),
                            false => S::store_n(to.add(i), y, n),
                        }
                        i += n;
                    }
                }
            }
        }
    }
}

/// `x / max(√Σ x², least)` for each row of `depth` elements.
///
/// # Errors
/// Fails if lengths do not match.
pub fn unit_length(
    isa: Isa,
    (depth, least): (usize, f32),
    x: &[f32],
    out: &mut [f32],
    par: &dyn Parallel,
) -> Result<()> {
    check_len("output", out.len(), x.len())?;
    check_multiple("elements of input", x.len(), depth)?;
    let Some(rows) = x.len().checked_div(depth) else { return Ok(()) };
    let par = threads_for(par, x.len().saturating_mul(COST));
    let chunk = chunk_len(par, rows, depth.saturating_mul(COST));
    let out = SharedMut::new(out);
    par.run(rows.div_ceil(chunk), &|task| {
        let rows = task * chunk..((task + 1) * chunk).min(rows);
        dispatch(isa, Lengths { depth, least, x, out, rows });
    });
    Ok(())
}

struct Lengths<'a> {
    depth: usize,
    least: f32,
    x: &'a [f32],
    out: SharedMut<'a, f32>,
    rows: std::ops::Range<usize>,
}

impl SimdTask for Lengths<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let depth = self.depth;
        for row in self.rows {
            // SAFETY: `unit_length` checked that both slices are whole rows of `depth` elements. Rows of tasks are
            // disjoint. The instructions exist by the caller's contract.
            unsafe {
                let (from, to) = (self.x.as_ptr().add(row * depth), self.out.ptr(row * depth));
                let length = total::<S, true>(from, [1, depth, depth], 0.0, (&Serial, 1)).sqrt();
                // NaN stays NaN; `max` would return the other number.
                let length = if length < self.least { self.least } else { length };
                let length = S::splat(length);
                let mut i = 0;
                while i + S::LANES <= depth {
                    S::store(to.add(i), S::div(S::load(from.add(i)), length));
                    i += S::LANES;
                }
                if i < depth {
                    let n = depth - i;
                    S::store_n(to.add(i), S::div(S::load_n(from.add(i), n), length), n);
                }
            }
        }
    }
}

/// The sum of `positions` rows of `width` elements, or with `SQUARES` that of their squared differences from `mean`. Any
/// number if the work is interrupted, which is polled every `polled` positions.
///
/// # Safety
/// Rows that begin `stride` elements apart must be valid for reads, and the processor must have the instructions of
/// `S`.
#[inline(always)]
unsafe fn total<S: Simd, const SQUARES: bool>(
    from: *const f32,
    [positions, stride, width]: [usize; 3],
    mean: f32,
    (par, polled): (&dyn Parallel, usize),
) -> f32 {
    let mut left = polled;
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let shift = S::splat(mean);
        let mut sums = [S::splat(0.0); 2];
        let mut rest = 0.0;
        let mut lanes = [0f32; 16];
        for position in 0..positions {
            if left == 0 {
                if par.is_interrupted() {
                    return 0.0;
                }
                left = polled;
            }
            left -= 1;
            let from = from.add(position * stride);
            let mut i = 0;
            while i + 2 * S::LANES <= width {
                let (a, b) = (S::load(from.add(i)), S::load(from.add(i + S::LANES)));
                match SQUARES {
                    true => {
                        let (a, b) = (S::sub(a, shift), S::sub(b, shift));
                        sums = [S::fma(a, a, sums[0]), S::fma(b, b, sums[1])];
                    }
                    false => sums = [S::add(a, sums[0]), S::add(b, sums[1])],
                }
                i += 2 * S::LANES;
            }
            while i < width {
                let n = (width - i).min(S::LANES);
                let x = S::load_n(from.add(i), n);
                let x = if SQUARES { S::sub(x, shift) } else { x };
                let x = if SQUARES { S::mul(x, x) } else { x };
                if n == S::LANES {
                    sums[0] = S::add(x, sums[0]);
                } else {
                    // Missing lanes do not count.
                    S::store(lanes.as_mut_ptr(), x);
                    rest += lanes[..n].iter().sum::<f32>();
                }
                i += n;
            }
        }
        S::store(lanes.as_mut_ptr(), S::add(sums[0], sums[1]));
        lanes[..S::LANES].iter().sum::<f32>() + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::close;
    use crate::threads::pool::ThreadPool;

    /// The defining formula, in double precision.
    fn plain(shape: &Normalize, [x, factors, terms]: [&[f32]; 3]) -> Vec<f32> {
        let Normalize { centered, epsilon, channels, groups, positions } = *shape;
        let width = channels / groups;
        let mut out = vec![0.0; x.len()];
        for start in (0..x.len()).step_by(positions * channels) {
            for group in 0..groups {
                let places = || {
                    (0..positions * channels)
                        .filter(move |i| i % channels / width == group)
                        .map(|i| start + i)
                };
                let count = (positions * width) as f64;
                let mean = places().map(|i| f64::from(x[i])).sum::<f64>() / count;
                let mean = if centered { mean } else { 0.0 };
                let variance = places().map(|i| (f64::from(x[i]) - mean).powi(2)).sum::<f64>() / count;
                for i in places() {
                    let normal = (f64::from(x[i]) - mean) / (variance + f64::from(epsilon)).sqrt();
                    let term = terms.get(i % channels).copied().unwrap_or(0.0);
                    out[i] = (normal * f64::from(factors[i % channels]) + f64::from(term)) as f32;
                }
            }
        }
        out
    }

    #[test]
    fn every_width_gives_what_the_formula_says() {
        let mut rng = Rng::new(5);
        let pool = ThreadPool::new(3);
        for width in [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 70] {
            for (groups, positions, vectors) in [(1, 1, 5), (3, 4, 2), (2, 1, 1), (4, 300, 2)] {
                for centered in [true, false] {
                    let channels = width * groups;
                    let shape = Normalize { centered, epsilon: 1e-3, channels, groups, positions };
                    let x: Vec<f32> =
                        rng.floats(vectors * positions * channels).iter().map(|v| v * 2.0 + 0.5).collect();
                    let factors = rng.floats(channels);
                    let terms = rng.floats(if centered { channels } else { 0 });
                    let expected = plain(&shape, [&x, &factors, &terms]);
                    for &isa in Isa::available() {
                        for par in [&Serial as &dyn Parallel, &pool] {
                            let mut out = vec![f32::NAN; x.len()];
                            shape.run(isa, [&x, &factors, &terms], &mut out, par).unwrap();
                            close(&out, &expected, 64, || format!("{shape:?} {}", isa.name()));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_get_length_one() {
        let mut rng = Rng::new(6);
        let pool = ThreadPool::new(3);
        for depth in [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 70, 40_000] {
            let mut x = rng.floats(5 * depth);
            x[depth..2 * depth].fill(0.0);
            let length =
                |row: &[f32]| row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt().max(1e-6);
            let expected: Vec<f32> = x
                .chunks_exact(depth)
                .flat_map(|row| row.iter().map(|&v| (f64::from(v) / length(row)) as f32))
                .collect();
            for &isa in Isa::available() {
                for par in [&Serial as &dyn Parallel, &pool] {
                    let mut out = vec![f32::NAN; x.len()];
                    unit_length(isa, (depth, 1e-6), &x, &mut out, par).unwrap();
                    close(&out, &expected, 64, || format!("{depth} {}", isa.name()));
                }
            }
        }
        assert!(unit_length(Isa::best(), (3, 1e-6), &[0.0; 6], &mut [0.0; 5], &Serial).is_err());
        assert!(unit_length(Isa::best(), (4, 1e-6), &[0.0; 6], &mut [0.0; 6], &Serial).is_err());
        assert!(unit_length(Isa::best(), (0, 1e-6), &[], &mut [], &Serial).is_ok());
    }

    #[test]
    fn lengths_that_do_not_agree_are_refused() {
        let shape = Normalize { centered: true, epsilon: 1e-3, channels: 4, groups: 2, positions: 3 };
        let run = |shape: Normalize, x: usize, factors: usize, terms: usize, out: usize| {
            let [x, factors, terms] = [x, factors, terms].map(|len| vec![0.0; len]);
            shape.run(Isa::best(), [&x, &factors, &terms], &mut vec![0.0; out], &Serial).is_ok()
        };
        assert!(run(shape, 24, 4, 4, 24) && run(shape, 0, 4, 4, 0));
        assert!(run(Normalize { centered: false, ..shape }, 12, 4, 0, 12));
        assert!(!run(shape, 24, 4, 4, 12) && !run(shape, 24, 3, 4, 24) && !run(shape, 24, 4, 0, 24));
        assert!(!run(shape, 20, 4, 4, 20) && !run(Normalize { groups: 3, ..shape }, 24, 4, 4, 24));
    }
}
