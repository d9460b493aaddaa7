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
/// neighbouring output channels: by one, or by all or half of a vector ([`DepthwiseF32::reads_repeatedly`]).
pub struct DepthwiseF32 {
    isa: Isa,
    channels: usize,
    /// Output channels per input channel.
    multiplier: usize,
    window: [usize; 2],
    lanes: usize,
    /// Neighbouring pixels whose channels a vector holds; more than one for few channels.
    grouped: usize,
    /// For each vector of channels: its bias, then its weights, tap by tap. They repeat for each pixel of a group. Missing
    /// channels are zero.
    packed: AlignedVec<f32>,
}

impl DepthwiseF32 {
    /// Whether the output channels of each vector, or of each half, read one input channel, for these numbers of input and
    /// output channels.
    pub fn reads_repeatedly(isa: Isa, [inputs, channels]: [usize; 2]) -> bool {
        let multiplier = channels.checked_div(inputs).unwrap_or(0);
        let (lanes, exact) = (lanes(isa), inputs.checked_mul(multiplier) == Some(channels));
        multiplier > 1 && exact && (inputs == 1 || multiplier % lanes == 0 || multiplier * 2 == lanes)
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
        let grouped = if multiplier == 1 { (lanes / channels.max(1)).max(1) } else { 1 };
        let per_vector = taps.checked_add(1).ok_or(ComputeError::TooLarge { what: "weights" })?;
        let mut packed =
            AlignedVec::zeroed(product("weights", &[channels.div_ceil(lanes), per_vector, lanes])?)?;
        for (v, vector) in packed.as_mut_slice().chunks_exact_mut(per_vector * lanes).enumerate() {
            let range = v * lanes..((v + 1) * lanes).min(channels);
            let (first, rest) = vector.split_at_mut(lanes);
            let copy = |to: &mut [f32], from: &[f32]| {
                let pixels = to.chunks_exact_mut(range.len()).take(grouped);
                pixels.for_each(|to| to.copy_from_slice(&from[range.clone()]));
            };
            if let Some(bias) = bias {
                copy(first, bias);
            }
            for (to, from) in rest.chunks_exact_mut(lanes).zip(weights.chunks_exact(channels.max(1))) {
                copy(to, from);
            }
        }
        Ok(Self { isa, channels, multiplier, window, lanes, grouped, packed })
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

/// A rectangle of output pixels whose windows have the same taps inside the input.
struct Rect<'a> {
    /// First row, counted through all images.
    row: usize,
    rows: usize,
    columns: Range<usize>,
    /// Taps inside the input.
    taps: &'a [Range<usize>; 2],
}

/// Rows or columns of output pixels whose windows have the same taps inside the input, for one vector of channels. A pixel
/// may be a group of neighbours that one vector holds.
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
    /// Input elements from line to line.
    next_line: usize,
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
    /// Output elements from line to line.
    out_next_line: usize,
    /// Pixels per line.
    pixels: usize,
    lines: usize,
    /// Number of existing channels of the vector.
    channels: usize,
    /// Distance of the input channels of both halves of a vector.
    half: usize,
    clamp: Clamp,
}

/// Rows that are computed together, at least: the pixels of their edges are neighbours in columns.
const ROWS: usize = 4;

/// Pixels that are computed together, at least.
const PIXELS: usize = 64;

/// Of a multiple of this number of channels, those of one vector are in few sets of a cache for all pixels: rows of these
/// would displace each other. All channels of a pixel are computed before the next one then.
const ALIASING: usize = 256;

/// Pixels that such sets hold.
const WAYS: usize = 8;

