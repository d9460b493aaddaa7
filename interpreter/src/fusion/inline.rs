//! Putting called subgraphs in the place of the nodes that call them: bodies of composites, and functions.

use std::collections::HashMap;
use std::sync::Arc;

use delegraph_core::error::Result;
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, Tensor, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::{Composite, Op, Quantization};

/// Metadata that names nodes by their numbers, which are others afterwards.
pub(super) const CONTROL: &str = "model_control_dependencies";

/// A composite whose body took its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) name: String,
    pub(crate) version: u32,
    /// The nodes of the body, by their numbers in the graph that they are in now.
    pub(crate) nodes: Vec<NodeId>,
}

/// What inlining made.
pub(crate) struct Inlined {
    pub(crate) model: Model,
    /// Per subgraph, the composites whose bodies are in it now.
    pub(crate) origins: Vec<Vec<Origin>>,
    /// Per subgraph and node, the number that it has now; `None` where a body took its place.
    pub(crate) moved: Vec<Vec<Option<NodeId>>>,
}

/// Where a call is: subgraph and node, `None` inside of a body that is being inlined.
pub(crate) type Place = Option<(usize, NodeId)>;

/// Which calls are inlined.
pub(crate) struct Inliner<'c> {
    /// Whether this composite is, if its body can be.
    pub(crate) composite: &'c dyn Fn(&Composite<'_>, Place) -> bool,
    /// Whether functions (`CALL`) are.
    pub(crate) functions: bool,
    /// Whether bodies with state of their own are. Such state begins anew in every call; inlined, it lasts.
    pub(crate) state: bool,
}

impl Inliner<'_> {
    /// Inlines what it may; `None` where there is nothing. Tensors keep their numbers, nodes get others.
    pub(crate) fn run(&self, model: &Model) -> Result<Option<Inlined>> {
        let mut nodes = model.subgraphs.iter().flat_map(|g| &g.nodes);
        if !nodes.any(|n| matches!(n.params, Params::StableHLOComposite(_) | Params::Call(_))) {
            return Ok(None);
        }
        let (mut subgraphs, mut origins, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let mut changed = false;
        for (s, subgraph) in model.subgraphs.iter().enumerate() {
            let mut expansion = Expansion::new(self, model, s);
            let mut places = Vec::with_capacity(subgraph.nodes.len());
            for (id, node) in subgraph.node_ids().zip(&subgraph.nodes) {
                let (at, count) = (expansion.nodes.len(), expansion.count);
                expansion.push(node.clone(), Some((s, id)), 0);
                places.push((expansion.count == count).then_some(NodeId(at)));
            }
            moved.push(places);
            changed |= expansion.count > 0;
            origins.push(std::mem::take(&mut expansion.origins));
            subgraphs.push(expansion.finish());
        }
        if !changed {
            return Ok(None);
        }
        let mut base = model.clone();
        base.metadata.retain(|(name, _)| name != CONTROL);
        Ok(Some(Inlined { model: base.with_subgraphs(None, subgraphs)?, origins, moved }))
    }

    /// The subgraph that takes the place of `node`, if there is one.
    fn callee(&self, model: &Model, node: &Node, place: Place) -> Option<usize> {
        match &node.params {
            Params::StableHLOComposite(_) => {
                let composite = Composite::with_body(model, node)?;
                composite.body.filter(|_| (self.composite)(&composite, place))
            }
            Params::Call(p) if self.functions => usize::try_from(p.subgraph).ok(),
            _ => None,
        }
    }
}

/// Whether the body of the composite `node` can take its place: what [`Inliner::run`] decides without asking for more.
pub(crate) fn can_inline(model: &Model, subgraph: usize, node: &Node) -> bool {
    let (Some(graph), Some(body)) = (
        model.subgraphs.get(subgraph),
        Composite::with_body(model, node).and_then(|c| model.subgraphs.get(c.body?)),
    ) else {
        return false;
    };
    fits(&graph.tensors, &graph.outputs, node, body, false)
}

fn fits(tensors: &[Tensor], outputs: &[TensorId], node: &Node, body: &Subgraph, state: bool) -> bool {
    if body.inputs.len() != node.inputs.len() || body.outputs.len() != node.outputs.len() {
        return false;
    }
    if !state && body.tensors.iter().any(|t| t.is_variable) {
        return false;
    }
    let same = |here: TensorId, there: TensorId| match (tensors.get(here.0), body.tensors.get(there.0)) {
        (Some(a), Some(b)) => a.ty == b.ty && a.quantization == b.quantization,
        _ => false,
    };
    let inputs = node.inputs.iter().zip(&body.inputs);
    if !inputs.into_iter().all(|(here, there)| here.is_some_and(|here| same(here, *there))) {
        return false;
    }
    node.outputs.iter().zip(&body.outputs).enumerate().all(|(i, (here, there))| {
        // What is handed through has two names; an output of the model, or of the signature, keeps its own.
        let written = body.nodes.iter().any(|n| n.outputs.contains(there));
        let first = body.outputs.iter().position(|id| id == there) == Some(i);
        let variable = body.tensors.get(there.0).is_some_and(|t| t.is_variable);
        same(*here, *there) && ((written && first && !variable) || !outputs.contains(here))
    })
}

