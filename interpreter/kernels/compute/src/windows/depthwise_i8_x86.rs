//! DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, 64 channels at a time. `depthwise_i8_row.rs` has the blocks of few channels.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::base::buffer::SharedMut;
use crate::matmul::geometry::{ConvGeometry, covers};
use crate::windows::depthwise_i8_wide::{Finish, KEPT, Lines, Wide};
use crate::windows::strip::BLOCK;

/// Number of neighbouring pixels that are computed at a time.
const RUN: usize = 4;

/// A range of output rows, for a range of blocks of channels.
pub(super) struct Rows<'a> {
    pub(super) wide: &'a Wide,
    pub(super) geo: &'a ConvGeometry,
    pub(super) input: &'a [u8],
    /// A pixel of padding, whose real value is 0.
    pub(super) blank: &'a [u8],
    pub(super) flip: bool,
    pub(super) out: SharedMut<'a, u8>,
    pub(super) rows: Range<usize>,
    pub(super) blocks: Range<usize>,
}

/// One output row of one block.
struct Row<'a> {
    geo: &'a ConvGeometry,
    channels: usize,
    height: usize,
    /// First input row of the window.
    y0: isize,
    /// The image, beginning at the block's first channel.
    input: *const u8,
    blank: *const u8,
    lines: [Lines; KEPT],
    weights: *const i8,
    finish: Finish,
    block: usize,
    out: *mut u8,
    flip: __m512i,
    /// Existing channels of the block.
    mask: __mmask64,
}

impl Rows<'_> {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI. Lengths and geometry must be checked: the input has all
    /// images, `blank` all channels, and the output all pixels. No other thread may access these rows and blocks of the
    /// output.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn run(self) {
        let (wide, geo) = (self.wide, self.geo);
        let [height, width] = wide.window;
        let per_block = height.div_ceil(4) * width * (1 + usize::from(wide.double)) * BLOCK * 4;
        // Columns with zero weights must also be inside the input.
        let inner = ConvGeometry { window: wide.window, ..*geo }.interior(1);
        // SAFETY: the caller meets the contract of this function.
        let finish = unsafe { Finish::new(wide) };
        for row in self.rows.clone() {
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            for block in self.blocks.clone() {
                let first = block * BLOCK;
                let start = image * geo.input[0] * geo.input[1] * wide.channels + first;
                let (input, blank) = (self.input.as_ptr().wrapping_add(start), self.blank[first..].as_ptr());
                let y0 = geo.origin(0, y);
                let r = Row {
                    geo,
                    channels: wide.channels,
                    height,
                    y0,
                    input,
                    blank,
                    lines: Lines::kept((geo, wide.channels), (input, blank), y0, height),
                    mask: u64::MAX >> (BLOCK - (wide.channels - first).min(BLOCK)),
                    weights: wide.weights.as_slice()[block * per_block..(block + 1) * per_block].as_ptr(),
                    finish,
                    block,
                    out: self.out.ptr(row * geo.output[1] * wide.channels + first),
                    flip: _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 }),
                };
                // SAFETY: the caller meets the contract of this function.
                unsafe {
                    match (width, geo.stride[1]) {
                        (2, 1) => any::<2, 1>(&r, &inner, wide.double),
                        (2, _) => any::<2, 2>(&r, &inner, wide.double),
                        (3, 1) => any::<3, 1>(&r, &inner, wide.double),
                        (3, _) => any::<3, 2>(&r, &inner, wide.double),
                        (5, 1) => any::<5, 1>(&r, &inner, wide.double),
                        (5, _) => any::<5, 2>(&r, &inner, wide.double),
                        (_, 1) => any::<7, 1>(&r, &inner, wide.double),
                        (_, _) => any::<7, 2>(&r, &inner, wide.double),
                    }
                }
            }
        }
    }
}

/// Computes all pixels of a row.
///
/// # Safety
/// As for [`Rows::run`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn any<const WIDTH: usize, const STRIDE: usize>(r: &Row<'_>, inner: &Range<usize>, double: bool) {
    // SAFETY: the caller meets the contract of this function.
    unsafe {
        match double {
            false => pixels::<WIDTH, STRIDE, 1>(r, inner),
            true => pixels::<WIDTH, STRIDE, 2>(r, inner),
        }
    }
}

/// Computes all pixels of a row, with `SETS` weights per tap. The last run may overlap the run before it.
///
/// # Safety
/// As for [`Rows::run`].
#[inline(never)] // Each kind of window has a separate function: one large function would allocate registers worse.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn pixels<const WIDTH: usize, const STRIDE: usize, const SETS: usize>(
    r: &Row<'_>,
    inner: &Range<usize>,
) {
    let width = r.geo.output[1];
    // SAFETY: the caller's contract. Runs without column checks are in the interior.
    unsafe {
        if width < RUN {
            for x in 0..width {
                run::<WIDTH, STRIDE, 1, true, SETS>(r, x);
            }
            return;
        }
        let mut x = 0;
        loop {
            let from = x.min(width - RUN);
            if inner.contains(&from) && from + RUN <= inner.end {
                run::<WIDTH, STRIDE, RUN, false, SETS>(r, from);
            } else {
                run::<WIDTH, STRIDE, RUN, true, SETS>(r, from);
            }
            x += RUN;
            if x >= width {
                return;
            }
        }
    }
}

