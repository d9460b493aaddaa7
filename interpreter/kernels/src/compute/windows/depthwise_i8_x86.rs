//! DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, 64 channels at a time. `depthwise_i8_row.rs` has the blocks of few channels.
//!
//! Interleaving the bytes of four input rows takes eight instructions for 64 channels. It permutes the channels, and
//! packing the results inverts the permutation. Weights, bias and factors are stored in the permuted order.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::compute::base::buffer::{AlignedVec, SharedMut};
use crate::compute::base::error::{Result, product};
use crate::compute::base::requant::{OutputQuant, Requant, RequantPart};
use crate::compute::matmul::conv::{ConvGeometry, DepthwiseFilter};
use crate::compute::simd::int8::scaled;

/// Channels of a block.
pub(super) const BLOCK: usize = 64;

/// Number of neighbouring pixels that are computed at a time.
const RUN: usize = 4;

/// The channel at position `i` of a block's order.
fn channel(i: usize) -> usize {
    let (vector, lane, c) = (i / 16, i % 16 / 4, i % 4);
    16 * lane + 4 * vector + c
}

/// What the bytes of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Channels of one pixel.
    Channels,
    /// A part of a row, with the channels of several pixels. There is one block for each channel that a part may begin
    /// with.
    Row,
}

impl Order {
    /// Returns the better order for these windows; `None` if neither is supported.
    pub(super) fn best(geo: &ConvGeometry) -> Option<Self> {
        let channels = geo.in_channels;
        // Parts of rows also have the pixels between those of the output.
        let (used, apart) = (channels as f32 / channels.next_multiple_of(BLOCK) as f32, geo.stride[1]);
        match (takes(geo), super::depthwise_i8_row::takes(geo)) {
            (true, true) if used * apart as f32 > 0.7 => Some(Order::Channels),
            (_, true) => Some(Order::Row),
            (true, false) => Some(Order::Channels),
            (false, false) => None,
        }
    }

    /// Returns whether an order supports windows.
    pub(super) fn takes(self, geo: &ConvGeometry) -> bool {
        match self {
            Order::Channels => takes(geo),
            Order::Row => super::depthwise_i8_row::takes(geo),
        }
    }

    /// Number of blocks.
    fn blocks(self, channels: usize) -> usize {
        match self {
            Order::Channels => channels.div_ceil(BLOCK),
            Order::Row => super::depthwise_i8_row::phases(channels),
        }
    }

    /// The channel of a byte, where a block's first channel is the byte after those of the block before.
    fn channel(self, byte: usize, channels: usize) -> usize {
        match self {
            Order::Channels => byte,
            Order::Row => byte % channels,
        }
    }
}

/// Packed operands of the blocks.
pub(super) struct Wide {
    pub(super) order: Order,
    /// Number of blocks. Channels of the last one may be missing.
    pub(super) blocks: usize,
    /// Width as a kernel has it: columns that the filter does not have, at the right, have weights of zero.
    pub(super) window: [usize; 2],
    pub(super) channels: usize,
    /// Whether there are two weights for each tap, whose sum is the weight: less its zero point it may need nine bits.
    pub(super) double: bool,
    /// For each block, for each four rows of the window, for each column, for each weight of a tap: `[channel][4]`.
    pub(super) weights: AlignedVec<i8>,
    pub(super) bias: AlignedVec<i32>,
    pub(super) requant: Requant,
    /// Bounds of the output as bytes, and whether they are signed.
    pub(super) bounds: [i8; 2],
    pub(super) signed: bool,
}

