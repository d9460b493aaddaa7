//! DEPTHWISE_CONV_2D of 16-bit activations with 8-bit weights.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::base::requant_i16::Scale;
use crate::matmul::geometry::ConvGeometry;
use crate::matmul::int16::{WideSums, magnitude};
use crate::simd::int16::{self, Words};
use crate::simd::{Simd, SimdTask, dispatch};
use crate::threads::share::{chunk_len, threads_for};

/// Maximum number of taps of a depthwise window whose sum fits 32 bits.
const MAX_TAPS: usize = 1 << 8;

/// DEPTHWISE_CONV_2D of 16-bit activations with 8-bit weights.
pub struct DepthwiseI16 {
    isa: Isa,
    channels: usize,
    window: [usize; 2],
    /// `[height, width, pitch]`: a tap's weights for all channels, which are repeated up to the length of `pitch`.
    weights: AlignedVec<i16>,
    pitch: usize,
    pub(crate) to: WideSums,
}

/// Minimum cost of a pixel, in elements of a cheap function.
const PIXEL_COST: usize = 32;

/// Maximum number of vectors of sums that are accumulated at a time.
const VECTORS: usize = 4;

/// Maximum number of elements whose sums are accumulated at a time. With fewer channels, they belong to several pixels.
const MAX_BLOCK: usize = VECTORS * 16;

/// Elements of an input row that are copied at a time, with padding. At least a block.
const COPIED: usize = 512;

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
        // A block begins at any of few channels.
        let pitch = if channels < MAX_BLOCK { channels + MAX_BLOCK } else { channels };
        let mut magnitudes = vec![0; channels];
        let mut wide = AlignedVec::<i16>::zeroed(product("weights", &[taps, pitch])?)?;
        let rows = wide.as_mut_slice().chunks_exact_mut(pitch);
        for (to, tap) in rows.zip(weights.chunks_exact(channels.max(1))) {
            to.iter_mut().zip(tap.iter().cycle()).for_each(|(to, w)| *to = w.cast_signed().into());
            magnitudes.iter_mut().zip(tap).for_each(|(sum, w)| *sum += magnitude(*w));
        }
        let to = WideSums::new(vec![0; channels], bias, scale, bounds, (&magnitudes, pitch))?;
        Ok(Self { isa, channels, window, weights: wide, pitch, to })
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
            let rows = task * piece..((task + 1) * piece).min(rows);
            // SAFETY: rows of tasks are disjoint, and `Parallel::run` calls each task at most once.
            let out = unsafe { shared.slice(rows.start * row, rows.len() * row) };
            dispatch(self.isa, DepthwiseRows { layer: self, geo, input, first: rows.start, out });
        });
        Ok(())
    }
}

/// Output rows from row `first` on.
struct DepthwiseRows<'a> {
    layer: &'a DepthwiseI16,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    first: usize,
    out: &'a mut [i16],
}

impl SimdTask for DepthwiseRows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: of the sets for x86, those of 16 lanes have AVX-512 F and BW, and those of 8 lanes AVX2. All
        // processors of a target have the other instructions.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            match S::LANES {
                16 => self.rows::<int16::Avx512>(),
                8 => self.rows::<int16::Avx2>(),
                _ => self.rows::<int16::Sse2>(),
            }
            #[cfg(not(target_arch = "x86_64"))]
            self.rows::<int16::Baseline>();
        }
    }
}

impl DepthwiseRows<'_> {
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn rows<W: Words>(self) {
        let DepthwiseRows { layer, geo, input, first, out } = self;
        let (channels, stride) = (layer.channels, geo.stride[1]);
        let mut copy = [0; COPIED];
        for (row, out) in (first..).zip(out.chunks_exact_mut(geo.output[1] * channels)) {
            let y0 = geo.origin(0, row % geo.output[0]);
            let row = Row { layer, geo, input, image: row / geo.output[0], y0, ky: geo.taps(0, y0) };
            // SAFETY: the caller meets the contract of these functions.
            unsafe {
                if channels >= MAX_BLOCK || (channels >= W::LANES && stride > 1) {
                    row.by_pixels::<W>(out);
                } else if stride == 1 {
                    row.by_elements::<W>(out, &mut copy);
                } else {
                    row.with_gaps::<W>(out, &mut copy);
                }
            }
        }
    }
}

