//! Fusing marked composites.

use std::sync::Arc;

use delegraph_core::error::{Error, Result, counted};
use delegraph_core::flex::Map;
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, TensorId};
use delegraph_core::types::rounded;
use delegraph_core::{Composite, OpResolver, Shape};

use super::known::Known;
use super::proof::{ModelPair, cause, compare_with_limits, interrupted, is_resolved};
use super::rewriter::Rewriter;
use super::store::Store;
use crate::runtime::ResourceLimits;

/// Replaces marked composites of one name: an extension of a [`Pipeline`](super::Pipeline).
///
/// The rewriting is first applied to a model of the composite alone, whose results must match those of the body for
/// random inputs. A composite whose body does not compute what its name implies stays unchanged. A composite without
/// a body (a custom op of the name), or with a shape that depends on data, is not compared.
pub trait CompositeFusion: Send + Sync {
    /// Returns the name of the composites.
    fn name(&self) -> &str;

    /// Returns the factor by which differences may exceed [`Difference::allowed`](super::Difference::allowed).
    fn tolerance(&self) -> f64 {
        1.0
    }

    /// Checks that the composite has the operands and attributes that its name implies.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] for a defect of the model; [`Call::wrong`] returns such an error, with the composite and
    /// the argument. All other errors are failures of the fusion. The pipeline then fails, and the model is unchanged.
    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()>;

    /// Replaces the composite by nodes with the same outputs, or returns the reason why it stays unchanged. Reasons
    /// complete the sentence "it is left: …". If the composite stays unchanged, the graph must be unchanged, except for
    /// new tensors without a consumer.
    ///
    /// # Errors
    /// All errors are failures of the fusion: `verify_signature` has accepted the call. The pipeline then fails.
    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome>;
}

/// The result of rewriting a composite.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The composite was replaced.
    Fused,
    /// The composite stays unchanged, for this reason.
    Unchanged(String),
}

impl Outcome {
    /// Returns [`Outcome::Unchanged`] with this reason.
    pub fn unchanged(reason: impl Into<String>) -> Result<Self> {
        Ok(Outcome::Unchanged(reason.into()))
    }
}

/// A composite in a graph.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The number of the node.
    pub id: NodeId,
    /// The node, with its operands.
    pub node: Node,
    /// The name of the operation that the composite represents.
    pub name: String,
    /// The version of the operation.
    pub version: u32,
    /// The bytes of its attributes in the file.
    pub bytes: Vec<u8>,
    /// The subgraph that computes the operation with other ops, if there is one.
    pub body: Option<usize>,
}

impl Call {
    pub(super) fn of(graph: &Rewriter<'_>, id: NodeId) -> Option<Self> {
        let node = graph.node(id)?;
        let composite = Composite::of(graph.model(), node)?;
        Some(Call {
            id,
            node: node.clone(),
            name: composite.name.to_owned(),
            version: composite.version,
            bytes: composite.bytes.to_vec(),
            body: composite.body,
        })
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the attributes are not a map.
    pub fn attributes(&self) -> Result<Map<'_>> {
        let composite = Composite::new(&self.name, self.version).with_bytes(&self.bytes);
        composite.attributes().map_err(|e| Error::InvalidNode(format!("composite \"{}\": {e}", self.name)))
    }

    /// Returns operand `i`, if it is present.
    pub fn operand(&self, i: usize) -> Option<TensorId> {
        self.node.input(i)
    }

    /// Returns output `i`.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the composite does not have the output.
    pub fn output(&self, i: usize) -> Result<TensorId> {
        let missing = || Error::InvalidNode(format!("composite \"{}\": there is no result {i}", self.name));
        self.node.outputs().get(i).copied().ok_or_else(missing)
    }

    /// Returns operand `i`, called `what` in errors, which must be present.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with the composite and the argument, if the operand is absent.
    pub fn argument(&self, i: usize, what: &str) -> Result<TensorId> {
        self.operand(i).ok_or_else(|| self.wrong(i, what, "is missing"))
    }

    /// Returns operand `i`, called `what` in errors, which must have rank `rank`; with its shape, if the shape does not
    /// depend on data.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with the composite and the argument, if the operand is absent or has a different rank.
    pub fn of_rank(
        &self,
        graph: &Rewriter<'_>,
        i: usize,
        what: &str,
        rank: usize,
    ) -> Result<(TensorId, Option<Shape>)> {
        let id = self.argument(i, what)?;
        let shape = graph.shape(id).cloned();
        match &shape {
            Some(shape) if shape.rank() != rank => {
                Err(self.wrong(i, what, &format!("must be of rank {rank}, is {shape}")))
            }
            _ => Ok((id, shape)),
        }
    }

