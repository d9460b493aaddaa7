//! Fusions of shared libraries as passes of a pipeline.
//!
//! Models are passed as files: the library reads a file and returns a rewritten one, which is checked like any file.

use std::path::Path;
use std::sync::Arc;

use delegraph_core::OpResolver;
use delegraph_core::error::{Error, Result};
use delegraph_core::graph::{Model, ModelBytes};
use delegraph_delegate_api::plugin::{FusionKind, FusionLibrary, FusionResult, LibraryFusion};

use super::composite::{failed, invalid};
use super::proof::{ModelPair, Shared, compare_with_limits};
use super::report::{Change, Unchanged};
use crate::runtime::{Interpreter, ResourceLimits};

/// A fusion of a library, as a pass of a pipeline.
#[derive(Clone)]
pub(super) struct LibraryPass {
    library: FusionLibrary,
    index: usize,
    pub(super) fusion: LibraryFusion,
}

/// The result of a library's fusion.
pub(super) struct Rewritten {
    /// The model, if it changed.
    pub(super) model: Option<Model>,
    pub(super) changes: Vec<Change>,
    pub(super) unchanged: Vec<Unchanged>,
}

impl LibraryPass {
    /// Returns the passes of a library whose fusions are of this kind.
    pub(super) fn of(library: &FusionLibrary, kind: FusionKind) -> Vec<Self> {
        let all = library.fusions().iter().cloned().enumerate();
        let pass = |(index, fusion)| LibraryPass { library: library.clone(), index, fusion };
        all.filter(|(_, fusion)| fusion.kind == kind).map(pass).collect()
    }

    /// Returns the path of the library.
    pub(super) fn path(&self) -> &Path {
        self.library.path()
    }

    /// Names the library and the fusion in errors.
    pub(super) fn who(&self) -> String {
        format!("{}: fusion \"{}\": it", self.path().display(), self.fusion.name)
    }

    /// Rewrites `model`. If the outputs on random inputs differ, the model stays unchanged: the body of a composite may
    /// not compute the operation of its name.
    ///
    /// # Errors
    /// [`Error::State`] if the library fails or returns an invalid model, with its path and the name of the fusion;
    /// [`Error::InvalidNode`] if a composite violates its signature.
    pub(super) fn run(
        &self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        limits: &ResourceLimits,
    ) -> Result<Rewritten> {
        let name = &self.fusion.name;
        let given = model.to_bytes()?;
        let FusionResult { model: bytes, changes, unchanged, .. } =
            self.library.rewrite(self.index, &given)?;
        let kept = unchanged.into_iter().map(|kept| Unchanged {
            composite: name.clone(),
            subgraph: kept.subgraph,
            tensor: kept.tensor,
            reason: kept.reason,
        });
        let mut unchanged: Vec<Unchanged> = kept.collect();
        // A library may return the model that it was given.
        let Some(bytes) = bytes.filter(|bytes| *bytes != given) else {
            return Ok(Rewritten { model: None, changes: Vec::new(), unchanged });
        };
        let invalid = |error: Error| invalid(&self.who(), error);
        let bytes = ModelBytes::new(bytes);
        let fused = match model.path() {
            Some(path) => Model::from_bytes_named(bytes, path),
            None => Model::from_bytes(bytes),
        };
        let fused = fused.map_err(invalid)?;
        check_ends(model, &fused).map_err(|what| invalid(Error::State(what)))?;
        if self.fusion.kind == FusionKind::Composite
            && let Some(reason) = self.difference(model, &fused, resolver, limits)?
        {
            let tensor = changes.first().map_or_else(String::new, |change| change.tensor.clone());
            unchanged.push(Unchanged { composite: name.clone(), subgraph: 0, tensor, reason });
            return Ok(Rewritten { model: None, changes: Vec::new(), unchanged });
        }
        let changes = changes.into_iter().map(|change| Change {
            pass: name.clone(),
            subgraph: change.subgraph,
            tensor: change.tensor,
            from: change.from,
            to: change.to,
        });
        let mut changes: Vec<Change> = changes.collect();
        // A library may rewrite the model without a list of changes: the report still names it.
        if changes.is_empty() {
            let (from, to) = (Vec::new(), Vec::new());
            changes.push(Change { pass: name.clone(), subgraph: 0, tensor: String::new(), from, to });
        }
        Ok(Rewritten { model: Some(fused), changes, unchanged })
    }

    /// Returns the reason why the result is rejected; `None` if the models compute the same, or the original cannot be
    /// run.
    fn difference(
        &self,
        model: &Arc<Model>,
        fused: &Model,
        resolver: &Arc<dyn OpResolver>,
        limits: &ResourceLimits,
    ) -> Result<Option<String>> {
        let original = Interpreter::builder_with_resolver(model.clone(), Shared(resolver.clone()))
            .limits(limits.clone());
        if original.build().is_err() {
            return Ok(None);
        }
        let models = ModelPair { original: model, fused: &Arc::new(fused.clone()) };
        let differences = compare_with_limits(models, resolver, 2, limits.clone());
        let differences = differences.map_err(|error| failed(&self.who(), error))?;
        let worst = differences.iter().find(|d| !d.within(self.fusion.tolerance));
        Ok(worst.map(|d| {
            format!(
                "its body does not give what \"{}\" means: output \"{}\" differs by {:.3e}",
                self.fusion.name, d.output, d.greatest
            )
        }))
    }
}

/// Checks that inputs, outputs and signatures are unchanged.
fn check_ends(before: &Model, after: &Model) -> Result<(), String> {
    let ends = |model: &Model| {
        let graph = model.subgraphs().first().cloned().unwrap_or_default();
        let types = |ids: &[delegraph_core::TensorId]| {
            let each = ids.iter().filter_map(|id| graph.tensors().get(id.0));
            each.map(|t| (t.ty(), t.shape().clone(), t.quantization().cloned())).collect::<Vec<_>>()
        };
        (types(graph.inputs()), types(graph.outputs()))
    };
    let names = |model: &Model| {
        let names = |list: &[(String, delegraph_core::TensorId)]| -> Vec<String> {
            list.iter().map(|(name, _)| name.clone()).collect()
        };
        let signature =
            |s: &delegraph_core::Signature| (s.key().to_owned(), names(s.inputs()), names(s.outputs()));
        model.signatures().iter().map(signature).collect::<Vec<_>>()
    };
    if ends(before) != ends(after) {
        return Err("the inputs or outputs of the model have other types or shapes".into());
    }
    if names(before) != names(after) {
        return Err("the signatures of the model are others".into());
    }
    Ok(())
}
