//! Analysis of a model without running it.

use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::kernel::Serial;
use delegraph_core::resolver::check_resolved;
use delegraph_core::{Model, OpResolver, Shape};
use delegraph_delegate_api::NodeState;

use super::delegation::Delegates;
use super::engine::Engine;
use super::host::{ResourceLimits, Settings};
use super::subgraph::FoldedValues;

/// Inferred properties of one subgraph.
pub(crate) struct SubgraphAnalysis {
    /// Per tensor, its shape; `None` if the shape depends on data.
    pub(crate) shapes: Vec<Option<Shape>>,
    /// Per node, its state before delegation.
    pub(crate) states: Vec<NodeState>,
    /// The bytes of each output of nodes over constants, if values were requested.
    pub(crate) folded: FoldedValues,
}

/// Infers every subgraph of `model` with the kernels of `resolver`, without delegates and with composites in place.
/// With `values`, also collects the values of nodes over constants.
///
/// # Errors
/// The errors of preparing the model.
pub(crate) fn analyze(
    model: &Arc<Model>,
    resolver: impl OpResolver + 'static,
    values: bool,
    limits: &ResourceLimits,
) -> Result<Vec<SubgraphAnalysis>> {
    check_resolved(model, &resolver)?;
    let settings = Settings { preserve_all_tensors: true, keep_outputs: false };
    let (resolver, parallel) = (Arc::new(resolver), Arc::new(Serial));
    let delegates = Delegates::default();
    let mut engine = Engine::new(model.clone(), resolver, parallel, delegates, settings, limits.clone());
    engine.start_clock();
    let infer = |index| {
        engine.infer(index, |inferred| SubgraphAnalysis {
            shapes: inferred.shapes(),
            states: inferred.inference.states.clone(),
            folded: if values { inferred.folded_values() } else { Vec::new() },
        })
    };
    (0..model.subgraphs().len()).map(infer).collect()
}
