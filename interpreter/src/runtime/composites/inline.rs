//! Inlining of called subgraphs: bodies of composites, and functions.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use delegraph_core::error::{LimitExceeded, Result};
use delegraph_core::graph::{Model, Node, NodeId, Subgraph, Tensor, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::{Composite, Op, Quantization};
use delegraph_delegate_api::Rejection;

/// Metadata that refers to nodes by number, which inlining changes.
pub(crate) const CONTROL: &str = "model_control_dependencies";

/// A composite that was replaced by its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) name: String,
    pub(crate) version: u32,
    /// The place of the composite in the model before this inlining; `None` if an earlier inlining replaced it, or if
    /// it was in an inlined body.
    pub(crate) place: Place,
    /// Each delegate that did not claim it, with the reason; empty for a composite that was just inlined.
    pub(crate) rejections: Vec<(usize, Rejection)>,
    /// The nodes of the body, by their numbers in the graph that contains them now.
    pub(crate) nodes: Vec<NodeId>,
}

/// The result of inlining.
pub(crate) struct Inlined {
    pub(crate) model: Model,
    /// Per subgraph, the composites that were replaced by their bodies, now or earlier.
    pub(crate) origins: Vec<Vec<Origin>>,
}

/// The place of a call: subgraph and node; `None` inside a body that is being inlined.
pub(crate) type Place = Option<(usize, NodeId)>;

/// Selects the calls to inline.
pub(crate) struct Inliner<'c> {
    /// Whether to inline this composite, if its body can be inlined.
    pub(crate) composite: &'c dyn Fn(&Composite<'_>, Place) -> bool,
    /// Whether to inline functions (`CALL`).
    pub(crate) functions: bool,
    /// Whether to inline bodies with state. Such state is reset in every call; inlined, it persists.
    pub(crate) state: bool,
    /// Per subgraph, the composites that an earlier inlining replaced.
    pub(crate) earlier: &'c [Vec<Origin>],
    pub(crate) bounds: Bounds,
}

/// Limits on the growth by inlining.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Maximum number of inlined nodes.
    pub(crate) nodes: usize,
    /// Nodes that an earlier inlining added.
    pub(crate) earlier: usize,
    /// Maximum number of bytes of inlined nodes and tensors.
    pub(crate) bytes: usize,
}

impl Inliner<'_> {
    /// Inlines the selected calls; `None` if there are none. Tensors keep their numbers, nodes do not.
    pub(crate) fn run(&self, model: &Model) -> Result<Option<Inlined>> {
        let mut nodes = model.subgraphs().iter().flat_map(|g| g.nodes());
        if !nodes.any(|n| matches!(n.params(), Params::StableHloComposite(_) | Params::Call(_))) {
            return Ok(None);
        }
        let (mut subgraphs, mut origins) = (Vec::new(), Vec::new());
        let (mut changed, mut size) = (false, Size { nodes: self.bounds.earlier, bytes: 0 });
        let mut bodies = Bodies::default();
        for (s, subgraph) in model.subgraphs().iter().enumerate() {
            let mut expansion = Expansion::new(self, model, s, size, &mut bodies);
            let mut places = Vec::with_capacity(subgraph.nodes().len());
            for (id, node) in subgraph.node_ids().zip(subgraph.nodes()) {
                let first = expansion.nodes.len();
                expansion.push(node.clone(), Some((s, id)), 0)?;
                places.push(first..expansion.nodes.len());
            }
            expansion.keep_origins(s, &places);
            changed |= expansion.count > 0;
            origins.push(std::mem::take(&mut expansion.origins));
            size = expansion.size;
            subgraphs.push(expansion.finish());
        }
        if !changed {
            return Ok(None);
        }
        let mut draft = model.draft_with(subgraphs);
        draft.metadata.retain(|(name, _)| name != CONTROL);
        Ok(Some(Inlined { model: draft.verify()?, origins }))
    }

    /// Returns the subgraph that replaces `node`, if there is one.
    fn callee(&self, model: &Model, node: &Node, place: Place) -> Option<usize> {
        match node.params() {
            Params::StableHloComposite(_) => {
                let composite = Composite::of_builtin(model, node)?;
                composite.body.filter(|_| (self.composite)(&composite, place))
            }
            Params::Call(p) if self.functions => usize::try_from(p.subgraph).ok(),
            _ => None,
        }
    }
}

/// The composites of a subgraph whose bodies can replace them.
pub(crate) struct Inlinable<'m> {
    model: &'m Model,
    tensors: &'m [Tensor],
    outputs: HashSet<TensorId>,
    bodies: Bodies,
}

impl<'m> Inlinable<'m> {
    /// Examines a subgraph of the model.
    pub(crate) fn new(model: &'m Model, subgraph: &'m Subgraph) -> Self {
        let outputs = subgraph.outputs().iter().copied().collect();
        Inlinable { model, tensors: subgraph.tensors(), outputs, bodies: Bodies::default() }
    }

