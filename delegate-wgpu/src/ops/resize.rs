//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use delegraph_core::TensorType::{Float32, Int8, Int16, UInt8};
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph_core::quantized::resize::{self, Tap, fixed_taps, float_taps};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::resize::{Resize, Spec};

use super::{GpuOp, count_of, mixed_types};
use crate::graph::lowering::Lowering;
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::RESIZE_BILINEAR, 4, &[Float32, UInt8, Int16, Int8], bilinear),
    GpuOp::new(BuiltinOp::RESIZE_NEAREST_NEIGHBOR, 4, GpuOp::UNPACKED, nearest),
];

fn bilinear(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &ResizeBilinearParams = cx.params()?;
    let input = cx.any_input(0)?;
    let output = cx.output(0)?;
    let (shape, [_, height, width, _]) = (cx.shape4(input)?, cx.shape4(output)?);
    let (size, sizes) = ([height, width], [(shape[1], height), (shape[2], width)]);
    let taps: Vec<[u32; 3]> = match cx.narrow(input) {
        Some((8 | 16, true)) => taps(sizes, |from, to| fixed_taps(p, from, to), |at| at as u32)?,
        Some((8, false)) => taps(sizes, |from, to| float_taps(p, from, to), f32::to_bits)?,
        _ => {
            let (align_corners, half_pixel_centers) = (p.align_corners, p.half_pixel_centers);
            let op = Resize::Bilinear { align_corners, half_pixel_centers };
            let (input, output) = (cx.input(0)?, cx.real_output(0)?);
            return cx.push(Spec { op, input: shape, size }, &[input], output);
        }
    };
    if cx.narrow(input) != cx.narrow(output) {
        return Err(mixed_types(cx));
    }
    let op = match cx.narrow(input) {
        Some((8, true)) => Resize::Fixed,
        Some((16, true)) => Resize::FixedWide,
        _ => Resize::Unsigned,
    };
    push_by_taps(cx, Spec { op, input: shape, size }, &taps, [input, output])
}

fn nearest(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &ResizeNearestNeighborParams = cx.params()?;
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let (shape, [_, height, width, _]) = (cx.shape4(input)?, cx.shape4(output)?);
    let (size, sizes) = ([height, width], [(shape[1], height), (shape[2], width)]);
    let bytes = cx.is_bytes(input) || cx.ty(0) == Some(TensorType::Bool);
    let sources =
        |from, to| resize::nearest(p, bytes, from, to).map(|at| Tap { low: at, high: at, fraction: () });
    let taps = taps(sizes, sources, |()| 0)?;
    push_by_taps(cx, Spec { op: Resize::Nearest, input: shape, size }, &taps, [input, output])
}

/// Maximum number of rows and of columns whose positions are stored in a table.
const MAX_SIZE: u32 = 1 << 24;

/// The positions of output rows, then of columns, in the input.
fn taps<F, I: Iterator<Item = Tap<F>>>(
    sizes: [(u32, u32); 2],
    find: impl Fn(usize, usize) -> I,
    fraction: impl Fn(F) -> u32,
) -> Result<Vec<[u32; 3]>, Rejection> {
    let [(_, height), (_, width)] = sizes;
    if height.max(width) > MAX_SIZE {
        let text = format!(
            "an output of {height} x {width} pixels, at most {MAX_SIZE} rows and columns are supported"
        );
        return Err(Rejection::UnsupportedParam(text));
    }
    let found = sizes.into_iter().flat_map(|(from, to)| find(from as usize, to as usize));
    Ok(found.map(|tap| [tap.low as u32, tap.high as u32, fraction(tap.fraction)]).collect())
}

fn push_by_taps(
    cx: &mut Lowering<'_, '_, '_>,
    spec: Spec,
    taps: &[[u32; 3]],
    [input, output]: [ValueId; 2],
) -> Result<(), Rejection> {
    let rows = count_of("rows and columns", taps.len())?;
    let taps = cx.new_constant(&[rows, 3], Element::U32, taps.as_flattened());
    cx.push(spec, &[input, taps], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn twice_as_wide() {
        let inputs =
            [Some(T::new(&[1, 1, 2, 1], &[1.0_f32, 3.0])), Some(T::new(&[2], &[1_i32, 4]).constant())];
        let row = |values: [f32; 4]| T::new(&[1, 1, 4, 1], &values);
        let bilinear = |align_corners, half_pixel_centers| {
            Params::ResizeBilinear(
                ResizeBilinearParams::default()
                    .align_corners(align_corners)
                    .half_pixel_centers(half_pixel_centers),
            )
        };
        let op = BuiltinOp::RESIZE_BILINEAR;
        check(op, 1, bilinear(false, false), &inputs, &[row([1.0, 2.0, 3.0, 3.0])]);
        check(op, 3, bilinear(false, true), &inputs, &[row([1.0, 1.5, 2.5, 3.0])]);
        check(op, 1, bilinear(true, false), &inputs, &[row([1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0])]);
        let params = ResizeNearestNeighborParams::default().align_corners(false).half_pixel_centers(false);
        let op = BuiltinOp::RESIZE_NEAREST_NEIGHBOR;
        check(op, 1, Params::ResizeNearestNeighbor(params), &inputs, &[row([1.0, 1.0, 3.0, 3.0])]);
    }
}
