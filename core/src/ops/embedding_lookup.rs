//! EMBEDDING_LOOKUP.

use smallvec::smallvec;

use super::{
    BuiltinOp, Codec, InferContext, InferError, InferResult, Inferred, OpDef, OpSignature, TensorType,
    lowest_with, no_arithmetic,
};
use crate::shape::Shape;

/// `EMBEDDING_LOOKUP`.
pub static EMBEDDING_LOOKUP: OpDef = OpDef {
    op: BuiltinOp::EMBEDDING_LOOKUP,
    family: "embedding_lookup",
    codec: Codec::NONE,
    infer,
    min_version,
    multiply_adds: no_arithmetic,
    history: &[(1, "1.13.0"), (2, "1.14.0"), (3, "1.14.0"), (4, "2.18.0"), (5, "2.21.0")],
};

/// Rows of the table `[rows, …]` that the ids `[n]` name: `[n, …]`. An integer table may have a float output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let [ids] = cx.shape_of_rank(0, "the ids")?;
    let table = cx.input(1)?;
    if table.shape.rank() < 2 {
        let text = format!("the table must have rank 2 at least, got {}", table.shape);
        return Err(InferError::new(text));
    }
    // Bytes may be declared as either type of them.
    let ty = match (table.ty, cx.outputs.first().map(|o| o.ty)) {
        (_, Some(float @ (TensorType::Float32 | TensorType::Float16))) => float,
        (TensorType::UInt8, Some(TensorType::Int8)) => TensorType::Int8,
        (ty, _) => ty,
    };
    let shape: Shape = [ids].iter().chain(&table.shape[1..]).copied().collect();
    Ok(smallvec![Inferred::known(ty, shape)])
}

/// 4-bit tables and a scale per row came with version 4, 2-bit tables with version 5.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int2, Int4};
    lowest_with(&[(4, s.input_is(1, &[Int4]) || s.per_channel(1, 0)), (5, s.input_is(1, &[Int2]))])
}
