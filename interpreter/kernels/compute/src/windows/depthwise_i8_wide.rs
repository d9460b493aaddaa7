//! Operands of DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, packed in blocks of 64 bytes, and the code that both
//! orders of blocks share.
//!
//! Interleaving the bytes of four input rows takes eight instructions for 64 channels. It permutes the channels, and
//! packing the results inverts the permutation. Weights, bias and factors are stored in the permuted order.

use std::arch::x86_64::*;

use crate::base::buffer::AlignedVec;
use crate::base::error::{Result, product};
use crate::base::requant::{ANY_SUM, OutputQuant, Records, Requant, RequantPart};
use crate::matmul::geometry::{ConvGeometry, DepthwiseFilter};
use crate::simd::int8::scaled;

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// Maximum number of bytes of a row that the windows of a block read, if they have several rows.
pub(super) const REACH: usize = 1024;

/// Maximum number of blocks with separate weights.
const MAX_PHASES: usize = 16;

/// Number of channels that a block of 64 bytes may begin with: a multiple of 64 modulo `channels`.
fn phases(channels: usize) -> usize {
    let twos = 1 << channels.trailing_zeros().min(BLOCK.trailing_zeros());
    channels / twos
}

/// Returns whether parts of rows support windows of this geometry.
fn row_takes(geo: &ConvGeometry) -> bool {
    let channels = geo.in_channels;
    channels > 0
        && phases(channels) <= MAX_PHASES
        && matches!(geo.stride[1], 1 | 2)
        && reach(geo).is_some_and(|reach| reach <= REACH || geo.window[0] == 1)
}

/// Number of bytes of a row that the windows of a block read.
fn reach(geo: &ConvGeometry) -> Option<usize> {
    let pixels = (geo.window[1] - 1).checked_mul(geo.dilation[1])?;
    pixels.checked_mul(geo.in_channels)?.checked_add(BLOCK)
}

/// The channel at position `i` of a block's order.
fn channel(i: usize) -> usize {
    let (vector, lane, c) = (i / 16, i % 16 / 4, i % 4);
    16 * lane + 4 * vector + c
}

/// The contents of the bytes of a block.
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
        let one_row = geo.window[0] == 1 && geo.window[1] > 1;
        match (channels_take(geo), row_takes(geo)) {
            // Parts of rows multiply four columns of a single row at a time, rather than one.
            (_, true) if one_row => Some(Order::Row),
            (true, true) if used * apart as f32 > 0.7 => Some(Order::Channels),
            (_, true) => Some(Order::Row),
            (true, false) => Some(Order::Channels),
            (false, false) => None,
        }
    }

    /// Returns whether an order supports windows of this geometry.
    pub(super) fn takes(self, geo: &ConvGeometry) -> bool {
        match self {
            Order::Channels => channels_take(geo),
            Order::Row => row_takes(geo),
        }
    }

    /// Number of blocks.
    fn blocks(self, channels: usize) -> usize {
        match self {
            Order::Channels => channels.div_ceil(BLOCK),
            Order::Row => phases(channels),
        }
    }

    /// The channel of a byte if blocks are consecutive.
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
    /// Height and width of the taps, which are multiplied four at a time. Missing columns of the filter, at the right,
    /// have weights of zero.
    pub(super) window: [usize; 2],
    /// Whether a window of a single row is packed as one of a single column. `window` then refers to that column.
    pub(super) turned: bool,
    pub(super) channels: usize,
    /// Whether there are two weights for each tap, whose sum is the weight: minus its zero point it may need nine bits.
    pub(super) double: bool,
    /// For each block, for each four rows of the window, for each column, for each weight of a tap: `[channel][4]`.
    pub(super) weights: AlignedVec<i8>,
    pub(super) bias: AlignedVec<i32>,
    pub(super) requant: Requant,
    /// Bounds of the output as bytes.
    pub(super) bounds: [i8; 2],
    /// Whether the output is signed.
    pub(super) signed: bool,
}

