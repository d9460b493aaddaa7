//! Zero padding before a convolution.

use delegraph_core::error::Result;
use delegraph_core::graph::{NodeId, TensorId};
use delegraph_core::ops::{Padding, Params};
use delegraph_core::{BuiltinOp, Op, TensorType};

use crate::fusion::pattern::PatternFusion;
use crate::fusion::rewriter::Rewriter;

/// Merges PAD into a following convolution without padding, as padding `SAME`, if that adds the same zeros. With a
/// stride above 1 the result depends on the input's size, which the model must then fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldPad;

impl PatternFusion for FoldPad {
    fn name(&self) -> &str {
        "fold-pad"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        Ok(fold(graph, id).is_some())
    }
}

/// Stride and dilation along height and width.
type Steps = [(i32, i32); 2];

fn windows(params: &Params) -> Option<(Padding, Steps)> {
    match params {
        Params::Conv2D(p) => {
            Some((p.padding, [(p.stride_h, p.dilation_h_factor), (p.stride_w, p.dilation_w_factor)]))
        }
        Params::DepthwiseConv2D(p) => {
            Some((p.padding, [(p.stride_h, p.dilation_h_factor), (p.stride_w, p.dilation_w_factor)]))
        }
        _ => None,
    }
}

fn fold(graph: &mut Rewriter<'_>, id: NodeId) -> Option<()> {
    let node = graph.node(id)?;
    let (padding, steps) = windows(node.params())?;
    if padding != Padding::Valid {
        return None;
    }
    let (padded, filter) = (node.input(0)?, node.input(1)?);
    let pad = graph.producer(padded).filter(|_| graph.is_private(padded))?;
    let before = graph.node(pad)?;
    let zeros = match before.op() {
        Op::Builtin(BuiltinOp::PAD) => true,
        Op::Builtin(BuiltinOp::PADV2) => graph.scalar(before.input(2)?)? == 0.0,
        _ => false,
    };
    let x = before.input(0)?;
    let amounts = graph.integers(before.input(1)?)?;
    // PAD of quantized values adds the value that represents 0.
    let types = matches!(graph.ty(x)?, TensorType::Float32 | TensorType::Int8 | TensorType::UInt8);
    if !zeros || !types || graph.quantization(x) != graph.quantization(padded) || amounts.len() != 8 {
        return None;
    }
    if [0, 1, 6, 7].iter().any(|&i| amounts.get(i) != Some(&0)) {
        return None;
    }
    let (input, kernel) = (graph.shape(x)?.clone(), graph.tensor(filter)?.shape().clone());
    for (axis, (stride, dilation)) in [1, 2].into_iter().zip(steps) {
        let (stride, dilation) = (i64::from(stride.max(1)), i64::from(dilation.max(1)));
        let size = i64::try_from(*input.get(axis)?).ok()?;
        let reach = (i64::try_from(*kernel.get(axis)?).ok()? - 1) * dilation + 1;
        let outputs = (size + stride - 1) / stride;
        let total = ((outputs - 1) * stride + reach - size).max(0);
        let wanted = (total / 2, total - total / 2);
        let given = (*amounts.get(2 * axis)?, *amounts.get(2 * axis + 1)?);
        if wanted != given || (stride > 1 && !is_fixed(graph, axis)) || size <= 0 {
            return None;
        }
    }
    let mut fused = graph.node(id)?.clone();
    match fused.params_mut() {
        Params::Conv2D(p) => p.padding = Padding::Same,
        Params::DepthwiseConv2D(p) => p.padding = Padding::Same,
        _ => return None,
    }
    fused.set_options_left_out(false);
    *fused.inputs_mut().first_mut()? = Some(x);
    graph.replace(id, &[pad, id], fused);
    Some(())
}

/// Returns whether the file fixes the size of `axis` for all inputs of the model.
fn is_fixed(graph: &Rewriter<'_>, axis: usize) -> bool {
    let fixed = |id: &TensorId| {
        let signature = graph.tensor(*id).and_then(|t| t.shape_signature());
        signature.is_none_or(|s| s.get(axis).is_none_or(Option::is_some))
    };
    graph.inputs().iter().all(fixed)
}
