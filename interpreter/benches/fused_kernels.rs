//! The gain of fusing normalizations and attention into one op of this project: `cargo bench -p delegraph-interpreter
//! --bench fused_kernels`. The framework's form and the fused form run alternately, on one thread; the shortest run
//! counts. Without `--bench` (as in tests) everything runs once, on small shapes. Files named after `--` run instead.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Instant;

use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::binary::{AddParams, MulParams, SubParams};
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::{
    Attributes, BuiltinOp as B, Model, ModelBuilder, ModelBytes, Params, SubgraphBuilder, TensorId,
    TensorType,
};
use delegraph_interpreter::Interpreter;
use delegraph_interpreter::fusion::Pipeline;

const FLOAT: TensorType = TensorType::Float32;

fn node(g: &mut SubgraphBuilder, op: B, inputs: &[TensorId]) -> TensorId {
    let params: Params = match op {
        B::ADD => AddParams::default().into(),
        B::SUB => SubParams::default().into(),
        B::MUL => MulParams::default().into(),
        B::MEAN => ReducerParams::default().keep_dims(true).into(),
        B::RESHAPE => ReshapeParams::default().into(),
        B::SOFTMAX => SoftmaxParams::default().beta(1.0).into(),
        _ => Params::None,
    };
    g.node(op, params).inputs(inputs.iter().copied()).output("")
}

fn integers(g: &mut SubgraphBuilder, values: &[usize]) -> TensorId {
    let values: Vec<i32> = values.iter().map(|&v| v as i32).collect();
    g.constant("", [values.len()], &values)
}

fn list(g: &mut SubgraphBuilder, channels: usize) -> TensorId {
    let values: Vec<f32> = (0..channels).map(|i| 0.5 + i as f32 / channels as f32).collect();
    g.constant("", [channels], &values)
}

/// `1 / sqrt(mean(x²) + epsilon)`.
fn root(g: &mut SubgraphBuilder, squares: TensorId, axes: TensorId) -> TensorId {
    let variance = node(g, B::MEAN, &[squares, axes]);
    let epsilon = g.constant("", [], &[1e-3f32]);
    let sum = node(g, B::ADD, &[variance, epsilon]);
    node(g, B::RSQRT, &[sum])
}

