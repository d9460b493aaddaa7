//! Normalizations made of sums of squares.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::Params;
use delegraph_core::ops::l2_normalization::L2NormParams;
use delegraph_core::{Attributes, BuiltinOp};

use super::softmax::reduced_last;
use super::{binary, inner, inner_unary, with_scalar};
use crate::fusion::composites::names;
use crate::fusion::pipeline::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// What L2_NORMALIZATION takes for the least sum of squares.
const LEAST: f32 = 1e-12;

/// `x · rsqrt(max(Σ x², 1e-12))` along the last dimension, which is TensorFlow's `l2_normalize`, becomes L2_NORMALIZATION; so
/// for `x / sqrt(…)`.
pub struct RecogniseL2Norm;

/// `(x - mean) · rsqrt(variance + ε) · γ + β` along the last dimension becomes one custom op of this project.
pub struct RecogniseLayerNorm;

impl PatternFusion for RecogniseL2Norm {
    fn name(&self) -> &str {
        "recognise-l2-norm"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(l2_norm(graph, id).is_some())
    }
}

impl PatternFusion for RecogniseLayerNorm {
    fn name(&self) -> &str {
        "recognise-layer-norm"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(layer_norm(graph, id).is_some())
    }
}

fn l2_norm(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let output = *node.outputs.first()?;
    let (x, root, least, mut gone) = match binary(graph, node, BuiltinOp::MUL) {
        Some([a, b]) => [(a, b), (b, a)].into_iter().find_map(|(x, root)| {
            let (at, least) = inner_unary(graph, root, BuiltinOp::RSQRT)?;
            Some((x, at, least, vec![id]))
        })?,
        None => {
            let [x, root] = binary(graph, node, BuiltinOp::DIV)?;
            let (at, least) = inner_unary(graph, root, BuiltinOp::SQRT)?;
            (x, at, least, vec![id])
        }
    };
    gone.push(root);
    let (maximum, operands) = inner(graph, least, BuiltinOp::MAXIMUM)?;
    let (sum, value) = with_scalar(graph, operands)?;
    if (value - LEAST).abs() > 1e-3 * LEAST {
        return None;
    }
    let (summed, squares) = reduced_last(graph, sum, BuiltinOp::SUM)?;
    gone.extend([maximum, summed, square_of(graph, squares, x)?]);
    if !graph.is_float(x) || graph.shape(x) != graph.shape(output) {
        return None;
    }
    let fused = Node::new(BuiltinOp::L2_NORMALIZATION, 1, L2NormParams::default(), [Some(x)], [output]);
    graph.replace(id, &gone, fused);
    Some(())
}

/// The node that squares `x`.
fn square_of(graph: &Rewriter<'_>, id: TensorId, x: TensorId) -> Option<NodeId> {
    if let Some((at, operand)) = inner_unary(graph, id, BuiltinOp::SQUARE) {
        return (operand == x).then_some(at);
    }
    let (at, operands) = inner(graph, id, BuiltinOp::MUL)?;
    (operands == [x, x]).then_some(at)
}

/// Mean over the last dimension, which several may read.
fn mean(graph: &Rewriter<'_>, id: TensorId) -> Option<(NodeId, TensorId)> {
    let (at, node) = graph.made_by(id, BuiltinOp::MEAN)?;
    let x = node.input(0)?;
    let Params::Reducer(p) = &node.params else { return None };
    let [axis] = *graph.integers(node.input(1)?)?.as_slice() else { return None };
    let rank = i64::try_from(graph.shape(x)?.rank()).ok()?;
    (p.keep_dims && (axis == -1 || axis == rank - 1)).then_some((at, x))
}

/// What layer normalization is made of.
struct LayerNorm {
    x: TensorId,
    gamma: TensorId,
    beta: TensorId,
    epsilon: f32,
    gone: Vec<NodeId>,
}

fn layer_norm(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let output = *graph.node(id)?.outputs.first()?;
    let LayerNorm { x, gamma, beta, epsilon, mut gone } =
        shifted_form(graph, id).or_else(|| centered_form(graph, id))?;
    if graph.shape(x).is_none() || graph.shape(x) != graph.shape(output) {
        return None;
    }
    gone.push(id);
    let options = Attributes::new().with("epsilon", epsilon).to_bytes();
    let mut inputs = vec![Some(x)];
    for constant in [gamma, beta] {
        // The op takes lists: leading dimensions of one are left out.
        inputs.push(Some(match graph.tensor(constant)?.shape.rank() {
            1 => constant,
            _ => {
                let (name, values) = (graph.name(constant, "list"), graph.floats(constant)?);
                graph.new_constant(&name, [values.len()], &values)
            }
        }));
    }
    let op = delegraph_core::Op::custom(names::LAYER_NORM);
    let mut fused = Node::new(op, 1, Params::Custom, inputs, [output]);
    fused.custom_options = graph.store(&options);
    graph.replace(id, &gone, fused);
    Some(())
}

/// Whether a constant holds one float per element of the last dimension of `x`, in a shape that leaves that of `x`.
fn is_per_channel(graph: &Rewriter<'_>, constant: TensorId, x: TensorId) -> bool {
    let (Some(values), Some(tensor), Some(shape)) =
        (graph.floats(constant), graph.tensor(constant), graph.shape(x))
    else {
        return false;
    };
    let Some((width, leading)) = tensor.shape.dims().split_last() else { return false };
    leading.iter().all(|&d| d == 1)
        && tensor.shape.rank() <= shape.rank()
        && Some(width) == shape.last()
        && values.len() == *width
}

