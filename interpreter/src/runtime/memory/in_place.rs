//! Elementwise nodes that overwrite an input with their output.

use delegraph_core::error::Result;
use delegraph_core::graph::Node;
use delegraph_core::kernel::{ALIGNMENT, RuntimeTensor};

/// The first and the last step that need a tensor's memory; `None` for a tensor that is not in the arena.
pub(crate) type Lifetime = Option<(usize, usize)>;

/// Assigns outputs the memory of inputs whose lifetime ends at the node. Returns the bytes of such outputs.
///
/// `nodes` are those that run in the arena, each with its step and the inputs that its kernel may overwrite. `roots`
/// has the tensor whose memory each tensor uses, and `lifetimes` the steps that need this memory; both are changed.
/// Inputs and outputs of the graph live until its end, so an input of the graph is never overwritten.
///
/// # Errors
/// If a tensor has no size.
pub(crate) fn share<'a>(
    nodes: impl Iterator<Item = (usize, &'a Node, &'a [usize])>,
    tensors: &[RuntimeTensor],
    roots: &mut [usize],
    lifetimes: &mut [Lifetime],
) -> Result<usize> {
    // Per root, the root whose memory it uses: itself, or another one.
    let mut taken: Vec<usize> = (0..roots.len()).collect();
    let mut saved = 0usize;
    for (step, node, overwritable) in nodes.filter(|(_, _, inputs)| !inputs.is_empty()) {
        let Some(output) = node.outputs().first() else { continue };
        // Bound tensors and variables have no lifetime in the arena.
        let own = lifetimes[output.0].filter(|&(first, _)| roots[output.0] == output.0 && first == step);
        let Some((_, end)) = own else { continue };
        let size = tensors[output.0].byte_size()?;
        let owner = |i: usize| node.input(i).map(|t| find(&taken, roots[t.0]));
        for &i in overwritable {
            let Some(target) = owner(i) else { continue };
            let dies = lifetimes[target].filter(|&(first, last)| first < step && last == step);
            let alone = (0..node.inputs().len()).all(|j| j == i || owner(j) != Some(target));
            if let Some((first, _)) = dies.filter(|_| alone)
                && tensors[target].byte_size()? == size
            {
                taken[output.0] = target;
                lifetimes[target] = Some((first, end));
                lifetimes[output.0] = None;
                saved = saved.saturating_add(size.checked_next_multiple_of(ALIGNMENT).unwrap_or(size));
                break;
            }
        }
    }
    roots.iter_mut().for_each(|root| *root = find(&taken, *root));
    Ok(saved)
}

/// Returns the root whose memory `root` uses in the end.
fn find(taken: &[usize], mut root: usize) -> usize {
    while taken[root] != root {
        root = taken[root];
    }
    root
}
