//! Nodes with equal results, found by hashes: a tensor may have a hundred thousand readers.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;

use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::{BuiltinOp, Quantization};

use super::Rewriter;

/// Bytes at the start and at the end of a constant that distinguish most constants.
const SAMPLE: usize = 32;

/// Bytes that are hashed between two polls.
const PIECE: usize = 1 << 24;

/// The nodes of a graph, in the order of their numbers.
#[derive(Default)]
pub(super) struct Alike {
    /// The number of the first node that is not in the maps.
    next: usize,
    /// The first node of each hash of op and inputs without the contents of constants, and whether there are several.
    shallow: HashMap<u64, (NodeId, bool)>,
    /// The nodes by a hash of everything that determines the results, if there are several of a shallow hash.
    deep: HashMap<u64, Vec<NodeId>>,
    /// Hashes of constants, by the range of their bytes.
    contents: HashMap<(usize, usize), u64>,
    state: RandomState,
}

impl Alike {
    /// Returns the first node before `id` with the same op, params and inputs. Constants with equal bytes count as the
    /// same input. `None` if there is none, if results of the op may differ, or if no input depends on the data.
    pub(super) fn find(&mut self, graph: &Rewriter<'_>, id: NodeId) -> Option<NodeId> {
        while self.next < id.0 {
            self.add(graph, NodeId(self.next));
            self.next += 1;
        }
        let node = graph.node(id).filter(|node| is_determined(graph, node))?;
        let (first, several) = *self.shallow.get(&self.shallow_hash(graph, node))?;
        let equals = |other: &NodeId| {
            *other < id && graph.node(*other).is_some_and(|other| is_equal(graph, other, node))
        };
        if !several {
            return Some(first).filter(equals);
        }
        let hash = self.deep_hash(graph, node)?;
        self.deep.get(&hash)?.iter().copied().find(equals)
    }

    /// Adds a node that later ones may equal.
    fn add(&mut self, graph: &Rewriter<'_>, id: NodeId) -> Option<()> {
        let node = graph.node(id).filter(|node| is_determined(graph, node))?;
        let variable = |id: &TensorId| graph.tensor(*id).is_none_or(|t| t.is_variable());
        // A node with a NaN among its params equals none.
        if node.outputs().iter().any(variable) || !is_equal(graph, node, node) {
            return None;
        }
        let hash = self.shallow_hash(graph, node);
        let Some(&(first, several)) = self.shallow.get(&hash) else {
            self.shallow.insert(hash, (id, false));
            return Some(());
        };
        if !several {
            self.shallow.insert(hash, (first, true));
            self.add_deep(graph, first);
        }
        self.add_deep(graph, id)
    }

    fn add_deep(&mut self, graph: &Rewriter<'_>, id: NodeId) -> Option<()> {
        let hash = self.deep_hash(graph, graph.node(id)?)?;
        self.deep.entry(hash).or_default().push(id);
        Some(())
    }

