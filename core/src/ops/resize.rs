//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, no_arithmetic,
    options, per_output, size_from,
};
use crate::error::counted;

ops! {
    RESIZE_BILINEAR {
        codec: ResizeBilinearParams::CODEC,
        infer: infer_bilinear,
        min_version: min_version_bilinear,
        multiply_adds: per_output,
        history: &[(1, "1.7.0"), (2, "1.14.0"), (3, "2.2.0"), (4, "2.5.0")],
    }

    RESIZE_NEAREST_NEIGHBOR {
        codec: ResizeNearestNeighborParams::CODEC,
        infer: infer_nearest,
        min_version: min_version_nearest,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.13.1"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.4.0")],
    }
}

options! {
    /// Params of RESIZE_BILINEAR.
    ResizeBilinear(ResizeBilinearParams) in BuiltinOptions::ResizeBilinearOptions(builtin_options_as_resize_bilinear_options, ResizeBilinearOptionsArgs) as TfLiteResizeBilinearParams {
        /// Whether the centers of the corner pixels of input and output coincide.
        align_corners: bool;
        /// Whether pixels are areas, whose centers are half a pixel from their edges.
        half_pixel_centers: bool, since 3;
    }
}

options! {
    /// Params of RESIZE_NEAREST_NEIGHBOR.
    ResizeNearestNeighbor(ResizeNearestNeighborParams) in BuiltinOptions::ResizeNearestNeighborOptions(builtin_options_as_resize_nearest_neighbor_options, ResizeNearestNeighborOptionsArgs) as TfLiteResizeNearestNeighborParams {
        /// Whether the centers of the corner pixels of input and output coincide.
        align_corners: bool, since 3;
        /// Whether pixels are areas, whose centers are half a pixel from their edges.
        half_pixel_centers: bool, since 3;
    }
}

/// Input `[batch, height, width, channels]`, interpolated to the height and width in input 1.
fn infer_bilinear(cx: &InferContext<'_>) -> InferResult {
    let p: &ResizeBilinearParams = cx.params()?;
    if p.align_corners && p.half_pixel_centers {
        return Err(InferError::new("align_corners and half_pixel_centers exclude each other"));
    }
    resized(cx)
}

/// Input `[batch, height, width, channels]`, each output pixel the nearest one; input 1 is the height and width.
fn infer_nearest(cx: &InferContext<'_>) -> InferResult {
    resized(cx)
}

fn resized(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let ty = cx.input(0)?.ty;
    let Some(size) = cx.input(1)?.integers()? else { return cx.data_dependent(ty) };
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let [height, width] = *size.as_slice() else {
        return Err(InferError::new(format!(
            "the size must be height and width, got {}",
            counted(size.len(), "number")
        )));
    };
    let (height, width) = (size_from(height, "height")?, size_from(width, "width")?);
    if [h, w, height, width].contains(&0) {
        return Err(InferError::new(format!("{h}x{w} pixels cannot be resized to {height}x{width}")));
    }
    Ok(smallvec![Inferred::known(ty, [n, height, width, c])])
}

/// Versions added 8-bit, pixel centers at halves and 16-bit, in this order.
fn min_version_bilinear(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    let p = s.params::<ResizeBilinearParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, p.is_some_and(|p| p.half_pixel_centers)),
        (4, s.input_is(0, &[Int16])),
    ])
}

/// Versions added 8-bit, the two ways of sampling and 16-bit, in this order.
fn min_version_nearest(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    let p = s.params::<ResizeNearestNeighborParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, p.is_some_and(|p| p.half_pixel_centers || p.align_corners)),
        (4, s.input_is(0, &[Int16])),
    ])
}
