//! DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, for few channels: 64 bytes of a row at a time.
//!
//! If neighbouring windows are one pixel apart, a tap multiplies neighbouring input bytes for neighbouring bytes of an
//! output row, for any number of channels. Weights are repeated for the pixels of a block. With windows two pixels
//! apart, every other pixel is dropped.

use std::arch::x86_64::*;

use crate::base::buffer::SharedMut;
use crate::matmul::geometry::ConvGeometry;
use crate::windows::depthwise_i8_wide::{Finish, Lines, Wide, interleave};
use crate::windows::strip::BLOCK;

/// A range of output rows.
pub(super) struct Rows<'a> {
    pub(super) wide: &'a Wide,
    pub(super) geo: &'a ConvGeometry,
    pub(super) input: &'a [u8],
    /// Padding, whose real value is 0: at least `REACH` equal bytes.
    pub(super) blank: &'a [u8],
    pub(super) flip: bool,
    pub(super) out: SharedMut<'a, u8>,
    pub(super) rows: std::ops::Range<usize>,
}

/// Maximum number of columns of a window whose masks are computed once for all rows.
const SHORT: usize = 8;
/// Blocks whose masks are computed at a time.
const PLACES: usize = 16;

/// A block of all output rows, for short windows.
#[derive(Clone, Copy)]
struct Place {
    /// First byte of the block.
    start: usize,
    /// Number of bytes.
    n: usize,
    /// Mask of these bytes.
    mask: u64,
    /// Index of the block's weights, bias and factors.
    phase: usize,
    /// Position in an input row of the byte that the first tap reads first. It wraps around if it is in the padding.
    from: usize,
    /// For each tap, the bytes that are inside of an input row.
    inside: [u64; SHORT],
}

/// A block of an output row.
struct Block<'a> {
    wide: &'a Wide,
    /// Index of the block's weights, bias and factors.
    phase: usize,
    /// Bytes from tap to tap.
    step: usize,
    /// Existing bytes of the block.
    mask: __mmask64,
    flip: __m512i,
    /// Padding.
    blank: __m512i,
}

/// Up to four rows that a block reads, each from the byte that its first tap reads first. Bytes outside of an input row
/// are padding.
struct Quad {
    rows: [*const u8; 4],
    /// Position of that byte in its input row.
    position: isize,
    /// Bytes of an input row.
    line: usize,
}

impl Quad {
    /// Returns the bytes of a block that are inside of the input row, for the tap that begins `offset` bytes after the
    /// first one.
    #[inline(always)]
    fn inside(&self, offset: isize) -> __mmask64 {
        inside(self.position + offset, self.line)
    }
}

/// Returns the bytes of a block from position `at` on that are inside of a row of `line` bytes.
#[inline(always)]
pub(super) fn inside(at: isize, line: usize) -> __mmask64 {
    // Without branches: positions differ from block to block.
    let below = |end: isize| {
        let end = end.clamp(0, 64).cast_unsigned() as u64;
        !(u64::MAX << (end & 63)) | (end >> 6).wrapping_neg()
    };
    below(line.cast_signed() - at) & !below(-at)
}

/// Requantizes the sums of block `phase` and stores its `n` bytes, which are bytes `start` and following ones of output row
/// `row`. A macro, as the compiler does not inline functions with these instructions where there are several callers.
macro_rules! store {
    ($rows:expr, $finish:expr, $sums:expr, $phase:expr, $row:expr, ($start:expr, $n:expr, $mask:expr)) => {{
        let (rows, wide, (start, n)) = ($rows, $rows.wide, ($start, $n));
        let (stride, line) = (rows.geo.stride[1], rows.geo.output[1] * wide.channels);
        // SAFETY: the caller of `Rows::run` has checked instructions and lengths, and has exclusive access to the row;
        // the bytes are those of existing pixels.
        unsafe {
            let bytes = $finish.bytes($sums, $phase);
            let out = rows.out.ptr($row * line);
            if stride == 1 && n == BLOCK {
                _mm512_storeu_si512(out.add(start).cast(), bytes);
            } else if stride == 1 {
                _mm512_mask_storeu_epi8(out.add(start).cast(), $mask, bytes);
            } else {
                let mut block = [0; BLOCK];
                _mm512_storeu_si512(block.as_mut_ptr().cast(), bytes);
                keep(&block, (start, n), wide.channels, std::slice::from_raw_parts_mut(out, line));
            }
        }
    }};
}

