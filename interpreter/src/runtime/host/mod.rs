//! Services of the interpreter for kernels and subgraphs: threads, variables, limits, profiler, and other subgraphs.

mod env;
mod limits;
mod machine;
mod observe;
mod parallel;

pub(crate) use env::{Env, Services, Settings, Subgraphs, Usage};
pub use limits::ResourceLimits;
pub(crate) use observe::Observer;
pub use observe::{CancellationToken, Profiler, StepEvent};
pub(crate) use parallel::Interruptible;
