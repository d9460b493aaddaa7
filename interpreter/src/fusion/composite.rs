//! Fusing marked composites.

use std::sync::Arc;

use delegraph_core::error::{Error, Result};
use delegraph_core::flex::Map;
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, TensorId};
use delegraph_core::{Composite, OpResolver, Shape};

use super::known::Known;
use super::proof::compare;
use super::rewriter::Rewriter;
use super::store::Store;

/// Turns marked composites of one name into something else: a plug-in of a [`Pipeline`](super::Pipeline).
///
/// Before a composite is rewritten in its model, it is rewritten in a model of its own, which must give what the body
/// gives, on random inputs: a composite whose body does something else than its name says is left as it is. Where there is
/// no body (a custom op of the name), nothing can be compared.
pub trait CompositeFusion: Send + Sync {
    /// The name of the composites that it is for.
    fn name(&self) -> &str;

    /// How much further than [`Difference::allowed`](super::Difference::allowed) what it makes may be from the body.
    fn tolerance(&self) -> f64 {
        1.0
    }

    /// Checks that the composite has the operands and attributes that its name promises.
    ///
    /// # Errors
    /// Those of [`Call::wrong`], which name the composite and the argument. The whole pipeline ends with it, and the
    /// model stays what it was.
    fn verify_signature(&self, call: &Call, graph: &Rewriter<'_>) -> Result<()>;

    /// Puts something else in the place of the composite, with the same outputs. Where it does not: why, as the end of a
    /// sentence that begins with "it is left:", and then nothing may have been changed but new tensors that nobody reads.
    ///
    /// # Errors
    /// Where the attributes cannot be read.
    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome>;
}

/// What became of a composite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Something else is in its place.
    Fused,
    /// Nothing fits, for this reason.
    Left(String),
}

impl Outcome {
    /// Nothing fits, for this reason.
    pub fn left(reason: impl Into<String>) -> Result<Self> {
        Ok(Outcome::Left(reason.into()))
    }
}

/// A composite in a graph.
#[derive(Debug, Clone)]
pub struct Call {
    /// The node.
    pub id: NodeId,
    /// What it reads and writes.
    pub node: Node,
    /// The operation that it stands for.
    pub name: String,
    /// The version of the operation.
    pub version: u32,
    /// Its attributes as the file holds them.
    pub bytes: Vec<u8>,
    /// The subgraph that computes it out of other ops, if there is one.
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

    /// The attributes.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] where they are no map.
    pub fn attributes(&self) -> Result<Map<'_>> {
        let composite =
            Composite { name: &self.name, version: self.version, bytes: &self.bytes, body: self.body };
        composite.attributes().map_err(|e| Error::InvalidNode(format!("composite \"{}\": {e}", self.name)))
    }

    /// Operand `i`, if it is there.
    pub fn operand(&self, i: usize) -> Option<TensorId> {
        self.node.input(i)
    }

    /// Its only output.
    ///
    /// # Errors
    /// Where it has none.
    pub fn output(&self, i: usize) -> Result<TensorId> {
        let missing = || Error::InvalidNode(format!("composite \"{}\": there is no result {i}", self.name));
        self.node.outputs.get(i).copied().ok_or_else(missing)
    }

    /// Operand `i`, called `what`, which must be there.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] with the composite and the argument.
    pub fn argument(&self, i: usize, what: &str) -> Result<TensorId> {
        self.operand(i).ok_or_else(|| self.wrong(i, what, "is missing"))
    }

    /// Operand `i`, called `what`, which must be of rank `rank`; with its shape, if that does not depend on data.
    ///
    /// # Errors
    /// As [`Call::argument`].
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

    /// The error that says what is wrong with argument `i`, called `what`: "must be …, is …".
    pub fn wrong(&self, i: usize, what: &str, message: &str) -> Error {
        let (name, version) = (&self.name, self.version);
        Error::InvalidNode(format!("composite \"{name}\" version {version}: argument {i} ({what}) {message}"))
    }

    /// Ok where there are `count` operands and `results` results.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] with the composite and the numbers.
    pub fn arity(&self, count: std::ops::RangeInclusive<usize>, results: usize) -> Result<()> {
        let (has, gives) = (self.node.inputs.len(), self.node.outputs.len());
        if count.contains(&has) && gives == results {
            return Ok(());
        }
        let (name, version) = (&self.name, self.version);
        let (low, high) = (count.start(), count.end());
        let wanted = if low == high { low.to_string() } else { format!("{low} to {high}") };
        Err(Error::InvalidNode(format!(
            "composite \"{name}\" version {version}: it has {has} arguments and {gives} results, \
             expected {wanted} and {results}"
        )))
    }
}

