//! What an author needs to put any hardware behind a `.tflite` model.
//!
//! A delegate looks at every node of a graph, rejects with a typed reason what it cannot run, and claims the rest.
//! Claimed nodes are grouped into as few partitions as the graph's order allows; for each, the delegate makes a
//! kernel that runs the whole partition. Everything else stays on CPU kernels.
//!
//! Most delegates implement [`SimpleDelegate`]: "is this node supported?" and "make a kernel for this partition".
//! [`Delegate`] gives full control. Either way [`VersionTable`] is mandatory, and a node whose version is above the
//! table's maximum cannot be claimed.

mod advice;
mod buffer;
mod context;
mod delegate;
mod graph;
mod limits;
mod partition;
pub mod plugin;
mod rejection;
mod report;
mod versions;

pub use advice::{Advice, Obstacle, Pair, Split};
pub use buffer::{BufferHandle, Buffers, DeviceBuffer};
pub use context::{Claim, DelegateContext, KernelFactory};
pub use delegate::{
    Capabilities, Delegate, DelegateKernel, DelegateParams, DelegateStats, NodeTime, Policy, SimpleDelegate,
};
pub use graph::{Callees, GraphView, NodeState, NodeView, TensorInfo};
pub use limits::{Cost, CostModel, PartitionOptions, Rates};
pub use partition::{Group, partition};
pub use rejection::Rejection;
pub use report::{NodeReport, PartitionReport, Report, Runner};
pub use versions::VersionTable;
