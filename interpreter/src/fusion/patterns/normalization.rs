//! Layer normalization and root-mean-square normalization.
//!
//! Frameworks express both as many sums and products of four values: `x`, its mean, the root of its variance, and
//! constants per channel. The matcher therefore does not look for a particular form. It expands the expression into a
//! sum of products. If the result is `x · r · γ - mean · r · γ + β`, the nodes are a layer normalization, for any order
//! and signs.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::{Attributes, BuiltinOp, Op, TensorType};

use super::{binary, near};
use crate::fusion::composites::names;
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Replaces `(x - mean) · rsqrt(variance + ε) · γ + β` along the last dimension by one custom op of this project. `γ`
/// and `β` are optional, and may be several constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseLayerNorm;

/// Replaces `x · rsqrt(mean(x²) + ε) · γ` along the last dimension by one custom op of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseRmsNorm;

impl PatternFusion for FuseLayerNorm {
    fn name(&self) -> &str {
        "recognise-layer-norm"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(rewrite(graph, id, true).is_some())
    }
}

impl PatternFusion for FuseRmsNorm {
    fn name(&self) -> &str {
        "recognise-rms-norm"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(rewrite(graph, id, false).is_some())
    }
}

/// Maximum number of nodes after the root, counted once per read. Frameworks write fewer.
const NODES: usize = 48;
/// Maximum number of terms while expanding an expression.
const TERMS: usize = 8;
/// Maximum number of channels: each term has a list of as many factors. Models have fewer.
const CHANNELS: usize = 1 << 20;

/// A normalization that ends in a given node.
struct Found {
    x: TensorId,
    factors: Vec<f32>,
    /// The constant terms of a layer normalization.
    terms: Option<Vec<f32>>,
    epsilon: f32,
    /// The nodes that the normalization replaces.
    gone: Vec<NodeId>,
    /// The constants of the normalization.
    constants: Vec<TensorId>,
}

fn rewrite(graph: &mut Rewriter<'_>, id: NodeId, centered: bool) -> Option<()> {
    let Found { x, factors, terms, epsilon, gone, constants } = find(graph, id, centered)?;
    let output = *graph.node(id)?.outputs().first()?;
    // If more nodes of the normalization follow, it is found from its last node.
    if graph.is_private(output)
        && let [reader] = graph.readers(output)
        && find(graph, *reader, centered).is_some()
    {
        return None;
    }
    let mut inputs = vec![Some(x)];
    for (values, what) in [(Some(factors), "factors"), (terms, "terms")] {
        let Some(values) = values else { continue };
        // The op requires constants of rank 1. Often a constant of the pattern already is one, with these values.
        let list = constants.iter().copied().find(|c| {
            graph.tensor(*c).is_some_and(|t| t.shape().rank() == 1)
                && graph.float_count(*c) == Some(values.len())
                && graph.floats(*c).as_ref() == Some(&values)
        });
        inputs.push(Some(match list {
            Some(list) => list,
            None => {
                let name = graph.name(output, what);
                graph.new_constant(&name, [values.len()], &values)
            }
        }));
    }
    let name = if centered { names::LAYER_NORM } else { names::RMS_NORM };
    let mut fused = Node::new(Op::custom(name), 1, Params::Custom, inputs, [output]);
    fused.set_custom_options(graph.store(&Attributes::new().with("epsilon", epsilon).to_bytes()));
    graph.replace(id, &gone, fused);
    Some(())
}

