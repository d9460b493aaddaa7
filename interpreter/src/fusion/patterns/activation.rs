//! Merges activations into preceding ops.

use delegraph_core::error::Result;
use delegraph_core::graph::NodeId;
use delegraph_core::ops::Activation;
use delegraph_core::{BuiltinOp, Op, TensorType};

use super::{activation, set_activation};
use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Merges RELU, RELU6 and RELU_N1_TO_1 into the preceding CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, ADD, SUB, MUL,
/// DIV (float32 only), AVERAGE_POOL_2D or MAX_POOL_2D. Quantized tensors must have equal quantization, so that no value
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseActivation;

impl PatternFusion for FuseActivation {
    fn name(&self) -> &str {
        "fuse-activation"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(fuse(graph, id).is_some())
    }
}

fn fuse(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let wanted = match node.op() {
        Op::Builtin(BuiltinOp::RELU) => Activation::Relu,
        Op::Builtin(BuiltinOp::RELU6) => Activation::Relu6,
        Op::Builtin(BuiltinOp::RELU_N1_TO_1) => Activation::ReluN1To1,
        _ => return None,
    };
    let (x, y) = (node.input(0)?, *node.outputs().first()?);
    let producer = graph.producer(x).filter(|_| graph.is_private(x))?;
    let before = graph.node(producer)?;
    let fuses = matches!(
        before.op(),
        Op::Builtin(
            BuiltinOp::CONV_2D
                | BuiltinOp::DEPTHWISE_CONV_2D
                | BuiltinOp::FULLY_CONNECTED
                | BuiltinOp::ADD
                | BuiltinOp::SUB
                | BuiltinOp::MUL
                | BuiltinOp::DIV
                | BuiltinOp::AVERAGE_POOL_2D
                | BuiltinOp::MAX_POOL_2D
        )
    );
    let types = match graph.ty(x)? {
        TensorType::Float32 => true,
        TensorType::Int8 | TensorType::UInt8 => {
            let division = *before.op() == Op::Builtin(BuiltinOp::DIV);
            !division && graph.quantization(x).is_some() && graph.quantization(x) == graph.quantization(y)
        }
        _ => false,
    };
    let plain = activation(before.params())? == Activation::None && before.outputs().len() == 1;
    if !(fuses && types && plain && graph.ty(x) == graph.ty(y)) {
        return None;
    }
    let mut fused = before.clone();
    set_activation(fused.params_mut(), wanted);
    fused.set_outputs(vec![y]);
    fused.set_options_left_out(false);
    graph.replace(id, &[producer, id], fused);
    Some(())
}
