//! Runs .tflite models: CPU kernels, delegation, memory planner.

pub mod kernels;
