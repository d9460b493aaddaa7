//! Pooling of bytes.

use delegraph_core::kernel::Parallel;

use crate::compute::base::buffer::SharedMut;
use crate::compute::base::error::{ComputeError, Result, check_len, product};
use crate::compute::base::isa::Isa;
use crate::compute::matmul::conv::ConvGeometry;
use crate::compute::simd::{Simd, SimdTask, dispatch};
use crate::compute::threads::share::threads_for;
use crate::compute::windows::pooling::Pool;

/// Channels that are pooled at a time.
const BLOCK: usize = 64;

/// Maximum number of taps of a window: sums and counts are exact in single precision.
const MAX_TAPS: usize = 1 << 15;

/// Pools `input` `[batch, height, width, channels]` of bytes into `out`, which has the input's channels and
/// quantization. Means round ties away from zero; results are clamped to `bounds`.
///
/// # Errors
/// Fails if the geometry is out of range, a window is entirely padding or too large, or an operand has the wrong
/// length.
#[allow(clippy::too_many_arguments, reason = "one argument per operand")]
pub fn pool_2d_bytes(
    isa: Isa,
    kind: Pool,
    geo: &ConvGeometry,
    signed: bool,
    input: &[u8],
    out: &mut [u8],
    bounds: [i32; 2],
    par: &dyn Parallel,
) -> Result<()> {
    geo.check()?;
    check_len("input", input.len(), geo.input_len()?)?;
    let row = product("output", &[geo.output[1], geo.in_channels])?;
    check_len("output", out.len(), product("output", &[geo.batch, geo.output[0], row])?)?;
    if geo.has_empty_window() || product("window", &geo.window)? > MAX_TAPS {
        return Err(ComputeError::Range { what: "window" });
    }
    if out.is_empty() {
        return Ok(());
    }
    let par = threads_for(par, out.len().saturating_mul(geo.window[0] * geo.window[1]));
    let shared = SharedMut::new(out);
    par.run(geo.batch * geo.output[0], &|task| {
        // SAFETY: each task has another row, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(task * row, row) };
        dispatch(isa, RowTask { kind, geo, signed, input, out, bounds, row: task });
    });
    Ok(())
}

struct RowTask<'a> {
    kind: Pool,
    geo: &'a ConvGeometry,
    signed: bool,
    input: &'a [u8],
    out: &'a mut [u8],
    bounds: [i32; 2],
    /// Index of the output row, through all images.
    row: usize,
}

impl SimdTask for RowTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let geo = self.geo;
        let channels = geo.in_channels;
        let (image, y) = (self.row / geo.output[0], self.row % geo.output[0]);
        let y0 = geo.origin(0, y);
        let ky = geo.taps(0, y0);
        let down = geo.dilation[0] * geo.input[1] * channels;
        let across = geo.dilation[1] * channels;
        let flip = if self.signed { 0x80 } else { 0 };
        for (x, out) in self.out.chunks_exact_mut(channels).enumerate() {
            let x0 = geo.origin(1, x);
            let kx = geo.taps(1, x0);
            // Both ranges have a tap, so the first one is inside the input.
            let row = (y0 + (ky.start * geo.dilation[0]) as isize) as usize;
            let column = (x0 + (kx.start * geo.dilation[1]) as isize) as usize;
            let at = ((image * geo.input[0] + row) * geo.input[1] + column) * channels;
            let taps = [ky.len(), kx.len()];
            let window = Window { input: &self.input[at..], down, across, taps, flip };
            let mut blocks = out.chunks_exact_mut(BLOCK);
            let mut first = 0;
            for out in &mut blocks {
                window.block(self.kind, first, out, BLOCK, self.bounds);
                first += BLOCK;
            }
            let rest = blocks.into_remainder();
            let n = rest.len();
            if n > 0 {
                window.block(self.kind, first, rest, n, self.bounds);
            }
        }
    }
}

struct Window<'a> {
    /// The input, beginning at the first tap.
    input: &'a [u8],
    /// Elements from tap to tap.
    down: usize,
    across: usize,
    taps: [usize; 2],
    /// Converts the bytes to unsigned values.
    flip: u8,
}

impl Window<'_> {
    #[inline(always)]
    fn block(&self, kind: Pool, first: usize, out: &mut [u8], n: usize, [low, high]: [i32; 2]) {
        let offset = if self.flip == 0 { 0 } else { 128 };
        match kind {
            Pool::Max => {
                let mut most = [0u8; BLOCK];
                for ky in 0..self.taps[0] {
                    for kx in 0..self.taps[1] {
                        let tap = &self.input[ky * self.down + kx * self.across + first..][..n];
                        for (most, &x) in most[..n].iter_mut().zip(tap) {
                            *most = (x ^ self.flip).max(*most);
                        }
                    }
                }
                for (o, &x) in out.iter_mut().zip(&most) {
                    *o = (i32::from(x) - offset).max(low).min(high) as u8;
                }
            }
            Pool::Average => {
                let mut sums = [0i32; BLOCK];
                for ky in 0..self.taps[0] {
                    for kx in 0..self.taps[1] {
                        let tap = &self.input[ky * self.down + kx * self.across + first..][..n];
                        for (sum, &x) in sums[..n].iter_mut().zip(tap) {
                            *sum += i32::from(x ^ self.flip);
                        }
                    }
                }
                let count = (self.taps[0] * self.taps[1]) as i32;
                for (o, &sum) in out.iter_mut().zip(&sums) {
                    let sum = sum - offset * count;
                    let rounded = sum + if sum > 0 { count / 2 } else { -(count / 2) };
                    // SAFETY: a quotient within the range of a byte, as `count` is positive. Truncation is exact: for
                    // numbers below 2^24, a quotient that is not whole differs from the next whole number by more than
                    // the rounding error.
                    let mean: i32 = unsafe { (rounded as f32 / count as f32).to_int_unchecked() };
                    *o = mean.max(low).min(high) as u8;
                }
            }
        }
    }
}
