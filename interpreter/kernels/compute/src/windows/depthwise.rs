//! DEPTHWISE_CONV_2D in single precision.

use std::ops::Range;

use delegraph_core::kernel::Parallel;

use crate::base::buffer::{AlignedVec, SharedMut};
use crate::base::clamp::Clamp;
use crate::base::error::{ComputeError, Result, check_len, product};
use crate::base::isa::Isa;
use crate::matmul::geometry::{Checked, ConvGeometry};
use crate::simd::{Simd, SimdTask, dispatch, lanes};
use crate::threads::share::{min_tasks, threads_for};

/// DEPTHWISE_CONV_2D with a packed filter and fused bias and clamp. Each input channel is read by the same number of
/// neighbouring output channels: by one, or by all of a vector ([`DepthwiseF32::reads_repeatedly`]).
pub struct DepthwiseF32 {
    isa: Isa,
    channels: usize,
    /// Output channels per input channel.
    multiplier: usize,
    window: [usize; 2],
    lanes: usize,
    /// For each vector of channels: its bias, then its weights, tap by tap. Missing channels are zero.
    packed: AlignedVec<f32>,
}

impl DepthwiseF32 {
    /// Whether the output channels of each vector read one input channel, for these numbers of input and output channels.
    pub fn reads_repeatedly(isa: Isa, [inputs, channels]: [usize; 2]) -> bool {
        let multiplier = channels.checked_div(inputs).unwrap_or(0);
        multiplier > 1 && inputs * multiplier == channels && (inputs == 1 || multiplier % lanes(isa) == 0)
    }

    /// Packs a filter `[1, height, width, channels]`; `bias` is `[channels]`. Input channels are as many as output channels,
    /// or fewer if [`DepthwiseF32::reads_repeatedly`] permits it.
    ///
    /// # Errors
    /// Fails if lengths do not match, the numbers of channels are not supported, or memory cannot be allocated.
    pub fn pack(
        isa: Isa,
        [inputs, channels]: [usize; 2],
        window: [usize; 2],
        weights: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        let taps = product("window", &window)?;
        check_len("weights", weights.len(), product("weights", &[taps, channels])?)?;
        let repeatedly = Self::reads_repeatedly(isa, [inputs, channels]);
        if inputs != channels && !repeatedly {
            return Err(ComputeError::Range { what: "input channels" });
        }
        let multiplier = if repeatedly { channels / inputs } else { 1 };
        if let Some(bias) = bias {
            check_len("bias", bias.len(), channels)?;
        }
        let lanes = lanes(isa);
        let per_vector = taps.checked_add(1).ok_or(ComputeError::TooLarge { what: "weights" })?;
        let mut packed =
            AlignedVec::zeroed(product("weights", &[channels.div_ceil(lanes), per_vector, lanes])?)?;
        for (v, vector) in packed.as_mut_slice().chunks_exact_mut(per_vector * lanes).enumerate() {
            let range = v * lanes..((v + 1) * lanes).min(channels);
            let (first, rest) = vector.split_at_mut(lanes);
            if let Some(bias) = bias {
                first[..range.len()].copy_from_slice(&bias[range.clone()]);
            }
            for (to, from) in rest.chunks_exact_mut(lanes).zip(weights.chunks_exact(channels.max(1))) {
                to[..range.len()].copy_from_slice(&from[range.clone()]);
            }
        }
        Ok(Self { isa, channels, multiplier, window, lanes, packed })
    }

    /// Convolves `input` `[batch, height, width, input channels]` into `out` `[batch, height, width, channels]`. Needs no
    /// scratch.
    ///
    /// # Errors
    /// Fails if the geometry is out of range or does not match the filter, or an operand has the wrong length.
    pub fn run(
        &self,
        geo: &ConvGeometry,
        input: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        self.run_checked(&geo.checked()?, input, out, clamp, par)
    }