/// Returns the normalization that ends in `id`.
fn find(graph: &Rewriter<'_>, id: NodeId, centered: bool) -> Option<Found> {
    let output = *graph.node(id)?.outputs().first()?;
    operands(graph, id)?;
    roots(graph, id).into_iter().find_map(|root| {
        let core = core(graph, root, centered)?;
        let shape = graph.shape(core.x).filter(|s| graph.shape(output) == Some(s))?;
        let channels = *shape.last().filter(|channels| **channels <= CHANNELS)?;
        let gone = core.chain.clone();
        let mut work = Work { graph, core: &core, channels, left: NODES, gone, constants: Vec::new() };
        let mut sum = Sum { x: None, mean: None, rest: None };
        for term in work.node(id)? {
            let slot = match (term.x, term.mean, term.root) {
                (1, 0, 1) => &mut sum.x,
                (0, 1, 1) => &mut sum.mean,
                (0, 0, 0) => &mut sum.rest,
                _ => return None,
            };
            *slot = Some(match slot.take() {
                Some(factors) => combine(&factors, &term.factors, |a, b| a + b),
                None => term.factors,
            });
        }
        let Work { gone, constants, .. } = work;
        let whole = |factors: &[f32]| combine(factors, &vec![0.0; channels], |a, b| a + b);
        let factors = whole(&sum.x?);
        let fits = match (centered, &sum.mean) {
            (true, Some(mean)) => whole(mean).iter().zip(&factors).all(|(m, x)| near(-m, *x)),
            (false, None) => sum.rest.is_none(),
            _ => false,
        };
        let within = gone.iter().filter(|node| **node != id).all(|node| {
            let outputs = graph.node(*node).map_or(&[][..], |n| n.outputs());
            outputs
                .iter()
                .all(|t| !graph.is_output(*t) && graph.readers(*t).iter().all(|reader| gone.contains(reader)))
        });
        let terms = centered.then(|| whole(&sum.rest.unwrap_or_default()));
        (fits && within).then_some(Found {
            x: core.x,
            factors,
            terms,
            epsilon: core.epsilon,
            gone,
            constants,
        })
    })
}

/// The output as a sum of products, each with its factors: `x · root`, `mean · root`, and constants.
struct Sum {
    x: Option<Vec<f32>>,
    mean: Option<Vec<f32>>,
    rest: Option<Vec<f32>>,
}

/// The root of a variance, and the operand of the variance.
struct Core {
    x: TensorId,
    mean: Option<TensorId>,
    root: TensorId,
    /// 1, or -1 for a root that is a divisor.
    power: i8,
    epsilon: f32,
    chain: Vec<NodeId>,
}

/// Returns the op and the operands of ADD, SUB, MUL, DIV or NEG of float32.
fn operands(graph: &Rewriter<'_>, id: NodeId) -> Option<(BuiltinOp, Vec<TensorId>)> {
    let node = graph.node(id)?;
    let op = node.op().builtin()?;
    match op {
        BuiltinOp::ADD | BuiltinOp::SUB | BuiltinOp::MUL | BuiltinOp::DIV => {
            Some((op, binary(graph, node, op)?.to_vec()))
        }
        BuiltinOp::NEG => node.input(0).filter(|x| graph.is_float(*x)).map(|x| (op, vec![x])),
        _ => None,
    }
}

/// Returns the roots among the factors and terms of a node, nearest first.
fn roots(graph: &Rewriter<'_>, id: NodeId) -> Vec<TensorId> {
    let (mut nodes, mut found, mut next) = (vec![id], Vec::new(), 0);
    while let Some(&node) = nodes.get(next) {
        next += 1;
        for operand in operands(graph, node).map_or(Vec::new(), |(_, operands)| operands) {
            let Some(producer) = graph.producer(operand) else { continue };
            if root_of(graph, operand).is_some() {
                if !found.contains(&operand) {
                    found.push(operand);
                }
            } else if nodes.len() < NODES && !nodes.contains(&producer) {
                nodes.push(producer);
            }
        }
    }
    found
}

/// Returns the node that computes a root, its operand, and its power.
fn root_of(graph: &Rewriter<'_>, id: TensorId) -> Option<(NodeId, TensorId, i8)> {
    let at = graph.producer(id)?;
    let node = graph.node(at)?;
    let x = node.input(0).filter(|x| graph.is_float(*x))?;
    match node.op() {
        Op::Builtin(BuiltinOp::RSQRT) => Some((at, x, 1)),
        Op::Builtin(BuiltinOp::SQRT) => Some((at, x, -1)),
        Op::Builtin(BuiltinOp::POW) => {
            let exponent = graph.scalar(node.input(1)?)?;
            let power = if exponent == -0.5 { 1 } else { -1 };
            (exponent.abs() == 0.5).then_some((at, x, power))
        }
        _ => None,
    }
}

