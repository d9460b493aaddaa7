//! CONCAT_EMBEDDINGS: an op of the format that no runtime was ever released with.

use super::{BuiltinOp, InferContext, InferError, InferResult, OpDef, always_1, no_arithmetic, options};

/// `CONCAT_EMBEDDINGS`.
pub static CONCAT_EMBEDDINGS: OpDef = OpDef {
    op: BuiltinOp::CONCAT_EMBEDDINGS,
    family: "concat_embeddings",
    codec: ConcatEmbeddingsParams::CODEC,
    infer,
    min_version: always_1,
    multiply_adds: no_arithmetic,
    history: &[],
};

options! {
    /// Params of CONCAT_EMBEDDINGS.
    ConcatEmbeddings(ConcatEmbeddingsParams) in BuiltinOptions::ConcatEmbeddingsOptions(builtin_options_as_concat_embeddings_options, ConcatEmbeddingsOptionsArgs) {
        /// How many groups of columns there are.
        num_channels: i32;
        /// How many columns each group has.
        num_columns_per_channel: Vec<i32>;
        /// How long the vector is that each group's numbers stand for.
        embedding_dim_per_channel: Vec<i32>;
    }
}

/// What the op computes was never published.
fn infer(_: &InferContext<'_>) -> InferResult {
    Err(InferError::new("no runtime defines what this op computes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::refused;

    #[test]
    fn nobody_knows() {
        refused(&CONCAT_EMBEDDINGS, ConcatEmbeddingsParams::default().into(), &[], 1, "no runtime");
    }
}
