//! Fusions of patterns that nobody marked.
//!
//! Each file has one family. A pattern is recognised from its last node backwards, and only where the values in between
//! have no other reader: else they would have to be computed all the same.

use std::sync::Arc;

use delegraph_core::graph::{Node, TensorId};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Op};

use super::pipeline::PatternFusion;
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
pub use clamp::RecogniseClamp;
pub use duplicate::MergeDuplicates;
pub use gelu::RecogniseGelu;
pub use hard_swish::RecogniseHardSwish;
pub use identity::RemoveIdentity;
pub use l2_norm::RecogniseL2Norm;
pub use movement::MergeMovement;
pub use normalization::{RecogniseLayerNorm, RecogniseRmsNorm};
pub use pad::FoldPad;
pub use quantize::MergeQuantize;
pub use softmax::RecogniseSoftmax;

/// All that make builtin ops, in the order in which they are tried.
pub(super) fn all() -> Vec<Arc<dyn PatternFusion>> {
    vec![
        Arc::new(RemoveIdentity),
        Arc::new(MergeDuplicates),
        Arc::new(RecogniseClamp),
        Arc::new(RecogniseHardSwish),
        Arc::new(RecogniseGelu),
        Arc::new(RecogniseSoftmax),
        Arc::new(RecogniseL2Norm),
        Arc::new(MergeQuantize),
        Arc::new(MergeMovement),
        Arc::new(FoldScale),
        Arc::new(FoldBias),
        Arc::new(FoldPad),
        Arc::new(FuseActivation),
    ]
}

/// Those that make custom ops of this project.
pub(super) fn custom() -> Vec<Arc<dyn PatternFusion>> {
    vec![Arc::new(RecogniseLayerNorm), Arc::new(RecogniseRmsNorm)]
}

/// The activation that an op's params hold.
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

/// Whether the node does no more than its op's name says: no activation.
fn is_plain(node: &Node) -> bool {
    activation(&node.params).is_none_or(|a| a == Activation::None)
}

/// The operands of a node of the op `op` without an activation.
fn binary(graph: &Rewriter<'_>, node: &Node, op: BuiltinOp) -> Option<[TensorId; 2]> {
    let is = node.op == Op::Builtin(op) && is_plain(node);
    let operands = [node.input(0)?, node.input(1)?];
    (is && graph.is_float(operands[0])).then_some(operands)
}

/// The node that computes `id` for one reader alone, where it is `op` without an activation; its operands.
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

/// One operand, and the constant of one element that is the other; not where that gives the result another shape.
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

/// Whether a constant is the number that a pattern wants, but for how many of its digits were written.
fn near(value: f32, wanted: f32) -> bool {
    (value - wanted).abs() <= 1e-5 * wanted.abs()
}