    /// Returns an error about argument `i`, called `what`. `message` states what is supported and what was found: "must
    /// be …, is …".
    pub fn wrong(&self, i: usize, what: &str, message: &str) -> Error {
        let (name, version) = (&self.name, self.version);
        Error::InvalidNode(format!("composite \"{name}\" version {version}: argument {i} ({what}) {message}"))
    }

    /// Checks the numbers of operands and results.
    ///
    /// # Errors
    /// [`Error::InvalidNode`], with the composite and the numbers, if the number of operands is outside `count`, or the
    /// number of results is not `results`.
    pub fn arity(&self, count: std::ops::RangeInclusive<usize>, results: usize) -> Result<()> {
        let (has, gives) = (self.node.inputs().len(), self.node.outputs().len());
        if count.contains(&has) && gives == results {
            return Ok(());
        }
        let (name, version) = (&self.name, self.version);
        let (low, high) = (count.start(), count.end());
        let wanted = if low == high { low.to_string() } else { format!("{low} to {high}") };
        Err(Error::InvalidNode(format!(
            "composite \"{name}\" version {version}: it has {} and {}, expected {wanted} and {results}",
            counted(has, "argument"),
            counted(gives, "result")
        )))
    }
}

/// Returns the error of a pass or a fusion, named by `who`, that made an invalid model. An interruption keeps its type.
pub(super) fn invalid(who: &str, error: Error) -> Error {
    if error.is_interruption() {
        return interrupted(error, author(who));
    }
    Error::State(format!("{who} made a model that cannot be prepared: {}", cause(error)))
}

/// Returns the error of a pass or a fusion, named by `who`, that changed inputs, outputs or signatures; `what`
/// describes the change.
pub(super) fn other_interface(who: &str, what: &str) -> Error {
    Error::State(format!("{who} changed the interface of the model: {what}"))
}

/// Returns the name of a pass or a fusion, without the subject of the sentence that begins with it.
fn author(who: &str) -> &str {
    match who {
        "it" => "the rewritten model",
        who => who.strip_suffix(": it").unwrap_or(who),
    }
}

/// Returns the name of a pass or a fusion in errors.
pub(super) fn pass(name: &str) -> String {
    format!("the pass \"{name}\"")
}

/// Returns the error of a fusion, named by `who`, that failed. Interruptions and errors of memory keep their type, and one
/// of the original model its location.
pub(super) fn failed(who: &str, error: Error) -> Error {
    if error.is_interruption() {
        let rewritten = matches!(&error, Error::AtNode { location, .. } if location.rewritten_by.is_some());
        return if rewritten { interrupted(error, author(who)) } else { error };
    }
    if matches!(error, Error::LimitExceeded(_) | Error::OutOfMemory(_)) {
        return error;
    }
    Error::State(format!("{who} failed: {}", error.chain()))
}

/// Whether rewritten models may have ops without a kernel. Such models are not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unresolved {
    Allowed,
    Error,
}

impl Unresolved {
    /// Returns whether the model is accepted without being run.
    pub(super) fn excuses(self, model: &Model, resolver: &dyn OpResolver) -> bool {
        self == Unresolved::Allowed && !is_resolved(model, resolver)
    }
}

