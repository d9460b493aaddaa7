//! Writes a recurrent layer, authored as a loop of products inside a marked composite and fused into one op, to a file:
//! `cargo run -p delegraph-interpreter --example fused_lstm -- FILE`. `scripts/quantize_fused_lstm.py` quantizes it.
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use delegraph_interpreter::fusion::Pipeline;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/fusion/recurrent.rs"]
mod recurrent;

use recurrent::{Framework, Layer};

fn main() {
    let path = std::env::args_os().nth(1).unwrap();
    let layer =
        Layer { framework: Framework::Keras, batch: 1, time: 6, features: 8, cells: 12, hybrid: false };
    // In the graph itself, as TensorFlow's converter writes it.
    let fused = Pipeline::new().stateful().run(&layer.model()).unwrap();
    fused.model.save(path).unwrap();
}
