//! BUCKETIZE.

use smallvec::smallvec;

use super::{InferContext, InferError, InferResult, Inferred, TensorType, always_1, options, per_output};

ops! {
    BUCKETIZE {
        codec: BucketizeParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.8.0")],
    }
}

options! {
    /// Params of BUCKETIZE.
    Bucketize(BucketizeParams) in BuiltinOptions::BucketizeOptions(builtin_options_as_bucketize_options, BucketizeOptionsArgs) as TfLiteBucketizeParams {
        /// The boundaries between buckets, in ascending order. A value on a boundary belongs to the upper bucket.
        boundaries: Vec<f32>;
    }
}

/// For each element, the number of boundaries that are not above it.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let boundaries = &cx.params::<BucketizeParams>()?.boundaries;
    if let Some(pair) = boundaries.windows(2).find(|pair| pair[1] < pair[0]) {
        return Err(InferError::new(format!("the boundaries are not in order: {pair:?}")));
    }
    Ok(smallvec![Inferred::known(TensorType::Int32, cx.input(0)?.shape.clone())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, refused};

    #[test]
    fn boundaries_are_sorted() {
        let params = |boundaries: &[f32]| {
            Params::Bucketize(BucketizeParams::default().boundaries(boundaries.to_vec()))
        };
        let input = [Some(T::new(TensorType::Float32, &[2, 3]))];
        gives(&BUCKETIZE, params(&[-1.0, 0.5, 0.5]), &input, TensorType::Int32, &[2, 3]);
        gives(&BUCKETIZE, params(&[]), &input, TensorType::Int32, &[2, 3]);
        refused(&BUCKETIZE, params(&[0.0, 2.0, 1.0]), &input, 1, "[2.0, 1.0]");
    }
}
