//! Folds factors and terms per channel, as of batch normalization, into weights and biases of adjacent ops.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, TensorId};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Op};

use super::{activation, set_activation};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Folds a constant factor, per channel or for all channels, into the weights of a product: `conv(x) · c`, `conv(x) /
/// c`, and `conv(x · c)`, for which zeros of the padding remain zeros. Float32 only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldScale;

/// Folds a constant term into the bias: `conv(x) + c` and `conv(x) - c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldBias;

impl PatternFusion for FoldScale {
    fn name(&self) -> &str {
        "fold-scale"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(scale(graph, id).or_else(|| scale_before(graph, id)).is_some())
    }
}

impl PatternFusion for FoldBias {
    fn name(&self) -> &str {
        "fold-bias"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(bias(graph, id).is_some())
    }
}

/// A product with weights, and the MUL, DIV, ADD or SUB of its result and a constant.
struct Found {
    producer: NodeId,
    before: Node,
    /// The MUL, DIV, ADD or SUB.
    after: Node,
    /// The constant, one per channel.
    constant: Vec<f32>,
    /// Whether the constant is the first operand.
    swapped: bool,
    weights: TensorId,
    bias: Option<TensorId>,
}

/// Returns the dimension of the weights that counts output channels.
fn channel_dimension(op: &Op) -> Option<usize> {
    match op {
        Op::Builtin(BuiltinOp::CONV_2D | BuiltinOp::FULLY_CONNECTED) => Some(0),
        Op::Builtin(BuiltinOp::DEPTHWISE_CONV_2D) => Some(3),
        _ => None,
    }
}

fn find(graph: &Rewriter<'_>, id: NodeId, ops: &[BuiltinOp]) -> Option<Found> {
    let after = graph.node(id)?.clone();
    if !ops.iter().any(|op| *after.op() == Op::Builtin(*op)) {
        return None;
    }
    let [a, b] = [after.input(0)?, after.input(1)?];
    let (x, c, swapped) = if graph.floats(b).is_some() { (a, b, false) } else { (b, a, true) };
    let producer = graph.producer(x).filter(|_| graph.is_private(x))?;
    let before = graph.node(producer)?.clone();
    let dimension = channel_dimension(before.op())?;
    let (weights, bias) = (before.input(1)?, before.input(2));
    let channels = *graph.tensor(weights)?.shape().get(dimension)?;
    if activation(before.params())? != Activation::None || before.outputs().len() != 1 {
        return None;
    }
    if let Params::FullyConnected(p) = before.params()
        && p.weights_format != delegraph_core::ops::WeightsFormat::Default
    {
        return None;
    }
    let (output, constant) = (graph.shape(x)?, graph.floats(c)?);
    let shape = graph.tensor(c)?.shape();
    // The constant has one element, or one per channel (the last dimension of the output), and the output keeps its
    // shape.
    let leading = shape.dims().split_last().is_none_or(|(_, leading)| leading.iter().all(|&d| d == 1));
    let fits = constant.len() == 1 || (constant.len() == channels && shape.last() == Some(&channels));
    if !(leading && fits && shape.rank() <= output.rank() && output.last() == Some(&channels)) {
        return None;
    }
    let constant = if constant.len() == 1 { vec![constant[0]; channels] } else { constant };
    Some(Found { producer, before, after, constant, swapped, weights, bias })
}

fn scale(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let found = find(graph, id, &[BuiltinOp::MUL, BuiltinOp::DIV])?;
    let division = *found.after.op() == Op::Builtin(BuiltinOp::DIV);
    if (division && (found.swapped || found.constant.contains(&0.0)))
        || !found.constant.iter().all(|c| c.is_finite())
    {
        return None;
    }
    // Weights with other readers would be stored twice.
    if graph.readers(found.weights).len() != 1 {
        return None;
    }
    let apply = |value: f32, channel: usize| {
        let c = found.constant[channel];
        if division { value / c } else { value * c }
    };
    let dimension = channel_dimension(found.before.op())?;
    let shape = graph.tensor(found.weights)?.shape().clone();
    let inner: usize = shape.get(dimension + 1..)?.iter().product();
    let channels = found.constant.len();
    let values = graph.floats(found.weights)?;
    let scaled: Vec<f32> =
        values.iter().enumerate().map(|(i, &v)| apply(v, i / inner.max(1) % channels)).collect();
    let bias = match found.bias {
        Some(bias) => {
            let values = graph.floats(bias).filter(|values| values.len() == channels)?;
            let values: Vec<f32> = values.iter().enumerate().map(|(i, &v)| apply(v, i)).collect();
            Some((bias, values))
        }
        None => None,
    };
    let name = graph.name(found.weights, "scaled");
    let weights = graph.constant_like(found.weights, &name, bytemuck::cast_slice(&scaled))?;
    let mut fused = found.before.clone();
    *fused.inputs_mut().get_mut(1)? = Some(weights);
    if let Some((bias, values)) = bias {
        let name = graph.name(bias, "scaled");
        let bias = graph.constant_like(bias, &name, bytemuck::cast_slice(&values))?;
        *fused.inputs_mut().get_mut(2)? = Some(bias);
    }
    finish(graph, id, &found, fused)
}