/// The elements of a constant, which are not read yet.
enum Values<'g> {
    /// A FLOAT32 constant.
    Floats(TensorId),
    /// The bytes of a FLOAT16 constant behind DEQUANTIZE.
    Halves(&'g [[u8; 2]]),
}

impl<'g> Values<'g> {
    /// Finds the constant that `id` is or represents, and the number of its elements.
    fn of(graph: &'g Rewriter<'_>, id: TensorId) -> Option<(usize, Self)> {
        if let Some(count) = graph.float_count(id) {
            return Some((count, Values::Floats(id)));
        }
        let (_, node) = graph.made_by(id, BuiltinOp::DEQUANTIZE)?;
        let packed = node.input(0).filter(|t| graph.ty(*t) == Some(TensorType::Float16))?;
        let halves = graph.constant(packed)?.as_chunks::<2>().0;
        Some((halves.len(), Values::Halves(halves)))
    }

    fn read(&self, graph: &Rewriter<'_>) -> Option<Vec<f32>> {
        match self {
            Values::Floats(id) => graph.floats(*id),
            Values::Halves(halves) => {
                Some(halves.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect())
            }
        }
    }
}

/// Follows the graph from the root to `x`.
fn core(graph: &Rewriter<'_>, root: TensorId, centered: bool) -> Option<Core> {
    let (root_at, sum, power) = root_of(graph, root)?;
    let (sum_at, node) = graph.made_by(sum, BuiltinOp::ADD)?;
    let [a, b] = binary(graph, node, BuiltinOp::ADD)?;
    let (variance, epsilon) = [(a, b), (b, a)].into_iter().find_map(|(variance, epsilon)| {
        let rank = |t: TensorId| graph.shape(t).map(|s| s.rank());
        let (_, values) = Values::of(graph, epsilon).filter(|(count, _)| *count == 1)?;
        match *values.read(graph)? {
            [epsilon_value] if rank(epsilon)? <= rank(variance)? => Some((variance, epsilon_value)),
            _ => None,
        }
    })?;
    let (variance_at, squares) = mean(graph, variance)?;
    let square_at = graph.producer(squares)?;
    let node = graph.node(square_at)?;
    let mut chain = vec![root_at, sum_at, variance_at, square_at];
    let of = |x: TensorId, average: TensorId| {
        let (mean_at, averaged) = mean(graph, average)?;
        (averaged == x).then_some((x, average, mean_at))
    };
    let (x, average) = match node.op() {
        Op::Builtin(BuiltinOp::SQUARED_DIFFERENCE) if centered => {
            let (u, v) = (node.input(0)?, node.input(1)?);
            let (x, average, mean_at) = of(u, v).or_else(|| of(v, u))?;
            chain.push(mean_at);
            (x, Some(average))
        }
        _ => {
            let squared = squared(graph, node)?;
            if centered {
                let (difference_at, node) = graph.made_by(squared, BuiltinOp::SUB)?;
                let [u, v] = binary(graph, node, BuiltinOp::SUB)?;
                let (x, average, mean_at) = of(u, v).or_else(|| of(v, u))?;
                chain.extend([difference_at, mean_at]);
                (x, Some(average))
            } else {
                (squared, None)
            }
        }
    };
    graph.is_float(x).then_some(Core { x, mean: average, root, power, epsilon, chain })
}

/// Returns the operand that a node squares.
fn squared(graph: &Rewriter<'_>, node: &Node) -> Option<TensorId> {
    let x = node.input(0).filter(|x| graph.is_float(*x))?;
    let squares = match node.op() {
        Op::Builtin(BuiltinOp::SQUARE) => true,
        Op::Builtin(BuiltinOp::MUL) => binary(graph, node, BuiltinOp::MUL)? == [x, x],
        Op::Builtin(BuiltinOp::POW) => graph.scalar(node.input(1)?) == Some(2.0),
        _ => false,
    };
    squares.then_some(x)
}