impl Rows<'_> {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI. Lengths and geometry must be checked: the input has all
    /// images, `blank` at least `REACH` bytes, and the output all pixels. No other thread may access these rows of the
    /// output.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    pub(super) unsafe fn run(self) {
        let (wide, geo, channels) = (self.wide, self.geo, self.wide.channels);
        if wide.window[1] <= SHORT && (2..=7).contains(&wide.window[0]) {
            // SAFETY: the caller meets the contract of this function.
            return unsafe {
                match wide.window[0] {
                    2 => self.run_short::<2>(),
                    3 => self.run_short::<3>(),
                    4 => self.run_short::<4>(),
                    5 => self.run_short::<5>(),
                    _ => self.run_short::<7>(),
                }
            };
        }
        let (line, stride) = (geo.input[1] * channels, geo.stride[1]);
        // Bytes of an output row with the pixels that are dropped.
        let len = ((geo.output[1] - 1) * stride + 1) * channels;
        let [height, width] = geo.window;
        let step = geo.dilation[1] * channels;
        let quads = wide.window[0].div_ceil(4);
        let before = (geo.padding[1] * channels).cast_signed();
        let flip = _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 });
        let blank = _mm512_set1_epi8(self.blank[0].cast_signed());
        // SAFETY: the caller meets the contract of this function.
        let finish = unsafe { Finish::new(wide) };
        for row in self.rows.clone() {
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            let image = self.input.as_ptr().wrapping_add(image * geo.input[0] * line);
            let y0 = geo.origin(0, y);
            let images = (image, self.blank.as_ptr());
            let kept = Lines::kept((geo, channels), images, y0, height);
            let mut next_phase = 0;
            for start in (0..len).step_by(BLOCK) {
                let n = BLOCK.min(len - start);
                let phase = next_phase;
                next_phase = if phase + 1 == wide.blocks { 0 } else { phase + 1 };
                if stride == 2 && is_dropped(start, n, channels) {
                    continue;
                }
                let from = start.cast_signed() - before;
                let reach = (width - 1) * step + n;
                let inside = from >= 0 && from.cast_unsigned() + reach <= line;
                let mask = u64::MAX >> (BLOCK - n);
                let block = Block { wide, phase, step, mask, flip, blank };
                let mut sums = [_mm512_setzero_si512(); 4];
                for quad in 0..quads {
                    let lines = match kept.get(quad) {
                        Some(lines) => *lines,
                        None => Lines::new((geo, channels), images, y0, (quad * 4, height)),
                    };
                    let at = from.cast_unsigned();
                    let rows = [lines.at(0, at), lines.at(1, at), lines.at(2, at), lines.at(3, at)];
                    let part = Quad { rows, position: from, line };
                    // SAFETY: each existing byte that a tap reads is inside of the input, or in the padding, which
                    // also represents missing rows of the window.
                    sums = unsafe {
                        match inside {
                            true => block.add::<false>(quad, &part, sums),
                            false => block.add::<true>(quad, &part, sums),
                        }
                    };
                }
                store!(&self, finish, sums, phase, row, (start, n, mask));
            }
        }
    }
}