/// How deep calls may be nested.
const DEPTH: usize = 64;

struct Expansion<'m, 'c> {
    inliner: &'c Inliner<'c>,
    model: &'m Model,
    subgraph: Subgraph,
    nodes: Vec<Node>,
    /// Tensors that are others by another name.
    same: HashMap<TensorId, TensorId>,
    origins: Vec<Origin>,
    count: usize,
}

impl<'m, 'c> Expansion<'m, 'c> {
    fn new(inliner: &'c Inliner<'c>, model: &'m Model, index: usize) -> Self {
        let mut subgraph = model.subgraphs.get(index).cloned().unwrap_or_default();
        subgraph.nodes = Vec::new();
        let (nodes, same, origins) = Default::default();
        Expansion { inliner, model, subgraph, nodes, same, origins, count: 0 }
    }

    fn push(&mut self, mut node: Node, place: Place, depth: usize) {
        for id in node.inputs.iter_mut().flatten() {
            *id = self.same.get(id).copied().unwrap_or(*id);
        }
        let model = self.model;
        let body = self.inliner.callee(model, &node, place).and_then(|index| model.subgraphs.get(index));
        let graph = &self.subgraph;
        match body.filter(|_| depth < DEPTH) {
            Some(body) if fits(&graph.tensors, &graph.outputs, &node, body, self.inliner.state) => {
                self.expand(&node, body, depth);
            }
            _ => self.nodes.push(node),
        }
    }

    fn expand(&mut self, call: &Node, body: &Subgraph, depth: usize) {
        self.count += 1;
        let first = self.nodes.len();
        let composite = Composite::with_body(self.model, call);
        let prefix = composite.map_or("call", |c| c.name);
        let mut map: Vec<Option<TensorId>> = vec![None; body.tensors.len()];
        let set = |map: &mut Vec<Option<TensorId>>, id: &TensorId, to| {
            if let Some(slot) = map.get_mut(id.0) {
                *slot = Some(to);
            }
        };
        for (here, there) in call.inputs.iter().zip(&body.inputs) {
            if let Some(here) = here {
                set(&mut map, there, *here);
            }
        }
        for (here, there) in call.outputs.iter().zip(&body.outputs) {
            let written = body.nodes.iter().any(|n| n.outputs.contains(there));
            if written && map.get(there.0) == Some(&None) && !body.tensor(*there).is_variable {
                set(&mut map, there, *here);
            }
        }
        for (i, tensor) in body.tensors.iter().enumerate() {
            if map[i].is_none() {
                let name: Arc<str> = format!("{prefix}/{}", tensor.name).into();
                self.subgraph.tensors.push(Tensor { name, ..tensor.clone() });
                map[i] = Some(TensorId(self.subgraph.tensors.len() - 1));
            }
        }
        let to = |id: &TensorId| map.get(id.0).copied().flatten().unwrap_or(*id);
        // Scales that are tensors are named by their numbers.
        for (i, id) in map.iter().enumerate() {
            let moved = body.tensors.get(i).and_then(|t| moved(t.quantization.as_deref()?, &to));
            if let (Some(moved), Some(id)) = (moved, id)
                && let Some(tensor) = self.subgraph.tensors.get_mut(id.0)
            {
                tensor.quantization = Some(Arc::new(moved));
            }
        }
        for (here, there) in call.outputs.iter().zip(&body.outputs) {
            let there = to(there);
            if there != *here {
                self.same.insert(*here, self.same.get(&there).copied().unwrap_or(there));
            }
        }
        for node in &body.nodes {
            let mut node = node.clone();
            node.inputs.iter_mut().flatten().for_each(|id| *id = to(id));
            node.outputs.iter_mut().for_each(|id| *id = to(id));
            node.intermediates.iter_mut().flatten().for_each(|id| *id = to(id));
            self.push(node, None, depth + 1);
        }
        if let Some(composite) = composite {
            let nodes = (first..self.nodes.len()).map(NodeId).collect();
            self.origins.push(Origin { name: composite.name.to_owned(), version: composite.version, nodes });
        }
    }

    fn finish(mut self) -> Subgraph {
        self.subgraph.nodes = self.nodes;
        self.subgraph
    }
}

/// Quantization whose parameters are tensors, after these have other numbers.
pub(super) fn moved(quantization: &Quantization, to: &dyn Fn(&TensorId) -> TensorId) -> Option<Quantization> {
    let to = |index: usize| to(&TensorId(index)).0;
    match quantization.clone() {
        Quantization::Blockwise { scales, zero_points, block_size } => {
            Some(Quantization::Blockwise { scales: to(scales), zero_points: zero_points.map(to), block_size })
        }
        Quantization::MultiAxis { scales, zero_points, block_size, dimensions } => {
            Some(Quantization::MultiAxis {
                scales: to(scales),
                zero_points: zero_points.map(to),
                block_size,
                dimensions,
            })
        }
        _ => None,
    }
}

/// The name under which a kernel for the composite `node` is registered.
pub(crate) fn kernel_key(composite: &Composite<'_>) -> Op {
    Op::custom(composite.name)
}
