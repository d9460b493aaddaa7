//! Descriptions of models, for reports.

use std::collections::BTreeSet;

use delegraph_core::{Quantization, Tensor, TensorId};

use super::problem::Problem;
use super::result::CaseResult;

/// Maximum length of the params' text in reports.
const PARAMS: usize = 2000;

/// Describes a problem in its result, before it runs.
pub(crate) fn describe(problem: &Problem, result: &mut CaseResult) {
    let model = &problem.model;
    result.op = problem.op.to_string();
    result.version = problem.version;
    result.ty = problem.ty.map_or(String::new(), |ty| ty.name().to_lowercase());
    result.tags = problem.tags.clone();
    let nodes = || model.subgraphs().iter().flat_map(|s| s.nodes());
    let ops: BTreeSet<String> = nodes().map(|n| format!("{}:{}", n.op(), n.version())).collect();
    result.ops = ops.into_iter().collect();
    result.nodes = nodes().count();
    let subject = nodes().find(|n| *n.op() == problem.op);
    result.params = subject.map_or(String::new(), |n| shortened(format!("{:?}", n.params())));
    let Some(main) = model.subgraphs().first() else { return };
    let outside = || main.inputs().iter().chain(main.outputs());
    let types: BTreeSet<&str> = outside().map(|id| main.tensor(*id).ty().name()).collect();
    result.types = types.into_iter().map(Into::into).collect();
    let texts = |ids: &[TensorId]| ids.iter().map(|id| tensor(main.tensor(*id))).collect::<Vec<_>>();
    // The op's operands include constants, so they are preferred to the model's inputs.
    result.inputs = match main.nodes().iter().find(|n| *n.op() == problem.op) {
        Some(node) => {
            let operand = |id: &Option<TensorId>| id.map_or("none".into(), |id| tensor(main.tensor(id)));
            node.inputs().iter().map(operand).collect()
        }
        None => texts(main.inputs()),
    };
    result.outputs = texts(main.outputs());
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(PARAMS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn tensor(tensor: &Tensor) -> String {
    let mut text = format!("{} {}", tensor.ty().name().to_lowercase(), tensor.shape());
    if let Some(Quantization::Affine(affine)) = tensor.quantization() {
        match affine.scales.as_slice() {
            [scale] => {
                text += &format!(" scale {scale}, zero point {}", affine.zero_points.get(0).unwrap_or(0));
            }
            scales => {
                text += &format!(" {} scales along dimension {}", scales.len(), affine.dimension);
            }
        }
    }
    if tensor.is_variable() {
        text += " variable";
    } else if tensor.is_constant() {
        text += " constant";
    }
    text
}