impl Rows<'_> {
    /// As [`Rows::run`], for windows of few columns and `H` rows, of which the last one may be missing: the masks of a block
    /// are those of all rows.
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    unsafe fn run_short<const H: usize>(&self) {
        let (wide, geo, channels) = (self.wide, self.geo, self.wide.channels);
        let (line, stride, step) = (geo.input[1] * channels, geo.stride[1], geo.dilation[1] * channels);
        let len = ((geo.output[1] - 1) * stride + 1) * channels;
        let width = wide.window[1];
        let sets = 1 + usize::from(wide.double);
        let per_phase = wide.window[0].div_ceil(4) * width * sets * BLOCK * 4;
        let flip = _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 });
        let blank = _mm512_set1_epi8(self.blank[0].cast_signed());
        let before = (geo.padding[1] * channels).cast_signed();
        // SAFETY: the caller meets the contract of this function.
        let finish = unsafe { Finish::new(wide) };
        let none = Place { start: 0, n: 0, mask: 0, phase: 0, from: 0, inside: [0; SHORT] };
        for first in (0..len).step_by(PLACES * BLOCK) {
            let (mut places, mut count) = ([none; PLACES], 0);
            for start in (first..len.min(first + PLACES * BLOCK)).step_by(BLOCK) {
                let n = BLOCK.min(len - start);
                if stride == 2 && is_dropped(start, n, channels) {
                    continue;
                }
                let (from, mask) = (start.cast_signed() - before, u64::MAX >> (BLOCK - n));
                let mut taps = [0; SHORT];
                for tap in 0..width.min(SHORT) {
                    taps[tap] = mask & inside(from + (tap * step).cast_signed(), line);
                }
                let (phase, from) = (start / BLOCK % wide.blocks, from.cast_unsigned());
                places[count] = Place { start, n, mask, phase, from, inside: taps };
                count += 1;
            }
            for row in self.rows.clone() {
                let (image, y) = (row / geo.output[0], row % geo.output[0]);
                let image = self.input.as_ptr().wrapping_add(image * geo.input[0] * line);
                let images = (image, self.blank.as_ptr());
                let kept = Lines::kept((geo, channels), images, geo.origin(0, y), wide.window[0]);
                for place in &places[..count] {
                    let mut sums = [_mm512_setzero_si512(); 4];
                    let mut weights =
                        wide.weights.as_slice()[place.phase * per_phase..][..per_phase].as_ptr();
                    let mut rows = [std::ptr::null::<u8>(); H];
                    for i in 0..H {
                        rows[i] = kept[i / 4].at(i % 4, place.from);
                    }
                    for quad in 0..H.div_ceil(4) {
                        for tap in 0..width.min(SHORT) {
                            // Weights of rows that the window does not have are zero.
                            let mut bytes = [_mm512_setzero_si512(); 4];
                            for i in quad * 4..H.min(quad * 4 + 4) {
                                let at = rows[i].wrapping_add(tap * step).cast();
                                // SAFETY: each byte of the mask is inside of an input row, or of the padding, which also
                                // represents missing rows of the window.
                                let row = unsafe { _mm512_mask_loadu_epi8(blank, place.inside[tap], at) };
                                bytes[i % 4] = _mm512_xor_si512(row, flip);
                            }
                            // SAFETY: the processor has the instructions; `weights` has four vectors for each set of
                            // each tap.
                            unsafe {
                                let bytes = interleave(bytes);
                                for _ in 0..sets {
                                    for i in 0..4 {
                                        let weights = _mm512_loadu_si512(weights.add(i * BLOCK).cast());
                                        sums[i] = _mm512_dpbusd_epi32(sums[i], bytes[i], weights);
                                    }
                                    weights = weights.add(4 * BLOCK);
                                }
                            }
                        }
                    }
                    store!(self, finish, sums, place.phase, row, (place.start, place.n, place.mask));
                }
            }
        }
    }
}

