//! Runs a model: finds kernels, infers shapes, applies delegates, plans memory, and runs steps.
//!
//! Modules, low to high: the folders `memory`, `composites`, `delegation` and `host`, the file `rewrite.rs`, the
//! folders `subgraph` and `engine`; the other files are above all of these.

mod analysis;
mod builder;
mod composites;
mod delegation;
mod engine;
mod fallback;
mod host;
mod interpreter;
mod invocation;
mod memory;
mod rewrite;
mod subgraph;

pub(crate) use analysis::analyze;
pub use builder::InterpreterBuilder;
pub(crate) use composites::{Bounds, CONTROL, Inlined, Inliner, Place, moved};
pub use host::{CancellationToken, Profiler, ResourceLimits, StepEvent};
pub use interpreter::Interpreter;
pub use invocation::Invocation;
pub(crate) use rewrite::ModelRewrite;
pub use subgraph::MemoryReport;
