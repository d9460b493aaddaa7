//! Values that are dequantized and quantized again.

use delegraph_core::error::Result;
use delegraph_core::graph::{Node, NodeId};
use delegraph_core::{BuiltinOp, Params, TensorType};

use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::{Redirect, Rewriter};

/// Merges DEQUANTIZE and QUANTIZE. With equal quantization, both are removed; otherwise, one QUANTIZE converts
/// directly, which differs by at most one step. QUANTIZE before DEQUANTIZE is not changed, because it loses precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeQuantize;

impl PatternFusion for MergeQuantize {
    fn name(&self) -> &str {
        "merge-quantize"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(merge(graph, id).is_some())
    }
}

fn merge(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node_of(id, BuiltinOp::QUANTIZE)?;
    let output = *node.outputs().first()?;
    let real = node.input(0)?;
    let (before, dequantize) = graph.made_by(real, BuiltinOp::DEQUANTIZE)?;
    let x = dequantize.input(0)?;
    let (from, to) = (graph.tensor(x)?, graph.tensor(output)?);
    let scaled = |q: Option<&delegraph_core::Quantization>| q.and_then(|q| q.scale_zero_point());
    let (Some(a), Some(b)) = (scaled(from.quantization()), scaled(to.quantization())) else {
        return None;
    };
    let types = [TensorType::Int8, TensorType::UInt8, TensorType::Int16];
    if !types.contains(&from.ty()) || !types.contains(&to.ty()) || from.is_constant() {
        return None;
    }
    let private = graph.is_private(real);
    if a == b && from.ty() == to.ty() && !graph.is_output(output) {
        graph.redirect(Redirect { from: output, to: x });
        graph.remove(id);
    } else {
        // Kernels support 8 bits to 8 bits, and 16 bits to both.
        let direct = from.ty() == TensorType::Int16 || to.ty() != TensorType::Int16;
        if !direct {
            return None;
        }
        let fused = Node::new(BuiltinOp::QUANTIZE, 2, Params::None, [Some(x)], [output]);
        graph.replace(id, &[id], fused);
    }
    if private {
        graph.remove(before);
    }
    Some(())
}
