//! SOFTMAX, LOG_SOFTMAX.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, options,
    per_output,
};
use crate::schema::BuiltinOptions;

ops! {
    SOFTMAX {
        codec: SoftmaxParams::CODEC,
        infer,
        min_version,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.23.0")],
    }

    LOG_SOFTMAX {
        codec: Codec::empty(BuiltinOptions::LogSoftmaxOptions),
        infer,
        min_version: min_version_log,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0")],
    }
}

options! {
    /// Params of SOFTMAX.
    Softmax(SoftmaxParams) in BuiltinOptions::SoftmaxOptions(builtin_options_as_softmax_options, SoftmaxOptionsArgs) as TfLiteSoftmaxParams {
        /// Multiplies the input.
        beta: f32;
    }
}

/// The input, normalized along the innermost dimension. 8-bit inputs may have a 16-bit output.
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

/// Versions added 8-bit, 16-bit and float16, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float16, Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16])), (4, s.input_is(0, &[Float16]))])
}

/// Version 2 added 8-bit.
fn min_version_log(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}
