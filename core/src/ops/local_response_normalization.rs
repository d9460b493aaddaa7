//! LOCAL_RESPONSE_NORMALIZATION.

use smallvec::smallvec;

use super::{InferContext, InferResult, Inferred, OpSignature, always_1, options};

ops! {
    LOCAL_RESPONSE_NORMALIZATION {
        codec: LocalResponseNormalizationParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds,
        history: &[(1, "1.5.0")],
    }
}

options! {
    /// Params of LOCAL_RESPONSE_NORMALIZATION.
    LocalResponseNormalization(LocalResponseNormalizationParams) in BuiltinOptions::LocalResponseNormalizationOptions(builtin_options_as_local_response_normalization_options, LocalResponseNormalizationOptionsArgs) as TfLiteLocalResponseNormParams {
        /// The number of neighbours on either side that are summed.
        radius: i32;
        /// Added to the sum.
        bias: f32;
        /// The factor of the sum of squares.
        alpha: f32;
        /// The exponent of the divisor.
        beta: f32;
    }
}

/// `[batch, height, width, channels]`: each value is divided by a power of the sum of the squares of its neighbours
/// along the channels.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    cx.shape_of_rank::<4>(0, "the input")?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    let radius =
        s.params::<LocalResponseNormalizationParams>().map_or(0, |p| u64::from(p.radius.unsigned_abs()));
    let channels = s.outputs.first().and_then(|o| o.shape.last()).map_or(1, |&n| n as u64);
    s.output_elements().saturating_mul((2 * radius + 1).min(channels.max(1)))
}
