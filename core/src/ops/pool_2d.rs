//! AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, Padding, TensorType, Window,
    always_1, lowest_with, options, windowed_output,
};

ops! {
    AVERAGE_POOL_2D {
        codec: Pool2DParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    MAX_POOL_2D {
        codec: Pool2DParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    L2_POOL_2D {
        codec: Pool2DParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds,
        history: &[(1, "1.5.0")],
    }
}

options! {
    /// Params of AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.
    Pool2D(Pool2DParams) in BuiltinOptions::Pool2DOptions(builtin_options_as_pool_2_doptions, Pool2DOptionsArgs) as TfLitePoolParams {
        /// The padding of the borders.
        padding: Padding;
        /// Columns between two windows.
        stride_w: i32;
        /// Rows between two windows.
        stride_h: i32;
        /// Columns of a window.
        filter_width: i32;
        /// Rows of a window.
        filter_height: i32;
        /// Applied to the result.
        fused_activation_function: Activation;
    }
}

/// Input and output `[batch, height, width, channels]`. Padding is not part of a window.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let p: &Pool2DParams = cx.params()?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let size = |size: i32| {
        usize::try_from(size).map_err(|_| InferError::new(format!("a window of size {size} is negative")))
    };
    let rows = Window { size: size(p.filter_height)?, stride: p.stride_h, dilation: 1 };
    let h = windowed_output(h, rows, p.padding)?;
    let columns = Window { size: size(p.filter_width)?, stride: p.stride_w, dilation: 1 };
    let w = windowed_output(w, columns, p.padding)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, c])])
}

/// Version 2 added 8-bit, version 3 16-bit.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    // A window has at most the elements of the image.
    let size = |n: i32, d: usize| {
        let extent = s.input(0).and_then(|input| input.shape.get(d)).map_or(1, |&n| n as u64);
        u64::from(n.unsigned_abs()).min(extent)
    };
    let window = s
        .params::<Pool2DParams>()
        .map_or(1, |p| size(p.filter_height, 1).saturating_mul(size(p.filter_width, 2)));
    s.output_elements().saturating_mul(window)
}
