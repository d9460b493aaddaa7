//! The fusions that a shared library exports.

use std::fmt;
use std::sync::Arc;

use delegraph_core::error::{Error, ErrorKind, Result, absent};
use delegraph_core::graph::{Model, ModelBytes};
use delegraph_delegate_api::plugin::export::fusions::Fusions as Exported;
use delegraph_delegate_api::plugin::{
    FusionChange, FusionKind, FusionResult, FusionUnchanged, LibraryFusion,
};

use super::composite::{CompositeFusion, invalid};
use super::pattern::PatternFusion;
use super::pipeline::Pipeline;
use super::report::{Change, Unchanged};

/// The fusions of a library; [`export_fusions!`](crate::export_fusions) passes this struct to the function that adds
/// them.
#[derive(Default)]
pub struct Fusions(Vec<Fusion>);

enum Fusion {
    Composite(Arc<dyn CompositeFusion>),
    Pattern(Arc<dyn PatternFusion>),
}

impl fmt::Debug for Fusions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Fusions {
    /// Adds a fusion of marked composites.
    pub fn composite(&mut self, fusion: impl CompositeFusion + 'static) -> &mut Self {
        self.0.push(Fusion::Composite(Arc::new(fusion)));
        self
    }

    /// Adds a fusion of patterns.
    pub fn pattern(&mut self, fusion: impl PatternFusion + 'static) -> &mut Self {
        self.0.push(Fusion::Pattern(Arc::new(fusion)));
        self
    }
}

impl Fusions {
    #[doc(hidden)]
    pub fn boxed(self) -> Box<dyn Exported> {
        Box::new(self)
    }
}

impl Exported for Fusions {
    fn list(&self) -> Vec<LibraryFusion> {
        let describe = |fusion: &Fusion| match fusion {
            Fusion::Composite(f) => {
                LibraryFusion::new(f.name(), FusionKind::Composite).with_tolerance(f.tolerance())
            }
            Fusion::Pattern(f) => LibraryFusion::new(f.name(), FusionKind::Pattern),
        };
        self.0.iter().map(describe).collect()
    }

    fn rewrite(&self, fusion: usize, model: &[u8]) -> Result<FusionResult> {
        let (found, count) = (self.0.get(fusion), self.0.len());
        let missing = || Error::State(absent("fusion", fusion, "the library", count));
        let fusion = found.ok_or_else(missing)?;
        let model = Model::from_bytes(ModelBytes::new(model.to_vec()))?;
        let pipeline = match fusion {
            Fusion::Composite(f) => Pipeline::empty().composite_arc(f.clone()),
            Fusion::Pattern(f) => Pipeline::empty().pattern_arc(f.clone()),
        };
        let (model, report) = pipeline.run_alone(model).map_err(flat)?;
        // The interface of libraries cannot report these fusions.
        for name in &report.unsettled {
            log::warn!("the fusion \"{name}\" still changes the model after the maximum number of rounds");
        }
        let change = |Change { subgraph, tensor, from, to, .. }| {
            FusionChange::new(subgraph, tensor).with_from(from).with_to(to)
        };
        let unchanged =
            |Unchanged { subgraph, tensor, reason, .. }| FusionUnchanged::new(subgraph, tensor, reason);
        let result = match report.changes.is_empty() {
            true => FusionResult::unchanged(),
            false => FusionResult::with_model(model.to_bytes().map_err(|e| invalid("it", e))?),
        };
        Ok(result
            .with_changes(report.changes.into_iter().map(change))
            .with_unchanged(report.unchanged.into_iter().map(unchanged)))
    }
}

/// Returns the error in the form that crosses the interface: a kind and a text, which does not repeat the kind.
fn flat(error: Error) -> Error {
    if let Error::AtNode { location, source, .. } = &error
        && let Error::InvalidNode(text) = &**source
    {
        return Error::InvalidNode(format!("{location}: {text}"));
    }
    match error.kind() {
        ErrorKind::Invalid => Error::InvalidNode(error.chain()),
        _ => Error::State(error.chain()),
    }
}
