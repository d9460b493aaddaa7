//! Operands of DEPTHWISE_CONV_2D of bytes with AVX-512 VNNI, packed in blocks of 64 bytes, and the code that both
//! orders of blocks share.
//!
//! Interleaving the bytes of four input rows takes eight instructions for 64 channels. It permutes the channels, and
//! packing the results inverts the permutation. Weights, bias and factors are stored in the permuted order.

use std::arch::x86_64::*;

use crate::base::buffer::AlignedVec;
use crate::base::error::{Result, product};
use crate::base::requant::{ANY_SUM, OutputQuant, Records, Requant, RequantPart, record};
use crate::matmul::geometry::{ConvGeometry, DepthwiseFilter};
use crate::simd::int8::{Dot8, Vnni, scaled, scaled_wide};
use crate::windows::strip::{self, BLOCK};

/// Maximum number of bytes of a row that the windows of a block read.
pub(super) const REACH: usize = 1024;

/// Maximum number of blocks with separate weights.
const MAX_PHASES: usize = 16;

/// Number of channels that a block of 64 bytes may begin with: a multiple of 64 modulo `channels`.
fn phases(channels: usize) -> usize {
    let twos = 1 << channels.trailing_zeros().min(BLOCK.trailing_zeros());
    channels / twos
}

/// Returns whether parts of rows support windows of this geometry.
fn row_takes(geo: &ConvGeometry, channels: usize) -> bool {
    if channels == 0 || phases(channels) > MAX_PHASES || !matches!(geo.stride[1], 1 | 2) {
        return false;
    }
    match geo.window[0] == 1 || channels != geo.in_channels {
        true => strip::takes(geo, channels),
        false => reach(geo).is_some_and(|reach| reach <= REACH),
    }
}

