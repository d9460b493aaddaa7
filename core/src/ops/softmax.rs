//! SOFTMAX, LOG_SOFTMAX.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, read_none,
};

/// `SOFTMAX`.
pub static SOFTMAX: OpDef = OpDef {
    op: BuiltinOp::SOFTMAX,
    family: "softmax",
    read: read_softmax,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.23.0")],
};

/// `LOG_SOFTMAX`.
pub static LOG_SOFTMAX: OpDef = OpDef {
    op: BuiltinOp::LOG_SOFTMAX,
    family: "softmax",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0")],
};

/// Params of SOFTMAX.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftmaxParams {
    /// Multiplies the input.
    pub beta: f32,
}

fn read_softmax(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_softmax_options())?;
    Ok(Params::Softmax(SoftmaxParams { beta: t.beta() }))
}

/// Along the innermost dimension. 8-bit inputs may have a 16-bit output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    if input.shape.rank() == 0 {
        return Err(InferError::new("the input has no dimension to normalize along"));
    }
    let widens = matches!(input.ty, TensorType::Int8 | TensorType::UInt8)
        && cx.outputs.first().is_some_and(|o| o.ty == TensorType::Int16);
    let ty = if widens { TensorType::Int16 } else { input.ty };
    Ok(smallvec![Inferred::known(ty, input.shape.clone())])
}