impl Wide {
    /// Packs `weight(row, column, channel)`, from -255 to 255, and `bias[channel]`. `None` if the window or the output
    /// is not supported, or a weight is 255, which is not the sum of two signed bytes.
    pub(super) fn pack(
        order: Order,
        filter: &DepthwiseFilter,
        weight: impl Fn(usize, usize, usize) -> i32,
        bias: &[i32],
        output: &OutputQuant<'_>,
    ) -> Result<Option<Self>> {
        let channels = filter.channels;
        let turned = order == Order::Row && filter.window[0] == 1;
        let [height, width] = if turned { [filter.window[1], 1] } else { filter.window };
        let weight = |row: usize, column: usize, c: usize| {
            if turned { weight(column, row, c) } else { weight(row, column, c) }
        };
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
        if double && all.clone().any(|(y, x, c)| weight(y, x, c) > 2 * i32::from(i8::MAX)) {
            return Ok(None);
        }
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
        let requant = Requant::ordered(
            output,
            (channels, blocks * BLOCK),
            (16, Records::Wide),
            |i| Some(at(i)),
            |_| ANY_SUM,
        )?;
        let bounds = [output.low as u8, output.high as u8].map(u8::cast_signed);
        Ok(Some(Wide {
            order,
            blocks,
            window: [height, padded],
            turned,
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

/// Returns whether blocks of channels support windows of this geometry.
fn channels_take(geo: &ConvGeometry) -> bool {
    matches!(geo.stride[1], 1 | 2) && geo.dilation[1] == 1 && padded(geo.window[1]).is_some()
}

/// Returns the width of the kernel for windows of this width; `None` if they are wider than every kernel.
fn padded(width: usize) -> Option<usize> {
    [3, 5, 7].into_iter().find(|kernel| width <= *kernel)
}

/// Number of [`Lines`] kept for an output row. Further lines of longer windows are computed when they are read.
pub(super) const KEPT: usize = 2;

/// The rows of an image that four rows of a window read. The byte at `offset` of row `i` is at `base[i] + (offset & mask[i])`:
/// the mask is 0 for rows outside of the image, which read padding.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub(super) base: [*const u8; 4],
    pub(super) mask: [usize; 4],
}

impl Lines {
    /// Lines that read padding.
    pub(super) fn blank(blank: *const u8) -> Self {
        Lines { base: [blank; 4], mask: [0; 4] }
    }

    /// Lines of the rows from `first` on of a window of `height` rows that begins at row `y0` of the image.
    #[inline]
    pub(super) fn new(
        (geo, channels): (&ConvGeometry, usize),
        (image, blank): (*const u8, *const u8),
        y0: isize,
        (first, height): (usize, usize),
    ) -> Self {
        let mut lines = Self::blank(blank);
        for i in 0..height.saturating_sub(first).min(4) {
            let y = y0 + ((first + i) * geo.dilation[0]).cast_signed();
            if y >= 0 && y.cast_unsigned() < geo.input[0] {
                lines.base[i] = image.wrapping_add(y.cast_unsigned() * geo.input[1] * channels);
                lines.mask[i] = usize::MAX;
            }
        }
        lines
    }

    /// The lines that are kept for an output row: arguments as for [`Lines::new`].
    ///
    /// Not inlined: the compiler would compute addresses for each block, in vectors, which the loads then wait for.
    #[inline(never)]
    pub(super) fn kept(
        shape: (&ConvGeometry, usize),
        images: (*const u8, *const u8),
        y0: isize,
        height: usize,
    ) -> [Self; KEPT] {
        let mut kept = [Self::blank(images.1); KEPT];
        for (quad, lines) in kept.iter_mut().enumerate().take(height.div_ceil(4)) {
            *lines = Lines::new(shape, images, y0, (quad * 4, height));
        }
        kept
    }

    /// The address of a byte of line `i`.
    #[inline(always)]
    pub(super) fn at(&self, i: usize, offset: usize) -> *const u8 {
        self.base[i].wrapping_add(offset & self.mask[i])
    }
}

/// Requantizes the sums of a block.
///
/// # Safety
/// The processor must have AVX-512 F, BW, DQ, VL and VNNI; bias and factors are those of the block.
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
/// The processor must have AVX-512 F, BW, DQ, VL and VNNI.
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