/// Computes `N` neighbouring pixels, beginning at `x`. With `EDGE`, columns may be outside of the input.
///
/// # Safety
/// As for [`Rows::run`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run<
    const WIDTH: usize,
    const STRIDE: usize,
    const N: usize,
    const EDGE: bool,
    const SETS: usize,
>(
    r: &Row<'_>,
    x: usize,
) {
    let x0 = r.geo.origin(1, x);
    let line = r.geo.input[1];
    let mut acc = [[_mm512_setzero_si512(); 4]; N];
    let mut weights = r.weights;
    for quad in 0..r.height.div_ceil(4) {
        let rows = (r.height - quad * 4).min(4);
        let computed;
        let lines = match r.lines.get(quad) {
            Some(lines) => lines,
            None => {
                let first = (quad * 4, r.height);
                computed = Lines::new((r.geo, r.channels), (r.input, r.blank), r.y0, first);
                &computed
            }
        };
        /// A column of the input: four rows interleaved, then one tap for each pixel that covers it.
        macro_rules! column {
            ($($c:literal),*) => { $(
                if const { $c < (N - 1) * STRIDE + WIDTH } {
                    let at = x0 + $c;
                    let inside = !EDGE || (at >= 0 && (at as usize) < line);
                    let offset = (at as usize).wrapping_mul(r.channels);
                    // SAFETY: the address is inside the input (row and column were checked), or that of padding.
                    let load = |i: usize| unsafe {
                        let p = if inside { lines.at(i, offset) } else { r.blank };
                        _mm512_xor_si512(_mm512_maskz_loadu_epi8(r.mask, p.cast()), r.flip)
                    };
                    let first = load(0);
                    let (a, b, c, d);
                    if rows == 1 {
                        // The other rows have weights of zero, so their values do not matter.
                        let (low, high) = (_mm512_unpacklo_epi8(first, first), _mm512_unpackhi_epi8(first, first));
                        (a, b, c, d) = (low, low, high, high);
                    } else {
                        let (second, third, fourth) = (load(1), load(2), load(3));
                        (a, b) = (_mm512_unpacklo_epi8(first, second), _mm512_unpacklo_epi8(third, fourth));
                        (c, d) = (_mm512_unpackhi_epi8(first, second), _mm512_unpackhi_epi8(third, fourth));
                    }
                    let q = [
                        _mm512_unpacklo_epi16(a, b),
                        _mm512_unpackhi_epi16(a, b),
                        _mm512_unpacklo_epi16(c, d),
                        _mm512_unpackhi_epi16(c, d),
                    ];
                    tap!($c, q, 0, 1, 2, 3, 4, 5, 6);
                }
            )* };
        }
        macro_rules! tap {
            ($c:literal, $q:ident, $($k:literal),*) => { $(
                let ahead = ($c as usize).wrapping_sub($k);
                if const { covers::<WIDTH, STRIDE, N>($c, $k) } {
                    for j in 0..4 * SETS {
                        // SAFETY: weights of this quad and column.
                        let w = unsafe { _mm512_loadu_si512(weights.add(($k * 4 * SETS + j) * 64).cast()) };
                        let acc = &mut acc[ahead / STRIDE][j % 4];
                        *acc = _mm512_dpbusd_epi32(*acc, $q[j % 4], w);
                    }
                }
            )* };
        }
        column!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
        weights = weights.wrapping_add(WIDTH * SETS * 4 * 64);
    }
    // SAFETY: the caller meets the contract of this function.
    unsafe { finish(&acc, r, x) };
}

/// Requantizes and stores the sums of neighbouring pixels, beginning at `x`. Not inlined: each kind of window would have a copy, and
/// its sums do not fit the registers anyway.
///
/// # Safety
/// As for [`Rows::run`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn finish(sums: &[[__m512i; 4]], r: &Row<'_>, x: usize) {
    for (t, acc) in sums.iter().enumerate() {
        // SAFETY: bias and factors are those of the block. The store writes only existing channels of the block.
        unsafe {
            let bytes = r.finish.bytes(*acc, r.block);
            let to = r.out.add((x + t) * r.channels);
            // Masked stores of bytes are slow on some processors.
            if r.mask == u64::MAX {
                _mm512_storeu_si512(to.cast(), bytes)
            } else {
                _mm512_mask_storeu_epi8(to.cast(), r.mask, bytes)
            }
        }
    }
}