    /// As [`DepthwiseF32::run`], for a geometry that is checked.
    ///
    /// # Errors
    /// As [`DepthwiseF32::run`].
    pub fn run_checked(
        &self,
        geo: &Checked,
        input: &[f32],
        out: &mut [f32],
        clamp: Clamp,
        par: &dyn Parallel,
    ) -> Result<()> {
        if geo.window != self.window {
            return Err(ComputeError::Range { what: "window" });
        }
        if geo.in_channels.checked_mul(self.multiplier) != Some(self.channels) {
            return Err(ComputeError::Range { what: "input channels" });
        }
        let channels = self.channels;
        let pixels = geo.pixels;
        check_len("input", input.len(), geo.input_len)?;
        check_len("output", out.len(), product("output", &[pixels, channels])?)?;
        if pixels == 0 || channels == 0 {
            return Ok(());
        }
        let par = threads_for(par, out.len().saturating_mul(self.window[0] * self.window[1]) / 2);
        let vectors = channels.div_ceil(self.lanes);
        let rows = geo.batch * geo.output[0];
        // With few rows, the threads also divide the channels.
        let parts = if par.threads() > 1 { (4 * par.threads()).div_ceil(rows).min(vectors) } else { 1 };
        let work = out.len().saturating_mul(self.window[0] * self.window[1]);
        let least = if par.threads() > 1 { 8 * par.threads() } else { 1 };
        let per_task = rows.div_ceil(min_tasks(work).max(least));
        let step = vectors.div_ceil(parts);
        let shared = SharedMut::new(out);
        par.run(rows.div_ceil(per_task) * parts, &|task| {
            let (block, part) = (task / parts, task % parts);
            let work = RowsTask {
                layer: self,
                geo,
                input,
                out: shared,
                clamp,
                rows: block * per_task..((block + 1) * per_task).min(rows),
                vectors: (part * step).min(vectors)..((part + 1) * step).min(vectors),
            };
            dispatch(self.isa, work);
        });
        Ok(())
    }
}

/// A range of output rows, for a range of vectors of channels.
struct RowsTask<'a> {
    layer: &'a DepthwiseF32,
    geo: &'a ConvGeometry,
    input: &'a [f32],
    out: SharedMut<'a, f32>,
    clamp: Clamp,
    rows: Range<usize>,
    vectors: Range<usize>,
}

/// Neighbouring output pixels of a row or a column whose windows have the same taps inside the input, for one vector of
/// channels.
#[derive(Clone, Copy)]
struct Span {
    /// First tap of the first pixel.
    input: *const f32,
    /// Input elements from one row of taps to the next.
    down: usize,
    /// Input elements from tap to tap in a row.
    across: usize,
    /// Input elements from pixel to pixel.
    next: usize,
    /// Taps inside the input.
    taps: [usize; 2],
    bias: *const f32,
    /// Weights of the first tap.
    weights: *const f32,
    /// Elements from one row of weights to the next.
    weights_down: usize,
    out: *mut f32,
    /// Output elements from pixel to pixel.
    out_next: usize,
    pixels: usize,
    /// Number of existing channels of the vector.
    channels: usize,
    clamp: Clamp,
}

/// Maximum number of pixels of a row of outputs whose neighbours above and below are computed together instead.
const SHORT_ROW: usize = 3;

/// Where the pixels of a span are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    Row,
    Column,
}

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the instructions exist by the caller's contract.
        unsafe {
            if self.geo.output[1] <= SHORT_ROW && self.rows.len() > SHORT_ROW {
                return self.columns::<S>();
            }
            for row in self.rows.clone() {
                self.row::<S>(row);
            }
        }
    }
}

