//! DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, for few channels: 64 bytes of a row at a time.
//!
//! If neighbouring windows are one pixel apart, a tap multiplies neighbouring input bytes for neighbouring bytes of an
//! output row, for any number of channels. Weights are repeated for the pixels of a block. With windows two pixels
//! apart, every other pixel is dropped.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use crate::compute::base::buffer::SharedMut;
use crate::compute::matmul::conv::ConvGeometry;
use crate::compute::windows::depthwise_i8_wide::{BLOCK, Lines, REACH, Wide, finish, interleave};

/// A range of output rows.
pub(super) struct Rows<'a> {
    pub(super) wide: &'a Wide,
    pub(super) geo: &'a ConvGeometry,
    pub(super) input: &'a [u8],
    /// Padding, whose real value is 0: at least [`REACH`] equal bytes.
    pub(super) blank: &'a [u8],
    pub(super) flip: bool,
    pub(super) out: SharedMut<'a, u8>,
    pub(super) rows: std::ops::Range<usize>,
}

/// A block of an output row.
struct Block<'a> {
    wide: &'a Wide,
    /// Weights, bias and factors of the block.
    phase: usize,
    /// Bytes from tap to tap.
    step: usize,
    /// Existing bytes of the block.
    mask: __mmask64,
    flip: __m512i,
}

impl Rows<'_> {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI. Lengths and geometry must be checked: the input has all
    /// images, and the output all pixels. No other thread may access these rows of the output.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    pub(super) unsafe fn run(self) {
        let (wide, geo, channels) = (self.wide, self.geo, self.wide.channels);
        let (line, stride) = (geo.input[1] * channels, geo.stride[1]);
        let out_line = geo.output[1] * channels;
        // Bytes of an output row with the pixels that are dropped.
        let len = ((geo.output[1] - 1) * stride + 1) * channels;
        let [height, width] = geo.window;
        let step = geo.dilation[1] * channels;
        let quads = wide.window[0].div_ceil(4);
        let before = (geo.padding[1] * channels).cast_signed();
        let flip = _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 });
        let mut padded = [[MaybeUninit::uninit(); REACH]; 4];
        let mut edges = [[MaybeUninit::uninit(); BLOCK]; 4];
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
                let block = Block { wide, phase, step, mask, flip };
                let mut sums = [_mm512_setzero_si512(); 4];
                let part = Part { image, from, reach, inside };
                for quad in 0..quads {
                    let mut rows = [self.blank.as_ptr(); 4];
                    if wide.turned {
                        // Written out, as the compiler would multiply in vectors.
                        let (taps, first) = (width - quad * 4, from + (quad * 4 * step).cast_signed());
                        let step = step.cast_signed();
                        rows[0] = self.tap(&part, y0, first, n, &mut edges[0]);
                        if taps > 1 {
                            rows[1] = self.tap(&part, y0, first + step, n, &mut edges[1]);
                        }
                        if taps > 2 {
                            rows[2] = self.tap(&part, y0, first + 2 * step, n, &mut edges[2]);
                        }
                        if taps > 3 {
                            rows[3] = self.tap(&part, y0, first + 3 * step, n, &mut edges[3]);
                        }
                    } else if inside {
                        let lines = match kept.get(quad) {
                            Some(lines) => *lines,
                            None => Lines::new((geo, channels), images, y0, (quad * 4, height)),
                        };
                        let from = from.cast_unsigned();
                        rows = [lines.at(0, from), lines.at(1, from), lines.at(2, from), lines.at(3, from)];
                    } else {
                        for i in 0..(height - quad * 4).min(4) {
                            let y = y0 + ((quad * 4 + i) * geo.dilation[0]).cast_signed();
                            rows[i] = self.row(&part, y, &mut padded[i]);
                        }
                    }
                    // SAFETY: the bytes that the taps of the block read are valid in each of the rows: inside the
                    // input, in a copy, or in the padding, which also represents missing rows of the window.
                    sums = unsafe { block.add(quad, rows, sums) };
                }
                // SAFETY: bytes of this row and of existing pixels.
                unsafe {
                    let bytes = block.bytes(sums);
                    let out = self.out.ptr(row * out_line);
                    if stride == 1 && n == BLOCK {
                        _mm512_storeu_si512(out.add(start).cast(), bytes);
                    } else if stride == 1 {
                        _mm512_mask_storeu_epi8(out.add(start).cast(), mask, bytes);
                    } else {
                        let mut block = [0; BLOCK];
                        _mm512_storeu_si512(block.as_mut_ptr().cast(), bytes);
                        keep(&block[..n], start, channels, std::slice::from_raw_parts_mut(out, out_line));
                    }
                }
            }
        }
    }
}

/// The part of input rows that the windows of a block read.
struct Part {
    /// First byte of the image.
    image: *const u8,
    /// Position in the row, which may be outside of it, and number of bytes.
    from: isize,
    reach: usize,
    /// Whether all bytes are inside the row.
    inside: bool,
}

