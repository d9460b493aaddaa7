//! Strips: copies of the input rows of depthwise windows, whose pixels are ordered for the taps.

use crate::matmul::geometry::ConvGeometry;

/// Bytes of a block, which kernels read and compute at a time.
pub(super) const BLOCK: usize = 64;
/// Maximum number of bytes of all strips.
pub(super) const STRIPS: usize = 16 * 1024;
/// Maximum number of rows of a window.
pub(super) const MAX_ROWS: usize = 16;
/// Maximum number of bytes of pixels that are copied by a shuffle.
pub(super) const SHUFFLED: usize = 16;
/// Maximum number of blocks of a pixel in a strip, if it is copied by shuffles.
const MAX_BLOCKS: usize = 4;

/// The order of pixels in a strip. It begins with the first pixel that the first window reads.
pub(super) struct Strip {
    /// Maximum number of bytes of an output row whose windows read the strip: a multiple of [`BLOCK`].
    pub(super) part: usize,
    /// Number of groups of pixels: those whose distances from the first one have the same remainder by the stride.
    pub(super) groups: usize,
    /// Bytes from group to group.
    pub(super) group: usize,
    /// Pixels of a group after the one that the first tap reads.
    pub(super) ahead: usize,
}

impl Strip {
    /// `None` for other strides, for too many rows or channels, and if windows are so long that most of a strip would be copied
    /// again for its next part.
    pub(super) fn new(geo: &ConvGeometry, channels: usize) -> Option<Self> {
        let ([height, width], stride) = (geo.window, geo.stride[1]);
        let shuffled = is_shuffled(geo, channels);
        if !matches!(stride, 1 | 2)
            || !(1..=MAX_ROWS).contains(&height)
            || geo.in_channels == 0
            || (channels != geo.in_channels && (!shuffled || !channels.is_multiple_of(geo.in_channels)))
        {
            return None;
        }
        let dilation = if width > 1 { geo.dilation[1] } else { 0 };
        let ahead = width.checked_sub(1)?.checked_mul(dilation)? / stride;
        let groups = if dilation % stride == 1 { 2 } else { 1 };
        // A part may begin and end inside of a pixel, and copies write a block at a time.
        let more = ahead.checked_add(2)?.checked_mul(channels)?.checked_add(BLOCK)?;
        let part = (STRIPS / (groups * height)).checked_sub(more)? / BLOCK * BLOCK;
        (part >= more).then_some(Strip { part, groups, group: part + more, ahead })
    }

    /// Bytes from the first tap to tap `tap` of the same row.
    #[inline(always)]
    pub(super) fn tap(&self, geo: &ConvGeometry, channels: usize, tap: usize) -> usize {
        let (pixels, two) = (tap * geo.dilation[1], geo.stride[1] - 1);
        (pixels & two) * self.group + (pixels >> two) * channels
    }
}

/// Returns whether strips support windows of this geometry, whose output has `channels`.
pub(super) fn takes(geo: &ConvGeometry, channels: usize) -> bool {
    Strip::new(geo, channels).is_some()
}

/// Returns whether pixels are copied by shuffles.
fn is_shuffled(geo: &ConvGeometry, channels: usize) -> bool {
    (1..=SHUFFLED).contains(&geo.in_channels) && channels <= MAX_BLOCKS * BLOCK
}

/// How pixels of few channels are copied.
pub(super) struct Shuffle {
    /// Number of pixels at a time.
    pub(super) pixels: usize,
    /// Bytes from the first pixel to the first one of the next copy, in the input.
    pub(super) step: isize,
    /// For each byte of each block of a strip's pixels, the input byte, after that of the first channel.
    pub(super) from: [[u8; BLOCK]; MAX_BLOCKS],
}

impl Shuffle {
    /// `None` for pixels of too many channels.
    pub(super) fn new(geo: &ConvGeometry, channels: usize) -> Option<Self> {
        if !is_shuffled(geo, channels) {
            return None;
        }
        let (inputs, multiplier) = (geo.in_channels, channels / geo.in_channels);
        let apart = geo.stride[1] * inputs;
        // As many pixels as fit into a block, and whose bytes fit into a vector.
        let pixels = (BLOCK / channels).min((SHUFFLED - inputs) / apart + 1).max(1);
        let mut from = [[0; BLOCK]; MAX_BLOCKS];
        for (i, from) in from.as_flattened_mut().iter_mut().enumerate().take(pixels * channels) {
            *from = (i / channels * apart + i % channels / multiplier) as u8;
        }
        Some(Shuffle { pixels, step: (pixels * apart).cast_signed(), from })
    }
}
