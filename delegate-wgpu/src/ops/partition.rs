//! Lowering of a whole partition.

use delegraph_core::{Error, Result};
use delegraph_delegate_api::{DelegateParams, GraphView};

use crate::device::{Gpu, NAME};
use crate::graph::builder::Builder;
use crate::graph::{Graph, passes, store_halves};

/// Lowers a partition and runs all passes; with `fusion` also those that merge steps.
pub(crate) fn lower_partition<'g>(
    gpu: &Gpu,
    fusion: bool,
    params: &DelegateParams,
    graph: &GraphView<'g>,
) -> Result<Graph<'g>> {
    let mut builder = Builder::new(gpu);
    let failed = |message: String| Error::delegate(NAME, message);
    for &id in &params.inputs {
        builder.add_input(graph.tensor(id)).map_err(|e| failed(e.to_string()))?;
    }
    for &id in &params.nodes {
        let node = graph.node(id);
        super::lower(node, &mut builder, false)
            .map_err(|e| failed(format!("node {} ({}): {e}", id.0, node.op())))?;
    }
    for &id in &params.outputs {
        builder.add_output(graph.tensor(id)).map_err(|e| failed(e.to_string()))?;
    }
    builder.add_states(&params.inputs);
    builder.add_resources();
    let mut lowered = builder.graph;
    if fusion {
        passes::optimize(&mut lowered, gpu.view_alignment());
    }
    if gpu.halves {
        store_halves(&mut lowered);
        return Ok(lowered);
    }
    if gpu.caps.software {
        // Software adapters do not gain from fewer bytes, and unpacking takes time.
        return Ok(lowered);
    }
    passes::halve_weights(&mut lowered);
    Ok(lowered)
}