    /// Returns whether the body of the composite `node` can replace it, by the rules of [`Inliner::run`].
    pub(crate) fn contains(&mut self, node: &Node) -> bool {
        let model = self.model;
        let index = Composite::of_builtin(model, node).and_then(|c| c.body);
        let body = index.and_then(|index| Some((index, model.subgraphs().get(index)?)));
        body.is_some_and(|(index, body)| {
            let known = self.bodies.get(index, body);
            fits(self.tensors, &self.outputs, node, (body, known), false)
        })
    }
}

/// Properties of a body.
struct Body {
    has_variables: bool,
    /// The tensors that its nodes write.
    written: HashSet<TensorId>,
}

/// Bodies by their index, each examined when it is first called: a short call may refer to a large body.
#[derive(Default)]
struct Bodies(HashMap<usize, Body>);

impl Bodies {
    fn get(&mut self, index: usize, body: &Subgraph) -> &Body {
        self.0.entry(index).or_insert_with(|| Body {
            has_variables: body.tensors().iter().any(|t| t.is_variable()),
            written: body.nodes().iter().flat_map(|n| n.outputs()).copied().collect(),
        })
    }
}

/// Whether `body` can replace `node`. `tensors` and `outputs` are those of the graph of `node`.
fn fits(
    tensors: &[Tensor],
    outputs: &HashSet<TensorId>,
    node: &Node,
    (body, known): (&Subgraph, &Body),
    state: bool,
) -> bool {
    if body.inputs().len() != node.inputs().len() || body.outputs().len() != node.outputs().len() {
        return false;
    }
    if !state && known.has_variables {
        return false;
    }
    let same = |here: TensorId, there: TensorId| match (tensors.get(here.0), body.tensors().get(there.0)) {
        (Some(a), Some(b)) => a.ty() == b.ty() && a.quantization() == b.quantization(),
        _ => false,
    };
    let inputs = node.inputs().iter().zip(body.inputs());
    if !inputs.into_iter().all(|(here, there)| here.is_some_and(|here| same(here, *there))) {
        return false;
    }
    let mut seen = HashSet::new();
    node.outputs().iter().zip(body.outputs()).all(|(here, there)| {
        // An output that is also an input is replaced by the input, but an output of the model or of a signature keeps
        // its tensor.
        let (written, first) = (known.written.contains(there), seen.insert(there));
        let variable = body.tensors().get(there.0).is_some_and(|t| t.is_variable());
        same(*here, *there) && ((written && first && !variable) || !outputs.contains(here))
    })
}

/// Maximum depth of nested calls.
const DEPTH: usize = 64;

struct Expansion<'m, 'c> {
    inliner: &'c Inliner<'c>,
    model: &'m Model,
    subgraph: Subgraph,
    nodes: Vec<Node>,
    /// The outputs of the subgraph.
    outputs: HashSet<TensorId>,
    bodies: &'c mut Bodies,
    /// Tensors that are replaced by others.
    same: HashMap<TensorId, TensorId>,
    origins: Vec<Origin>,
    count: usize,
    size: Size,
}

/// The growth by inlining so far.
#[derive(Debug, Clone, Copy)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    /// Adds a body with `origins` earlier origins, whose tensors get names that begin with `prefix`.
    ///
    /// # Errors
    /// [`LimitExceeded`] above the limits.
    fn add(&mut self, (body, origins): (&Subgraph, usize), prefix: &str, bounds: Bounds) -> Result<()> {
        // An empty body also counts as a step, and so does an origin that is copied.
        self.nodes = self.nodes.saturating_add(body.nodes().len().max(1)).saturating_add(origins);
        if self.nodes > bounds.nodes {
            let (needed, allowed) = (self.nodes as u64, bounds.nodes as u64);
            return Err(LimitExceeded::InlinedNodes { needed, allowed }.into());
        }
        let tensor = |t: &Tensor| size_of::<Tensor>() + prefix.len() + t.name().len();
        let operands = |n: &Node| n.inputs().len() + n.outputs().len() + n.intermediates().len();
        let node = |n: &Node| size_of::<Node>() + operands(n) * size_of::<Option<TensorId>>();
        let bytes = body.tensors().iter().map(tensor).chain(body.nodes().iter().map(node));
        self.bytes = bytes.fold(self.bytes, usize::saturating_add);
        if self.bytes > bounds.bytes {
            let (needed, allowed) = (self.bytes as u64, bounds.bytes as u64);
            return Err(LimitExceeded::Memory { needed, allowed }.into());
        }
        Ok(())
    }
}

impl<'m, 'c> Expansion<'m, 'c> {
    fn new(
        inliner: &'c Inliner<'c>,
        model: &'m Model,
        index: usize,
        size: Size,
        bodies: &'c mut Bodies,
    ) -> Self {
        let mut subgraph = model.subgraphs().get(index).cloned().unwrap_or_default();
        subgraph.nodes_mut().clear();
        let (nodes, same, origins) = Default::default();
        let outputs = subgraph.outputs().iter().copied().collect();
        Expansion { inliner, model, subgraph, outputs, bodies, nodes, same, origins, count: 0, size }
    }

