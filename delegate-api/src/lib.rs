//! What an author needs to put any hardware behind a `.tflite` model.
//!
//! A delegate looks at every node of a graph, rejects with a typed reason what it cannot run, and claims the rest.
//! Claimed nodes are grouped into as few partitions as the graph's order allows; for each, the delegate makes a
//! kernel that runs the whole partition. Everything else stays on CPU kernels.
//!
//! Most delegates implement [`SimpleDelegate`]: "is this node supported?" and "make a kernel for this partition".
//! [`Delegate`] gives full control. Either way [`VersionTable`] is mandatory, and a node whose version is above the
//! table's maximum cannot be claimed. `docs/write-a-delegate.md` in the repository is a tutorial.
//!
//! # What holds
//!
//! | what | rule |
//! |---|---|
//! | constants | `TensorInfo::constant` has the data when a kernel is made. They never change, and are not among a partition's inputs. |
//! | folded nodes | Nodes over constants are computed beforehand: their outputs are constants. They may be claimed whatever they are, and kernels skip them. |
//! | optional inputs | One that is left out (-1 in the file, or behind the last one given) is `None` in `NodeView::input`. |
//! | variables | A partition's inputs like others, to be read and written with `InvokeContext::variable`. Their values are the interpreter's: they live from run to run, and outlive the delegate. |
//! | side effects | Nodes that reach beyond their tensors (`NodeState::side_effects`) keep their order among all such nodes, whoever runs them. |
//! | float16 weights | Behind DEQUANTIZE they are float32 constants; `GraphView::float16_source` has what the file has. |
//! | dynamic shapes | Nodes with shapes that are known only while running are rejected, unless the delegate takes them (`Capabilities::dynamic_shapes`). Then their partition is prepared before each run, and gives its outputs their shapes. |
//! | resized inputs | The graph is offered anew, and every kernel is made anew. |
//! | called subgraphs | Delegates are asked about them apart. Whoever runs the calling node whole looks into them with `GraphView::callee`. |

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
    Capabilities, Delegate, DelegateKernel, DelegateParams, DelegateStats, DeviceKernel, NodeTime, Policy,
    SimpleDelegate,
};
pub use graph::{Callees, GraphView, NodeState, NodeView, TensorInfo};
pub use limits::{Cost, CostModel, PartitionOptions, Rates};
pub use partition::{Group, partition};
pub use rejection::Rejection;
pub use report::{CompositeReport, CompositeRunner, NodeReport, PartitionReport, Report, Runner};
pub use versions::VersionTable;
