//! GELU, `x · Φ(x)`, with `tanh` or with the error function.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::unary::GeluParams;
use delegraph_core::{BuiltinOp, Op};

use super::{binary, inner, inner_unary, near, with_scalar};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Replaces `0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))` by the approximate GELU, and `0.5 · x · (1 + erf(x /
/// √2))` by GELU. The error function is a custom op, `Erf` or `FlexErf`, because there is no builtin op. Factors may be
/// at any place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseGelu;

impl PatternFusion for FuseGelu {
    fn name(&self) -> &str {
        "recognise-gelu"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(recognise(graph, id).is_some())
    }
}

/// A product: its non-constant operands, the product of its constants, and its nodes.
#[derive(Default)]
struct Product {
    factors: Vec<TensorId>,
    constant: f32,
    gone: Vec<NodeId>,
}

/// Collects the factors of nested products. Values with other readers are not expanded.
fn product(graph: &Rewriter<'_>, node: &Node, at: NodeId) -> Option<Product> {
    let mut result = Product { constant: 1.0, gone: vec![at], ..Default::default() };
    let mut open = match binary(graph, node, BuiltinOp::MUL) {
        Some(operands) => operands.to_vec(),
        None => {
            let [x, divisor] = binary(graph, node, BuiltinOp::DIV)?;
            result.constant /= graph.scalar(divisor)?;
            vec![x]
        }
    };
    while let Some(id) = open.pop() {
        if let Some(value) = graph.scalar(id) {
            result.constant *= value;
        } else if let Some((at, operands)) = inner(graph, id, BuiltinOp::MUL) {
            result.gone.push(at);
            open.extend(operands);
        } else if let Some((at, [x, divisor])) = inner(graph, id, BuiltinOp::DIV)
            && let Some(value) = graph.scalar(divisor)
        {
            result.gone.push(at);
            result.constant /= value;
            open.push(x);
        } else {
            result.factors.push(id);
        }
        // A product with many factors is not part of a pattern.
        if result.gone.len() > 8 {
            return None;
        }
    }
    Some(result)
}

fn recognise(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let output = *node.outputs().first()?;
    let Product { factors, constant, mut gone } = product(graph, node, id)?;
    let [a, b] = *factors.as_slice() else { return None };
    let (x, approximate) = [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        // `1 + f`, or `0.5 + 0.5 · f`.
        let (sum, operands) = inner(graph, gate, BuiltinOp::ADD)?;
        let (value, one) = with_scalar(graph, operands)?;
        let (mut inside, mut scale) = (value, 1.0);
        let mut own = vec![sum];
        if let Some((at, operands)) = inner(graph, value, BuiltinOp::MUL) {
            let (of, factor) = with_scalar(graph, operands)?;
            (inside, scale) = (of, factor);
            own.push(at);
        }
        if !(near(constant * one, 0.5) && near(constant * scale, 0.5)) {
            return None;
        }
        let (found, more) = tanh_of(graph, inside, x)
            .map(|n| (true, n))
            .or_else(|| erf_of(graph, inside, x).map(|n| (false, n)))?;
        own.extend(more);
        gone.extend(own);
        Some((x, found))
    })?;
    let same = graph.shape(x).is_some() && graph.shape(x) == graph.shape(output);
    if !same {
        return None;
    }
    let fused =
        Node::new(BuiltinOp::GELU, 1, GeluParams::default().approximate(approximate), [Some(x)], [output]);
    graph.replace(id, &gone, fused);
    Some(())
}

