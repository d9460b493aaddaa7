//! A model in words, for reports.

use std::collections::BTreeSet;

use delegraph_core::{BuiltinOp, Model, Op, Quantization, Tensor, TensorId, TensorType};

use super::problem::Problem;
use super::result::CaseResult;

/// The longest text of params that reports show.
const PARAMS: usize = 2000;

/// Fills in what is known of a problem before it runs.
pub(super) fn describe(problem: &Problem, result: &mut CaseResult) {
    let model = &problem.model;
    result.op = problem.op.to_string();
    result.version = problem.version;
    result.ty = problem.ty.map_or(String::new(), |ty| ty.name().to_lowercase());
    result.tags = problem.tags.clone();
    let nodes = || model.subgraphs.iter().flat_map(|s| &s.nodes);
    let ops: BTreeSet<String> = nodes().map(|n| format!("{}:{}", n.op, n.version)).collect();
    result.ops = ops.into_iter().collect();
    result.nodes = nodes().count();
    let subject = nodes().find(|n| n.op == problem.op);
    result.params = subject.map_or(String::new(), |n| shortened(format!("{:?}", n.params)));
    let Some(main) = model.subgraphs.first() else { return };
    let outside = || main.inputs.iter().chain(&main.outputs);
    let types: BTreeSet<&str> = outside().map(|id| main.tensor(*id).ty.name()).collect();
    result.types = types.into_iter().map(Into::into).collect();
    let texts = |ids: &[TensorId]| ids.iter().map(|id| tensor(main.tensor(*id))).collect::<Vec<_>>();
    // What the op reads says more than what the caller gives: constants are among it.
    result.inputs = match main.nodes.iter().find(|n| n.op == problem.op) {
        Some(node) => {
            let operand = |id: &Option<TensorId>| id.map_or("none".into(), |id| tensor(main.tensor(id)));
            node.inputs.iter().map(operand).collect()
        }
        None => texts(&main.inputs),
    };
    result.outputs = texts(&main.outputs);
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(PARAMS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn tensor(tensor: &Tensor) -> String {
    let mut text = format!("{} {}", tensor.ty.name().to_lowercase(), tensor.shape);
    if let Some(Quantization::Affine(affine)) = tensor.quantization.as_deref() {
        match affine.scales.as_slice() {
            [scale] => {
                text += &format!(" scale {scale}, zero point {}", affine.zero_points.get(0).unwrap_or(0));
            }
            scales => {
                text += &format!(" {} scales along dimension {}", scales.len(), affine.dimension);
            }
        }
    }
    if tensor.is_variable {
        text += " variable";
    } else if tensor.is_constant() {
        text += " constant";
    }
    text
}

/// The op that a model of unknown origin is about, with version and type: its first node that is not there to convert
/// or to move.
pub(super) fn subject(model: &Model) -> (Op, u32, Option<TensorType>) {
    use BuiltinOp as B;
    let plumbing = |op: &Op| {
        let plain = [B::CAST, B::QUANTIZE, B::DEQUANTIZE, B::RESHAPE, B::SHAPE, B::VAR_HANDLE];
        op.builtin().is_some_and(|op| plain.contains(&op))
    };
    let Some(main) = model.subgraphs.first() else { return (Op::custom(""), 0, None) };
    let node = main.nodes.iter().find(|n| !plumbing(&n.op)).or(main.nodes.first());
    let Some(node) = node else { return (Op::custom(""), 0, None) };
    let first = node.inputs.iter().flatten().next().or(node.outputs.first());
    (node.op.clone(), node.version, first.map(|id| main.tensor(*id).ty))
}
