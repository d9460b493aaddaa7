//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use std::sync::Arc;

use delegraph_core::kernel::{Budget, Charged, PrepareContext};
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph_core::quantized::resize::{self, Tap, fixed_taps, float_taps};
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, moved_bits, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::RESIZE_BILINEAR, prepared(bilinear), 1..=4).add_builtin(
        BuiltinOp::RESIZE_NEAREST_NEIGHBOR,
        prepared(nearest),
        1..=4,
    );
}

fn bilinear(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<ResizeBilinearParams>()?;
    let sizes = Sizes::new(cx)?;
    let budget = &cx.budget().clone();
    match cx.input(0)?.ty() {
        TensorType::Float32 => interpolate(
            (budget, &sizes),
            |from, to| float_taps(p, from, to),
            |[a, b, c, d]: [f32; 4], y, x| {
                a * ((1.0 - y) * (1.0 - x)) + b * ((1.0 - y) * x) + c * (y * (1.0 - x)) + d * (y * x)
            },
        ),
        TensorType::UInt8 => interpolate(
            (budget, &sizes),
            |from, to| float_taps(p, from, to),
            |corners: [u8; 4], y, x| {
                let [a, b, c, d] = corners.map(f32::from);
                // Rounds by adding a half and truncating.
                (a * ((1.0 - y) * (1.0 - x)) + b * ((1.0 - y) * x) + c * (y * (1.0 - x)) + d * (y * x) + 0.5)
                    as u8
            },
        ),
        TensorType::Int8 => interpolate(
            (budget, &sizes),
            |from, to| fixed_taps(p, from, to),
            |corners: [i8; 4], y, x| mix(corners.map(i64::from), y, x) as i8,
        ),
        TensorType::Int16 => interpolate(
            (budget, &sizes),
            |from, to| fixed_taps(p, from, to),
            |corners: [i16; 4], y, x| mix(corners.map(i64::from), y, x) as i16,
        ),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

/// The weighted sum of four corners; weights have ten fractional bits.
fn mix([a, b, c, d]: [i64; 4], y: i64, x: i64) -> i64 {
    const ONE: i64 = 1 << 10;
    let sum = a * (ONE - y) * (ONE - x) + c * y * (ONE - x) + b * (ONE - y) * x + d * y * x;
    let half = if sum > 0 { 1 << 19 } else { -(1 << 19) };
    (sum + half) / (1 << 20)
}

/// Steps of a [`Pace`] per element that is computed.
const CHANNEL_STEPS: usize = 8;

/// Computes each element from its four neighbours: top left, top right, bottom left, bottom right.
fn interpolate<T: Element, F: Copy + Send + 'static, I: ExactSizeIterator<Item = Tap<F>>>(
    (budget, sizes): (&Arc<Budget>, &Sizes),
    taps: impl Fn(usize, usize) -> I,
    mix: impl Fn([T; 4], F, F) -> T + Send + 'static,
) -> Result<Invoke> {
    let Sizes { from: [height, width], to, channels } = *sizes;
    let rows = budget.collect(taps(height, to[0]))?;
    let columns = budget.collect(taps(width, to[1]))?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let (mut pixels, mut pace) = (output.chunks_exact_mut(channels.max(1)), Pace::new(cx));
        for image in input.chunks_exact((height * width * channels).max(1)) {
            for row in &rows {
                for (column, pixel) in columns.iter().zip(&mut pixels) {
                    for (piece, pixel) in pixel.chunks_mut(PIECE).enumerate() {
                        pace.spend(pixel.len().saturating_mul(CHANNEL_STEPS))?;
                        let at = |y: usize, x: usize| {
                            &image[(y * width + x) * channels + piece * PIECE..][..pixel.len()]
                        };
                        let top = at(row.low, column.low).iter().zip(at(row.low, column.high));
                        let bottom = at(row.high, column.low).iter().zip(at(row.high, column.high));
                        for ((out, (&a, &b)), (&c, &d)) in pixel.iter_mut().zip(top).zip(bottom) {
                            *out = mix([a, b, c, d], row.fraction, column.fraction);
                        }
                    }
                }
            }
        }
        Ok(())
    }))
}

fn nearest(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let Nearest { from: [height, width], rows, columns, pixel } = Nearest::new(cx)?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        let (mut pixels, mut pace) = (output.chunks_exact_mut(pixel.max(1)), Pace::new(cx));
        for image in input.chunks_exact((height * width * pixel).max(1)) {
            for y in &rows {
                for (x, out) in columns.iter().zip(&mut pixels) {
                    pace.spend((pixel / 8).saturating_add(CHANNEL_STEPS))?;
                    out.copy_from_slice(&image[(y * width + x) * pixel..][..pixel]);
                }
            }
        }
        Ok(())
    }))
}

