//! Runs `.tflite` models: CPU kernels, delegation, memory planner.
//!
//! [`Interpreter`] prepares a model once (finds kernels, infers shapes, folds constants, applies delegates, plans one
//! arena) and then runs it any number of times, without allocating if all shapes are known.

pub mod fusion;
mod measure;
mod random;
mod runtime;

pub use delegraph_kernels::{self as kernels, BuiltinOpResolver, ReferenceOpResolver};
pub use measure::measure;
pub use runtime::{
    CancellationToken, Interpreter, InterpreterBuilder, Invocation, MemoryReport, Profiler, ResourceLimits,
    StepEvent,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}

    #[test]
    fn interpreters_move_between_threads() {
        is_send::<Interpreter>();
        is_send::<InterpreterBuilder>();
        is_send::<CancellationToken>();
        is_sync::<CancellationToken>();
    }
}
