//! Runs .tflite models: CPU kernels, delegation, memory planner.

pub mod compute;
pub mod kernels;