/// Matches a mean over the last dimension, which may have several readers.
fn mean(graph: &Rewriter<'_>, id: TensorId) -> Option<(NodeId, TensorId)> {
    let (at, node) = graph.made_by(id, BuiltinOp::MEAN)?;
    let x = node.input(0)?;
    let Params::Reducer(p) = node.params() else { return None };
    let axis = graph.integer(node.input(1)?)?;
    let rank = i64::try_from(graph.shape(x)?.rank()).ok()?;
    (p.keep_dims && (axis == -1 || axis == rank - 1)).then_some((at, x))
}

/// A product: the powers of `x`, its mean and the root, and the constant factors, one or one per channel.
#[derive(Clone)]
struct Term {
    x: i8,
    mean: i8,
    root: i8,
    factors: Vec<f32>,
}

fn combine(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let count = a.len().max(b.len());
    let each = |list: &[f32], i: usize| list.get(i).or(list.first()).copied().unwrap_or(0.0);
    (0..count).map(|i| f(each(a, i), each(b, i))).collect()
}

/// The state of expanding an expression.
struct Work<'a, 'm> {
    graph: &'a Rewriter<'m>,
    core: &'a Core,
    channels: usize,
    /// The number of further nodes to expand. A node that is read twice is expanded twice.
    left: usize,
    gone: Vec<NodeId>,
    constants: Vec<TensorId>,
}

impl Work<'_, '_> {
    /// Expands a tensor into a sum of terms.
    fn tensor(&mut self, id: TensorId) -> Option<Vec<Term>> {
        let one = |x, mean, root| Some(vec![Term { x, mean, root, factors: vec![1.0] }]);
        if id == self.core.x {
            return one(1, 0, 0);
        }
        if Some(id) == self.core.mean {
            return one(0, 1, 0);
        }
        if id == self.core.root {
            return one(0, 0, self.core.power);
        }
        if let Some((count, values)) = Values::of(self.graph, id) {
            let (shape, x) = (self.graph.shape(id)?, self.graph.shape(self.core.x)?);
            let leading = shape.split_last().is_none_or(|(_, leading)| leading.iter().all(|d| *d == 1));
            if !leading || shape.rank() > x.rank() || ![1, self.channels].contains(&count) {
                return None;
            }
            self.constants.push(id);
            let factors = values.read(self.graph)?;
            return Some(vec![Term { x: 0, mean: 0, root: 0, factors }]);
        }
        self.node(self.graph.producer(id)?)
    }

    /// Expands a node's output into a sum of terms.
    fn node(&mut self, id: NodeId) -> Option<Vec<Term>> {
        let (op, operands) = operands(self.graph, id)?;
        self.left = self.left.checked_sub(1)?;
        if self.graph.budget().is_interrupted() {
            return None;
        }
        if !self.gone.contains(&id) {
            self.gone.push(id);
        }
        let mut sums = operands.into_iter().map(|operand| self.tensor(operand));
        let (mut a, b) = (sums.next()??, sums.next());
        let negate = |terms: &mut Vec<Term>| {
            terms.iter_mut().flat_map(|t| &mut t.factors).for_each(|f| *f = -*f);
        };
        let Some(b) = b else {
            negate(&mut a);
            return Some(a);
        };
        let mut b = b?;
        match op {
            BuiltinOp::ADD => a.extend(b),
            BuiltinOp::SUB => {
                negate(&mut b);
                a.extend(b);
            }
            _ => {
                if op == BuiltinOp::DIV {
                    let [Term { x: 0, mean: 0, root, factors }] = b.as_mut_slice() else { return None };
                    *root = -*root;
                    factors.iter_mut().for_each(|f| *f = 1.0 / *f);
                }
                if a.len() * b.len() > TERMS {
                    return None;
                }
                let product = |a: &Term, b: &Term| Term {
                    x: a.x + b.x,
                    mean: a.mean + b.mean,
                    root: a.root + b.root,
                    factors: combine(&a.factors, &b.factors, |a, b| a * b),
                };
                a = a.iter().flat_map(|a| b.iter().map(move |b| product(a, b))).collect();
            }
        }
        (a.len() <= TERMS).then_some(a)
    }
}
