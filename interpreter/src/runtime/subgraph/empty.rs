//! Nodes over tensors without elements whose other dimensions are huge: such a tensor takes no memory, so the memory
//! limit does not apply to it.

use delegraph_core::Shape;
use delegraph_core::error::Result;
use delegraph_core::graph::{Node, TensorId};
use delegraph_core::kernel::{Budget, Placement, RuntimeTensor};

use super::parts::NodeKernel;

/// Maximum product of the non-empty dimensions. Kernels may make tables of their sizes, and loop over them.
const MAX_ROWS: usize = 1 << 20;

/// Bytes per index of a dimension in tables that kernels make.
const TABLE_ENTRY: usize = 16;

/// The treatment of a node over tensors without elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptiness {
    /// Runs like any other node.
    Ordinary,
    /// Has no elements to compute, and dimensions that its kernel must not see.
    Idle,
}

/// Decides whether `node`, whose shapes are known, is prepared and run.
///
/// # Errors
/// The errors of [`check_rows`] for its inputs and outputs.
pub(super) fn emptiness(
    node: &Node,
    kernel: &NodeKernel,
    tensors: &[RuntimeTensor],
    budget: &Budget,
) -> Result<Emptiness> {
    let inputs = || node.inputs().iter().flatten();
    if inputs().chain(node.outputs()).all(|id| rows_of_nothing(&tensors[id.0].shape) <= MAX_ROWS) {
        return Ok(Emptiness::Ordinary);
    }
    let is_idle = |id: &TensorId| {
        let tensor = &tensors[id.0];
        tensor.placement() != Placement::Variable && tensor.shape.contains(&0)
    };
    let replaceable = is_builtin(node, kernel) && !kernel.side_effects && node.callees().next().is_none();
    if replaceable && !node.outputs().is_empty() && node.outputs().iter().all(is_idle) {
        return Ok(Emptiness::Idle);
    }
    check_rows(node, kernel, inputs().chain(node.outputs()), tensors, budget)?;
    Ok(Emptiness::Ordinary)
}

/// Counts the other dimensions of operands without elements as memory, if the node's kernel reads more of its operands
/// than their shapes. The nodes of a called subgraph are checked separately.
///
/// # Errors
/// [`Error::LimitExceeded`](delegraph_core::Error::LimitExceeded) if they exceed the limit.
pub(super) fn check_rows<'a>(
    node: &Node,
    kernel: &NodeKernel,
    operands: impl IntoIterator<Item = &'a TensorId>,
    tensors: &[RuntimeTensor],
    budget: &Budget,
) -> Result<()> {
    if is_builtin(node, kernel) && (node.callees().next().is_some() || kernel.kernel.needs_shapes_only()) {
        return Ok(());
    }
    let rows = operands.into_iter().map(|id| rows_of_nothing(&tensors[id.0].shape)).max().unwrap_or(0);
    if rows > MAX_ROWS { budget.check_size(rows.saturating_mul(TABLE_ENTRY)) } else { Ok(()) }
}

/// Whether the node's kernel is one of this project.
fn is_builtin(node: &Node, kernel: &NodeKernel) -> bool {
    node.op().builtin().is_some() && !kernel.named && !kernel.overridden
}

/// Returns the product of the other dimensions of a tensor without elements, 0 for other tensors.
fn rows_of_nothing(shape: &Shape) -> usize {
    if !shape.contains(&0) {
        return 0;
    }
    shape.iter().filter(|size| **size > 0).fold(1, |product, size| product.saturating_mul(*size))
}
