//! Fusions of shared libraries as passes of a pipeline.
//!
//! Models are passed as files: the library reads a file and returns a rewritten one, which is checked like any file.

use std::path::Path;
use std::sync::Arc;

use delegraph_core::error::{Error, ErrorKind, Location, Result};
use delegraph_core::graph::{Model, ModelBytes};
use delegraph_core::types::rounded;
use delegraph_core::{Composite, Node, NodeId, OpResolver, TensorId};
use delegraph_delegate_api::plugin::{FusionKind, FusionLibrary, FusionResult, LibraryFusion};

use super::composite::{Unresolved, failed, invalid, other_interface};
use super::interface;
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

/// The first output of a composite.
struct Output {
    subgraph: usize,
    id: TensorId,
    name: String,
}

/// Returns the id of the only output; `None` if there are several or none.
fn only<'o>(mut outputs: impl Iterator<Item = &'o Output>) -> Option<TensorId> {
    let first = outputs.next()?;
    outputs.next().is_none().then_some(first.id)
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

    /// Returns the beginning of errors: the library and the fusion.
    pub(super) fn who(&self) -> String {
        format!("{}: fusion \"{}\": it", self.path().display(), self.fusion.name)
    }

    /// Rewrites `model`. If the outputs on random inputs differ, the model stays unchanged: the body of a composite may
    /// not compute the operation of its name.
    ///
    /// # Errors
    /// [`Error::State`] if the library fails or returns an invalid model, or one with other inputs, outputs or
    /// signatures, with its path and the name of the fusion; [`Error::InvalidNode`] at the node if a composite violates
    /// its signature.
    pub(super) fn run(
        &self,
        model: &Arc<Model>,
        resolver: &Arc<dyn OpResolver>,
        limits: &ResourceLimits,
        unresolved: Unresolved,
    ) -> Result<Rewritten> {
        let name = &self.fusion.name;
        let given = model.to_bytes()?;
        let rewritten = self.library.rewrite(self.index, &given).map_err(|e| self.located(model, e));
        let FusionResult { model: bytes, changes, unchanged, .. } = rewritten?;
        let outputs = self.outputs(model);
        let kept = unchanged.into_iter().map(|kept| Unchanged {
            composite: name.clone(),
            subgraph: kept.subgraph,
            id: only(outputs.iter().filter(|o| (o.subgraph, &o.name) == (kept.subgraph, &kept.tensor))),
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
        if let Some(what) = interface::difference(model, &fused) {
            return Err(other_interface(&self.who(), &what));
        }
        // A different writer may encode the same model in different bytes.
        if fused.to_bytes().map_err(invalid)? == given {
            return Ok(Rewritten { model: None, changes: Vec::new(), unchanged });
        }
        if self.fusion.kind == FusionKind::Composite
            && !unresolved.excuses(&fused, &**resolver)
            && let Some(reason) = self.difference(model, &fused, resolver, limits)?
        {
            // A library may return no list of changes.
            let replaced = |o: &&Output| {
                changes.first().is_none_or(|c| (o.subgraph, &o.name) == (c.subgraph, &c.tensor))
            };
            let output = outputs.iter().find(replaced).or(outputs.first());
            let (subgraph, tensor) = output.map_or_else(Default::default, |o| (o.subgraph, o.name.clone()));
            let (composite, id) = (name.clone(), output.map(|o| o.id));
            unchanged.push(Unchanged { composite, subgraph, tensor, id, reason });
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

    /// Returns the composites of the fusion's name: the index of the subgraph, the number of the node, and the node.
    fn composites<'m>(&self, model: &'m Model) -> impl Iterator<Item = (usize, NodeId, &'m Node)> {
        let nodes = model.subgraphs().iter().enumerate().flat_map(|(subgraph, graph)| {
            graph.node_ids().zip(graph.nodes()).map(move |(id, node)| (subgraph, id, node))
        });
        nodes.filter(|(_, _, node)| Composite::of(model, node).is_some_and(|c| c.name == self.fusion.name))
    }

    /// Returns the first outputs of the composites of the fusion's name.
    fn outputs(&self, model: &Model) -> Vec<Output> {
        let output = |(subgraph, _, node): (usize, NodeId, &Node)| {
            let id = *node.outputs().first()?;
            let name = model.subgraphs().get(subgraph)?.tensors().get(id.0)?.name().to_string();
            Some(Output { subgraph, id, name })
        };
        self.composites(model).filter_map(output).collect()
    }

    /// Adds the place of the composite to the error of a composite that violates its signature. The text of a library
    /// in Rust begins with the place in the file that it got; a library in C reports none.
    fn located(&self, model: &Model, error: Error) -> Error {
        let Error::InvalidNode(text) = error else { return error };
        let library = self.path().display();
        let who = format!("{library}: fusion \"{}\": ", self.fusion.name);
        let Some(said) = text.strip_prefix(&who) else { return Error::InvalidNode(text) };
        let places: Vec<Location> = self.composites(model).map(|(s, id, _)| model.locate(s, id)).collect();
        for place in &places {
            let mut own = place.clone();
            own.model = None;
            if let Some(rest) = said.strip_prefix(&format!("{own}: ")) {
                return Error::InvalidNode(format!("{who}{rest}")).at(place.clone());
            }
        }
        let count = places.len();
        match places.into_iter().next() {
            Some(place) if count == 1 => Error::InvalidNode(text).at(place),
            Some(place) => {
                let (name, first) = (&self.fusion.name, "this node is the first");
                Error::InvalidNode(format!("{text} (one of {count} composites \"{name}\"; {first})"))
                    .at(place)
            }
            None => Error::InvalidNode(text),
        }
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
        let differences = match compare_with_limits(models, resolver, 2, limits.clone()) {
            Ok(differences) => differences,
            // Errors of the rewritten model are of another kind.
            Err(error) if error.kind() == ErrorKind::Invalid => return Ok(None),
            Err(error) => return Err(failed(&self.who(), error)),
        };
        let worst = differences.iter().find(|d| !d.within(self.fusion.tolerance));
        Ok(worst.map(|d| {
            format!(
                "its body does not compute \"{}\" of {}: output \"{}\" differs by {}",
                self.fusion.name,
                self.path().display(),
                d.output,
                rounded(d.greatest)
            )
        }))
    }
}
