//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};

use super::prelude::*;

pub(super) const OP_KINDS: OpKinds = &[(OpKind::MOVED, &[Op::RESIZE_NEAREST_NEIGHBOR])];

pub(super) fn cases(out: &mut Vec<Case>) {
    for ty in [Float32, Int8, UInt8, Int16] {
        for (size, shape) in
            [([6, 8], [1, 3, 4, 2]), ([2, 3], [2, 5, 7, 3]), ([5, 7], [1, 1, 2, 4]), ([3, 3], [1, 3, 3, 1])]
        {
            for (align_corners, half_pixel_centers) in [(false, false), (true, false), (false, true)] {
                let inputs = [x(ty, &shape).auto(), list(&size)];
                let detail = format!(
                    "{}x{}_{}{}",
                    size[0],
                    size[1],
                    u8::from(align_corners),
                    u8::from(half_pixel_centers)
                );
                let bilinear = ResizeBilinearParams::default()
                    .align_corners(align_corners)
                    .half_pixel_centers(half_pixel_centers);
                let nearest = ResizeNearestNeighborParams::default()
                    .align_corners(align_corners)
                    .half_pixel_centers(half_pixel_centers);
                out.push(
                    Case::new(Op::RESIZE_BILINEAR, bilinear, inputs.clone()).auto(ty).detail(detail.clone()),
                );
                out.push(Case::new(Op::RESIZE_NEAREST_NEIGHBOR, nearest, inputs).auto(ty).detail(detail));
            }
        }
    }
    for ty in [Float16, BFloat16, Int32, UInt16, UInt32, Bool] {
        let params = ResizeNearestNeighborParams::default().align_corners(false).half_pixel_centers(false);
        let inputs = [x(ty, &[1, 3, 4, 2]), list(&[6, 3])];
        out.push(Case::new(Op::RESIZE_NEAREST_NEIGHBOR, params, inputs));
    }
}
