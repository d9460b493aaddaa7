//! EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE.

use smallvec::smallvec;

use super::{
    Codec, CombinerType, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, always_1,
    expect_shape, lowest_with, no_arithmetic, options, size_from,
};
use crate::types::Shape;

ops! {
    EMBEDDING_LOOKUP {
        codec: Codec::NONE,
        infer,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.13.0"), (2, "1.14.0"), (3, "1.14.0"), (4, "2.18.0"), (5, "2.21.0")],
    }

    EMBEDDING_LOOKUP_SPARSE {
        codec: EmbeddingLookupSparseParams::CODEC,
        infer: infer_sparse,
        min_version: always_1,
        multiply_adds: multiply_adds_sparse,
        history: &[(1, "1.5.0")],
    }
}

options! {
    /// Params of EMBEDDING_LOOKUP_SPARSE.
    EmbeddingLookupSparse(EmbeddingLookupSparseParams) in BuiltinOptions::EmbeddingLookupSparseOptions(builtin_options_as_embedding_lookup_sparse_options, EmbeddingLookupSparseOptionsArgs) as TfLiteEmbeddingLookupSparseParams {
        /// The combination of weighted rows in the same place.
        combiner: CombinerType;
    }
}

/// Rows of the table `[rows, …]` that the ids `[n]` name: `[n, …]`. An integer table may have a float output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let [ids] = cx.shape_of_rank(0, "the ids")?;
    let table = cx.input(1)?;
    if table.shape.rank() < 2 {
        let text = format!("the table must have at least rank 2, got {}", table.shape);
        return Err(InferError::new(text));
    }
    // The output of a UINT8 table may be declared as INT8.
    let ty = match (table.ty, cx.outputs.first().map(|o| o.ty)) {
        (_, Some(float @ (TensorType::Float32 | TensorType::Float16))) => float,
        (TensorType::UInt8, Some(TensorType::Int8)) => TensorType::Int8,
        (ty, _) => ty,
    };
    let shape: Shape = [ids].iter().chain(&table.shape[1..]).copied().collect();
    Ok(smallvec![Inferred::known(ty, shape)])
}

/// Ids `[n]`, the position of each in a sparse tensor `[n, rank]`, the tensor's shape `[rank]`, weights `[n]`, and the
/// table `[rows, …]`: rows take the place of the sparse tensor's last dimension, `[dims but the last…, …]`.
fn infer_sparse(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 1)?;
    let [ids] = cx.shape_of_rank(0, "the ids")?;
    let [_, rank] = cx.shape_of_rank(1, "the places")?;
    expect_shape(cx, 1, &[ids, rank])?;
    expect_shape(cx, 2, &[rank])?;
    expect_shape(cx, 3, &[ids])?;
    let Some((_, inner)) = cx.input(4)?.shape.split_first().filter(|(_, inner)| !inner.is_empty()) else {
        let text = format!("the table must have at least rank 2, got {}", cx.input(4)?.shape);
        return Err(InferError::new(text));
    };
    let Some(dims) = cx.input(2)?.integers()? else { return cx.data_dependent(TensorType::Float32) };
    let mut shape = Shape::default();
    for &dim in dims.iter().take(rank.saturating_sub(1)) {
        shape.push(size_from(dim, "dimension")?);
    }
    inner.iter().for_each(|&dim| shape.push(dim));
    Ok(smallvec![Inferred::known(TensorType::Float32, shape)])
}

/// Each id's row is multiplied with its weight.
fn multiply_adds_sparse(s: &OpSignature<'_>) -> u64 {
    let rows = s.input(4).and_then(|t| t.shape.first()).map_or(1, |&n| n as u64).max(1);
    s.input_elements(0).saturating_mul(s.input_elements(4) / rows)
}

/// Version 4 added 4-bit tables and a scale per row, version 5 2-bit tables.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int2, Int4};
    lowest_with(&[(4, s.input_is(1, &[Int4]) || s.per_channel(1, 0)), (5, s.input_is(1, &[Int2]))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, infer, refused};

    #[test]
    fn sparse() {
        let def = &EMBEDDING_LOOKUP_SPARSE;
        let params = || Params::from(EmbeddingLookupSparseParams::default());
        let inputs = |ids: &[usize], places: &[usize], shape: T, table: &[usize]| {
            let new = |ty, shape| Some(T::new(ty, shape));
            let (int, float) = (TensorType::Int32, TensorType::Float32);
            [new(int, ids), new(int, places), Some(shape), new(float, &[3]), new(float, table)]
        };
        let float = TensorType::Float32;
        let good = inputs(&[3], &[3, 2], T::list(&[5, 2]), &[4, 3, 2]);
        gives(def, params(), &good, float, &[5, 3, 2]);
        let unknown = inputs(&[3], &[3, 2], T::new(TensorType::Int32, &[2]), &[4, 3, 2]);
        let inferred = infer(def, params(), &unknown, &[float]).unwrap();
        assert_eq!(inferred.as_slice(), [Inferred::data_dependent(float)]);
        let refuse = |inputs: &[Option<T>], text| refused(def, params(), inputs, 1, text);
        refuse(&inputs(&[4], &[3, 2], T::list(&[5, 2]), &[4, 3]), "input 1 has the shape [3, 2]");
        refuse(&inputs(&[3], &[3, 2], T::list(&[5]), &[4, 3]), "input 2 has the shape [1]");
        refuse(&inputs(&[3], &[3, 2], T::list(&[-5, 2]), &[4, 3]), "dimension -5 is negative");
        refuse(&inputs(&[3], &[3, 2], T::list(&[5, 2]), &[4]), "must have at least rank 2");
        refuse(&inputs(&[4], &[4, 2], T::list(&[5, 2]), &[4, 3]), "input 3 has the shape [3]");
    }
}
