//! Fusions of marked composites, by the names that converters and authors give them.

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
pub use embedding::EmbeddingLookup;
pub use l2_norm::L2Norm;
pub(crate) use lstm::HYBRID;
pub use lstm::{Lstm, LstmLayout};
pub use normalization::{Normalization, NormalizationKind};

/// Custom ops of this project, for what has no builtin op. The resolvers of this crate have kernels for them.
pub mod names {
    /// Over the last dimension: `x`, factors and terms `[channels]`; option `epsilon`.
    pub const LAYER_NORM: &str = "delegraph.layer_norm";
    /// Over groups of the last dimension and all between it and the first: as [`LAYER_NORM`], and option `num_groups`.
    pub const GROUP_NORM: &str = "delegraph.group_norm";
    /// Over the last dimension, without mean: `x`, factors `[channels]`; option `epsilon`.
    pub const RMS_NORM: &str = "delegraph.rms_norm";
    /// Queries `[batch, queries, heads, width]`, keys and values `[batch, keys, groups, width]`, what is added to the scores,
    /// `[1 or batch, 1 or heads, 1 or queries, keys]`, if anything; option `scale`.
    pub const ATTENTION: &str = "delegraph.attention";
}

/// All that make builtin ops.
pub(super) fn all() -> Vec<Arc<dyn CompositeFusion>> {
    let mut all: Vec<Arc<dyn CompositeFusion>> = vec![
        Arc::new(EmbeddingLookup("embedding_lookup")),
        Arc::new(EmbeddingLookup("odml.embedding_lookup")),
        Arc::new(L2Norm("odml.l2_norm")),
        Arc::new(L2Norm("l2_norm")),
        Arc::new(Gelu("aten.gelu.default")),
        Arc::new(Gelu("odml.gelu")),
        Arc::new(Gelu("gelu")),
        Arc::new(HardSwish("aten.hardswish.default")),
        Arc::new(Softmax("odml.softmax")),
    ];
    all.extend(recurrent(false));
    all
}

/// Recurrent layers.
pub(super) fn recurrent(hybrid: bool) -> impl Iterator<Item = Arc<dyn CompositeFusion>> {
    let layers = [
        ("keras.lstm", LstmLayout::Keras),
        ("lstm", LstmLayout::Keras),
        ("onnx.LSTM", LstmLayout::Onnx),
        ("aten.lstm.input", LstmLayout::Torch),
    ];
    layers.into_iter().map(move |(name, layout)| Arc::new(Lstm { name, layout, hybrid }) as _)
}

/// Those that make custom ops of this project.
pub(super) fn custom() -> Vec<Arc<dyn CompositeFusion>> {
    vec![
        Arc::new(Normalization { name: "odml.group_norm", kind: NormalizationKind::Group }),
        Arc::new(Normalization { name: "odml.layer_norm", kind: NormalizationKind::Layer }),
        Arc::new(Normalization { name: "odml.rms_norm", kind: NormalizationKind::RootMeanSquare }),
        Arc::new(Attention("odml.scaled_dot_product_attention")),
    ]
}
