//! Folding: like the interpreter, computes nodes whose outputs are constant: weights of fewer bits or sparse weights,
//! and chains that compute a shape. Runtimes keep such nodes in the graph.

use std::sync::LazyLock;

use delegraph_core::kernel::{Budget, InitContext, RuntimeTensor, Serial};
use delegraph_core::{Error, Node, OpResolver, Result, Shape, Subgraph};
use delegraph_kernels::{BuiltinOpResolver, Environment, Evaluation, KnownInputs, evaluate};

use crate::contain::contain;
use crate::no_host::NoHost;

static KERNELS: LazyLock<BuiltinOpResolver> = LazyLock::new(BuiltinOpResolver::new);

/// Maximum number of bytes of an output, and of all temporaries, of a folded node.
const MAX_BYTES: usize = 1 << 30;

/// Computes the outputs of a builtin node of known shapes, if they depend on constants and shapes only. Returns true if
/// the outputs are then constants.
pub(crate) fn fold(node: &Node, subgraph: &Subgraph, tensors: &mut [RuntimeTensor]) -> bool {
    let constant = node.inputs().iter().flatten().all(|id| tensors[id.0].is_constant());
    // A node that fails here is left to the runtime.
    contain(|| compute(node, subgraph, tensors, constant)).unwrap_or_else(|_| {
        node.outputs().iter().for_each(|id| tensors[id.0].clear_data());
        false
    })
}

fn compute(node: &Node, subgraph: &Subgraph, tensors: &mut [RuntimeTensor], constant: bool) -> Result<bool> {
    if node.op().builtin().is_none() || node.outputs().is_empty() {
        return Ok(false);
    }
    let Some(registration) = KERNELS.find(node.op(), node.version()) else { return Ok(false) };
    if registration.has_side_effects() {
        return Ok(false);
    }
    let mut kernel = registration.init(&InitContext::new(node, subgraph))?;
    if !constant && !kernel.needs_shapes_only() {
        return Ok(false);
    }
    let shapes: Vec<Shape> = node.outputs().iter().map(|id| tensors[id.0].shape.clone()).collect();
    let mut host = NoHost::within(&Budget::new(MAX_BYTES));
    let mut environment = Environment { host: &mut host, parallel: &Serial };
    let result = evaluate(node, &mut *kernel, tensors, KnownInputs::Constants, &mut environment);
    let mut agree = true;
    for (id, shape) in node.outputs().iter().zip(shapes) {
        // The runtime's shape may differ from the op's definition. The shape is kept, and the tensor then has no value.
        agree &= tensors[id.0].shape == shape;
        tensors[id.0].shape = shape;
    }
    match result? {
        Evaluation::Computed if agree => Ok(true),
        Evaluation::Computed => {
            Err(Error::State("the runtime's shapes differ from the op's definition".into()))
        }
        Evaluation::DataDependent => Ok(false),
    }
}