    fn push(&mut self, mut node: Node, place: Place, depth: usize) -> Result<()> {
        for id in node.inputs_mut().iter_mut().flatten() {
            *id = self.same.get(id).copied().unwrap_or(*id);
        }
        let model = self.model;
        let callee = self.inliner.callee(model, &node, place);
        let body = callee.and_then(|index| Some((index, model.subgraphs().get(index)?)));
        let fits = body.filter(|_| depth < DEPTH).is_some_and(|(index, body)| {
            let known = self.bodies.get(index, body);
            fits(self.subgraph.tensors(), &self.outputs, &node, (body, known), self.inliner.state)
        });
        match body {
            Some(body) if fits => self.expand(&node, place, body, depth)?,
            _ => self.nodes.push(node),
        }
        Ok(())
    }

    fn expand(
        &mut self,
        call: &Node,
        place: Place,
        (index, body): (usize, &Subgraph),
        depth: usize,
    ) -> Result<()> {
        self.count += 1;
        let first = self.nodes.len();
        let composite = Composite::of_builtin(self.model, call);
        let prefix = composite.map_or("call", |c| c.name);
        let origins = self.inliner.earlier.get(index).map_or(0, Vec::len);
        self.size.add((body, origins), prefix, self.inliner.bounds)?;
        let mut map: Vec<Option<TensorId>> = vec![None; body.tensors().len()];
        let set = |map: &mut Vec<Option<TensorId>>, id: &TensorId, to| {
            if let Some(slot) = map.get_mut(id.0) {
                *slot = Some(to);
            }
        };
        for (here, there) in call.inputs().iter().zip(body.inputs()) {
            if let Some(here) = here {
                set(&mut map, there, *here);
            }
        }
        let written = &self.bodies.get(index, body).written;
        for (here, there) in call.outputs().iter().zip(body.outputs()) {
            if written.contains(there)
                && map.get(there.0) == Some(&None)
                && !body.tensor(*there).is_variable()
            {
                set(&mut map, there, *here);
            }
        }
        for (i, tensor) in body.tensors().iter().enumerate() {
            if map[i].is_none() {
                let tensor = tensor.clone().with_name(format!("{prefix}/{}", tensor.name()));
                map[i] = Some(self.subgraph.add_tensor(tensor));
            }
        }
        let to = |id: &TensorId| map.get(id.0).copied().flatten().unwrap_or(*id);
        // Scales that are tensors are referred to by number.
        for (i, id) in map.iter().enumerate() {
            let moved = body.tensors().get(i).and_then(|t| moved(t.quantization()?, &to));
            if let (Some(moved), Some(id)) = (moved, id)
                && let Some(tensor) = self.subgraph.tensors_mut().get_mut(id.0)
            {
                tensor.set_quantization(moved);
            }
        }
        for (here, there) in call.outputs().iter().zip(body.outputs()) {
            let there = to(there);
            if there != *here {
                self.same.insert(*here, self.same.get(&there).copied().unwrap_or(there));
            }
        }
        let mut places = Vec::with_capacity(body.nodes().len());
        for node in body.nodes() {
            let mut node = node.clone();
            node.inputs_mut().iter_mut().flatten().for_each(|id| *id = to(id));
            node.outputs_mut().iter_mut().for_each(|id| *id = to(id));
            node.intermediates_mut().iter_mut().flatten().for_each(|id| *id = to(id));
            let first = self.nodes.len();
            self.push(node, None, depth + 1)?;
            places.push(first..self.nodes.len());
        }
        self.keep_origins(index, &places);
        if let Some(composite) = composite {
            let nodes = (first..self.nodes.len()).map(NodeId).collect();
            let (name, version) = (composite.name.to_owned(), composite.version);
            self.origins.push(Origin { name, version, place, rejections: Vec::new(), nodes });
        }
        Ok(())
    }

    /// Adds the earlier origins of subgraph `index`, whose nodes are now at `places`.
    fn keep_origins(&mut self, index: usize, places: &[Range<usize>]) {
        let numbers = |id: &NodeId| places.get(id.0).cloned().unwrap_or_default().map(NodeId);
        let earlier = self.inliner.earlier.get(index).into_iter().flatten();
        self.origins.extend(earlier.map(|origin| Origin {
            place: None,
            nodes: origin.nodes.iter().flat_map(numbers).collect(),
            ..origin.clone()
        }));
    }

    fn finish(mut self) -> Subgraph {
        *self.subgraph.nodes_mut() = self.nodes;
        self.subgraph
    }
}

/// Returns a quantization whose parameters are tensors, with their new numbers; `None` for other quantizations.
pub(crate) fn moved(quantization: &Quantization, to: &dyn Fn(&TensorId) -> TensorId) -> Option<Quantization> {
    let to = |id: TensorId| to(&id);
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

/// Returns the op under which a kernel for `composite` is registered.
pub(crate) fn kernel_key(composite: &Composite<'_>) -> Op {
    Op::custom(composite.name)
}
