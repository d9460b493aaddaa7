//! The choice of nodes over constants that are computed while preparing.

use delegraph_core::error::Result;
use delegraph_core::graph::Node;
use delegraph_core::kernel::{Placement, RuntimeTensor};
use delegraph_core::ops::{self, OpSignature, Operand};

use super::parts::Parts;
use crate::runtime::host::Env;

/// Maximum size of computed constants, relative to the file: 2-bit or sparse weights grow when they are converted to
/// float32, and they may be converted twice.
const FILE_SIZES: usize = 64;

/// Whether the remaining work and memory suffice to compute `node`, whose output shapes are known, while preparing. If
/// so, they are charged. Other nodes run in each invocation. Variables always need their first value.
///
/// # Errors
/// If an output has no size.
pub(super) fn is_worthwhile(parts: &Parts, node: &Node, env: &mut Env<'_>) -> Result<bool> {
    let tensors = &parts.tensors;
    if node.outputs().iter().any(|id| tensors[id.0].placement() == Placement::Variable) {
        return Ok(true);
    }
    let mut bytes = 0usize;
    for id in node.outputs() {
        bytes = bytes.saturating_add(tensors[id.0].byte_size()?);
    }
    let (limits, usage) = (env.services.limits, &mut *env.services.usage);
    let bytes = usage.folded_bytes.saturating_add(bytes);
    let of_file = parts.model.bytes().len().saturating_mul(FILE_SIZES);
    let multiply_adds = usage.folding_multiply_adds.saturating_add(multiply_adds(node, tensors));
    let limit = |name: &str| log::debug!("{} over constants is left to invocations: above {name}", node.op());
    if bytes > limits.folded_bytes.saturating_add(of_file) {
        limit("`ResourceLimits::folded_bytes`");
        return Ok(false);
    }
    if multiply_adds > limits.folding_multiply_adds {
        limit("`ResourceLimits::folding_multiply_adds`");
        return Ok(false);
    }
    (usage.folded_bytes, usage.folding_multiply_adds) = (bytes, multiply_adds);
    Ok(true)
}

fn operand(t: &RuntimeTensor) -> Operand<'_> {
    Operand::new(t.ty, &t.shape)
        .with_quantization(t.quantization.as_deref())
        .with_constant(t.is_constant())
        .with_sparse(t.sparsity.is_some())
}

fn multiply_adds(node: &Node, tensors: &[RuntimeTensor]) -> u64 {
    let Some(definition) = node.op().builtin().and_then(ops::definition) else { return 0 };
    let inputs = node.inputs().iter().map(|id| id.map(|id| operand(&tensors[id.0])));
    let outputs = node.outputs().iter().map(|id| operand(&tensors[id.0]));
    let signature = OpSignature::new(node.params()).with_inputs(inputs).with_outputs(outputs);
    (definition.multiply_adds)(&signature)
}
