//! The gain of fusing a recurrent layer: `cargo bench -p delegraph-interpreter --bench lstm_fusion`. Layers written as
//! a loop of products, marked as composites in the layouts of three frameworks, run unfused and fused. Without
//! `--bench` (as in tests) everything runs once.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Instant;

use delegraph_core::Model;
use delegraph_interpreter::Interpreter;
use delegraph_interpreter::fusion::Pipeline;

#[path = "../tests/fusion/recurrent.rs"]
mod recurrent;

use recurrent::{Framework, Layer};

/// The median time of an invocation, in milliseconds.
fn measure(model: Model, rounds: usize) -> f64 {
    let mut interpreter = Interpreter::builder(model).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().fill(0.25);
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            interpreter.invoke().unwrap();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let benched = std::env::args().any(|argument| argument == "--bench");
    let rounds = if benched { 51 } else { 1 };
    let time = if benched { 100 } else { 4 };
    println!("{:<10} {:>6} {:>10} {:>10} {:>8}", "layout", "int8", "loop ms", "fused ms", "faster");
    for framework in [Framework::Keras, Framework::Onnx, Framework::Torch] {
        for hybrid in [false, true] {
            let layer = Layer { framework, batch: 1, time, features: 64, cells: 128, hybrid };
            let model = layer.model();
            let fused = Pipeline::new().allow_hybrid().run(&model).unwrap();
            let (before, after) = (measure(model, rounds), measure(fused.model, rounds));
            let faster = before / after;
            println!(
                "{:<10} {hybrid:>6} {before:>10.3} {after:>10.3} {faster:>7.1}x",
                format!("{framework:?}")
            );
        }
    }
}