impl Rows<'_> {
    /// The `n` bytes of row `y` from position `at` on, in the input, in the padding, or in `copy`.
    #[inline(always)]
    fn tap(&self, part: &Part, y: isize, at: isize, n: usize, copy: &mut [MaybeUninit<u8>]) -> *const u8 {
        let geo = self.geo;
        let (line, n) = (geo.input[1] * self.wide.channels, n.cast_signed());
        if y < 0 || y.cast_unsigned() >= geo.input[0] || at + n <= 0 || at >= line.cast_signed() {
            return self.blank.as_ptr();
        }
        let row = part.image.wrapping_add(y.cast_unsigned() * line);
        if at >= 0 && at + n <= line.cast_signed() {
            return row.wrapping_offset(at);
        }
        // SAFETY: the row is inside the input, whose length was checked before `run`.
        let row = unsafe { std::slice::from_raw_parts(row, line) };
        pad(row, at, self.blank[0], &mut copy[..n.cast_unsigned()]);
        copy.as_ptr().cast()
    }

    /// The bytes of a part of row `y`, in the input, in the padding, or in `copy`.
    fn row(&self, part: &Part, y: isize, copy: &mut [MaybeUninit<u8>]) -> *const u8 {
        let geo = self.geo;
        if y < 0 || y.cast_unsigned() >= geo.input[0] {
            return self.blank.as_ptr();
        }
        let line = geo.input[1] * self.wide.channels;
        let row = part.image.wrapping_add(y.cast_unsigned() * line);
        if part.inside {
            return row.wrapping_offset(part.from);
        }
        // SAFETY: the row is inside the input, whose length was checked before `run`.
        let row = unsafe { std::slice::from_raw_parts(row, line) };
        let copy = &mut copy[..part.reach];
        pad(row, part.from, self.blank[0], copy);
        copy.as_ptr().cast()
    }
}

impl Block<'_> {
    /// Adds the taps of up to four rows, each from the byte that the first tap reads first.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the taps of the block are valid in each row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn add(&self, quad: usize, rows: [*const u8; 4], mut sums: [__m512i; 4]) -> [__m512i; 4] {
        let [height, width] = self.wide.window;
        let sets = 1 + usize::from(self.wide.double);
        let per_quad = width * sets * BLOCK * 4;
        let first = (self.phase * height.div_ceil(4) + quad) * per_quad;
        let mut weights = self.wide.weights.as_slice()[first..first + per_quad].as_ptr();
        let alone = height - quad * 4 == 1;
        // No closures and iterators, which the compiler may leave without the instructions.
        macro_rules! load {
            ($row:literal, $tap:ident) => {{
                let at = rows[$row].wrapping_add($tap * self.step);
                // SAFETY: the caller meets the contract of this function.
                _mm512_xor_si512(unsafe { _mm512_maskz_loadu_epi8(self.mask, at.cast()) }, self.flip)
            }};
        }
        for tap in 0..width {
            let first = load!(0, tap);
            // With a single row, the others have weights of zero.
            let others = if alone { [first; 3] } else { [load!(1, tap), load!(2, tap), load!(3, tap)] };
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

    /// Requantizes sums.
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn bytes(&self, sums: [__m512i; 4]) -> __m512i {
        let wide = self.wide;
        let first = self.phase * BLOCK;
        let bias = wide.bias.as_slice()[first..first + BLOCK].as_ptr();
        let bounds = [_mm512_set1_epi8(wide.bounds[0]), _mm512_set1_epi8(wide.bounds[1])];
        // SAFETY: the caller meets the contract of this function.
        unsafe { finish(sums, bias, &wide.requant.part(first, BLOCK), bounds, wide.signed) }
    }
}

/// Copies the bytes of a row from position `from` on, which may be outside of it.
fn pad(row: &[u8], from: isize, blank: u8, to: &mut [MaybeUninit<u8>]) {
    let skipped = from.min(0).unsigned_abs().min(to.len());
    let (left, rest) = to.split_at_mut(skipped);
    let there = row.get(from.max(0).cast_unsigned()..).unwrap_or_default();
    let (middle, right) = rest.split_at_mut(there.len().min(rest.len()));
    left.fill(MaybeUninit::new(blank));
    // SAFETY: `there` has at least as many bytes, and one of the slices is mutable, so that they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(there.as_ptr(), middle.as_mut_ptr().cast(), middle.len()) };
    right.fill(MaybeUninit::new(blank));
}

/// Returns whether none of the `n` bytes from `start` on belongs to a pixel that is kept.
fn is_dropped(start: usize, n: usize, channels: usize) -> bool {
    let pixel = start / channels;
    pixel % 2 == 1 && (start + n - 1) / channels == pixel
}

/// Stores every other pixel of a row; `block` has the bytes of the row from `start` on.
fn keep(block: &[u8], start: usize, channels: usize, out: &mut [u8]) {
    let end = start + block.len();
    for pixel in (start / channels).next_multiple_of(2)..end.div_ceil(channels) {
        if pixel % 2 == 1 {
            continue;
        }
        let bytes = (pixel * channels).max(start)..((pixel + 1) * channels).min(end);
        let to = pixel / 2 * channels + (bytes.start - pixel * channels);
        let (to, from) = (&mut out[to..][..bytes.len()], &block[bytes.start - start..bytes.end - start]);
        if to.len() < 16 {
            // Shorter than a call of `memcpy`.
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        } else {
            to.copy_from_slice(from);
        }
    }
}
