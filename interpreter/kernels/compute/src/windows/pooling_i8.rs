//! Pooling of bytes. `pooling_i8_parts.rs` has the maxima of most windows.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::error::Result;
use crate::base::isa::Isa;
use crate::matmul::geometry::{Checked, ConvGeometry};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::windows::pooling::{Pool, each_rows};
use crate::windows::pooling_i8_parts::{Finish, Parts, PartsTask};

/// Maximum number of taps of a window: sums and counts are exact in single precision.
const MAX_TAPS: usize = 1 << 15;

/// Maximum number of taps whose mean is exact as a product with the reciprocal.
const MAX_RECIPROCAL: usize = 1 << 12;

/// Bytes of a short vector.
const SHORT: usize = 16;

/// Maximum number of bytes whose sum fits 16 bits.
const MAX_NARROW: usize = 257;

/// Maximum number of taps whose maximum is computed without a loop: those of a window of 3 × 3.
const FEW: usize = 9;

/// Pools `input` `[batch, height, width, channels]` of bytes into `out`, which has the input's channels and
/// quantization. Means round ties away from zero; results are clamped to `bounds`.
///
/// # Errors
/// Fails if a window is entirely padding or too large, or an operand has the wrong length.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn pool_2d_bytes(
    isa: Isa,
    kind: Pool,
    geo: &Checked,
    signed: bool,
    input: &[u8],
    out: &mut [u8],
    bounds: [i32; 2],
    par: &dyn Parallel,
) -> Result<()> {
    each_rows(geo, MAX_TAPS, input.len(), out, par, |rows, out| {
        if kind == Pool::Max
            && let Limits { flip, unsigned: Some(bounds), .. } = Limits::new(bounds, signed)
            && let Some(parts) = Parts::new(geo, rows.len())
        {
            return dispatch(isa, PartsTask { parts, input, finish: Finish { bounds, flip }, out, rows });
        }
        dispatch(isa, RowsTask { kind, geo, signed, input, out, bounds, rows });
    })
}

struct RowsTask<'a> {
    kind: Pool,
    geo: &'a ConvGeometry,
    signed: bool,
    input: &'a [u8],
    /// Output rows `rows`.
    out: &'a mut [u8],
    bounds: [i32; 2],
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
        let (columns, rows) = (geo.interior(1), geo.interior(0));
        // Windows one pixel apart have their taps at the same distance from each byte of the output.
        let together = if geo.stride[1] == 1 { columns.clone() } else { 0..0 };
        let limits = Limits::new(self.bounds, self.signed);
        let (mut image, mut y) = (self.rows.start / geo.output[0], self.rows.start % geo.output[0]);
        for out in self.out.chunks_exact_mut(geo.output[1] * channels) {
            let y0 = geo.origin(0, y);
            let ky = if rows.contains(&y) { 0..geo.window[0] } else { geo.taps(0, y0) };
            // Ranges of taps are not empty, so the first one is inside of the input.
            let line = image * geo.input[0] + (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
            let mut rest = out;
            let mut x = 0;
            while !rest.is_empty() {
                let pixels = if x == together.start { together.len().max(1) } else { 1 };
                let (out, after) = std::mem::take(&mut rest).split_at_mut(pixels * channels);
                let x0 = geo.origin(1, x);
                let kx = if columns.contains(&x) { 0..geo.window[1] } else { geo.taps(1, x0) };
                let column = (x0 + (kx.start * geo.dilation[1]) as isize) as usize;
                let input = &self.input[(line * geo.input[1] + column) * channels..];
                Windows { input, down, across, taps: [ky.len(), kx.len()], limits }.run(self.kind, out);
                (rest, x) = (after, x + pixels);
            }
            y += 1;
            if y == geo.output[0] {
                (image, y) = (image + 1, 0);
            }
        }
    }
}

/// The conversion of bytes to unsigned values, and the range of results.
#[derive(Clone, Copy)]
struct Limits {
    flip: u8,
    bounds: [i32; 2],
    /// Bounds as unsigned bytes; `None` if one is outside of the range of a byte.
    unsigned: Option<[u8; 2]>,
}

