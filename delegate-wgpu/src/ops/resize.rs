//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::resize::{Resize, Spec};

use super::GpuOp;
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::RESIZE_BILINEAR, max_version: 4, lower },
    GpuOp { op: BuiltinOp::RESIZE_NEAREST_NEIGHBOR, max_version: 4, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let (op, align_corners, half_pixel_centers) = match cx.node().op().builtin() {
        Some(BuiltinOp::RESIZE_BILINEAR) => {
            let p: &ResizeBilinearParams = cx.params()?;
            (Resize::Bilinear, p.align_corners, p.half_pixel_centers)
        }
        _ => {
            let p: &ResizeNearestNeighborParams = cx.params()?;
            (Resize::Nearest, p.align_corners, p.half_pixel_centers)
        }
    };
    let (input, output) = (cx.input(0)?, cx.real_output(0)?);
    let (shape, [_, height, width, _]) = (cx.shape4(input)?, cx.shape4(output)?);
    let spec = Spec { op, input: shape, size: [height, width], align_corners, half_pixel_centers };
    cx.push(spec, &[input], output)
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
            Params::ResizeBilinear(ResizeBilinearParams { align_corners, half_pixel_centers })
        };
        let op = BuiltinOp::RESIZE_BILINEAR;
        check(op, 1, bilinear(false, false), &inputs, &[row([1.0, 2.0, 3.0, 3.0])]);
        check(op, 3, bilinear(false, true), &inputs, &[row([1.0, 1.5, 2.5, 3.0])]);
        check(op, 1, bilinear(true, false), &inputs, &[row([1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0])]);
        let params = ResizeNearestNeighborParams { align_corners: false, half_pixel_centers: false };
        let op = BuiltinOp::RESIZE_NEAREST_NEIGHBOR;
        check(op, 1, Params::ResizeNearestNeighbor(params), &inputs, &[row([1.0, 1.0, 3.0, 3.0])]);
    }
}
