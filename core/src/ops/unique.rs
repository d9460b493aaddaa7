//! UNIQUE.

use smallvec::smallvec;

use super::{InferContext, InferError, InferResult, Inferred, TensorType, always_1, options, per_input};

ops! {
    UNIQUE {
        codec: UniqueParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "1.14.0")],
    }
}

options! {
    /// Params of UNIQUE.
    Unique(UniqueParams) in BuiltinOptions::UniqueOptions(builtin_options_as_unique_options, UniqueOptionsArgs) as TfLiteUniqueParams {
        /// The type of the indices: INT32 or INT64.
        idx_out_type: TensorType;
    }
}

/// The different values of a vector in the order in which they first occur, and the index of its value for each
/// element. The number of different values depends on the data.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 2)?;
    let [elements] = cx.shape_of_rank(0, "the input")?;
    let indices = cx.params::<UniqueParams>()?.idx_out_type;
    if !matches!(indices, TensorType::Int32 | TensorType::Int64) {
        return Err(InferError::new(format!("indices must be INT32 or INT64, got {indices}")));
    }
    Ok(smallvec![Inferred::data_dependent(cx.input(0)?.ty), Inferred::known(indices, [elements])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, infer, refused};

    #[test]
    fn an_index_per_element() {
        let params = |idx_out_type| Params::Unique(UniqueParams::default().idx_out_type(idx_out_type));
        let input = |shape: &[usize]| [Some(T::new(TensorType::Int8, shape))];
        let (long, byte) = (TensorType::Int64, TensorType::Int8);
        let inferred = infer(&UNIQUE, params(long), &input(&[7]), &[byte, long]).unwrap();
        assert_eq!(inferred.as_slice(), [Inferred::data_dependent(byte), Inferred::known(long, [7])]);
        refused(&UNIQUE, params(long), &input(&[7, 1]), 2, "must have rank 1");
        refused(&UNIQUE, params(byte), &input(&[7]), 2, "got INT8");
    }
}