/// Folds a factor of the input of a product with weights.
fn scale_before(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?.clone();
    let (x, weights) = (node.input(0)?, node.input(1)?);
    if let Params::FullyConnected(p) = node.params()
        && p.weights_format != delegraph_core::ops::WeightsFormat::Default
    {
        return None;
    }
    let producer = graph.producer(x).filter(|_| graph.is_private(x))?;
    let before = graph.node(producer)?;
    let division = *before.op() == Op::Builtin(BuiltinOp::DIV);
    if !(division || *before.op() == Op::Builtin(BuiltinOp::MUL))
        || activation(before.params())? != Activation::None
    {
        return None;
    }
    let [a, b] = [before.input(0)?, before.input(1)?];
    let (of, c) = if graph.floats(b).is_some() || division { (a, b) } else { (b, a) };
    let constant = graph.floats(c)?;
    let shape = graph.shape(x)?;
    let channels = *shape.last()?;
    let dims = graph.tensor(c)?.shape();
    let leading = dims.dims().split_last().is_none_or(|(_, leading)| leading.iter().all(|&d| d == 1));
    let fits = constant.len() == 1 || (constant.len() == channels && dims.last() == Some(&channels));
    let usable = constant.iter().all(|c| c.is_finite() && !(division && *c == 0.0));
    if !(leading && fits && usable && graph.shape(of) == Some(shape) && graph.readers(weights).len() == 1) {
        return None;
    }
    // The number of consecutive weights that are multiplied with the same input channel.
    let last = *graph.tensor(weights)?.shape().last()?;
    let per = match node.op() {
        Op::Builtin(BuiltinOp::CONV_2D | BuiltinOp::FULLY_CONNECTED) if last == channels => 1,
        Op::Builtin(BuiltinOp::DEPTHWISE_CONV_2D) if channels > 0 && last.is_multiple_of(channels) => {
            last / channels
        }
        _ => return None,
    };
    let apply = |(i, value): (usize, f32)| {
        let c = constant.get(i % last.max(1) / per.max(1)).or(constant.first()).copied().unwrap_or(1.0);
        if division { value / c } else { value * c }
    };
    let scaled: Vec<f32> = graph.floats(weights)?.into_iter().enumerate().map(apply).collect();
    let name = graph.name(weights, "scaled");
    let weights = graph.constant_like(weights, &name, bytemuck::cast_slice(&scaled))?;
    let mut fused = node;
    *fused.inputs_mut().get_mut(0)? = Some(of);
    *fused.inputs_mut().get_mut(1)? = Some(weights);
    graph.replace(id, &[producer, id], fused);
    Some(())
}

fn bias(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let found = find(graph, id, &[BuiltinOp::ADD, BuiltinOp::SUB])?;
    let difference = *found.after.op() == Op::Builtin(BuiltinOp::SUB);
    if difference && found.swapped {
        return None;
    }
    if !graph.is_float(found.before.input(0)?) {
        return None;
    }
    let channels = found.constant.len();
    let old = match found.bias {
        Some(bias) => graph.floats(bias).filter(|values| values.len() == channels)?,
        None => vec![0.0; channels],
    };
    let sign = if difference { -1.0 } else { 1.0 };
    let sum: Vec<f32> = old.iter().zip(&found.constant).map(|(a, b)| a + sign * b).collect();
    let name = graph.name(found.bias.unwrap_or(found.weights), "bias");
    let bias = graph.new_constant(&name, [channels], &sum);
    let mut fused = found.before.clone();
    fused.inputs_mut().resize(3, None);
    fused.inputs_mut()[2] = Some(bias);
    finish(graph, id, &found, fused)
}

fn finish(graph: &mut Rewriter<'_>, id: NodeId, found: &Found, mut fused: Node) -> Option<()> {
    set_activation(fused.params_mut(), activation(found.after.params())?);
    fused.set_options_left_out(false);
    fused.set_outputs(found.after.outputs().iter().copied());
    graph.replace(id, &[found.producer, id], fused);
    Some(())
}
