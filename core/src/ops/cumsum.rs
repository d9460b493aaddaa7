//! CUMSUM.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError};

/// `CUMSUM`.
pub static CUMSUM: OpDef =
    OpDef { op: BuiltinOp::CUMSUM, family: "cumsum", read: read_cumsum, infer, history: &[(1, "2.4.0")] };

/// Params of CUMSUM.
#[derive(Debug, Clone, PartialEq)]
pub struct CumsumParams {
    /// Each sum leaves its own element out.
    pub exclusive: bool,
    /// Sums run from the last element to the first.
    pub reverse: bool,
}

fn read_cumsum(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_cumsum_options())?;
    Ok(Params::Cumsum(CumsumParams { exclusive: t.exclusive(), reverse: t.reverse() }))
}

/// Sums of all elements up to each one along the dimension in input 1.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, axis) = (cx.input(0)?, cx.input(1)?);
    if axis.shape.elements() != 1 || input.shape.rank() == 0 {
        return Err(InferError::new(format!("axis of shape {} for an input of {}", axis.shape, input.shape)));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