impl RowsTask<'_> {
    /// The span of `pixels` pixels that begins at column `x` of a row of outputs, counted through all images.
    #[inline(always)]
    fn span<S: Simd>(&self, v: usize, row: usize, x: usize, pixels: usize, along: Along) -> Span {
        let (layer, geo) = (self.layer, self.geo);
        let (channels, inputs) = (layer.channels, geo.in_channels);
        let [kh, kw] = layer.window;
        let [out_h, out_w] = geo.output;
        let per_vector = (kh * kw + 1) * S::LANES;
        let (image, y0, x0) = (row / out_h, geo.origin(0, row % out_h), geo.origin(1, x));
        let (ky, kx) = (geo.taps(0, y0), geo.taps(1, x0));
        let first = v * S::LANES;
        let packed = &layer.packed.as_slice()[v * per_vector..(v + 1) * per_vector];
        // A window without taps inside the input reads nothing.
        let empty = ky.is_empty() || kx.is_empty();
        let (iy, ix) = if empty {
            (0, 0)
        } else {
            (y0 + (ky.start * geo.dilation[0]) as isize, x0 + (kx.start * geo.dilation[1]) as isize)
        };
        let pixel = (image * geo.input[0] + iy as usize) * geo.input[1] + ix as usize;
        let at = pixel * inputs + first / layer.multiplier;
        let tap = (ky.start * kw + kx.start + 1) * S::LANES;
        let (next, out_next) = match along {
            Along::Row => (geo.stride[1], 1),
            Along::Column => (geo.stride[0] * geo.input[1], out_w),
        };
        Span {
            input: self.input.as_ptr().wrapping_add(at),
            down: geo.dilation[0] * geo.input[1] * inputs,
            across: geo.dilation[1] * inputs,
            next: next * inputs,
            taps: if empty { [0, 0] } else { [ky.len(), kx.len()] },
            bias: packed.as_ptr(),
            weights: packed.as_ptr().wrapping_add(tap),
            weights_down: kw * S::LANES,
            out: self.out.ptr((row * out_w + x) * channels + first),
            out_next: out_next * channels,
            pixels,
            channels: (channels - first).min(S::LANES),
            clamp: self.clamp,
        }
    }

    /// Computes a row of outputs.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`, and no other thread may access the row.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, row: usize) {
        let (layer, geo) = (self.layer, self.geo);
        let channels = layer.channels;
        let per_vector = (layer.window[0] * layer.window[1] + 1) * S::LANES;
        let interior = geo.interior(1);
        // SAFETY: each span's taps are inside the input (`ConvGeometry::taps`, `interior`), whose length `run` checked, and
        // so are the packed taps. Output pixels of tasks are disjoint. The instructions exist by the caller's contract.
        unsafe {
            for edge in [0..interior.start, interior.end..geo.output[1]] {
                let mut x = edge.start;
                while x < edge.end {
                    let taps = geo.taps(1, geo.origin(1, x));
                    let same = |&x: &usize| geo.taps(1, geo.origin(1, x)) == taps;
                    let pixels = x..x + (x..edge.end).take_while(same).count();
                    x = pixels.end;
                    let mut vectors = self.vectors.clone();
                    // Each addition to a sum waits for the previous one. For few pixels, sums of other channels are
                    // computed in between.
                    if pixels.len() < 4 && layer.multiplier == 1 {
                        while vectors.len() >= 4 && (vectors.start + 4) * S::LANES <= channels {
                            for x in pixels.clone() {
                                pixel::<S, 4>(
                                    &self.span::<S>(vectors.start, row, x, 1, Along::Row),
                                    per_vector,
                                );
                            }
                            vectors.start += 4;
                        }
                        if vectors.len() >= 2 && (vectors.start + 2) * S::LANES <= channels {
                            for x in pixels.clone() {
                                pixel::<S, 2>(
                                    &self.span::<S>(vectors.start, row, x, 1, Along::Row),
                                    per_vector,
                                );
                            }
                            vectors.start += 2;
                        }
                    }
                    for v in vectors {
                        let s = self.span::<S>(v, row, pixels.start, pixels.len(), Along::Row);
                        any_span::<S, 0, 0>(layer, s);
                    }
                }
            }
            if interior.is_empty() {
                return;
            }
            for v in self.vectors.clone() {
                let s = self.span::<S>(v, row, interior.start, interior.len(), Along::Row);
                match (geo.window[1], geo.stride[1], geo.dilation[1]) {
                    (3, 1, 1) => any_span::<S, 3, 1>(layer, s),
                    (3, 2, 1) => any_span::<S, 3, 2>(layer, s),
                    (3, ..) => any_span::<S, 3, 0>(layer, s),
                    (5, 1, 1) => any_span::<S, 5, 1>(layer, s),
                    (5, 2, 1) => any_span::<S, 5, 2>(layer, s),
                    _ => any_span::<S, 0, 0>(layer, s),
                }
            }
        }
    }

    /// Computes all rows column by column.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`, and no other thread may access the rows.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self) {
        let (layer, geo) = (self.layer, self.geo);
        let (interior, columns) = (geo.interior(0), geo.interior(1));
        let mut row = self.rows.start;
        while row < self.rows.end {
            let y = row % geo.output[0];
            let same = if interior.contains(&y) { interior.end - y } else { 1 };
            let count = same.min(self.rows.end - row);
            for x in 0..geo.output[1] {
                for v in self.vectors.clone() {
                    let s = self.span::<S>(v, row, x, count, Along::Column);
                    // SAFETY: as in `row`; the windows of these rows have the same taps inside the input.
                    unsafe {
                        match geo.window[1] {
                            3 if columns.contains(&x) => any_span::<S, 3, 0>(layer, s),
                            _ => any_span::<S, 0, 0>(layer, s),
                        }
                    }
                }
            }
            row += count;
        }
    }
}

