//! L2_NORMALIZATION.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferResult, Inferred, OpSignature, TensorType, lowest_with, options,
    per_output,
};

ops! {
    L2_NORMALIZATION {
        codec: L2NormParams::CODEC,
        infer,
        min_version,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "1.14.0")],
    }
}

options! {
    /// Params of L2_NORMALIZATION.
    L2Norm(L2NormParams) in BuiltinOptions::L2NormOptions(builtin_options_as_l2_norm_options, L2NormOptionsArgs) as TfLiteL2NormParams {
        /// Applied to the result. No runtime supports an activation.
        fused_activation_function: Activation;
    }
}

/// The last dimension is scaled to length 1.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// Version 2 added 8-bit.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.output_is(0, &[Int8]))])
}