impl SimdTask for RowsTask<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let geo = self.geo;
        let (interior, inner) = (geo.interior(0), geo.interior(1));
        let most = (PIXELS / geo.output[1].max(1)).max(ROWS);
        let mut row = self.rows.start;
        while row < self.rows.end {
            let y = row % geo.output[0];
            let same = if interior.contains(&y) { (interior.end - y).min(most) } else { 1 };
            let rows = same.min(self.rows.end - row);
            let down = geo.taps(0, geo.origin(0, y));
            let mut x = 0;
            while x < geo.output[1] {
                let across = geo.taps(1, geo.origin(1, x));
                let end = if x == inner.start && !inner.is_empty() {
                    inner.end
                } else {
                    let edge = if x < inner.start { inner.start } else { geo.output[1] };
                    let same = |&x: &usize| geo.taps(1, geo.origin(1, x)) == across;
                    x + 1 + (x + 1..edge).take_while(same).count()
                };
                let taps = [down.clone(), across];
                // SAFETY: the windows of the rectangle have these taps. The instructions exist by the caller's contract.
                unsafe { self.rect::<S>(&Rect { row, rows, columns: x..end, taps: &taps }) };
                x = end;
            }
            row += rows;
        }
    }
}

impl RowsTask<'_> {
    /// The span of a rectangle's rows, for the first vector of channels.
    #[inline(always)]
    fn span<S: Simd>(&self, rect: &Rect<'_>) -> Span {
        let (layer, geo) = (self.layer, self.geo);
        let (channels, inputs) = (layer.channels, geo.in_channels);
        let kw = layer.window[1];
        let [out_h, out_w] = geo.output;
        let (row, x) = (rect.row, rect.columns.start);
        let (image, y0, x0) = (row / out_h, geo.origin(0, row % out_h), geo.origin(1, x));
        let [ky, kx] = rect.taps;
        // A window without taps inside the input reads nothing.
        let empty = ky.is_empty() || kx.is_empty();
        let (iy, ix) = if empty {
            (0, 0)
        } else {
            (y0 + (ky.start * geo.dilation[0]) as isize, x0 + (kx.start * geo.dilation[1]) as isize)
        };
        let pixel = (image * geo.input[0] + iy as usize) * geo.input[1] + ix as usize;
        let line = geo.input[1].wrapping_mul(inputs);
        let packed = layer.packed.as_slice().as_ptr();
        Span {
            input: self.input.as_ptr().wrapping_add(pixel * inputs),
            // Distances that are not within the input are not used, and may overflow.
            down: geo.dilation[0].wrapping_mul(line),
            across: geo.dilation[1].wrapping_mul(inputs),
            next: geo.stride[1].wrapping_mul(inputs),
            next_line: geo.stride[0].wrapping_mul(line),
            taps: if empty { [0, 0] } else { [ky.len(), kx.len()] },
            bias: packed,
            weights: packed.wrapping_add((ky.start * kw + kx.start + 1) * S::LANES),
            weights_down: kw * S::LANES,
            out: self.out.ptr((row * out_w + x) * channels),
            out_next: channels,
            out_next_line: out_w * channels,
            pixels: rect.columns.len(),
            lines: rect.rows,
            channels,
            half: 0,
            clamp: self.clamp,
        }
    }

    /// Computes a rectangle.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`, the windows must have the rectangle's taps inside the input, and no
    /// other thread may access the rows.
    #[inline(always)]
    unsafe fn rect<S: Simd>(&self, rect: &Rect<'_>) {
        let (layer, geo) = (self.layer, self.geo);
        let channels = layer.channels;
        let per_vector = (layer.window[0] * layer.window[1] + 1) * S::LANES;
        let mut first = self.span::<S>(rect);
        // SAFETY: the caller's contract; `run` checked the length of the input, and the packed taps are as many. Output
        // pixels of tasks are disjoint.
        unsafe {
            if layer.grouped > 1 && geo.stride[1] == 1 && first.pixels > 1 {
                return grouped::<S>(layer.grouped, first);
            }
            let fixed = [geo.window[1], geo.stride[1], geo.dilation[1]];
            let whole = first.taps[1] == geo.window[1];
            let kind = if turn(&mut first) { [fixed[0], 0, 0] } else { fixed };
            let mut vectors = self.vectors.clone();
            let vector = |v: usize| {
                let (at, mut s) = (v * S::LANES, first);
                s.input = s.input.wrapping_add(at / layer.multiplier);
                s.bias = s.bias.wrapping_add(v * per_vector);
                s.weights = s.weights.wrapping_add(v * per_vector);
                s.out = s.out.wrapping_add(at);
                s.channels = (channels - at).min(S::LANES);
                s.half = usize::from(s.channels > layer.multiplier);
                s
            };
            if layer.multiplier == 1 && channels.is_multiple_of(ALIASING) && first.pixels * first.lines > WAYS
            {
                let end = vectors.end - vectors.len() % 4;
                for (line, x) in (0..first.lines).flat_map(|line| (0..first.pixels).map(move |x| (line, x))) {
                    for v in (vectors.start..end).step_by(4) {
                        let mut s = vector(v);
                        s.input = s.input.wrapping_add(line * s.next_line + x * s.next);
                        s.out = s.out.wrapping_add(line * s.out_next_line + x * s.out_next);
                        (s.pixels, s.lines) = (1, 1);
                        each_pixel::<S, 4>(&s, per_vector);
                    }
                }
                vectors.start = end;
            }
            // Each addition to a sum waits for the previous one. For few pixels, sums of other channels are computed in
            // between.
            if first.pixels < 4 && layer.multiplier == 1 {
                while vectors.len() >= 4 && (vectors.start + 4) * S::LANES <= channels {
                    each_pixel::<S, 4>(&vector(vectors.start), per_vector);
                    vectors.start += 4;
                }
                if vectors.len() >= 2 && (vectors.start + 2) * S::LANES <= channels {
                    each_pixel::<S, 2>(&vector(vectors.start), per_vector);
                    vectors.start += 2;
                }
            }
            for v in vectors {
                let s = vector(v);
                match kind {
                    _ if !whole => any_span::<S, 0, 0>(layer, s),
                    [3, 1, 1] => any_span::<S, 3, 1>(layer, s),
                    [3, 2, 1] => any_span::<S, 3, 2>(layer, s),
                    [3, ..] => any_span::<S, 3, 0>(layer, s),
                    [5, 1, 1] => any_span::<S, 5, 1>(layer, s),
                    [5, 2, 1] => any_span::<S, 5, 2>(layer, s),
                    _ => any_span::<S, 0, 0>(layer, s),
                }
            }
        }
    }
}

