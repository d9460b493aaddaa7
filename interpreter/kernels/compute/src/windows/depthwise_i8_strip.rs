//! DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI: 64 bytes of an output row at a time, which are read from copies of input rows.
//!
//! A part of each input row of the windows is copied to a strip, with its padding and with the flipped sign that products need.
//! In a strip, pixels that a tap reads for neighbouring outputs are neighbours: with windows two pixels apart, the even pixels
//! come first. If several output channels read one input channel, the strip has it repeatedly.
//!
//! Windows of a single row multiply four taps at a time, whose bytes are interleaved as those of four rows are in other
//! windows.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::windows::depthwise_i8_row::{Rows, inside};
use crate::windows::depthwise_i8_wide::{Finish, interleave};
use crate::windows::strip::{BLOCK, MAX_ROWS, SHUFFLED, STRIPS, Shuffle, Strip};

/// Memory of the strips.
#[repr(align(64))]
struct Memory([MaybeUninit<u8>; STRIPS]);

impl Rows<'_> {
    /// As [`Rows::run`], for windows whose operands [`Wide::has_strips`].
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn run_strips(&self) {
        let (geo, channels) = (self.geo, self.wide.channels);
        let Some(strip) = Strip::new(geo, channels) else { return };
        let shuffle = Shuffle::new(geo, channels);
        let mut memory = Memory([MaybeUninit::uninit(); STRIPS]);
        let strips = memory.0.as_mut_ptr().cast::<u8>();
        let (height, len) = (geo.window[0], geo.output[1] * channels);
        let line = geo.input[1] * geo.in_channels;
        // Blocks read more than what was copied: those bytes are not stored.
        let used = strip.group.min(len + (strip.ahead + 2) * channels + BLOCK);
        for group in 0..height * strip.groups {
            // SAFETY: `Strip::new` checked that the groups of all rows fit.
            unsafe { strips.add(group * strip.group).write_bytes(0, used) };
        }
        // SAFETY: the caller meets the contract of this function.
        let finish = unsafe { Finish::new(self.wide) };
        let mut bases = [strips.cast_const(); MAX_ROWS];
        for start in (0..len).step_by(strip.part) {
            let n = strip.part.min(len - start);
            let first = start / channels;
            let count = (start + n - 1) / channels + 1 - first + strip.ahead;
            // The input row of each strip: beyond all rows for padding, and one more if there is none.
            let (padding, none) = (usize::MAX - 1, usize::MAX);
            let mut held = [none; MAX_ROWS];
            for row in self.rows.clone() {
                let (image, y0) = (row / geo.output[0], geo.origin(0, row % geo.output[0]));
                // Neighbouring rows stay in their strips for the next output rows.
                let mut slot = if geo.dilation[0] == 1 {
                    y0.rem_euclid(height.cast_signed()).cast_unsigned()
                } else {
                    0
                };
                for (i, base) in bases.iter_mut().enumerate().take(height) {
                    let y = y0 + (i * geo.dilation[0]).cast_signed();
                    let source = match y >= 0 && y.cast_unsigned() < geo.input[0] {
                        true => image * geo.input[0] + y.cast_unsigned(),
                        false => padding,
                    };
                    // SAFETY: the caller meets the contract of this function; `from` has a row of the input. A part's
                    // windows read `ahead` pixels beyond its own, which fit into a group with a block more.
                    unsafe {
                        let to = strips.add(slot * strip.groups * strip.group);
                        if held[slot] != source {
                            held[slot] = source;
                            let from =
                                (source != padding).then(|| self.input[source * line..][..line].as_ptr());
                            for group in 0..strip.groups {
                                let x = geo.origin(1, first) + group.cast_signed();
                                let to = to.add(group * strip.group);
                                match &shuffle {
                                    Some(shuffle) => self.shuffle(shuffle, from, x, count, to),
                                    None => self.copy(from, x, count, to),
                                }
                            }
                        }
                        *base = to.add(start % channels);
                    }
                    slot = if slot + 1 == height { 0 } else { slot + 1 };
                }
                // SAFETY: the caller meets the contract of this function; the strips have what the windows read.
                unsafe {
                    match self.wide.turned {
                        true => self.multiply(&strip, &finish, bases[0], row, start..start + n),
                        false => self.multiply_rows(&strip, &finish, &bases, row, start..start + n),
                    }
                }
            }
        }
    }

    /// Copies `count` pixels of the row `from`, the first one at column `x`, one for each stride. Columns outside of the row,
    /// and a missing row, are padding.
    ///
    /// # Safety
    /// As for [`Rows::run`]; `from` must have a row of the input, and `to` the pixels and a block more. Each input channel has one
    /// output channel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn copy(&self, from: Option<*const u8>, x: isize, count: usize, to: *mut u8) {
        let (geo, channels) = (self.geo, self.wide.channels);
        let flip = _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 });
        let blank = _mm512_set1_epi8(self.blank[0].cast_signed());
        let (from, line) = match from {
            Some(from) => (from, geo.input[1] * channels),
            None => (self.blank.as_ptr(), 0),
        };
        // Neighbours are copied together.
        let (pixels, run) = if geo.stride[1] == 1 { (1, count * channels) } else { (count, channels) };
        for pixel in 0..pixels {
            let first = (x + (pixel * geo.stride[1]).cast_signed()) * channels.cast_signed();
            for byte in (0..run).step_by(BLOCK) {
                let at = first + byte.cast_signed();
                let address = from.wrapping_offset(at).cast();
                // SAFETY: masked bytes are not read. What is written beyond a pixel is in following ones, which are written
                // later, or in the block after the last one.
                unsafe {
                    let bytes = match at >= 0 && at.cast_unsigned() + BLOCK <= line {
                        true => _mm512_loadu_si512(address),
                        false => _mm512_mask_loadu_epi8(blank, inside(at, line), address.cast()),
                    };
                    let to = to.add(pixel * run + byte);
                    _mm512_storeu_si512(to.cast(), _mm512_xor_si512(bytes, flip));
                }
            }
        }
    }

    /// As [`Rows::copy`], for pixels of few channels, each of which may have several output channels.
    ///
    /// # Safety
    /// As for [`Rows::copy`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn shuffle(&self, by: &Shuffle, from: Option<*const u8>, x: isize, count: usize, to: *mut u8) {
        let (geo, channels) = (self.geo, self.wide.channels);
        let flip = _mm_set1_epi8(if self.flip { i8::MIN } else { 0 });
        let blank = _mm_set1_epi8(self.blank[0].cast_signed());
        let (from, line) = match from {
            Some(from) => (from, geo.input[1] * geo.in_channels),
            None => (self.blank.as_ptr(), 0),
        };
        let bytes = by.pixels * channels;
        let mut at = x * geo.in_channels.cast_signed();
        for pixel in (0..count).step_by(by.pixels) {
            let address = from.wrapping_offset(at).cast();
            // SAFETY: masked bytes are not read. What is written beyond these pixels is in following ones, which are written later,
            // or in the block after the last one: the pixels of a copy have at most a block, or are one pixel.
            unsafe {
                let source = match at >= 0 && at.cast_unsigned() + SHUFFLED <= line {
                    true => _mm_loadu_si128(address),
                    false => _mm_mask_loadu_epi8(blank, inside(at, line) as __mmask16, address.cast()),
                };
                let source = _mm512_broadcast_i32x4(_mm_xor_si128(source, flip));
                for (block, from) in by.from.iter().enumerate().take(bytes.div_ceil(BLOCK)) {
                    let from = _mm512_loadu_si512(from.as_ptr().cast());
                    let to = to.add(pixel * channels + block * BLOCK);
                    _mm512_storeu_si512(to.cast(), _mm512_shuffle_epi8(source, from));
                }
            }
            at += by.step;
        }
    }

    /// Computes bytes `range` of output row `row`, for windows of one row. `from` is the byte that the first tap reads for the
    /// first of them.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the strip must have what the windows of these bytes read, and a block more.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    unsafe fn multiply(
        &self,
        strip: &Strip,
        finish: &Finish,
        from: *const u8,
        row: usize,
        range: Range<usize>,
    ) {
        let wide = self.wide;
        let (taps, sets) = (wide.window[0], 1 + usize::from(wide.double));
        let per_phase = taps.div_ceil(4) * sets * BLOCK * 4;
        let [second, third] = [1, 2].map(|tap| strip.tap(self.geo, wide.channels, tap));
        let out = self.out.ptr(row * self.geo.output[1] * wide.channels);
        let mut phase = range.start / BLOCK % wide.blocks;
        for start in range.clone().step_by(BLOCK) {
            let n = BLOCK.min(range.end - start);
            let mut weights = wide.weights.as_slice()[phase * per_phase..][..per_phase].as_ptr();
            let mut sums = [_mm512_setzero_si512(); 4];
            let mut at = from.wrapping_add(start - range.start);
            macro_rules! load {
                ($offset:expr) => {
                    _mm512_loadu_si512(at.wrapping_add($offset).cast())
                };
            }
            // Adds four taps. Macros, as the compiler does not inline functions with these instructions where there
            // are several callers.
            macro_rules! add {
                ($bytes:expr) => {{
                    let bytes = interleave($bytes);
                    for _ in 0..sets {
                        for i in 0..4 {
                            let weights = _mm512_loadu_si512(weights.add(i * BLOCK).cast());
                            sums[i] = _mm512_dpbusd_epi32(sums[i], bytes[i], weights);
                        }
                        weights = weights.add(4 * BLOCK);
                    }
                }};
            }
            // SAFETY: the caller meets the contract of this function; `weights` has four vectors for each set of each
            // four taps, and the row of the output these bytes.
            unsafe {
                for _ in 0..taps / 4 {
                    add!([load!(0), load!(second), load!(third), load!(third + second)]);
                    at = at.wrapping_add(2 * third);
                }
                // Missing taps have weights of zero.
                match taps % 4 {
                    0 => {}
                    1 => {
                        let tap = load!(0);
                        add!([tap; 4]);
                    }
                    rest => {
                        let tap = load!(0);
                        add!([tap, load!(second), load!(if rest == 3 { third } else { 0 }), tap]);
                    }
                }
                store(out.add(start), n, finish.bytes(sums, phase));
            }
            phase = if phase + 1 == wide.blocks { 0 } else { phase + 1 };
        }
    }

    /// Computes bytes `range` of output row `row`, for windows of several rows. `from` has the byte of each row that the first
    /// tap reads for the first of them.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the strips must have what the windows of these bytes read, and a block more.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[allow(clippy::needless_range_loop, reason = "iterators may be left without the instructions")]
    unsafe fn multiply_rows(
        &self,
        strip: &Strip,
        finish: &Finish,
        from: &[*const u8; MAX_ROWS],
        row: usize,
        range: Range<usize>,
    ) {
        let wide = self.wide;
        let ([height, width], sets) = (wide.window, 1 + usize::from(wide.double));
        let per_phase = height.div_ceil(4) * width * sets * BLOCK * 4;
        let out = self.out.ptr(row * self.geo.output[1] * wide.channels);
        let mut phase = range.start / BLOCK % wide.blocks;
        for start in range.clone().step_by(BLOCK) {
            let n = BLOCK.min(range.end - start);
            let mut weights = wide.weights.as_slice()[phase * per_phase..][..per_phase].as_ptr();
            let mut sums = [_mm512_setzero_si512(); 4];
            for quad in (0..height).step_by(4) {
                let rows = height - quad;
                for tap in 0..width {
                    let offset = start - range.start + strip.tap(self.geo, wide.channels, tap);
                    macro_rules! load {
                        ($i:expr) => {
                            _mm512_loadu_si512(from[quad + $i].wrapping_add(offset).cast())
                        };
                    }
                    // SAFETY: the caller meets the contract of this function; `weights` has four vectors for each set of
                    // each tap.
                    unsafe {
                        // Missing rows have weights of zero.
                        let first = load!(0);
                        let bytes = interleave(match rows {
                            1 => [first; 4],
                            2 => [first, load!(1), first, first],
                            3 => [first, load!(1), load!(2), first],
                            _ => [first, load!(1), load!(2), load!(3)],
                        });
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
            // SAFETY: the caller meets the contract of this function; the row of the output has these bytes.
            unsafe { store(out.add(start), n, finish.bytes(sums, phase)) };
            phase = if phase + 1 == wide.blocks { 0 } else { phase + 1 };
        }
    }
}

/// Stores the first `n` bytes, at most a block.
///
/// # Safety
/// The processor must have AVX-512 BW; `to` must be valid for `n` bytes.
#[inline(always)]
unsafe fn store(to: *mut u8, n: usize, bytes: __m512i) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match n == BLOCK {
            true => _mm512_storeu_si512(to.cast(), bytes),
            false => _mm512_mask_storeu_epi8(to.cast(), u64::MAX >> (BLOCK - n), bytes),
        }
    }
}