/// The row and the column of the input that each row and column of the output repeats.
pub(crate) struct Nearest {
    /// Height and width of the input.
    pub(crate) from: [usize; 2],
    pub(crate) rows: Charged<usize>,
    pub(crate) columns: Charged<usize>,
    /// Bytes of a pixel.
    pub(crate) pixel: usize,
}

impl Nearest {
    pub(crate) fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let p = cx.params::<ResizeNearestNeighborParams>()?;
        let bits = moved_bits("input", cx.input(0)?)?;
        if bits < 8 {
            return Err(unsupported_type("input", cx.input(0)?));
        }
        let Sizes { from, to, channels } = Sizes::new(cx)?;
        let table = |d: usize| cx.budget().collect(resize::nearest(p, bits == 8, from[d], to[d]));
        let (rows, columns) = (table(0)?, table(1)?);
        Ok(Nearest { from, rows, columns, pixel: channels * bits / 8 })
    }
}

/// Heights and widths of input and output.
struct Sizes {
    from: [usize; 2],
    to: [usize; 2],
    channels: usize,
}

impl Sizes {
    fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let (input, output) = (cx.input(0)?.shape(), cx.output(0)?.shape());
        match (input.dims(), output.dims()) {
            (&[_, h, w, channels], &[_, height, width, _]) => {
                Ok(Sizes { from: [h, w], to: [height, width], channels })
            }
            _ => Err(Error::InvalidNode(format!("input {input} and output {output} must have rank 4"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn size(height: i32, width: i32) -> Option<T> {
        Some(T::new(&[2], &[height, width]).constant())
    }

    fn bilinear(align_corners: bool, half_pixel_centers: bool) -> Params {
        Params::ResizeBilinear(
            ResizeBilinearParams::default()
                .align_corners(align_corners)
                .half_pixel_centers(half_pixel_centers),
        )
    }

    #[test]
    fn interpolates() {
        let x = || Some(T::new(&[1, 1, 2, 1], &[0.0f32, 4.0]));
        for (align, half, want) in [
            (false, false, [0.0f32, 2.0, 4.0, 4.0]),
            (true, false, [0.0, 4.0 / 3.0, 8.0 / 3.0, 4.0]),
            (false, true, [0.0, 1.0, 3.0, 4.0]),
        ] {
            let (inputs, want) = ([x(), size(1, 4)], T::new(&[1, 1, 4, 1], &want));
            check(BuiltinOp::RESIZE_BILINEAR, 3, bilinear(align, half), &inputs, &[want]);
        }
        let (op, want) = (BuiltinOp::RESIZE_BILINEAR, [T::new(&[1, 1, 4, 1], &[0.0f32; 4])]);
        let e = error(op, 3, bilinear(true, true), &[x(), size(1, 4)], &want);
        assert!(e.contains("exclude each other"), "{e}");
        let e = error(op, 3, bilinear(false, true), &[x(), size(1, 0)], &want);
        assert!(e.contains("1x2 pixels cannot be resized to 1x0"), "{e}");
    }

    #[test]
    fn integers_round_to_nearest() {
        let x = Some(T::new(&[1, 2, 1, 1], &[-5i8, 6]));
        let want = T::new(&[1, 4, 1, 1], &[-5i8, -2, 3, 6]);
        check(BuiltinOp::RESIZE_BILINEAR, 3, bilinear(false, true), &[x, size(4, 1)], &[want]);
        let x = Some(T::new(&[1, 2, 1, 1], &[5u8, 16]));
        let want = T::new(&[1, 4, 1, 1], &[5u8, 11, 16, 16]);
        check(BuiltinOp::RESIZE_BILINEAR, 1, bilinear(false, false), &[x, size(4, 1)], &[want]);
    }

    #[test]
    fn repeats() {
        let x = || Some(T::new(&[1, 2, 2, 1], &[1u8, 2, 3, 4]));
        let nearest = |align_corners, half_pixel_centers| {
            Params::ResizeNearestNeighbor(
                ResizeNearestNeighborParams::default()
                    .align_corners(align_corners)
                    .half_pixel_centers(half_pixel_centers),
            )
        };
        for (align, half, want) in [
            (false, false, [1u8, 1, 2, 1, 1, 2, 3, 3, 4]),
            (true, false, [1, 2, 2, 3, 4, 4, 3, 4, 4]),
            (false, true, [1, 2, 2, 3, 4, 4, 3, 4, 4]),
        ] {
            let want = T::new(&[1, 3, 3, 1], &want);
            let op = BuiltinOp::RESIZE_NEAREST_NEIGHBOR;
            check(op, 3, nearest(align, half), &[x(), size(3, 3)], &[want]);
        }
    }
}