/// Makes columns the lines of a span, if its rows are so short that this takes fewer steps. Returns whether it did.
#[inline(always)]
fn turn(s: &mut Span) -> bool {
    // Steps are of four or eight pixels, if there are as many; fewer pixels take hardly less time than four.
    let steps = |pixels: usize| pixels.div_ceil(4);
    let turned = s.pixels < 8 && s.pixels * steps(s.lines) < s.lines * steps(s.pixels);
    if turned {
        (s.pixels, s.lines) = (s.lines, s.pixels);
        (s.next, s.next_line) = (s.next_line, s.next);
        (s.out_next, s.out_next_line) = (s.out_next_line, s.out_next);
    }
    turned
}

/// Computes rows of pixels whose channels, and those of up to `most` neighbours, are in one vector. `s` is their span, of
/// single pixels one input pixel apart.
///
/// # Safety
/// As for [`any_span`].
#[inline(always)]
unsafe fn grouped<S: Simd>(most: usize, mut s: Span) {
    let (columns, channels) = (s.pixels, s.channels);
    let group = most.min(columns);
    s.channels = group * channels;
    (s.next, s.out_next, s.pixels) = (s.channels, s.channels, columns / group);
    // The last group may overlap the one before, whose results it repeats.
    let last = (columns - group) * channels;
    let (to_input, to_out) = (s.input.wrapping_add(last), s.out.wrapping_add(last));
    let rest = Span { input: to_input, out: to_out, pixels: 1, ..s };
    let spans = if columns.is_multiple_of(group) { 1 } else { 2 };
    for mut s in [s, rest].into_iter().take(spans) {
        turn(&mut s);
        // SAFETY: the caller's contract; each group is inside its row.
        unsafe {
            if s.channels == S::LANES {
                span::<S, 0, 0, FULL>(s);
            } else {
                span::<S, 0, 0, PARTIAL>(s);
            }
        }
    }
}

/// Computes each pixel of a span for `V` complete vectors of channels, the first of which is the span's. `per_vector` is
/// the number of packed elements of each.
///
/// # Safety
/// The processor must have the instructions of `S`. Taps of the span must be inside the input, and its pixels inside
/// the output, for all vectors.
#[inline(always)]
unsafe fn each_pixel<S: Simd, const V: usize>(s: &Span, per_vector: usize) {
    for line in 0..s.lines {
        for x in 0..s.pixels {
            let input = s.input.wrapping_add(line * s.next_line + x * s.next);
            let out = s.out.wrapping_add(line * s.out_next_line + x * s.out_next);
            // SAFETY: the caller's contract; the pixel is one of the span.
            unsafe { pixel::<S, V>(s, input, out, per_vector) };
        }
    }
}

