//! Release of constants after all consumers have packed them.

use delegraph_core::Result;
use delegraph_core::graph::{Model, Node, Subgraph};
use delegraph_core::kernel::{AlignedBuffer, RuntimeTensor};

/// The file's pages are released whenever this number of bytes was read. Each release costs a system call.
const RELEASE_BYTES: usize = 1 << 20;

/// Constants up to this size are copied: the page of the file, and the pages that the system reads ahead, take more
/// memory.
const SMALL_BYTES: usize = 4 << 10;

/// Copies the small constants that a node's kernel reads in each invocation.
///
/// # Errors
/// If memory cannot be allocated.
pub(crate) fn copy_small_constants(node: &Node, tensors: &mut [RuntimeTensor]) -> Result<()> {
    node.inputs().iter().flatten().try_for_each(|id| tensors[id.0].copy_constant_up_to(SMALL_BYTES))
}

/// The consumers that still read the constants of a subgraph.
#[derive(Debug, Default)]
pub(crate) struct ConstantReaders {
    /// Per tensor, the number of node inputs and subgraph outputs that read it.
    left: Vec<u32>,
    /// Per tensor, whether it is a constant that depends on more than the model: on shapes of inputs, or on a kernel of
    /// the application.
    instance_specific: Vec<bool>,
    /// Bytes of the file that were read since the last release.
    read: usize,
    /// The largest buffer that was released, for the next constant that is computed; `None` if none is kept.
    spare: Option<AlignedBuffer>,
}

impl ConstantReaders {
    /// Counts the consumers of each tensor.
    pub(crate) fn new(subgraph: &Subgraph) -> Self {
        let mut left = vec![0u32; subgraph.tensors().len()];
        let inputs = subgraph.nodes().iter().flat_map(|node| node.inputs().iter().flatten());
        for id in inputs.chain(subgraph.outputs()) {
            left[id.0] = left[id.0].saturating_add(1);
        }
        let instance_specific = vec![false; subgraph.tensors().len()];
        ConstantReaders { left, instance_specific, read: 0, spare: None }
    }

    /// Keeps the largest buffer that is released from now on. Reused memory is neither zeroed nor mapped again.
    pub(crate) fn keep_spare(&mut self) {
        self.spare.get_or_insert_default();
    }

    /// Returns the kept buffer, which may be empty; the next released buffer replaces it.
    pub(crate) fn take_spare(&mut self) -> Option<AlignedBuffer> {
        self.spare.as_mut().map(std::mem::take)
    }

    /// Releases the kept buffer, and keeps no other.
    pub(crate) fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Records that a node was folded. With `instance_specific`, the results depend on more than its inputs' values.
    pub(crate) fn folded(&mut self, node: &Node, instance_specific: bool) {
        let instance_specific = instance_specific || !self.depends_on_model_alone(node);
        node.outputs().iter().for_each(|id| self.instance_specific[id.0] = instance_specific);
    }

    /// Returns whether the constants among a node's inputs are the same in every interpreter on the model.
    pub(crate) fn depends_on_model_alone(&self, node: &Node) -> bool {
        node.inputs().iter().flatten().all(|id| !self.instance_specific[id.0])
    }

    /// Records that a node no longer reads the constants among its inputs. Folded constants are released after their
    /// last consumer.
    pub(crate) fn release_inputs(
        &mut self,
        model: &Model,
        subgraph: &Subgraph,
        node: &Node,
        tensors: &mut [RuntimeTensor],
    ) {
        for id in node.inputs().iter().flatten() {
            let tensor = &mut tensors[id.0];
            if subgraph.tensor(*id).is_constant() {
                self.read = self.read.saturating_add(tensor.bytes().len());
            } else if tensor.is_constant() {
                self.left[id.0] = self.left[id.0].saturating_sub(1);
                if self.left[id.0] == 0
                    && let Some(released) = tensor.release()
                    && let Some(spare) = &mut self.spare
                    && spare.capacity() < released.capacity()
                {
                    *spare = released;
                }
            }
        }
        if self.read >= RELEASE_BYTES {
            self.read = 0;
            model.release_pages();
        }
    }
}
