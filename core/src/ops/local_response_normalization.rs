//! LOCAL_RESPONSE_NORMALIZATION.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, Options, Params, ReadError};

/// `LOCAL_RESPONSE_NORMALIZATION`.
pub static LOCAL_RESPONSE_NORMALIZATION: OpDef = OpDef {
    op: BuiltinOp::LOCAL_RESPONSE_NORMALIZATION,
    family: "local_response_normalization",
    read: read_local_response_normalization,
    infer,
    history: &[(1, "1.5.0")],
};

/// Params of LOCAL_RESPONSE_NORMALIZATION.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalResponseNormalizationParams {
    /// How many neighbours on either side are summed.
    pub radius: i32,
    /// Added to the sum.
    pub bias: f32,
    /// What the sum of squares is multiplied by.
    pub alpha: f32,
    /// The power that values are divided by.
    pub beta: f32,
}

fn read_local_response_normalization(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_local_response_normalization_options())?;
    Ok(Params::LocalResponseNormalization(LocalResponseNormalizationParams {
        radius: t.radius(),
        bias: t.bias(),
        alpha: t.alpha(),
        beta: t.beta(),
    }))
}

/// `[batch, height, width, channels]`: each value is divided by a power of what its neighbours along the channels sum
/// up to.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    cx.shape_of_rank::<4>(0, "the input")?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
