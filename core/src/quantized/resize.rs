//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: the rows and columns of the input that each output reads.

use crate::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};

/// The position of an output row or column between two of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tap<F> {
    /// The row or column at the position or before it.
    pub low: usize,
    /// The row or column at the position or after it.
    pub high: usize,
    /// The distance from `low`: in pixels as a float, in units of 1/1024 pixel as an integer.
    pub fraction: F,
}

/// Returns positions in single precision, for floats and unsigned bytes. `from` and `to` are the sizes of a dimension
/// of the input and of the output.
pub fn float_taps(
    p: &ResizeBilinearParams,
    from: usize,
    to: usize,
) -> impl ExactSizeIterator<Item = Tap<f32>> + use<> {
    let (half_pixel_centers, last) = (p.half_pixel_centers, from.saturating_sub(1));
    let scale =
        if p.align_corners && to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { from as f32 / to as f32 };
    let tap = move |i: usize| {
        let at = if half_pixel_centers { (i as f32 + 0.5) * scale - 0.5 } else { i as f32 * scale };
        let low = (at.floor().max(0.0) as usize).min(last);
        let high = (at.ceil().max(0.0) as usize).min(last);
        Tap { low, high, fraction: at - low as f32 }
    };
    (0..to).map(tap)
}

/// Returns positions with ten bits after the point, for signed integers. `from` and `to` are the sizes of a dimension
/// of the input, which must not be 0, and of the output.
pub fn fixed_taps(
    p: &ResizeBilinearParams,
    from: usize,
    to: usize,
) -> impl ExactSizeIterator<Item = Tap<i64>> + use<> {
    let half_pixel_centers = p.half_pixel_centers;
    const ONE: i64 = 1 << 10;
    let (size, last) = (from as i64, from - 1);
    let scale = if p.align_corners && to > 1 {
        let gaps = to as i64 - 1;
        (ONE * (size - 1) + gaps / 2) / gaps
    } else {
        (ONE * size + to as i64 / 2) / to as i64
    };
    let tap = move |i: usize| {
        let at = i as i64 * scale + if half_pixel_centers { scale / 2 - ONE / 2 } else { 0 };
        let low = ((at / ONE).max(0) as usize).min(last);
        let high = (((at + ONE - 1) / ONE).max(0) as usize).min(last);
        Tap { low, high, fraction: at - ONE * low as i64 }
    };
    (0..to).map(tap)
}

/// Returns the row or column of the input that each row or column of the output repeats. With `bytes`, elements have 8
/// bits.
pub fn nearest(
    p: &ResizeNearestNeighborParams,
    bytes: bool,
    from: usize,
    to: usize,
) -> impl ExactSizeIterator<Item = usize> + use<> {
    let p = p.clone();
    // TFLite's kernel for bytes finds positions in fixed point.
    let fixed = bytes && !p.align_corners && !p.half_pixel_centers;
    (0..to).map(move |i| if fixed { nearest_fixed(i, from, to) } else { nearest_float(&p, i, from, to) })
}

fn nearest_float(p: &ResizeNearestNeighborParams, i: usize, from: usize, to: usize) -> usize {
    let scale =
        if p.align_corners && to > 1 { (from - 1) as f32 / (to - 1) as f32 } else { from as f32 / to as f32 };
    let at = (i as f32 + if p.half_pixel_centers { 0.5 } else { 0.0 }) * scale;
    let at = if p.align_corners { at.round() } else { at.floor() };
    (at as usize).min(from - 1)
}

/// Finds the position by a scale with sixteen bits after the point, rounded up.
fn nearest_fixed(i: usize, from: usize, to: usize) -> usize {
    let scale = (from << 16) / to + 1;
    ((i * scale) >> 16).min(from - 1)
}