/// An output row.
///
/// # Safety
/// Unsafe methods require that the processor has the instructions of `W`.
struct Row<'a> {
    layer: &'a DepthwiseI16,
    geo: &'a ConvGeometry,
    input: &'a [i16],
    image: usize,
    /// First row of the windows.
    y0: isize,
    /// Rows of the windows that are inside of the input.
    ky: Range<usize>,
}

/// Calls a method for as many vectors as `n` elements need.
macro_rules! sized {
    ($self:ident, $n:expr, $method:ident($($arg:expr),*)) => {
        // SAFETY: the caller has the instructions of `W`.
        unsafe {
            match $n {
                n if n <= W::LANES => $self.$method::<W, 1>($($arg),*),
                n if n <= 2 * W::LANES => $self.$method::<W, 2>($($arg),*),
                _ => $self.$method::<W, VECTORS>($($arg),*),
            }
        }
    };
}

impl Row<'_> {
    /// For windows one pixel apart: each tap multiplies neighbouring elements of an input row for neighbouring elements
    /// of the output row.
    #[inline(always)]
    unsafe fn by_elements<W: Words>(&self, out: &mut [i16], copy: &mut [i16; COPIED]) {
        let channels = self.layer.channels;
        let first = (self.geo.origin(1, 0) as i64).saturating_mul(channels as i64);
        let mut at = 0;
        while at < out.len() {
            let n = (out.len() - at).min(VECTORS * W::LANES);
            let mut block = [0; MAX_BLOCK];
            let place = (first + at as i64, n, at % channels);
            sized!(self, n, block(place, &mut block, copy));
            out[at..at + n].copy_from_slice(&block[..n]);
            at += n;
        }
    }

    /// As [`Row::by_elements`], for windows that are further apart: the elements between them are dropped.
    #[inline(always)]
    unsafe fn with_gaps<W: Words>(&self, out: &mut [i16], copy: &mut [i16; COPIED]) {
        let channels = self.layer.channels;
        let step = self.geo.stride[1].saturating_mul(channels);
        let pixels = 1 + (VECTORS * W::LANES - channels) / step;
        for (i, out) in out.chunks_mut(pixels * channels).enumerate() {
            let n = (out.len() / channels - 1) * step + channels;
            let mut block = [0; MAX_BLOCK];
            let first = (self.geo.origin(1, i * pixels) as i64).saturating_mul(channels as i64);
            sized!(self, n, block((first, n, 0), &mut block, copy));
            for (to, from) in out.chunks_exact_mut(channels).zip(block.chunks(step)) {
                // Takes less time than a call of `memcpy`.
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Computes `n` elements, at most `N` vectors: the first one is of channel `phase`, and its first tap reads element
    /// `first` of the input row.
    #[inline(always)]
    unsafe fn block<W: Words, const N: usize>(
        &self,
        (first, n, phase): (i64, usize, usize),
        out: &mut [i16; MAX_BLOCK],
        copy: &mut [i16; COPIED],
    ) {
        let (layer, geo) = (self.layer, self.geo);
        let (len, width) = (N * W::LANES, geo.window[1]);
        let line = geo.input[1].saturating_mul(layer.channels);
        // At most 2^30 times fewer than 64 channels, times at most 256 taps.
        let step = geo.dilation[1] as i64 * layer.channels as i64;
        // Taps that read an element of the row: the others read only padding.
        let from = ((-(n as i64)).saturating_sub(first).div_euclid(step) + 1).clamp(0, width as i64);
        let to = ((line as i64).saturating_sub(first).saturating_add(step - 1).div_euclid(step))
            .clamp(from, width as i64);
        let (count, start_at, taps) =
            ((to - from) as usize, first.saturating_add(from * step), from as usize);
        // SAFETY: the caller meets the contract of these functions.
        let mut sums = unsafe { layer.start::<W, N>(phase) };
        if count > 0 {
            // Neighbouring taps are less than a row apart, and a single one needs no step.
            let reach = (count as i64 - 1) * step;
            let step = if count > 1 { step as usize } else { 0 };
            let inside = start_at >= 0 && start_at + reach + n as i64 <= line as i64;
            let is_short = reach <= (COPIED - len) as i64;
            let reach = reach as usize;
            for ky in self.ky.clone() {
                let weights = &layer.weights.as_slice()[(ky * width + taps) * layer.pitch + phase..];
                let start = self.row_start(ky);
                // Elements after the last one, which are not stored, may be those of the next row.
                let direct = match inside {
                    true => self.input[start + start_at as usize..].get(..reach + len),
                    false => None,
                };
                if let Some(x) = direct {
                    for kx in 0..count {
                        // SAFETY: the caller meets the contract of this function.
                        sums = unsafe { add::<W, N>(sums, &x[kx * step..], &weights[kx * layer.pitch..]) };
                    }
                    continue;
                }
                let row = &self.input[start..start + line];
                if is_short {
                    copy_padded(row, start_at as isize, &mut copy[..reach + len]);
                    for kx in 0..count {
                        // SAFETY: the caller meets the contract of this function.
                        sums = unsafe { add::<W, N>(sums, &copy[kx * step..], &weights[kx * layer.pitch..]) };
                    }
                    continue;
                }
                for kx in 0..count {
                    let at = start_at as isize + (kx * step) as isize;
                    let weights = &weights[kx * layer.pitch..];
                    let x = if at >= 0 && at as usize + n <= line {
                        self.input[start + at as usize..].get(..len)
                    } else {
                        None
                    };
                    let x = match x {
                        Some(x) => x,
                        None => {
                            copy_padded(row, at, &mut copy[..len]);
                            &copy[..len]
                        }
                    };
                    // SAFETY: the caller meets the contract of this function.
                    sums = unsafe { add::<W, N>(sums, x, weights) };
                }
            }
        }
        // SAFETY: the caller meets the contract of this function.
        unsafe { layer.finish::<W, N>(sums, phase, &mut out[..len]) };
    }

    /// For at least as many channels as lanes: blocks of the channels of a pixel.
    #[inline(always)]
    unsafe fn by_pixels<W: Words>(&self, out: &mut [i16]) {
        let channels = self.layer.channels;
        let longest = match channels / W::LANES {
            1 => W::LANES,
            2 | 3 => 2 * W::LANES,
            _ => VECTORS * W::LANES,
        };
        for (x, out) in out.chunks_exact_mut(channels).enumerate() {
            let x0 = self.geo.origin(1, x);
            let kx = self.geo.taps(1, x0);
            let mut at = 0;
            while at < channels {
                let n = (channels - at).min(longest);
                sized!(self, n, channels(x0, kx.clone(), at, out));
                at += n;
            }
        }
    }

    /// Computes `N` vectors of channels of a pixel, from channel `at` or an earlier one on.
    #[inline(always)]
    unsafe fn channels<W: Words, const N: usize>(
        &self,
        x0: isize,
        kx: Range<usize>,
        at: usize,
        out: &mut [i16],
    ) {
        let (layer, geo) = (self.layer, self.geo);
        // Some channels are computed twice, which takes no longer than a part of a vector.
        let first = at.min(layer.channels - N * W::LANES);
        // SAFETY: the caller meets the contract of this function.
        let mut sums = unsafe { layer.start::<W, N>(first) };
        for ky in self.ky.clone() {
            let start = self.row_start(ky);
            for kx in kx.clone() {
                let pixel = (x0 + (kx * geo.dilation[1]) as isize) as usize;
                let x = &self.input[start + pixel * layer.channels + first..];
                let weights = &layer.weights.as_slice()[(ky * geo.window[1] + kx) * layer.pitch + first..];
                // SAFETY: the caller meets the contract of this function.
                sums = unsafe { add::<W, N>(sums, x, weights) };
            }
        }
        // SAFETY: the caller meets the contract of this function.
        unsafe { layer.finish::<W, N>(sums, first, &mut out[first..first + N * W::LANES]) };
    }

    /// Returns the position of the input row of a row of the windows.
    #[inline(always)]
    fn row_start(&self, ky: usize) -> usize {
        let y = (self.y0 + (ky * self.geo.dilation[0]) as isize) as usize;
        (self.image * self.geo.input[0] + y) * self.geo.input[1] * self.layer.channels
    }
}

impl DepthwiseI16 {
    /// Returns sums without products, for elements of which the first one is of channel `phase`.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn start<W: Words, const N: usize>(&self, phase: usize) -> [W::V; N] {
        // SAFETY: the instructions exist by the caller's contract, and the list has elements for all vectors.
        unsafe {
            let mut sums = [W::splat(0); N];
            if let Some(short) = &self.to.short {
                let base = &short.base[phase..phase + N * W::LANES];
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = W::load(base.as_ptr().add(i * W::LANES));
                }
            }
            sums
        }
    }

    /// Scales sums of elements, of which the first one is of channel `phase`. `out` has an element for each.
    ///
    /// # Safety
    /// The processor must have the instructions of `W`.
    #[inline(always)]
    unsafe fn finish<W: Words, const N: usize>(&self, sums: [W::V; N], phase: usize, out: &mut [i16]) {
        let out = &mut out[..N * W::LANES];
        if let Some(short) = &self.to.short {
            let factors = &short.factors[phase..phase + N * W::LANES];
            for (i, sum) in sums.into_iter().enumerate() {
                let at = i * W::LANES;
                // SAFETY: the instructions exist by the caller's contract, and both slices have elements for all
                // vectors.
                unsafe { W::scale(sum, short, factors.as_ptr().add(at), out.as_mut_ptr().add(at)) };
            }
            return;
        }
        let mut list = [0; MAX_BLOCK];
        for (list, sum) in list.chunks_exact_mut(W::LANES).zip(sums) {
            // SAFETY: the instructions exist by the caller's contract, and the part has an element per lane.
            unsafe { W::store(list.as_mut_ptr(), sum) };
        }
        let (mut phase, mut at) = (phase, 0);
        while at < out.len() {
            let n = (self.channels - phase).min(out.len() - at);
            self.to.finish(phase, list[at..].iter().map(|s| i64::from(*s)), &mut out[at..at + n]);
            (phase, at) = (0, at + n);
        }
    }
}

/// Adds products to sums.
///
/// # Safety
/// The processor must have the instructions of `W`.
#[inline(always)]
unsafe fn add<W: Words, const N: usize>(mut sums: [W::V; N], x: &[i16], weights: &[i16]) -> [W::V; N] {
    let (x, weights) = (&x[..N * W::LANES], &weights[..N * W::LANES]);
    for (i, sum) in sums.iter_mut().enumerate() {
        let at = i * W::LANES;
        // SAFETY: the instructions exist by the caller's contract, and both slices have elements for all vectors.
        *sum = unsafe { W::add(*sum, x.as_ptr().add(at), weights.as_ptr().add(at)) };
    }
    sums
}

/// Copies the elements of a row from position `at` on; outside of the row they are 0.
#[inline(always)]
fn copy_padded(row: &[i16], at: isize, to: &mut [i16]) {
    let before = if at < 0 { at.unsigned_abs().min(to.len()) } else { 0 };
    let (blank, to) = to.split_at_mut(before);
    blank.fill(0);
    let row = &row[at.max(0).cast_unsigned().min(row.len())..];
    let (inner, blank) = to.split_at_mut(to.len().min(row.len()));
    inner.copy_from_slice(&row[..inner.len()]);
    blank.fill(0);
}