/// Rewrites the composite in a separate model, and compares the results with those of the body. Returns
/// [`Outcome::Fused`] without a comparison for composites that cannot run alone (see [`apart`]). `blame` converts
/// errors of the rewriting to errors of the fusion.
pub(super) fn try_apart(
    fusion: &dyn CompositeFusion,
    call: &Call,
    graph: &Rewriter<'_>,
    resolver: &Arc<dyn OpResolver>,
    (limits, unresolved): (&ResourceLimits, Unresolved),
    blame: &dyn Fn(Error) -> Error,
) -> Result<Outcome> {
    let Some(original) = apart(call, graph)? else { return Ok(Outcome::Fused) };
    let original = Arc::new(original);
    let known = Known::of(&original, resolver, false, limits)?;
    let mut store = Store::new(&original, graph.budget());
    let mut alone = Rewriter::new(&original, 0, &known, &mut store);
    let Some(own) = Call::of(&alone, NodeId(0)) else { return Ok(Outcome::Fused) };
    let outcome = fusion.rewrite(&own, &mut alone);
    alone.check().map_err(blame)?;
    let outcome = outcome.map_err(blame)?;
    match outcome {
        Outcome::Fused => {}
        unchanged => return Ok(unchanged),
    }
    let first = alone.finish();
    let mut subgraphs = original.subgraphs().to_vec();
    if let Some(slot) = subgraphs.first_mut() {
        *slot = first;
    }
    subgraphs.append(&mut store.subgraphs);
    // The fusion made this model, so it causes the errors of preparing it.
    let invalid = |e: Error| invalid(&pass(&call.name), e);
    let bytes = store.joined(&original).map_err(blame)?;
    let fused = Arc::new(original.with_subgraphs(bytes, subgraphs).map_err(invalid)?);
    Known::of(&fused, resolver, false, limits).map_err(invalid)?;
    if unresolved.excuses(&fused, &**resolver) {
        return Ok(Outcome::Fused);
    }
    let models = ModelPair { original: &original, fused: &fused };
    let differences = compare_with_limits(models, resolver, 2, limits.clone());
    // Errors of the rewritten model are `Error::State`; others are errors of the body.
    let of_fused = |e: Error| if matches!(e, Error::State(_)) || e.is_interruption() { blame(e) } else { e };
    for difference in differences.map_err(of_fused)? {
        if !difference.within(fusion.tolerance()) {
            let greatest = rounded(difference.greatest);
            return Ok(Outcome::Unchanged(format!(
                "its body does not compute the operation \"{}\": output \"{}\" differs by {greatest}",
                call.name, difference.output
            )));
        }
    }
    Ok(Outcome::Fused)
}

/// Returns a model of the composite alone. `None` if there is no body, if a shape depends on data, or if an operand is
/// a constant of an earlier fusion or has a quantization that is not affine.
fn apart(call: &Call, graph: &Rewriter<'_>) -> Result<Option<Model>> {
    if call.body.is_none() {
        return Ok(None);
    }
    let model = graph.model();
    let mut subgraph = Subgraph::new(call.name.clone(), vec![], vec![], [], []);
    let mut map = std::collections::HashMap::new();
    let mut node = call.node.clone();
    let read: Vec<bool> =
        node.outputs().iter().map(|id| !graph.readers(*id).is_empty() || graph.is_output(*id)).collect();
    for id in call.node.inputs().iter().flatten().chain(call.node.outputs()) {
        if map.contains_key(id) {
            continue;
        }
        let Some(tensor) = graph.tensor(*id) else { return Ok(None) };
        let Some(shape) = graph.shape(*id) else { return Ok(None) };
        // Constants of earlier fusions in this pass are not in the model yet.
        let made = tensor.data().is_some_and(|range| range.end > model.bytes().len());
        if made || matches!(tensor.quantization(), Some(q) if q.affine().is_none()) {
            return Ok(None);
        }
        let mut tensor = tensor.clone();
        tensor.set_shape(shape.clone());
        tensor.set_variable(false);
        tensor.set_shape_signature(None);
        map.insert(*id, subgraph.add_tensor(tensor));
    }
    let number = |id: &mut TensorId| *id = map.get(id).copied().unwrap_or(*id);
    node.inputs_mut().iter_mut().flatten().for_each(number);
    node.outputs_mut().iter_mut().for_each(number);
    let constant = |id: &TensorId| subgraph.tensors().get(id.0).is_some_and(|t| t.is_constant());
    let mut inputs: Vec<TensorId> =
        node.inputs().iter().flatten().copied().filter(|id| !constant(id)).collect();
    inputs.sort_unstable();
    inputs.dedup();
    *subgraph.inputs_mut() = inputs;
    let outputs = node.outputs().iter().zip(read).filter(|(_, read)| *read);
    *subgraph.outputs_mut() = outputs.map(|(id, _)| *id).collect();
    *subgraph.nodes_mut() = vec![node];
    // The other subgraphs keep their numbers; those that the body does not call are replaced by empty ones.
    let mut reached = vec![false; model.subgraphs().len()];
    let mut open: Vec<usize> = call.body.into_iter().collect();
    while let Some(i) = open.pop() {
        if let Some(slot) = reached.get_mut(i).filter(|slot| !**slot) {
            *slot = true;
            open.extend(model.subgraphs().get(i).into_iter().flat_map(|g| g.nodes()).flat_map(Node::callees));
        }
    }
    let others = model.subgraphs().iter().zip(&reached).skip(1);
    let mut subgraphs = vec![subgraph];
    subgraphs.extend(others.map(|(g, reached)| if *reached { g.clone() } else { Subgraph::default() }));
    let mut draft = model.draft_with(subgraphs);
    draft.signatures.clear();
    Ok(Some(draft.verify()?))
}
