//! The interface between Delegraph and delegates, which run parts of a `.tflite` model on any hardware.
//!
//! A delegate rejects, with a typed reason, the nodes of a graph that it cannot run, and claims the others. Claimed nodes
//! are grouped into as few partitions as the graph's order allows; for each, the delegate creates a kernel that runs the
//! whole partition. All other nodes run on CPU kernels.
//!
//! Most delegates implement [`SimpleDelegate`]: "is this node supported?" and "make a kernel for this partition"; [`Simple`]
//! turns them into a [`Delegate`], which gives full control. Both require a [`VersionTable`]; a node whose version is above
//! the table's maximum cannot be claimed. `docs/write-a-delegate.md` in the repository is a tutorial.
//!
//! # Rules
//!
//! | what | rule |
//! |---|---|
//! | constants | `TensorInfo::constant` returns the data when a kernel is created. Constants never change, and are not inputs of a partition. |
//! | folded nodes | Nodes over constants are computed while preparing: their outputs are constants. A folded node may be claimed, unless it initializes a variable; kernels skip it. |
//! | optional inputs | An omitted input (-1 in the file, or missing at the end) is `None` in `NodeView::input`. |
//! | variables | Inputs of a partition, read and written with `InvokeContext::variable`. The interpreter owns their values, which persist between runs and outlive the delegate. |
//! | side effects | Nodes with effects beyond their outputs (`NodeState::side_effects`) keep their order among each other, wherever they run. |
//! | float16 weights | After DEQUANTIZE they are float32 constants; `GraphView::float16_source` returns the stored ones. |
//! | dynamic shapes | Nodes with data-dependent shapes are rejected, unless the delegate supports them (`Capabilities::dynamic_shapes`). Then their partition is prepared before each run, and sets its outputs' shapes. |
//! | resized inputs | The graph is offered again, and every kernel is created again. |
//! | called subgraphs | Offered to delegates separately. A delegate that claims the calling node inspects them with `GraphView::callee`. |

mod advice;
mod buffer;
mod context;
mod delegate;
mod graph;
mod kernel;
mod limits;
mod partition;
pub mod plugin;
mod rejection;
mod report;
mod simple;
mod submission;
mod versions;

pub use advice::{Advice, Blocker, BlockerPair, Split};
pub use buffer::{BufferHandle, Buffers, DeviceBuffer};
pub use context::{Claim, DelegateContext, KernelFactory};
pub use delegate::{Delegate, Policy};
pub use delegraph_core::ops::Cost;
pub use graph::{Callees, GraphView, NodeState, NodeView, TensorInfo};
pub use kernel::{Capabilities, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, NodeTime};
pub use limits::{CostModel, Estimate, PartitionOptions, Rates};
pub use partition::{Group, partition};
pub use rejection::Rejection;
pub use report::{
    CompositeReport, CompositeRunner, DelegateFailure, NodeReport, PartitionReport, Report, Runner,
};
pub use simple::{Simple, SimpleDelegate};
pub use submission::Submitted;
pub use versions::VersionTable;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}

    #[test]
    fn delegates_move_between_threads() {
        is_send::<Box<dyn Delegate>>();
        is_send::<Box<dyn DelegateKernel>>();
        is_send::<Report>();
        is_sync::<Report>();
    }
}