/// Returns the nodes of `tanh(√(2/π) · (x + 0.044715 · x³))`.
fn tanh_of(graph: &Rewriter<'_>, id: TensorId, x: TensorId) -> Option<Vec<NodeId>> {
    let (tanh, inside) = inner_unary(graph, id, BuiltinOp::TANH)?;
    let at = graph.producer(inside).filter(|_| graph.is_private(inside))?;
    let root = FRAC_2_PI.sqrt();
    let (outer, mut gone) = match product(graph, graph.node(at)?, at) {
        Some(product) => (product.factors, [vec![tanh], product.gone].concat()),
        // `√(2/π) · x + c · x³`.
        None => (vec![inside], vec![tanh]),
    };
    let scale = match product(graph, graph.node(at)?, at) {
        Some(product) => product.constant,
        None => 1.0,
    };
    // `x · (1 + 0.044715 · x²)`, or the expanded sum.
    let (linear, cubic) = match *outer.as_slice() {
        [sum] => {
            let (at, [a, b]) = inner(graph, sum, BuiltinOp::ADD)?;
            gone.push(at);
            [(a, b), (b, a)].into_iter().find_map(|(a, b)| {
                let (a, mut first) = monomial(graph, a, x).filter(|(m, _)| m.1 == 1)?;
                let (b, second) = monomial(graph, b, x).filter(|(m, _)| m.1 == 3)?;
                first.extend(second);
                gone.extend(first);
                Some((a.0, b.0))
            })?
        }
        [a, b] => {
            let factor = if a == x { b } else { a };
            if a != x && b != x {
                return None;
            }
            let (at, operands) = inner(graph, factor, BuiltinOp::ADD)?;
            let (square, one) = with_scalar(graph, operands)?;
            let (square, nodes) = monomial(graph, square, x).filter(|(m, _)| m.1 == 2)?;
            gone.push(at);
            gone.extend(nodes);
            (one, square.0)
        }
        _ => return None,
    };
    (near(scale * linear, root) && near(scale * cubic, root * 0.044_715)).then_some(gone)
}

/// Maximum depth of powers within products and products within powers. `x · (c · x)²`, the deepest form, has four.
const DEPTH: usize = 8;

/// Returns `(c, n)` of `c · xⁿ`, and its nodes.
fn monomial(graph: &Rewriter<'_>, id: TensorId, x: TensorId) -> Option<((f32, u32), Vec<NodeId>)> {
    monomial_within(graph, id, x, DEPTH)
}

/// As [`monomial`], down to `depth` levels.
fn monomial_within(
    graph: &Rewriter<'_>,
    id: TensorId,
    x: TensorId,
    depth: usize,
) -> Option<((f32, u32), Vec<NodeId>)> {
    let depth = depth.checked_sub(1)?;
    if id == x {
        return Some(((1.0, 1), Vec::new()));
    }
    // `x · x` may have several consumers; it is expanded only if this is the only one.
    let at = graph.producer(id).filter(|_| graph.is_private(id))?;
    let node = graph.node(at)?;
    match node.op() {
        Op::Builtin(BuiltinOp::SQUARE) => {
            let ((c, n), mut gone) = monomial_within(graph, node.input(0)?, x, depth)?;
            gone.push(at);
            Some(((c * c, n * 2), gone))
        }
        Op::Builtin(BuiltinOp::POW) => {
            let power = graph.scalar(node.input(1)?)?;
            let whole = [2.0, 3.0].iter().position(|&p| p == power)? as u32 + 2;
            (node.input(0)? == x).then_some(((1.0, whole), vec![at]))
        }
        _ => {
            let Product { factors, constant, mut gone } = product(graph, node, at)?;
            let mut power = 0;
            let mut scale = constant;
            for factor in factors {
                let ((c, n), more) = monomial_within(graph, factor, x, depth)?;
                gone.extend(more);
                (scale, power) = (scale * c, power + n);
            }
            Some(((scale, power), gone))
        }
    }
}

/// Returns the nodes of `erf(x / √2)`.
fn erf_of(graph: &Rewriter<'_>, id: TensorId, x: TensorId) -> Option<Vec<NodeId>> {
    let erf = graph.producer(id).filter(|_| graph.is_private(id))?;
    let node = graph.node(erf)?;
    let is_erf = matches!(node.op(), Op::Custom(name) if matches!(&**name, "Erf" | "FlexErf"));
    let inside = node.input(0).filter(|_| is_erf)?;
    let at = graph.producer(inside).filter(|_| graph.is_private(inside))?;
    let Product { factors, constant, mut gone } = product(graph, graph.node(at)?, at)?;
    gone.push(erf);
    let root = near(constant, FRAC_1_SQRT_2) || near(constant, 1.0 / SQRT_2);
    (factors == [x] && root).then_some(gone)
}
