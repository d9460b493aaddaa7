//! Pooling in single precision.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::matmul::geometry::{Checked, ConvGeometry};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// The function of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Mean of the elements inside the input.
    Average,
    /// Maximum.
    Max,
}

/// Pools `input` `[batch, height, width, channels]` into `out`, whose channels are the input's.
///
/// # Errors
/// Fails if a window is entirely padding, or an operand has the wrong length.
pub fn pool_2d(
    isa: Isa,
    kind: Pool,
    geo: &Checked,
    input: &[f32],
    out: &mut [f32],
    clamp: Clamp,
    par: &dyn Parallel,
) -> Result<()> {
    each_rows(geo, usize::MAX, input.len(), out, par, |rows, out| {
        dispatch(isa, RowsTask { kind, geo, input, out, clamp, rows });
    })
}

/// Checks operands, and calls `task` with ranges of output rows, through all images, and their outputs.
///
/// # Errors
/// Fails if a window is entirely padding or has more than `most` taps, or an operand has the wrong length.
pub(super) fn each_rows<T: Send>(
    geo: &Checked,
    most: usize,
    input: usize,
    out: &mut [T],
    par: &dyn Parallel,
    task: impl Fn(Range<usize>, &mut [T]) + Sync,
) -> Result<()> {
    check_len("input", input, geo.input_len)?;
    let row = product("output", &[geo.output[1], geo.in_channels])?;
    check_len("output", out.len(), product("output", &[geo.batch, geo.output[0], row])?)?;
    if geo.has_empty_window || product("window", &geo.window)? > most {
        return Err(ComputeError::Range { what: "window" });
    }
    if out.is_empty() {
        return Ok(());
    }
    let (rows, each) = (geo.batch * geo.output[0], row.saturating_mul(geo.window[0] * geo.window[1]));
    let par = threads_for(par, rows.saturating_mul(each));
    let per_task = chunk_len(par, rows, each);
    let shared = SharedMut::new(out);
    par.run(rows.div_ceil(per_task), &|n| {
        let rows = n * per_task..((n + 1) * per_task).min(rows);
        // SAFETY: each task has other rows, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(rows.start * row, rows.len() * row) };
        task(rows, out);
    });
    Ok(())
}

struct RowsTask<'a> {
    kind: Pool,
    geo: &'a ConvGeometry,
    input: &'a [f32],
    /// Output rows `rows`.
    out: &'a mut [f32],
    clamp: Clamp,
    /// Indices of output rows, through all images.
    rows: Range<usize>,
}

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let geo = self.geo;
        let channels = geo.in_channels;
        let down = geo.dilation[0] * geo.input[1] * channels;
        let across = geo.dilation[1] * channels;
        // Windows one pixel apart have their taps at the same distance from each element of the output.
        let together = if geo.stride[1] == 1 { geo.interior(1) } else { 0..0 };
        for (row, out) in self.rows.zip(self.out.chunks_exact_mut(geo.output[1] * channels)) {
            let (image, y0) = (row / geo.output[0], geo.origin(0, row % geo.output[0]));
            let ky = geo.taps(0, y0);
            let mut rest = out;
            let mut x = 0;
            while !rest.is_empty() {
                let pixels = if x == together.start { together.len().max(1) } else { 1 };
                let (out, after) = std::mem::take(&mut rest).split_at_mut(pixels * channels);
                let x0 = geo.origin(1, x);
                let kx = geo.taps(1, x0);
                // Both ranges have a tap, so the first one is inside the input.
                let line = (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
                let column = (x0 + (kx.start * geo.dilation[1]) as isize) as usize;
                let at = ((image * geo.input[0] + line) * geo.input[1] + column) * channels;
                let windows = Windows { down, across, taps: [ky.len(), kx.len()], clamp: self.clamp };
                // SAFETY: taps are inside the input, whose length `each_rows` checked, for all elements of `out`. The
                // instructions exist by the caller's contract.
                unsafe {
                    let (from, to) = (self.input.as_ptr().add(at), out.as_mut_ptr());
                    match self.kind {
                        Pool::Average => windows.pool::<S, false>(from, to, out.len()),
                        Pool::Max => windows.pool::<S, true>(from, to, out.len()),
                    }
                }
                (rest, x) = (after, x + pixels);
            }
        }
    }
}

/// Windows of neighbouring elements of an output row, whose taps are at the same distance from each of them.
struct Windows {
    /// Elements from one row of taps to the next.
    down: usize,
    /// Elements from tap to tap in a row.
    across: usize,
    taps: [usize; 2],
    clamp: Clamp,
}

