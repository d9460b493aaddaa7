//! Nodes whose outputs are constant, computed as our own interpreter does: weights stored in fewer bits or sparsely,
//! chains that compute a shape. Runtimes keep them in the graph.

use std::sync::LazyLock;

use delegraph_core::kernel::{
    AlignedBuffer, InitContext, InvokeContext, Placement, PrepareContext, RuntimeTensor, Serial,
};
use delegraph_core::{Error, Node, OpResolver, Result, Subgraph};
use delegraph_interpreter::BuiltinOpResolver;

use crate::kernel::{Alone, contain};

static KERNELS: LazyLock<BuiltinOpResolver> = LazyLock::new(BuiltinOpResolver::new);

/// Nothing larger is computed ahead.
const LARGEST: usize = 1 << 30;

/// Computes the outputs of a builtin node, the shapes of which are known, if nothing but constants and shapes decides
/// about them: then they are constant from now on. True where that was so.
pub(crate) fn fold(node: &Node, subgraph: &Subgraph, tensors: &mut [RuntimeTensor]) -> bool {
    let constant = node.inputs.iter().flatten().all(|id| tensors[id.0].is_constant());
    // What is left out here stays as it is.
    contain(|| compute(node, subgraph, tensors, constant)).unwrap_or_else(|_| {
        node.outputs.iter().for_each(|id| tensors[id.0].clear_data());
        false
    })
}

fn compute(node: &Node, subgraph: &Subgraph, tensors: &mut [RuntimeTensor], constant: bool) -> Result<bool> {
    if node.op.builtin().is_none() || node.outputs.is_empty() {
        return Ok(false);
    }
    let Some(registration) = KERNELS.find(&node.op, node.version) else { return Ok(false) };
    if registration.has_side_effects() {
        return Ok(false);
    }
    let mut kernel = registration.init(&InitContext { node, subgraph, custom_options: &[] })?;
    if !constant && !kernel.needs_shapes_only() {
        return Ok(false);
    }
    let (inputs, outputs, mut host) = (&node.inputs, &node.outputs, Alone::default());
    let params = &node.params;
    let mut cx = PrepareContext::new(params, node.version, inputs, outputs, tensors, false, 1, &mut host);
    kernel.prepare(&mut cx)?;
    let (temporaries, data_dependent) = cx.finish();
    if !data_dependent.is_empty() {
        return Ok(false);
    }
    for output in outputs {
        let tensor = &mut tensors[output.0];
        if tensor.byte_size()? > LARGEST {
            return Err(Error::OutOfMemory(format!("\"{}\" is large", tensor.name)));
        }
        tensor.allocate(Placement::Dynamic)?;
    }
    let buffers = temporaries.iter().map(|&bytes| AlignedBuffer::zeroed(bytes));
    let mut buffers: Vec<AlignedBuffer> = buffers.collect::<Result<_>>()?;
    let pointers: Vec<_> = buffers.iter_mut().map(|b| (b.bytes_mut().as_mut_ptr(), b.len())).collect();
    // SAFETY: ids are in range and no output is an input (checked when the model was made); outputs and temporaries have
    // memory of their own.
    let mut cx = unsafe { InvokeContext::new(inputs, outputs, tensors, &pointers, &Serial, &mut host) };
    kernel.invoke(&mut cx)?;
    outputs.iter().for_each(|id| tensors[id.0].freeze());
    Ok(true)
}
