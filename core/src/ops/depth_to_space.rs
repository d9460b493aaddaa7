//! DEPTH_TO_SPACE, SPACE_TO_DEPTH.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, OpSignature, TensorType, lowest_with,
    no_arithmetic, options,
};

/// `DEPTH_TO_SPACE`.
pub static DEPTH_TO_SPACE: OpDef = OpDef {
    op: BuiltinOp::DEPTH_TO_SPACE,
    family: "depth_to_space",
    codec: DepthToSpaceParams::CODEC,
    infer: infer_depth_to_space,
    min_version,
    multiply_adds: no_arithmetic,
    history: &[(1, "2.1.0"), (2, "2.5.0")],
};

/// `SPACE_TO_DEPTH`.
pub static SPACE_TO_DEPTH: OpDef = OpDef {
    op: BuiltinOp::SPACE_TO_DEPTH,
    family: "depth_to_space",
    codec: SpaceToDepthParams::CODEC,
    infer: infer_space_to_depth,
    min_version,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.5.0"), (2, "1.14.0")],
};

options! {
    /// Params of DEPTH_TO_SPACE.
    DepthToSpace(DepthToSpaceParams) in BuiltinOptions::DepthToSpaceOptions(builtin_options_as_depth_to_space_options, DepthToSpaceOptionsArgs) {
        /// Height and width of a block.
        block_size: i32;
    }
}

options! {
    /// Params of SPACE_TO_DEPTH.
    SpaceToDepth(SpaceToDepthParams) in BuiltinOptions::SpaceToDepthOptions(builtin_options_as_space_to_depth_options, SpaceToDepthOptionsArgs) {
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

/// 8-bit came with version 2.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}