/// Rewrites the composite in a model of its own, and compares what that gives with what the body gives.
pub(super) fn try_apart(
    fusion: &dyn CompositeFusion,
    call: &Call,
    graph: &Rewriter<'_>,
    resolver: &Arc<dyn OpResolver>,
) -> Result<Outcome> {
    let Some(original) = apart(call, graph)? else { return Ok(Outcome::Fused) };
    let original = Arc::new(original);
    let known = Known::of(&original, resolver, false)?;
    let mut store = Store::new(&original);
    let mut alone = Rewriter::new(&original, 0, &known, &mut store);
    let Some(own) = Call::of(&alone, NodeId(0)) else { return Ok(Outcome::Fused) };
    match fusion.rewrite(&own, &mut alone)? {
        Outcome::Fused => {}
        left => return Ok(left),
    }
    let first = alone.finish();
    let mut subgraphs = original.subgraphs.clone();
    if let Some(slot) = subgraphs.first_mut() {
        *slot = first;
    }
    subgraphs.append(&mut store.subgraphs);
    let fused = Arc::new(original.with_subgraphs(store.joined(&original), subgraphs)?);
    for difference in compare(&original, &fused, resolver, 2)? {
        if !difference.within(fusion.tolerance()) {
            let greatest = difference.greatest;
            return Ok(Outcome::Left(format!(
                "its body does not give what \"{}\" means: output \"{}\" differs by {greatest:e}",
                call.name, difference.output
            )));
        }
    }
    Ok(Outcome::Fused)
}

/// A model of the composite alone; `None` where it cannot be run: there is no body, or shapes depend on data.
fn apart(call: &Call, graph: &Rewriter<'_>) -> Result<Option<Model>> {
    if call.body.is_none() {
        return Ok(None);
    }
    let model = graph.model();
    let mut subgraph = Subgraph { name: call.name.clone(), ..Default::default() };
    let mut map = std::collections::HashMap::new();
    let mut node = call.node.clone();
    let read: Vec<bool> =
        node.outputs.iter().map(|id| !graph.readers(*id).is_empty() || graph.is_output(*id)).collect();
    for id in node.inputs.iter_mut().flatten().chain(&mut node.outputs) {
        if let Some(known) = map.get(id) {
            *id = *known;
            continue;
        }
        let Some(tensor) = graph.tensor(*id) else { return Ok(None) };
        let Some(shape) = graph.shape(*id) else { return Ok(None) };
        // What an earlier fusion of this pass made is not in the model yet.
        let made = tensor.data.as_ref().is_some_and(|range| range.end > model.bytes().len());
        if made || matches!(tensor.quantization.as_deref(), Some(q) if q.affine().is_none()) {
            return Ok(None);
        }
        let mut tensor = tensor.clone();
        tensor.shape = shape.clone();
        (tensor.is_variable, tensor.shape_signature) = (false, None);
        let number = TensorId(subgraph.tensors.len());
        subgraph.tensors.push(tensor);
        map.insert(*id, number);
        *id = number;
    }
    let constant = |id: &TensorId| subgraph.tensors.get(id.0).is_some_and(|t| t.is_constant());
    let mut inputs: Vec<TensorId> =
        node.inputs.iter().flatten().copied().filter(|id| !constant(id)).collect();
    inputs.sort_unstable();
    inputs.dedup();
    subgraph.inputs = inputs;
    let outputs = node.outputs.iter().zip(read).filter(|(_, read)| *read);
    subgraph.outputs = outputs.map(|(id, _)| *id).collect();
    subgraph.nodes = vec![node];
    // The other subgraphs keep their numbers; those that it does not call may be anything.
    let mut reached = vec![false; model.subgraphs.len()];
    let mut open: Vec<usize> = call.body.into_iter().collect();
    while let Some(i) = open.pop() {
        if let Some(slot) = reached.get_mut(i).filter(|slot| !**slot) {
            *slot = true;
            open.extend(model.subgraphs.get(i).into_iter().flat_map(|g| &g.nodes).flat_map(Node::callees));
        }
    }
    let others = model.subgraphs.iter().zip(&reached).skip(1);
    let mut subgraphs = vec![subgraph];
    subgraphs.extend(others.map(|(g, reached)| if *reached { g.clone() } else { Subgraph::default() }));
    let mut base = model.clone();
    base.signatures.clear();
    Ok(Some(base.with_subgraphs(None, subgraphs)?))
}
