//! DEPTH_TO_SPACE, SPACE_TO_DEPTH.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, no_arithmetic,
    options,
};

ops! {
    DEPTH_TO_SPACE {
        codec: DepthToSpaceParams::CODEC,
        infer: infer_depth_to_space,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.1.0"), (2, "2.5.0")],
    }

    SPACE_TO_DEPTH {
        codec: SpaceToDepthParams::CODEC,
        infer: infer_space_to_depth,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0"), (2, "1.14.0")],
    }
}

options! {
    /// Params of DEPTH_TO_SPACE.
    DepthToSpace(DepthToSpaceParams) in BuiltinOptions::DepthToSpaceOptions(builtin_options_as_depth_to_space_options, DepthToSpaceOptionsArgs) as TfLiteDepthToSpaceParams {
        /// Height and width of a block.
        block_size: i32;
    }
}

options! {
    /// Params of SPACE_TO_DEPTH.
    SpaceToDepth(SpaceToDepthParams) in BuiltinOptions::SpaceToDepthOptions(builtin_options_as_space_to_depth_options, SpaceToDepthOptionsArgs) as TfLiteSpaceToDepthParams {
        /// Height and width of a block.
        block_size: i32;
    }
}

/// Input `[batch, height, width, block · block · channels]`, output `[batch, height · block, width · block, channels]`.
fn infer_depth_to_space(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let block = block(cx.params::<DepthToSpaceParams>()?.block_size)?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let error = || {
        InferError::new(format!(
            "{} does not unfold into blocks of {block}",
            [n, h, w, c].map(|d| d.to_string()).join("x")
        ))
    };
    let (h, w) = (h.checked_mul(block).ok_or_else(error)?, w.checked_mul(block).ok_or_else(error)?);
    match block.checked_mul(block) {
        Some(area) if c % area == 0 => Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h, w, c / area])]),
        _ => Err(error()),
    }
}

/// Input `[batch, height · block, width · block, channels]`, output `[batch, height, width, block · block · channels]`.
fn infer_space_to_depth(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let block = block(cx.params::<SpaceToDepthParams>()?.block_size)?;
    let [n, h, w, c] = cx.shape_of_rank(0, "the input")?;
    let deep = block.checked_mul(block).and_then(|area| c.checked_mul(area));
    match deep {
        Some(deep) if h % block == 0 && w % block == 0 => {
            Ok(smallvec![Inferred::known(cx.input(0)?.ty, [n, h / block, w / block, deep])])
        }
        _ => Err(InferError::new(format!("{h}x{w} does not divide into blocks of {block}"))),
    }
}

fn block(size: i32) -> Result<usize, InferError> {
    usize::try_from(size)
        .ok()
        .filter(|&b| b > 0)
        .ok_or_else(|| InferError::new(format!("block size {size} is not positive")))
}

/// Version 2 added 8-bit.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}