impl Wide {
    /// Packs `weight(row, column, channel)`, from -255 to 255, and `bias(channel)`. `None` if the window or the output is
    /// not supported.
    pub(super) fn pack(
        order: Order,
        filter: &DepthwiseFilter,
        weight: impl Fn(usize, usize, usize) -> i32,
        bias: &[i32],
        output: &OutputQuant<'_>,
    ) -> Result<Option<Self>> {
        let (channels, [height, width]) = (filter.channels, filter.window);
        let blocks = if channels == 0 { 0 } else { order.blocks(channels) };
        let signed = output.low < 0;
        let bytes = if signed { -128..=127 } else { 0..=255 };
        let fits = bytes.contains(&output.low) && bytes.contains(&output.high);
        let padded = if order == Order::Row { Some(width) } else { padded(width) };
        let Some(padded) = padded.filter(|_| blocks > 0 && fits) else { return Ok(None) };
        let quads = height.div_ceil(4);
        let all =
            (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |c| (y, x, c))));
        let double = all.clone().any(|(y, x, c)| i8::try_from(weight(y, x, c)).is_err());
        let sets = 1 + usize::from(double);
        let len = product("weights", &[blocks, quads, padded, sets, BLOCK, 4])?;
        let mut weights = AlignedVec::<i8>::zeroed(len)?;
        let mut to = weights.as_mut_slice().iter_mut();
        for block in 0..blocks {
            for quad in 0..quads {
                for (column, set) in (0..padded).flat_map(|column| (0..sets).map(move |set| (column, set))) {
                    for i in 0..BLOCK {
                        let c = order.channel(block * BLOCK + channel(i), channels);
                        for (row, to) in (quad * 4..quad * 4 + 4).zip(&mut to) {
                            if row < height && column < width && c < channels {
                                let whole = weight(row, column, c);
                                let first = whole.clamp(-128, 127);
                                *to = (if set == 0 { first } else { whole - first }) as i8;
                            }
                        }
                    }
                }
            }
        }
        let at = |i: usize| order.channel(i / BLOCK * BLOCK + channel(i % BLOCK), channels);
        let mut ordered = AlignedVec::zeroed(blocks * BLOCK)?;
        ordered.as_mut_slice().iter_mut().enumerate().for_each(|(i, b)| {
            *b = bias.get(at(i)).copied().unwrap_or(0);
        });
        let requant = Requant::ordered(output, (channels, blocks * BLOCK), (16, true), |i| Some(at(i)))?;
        let bounds = [output.low as u8, output.high as u8].map(u8::cast_signed);
        Ok(Some(Wide {
            order,
            blocks,
            window: [height, padded],
            channels,
            double,
            weights,
            bias: ordered,
            requant,
            bounds,
            signed,
        }))
    }
}

/// Returns whether windows of this geometry are supported.
pub(super) fn takes(geo: &ConvGeometry) -> bool {
    matches!(geo.stride[1], 1 | 2) && geo.dilation[1] == 1 && padded(geo.window[1]).is_some()
}

