//! RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError, size_from,
};

/// `RESIZE_BILINEAR`.
pub static RESIZE_BILINEAR: OpDef = OpDef {
    op: BuiltinOp::RESIZE_BILINEAR,
    family: "resize",
    read: read_resize_bilinear,
    infer: infer_bilinear,
    history: &[(1, "1.7.0"), (2, "1.14.0"), (3, "2.2.0"), (4, "2.5.0")],
};

/// `RESIZE_NEAREST_NEIGHBOR`.
pub static RESIZE_NEAREST_NEIGHBOR: OpDef = OpDef {
    op: BuiltinOp::RESIZE_NEAREST_NEIGHBOR,
    family: "resize",
    read: read_resize_nearest_neighbor,
    infer: infer_nearest,
    history: &[(1, "1.13.1"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.4.0")],
};

/// Params of RESIZE_BILINEAR.
#[derive(Debug, Clone, PartialEq)]
pub struct ResizeBilinearParams {
    /// The centers of the corner pixels of input and output coincide.
    pub align_corners: bool,
    /// Since version 3: pixels are areas, and their centers lie half a pixel from their edges.
    pub half_pixel_centers: bool,
}

fn read_resize_bilinear(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_resize_bilinear_options())?;
    Ok(Params::ResizeBilinear(ResizeBilinearParams {
        align_corners: t.align_corners(),
        half_pixel_centers: t.half_pixel_centers(),
    }))
}

/// Params of RESIZE_NEAREST_NEIGHBOR.
#[derive(Debug, Clone, PartialEq)]
pub struct ResizeNearestNeighborParams {
    /// The centers of the corner pixels of input and output coincide.
    pub align_corners: bool,
    /// Since version 3: pixels are areas, and their centers lie half a pixel from their edges.
    pub half_pixel_centers: bool,
}

fn read_resize_nearest_neighbor(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_resize_nearest_neighbor_options())?;
    Ok(Params::ResizeNearestNeighbor(ResizeNearestNeighborParams {
        align_corners: t.align_corners(),
        half_pixel_centers: t.half_pixel_centers(),
    }))
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
            "the size must be height and width, got {} numbers",
            size.len()
        )));
    };
    let (height, width) = (size_from(height, "height")?, size_from(width, "width")?);
    if [h, w, height, width].contains(&0) {
        return Err(InferError::new(format!("{h}x{w} pixels cannot be resized to {height}x{width}")));
    }
    Ok(smallvec![Inferred::known(ty, [n, height, width, c])])
}
