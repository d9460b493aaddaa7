//! Fusions of unmarked patterns.
//!
//! Each file has one family. A pattern is recognised from its last node backwards. Intermediate values must not have
//! other readers, since they would still have to be computed.

use std::sync::Arc;

use delegraph_core::graph::{Node, TensorId};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Op};

use super::pattern::PatternFusion;
use super::rewriter::Rewriter;

mod activation;
mod affine;
mod clamp;
mod duplicate;
mod gelu;
mod hard_swish;
mod identity;
mod l2_norm;
mod movement;
mod normalization;
mod pad;
mod quantize;
mod softmax;

pub use activation::FuseActivation;
pub use affine::{FoldBias, FoldScale};
pub use clamp::FuseClamp;
pub use duplicate::MergeDuplicates;
pub use gelu::FuseGelu;
pub use hard_swish::FuseHardSwish;
pub use identity::RemoveIdentity;
pub use l2_norm::FuseL2Norm;
pub use movement::MergeMovement;
pub use normalization::{FuseLayerNorm, FuseRmsNorm};
pub use pad::FoldPad;
pub use quantize::MergeQuantize;
pub use softmax::FuseSoftmax;

/// Returns all fusions that produce builtin ops, in the order in which they are tried.
pub(super) fn all() -> Vec<Arc<dyn PatternFusion>> {
    vec![
        Arc::new(RemoveIdentity),
        Arc::new(MergeDuplicates),
        Arc::new(FuseClamp),
        Arc::new(FuseHardSwish),
        Arc::new(FuseGelu),
        Arc::new(FuseSoftmax),
        Arc::new(FuseL2Norm),
        Arc::new(MergeQuantize),
        Arc::new(MergeMovement),
        Arc::new(FoldScale),
        Arc::new(FoldBias),
        Arc::new(FoldPad),
        Arc::new(FuseActivation),
    ]
}

/// Returns the fusions that produce custom ops of this project.
pub(super) fn custom() -> Vec<Arc<dyn PatternFusion>> {
    vec![Arc::new(FuseLayerNorm), Arc::new(FuseRmsNorm)]
}

/// Returns the fused activation of an op's params.
fn activation(params: &Params) -> Option<Activation> {
    Some(match params {
        Params::Conv2D(p) => p.fused_activation_function,
        Params::DepthwiseConv2D(p) => p.fused_activation_function,
        Params::FullyConnected(p) => p.fused_activation_function,
        Params::Add(p) => p.fused_activation_function,
        Params::Sub(p) => p.fused_activation_function,
        Params::Mul(p) => p.fused_activation_function,
        Params::Div(p) => p.fused_activation_function,
        Params::Pool2D(p) => p.fused_activation_function,
        Params::TransposeConv(p) => p.fused_activation_function,
        _ => return None,
    })
}

fn set_activation(params: &mut Params, activation: Activation) {
    match params {
        Params::Conv2D(p) => p.fused_activation_function = activation,
        Params::DepthwiseConv2D(p) => p.fused_activation_function = activation,
        Params::FullyConnected(p) => p.fused_activation_function = activation,
        Params::Add(p) => p.fused_activation_function = activation,
        Params::Sub(p) => p.fused_activation_function = activation,
        Params::Mul(p) => p.fused_activation_function = activation,
        Params::Div(p) => p.fused_activation_function = activation,
        Params::Pool2D(p) => p.fused_activation_function = activation,
        Params::TransposeConv(p) => p.fused_activation_function = activation,
        _ => {}
    }
}

/// Returns whether the node has no fused activation.
fn is_plain(node: &Node) -> bool {
    activation(node.params()).is_none_or(|a| a == Activation::None)
}

/// Returns the operands of a node, if it is a float32 `op` without a fused activation.
fn binary(graph: &Rewriter<'_>, node: &Node, op: BuiltinOp) -> Option<[TensorId; 2]> {
    let is = *node.op() == Op::Builtin(op) && is_plain(node);
    let operands = [node.input(0)?, node.input(1)?];
    (is && graph.is_float(operands[0])).then_some(operands)
}

/// Returns the node that computes `id`, and its operands, if it is a float32 `op` without a fused activation, and `id`
/// has one reader.
fn inner(
    graph: &Rewriter<'_>,
    id: TensorId,
    op: BuiltinOp,
) -> Option<(delegraph_core::NodeId, [TensorId; 2])> {
    let (at, node) = graph.made_by(id, op)?;
    let operands = binary(graph, node, op)?;
    graph.is_private(id).then_some((at, operands))
}

/// As [`inner`], for an op of one operand.
fn inner_unary(
    graph: &Rewriter<'_>,
    id: TensorId,
    op: BuiltinOp,
) -> Option<(delegraph_core::NodeId, TensorId)> {
    let (at, node) = graph.made_by(id, op)?;
    let x = node.input(0)?;
    (graph.is_private(id) && graph.is_float(x)).then_some((at, x))
}

/// Returns the operand and the other operand's constant element; `None` if the constant changes the shape of the
/// result.
fn with_scalar(graph: &Rewriter<'_>, [a, b]: [TensorId; 2]) -> Option<(TensorId, f32)> {
    let keeps = |x: TensorId, c: TensorId| {
        let (x, c) = (graph.shape(x), graph.shape(c));
        c.zip(x).is_some_and(|(c, x)| c.rank() <= x.rank())
    };
    if let Some(value) = graph.scalar(b).filter(|_| keeps(a, b)) {
        return Some((a, value));
    }
    graph.scalar(a).filter(|_| keeps(b, a)).map(|value| (b, value))
}

/// Returns whether a constant equals the pattern's number, within the digits that frameworks write.
fn near(value: f32, wanted: f32) -> bool {
    (value - wanted).abs() <= 1e-5 * wanted.abs()
}
