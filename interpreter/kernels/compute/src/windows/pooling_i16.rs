//! Pooling of 16-bit integers.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::error::Result;
use crate::base::isa::Isa;
use crate::matmul::geometry::{Checked, ConvGeometry};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::windows::pooling::{Pool, each_rows};

/// Maximum number of taps of a window: sums fit 32 bits.
const MAX_TAPS: usize = 1 << 15;

/// Pools `input` `[batch, height, width, channels]` into `out`, which has the input's channels and quantization. Means
/// round ties away from zero; results are clamped to `bounds`.
///
/// # Errors
/// Fails if a window is entirely padding or too large, or an operand has the wrong length.
pub fn pool_2d_int16(
    isa: Isa,
    kind: Pool,
    geo: &Checked,
    input: &[i16],
    out: &mut [i16],
    bounds: [i16; 2],
    par: &dyn Parallel,
) -> Result<()> {
    each_rows(geo, MAX_TAPS, input.len(), out, par, |rows, out| {
        dispatch(isa, RowsTask { kind, geo, input, out, bounds, rows });
    })
}

struct RowsTask<'a> {
    kind: Pool,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    /// Output rows `rows`.
    out: &'a mut [i16],
    bounds: [i16; 2],
    /// Indices of output rows, through all images.
    rows: Range<usize>,
}

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let geo = self.geo;
        let channels = geo.in_channels;
        let (down, across) = (geo.dilation[0] * geo.input[1] * channels, geo.dilation[1] * channels);
        // Windows one pixel apart have their taps at the same distance from each element of the output.
        let together = if geo.stride[1] == 1 { geo.interior(1) } else { 0..0 };
        for (row, out) in self.rows.zip(self.out.chunks_exact_mut(geo.output[1] * channels)) {
            let (image, y0) = (row / geo.output[0], geo.origin(0, row % geo.output[0]));
            let ky = geo.taps(0, y0);
            // Ranges of taps are not empty, so the first one is inside of the input.
            let line = image * geo.input[0] + (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
            let mut rest = out;
            let mut x = 0;
            while !rest.is_empty() {
                let pixels = if x == together.start { together.len().max(1) } else { 1 };
                let (out, after) = std::mem::take(&mut rest).split_at_mut(pixels * channels);
                let x0 = geo.origin(1, x);
                let kx = geo.taps(1, x0);
                let column = (x0 + (kx.start * geo.dilation[1]) as isize) as usize;
                let input = &self.input[(line * geo.input[1] + column) * channels..];
                Windows { input, down, across, taps: [ky.len(), kx.len()], bounds: self.bounds }
                    .run(self.kind, out);
                (rest, x) = (after, x + pixels);
            }
        }
    }
}

/// Windows of neighbouring elements of an output row, whose taps are at the same distance from each of them.
struct Windows<'a> {
    /// The input, beginning at the first tap of the first window.
    input: &'a [i16],
    /// Elements from one row of taps to the next.
    down: usize,
    /// Elements from tap to tap in a row.
    across: usize,
    taps: [usize; 2],
    bounds: [i16; 2],
}

