//! HASHTABLE_LOOKUP.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, expect_shape, no_arithmetic,
};
use crate::types::Shape;

ops! {
    HASHTABLE_LOOKUP {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0")],
    }
}

/// Keys `[n]` to look for, sorted keys `[rows]` and values `[rows, …]`: the values `[n, …]`, zero where a key is not
/// found, and whether it was, `[n]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 2)?;
    let [lookups] = cx.shape_of_rank(0, "the lookup keys")?;
    let values = cx.input(2)?;
    let Some((&rows, inner)) = values.shape.split_first() else {
        return Err(InferError::new("the values must have at least rank 1, got []"));
    };
    expect_shape(cx, 1, &[rows])?;
    if rows == 0 && lookups > 0 {
        return Err(InferError::new("there are no values"));
    }
    let found = Inferred::known(TensorType::UInt8, [lookups]);
    if values.ty == TensorType::String && values.shape.rank() != 1 {
        return Err(InferError::new(format!("strings must have rank 1, got {}", values.shape)));
    }
    let shape: Shape = std::iter::once(&lookups).chain(inner).copied().collect();
    Ok(smallvec![Inferred::known(values.ty, shape), found])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, infer, refused};

    #[test]
    fn a_row_per_lookup() {
        let def = &HASHTABLE_LOOKUP;
        let inputs = |ty, lookups: &[usize], keys: &[usize], values: &[usize]| {
            let int = |shape| Some(T::new(TensorType::Int32, shape));
            [int(lookups), int(keys), Some(T::new(ty, values))]
        };
        let float = TensorType::Float32;
        let outputs = [float, TensorType::UInt8];
        let inferred = infer(def, Params::None, &inputs(float, &[4], &[3], &[3, 2]), &outputs).unwrap();
        let found = Inferred::known(TensorType::UInt8, [4]);
        assert_eq!(inferred.as_slice(), [Inferred::known(float, [4, 2]), found.clone()]);
        let strings = inputs(TensorType::String, &[4], &[3], &[3]);
        let inferred = infer(def, Params::None, &strings, &outputs).unwrap();
        assert_eq!(inferred.as_slice(), [Inferred::known(TensorType::String, [4]), found]);
        let refuse = |inputs: &[Option<T>], text| refused(def, Params::None, inputs, 2, text);
        refuse(&inputs(float, &[4], &[2], &[3, 2]), "input 1 has the shape [2], expected [3]");
        refuse(&inputs(float, &[4, 1], &[3], &[3, 2]), "must have rank 1");
        refuse(&inputs(float, &[4], &[3], &[]), "must have at least rank 1");
        refuse(&inputs(float, &[4], &[0], &[0, 2]), "there are no values");
        refuse(&inputs(TensorType::String, &[4], &[3], &[3, 2]), "strings must have rank 1");
    }
}