/// Computes a pixel for `V` complete vectors of channels. `s` is the span of the first one, `per_vector` the number of
/// packed elements of each.
///
/// # Safety
/// The processor must have the instructions of `S`. Taps of the span must be inside the input, and its pixels inside
/// the output, for all vectors.
#[inline(always)]
unsafe fn pixel<S: Simd, const V: usize>(s: &Span, per_vector: usize) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::splat(0.0); V];
        for (v, acc) in acc.iter_mut().enumerate() {
            *acc = S::load(s.bias.wrapping_add(v * per_vector));
        }
        for ky in 0..s.taps[0] {
            let input = s.input.wrapping_add(ky * s.down);
            let weights = s.weights.wrapping_add(ky * s.weights_down);
            for kx in 0..s.taps[1] {
                let (input, weights) =
                    (input.wrapping_add(kx * s.across), weights.wrapping_add(kx * S::LANES));
                for (v, acc) in acc.iter_mut().enumerate() {
                    let w = S::load(weights.wrapping_add(v * per_vector));
                    *acc = S::fma(S::load(input.wrapping_add(v * S::LANES)), w, *acc);
                }
            }
        }
        let (low, high) = (S::splat(s.clamp.low), S::splat(s.clamp.high));
        for (v, acc) in acc.iter().enumerate() {
            S::store(s.out.wrapping_add(v * S::LANES), S::clamp(*acc, low, high));
        }
    }
}

/// Computes a span, whose inputs are read as the layer requires.
///
/// # Safety
/// The processor must have the instructions of `S`. Taps of the span must be inside the input, and its pixels inside
/// the output.
#[inline(always)]
unsafe fn any_span<S: Simd, const KW: usize, const STRIDE: usize>(layer: &DepthwiseF32, s: Span) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        if layer.multiplier > 1 {
            span::<S, KW, STRIDE, REPEATED>(s);
        } else if s.channels == S::LANES {
            span::<S, KW, STRIDE, FULL>(s);
        } else {
            span::<S, KW, STRIDE, PARTIAL>(s);
        }
    }
}

/// Reading of the inputs of a vector: channels of which some are missing.
const PARTIAL: u8 = 0;
/// Reading of the inputs of a vector: all channels.
const FULL: u8 = 1;
/// Reading of the inputs of a vector: one channel for all lanes.
const REPEATED: u8 = 2;

/// Computes a span of `KW` taps across, or of any number if `KW` is 0. Pixels are `STRIDE` times as far apart as taps,
/// or at any distance if `STRIDE` is 0.
///
/// # Safety
/// As for [`any_span`].
#[inline(always)]
unsafe fn span<S: Simd, const KW: usize, const STRIDE: usize, const READ: u8>(mut s: Span) {
    // SAFETY: the caller's contract; each step stays within the span.
    unsafe {
        macro_rules! step {
            ($n:literal) => {
                while s.pixels >= $n {
                    pixels::<S, KW, STRIDE, READ, $n>(&s);
                    s.input = s.input.wrapping_add($n * s.next);
                    s.out = s.out.wrapping_add($n * s.out_next);
                    s.pixels -= $n;
                }
            };
        }
        // Sixteen registers hold four pixels and their inputs, thirty-two hold eight. With a loop of taps, inputs are not held.
        if S::REGISTERS == 32 || KW == 0 {
            step!(8);
        }
        step!(4);
        step!(2);
        step!(1);
    }
}

/// Computes `N` neighbouring pixels.
///
/// # Safety
/// As for [`any_span`].
#[inline(always)]
unsafe fn pixels<S: Simd, const KW: usize, const STRIDE: usize, const READ: u8, const N: usize>(s: &Span) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::load(s.bias); N];
        let (across, next) = (s.across, if STRIDE == 0 { s.next } else { STRIDE * s.across });
        let taps = if KW == 0 { s.taps[1] } else { KW };
        for ky in 0..s.taps[0] {
            let input = s.input.wrapping_add(ky * s.down);
            let weights = s.weights.wrapping_add(ky * s.weights_down);
            for kx in 0..taps {
                let w = S::load(weights.wrapping_add(kx * S::LANES));
                for (t, acc) in acc.iter_mut().enumerate() {
                    let x = fetch::<S, READ>(s, input.wrapping_add(kx * across + t * next));
                    *acc = S::fma(x, w, *acc);
                }
            }
        }
        let (low, high) = (S::splat(s.clamp.low), S::splat(s.clamp.high));
        for (t, acc) in acc.iter().enumerate() {
            let out = s.out.wrapping_add(t * s.out_next);
            let v = S::clamp(*acc, low, high);
            if READ == FULL || (READ == REPEATED && s.channels == S::LANES) {
                S::store(out, v);
            } else {
                S::store_n(out, v, s.channels);
            }
        }
    }
}

/// Inputs of the span's channels, the first one at `p`.
///
/// # Safety
/// The processor must have the instructions of `S`, and `p` must be valid for these inputs.
#[inline(always)]
unsafe fn fetch<S: Simd, const READ: u8>(s: &Span, p: *const f32) -> S::F {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match READ {
            PARTIAL => S::load_n(p, s.channels),
            REPEATED => S::splat(*p),
            _ => S::load(p),
        }
    }
}