/// Whether nobody reads a value but nodes that go with it.
fn goes_with(graph: &Rewriter<'_>, id: TensorId, gone: &[NodeId]) -> bool {
    !graph.is_output(id) && graph.readers(id).iter().all(|reader| gone.contains(reader))
}

/// Keras's and TensorFlow's form: `x · s + (β - mean · s)` with `s = rsqrt(variance + ε) · γ`.
fn shifted_form(graph: &Rewriter<'_>, id: NodeId) -> Option<LayerNorm> {
    let [a, b] = binary(graph, graph.node(id)?, BuiltinOp::ADD)?;
    [(a, b), (b, a)].into_iter().find_map(|(scaled, shifted)| {
        let (scaled_at, [p, q]) = inner(graph, scaled, BuiltinOp::MUL)?;
        let (shifted_at, [beta, moved]) = inner(graph, shifted, BuiltinOp::SUB)?;
        let (moved_at, [m, n]) = inner(graph, moved, BuiltinOp::MUL)?;
        let (x, scale) = [(p, q), (q, p)].into_iter().find(|(_, s)| *s == m || *s == n)?;
        let mean_id = if m == scale { n } else { m };
        let (mean_at, of) = mean(graph, mean_id)?;
        let (scale_at, product) = graph.made_by(scale, BuiltinOp::MUL)?;
        let [r, g] = binary(graph, product, BuiltinOp::MUL)?;
        let (root, gamma) = if graph.floats(g).is_some() { (r, g) } else { (g, r) };
        let (root_at, sum) = inner_unary(graph, root, BuiltinOp::RSQRT)?;
        let (sum_at, operands) = inner(graph, sum, BuiltinOp::ADD)?;
        let (variance, epsilon) = with_scalar(graph, operands)?;
        let (variance_at, squares) = mean(graph, variance)?;
        let (square_at, [u, v]) = inner(graph, squares, BuiltinOp::SQUARED_DIFFERENCE)?;
        let gone =
            vec![scaled_at, shifted_at, moved_at, mean_at, scale_at, root_at, sum_at, variance_at, square_at];
        let same = of == x && ((u, v) == (x, mean_id) || (v, u) == (x, mean_id));
        let private = [scale, mean_id, variance].into_iter().all(|value| goes_with(graph, value, &gone));
        let parameters = [gamma, beta].into_iter().all(|c| is_per_channel(graph, c, x));
        (same && private && parameters).then_some(LayerNorm { x, gamma, beta, epsilon, gone })
    })
}

/// PyTorch's and ONNX's form: `d · rsqrt(variance + ε) · γ + β`, or `d / sqrt(variance + ε) · γ + β`, with
/// `d = x - mean(x)` and `variance = mean(d²)`.
fn centered_form(graph: &Rewriter<'_>, id: NodeId) -> Option<LayerNorm> {
    let operands = binary(graph, graph.node(id)?, BuiltinOp::ADD)?;
    let (scaled, beta) = with_list(graph, operands)?;
    let (scaled_at, operands) = inner(graph, scaled, BuiltinOp::MUL)?;
    let (normalized, gamma) = with_list(graph, operands)?;
    let divided = inner(graph, normalized, BuiltinOp::DIV).and_then(|(at, [d, root])| {
        let (root_at, sum) = inner_unary(graph, root, BuiltinOp::SQRT)?;
        Some((d, sum, [at, root_at]))
    });
    let (difference, sum, ends) = divided.or_else(|| {
        let (at, [a, b]) = inner(graph, normalized, BuiltinOp::MUL)?;
        [(a, b), (b, a)].into_iter().find_map(|(d, root)| {
            let (root_at, sum) = inner_unary(graph, root, BuiltinOp::RSQRT)?;
            Some((d, sum, [at, root_at]))
        })
    })?;
    let (difference_at, node) = graph.made_by(difference, BuiltinOp::SUB)?;
    let [x, mean_id] = binary(graph, node, BuiltinOp::SUB)?;
    let (mean_at, of) = mean(graph, mean_id)?;
    let (sum_at, operands) = inner(graph, sum, BuiltinOp::ADD)?;
    let (variance, epsilon) = with_scalar(graph, operands)?;
    let (variance_at, squares) = mean(graph, variance)?;
    let square_at = square_of(graph, squares, difference).or_else(|| {
        let (at, operands) = inner(graph, squares, BuiltinOp::SQUARED_DIFFERENCE)?;
        (operands == [x, mean_id] || operands == [mean_id, x]).then_some(at)
    })?;
    let mut gone = vec![scaled_at, difference_at, mean_at, sum_at, variance_at, square_at];
    gone.extend(ends);
    let private = [difference, mean_id, variance, squares].into_iter().all(|v| goes_with(graph, v, &gone));
    let parameters = [gamma, beta].into_iter().all(|c| is_per_channel(graph, c, x));
    (of == x && private && parameters).then_some(LayerNorm { x, gamma, beta, epsilon, gone })
}

/// One operand, and the other, which is a constant.
fn with_list(graph: &Rewriter<'_>, [a, b]: [TensorId; 2]) -> Option<(TensorId, TensorId)> {
    [(a, b), (b, a)].into_iter().find(|(_, constant)| graph.floats(*constant).is_some())
}
