//! Delegraph runs `.tflite` models in pure Rust and lets any hardware take over any part of a model.