impl Limits {
    fn new(bounds: [i32; 2], signed: bool) -> Self {
        let offset = if signed { 128 } else { 0 };
        let [low, high] = bounds.map(|bound| u8::try_from(bound + offset).ok());
        Limits { flip: if signed { 0x80 } else { 0 }, bounds, unsigned: low.zip(high).map(<[u8; 2]>::from) }
    }
}

/// Windows of neighbouring bytes of an output row, whose taps are at the same distance from each of them.
struct Windows<'a> {
    /// The input, beginning at the first tap of the first window.
    input: &'a [u8],
    /// Elements from one row of taps to the next.
    down: usize,
    /// Elements from tap to tap in a row.
    across: usize,
    taps: [usize; 2],
    limits: Limits,
}

impl Windows<'_> {
    #[inline(always)]
    fn run(&self, kind: Pool, out: &mut [u8]) {
        // Few channels are computed together with the bytes after them, if the input has enough.
        let mut block = [0; SHORT];
        let short = out.len() < SHORT && self.has(SHORT);
        let to = if short { &mut block } else { &mut *out };
        match to.len() {
            64.. => self.pool::<64>(kind, to),
            32.. => self.pool::<32>(kind, to),
            16.. => self.pool::<16>(kind, to),
            4.. => self.pool::<4>(kind, to),
            _ => self.pool::<1>(kind, to),
        }
        if short {
            out.iter_mut().zip(block).for_each(|(to, byte)| *to = byte);
        }
    }

    /// Computes at least `N` bytes, `N` at a time. The last `N` may overlap the bytes before them.
    #[inline(always)]
    fn pool<const N: usize>(&self, kind: Pool, out: &mut [u8]) {
        let mut first = 0;
        let few = if kind == Pool::Max { self.few() } else { [0; FEW] };
        loop {
            first = first.min(out.len() - N);
            let Some(block) = out[first..].first_chunk_mut::<N>() else { return };
            match kind {
                Pool::Max if self.limits.flip != 0 => self.max::<N, true>(first, &few, block),
                Pool::Max => self.max::<N, false>(first, &few, block),
                Pool::Average => self.average(first, block),
            }
            first += N;
            if first >= out.len() {
                return;
            }
        }
    }

    /// Returns whether the input has all taps of `n` bytes of the output.
    #[inline(always)]
    fn has(&self, n: usize) -> bool {
        let last = (self.taps[0] - 1) * self.down + (self.taps[1] - 1) * self.across;
        last + n <= self.input.len()
    }

    /// Returns the offsets of the taps of a window of few taps. Missing taps are the first one.
    #[inline(always)]
    fn few(&self) -> [usize; FEW] {
        let [rows, columns] = self.taps;
        let mut offsets = [0; FEW];
        let mut rest = offsets.iter_mut();
        for ky in 0..rows {
            for kx in 0..columns {
                let Some(offset) = rest.next() else { return offsets };
                *offset = ky * self.down + kx * self.across;
            }
        }
        offsets
    }

    /// The bytes of a tap for the windows from `first` on. Not a copy, which the compiler would keep in memory.
    #[inline(always)]
    fn tap<const N: usize>(&self, first: usize, ky: usize, kx: usize) -> &[u8; N] {
        self.bytes(ky * self.down + kx * self.across + first)
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, at: usize) -> &[u8; N] {
        self.input[at..].first_chunk().unwrap_or(&[0; N])
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn max<const N: usize, const SIGNED: bool>(&self, first: usize, few: &[usize; FEW], out: &mut [u8; N]) {
        let greater = |a: u8, b: u8| match SIGNED {
            true => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
            false => a.max(b),
        };
        let mut most = *self.tap::<N>(first, 0, 0);
        let tap = |ky: usize, kx: usize| self.tap::<N>(first, ky, kx);
        let near = |i: usize| self.bytes::<N>(few[i] + first);
        let rows = match self.taps[0] * self.taps[1] {
            0..=4 => {
                let [a, b, c, d] = [near(0), near(1), near(2), near(3)];
                for i in 0..N {
                    most[i] = greater(greater(a[i], b[i]), greater(c[i], d[i]));
                }
                0
            }
            5..=FEW => {
                let [a, b, c, d] = [near(0), near(1), near(2), near(3)];
                let [e, f, g, h, last] = [near(4), near(5), near(6), near(7), near(8)];
                for i in 0..N {
                    let first = greater(greater(a[i], b[i]), greater(c[i], d[i]));
                    let second = greater(greater(e[i], f[i]), greater(g[i], h[i]));
                    most[i] = greater(greater(first, second), last[i]);
                }
                0
            }
            _ => self.taps[0],
        };
        for ky in 0..rows {
            let mut kx = 0;
            // Several taps at a time, as the maxima are in memory in between.
            while kx < self.taps[1] {
                let left = self.taps[1] - kx;
                let (a, b) = (tap(ky, kx), tap(ky, kx + usize::from(left > 1)));
                if left == 3 {
                    let c = tap(ky, kx + 2);
                    for i in 0..N {
                        most[i] = greater(most[i], greater(greater(a[i], b[i]), c[i]));
                    }
                } else if left > 3 {
                    let (c, d) = (tap(ky, kx + 2), tap(ky, kx + 3));
                    for i in 0..N {
                        most[i] = greater(most[i], greater(greater(a[i], b[i]), greater(c[i], d[i])));
                    }
                } else {
                    for i in 0..N {
                        most[i] = greater(most[i], greater(a[i], b[i]));
                    }
                }
                kx += 4;
            }
        }
        let Limits { flip, bounds, unsigned } = self.limits;
        if let Some([low, high]) = unsigned {
            for i in 0..N {
                out[i] = (most[i] ^ flip).max(low).min(high) ^ flip;
            }
        } else {
            let offset = i32::from(flip);
            for i in 0..N {
                out[i] = (i32::from(most[i] ^ flip) - offset).max(bounds[0]).min(bounds[1]) as u8;
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "arrays of the same length, in vectors")]
    fn average<const N: usize>(&self, first: usize, out: &mut [u8; N]) {
        let (mut sums, mut narrow, mut summed) = ([0i32; N], [0u16; N], 0);
        for ky in 0..self.taps[0] {
            let mut kx = 0;
            while kx < self.taps[1] {
                let count = (self.taps[1] - kx).min(4);
                if summed + count > MAX_NARROW {
                    for i in 0..N {
                        sums[i] += i32::from(std::mem::take(&mut narrow[i]));
                    }
                    summed = 0;
                }
                let tap = |k: usize| self.tap::<N>(first, ky, kx + k);
                let byte = |x: u8| u16::from(x ^ self.limits.flip);
                match count {
                    4 => {
                        let (a, b, c, d) = (tap(0), tap(1), tap(2), tap(3));
                        for i in 0..N {
                            narrow[i] += (byte(a[i]) + byte(b[i])) + (byte(c[i]) + byte(d[i]));
                        }
                    }
                    3 => {
                        let (a, b, c) = (tap(0), tap(1), tap(2));
                        for i in 0..N {
                            narrow[i] += (byte(a[i]) + byte(b[i])) + byte(c[i]);
                        }
                    }
                    2 => {
                        let (a, b) = (tap(0), tap(1));
                        for i in 0..N {
                            narrow[i] += byte(a[i]) + byte(b[i]);
                        }
                    }
                    _ => {
                        let a = tap(0);
                        for i in 0..N {
                            narrow[i] += byte(a[i]);
                        }
                    }
                }
                (kx, summed) = (kx + count, summed + count);
            }
        }
        let (taps, offset) = (self.taps[0] * self.taps[1], i32::from(self.limits.flip));
        let (count, [low, high]) = (taps as i32, self.limits.bounds);
        let real = |i: usize| (sums[i] + i32::from(narrow[i]) - offset * count) as f32;
        // SAFETY: quotients within the range of a byte, as `count` is positive.
        let whole = |x: f32| -> i32 { unsafe { x.to_int_unchecked() } };
        if taps <= MAX_RECIPROCAL {
            // Adding 0.5 more than rounding requires keeps whole quotients above the rounding error of the product, and
            // all others below the next whole number.
            let (half, reciprocal) = ((count / 2) as f32 + 0.5, 1.0 / count as f32);
            for i in 0..N {
                let sum = real(i);
                let mean = whole((sum + if sum > 0.0 { half } else { -half }) * reciprocal);
                out[i] = mean.max(low).min(high) as u8;
            }
        } else {
            let half = (count / 2) as f32;
            for i in 0..N {
                let sum = real(i);
                // Truncation is exact: for numbers below 2^24, a quotient that is not whole differs from the next whole
                // number by more than the rounding error.
                let mean = whole((sum + if sum > 0.0 { half } else { -half }) / count as f32);
                out[i] = mean.max(low).min(high) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;
    use crate::testing::{pairs, random_geometry};
    use crate::windows::pooling_i8_parts::TAPS;
    use crate::{Serial, ThreadPool};

    /// The result by its definition.
    fn expected(
        kind: Pool,
        geo: &ConvGeometry,
        signed: bool,
        input: &[u8],
        [low, high]: [i32; 2],
    ) -> Vec<u8> {
        let mut all = Vec::new();
        let outputs = (0..geo.batch).flat_map(|b| pairs(geo.output[0], geo.output[1]).map(move |p| (b, p)));
        for (b, (y, x)) in outputs {
            for c in 0..geo.in_channels {
                let taps: Vec<i32> = pairs(geo.window[0], geo.window[1])
                    .map(|(ky, kx)| (geo.origin(0, y) + ky as isize, geo.origin(1, x) + kx as isize))
                    .filter(|&(y, x)| {
                        (0..geo.input[0] as isize).contains(&y) && (0..geo.input[1] as isize).contains(&x)
                    })
                    .map(|(y, x)| {
                        let pixel = (b * geo.input[0] + y as usize) * geo.input[1] + x as usize;
                        let byte = input[pixel * geo.in_channels + c];
                        if signed { i32::from(byte as i8) } else { i32::from(byte) }
                    })
                    .collect();
                let (sum, count) = (taps.iter().sum::<i32>(), taps.len() as i32);
                let value = match kind {
                    Pool::Max => taps.into_iter().max().unwrap(),
                    Pool::Average => (sum + if sum > 0 { count / 2 } else { -(count / 2) }) / count,
                };
                all.push(value.max(low).min(high) as u8);
            }
        }
        all
    }

    #[test]
    fn windows_of_bytes() {
        let mut rng = Rng::new(37);
        let threads = ThreadPool::new(2);
        let mut done = 0;
        while done < 200 {
            let most = if done % 10 == 0 { 20 } else { 6 };
            let (channels, window) = (rng.range(1, 90), [rng.range(1, most), rng.range(1, most)]);
            let geo = ConvGeometry { dilation: [1, 1], ..random_geometry(&mut rng, channels, window) };
            if geo.has_empty_window() {
                continue;
            }
            done += 1;
            let (signed, kind) = (rng.range(0, 1) == 0, [Pool::Average, Pool::Max][rng.range(0, 1)]);
            let input: Vec<u8> = (0..geo.input_len().unwrap()).map(|_| rng.next() as u8).collect();
            let bounds = if signed { [-100, 90] } else { [5, 250] };
            let expected = expected(kind, &geo, signed, &input, bounds);
            for &isa in Isa::available() {
                let mut out = vec![0; expected.len()];
                let par: &dyn Parallel = if done % 2 == 0 { &threads } else { &Serial };
                pool_2d_bytes(isa, kind, &geo.checked().unwrap(), signed, &input, &mut out, bounds, par)
                    .unwrap();
                assert_eq!(out, expected, "{} {kind:?} {signed} {geo:?}", isa.name());
            }
        }
    }

    #[test]
    fn maxima_of_rows_in_parts() {
        let mut rng = Rng::new(41);
        let threads = ThreadPool::new(2);
        let mut done = [0; 4];
        for round in 0.. {
            if round >= 100 && done.iter().all(|&n| n >= 10) {
                break;
            }
            // Few channels; and rows of several parts, because of their channels or wide windows.
            let channels = [rng.range(1, 20), rng.range(1, 100), rng.range(500, 1200)][round % 3];
            let most = if round % 5 == 0 { 60 } else { 9 };
            let window = [rng.range(1, 20), rng.range(1, most)];
            let padding = [rng.range(0, window[0] - 1), rng.range(0, window[1] - 1)];
            let (stride, width) = ([rng.range(1, 3), rng.range(1, 4)], [400, 100, 12][round % 3]);
            let input = [rng.range(1, 9), rng.range(1, width)];
            let output = std::array::from_fn(|a| {
                (input[a] + padding[a] + rng.range(0, 3)).saturating_sub(window[a]) / stride[a] + 1
            });
            let batch = rng.range(1, 2);
            let dilation = [1, 1];
            let geo = ConvGeometry {
                batch,
                input,
                in_channels: channels,
                output,
                window,
                stride,
                dilation,
                padding,
            };
            let taps = geo.batch * output[0] * output[1] * window[0] * window[1] * channels;
            let Some(parts) = Parts::new(&geo, batch * output[0]) else { continue };
            if geo.has_empty_window() || taps > 1_000_000 {
                continue;
            }
            done[0] += usize::from(parts.pixels < output[1]);
            done[1] += usize::from(parts.width < channels);
            done[2] += usize::from(window[1] > TAPS && stride[1] > 1);
            done[3] += usize::from(window[1] > TAPS && stride[1] == 1);
            let signed = rng.range(0, 1) == 0;
            // Also small ranges of values from the least one on, which any other value in the padding exceeds.
            let shift = rng.range(0, 7);
            let least = if signed { 0x80 } else { 0 };
            let input: Vec<u8> =
                (0..geo.input_len().unwrap()).map(|_| (rng.next() as u8 >> shift) ^ least).collect();
            let bounds = match (round % 2, signed) {
                (0, true) => [-128, 127],
                (0, false) => [0, 255],
                (_, true) => [-100, 90],
                (_, false) => [5, 250],
            };
            let expected = expected(Pool::Max, &geo, signed, &input, bounds);
            for &isa in Isa::available() {
                let mut out = vec![0; expected.len()];
                let par: &dyn Parallel = if round % 2 == 0 { &threads } else { &Serial };
                pool_2d_bytes(isa, Pool::Max, &geo.checked().unwrap(), signed, &input, &mut out, bounds, par)
                    .unwrap();
                assert!(out == expected, "{} {signed} {geo:?}", isa.name());
            }
        }
    }

    #[test]
    fn means_are_exact_for_every_count() {
        // One channel whose sum takes values around each multiple of the count, with both ways of dividing.
        for (count, step) in [(1usize, 1usize), (2, 1), (3, 1), (257, 7), (258, 5), (4096, 501), (4097, 501)]
        {
            let geo = ConvGeometry {
                batch: 1,
                input: [1, count],
                in_channels: 1,
                output: [1, 1],
                window: [1, count],
                stride: [1, 1],
                dilation: [1, 1],
                padding: [0, 0],
            };
            for total in (0..=255 * count).step_by(step) {
                let input: Vec<u8> =
                    (0..count).map(|i| ((total / count) + usize::from(i < total % count)) as u8).collect();
                let mut out = [0];
                for signed in [false, true] {
                    let bounds = if signed { [-128, 127] } else { [0, 255] };
                    let (kind, checked) = (Pool::Average, geo.checked().unwrap());
                    pool_2d_bytes(Isa::best(), kind, &checked, signed, &input, &mut out, bounds, &Serial)
                        .unwrap();
                    let expected = expected(kind, &geo, signed, &input, bounds);
                    assert_eq!(out[..], expected, "{count} {total} {signed}");
                }
            }
        }
    }
}