/// Number of bytes of a row that the windows of a block read.
fn reach(geo: &ConvGeometry) -> Option<usize> {
    let pixels = geo.window[1].checked_sub(1)?.checked_mul(geo.dilation[1])?;
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
    /// Returns the better order for these windows and `channels` of the output; `None` if neither is supported.
    pub(super) fn best(geo: &ConvGeometry, channels: usize) -> Option<Self> {
        if channels != geo.in_channels {
            return row_takes(geo, channels).then_some(Order::Row);
        }
        let used = channels as f32 / channels.next_multiple_of(BLOCK) as f32;
        // The cost of parts of rows: they are copied, or also have the pixels between those of the output.
        let narrow = geo.output[1].saturating_mul(channels) <= 2 * BLOCK;
        let cost = match geo.stride[1] {
            // Starting a row takes longer than its blocks.
            _ if narrow => 2.0,
            1 => 1.0,
            _ if strip::takes(geo, channels) => 1.15,
            _ => 2.0,
        };
        let one_row = geo.window[0] == 1 && geo.window[1] > 1;
        // Neighbouring pixels share no columns.
        let one_column = geo.window[1] == 1 && geo.stride[1] == 1 && !narrow;
        match (channels_take(geo), row_takes(geo, channels)) {
            // Parts of rows multiply four columns of a single row at a time, rather than one.
            (_, true) if one_row || one_column => Some(Order::Row),
            (true, true) if used * cost > 0.7 => Some(Order::Channels),
            (_, true) => Some(Order::Row),
            (true, false) => Some(Order::Channels),
            (false, false) => None,
        }
    }

    /// Returns whether an order supports windows of this geometry.
    pub(super) fn takes(self, geo: &ConvGeometry, channels: usize) -> bool {
        match self {
            Order::Channels => channels_take(geo),
            Order::Row => row_takes(geo, channels),
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
    /// Whether the records of all vectors are wide.
    special: bool,
}

impl Wide {
    /// Returns whether windows of this geometry, which the order supports, read strips.
    pub(super) fn has_strips(&self, geo: &ConvGeometry) -> bool {
        let (repeated, apart) = (self.channels != geo.in_channels, geo.stride[1] == 2);
        self.turned || repeated || (apart && strip::takes(geo, self.channels))
    }

    /// Packs `weights` `[height, width, channels]`, whose bytes are signed after an exclusive or with `flip`, minus their
    /// zero point, and `bias[channel]`. `None` if the window or the output is not supported, or a weight is 255, which
    /// is not the sum of two signed bytes.
    pub(super) fn pack(
        order: Order,
        filter: &DepthwiseFilter,
        (weights, flip, zero): (&[u8], u8, i32),
        bias: &[i32],
        output: &OutputQuant<'_>,
    ) -> Result<Option<Self>> {
        let channels = filter.channels;
        let turned = order == Order::Row && filter.window[0] == 1;
        let [height, width] = if turned { [filter.window[1], 1] } else { filter.window };
        let blocks = if channels == 0 { 0 } else { order.blocks(channels) };
        let signed = output.low < 0;
        let bytes = if signed { -128..=127 } else { 0..=255 };
        let fits = bytes.contains(&output.low) && bytes.contains(&output.high);
        let padded = if order == Order::Row { Some(width) } else { padded(width) };
        let Some(padded) = padded.filter(|_| blocks > 0 && fits) else { return Ok(None) };
        let quads = height.div_ceil(4);
        let weight = |byte: u8| i32::from((byte ^ flip).cast_signed()) - zero;
        let (least, most) = weights.iter().fold((i8::MAX, i8::MIN), |(least, most), &byte| {
            let signed = (byte ^ flip).cast_signed();
            (least.min(signed), most.max(signed))
        });
        let (least, most) = (i32::from(least) - zero, i32::from(most) - zero);
        let double = least < i8::MIN.into() || most > i8::MAX.into();
        if most > 2 * i32::from(i8::MAX) {
            return Ok(None);
        }
        let sets = 1 + usize::from(double);
        let len = product("weights", &[blocks, quads, padded, sets, BLOCK, 4])?;
        let mut packed = AlignedVec::<i8>::zeroed(len)?;
        let at = |i: usize| order.channel(i / BLOCK * BLOCK + channel(i % BLOCK), channels);
        let vectors = packed.as_mut_slice().chunks_exact_mut((quads * padded * sets * BLOCK * 4).max(1));
        for (block, vectors) in vectors.enumerate() {
            let channels_of: [usize; BLOCK] = std::array::from_fn(|i| at(block * BLOCK + i));
            for (tap, weights) in weights.chunks_exact(channels).enumerate() {
                let (row, column) = (tap / width, tap % width);
                let vector = (row / 4 * padded + column) * sets * BLOCK * 4;
                let to = &mut vectors[vector..][..sets * BLOCK * 4];
                for (set, to) in to.chunks_exact_mut(BLOCK * 4).enumerate() {
                    for (to, &c) in to.chunks_exact_mut(4).zip(&channels_of) {
                        let Some(&byte) = weights.get(c) else { continue };
                        let whole = weight(byte);
                        let first = whole.clamp(-128, 127);
                        to[row % 4] = (if set == 0 { first } else { whole - first }) as i8;
                    }
                }
            }
        }
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
        let special = requant.is_special();
        let bounds = [output.low as u8, output.high as u8].map(u8::cast_signed);
        Ok(Some(Wide {
            order,
            blocks,
            window: [height, padded],
            turned,
            channels,
            double,
            weights: packed,
            bias: ordered,
            requant,
            bounds,
            signed,
            special,
        }))
    }
}

/// Returns whether blocks of channels support windows of this geometry.
fn channels_take(geo: &ConvGeometry) -> bool {
    matches!(geo.stride[1], 1 | 2) && geo.dilation[1] == 1 && padded(geo.window[1]).is_some()
}

/// Returns the width of the kernel for windows of this width; `None` if they are wider than every kernel.
fn padded(width: usize) -> Option<usize> {
    [2, 3, 5, 7].into_iter().find(|kernel| width <= *kernel)
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

/// Values of each channel in records.
const FIELDS: usize = record(Vnni::RECORDS);

/// What requantizes the sums of blocks: the same for all blocks of an output, so that it stays in registers.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    bias: *const i32,
    requant: RequantPart,
    bounds: [__m512i; 2],
    signed: bool,
    special: bool,
}

impl Finish {
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI. `wide` must outlive the result.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn new(wide: &Wide) -> Self {
        Finish {
            bias: wide.bias.as_slice().as_ptr(),
            requant: wide.requant.part(0, wide.blocks * BLOCK),
            bounds: [_mm512_set1_epi8(wide.bounds[0]), _mm512_set1_epi8(wide.bounds[1])],
            signed: wide.signed,
            special: wide.special,
        }
    }

    /// Requantizes the sums of block `block`. Inlined, so that the sums stay in registers.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, BW, DQ, VL and VNNI; the block must exist.
    #[inline(always)]
    pub(super) unsafe fn bytes(&self, mut y: [__m512i; 4], block: usize) -> __m512i {
        // SAFETY: the caller meets the contract of this function.
        unsafe {
            let first = block * BLOCK;
            let bias = self.bias.add(first);
            let records = self.requant.records.add(first * FIELDS);
            // Macros, as a loop would keep the sums in memory.
            macro_rules! each {
                ($y:ident, $j:ident => $value:expr) => {{
                    each!($y, $j => $value, 0 1 2 3);
                }};
                ($y:ident, $j:ident => $value:expr, $($i:literal)*) => {
                    $( y[$i] = {
                        const $j: usize = $i * Vnni::LANES;
                        let $y = y[$i];
                        $value
                    }; )*
                };
            }
            each!(sum, AT => _mm512_add_epi32(sum, _mm512_loadu_si512(bias.add(AT).cast())));
            if !self.special {
                each!(sum, AT => scaled(sum, &self.requant, first + AT));
            } else if self.requant.away {
                each!(sum, AT => scaled_wide::<true>(sum, records.add(AT * FIELDS)));
            } else {
                each!(sum, AT => scaled_wide::<false>(sum, records.add(AT * FIELDS)));
            }
            let (low, high) = (_mm512_packs_epi32(y[0], y[1]), _mm512_packs_epi32(y[2], y[3]));
            if self.signed {
                let bytes = _mm512_packs_epi16(low, high);
                _mm512_min_epi8(_mm512_max_epi8(bytes, self.bounds[0]), self.bounds[1])
            } else {
                let bytes = _mm512_packus_epi16(low, high);
                _mm512_min_epu8(_mm512_max_epu8(bytes, self.bounds[0]), self.bounds[1])
            }
        }
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
