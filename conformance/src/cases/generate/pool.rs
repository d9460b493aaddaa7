//! AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D, RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::resize::{ResizeBilinearParams, ResizeNearestNeighborParams};

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

/// A window that moves over an image.
#[derive(Debug, Clone)]
struct Pool {
    input: [usize; 4],
    window: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    activation: Activation,
}

impl Pool {
    fn random(draw: &mut Draw) -> Self {
        let mut window = draw.pair(&[1, 2, 2, 3, 3, 4, 5, 6]);
        let mut stride = draw.pair(&[1, 1, 2, 2, 3, 4]);
        let padding = draw.pick(&[Padding::Same, Padding::Valid]);
        let mut size = window.map(|w| if padding == Padding::Valid { w } else { 1 } + draw.below(9));
        if draw.chance(12) {
            // A window over the whole image.
            (window, stride) = (size, [1, 1]);
        }
        if draw.chance(8) {
            // A window larger than the image.
            size = size.map(|s| s.min(3));
            window = [5, 4];
            return Pool {
                input: [draw.size(1, 2), size[0], size[1], draw.channels()],
                window,
                stride,
                padding: Padding::Same,
                activation: draw.activation(),
            };
        }
        let input = [draw.pick(&[1, 1, 2, 3]), size[0], size[1], draw.channels()];
        Pool { input, window, stride, padding, activation: draw.activation() }
    }

    fn case(&self, draw: &mut Draw, op: Op, ty: TensorType) -> Case {
        let params = Pool2DParams::default()
            .padding(self.padding)
            .stride_h(self.stride[0] as i32)
            .stride_w(self.stride[1] as i32)
            .filter_height(self.window[0] as i32)
            .filter_width(self.window[1] as i32)
            .fused_activation_function(self.activation);
        let (scale, zero) = (draw.real(0.02, 0.12), draw.zero(ty));
        match ty {
            Float32 => Case::new(op, params, [x(ty, &self.input)]),
            Int16 => Case::new(op, params, [x(ty, &self.input).q(scale / 250.0, 0)]).q(scale / 250.0, 0),
            _ => Case::new(op, params, [x(ty, &self.input).q(scale, zero)]).q(scale, zero),
        }
    }
}

/// An image that is resized.
#[derive(Debug, Clone)]
struct Resize {
    input: [usize; 4],
    size: [usize; 2],
    align_corners: bool,
    half_pixel_centers: bool,
}

impl Resize {
    fn random(draw: &mut Draw) -> Self {
        let sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16];
        let from = draw.pair(&sizes);
        let mut size = draw.pair(&sizes);
        match draw.below(5) {
            0 => size = from.map(|s| 2 * s),
            1 => size = [3 * from[0], 2 * from[1]],
            2 => size = from.map(|s| s.div_ceil(2)),
            _ => {}
        }
        let (align_corners, half_pixel_centers) =
            draw.pick(&[(false, false), (true, false), (false, true), (false, true)]);
        let input = [draw.pick(&[1, 1, 2, 3]), from[0], from[1], draw.pick(&[1, 2, 3, 4, 5, 8, 9])];
        Resize { input, size, align_corners, half_pixel_centers }
    }

    fn case(&self, draw: &mut Draw, op: Op, ty: TensorType) -> Case {
        let &Resize { align_corners, half_pixel_centers, .. } = self;
        let params: Params = match op {
            Op::RESIZE_BILINEAR => ResizeBilinearParams::default()
                .align_corners(align_corners)
                .half_pixel_centers(half_pixel_centers)
                .into(),
            _ => ResizeNearestNeighborParams::default()
                .align_corners(align_corners)
                .half_pixel_centers(half_pixel_centers)
                .into(),
        };
        let data = x(ty, &self.input).auto();
        let size = self.size.map(|s| s as i32);
        // The size may be an input, so that the output's shape is not known while preparing.
        if draw.chance(10) {
            let shape = [self.input[0], self.size[0], self.size[1], self.input[3]];
            let inputs = [data, given(&[2], &size)];
            return Case::new(op, params, inputs).outputs([Output::new(ty, &shape)]).auto(ty);
        }
        Case::new(op, params, [data, list(&size)]).auto(ty)
    }
}

/// The number of cases of each op.
const COUNT: usize = 42;

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for op in [Op::AVERAGE_POOL_2D, Op::MAX_POOL_2D, Op::L2_POOL_2D] {
        let types: &[TensorType] =
            if op == Op::L2_POOL_2D { &[Float32] } else { &[Float32, Int8, UInt8, Int16] };
        for &ty in types {
            for i in 0..COUNT {
                let mut draw = Draw::new(seed, &format!("{op:?}{ty:?}"), i);
                let case = Pool::random(&mut draw).case(&mut draw, op, ty);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
    for op in [Op::RESIZE_BILINEAR, Op::RESIZE_NEAREST_NEIGHBOR] {
        for ty in [Float32, Float32, Int8, UInt8, Int16] {
            for i in 0..COUNT {
                let mut draw = Draw::new(seed, &format!("{op:?}{ty:?}{}", out.len()), i);
                let case = Resize::random(&mut draw).case(&mut draw, op, ty);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
}
