//! SPARSE_TO_DENSE.

use smallvec::smallvec;

use super::{
    InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, no_arithmetic,
    options, size_from,
};
use crate::types::Shape;

ops! {
    SPARSE_TO_DENSE {
        codec: SparseToDenseParams::CODEC,
        infer,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.9.0"), (2, "1.14.0"), (3, "1.15.0")],
    }
}

options! {
    /// Params of SPARSE_TO_DENSE.
    SparseToDense(SparseToDenseParams) in BuiltinOptions::SparseToDenseOptions(builtin_options_as_sparse_to_dense_options, SparseToDenseOptionsArgs) as TfLiteSparseToDenseParams {
        /// Whether indices are to be sorted and without repetition. No runtime checks it.
        validate_indices: bool;
    }
}

/// Values at indices of a tensor that otherwise has one default. Indices are `[]` or `[count]` into a vector, or
/// `[count, rank]`; the further inputs are the shape `[rank]` of the output, a value `[]` for all indices or values
/// `[count]`, and the default.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(4..=4, 1)?;
    let (indices, values, default) = (cx.input(0)?, cx.input(2)?, cx.input(3)?);
    if !matches!(indices.ty, TensorType::Int32 | TensorType::Int64) {
        return Err(InferError::new(format!("indices must be INT32 or INT64, got {}", indices.ty)));
    }
    if values.ty != default.ty || default.shape.elements() != 1 {
        let text = format!("a default of {} {} for values of {}", default.ty, default.shape, values.ty);
        return Err(InferError::new(text));
    }
    let [rank] = cx.shape_of_rank(1, "the output's shape")?;
    let fits = match *indices.shape.dims() {
        [] => rank == 1 && one_each(values.shape, 1),
        [count] => rank == 1 && one_each(values.shape, count),
        [count, depth] => rank == depth && one_each(values.shape, count),
        _ => false,
    };
    if !fits {
        return Err(InferError::new(format!(
            "indices {} and values {} do not fit an output of rank {rank}",
            indices.shape, values.shape
        )));
    }
    let Some(sizes) = cx.input(1)?.integers()? else { return cx.data_dependent(values.ty) };
    let shape = sizes.iter().map(|&n| size_from(n, "an output size")).collect::<Result<Shape, _>>()?;
    Ok(smallvec![Inferred::known(values.ty, shape)])
}

/// Returns whether there is one value for all indices, or one for each of `count`.
fn one_each(values: &Shape, count: usize) -> bool {
    matches!(*values.dims(), []) || *values.dims() == [count]
}

/// Types of values were added one after the other.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int64, UInt8};
    lowest_with(&[(2, s.input_is(2, &[Int64])), (3, s.input_is(2, &[Int8, UInt8]))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, refused};

    #[test]
    fn indices_values_and_shape_agree() {
        let float = TensorType::Float32;
        let inputs = |indices: &[usize], shape: &[i32], values: &[usize]| {
            let indices = T::new(TensorType::Int64, indices);
            [indices, T::list(shape), T::new(float, values), T::new(float, &[1])].map(Some)
        };
        let params = || Params::SparseToDense(SparseToDenseParams::default());
        let gives = |indices: &[usize], shape: &[i32], values: &[usize], want: &[usize]| {
            gives(&SPARSE_TO_DENSE, params(), &inputs(indices, shape, values), float, want);
        };
        gives(&[], &[7], &[], &[7]);
        gives(&[3], &[7], &[3], &[7]);
        gives(&[3, 2], &[7, 5], &[], &[7, 5]);
        gives(&[0, 5], &[1, 2, 3, 4, 5], &[0], &[1, 2, 3, 4, 5]);
        let refused = |indices: &[usize], shape: &[i32], values: &[usize], text| {
            refused(&SPARSE_TO_DENSE, params(), &inputs(indices, shape, values), 1, text);
        };
        refused(&[3], &[7, 5], &[3], "do not fit an output of rank 2");
        refused(&[3, 2], &[7, 5], &[2], "values [2] do not fit");
        refused(&[3, 2, 1], &[7, 5], &[3], "indices [3, 2, 1]");
        refused(&[3], &[-7], &[3], "-7 is negative");
    }
}
