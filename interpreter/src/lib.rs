//! Runs `.tflite` models: CPU kernels, delegation, memory planner.
//!
//! [`Interpreter`] prepares a model once (kernels found, shapes inferred, constants folded, delegates asked, one
//! arena planned) and then runs it any number of times without allocating.

use std::sync::Arc;

use delegraph_core::kernel::{Parallel, Serial};

mod composites;
pub mod compute;
mod constants;
mod delegation;
mod devices;
mod engine;
pub mod fusion;
mod in_place;
mod interpreter;
mod invocation;
pub mod kernels;
mod measure;
mod memory;
mod observe;
mod partition;
mod resolvers;
pub mod seeded;
mod subgraph;

pub use interpreter::{DEFAULT_MEMORY_LIMIT, Interpreter, InterpreterBuilder};
pub use invocation::Invocation;
pub use measure::measure;
pub use observe::{CancellationToken, Profiler, StepEvent};
pub use resolvers::{BuiltinOpResolver, ReferenceOpResolver};
pub use subgraph::MemoryReport;

/// Threads for kernels: a pool, or none for a single one.
fn threads(threads: usize) -> Arc<dyn Parallel> {
    match threads {
        0 | 1 => Arc::new(Serial),
        n => Arc::new(compute::ThreadPool::new(n)),
    }
}