    fn shallow_hash(&self, graph: &Rewriter<'_>, node: &Node) -> u64 {
        let mut hasher = self.state.build_hasher();
        (node.op(), node.version(), node.outputs().len(), node.inputs().len()).hash(&mut hasher);
        for input in node.inputs() {
            match input.and_then(|id| Some((graph.tensor(id)?, comparable(graph, id)?.1))) {
                Some((tensor, bytes)) => {
                    (tensor.ty(), tensor.shape(), bytes.len()).hash(&mut hasher);
                    bytes.get(..SAMPLE).hash(&mut hasher);
                    bytes.get(bytes.len().saturating_sub(SAMPLE)..).hash(&mut hasher);
                }
                None => input.hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    /// Returns a hash that is equal for equal nodes; `None` if the pipeline is to end.
    fn deep_hash(&mut self, graph: &Rewriter<'_>, node: &Node) -> Option<u64> {
        let mut hasher = self.state.build_hasher();
        self.shallow_hash(graph, node).hash(&mut hasher);
        node.intermediates().hash(&mut hasher);
        // Zeros are equal regardless of their signs.
        format!("{:?}", node.params()).replace("-0.0", "0.0").hash(&mut hasher);
        for id in node.outputs() {
            graph.ty(*id).hash(&mut hasher);
            hash_quantization(graph.quantization(*id), &mut hasher);
        }
        for id in node.inputs().iter().flatten() {
            if let Some((range, bytes)) = comparable(graph, *id) {
                hash_quantization(graph.quantization(*id), &mut hasher);
                self.contents_hash(graph, &range, bytes)?.hash(&mut hasher);
            }
        }
        Some(hasher.finish())
    }

    fn contents_hash(&mut self, graph: &Rewriter<'_>, range: &Range<usize>, bytes: &[u8]) -> Option<u64> {
        let key = (range.start, range.end);
        if let Some(hash) = self.contents.get(&key) {
            return Some(*hash);
        }
        let mut hasher = self.state.build_hasher();
        for piece in bytes.chunks(PIECE) {
            if graph.budget().is_interrupted() {
                return None;
            }
            hasher.write(piece);
        }
        let hash = hasher.finish();
        self.contents.insert(key, hash);
        Some(hash)
    }
}

/// Returns the range and the bytes of a constant that equals others with the same bytes. One with a NaN among its
/// scales equals itself only.
fn comparable<'g>(graph: &'g Rewriter<'_>, id: TensorId) -> Option<(Range<usize>, &'g [u8])> {
    let range = graph.tensor(id)?.data()?;
    let bytes = graph.constant(id).filter(|_| graph.quantization(id) == graph.quantization(id))?;
    Some((range, bytes))
}

fn hash_quantization(quantization: Option<&Quantization>, hasher: &mut impl Hasher) {
    match quantization {
        Some(Quantization::Affine(affine)) => {
            affine.dimension.hash(hasher);
            // The sum is 0 for both zeros.
            affine.scales.iter().for_each(|scale| (scale + 0.0).to_bits().hash(hasher));
            affine.zero_points.iter().for_each(|zero| zero.hash(hasher));
        }
        other => format!("{other:?}").hash(hasher),
    }
}

/// Returns whether inputs and params determine the results of a node, and an input depends on the data.
fn is_determined(graph: &Rewriter<'_>, node: &Node) -> bool {
    let Some(op) = node.op().builtin() else { return false };
    if node.outputs().is_empty() || has_effect(op) || node.callees().next().is_some() {
        return false;
    }
    let mut inputs = node.inputs().iter().flatten().map(|id| graph.tensor(*id));
    inputs.clone().all(|t| t.is_some_and(|t| !t.is_variable()))
        && inputs.any(|t| t.is_some_and(|t| !t.is_constant()))
}

/// Returns whether both nodes have the same op, params and inputs, and outputs of the same types.
fn is_equal(graph: &Rewriter<'_>, a: &Node, b: &Node) -> bool {
    (a.op(), a.version(), a.params()) == (b.op(), b.version(), b.params())
        && (a.inputs().len(), a.outputs().len()) == (b.inputs().len(), b.outputs().len())
        && a.intermediates() == b.intermediates()
        && a.outputs()
            .iter()
            .zip(b.outputs())
            .all(|(a, b)| graph.ty(*a) == graph.ty(*b) && graph.quantization(*a) == graph.quantization(*b))
        && a.inputs().iter().zip(b.inputs()).all(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => a == b || same_constant(graph, *a, *b),
            (a, b) => a == b,
        })
}

fn same_constant(graph: &Rewriter<'_>, a: TensorId, b: TensorId) -> bool {
    let (Some(ta), Some(tb)) = (graph.tensor(a), graph.tensor(b)) else { return false };
    let alike = (ta.ty(), ta.shape(), ta.quantization()) == (tb.ty(), tb.shape(), tb.quantization());
    let Some((a, b)) = graph.constant(a).zip(graph.constant(b)).filter(|_| alike) else { return false };
    ta.data() == tb.data() || a == b
}

/// Returns whether results of the op differ between runs, or the op has side effects.
fn has_effect(op: BuiltinOp) -> bool {
    use BuiltinOp as B;
    matches!(
        op,
        B::RANDOM_STANDARD_NORMAL
            | B::RANDOM_UNIFORM
            | B::MULTINOMIAL
            | B::STABLEHLO_RNG_BIT_GENERATOR
            | B::STABLEHLO_CUSTOM_CALL
            | B::READ_VARIABLE
            | B::ASSIGN_VARIABLE
            | B::VAR_HANDLE
            | B::HASHTABLE
            | B::HASHTABLE_FIND
            | B::HASHTABLE_IMPORT
            | B::HASHTABLE_SIZE
            | B::DELEGATE
    )
}
