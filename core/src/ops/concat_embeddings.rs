//! CONCAT_EMBEDDINGS: an op of the format that no released runtime implements.

use super::{InferContext, InferError, InferResult, always_1, no_arithmetic, options};

ops! {
    CONCAT_EMBEDDINGS {
        codec: ConcatEmbeddingsParams::CODEC,
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[],
    }
}

options! {
    /// Params of CONCAT_EMBEDDINGS.
    ConcatEmbeddings(ConcatEmbeddingsParams) in BuiltinOptions::ConcatEmbeddingsOptions(builtin_options_as_concat_embeddings_options, ConcatEmbeddingsOptionsArgs) {
        /// The number of groups of columns.
        num_channels: i32;
        /// The number of columns of each group.
        num_columns_per_channel: Vec<i32>;
        /// The length of the vector that each group's numbers represent.
        embedding_dim_per_channel: Vec<i32>;
    }
}

/// The op's computation was never published.
fn infer(_: &InferContext<'_>) -> InferResult {
    Err(InferError::new("no runtime defines this op"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::refused;

    #[test]
    fn no_runtime_defines_it() {
        refused(&CONCAT_EMBEDDINGS, ConcatEmbeddingsParams::default().into(), &[], 1, "no runtime");
    }
}