impl Block<'_> {
    /// Adds the taps of up to four rows. With `EDGE`, some of their bytes are outside of the input row.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the bytes of the block that taps read are valid in each row, or with `EDGE` those that are
    /// inside of the input row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn add<const EDGE: bool>(&self, quad: usize, part: &Quad, mut sums: [__m512i; 4]) -> [__m512i; 4] {
        let [height, width] = self.wide.window;
        let sets = 1 + usize::from(self.wide.double);
        let per_quad = width * sets * BLOCK * 4;
        let first = (self.phase * height.div_ceil(4) + quad) * per_quad;
        let mut weights = self.wide.weights.as_slice()[first..first + per_quad].as_ptr();
        let alone = height - quad * 4 == 1;
        // No closures and iterators, which the compiler may leave without the instructions.
        macro_rules! load {
            ($row:literal, $offset:ident, $mask:ident) => {{
                let at = part.rows[$row].wrapping_add($offset).cast();
                // SAFETY: the caller meets the contract of this function; masked bytes are not read.
                let bytes = unsafe {
                    match EDGE {
                        true => _mm512_mask_loadu_epi8(self.blank, $mask, at),
                        false => _mm512_maskz_loadu_epi8(self.mask, at),
                    }
                };
                _mm512_xor_si512(bytes, self.flip)
            }};
        }
        for tap in 0..width {
            let offset = tap * self.step;
            let mut mask = self.mask;
            if EDGE {
                mask = self.mask & part.inside(offset.cast_signed());
            }
            let first = load!(0, offset, mask);
            // With a single row, the others have weights of zero.
            let others = match alone {
                true => [first; 3],
                false => [load!(1, offset, mask), load!(2, offset, mask), load!(3, offset, mask)],
            };
            // SAFETY: the processor has the instructions; `weights` has four vectors for each set of each tap.
            unsafe {
                let bytes = interleave([first, others[0], others[1], others[2]]);
                for _ in 0..sets {
                    sums[0] = _mm512_dpbusd_epi32(sums[0], bytes[0], _mm512_loadu_si512(weights.cast()));
                    sums[1] =
                        _mm512_dpbusd_epi32(sums[1], bytes[1], _mm512_loadu_si512(weights.add(BLOCK).cast()));
                    sums[2] = _mm512_dpbusd_epi32(
                        sums[2],
                        bytes[2],
                        _mm512_loadu_si512(weights.add(2 * BLOCK).cast()),
                    );
                    sums[3] = _mm512_dpbusd_epi32(
                        sums[3],
                        bytes[3],
                        _mm512_loadu_si512(weights.add(3 * BLOCK).cast()),
                    );
                    weights = weights.add(4 * BLOCK);
                }
            }
        }
        sums
    }
}

/// Returns whether none of the `n` bytes from `start` on belongs to a pixel that is kept.
fn is_dropped(start: usize, n: usize, channels: usize) -> bool {
    let pixel = start / channels;
    pixel % 2 == 1 && (start + n - 1) / channels == pixel
}

/// Stores every other pixel of a row; the first `n` bytes of `block` are those of the row from `start` on.
fn keep(block: &[u8; BLOCK], (start, n): (usize, usize), channels: usize, out: &mut [u8]) {
    let end = start + n;
    for pixel in ((start / channels).next_multiple_of(2)..end.div_ceil(channels)).step_by(2) {
        let bytes = (pixel * channels).max(start)..((pixel + 1) * channels).min(end);
        let to = pixel / 2 * channels + (bytes.start - pixel * channels);
        let (from, len) = (bytes.start - start, bytes.len());
        // Constant sizes, as a call of `memcpy` takes longer.
        if len > 32 {
            copy::<32>(block, from, out, to);
            copy::<32>(block, from + len - 32, out, to + len - 32);
        } else if len > 16 {
            copy::<16>(block, from, out, to);
            copy::<16>(block, from + len - 16, out, to + len - 16);
        } else if from + 16 <= BLOCK && to + 16 <= out.len() {
            // Bytes that are copied beyond the pixel are written later.
            copy::<16>(block, from, out, to);
        } else {
            let (to, from) = (&mut out[to..][..len], &block[from..][..len]);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Copies `N` bytes of `block` from `from` on to `to` and following places.
#[inline(always)]
fn copy<const N: usize>(block: &[u8; BLOCK], from: usize, out: &mut [u8], to: usize) {
    out[to..][..N].copy_from_slice(&block[from..][..N]);
}