impl Windows {
    /// Computes `len` elements.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`. `from` must be valid for all taps of `len` elements, and `to`
    /// for these elements.
    #[inline(always)]
    unsafe fn pool<S: Simd, const MAX: bool>(&self, from: *const f32, to: *mut f32, len: usize) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let mut first = 0;
            while len - first >= 4 * S::LANES {
                self.block::<S, MAX, true, 4>(from.add(first), to.add(first), S::LANES);
                first += 4 * S::LANES;
            }
            let (from, to, rest) = (from.add(first), to.add(first), len - first);
            let last = rest % S::LANES;
            // All remaining vectors together, so that their sums do not wait for each other.
            match (rest / S::LANES, last) {
                (0, 0) => {}
                (1, 0) => self.block::<S, MAX, true, 1>(from, to, S::LANES),
                (2, 0) => self.block::<S, MAX, true, 2>(from, to, S::LANES),
                (_, 0) => self.block::<S, MAX, true, 3>(from, to, S::LANES),
                (0, _) => self.block::<S, MAX, false, 1>(from, to, last),
                (1, _) => self.block::<S, MAX, false, 2>(from, to, last),
                (2, _) => self.block::<S, MAX, false, 3>(from, to, last),
                (_, _) => self.block::<S, MAX, false, 4>(from, to, last),
            }
        }
    }

    /// `NV` vectors. Unless `FULL`, the last one has `n` elements.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`. `from` must be valid for all taps of the vectors, and `to` for
    /// these.
    #[inline(always)]
    unsafe fn block<S: Simd, const MAX: bool, const FULL: bool, const NV: usize>(
        &self,
        from: *const f32,
        to: *mut f32,
        n: usize,
    ) {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let start = S::splat(if MAX { f32::MIN } else { 0.0 });
            let mut total = [start; NV];
            for ky in 0..self.taps[0] {
                let row = from.add(ky * self.down);
                // Summing each row first loses less precision.
                let mut sum = [start; NV];
                for kx in 0..self.taps[1] {
                    let p = row.add(kx * self.across);
                    for (j, sum) in sum.iter_mut().enumerate() {
                        let p = p.add(j * S::LANES);
                        let x = if FULL || j + 1 < NV { S::load(p) } else { S::load_n(p, n) };
                        *sum = if MAX { S::max(x, *sum) } else { S::add(*sum, x) };
                    }
                }
                for (total, sum) in total.iter_mut().zip(sum) {
                    *total = if MAX { S::max(sum, *total) } else { S::add(*total, sum) };
                }
            }
            // As XNNPACK does; a division takes as long as the sums.
            let share = S::splat(1.0 / (self.taps[0] * self.taps[1]) as f32);
            for (j, total) in total.into_iter().enumerate() {
                let total = if MAX { total } else { S::mul(total, share) };
                let y = S::clamp(total, S::splat(self.clamp.low), S::splat(self.clamp.high));
                let to = to.add(j * S::LANES);
                if FULL || j + 1 < NV { S::store(to, y) } else { S::store_n(to, y, n) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::{close, pairs, random_geometry};
    use crate::{Serial, ThreadPool};

    #[test]
    fn windows_of_every_kind() {
        let mut rng = Rng::new(31);
        let pool = ThreadPool::new(2);
        let mut done = 0;
        while done < 200 {
            let (channels, window) = (rng.range(1, 40), [rng.range(1, 5), rng.range(1, 5)]);
            let geo = ConvGeometry { dilation: [1, 1], ..random_geometry(&mut rng, channels, window) };
            let input = rng.floats(geo.input_len().unwrap());
            let mut out = vec![f32::NAN; geo.pixels().unwrap() * channels];
            if geo.has_empty_window() {
                let got = pool_2d(
                    Isa::best(),
                    Pool::Max,
                    &geo.checked().unwrap(),
                    &input,
                    &mut out,
                    Clamp::NONE,
                    &Serial,
                );
                assert!(got.is_err());
                continue;
            }
            done += 1;
            for kind in [Pool::Average, Pool::Max] {
                let mut expected = Vec::new();
                for (b, (y, x)) in
                    (0..geo.batch).flat_map(|b| pairs(geo.output[0], geo.output[1]).map(move |p| (b, p)))
                {
                    for c in 0..channels {
                        let (y0, x0) = (geo.origin(0, y), geo.origin(1, x));
                        let inside: Vec<f32> = pairs(window[0], window[1])
                            .map(|(ky, kx)| (y0 + ky as isize, x0 + kx as isize))
                            .filter(|&(y, x)| {
                                (0..geo.input[0] as isize).contains(&y)
                                    && (0..geo.input[1] as isize).contains(&x)
                            })
                            .map(|(y, x)| {
                                let pixel = (b * geo.input[0] + y as usize) * geo.input[1] + x as usize;
                                input[pixel * channels + c]
                            })
                            .collect();
                        let value = match kind {
                            Pool::Average => inside.iter().sum::<f32>() / inside.len() as f32,
                            Pool::Max => inside.iter().copied().fold(f32::MIN, f32::max),
                        };
                        expected.push(value.clamp(-1.0, 0.5));
                    }
                }
                let clamp = Clamp { low: -1.0, high: 0.5 };
                for &isa in Isa::available() {
                    pool_2d(isa, kind, &geo.checked().unwrap(), &input, &mut out, clamp, &pool).unwrap();
                    close(&out, &expected, 25, || format!("{} {kind:?} {geo:?}", isa.name()));
                }
            }
        }
    }
}
