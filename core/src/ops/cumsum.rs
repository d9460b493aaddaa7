//! CUMSUM.

use smallvec::smallvec;

use super::{InferContext, InferError, InferResult, Inferred, always_1, options, per_output};

ops! {
    CUMSUM {
        codec: CumsumParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.4.0")],
    }
}

options! {
    /// Params of CUMSUM.
    Cumsum(CumsumParams) in BuiltinOptions::CumsumOptions(builtin_options_as_cumsum_options, CumsumOptionsArgs) as TfLiteCumsumParams {
        /// Whether each sum excludes its own element.
        exclusive: bool;
        /// Whether sums run from the last element to the first.
        reverse: bool;
    }
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