/// Returns the width of the kernel for windows of this width.
fn padded(width: usize) -> Option<usize> {
    [3, 5, 7].into_iter().find(|kernel| width <= *kernel)
}

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
    weights: *const i8,
    bias: *const i32,
    requant: RequantPart,
    out: *mut u8,
    flip: __m512i,
    bounds: [__m512i; 2],
    signed: bool,
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
        // Columns of zeros must be inside the input, too.
        let inner = ConvGeometry { window: wide.window, ..*geo }.interior();
        for row in self.rows.clone() {
            let (image, y) = (row / geo.output[0], row % geo.output[0]);
            for block in self.blocks.clone() {
                let first = block * BLOCK;
                let start = image * geo.input[0] * geo.input[1] * wide.channels + first;
                let r = Row {
                    geo,
                    channels: wide.channels,
                    height,
                    y0: geo.origin(0, y),
                    input: self.input.as_ptr().wrapping_add(start),
                    blank: self.blank[first..].as_ptr(),
                    mask: u64::MAX >> (BLOCK - (wide.channels - first).min(BLOCK)),
                    weights: wide.weights.as_slice()[block * per_block..(block + 1) * per_block].as_ptr(),
                    bias: wide.bias.as_slice()[first..first + BLOCK].as_ptr(),
                    requant: wide.requant.part(first, BLOCK),
                    out: self.out.ptr(row * geo.output[1] * wide.channels + first),
                    flip: _mm512_set1_epi8(if self.flip { i8::MIN } else { 0 }),
                    bounds: wide.bounds.map(|b| _mm512_set1_epi8(b)),
                    signed: wide.signed,
                };
                // SAFETY: the caller meets the contract of this function.
                unsafe {
                    match (width, geo.stride[1]) {
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
        match (r.mask == u64::MAX, double) {
            (true, false) => pixels::<WIDTH, STRIDE, true, 1>(r, inner),
            (false, false) => pixels::<WIDTH, STRIDE, false, 1>(r, inner),
            (_, true) => pixels::<WIDTH, STRIDE, false, 2>(r, inner),
        }
    }
}

/// Computes all pixels of a row, of channels that are all there if `FULL`, with `SETS` weights per tap. The last run may overlap the run before it.
///
/// # Safety
/// As for [`Rows::run`].
#[inline(never)] // Each kind of window in a function of its own: one large function for all has worse registers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn pixels<const WIDTH: usize, const STRIDE: usize, const FULL: bool, const SETS: usize>(
    r: &Row<'_>,
    inner: &Range<usize>,
) {
    let width = r.geo.output[1];
    // SAFETY: the caller's contract. Runs without column checks are in the interior.
    unsafe {
        if width < RUN {
            for x in 0..width {
                run::<WIDTH, STRIDE, 1, true, FULL, SETS>(r, x);
            }
            return;
        }
        let mut x = 0;
        loop {
            let from = x.min(width - RUN);
            if inner.contains(&from) && from + RUN <= inner.end {
                run::<WIDTH, STRIDE, RUN, false, FULL, SETS>(r, from);
            } else {
                run::<WIDTH, STRIDE, RUN, true, FULL, SETS>(r, from);
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
    const FULL: bool,
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
        let (mut base, mut mask) = ([r.blank; 4], [0; 4]);
        for i in 0..rows {
            let y = r.y0 + ((quad * 4 + i) * r.geo.dilation[0]) as isize;
            if y >= 0 && (y as usize) < r.geo.input[0] {
                base[i] = r.input.wrapping_add(y as usize * line * r.channels);
                mask[i] = usize::MAX;
            }
        }
        /// A column of the input: four rows interleaved, then one tap for each pixel that covers it.
        macro_rules! column {
            ($($c:literal),*) => { $(
                if $c < (N - 1) * STRIDE + WIDTH {
                    let at = x0 + $c;
                    let inside = !EDGE || (at >= 0 && (at as usize) < line);
                    let offset = (at as usize).wrapping_mul(r.channels);
                    // SAFETY: the address is inside the input (row and column were checked), or that of padding.
                    let load = |i: usize| unsafe {
                        let p = if inside { base[i].wrapping_add(offset & mask[i]) } else { r.blank };
                        let bytes = match FULL {
                            true => _mm512_loadu_si512(p.cast()),
                            false => _mm512_maskz_loadu_epi8(r.mask, p.cast()),
                        };
                        _mm512_xor_si512(bytes, r.flip)
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
                if $k < WIDTH && $c >= $k && ahead % STRIDE == 0 && ahead / STRIDE < N {
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
    for (t, acc) in acc.iter().enumerate() {
        // SAFETY: bias and factors are those of the block. The store writes only existing channels of the block.
        unsafe {
            let bytes = finish(*acc, r.bias, &r.requant, r.bounds, r.signed);
            let to = r.out.add((x + t) * r.channels);
            if FULL {
                _mm512_storeu_si512(to.cast(), bytes)
            } else {
                _mm512_mask_storeu_epi8(to.cast(), r.mask, bytes)
            }
        }
    }
}

/// Requantizes the sums of a block.
///
/// # Safety
/// As for [`Rows::run`]; bias and factors are those of the block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn finish(
    mut y: [__m512i; 4],
    bias: *const i32,
    requant: &RequantPart,
    bounds: [__m512i; 2],
    signed: bool,
) -> __m512i {
    for (j, sums) in y.iter_mut().enumerate() {
        // SAFETY: the caller meets the contract of this function.
        *sums = unsafe {
            let sum = _mm512_add_epi32(*sums, _mm512_loadu_si512(bias.add(16 * j).cast()));
            scaled(sum, requant, 16 * j)
        };
    }
    let (low, high) = (_mm512_packs_epi32(y[0], y[1]), _mm512_packs_epi32(y[2], y[3]));
    if signed {
        let bytes = _mm512_packs_epi16(low, high);
        _mm512_min_epi8(_mm512_max_epi8(bytes, bounds[0]), bounds[1])
    } else {
        let bytes = _mm512_packus_epi16(low, high);
        _mm512_min_epu8(_mm512_max_epu8(bytes, bounds[0]), bounds[1])
    }
}

/// Interleaves the bytes of four rows, in the order of [`channel`].
///
/// # Safety
/// The processor must have AVX-512 F and BW.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn interleave([first, second, third, fourth]: [__m512i; 4]) -> [__m512i; 4] {
    let (a, b) = (_mm512_unpacklo_epi8(first, second), _mm512_unpacklo_epi8(third, fourth));
    let (c, d) = (_mm512_unpackhi_epi8(first, second), _mm512_unpackhi_epi8(third, fourth));
    [
        _mm512_unpacklo_epi16(a, b),
        _mm512_unpackhi_epi16(a, b),
        _mm512_unpacklo_epi16(c, d),
        _mm512_unpackhi_epi16(c, d),
    ]
}
