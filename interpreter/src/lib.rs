//! Runs .tflite models: CPU kernels, delegation, memory planner.
