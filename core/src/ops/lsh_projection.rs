//! LSH_PROJECTION.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, LshProjectionType, OpSignature, TensorType, always_1,
    expect_shape, options,
};

ops! {
    LSH_PROJECTION {
        codec: LshProjectionParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds,
        history: &[(1, "1.5.0")],
    }
}

options! {
    /// Params of LSH_PROJECTION.
    LshProjection(LshProjectionParams) in BuiltinOptions::LSHProjectionOptions(builtin_options_as_lshprojection_options, LSHProjectionOptionsArgs) as TfLiteLSHProjectionParams {
        /// Whether the bits of a hash are a number (`Sparse`) or one output each (`Dense`).
        type_: LshProjectionType;
    }
}

/// Seeds `[hashes, bits]`, items `[items, …]`, optionally the items' weights `[items]`: a number per hash, or per bit.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let [hashes, bits] = cx.shape_of_rank(0, "the seeds")?;
    let Some(&items) = cx.input(1)?.shape.first().filter(|&&items| items > 0) else {
        return Err(InferError::new(format!("there are no items in the shape {}", cx.input(1)?.shape)));
    };
    if bits > 32 {
        return Err(InferError::new(format!("a hash of {bits} bits; at most 32 are supported")));
    }
    if cx.optional(2).is_some() {
        expect_shape(cx, 2, &[items])?;
    }
    let numbers = match cx.params::<LshProjectionParams>()?.type_ {
        LshProjectionType::Sparse => Some(hashes),
        LshProjectionType::Dense => hashes.checked_mul(bits),
        LshProjectionType::Unknown => return Err(InferError::new("the type of projection is unknown")),
    };
    let numbers = numbers.ok_or_else(|| InferError::new(format!("{hashes} hashes of {bits} bits")))?;
    Ok(smallvec![Inferred::known(TensorType::Int32, [numbers])])
}

/// Each item is hashed for each bit.
fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    let items = s.input(1).and_then(|t| t.shape.first()).map_or(0, |&n| n as u64);
    s.input_elements(0).saturating_mul(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, refused};

    #[test]
    fn a_number_per_hash_or_per_bit() {
        let params = |type_| Params::from(LshProjectionParams::default().type_(type_));
        let inputs = |seeds: &[usize], items: &[usize], weights: &[usize]| {
            [
                Some(T::new(TensorType::Float32, seeds)),
                Some(T::new(TensorType::Int32, items)),
                Some(T::new(TensorType::Float32, weights)),
            ]
        };
        let (sparse, dense) = (LshProjectionType::Sparse, LshProjectionType::Dense);
        let good = inputs(&[3, 2], &[5, 4], &[5]);
        gives(&LSH_PROJECTION, params(sparse), &good, TensorType::Int32, &[3]);
        gives(&LSH_PROJECTION, params(dense), &good[..2], TensorType::Int32, &[6]);
        let refuse = |ty, inputs: &[Option<T>], text| refused(&LSH_PROJECTION, params(ty), inputs, 1, text);
        refuse(LshProjectionType::Unknown, &good, "unknown");
        refuse(sparse, &inputs(&[3, 33], &[5], &[5]), "a hash of 33 bits");
        refuse(sparse, &inputs(&[3], &[5], &[5]), "must have rank 2");
        refuse(sparse, &inputs(&[3, 2], &[], &[5]), "no items");
        refuse(sparse, &inputs(&[3, 2], &[0], &[0]), "no items");
        refuse(sparse, &inputs(&[3, 2], &[5], &[4]), "input 2 has the shape [4], expected [5]");
    }
}