/// Computes a pixel for `V` complete vectors of channels, from its first tap.
///
/// # Safety
/// As for [`each_pixel`]; the pixel must be one of the span.
#[inline(always)]
unsafe fn pixel<S: Simd, const V: usize>(s: &Span, input: *const f32, out: *mut f32, per_vector: usize) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::splat(0.0); V];
        for (v, acc) in acc.iter_mut().enumerate() {
            *acc = S::load(s.bias.wrapping_add(v * per_vector));
        }
        for ky in 0..s.taps[0] {
            let input = input.wrapping_add(ky * s.down);
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
            S::store(out.wrapping_add(v * S::LANES), S::clamp(*acc, low, high));
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
        if layer.multiplier * 2 == S::LANES && layer.channels > layer.multiplier {
            span::<S, KW, STRIDE, HALVES>(s);
        } else if layer.multiplier > 1 {
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
/// Reading of the inputs of a vector: one channel for the lanes of each half.
const HALVES: u8 = 3;

/// Computes a span of `KW` taps across, or of any number if `KW` is 0. Pixels are `STRIDE` times as far apart as taps,
/// or at any distance if `STRIDE` is 0.
///
/// # Safety
/// As for [`any_span`].
#[inline(always)]
unsafe fn span<S: Simd, const KW: usize, const STRIDE: usize, const READ: u8>(mut s: Span) {
    // SAFETY: the caller's contract; each step stays within the span.
    unsafe {
        for _ in 0..s.lines {
            let mut x = 0;
            // Steps over the last pixels may repeat results of the previous step, with the same values.
            macro_rules! step {
                ($n:literal, $least:literal) => {
                    while s.pixels >= $n && s.pixels - x >= $least {
                        x = x.min(s.pixels - $n);
                        pixels::<S, KW, STRIDE, READ, $n>(
                            &s,
                            s.input.wrapping_add(x * s.next),
                            s.out.wrapping_add(x * s.out_next),
                        );
                        x += $n;
                    }
                };
            }
            // Sixteen registers hold four pixels and their inputs, thirty-two hold eight. With a loop of taps, inputs are
            // not held.
            if S::REGISTERS == 32 || KW == 0 {
                step!(8, 7);
            }
            step!(4, 3);
            step!(2, 2);
            step!(1, 1);
            s.input = s.input.wrapping_add(s.next_line);
            s.out = s.out.wrapping_add(s.out_next_line);
        }
    }
}

/// Computes `N` neighbouring pixels.
///
/// # Safety
/// As for [`any_span`].
#[inline(always)]
unsafe fn pixels<S: Simd, const KW: usize, const STRIDE: usize, const READ: u8, const N: usize>(
    s: &Span,
    first: *const f32,
    out: *mut f32,
) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        let mut acc = [S::load(s.bias); N];
        let (across, next) = (s.across, if STRIDE == 0 { s.next } else { STRIDE.wrapping_mul(s.across) });
        let taps = if KW == 0 { s.taps[1] } else { KW };
        for ky in 0..s.taps[0] {
            let input = first.wrapping_add(ky * s.down);
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
            let out = out.wrapping_add(t * s.out_next);
            let v = S::clamp(*acc, low, high);
            if READ == FULL || (READ != PARTIAL && s.channels == S::LANES) {
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
    /// Positive in the first half of a vector, for each number of lanes.
    const SIGNS: [f32; 16] =
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0];

    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match READ {
            PARTIAL => S::load_n(p, s.channels),
            REPEATED => S::splat(*p),
            HALVES => {
                let second = S::lt(S::load(SIGNS.as_ptr().wrapping_add(8 - S::LANES / 2)), S::splat(0.0));
                S::select(second, S::splat(*p.wrapping_add(s.half)), S::splat(*p))
            }
            _ => S::load(p),
        }
    }
}
