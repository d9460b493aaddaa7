//! Folds factors and terms per channel, as of batch normalization, into weights and biases of adjacent ops.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId, Tensor, TensorId};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Op, TensorType};

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
    /// The fused activation of `after`.
    activation: Activation,
    /// The number of output channels.
    channels: usize,
    /// The constant: one for all channels, or one per channel.
    constant: Vec<f32>,
    /// Whether the constant is the first operand.
    swapped: bool,
    weights: TensorId,
    bias: Option<TensorId>,
}

impl Found {
    /// Returns the constant of a channel.
    fn at(&self, channel: usize) -> f32 {
        self.constant.get(channel).or(self.constant.first()).copied().unwrap_or_default()
    }
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
    let after = graph.node(id)?;
    if !ops.iter().any(|op| *after.op() == Op::Builtin(*op)) {
        return None;
    }
    let [a, b] = [after.input(0)?, after.input(1)?];
    let (x, c, swapped) = if graph.float_count(b).is_some() { (a, b, false) } else { (b, a, true) };
    let producer = graph.producer(x).filter(|_| graph.is_private(x))?;
    let before = graph.node(producer)?;
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
    let (output, count) = (graph.shape(x)?, graph.float_count(c)?);
    let shape = graph.tensor(c)?.shape();
    // The constant has one element, or one per channel (the last dimension of the output), and the output keeps its
    // shape.
    let leading = shape.dims().split_last().is_none_or(|(_, leading)| leading.iter().all(|&d| d == 1));
    let fits = count == 1 || (count == channels && shape.last() == Some(&channels));
    if !(leading && fits && shape.rank() <= output.rank() && output.last() == Some(&channels)) {
        return None;
    }
    Some(Found {
        producer,
        before: before.clone(),
        after: after.clone(),
        activation: activation(after.params())?,
        channels,
        constant: graph.floats(c)?,
        swapped,
        weights,
        bias,
    })
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
        let c = found.at(channel);
        if division { value / c } else { value * c }
    };
    let dimension = channel_dimension(found.before.op())?;
    let shape = graph.tensor(found.weights)?.shape();
    let inner = shape.get(dimension + 1..)?.iter().product::<usize>().max(1);
    let channels = found.channels;
    graph.float_count(found.weights)?;
    if found.bias.is_some_and(|bias| graph.float_count(bias) != Some(channels)) {
        return None;
    }
    let bytes = graph.bytes_to_map(found.weights) + found.bias.map_or(0, |bias| graph.bytes_to_map(bias));
    if !graph.has_room(bytes) {
        return None;
    }
    // Nothing fails after this: weights of this pass are changed in place.
    let mut fused = found.before.clone();
    for (i, per) in [(1, inner), (2, 1)] {
        let Some(input) = fused.inputs_mut().get_mut(i) else { continue };
        let Some(values) = *input else { continue };
        let new = graph.tensor(values)?.clone().with_name(graph.name(values, "scaled"));
        *input = graph.mapped(values, new, |i, v| apply(v, i / per % channels));
    }
    finish(graph, id, &found, fused);
    Some(())
}

/// Folds a factor of the input of a product with weights.
fn scale_before(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
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
    let (of, c) = if graph.float_count(b).is_some() || division { (a, b) } else { (b, a) };
    let count = graph.float_count(c)?;
    let shape = graph.shape(x)?;
    let channels = *shape.last()?;
    let dims = graph.tensor(c)?.shape();
    let leading = dims.dims().split_last().is_none_or(|(_, leading)| leading.iter().all(|&d| d == 1));
    let fits = count == 1 || (count == channels && dims.last() == Some(&channels));
    if !(leading && fits && graph.shape(of) == Some(shape) && graph.readers(weights).len() == 1) {
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
    graph.float_count(weights)?;
    let constant = graph.floats(c)?;
    let usable = constant.iter().all(|c| c.is_finite() && !(division && *c == 0.0));
    if !usable || !graph.has_room(graph.bytes_to_map(weights)) {
        return None;
    }
    let mut fused = node.clone();
    let new = graph.tensor(weights)?.clone().with_name(graph.name(weights, "scaled"));
    let weights = graph.mapped(weights, new, |i, value| {
        let c = constant.get(i % last.max(1) / per.max(1)).or(constant.first()).copied().unwrap_or(1.0);
        if division { value / c } else { value * c }
    })?;
    for (input, new) in fused.inputs_mut().iter_mut().zip([of, weights]) {
        *input = Some(new);
    }
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
    let channels = found.channels;
    if found.bias.is_some_and(|bias| graph.float_count(bias) != Some(channels)) {
        return None;
    }
    let added = |bias: TensorId| graph.bytes_to_map(bias);
    if !graph.has_room(found.bias.map_or(channels.saturating_mul(size_of::<f32>()), added)) {
        return None;
    }
    let sign = if difference { -1.0 } else { 1.0 };
    let sum = |i: usize, old: f32| old + sign * found.at(i);
    let name = graph.name(found.bias.unwrap_or(found.weights), "bias");
    let new = Tensor::new(name, TensorType::Float32, [channels]);
    let bias = match found.bias {
        Some(bias) => graph.mapped(bias, new, sum)?,
        None => graph.mapped_zeros(channels, new, sum),
    };
    let mut fused = found.before.clone();
    fused.inputs_mut().resize(3, None);
    fused.inputs_mut()[2] = Some(bias);
    finish(graph, id, &found, fused);
    Some(())
}

fn finish(graph: &mut Rewriter<'_>, id: NodeId, found: &Found, mut fused: Node) {
    set_activation(fused.params_mut(), found.activation);
    fused.set_options_left_out(false);
    fused.set_outputs(found.after.outputs().iter().copied());
    graph.replace(id, &[found.producer, id], fused);
}
