//! Fusions of marked composites, by the names that converters and authors use.

use std::sync::Arc;

use super::composite::CompositeFusion;

mod activations;
mod attention;
mod embedding;
mod l2_norm;
mod lstm;
mod normalization;

pub use activations::{Gelu, HardSwish, Softmax};
pub use attention::Attention;
pub use delegraph_kernels::custom::names;
pub use embedding::EmbeddingLookup;
pub use l2_norm::L2Norm;
pub(crate) use lstm::HYBRID;
pub use lstm::{Lstm, LstmLayout};
pub use normalization::{Normalization, NormalizationKind};

/// Returns all fusions that produce builtin ops.
pub(super) fn all() -> Vec<Arc<dyn CompositeFusion>> {
    let mut all: Vec<Arc<dyn CompositeFusion>> = vec![
        Arc::new(EmbeddingLookup::new("embedding_lookup")),
        Arc::new(EmbeddingLookup::new("odml.embedding_lookup")),
        Arc::new(L2Norm::new("odml.l2_norm")),
        Arc::new(L2Norm::new("l2_norm")),
        Arc::new(Gelu::new("aten.gelu.default")),
        Arc::new(Gelu::new("odml.gelu")),
        Arc::new(Gelu::new("gelu")),
        Arc::new(HardSwish::new("aten.hardswish.default")),
        Arc::new(Softmax::new("odml.softmax")),
    ];
    all.extend(recurrent(false));
    all
}

/// Returns the fusions of recurrent layers.
pub(super) fn recurrent(hybrid: bool) -> impl Iterator<Item = Arc<dyn CompositeFusion>> {
    let layers = [
        ("keras.lstm", LstmLayout::Keras),
        ("lstm", LstmLayout::Keras),
        ("onnx.LSTM", LstmLayout::Onnx),
        ("aten.lstm.input", LstmLayout::Torch),
    ];
    layers.into_iter().map(move |(name, layout)| Arc::new(Lstm::new(name, layout).with_hybrid(hybrid)) as _)
}

/// Returns whether a composite of this name is the result of a recurrent fusion, of this run or of an earlier one.
/// `is_fusion` returns whether a name is that of a fusion.
pub(super) fn is_fused(name: &str, is_fusion: &dyn Fn(&str) -> bool) -> bool {
    let fused = name.strip_suffix(lstm::FUSED);
    fused.is_some_and(|name| is_fusion(name) || recurrent(false).any(|fusion| fusion.name() == name))
}

/// Returns the fusions that produce custom ops of this project.
pub(super) fn custom() -> Vec<Arc<dyn CompositeFusion>> {
    vec![
        Arc::new(Normalization::new("odml.group_norm", NormalizationKind::Group)),
        Arc::new(Normalization::new("odml.layer_norm", NormalizationKind::Layer)),
        Arc::new(Normalization::new("odml.rms_norm", NormalizationKind::RootMeanSquare)),
        Arc::new(Attention::new("odml.scaled_dot_product_attention")),
    ]
}