impl Windows<'_> {
    #[inline(always)]
    fn run(&self, kind: Pool, out: &mut [i16]) {
        match out.len() {
            32.. => self.pool::<32>(kind, out),
            16.. => self.pool::<16>(kind, out),
            4.. => self.pool::<4>(kind, out),
            _ => self.pool::<1>(kind, out),
        }
    }

    /// Computes at least `N` elements, `N` at a time. The last `N` may overlap the elements before them.
    #[inline(always)]
    fn pool<const N: usize>(&self, kind: Pool, out: &mut [i16]) {
        for first in (0..out.len()).step_by(N) {
            let first = first.min(out.len() - N);
            let Some(block) = out[first..].first_chunk_mut::<N>() else { return };
            match kind {
                Pool::Max => self.max(first, block),
                Pool::Average => self.average(first, block),
            }
        }
    }

    /// The elements of a tap for the windows from `first` on.
    #[inline(always)]
    fn tap<const N: usize>(&self, first: usize, ky: usize, kx: usize) -> &[i16; N] {
        let at = ky * self.down + kx * self.across + first;
        self.input[at..].first_chunk().unwrap_or(&[0; N])
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn max<const N: usize>(&self, first: usize, out: &mut [i16; N]) {
        let mut most = *self.tap::<N>(first, 0, 0);
        for ky in 0..self.taps[0] {
            for kx in 0..self.taps[1] {
                let tap = self.tap::<N>(first, ky, kx);
                for i in 0..N {
                    most[i] = most[i].max(tap[i]);
                }
            }
        }
        let [low, high] = self.bounds;
        for i in 0..N {
            out[i] = most[i].max(low).min(high);
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn average<const N: usize>(&self, first: usize, out: &mut [i16; N]) {
        let mut sums = [0i32; N];
        for ky in 0..self.taps[0] {
            for kx in 0..self.taps[1] {
                let tap = self.tap::<N>(first, ky, kx);
                for i in 0..N {
                    sums[i] += i32::from(tap[i]);
                }
            }
        }
        let count = (self.taps[0] * self.taps[1]) as i32;
        let (half, divisor) = (f64::from(count / 2), f64::from(count));
        let [low, high] = self.bounds.map(i32::from);
        for i in 0..N {
            let sum = f64::from(sums[i]);
            // Truncation is exact: a quotient of 32-bit integers that is not whole differs from the next whole number by
            // more than the rounding error.
            // SAFETY: quotients within the range of 16 bits, as `count` is positive.
            let mean: i32 =
                unsafe { ((sum + if sum > 0.0 { half } else { -half }) / divisor).to_int_unchecked() };
            out[i] = mean.max(low).min(high) as i16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::{pairs, random_geometry};
    use crate::{Serial, ThreadPool};

    /// The result by its definition.
    fn expected(kind: Pool, geo: &ConvGeometry, input: &[i16], [low, high]: [i16; 2]) -> Vec<i16> {
        let mut all = Vec::new();
        let outputs = (0..geo.batch).flat_map(|b| pairs(geo.output[0], geo.output[1]).map(move |p| (b, p)));
        for (b, (y, x)) in outputs {
            for c in 0..geo.in_channels {
                let taps: Vec<i64> = pairs(geo.window[0], geo.window[1])
                    .map(|(ky, kx)| {
                        (
                            geo.origin(0, y) + (ky * geo.dilation[0]) as isize,
                            geo.origin(1, x) + (kx * geo.dilation[1]) as isize,
                        )
                    })
                    .filter(|&(y, x)| {
                        (0..geo.input[0] as isize).contains(&y) && (0..geo.input[1] as isize).contains(&x)
                    })
                    .map(|(y, x)| {
                        let pixel = (b * geo.input[0] + y as usize) * geo.input[1] + x as usize;
                        i64::from(input[pixel * geo.in_channels + c])
                    })
                    .collect();
                let (sum, count) = (taps.iter().sum::<i64>(), taps.len() as i64);
                let value = match kind {
                    Pool::Max => taps.into_iter().max().unwrap(),
                    Pool::Average => (sum + if sum > 0 { count / 2 } else { -(count / 2) }) / count,
                };
                all.push((value as i16).max(low).min(high));
            }
        }
        all
    }

    #[test]
    fn windows_of_sixteen_bits() {
        let mut rng = Rng::new(43);
        let threads = ThreadPool::new(2);
        let mut done = 0;
        while done < 200 {
            let (channels, window) = (rng.range(1, 70), [rng.range(1, 6), rng.range(1, 6)]);
            let geo = random_geometry(&mut rng, channels, window);
            if geo.has_empty_window() {
                continue;
            }
            done += 1;
            let kind = [Pool::Average, Pool::Max][rng.range(0, 1)];
            // Some values are all at an end of the range.
            let mask = [0, i16::MAX, i16::MIN][rng.range(0, 2)];
            let value = |rng: &mut Rng| if mask == 0 { rng.next() as i16 } else { mask };
            let input: Vec<i16> = (0..geo.input_len().unwrap()).map(|_| value(&mut rng)).collect();
            let bounds = if rng.range(0, 1) == 0 { [i16::MIN, i16::MAX] } else { [-20_000, 15_000] };
            let expected = expected(kind, &geo, &input, bounds);
            for &isa in Isa::available() {
                let mut out = vec![0; expected.len()];
                let par: &dyn Parallel = if done % 2 == 0 { &threads } else { &Serial };
                pool_2d_int16(isa, kind, &geo.checked().unwrap(), &input, &mut out, bounds, par).unwrap();
                assert_eq!(out, expected, "{} {kind:?} {geo:?}", isa.name());
            }
        }
    }
}