fn finish(mut graph: SubgraphBuilder, y: TensorId) -> Model {
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// The form in which the converter writes the normalization of Keras 3.
fn layer_norm(rows: usize, channels: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let g = &mut graph;
    let x = g.input("x", FLOAT, [1, rows, channels]);
    let axes = integers(g, &[2]);
    let mean = node(g, B::MEAN, &[x, axes]);
    let negated = node(g, B::NEG, &[mean]);
    let squares = node(g, B::SQUARED_DIFFERENCE, &[x, mean]);
    let root = root(g, squares, axes);
    let (gamma, beta) = (list(g, channels), list(g, channels));
    let scale = node(g, B::MUL, &[root, gamma]);
    let moved = node(g, B::MUL, &[negated, scale]);
    let rest = node(g, B::ADD, &[moved, beta]);
    let scaled = node(g, B::MUL, &[x, scale]);
    let y = node(g, B::ADD, &[scaled, rest]);
    finish(graph, y)
}

fn rms_norm(rows: usize, channels: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let g = &mut graph;
    let x = g.input("x", FLOAT, [1, rows, channels]);
    let axes = integers(g, &[2]);
    let squares = node(g, B::MUL, &[x, x]);
    let root = root(g, squares, axes);
    let scaled = node(g, B::MUL, &[x, root]);
    let gamma = list(g, channels);
    let y = node(g, B::MUL, &[scaled, gamma]);
    finish(graph, y)
}

fn group_norm(size: usize, channels: usize, groups: usize) -> Model {
    let mut body = SubgraphBuilder::new("body");
    let g = &mut body;
    let shape = [1, size, size, channels];
    let x = g.input("x", FLOAT, shape);
    let (gamma, beta) = (g.input("gamma", FLOAT, [channels]), g.input("beta", FLOAT, [channels]));
    let split = integers(g, &[1, size, size, groups, channels / groups]);
    let value = node(g, B::RESHAPE, &[x, split]);
    let axes = integers(g, &[1, 2, 4]);
    let mean = node(g, B::MEAN, &[value, axes]);
    let difference = node(g, B::SUB, &[value, mean]);
    let squares = node(g, B::MUL, &[difference, difference]);
    let root = root(g, squares, axes);
    let normal = node(g, B::MUL, &[difference, root]);
    let whole = integers(g, &shape);
    let normal = node(g, B::RESHAPE, &[normal, whole]);
    let scaled = node(g, B::MUL, &[normal, gamma]);
    let y = node(g, B::ADD, &[scaled, beta]);
    g.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", FLOAT, shape);
    let (gamma, beta) = (list(&mut graph, channels), list(&mut graph, channels));
    let attributes = Attributes::new().with("epsilon", 1e-3).with("num_groups", groups as i64);
    let call = graph.composite("odml.group_norm", body).attributes(&attributes);
    let y = call.inputs([x, gamma, beta]).output("y");
    finish(graph, y)
}

/// Attention with `heads` heads of queries, which share `groups` heads of keys and values.
fn attention(queries: usize, keys: usize, heads: usize, groups: usize, width: usize) -> Model {
    let share = heads / groups;
    let mut body = SubgraphBuilder::new("body");
    let g = &mut body;
    let shapes = [[1, queries, heads, width], [1, keys, groups, width], [1, keys, groups, width]];
    let [q, k, v] = shapes.map(|shape| g.input("x", FLOAT, shape));
    let by_head = integers(g, &[0, 2, 1, 3]);
    let scale = g.constant("", [], &[0.125f32]);
    let q = node(g, B::MUL, &[q, scale]);
    let q = node(g, B::TRANSPOSE, &[q, by_head]);
    let shape = integers(g, &[1, groups, share * queries, width]);
    let q = node(g, B::RESHAPE, &[q, shape]);
    let [k, v] = [k, v].map(|t| node(g, B::TRANSPOSE, &[t, by_head]));
    let product = BatchMatMulParams::default().adj_y(true);
    let scores = g.node(B::BATCH_MATMUL, product).inputs([q, k]).output("");
    let weights = node(g, B::SOFTMAX, &[scores]);
    let y = g.node(B::BATCH_MATMUL, BatchMatMulParams::default()).inputs([weights, v]).output("");
    let shape = integers(g, &[1, heads, queries, width]);
    let y = node(g, B::RESHAPE, &[y, shape]);
    let y = node(g, B::TRANSPOSE, &[y, by_head]);
    g.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let inputs = shapes.map(|shape| graph.input("x", FLOAT, shape));
    let attributes = Attributes::new().with("scale", 0.125);
    let call = graph.composite("odml.scaled_dot_product_attention", body).attributes(&attributes);
    let y = call.inputs(inputs).output("y");
    finish(graph, y)
}

/// Milliseconds of the shortest invocation of each model, and its number of nodes.
fn measure(model: &Model, rounds: usize) -> [(f64, usize); 2] {
    let pipelines = [Pipeline::new(), Pipeline::new().allow_custom()];
    let models = pipelines.map(|p| p.run(model).unwrap().model);
    let nodes = models.each_ref().map(|m| m.subgraphs()[0].nodes().len());
    let mut interpreters = models.map(|m| Interpreter::builder(m).threads(1).build().unwrap());
    for interpreter in &mut interpreters {
        for i in 0..interpreter.input_count() {
            // Other inputs stay zero.
            let Ok(input) = interpreter.input_mut::<f32>(i) else { continue };
            input.iter_mut().enumerate().for_each(|(i, x)| *x = (i * 31 % 101) as f32 / 50.0 - 1.0);
        }
    }
    let mut least = [f64::INFINITY; 2];
    for _ in 0..rounds {
        for (interpreter, least) in interpreters.iter_mut().zip(&mut least) {
            let start = Instant::now();
            interpreter.invoke().unwrap();
            *least = least.min(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    [(least[0], nodes[0]), (least[1], nodes[1])]
}

fn main() {
    let benched = std::env::args().any(|argument| argument == "--bench");
    let (rounds, much) = if benched { (200, 1) } else { (1, 16) };
    let models = [
        ("layer norm, 196 × 768", layer_norm(196 / much, 768)),
        ("layer norm, 64 × 96", layer_norm(64 / much, 96)),
        ("rms norm, 128 × 2048", rms_norm(128 / much, 2048)),
        ("group norm, 32 × 32 × 256 in 32", group_norm(32 / much, 256, 32)),
        ("group norm, 64 × 64 × 64 in 4", group_norm(64 / much, 64, 4)),
        ("attention, 196 of 12 × 64", attention(196 / much, 196 / much, 12, 12, 64)),
        ("attention, 512 of 8 × 64", attention(512 / much, 512 / much, 8, 8, 64)),
        ("attention, 1 to 512 of 32 in 4 × 64", attention(1, 512 / much, 32, 4, 64)),
        ("attention, 1 to 512 of 32 in 1 × 64", attention(1, 512 / much, 32, 1, 64)),
    ];
    let files = std::env::args().filter(|argument| argument.ends_with(".tflite"));
    let files: Vec<(String, Model)> = files
        .map(|file| (file.clone(), Model::from_bytes(ModelBytes::new(std::fs::read(file).unwrap())).unwrap()))
        .collect();
    let models = models.map(|(name, model)| (name.to_owned(), model)).to_vec();
    println!(
        "{:<36} {:>6} {:>6} {:>10} {:>10} {:>8}",
        "", "nodes", "fused", "before ms", "fused ms", "faster"
    );
    for (name, model) in if files.is_empty() { models } else { files } {
        let [(before, nodes), (after, fewer)] = measure(&model, rounds);
        let name = name.rsplit('/').next().unwrap();
        println!("{name:<36} {nodes:>6} {fewer:>6} {before:>10.3} {after:>10.3} {:>7.2}x", before / after);
    }
}
