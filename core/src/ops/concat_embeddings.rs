//! CONCAT_EMBEDDINGS: an op of the format that no released runtime implements.

use super::{InferContext, InferResult, Inferred, always_1, no_arithmetic, options};

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

/// The op's computation was never published: the types and shapes are those of the file.
fn infer(cx: &InferContext<'_>) -> InferResult {
    Ok(cx.outputs.iter().map(|o| Inferred::known(o.ty, o.shape.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorType::Float32;
    use crate::ops::testing::{T, good};

    #[test]
    fn outputs_are_those_of_the_file() {
        let output = T::new(Float32, &[2, 3]);
        good(&CONCAT_EMBEDDINGS, ConcatEmbeddingsParams::default(), &[], &[output]);
    }
}
