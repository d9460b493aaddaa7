//! A resize compiles nothing after the first preparation and its background compilation, over batches, heights, widths
//! and lengths of all kinds. Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::sync::Arc;

use delegraph::core::ops::batch_matmul::BatchMatMulParams;
use delegraph::core::ops::binary::{AddParams, MulParams, SubParams};
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::pool_2d::Pool2DParams;
use delegraph::core::ops::reduce::ReducerParams;
use delegraph::core::ops::softmax::SoftmaxParams;
use delegraph::core::ops::{Activation, Padding};
use delegraph::core::{BuiltinOp, Model, ModelBuilder, Params, SubgraphBuilder, TensorId};
use delegraph::delegate_wgpu::{PipelineCache, WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, TensorType, load};

fn delegate() -> Option<WgpuDelegate> {
    gpu::opened(WgpuDelegate::new(WgpuOptions::default().with_pipeline_cache(PipelineCache::Off)))
}

/// Prepares `model` without a resize, then runs it with inputs of `sizes`, each on the GPU and on the CPU.
#[track_caller]
fn check(model: Model, sizes: &[&[&[usize]]]) {
    // A separate device, so that pipelines of other tests are not reused.
    let Some(delegate) = delegate() else { return };
    let model = Arc::new(model);
    let mut gpu = Interpreter::builder(model.clone()).delegate(delegate.clone()).build().unwrap();
    gpu.prepare().unwrap();
    let (first, nodes) = (delegate.compiled_pipelines(), gpu.report().nodes.len());
    assert_eq!(gpu.report().delegated_nodes(), nodes, "{:?}", gpu.report().failures);
    delegate.finish_compiling();
    let all = delegate.compiled_pipelines();
    println!("{first} kernels, {all} for all sizes");
    let mut cpu = Interpreter::builder(model).build().unwrap();
    for (seed, shapes) in sizes.iter().enumerate() {
        for interpreter in [&mut gpu, &mut cpu] {
            for (i, shape) in shapes.iter().enumerate() {
                interpreter.resize_input(i, shape).unwrap();
            }
            interpreter.prepare().unwrap();
            (0..shapes.len()).for_each(|i| fill(interpreter, i, seed));
            interpreter.invoke().unwrap();
        }
        assert_eq!(gpu.report().delegated_nodes(), nodes, "at {shapes:?}");
        delegate.finish_compiling();
        assert_eq!(delegate.compiled_pipelines(), all, "at {shapes:?}");
        check_outputs(&gpu, &cpu, shapes);
    }
}

fn fill(interpreter: &mut Interpreter, i: usize, seed: usize) {
    let value = |k: usize| ((k * 31 + seed * 7 + i) % 17) as f32 / 17.0 - 0.4;
    match interpreter.input_tensor(i).unwrap().ty {
        TensorType::Int8 => {
            let input = interpreter.input_mut::<i8>(i).unwrap();
            input.iter_mut().enumerate().for_each(|(k, x)| *x = (value(k) * 200.0) as i8);
        }
        _ => {
            let input = interpreter.input_mut::<f32>(i).unwrap();
            input.iter_mut().enumerate().for_each(|(k, x)| *x = value(k));
        }
    }
}

#[track_caller]
fn check_outputs(gpu: &Interpreter, cpu: &Interpreter, shapes: &[&[usize]]) {
    for i in 0..cpu.output_count() {
        assert_eq!(gpu.output_tensor(i).unwrap().shape, cpu.output_tensor(i).unwrap().shape, "at {shapes:?}");
        if cpu.output_tensor(i).unwrap().ty == TensorType::Int8 {
            assert_eq!(gpu.output::<i8>(i).unwrap(), cpu.output::<i8>(i).unwrap(), "at {shapes:?}");
            continue;
        }
        let (got, want) = (gpu.output::<f32>(i).unwrap(), cpu.output::<f32>(i).unwrap());
        let most = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        for (k, (g, w)) in got.iter().zip(want).enumerate() {
            let close = approx::abs_diff_eq!(g, w, epsilon = 1e-5 + 1e-4 * most);
            assert!(close, "at {shapes:?}: element {k} is {g}, expected {w}");
        }
    }
}

/// A graph under construction, with helpers for constants and for nodes with one output.
struct Net {
    graph: SubgraphBuilder,
    seed: usize,
}

impl Net {
    fn new() -> Self {
        Net { graph: SubgraphBuilder::new("main"), seed: 0 }
    }

    fn weights(&mut self, shape: &[usize]) -> TensorId {
        self.seed += 1;
        let (count, depth): (usize, usize) = (shape.iter().product(), shape.iter().skip(1).product());
        let each = 1.0 / (depth.max(1) as f32).sqrt();
        let data: Vec<f32> =
            (0..count).map(|i| (((i * 7 + self.seed * 5) % 13) as f32 / 6.5 - 0.93) * each).collect();
        self.graph.constant("", shape, &data)
    }

    fn node(&mut self, op: BuiltinOp, params: impl Into<Params>, inputs: &[TensorId]) -> TensorId {
        self.graph.node(op, params).inputs(inputs.to_vec()).output("")
    }

    fn conv(&mut self, x: TensorId, filter: [usize; 4], stride: i32, activation: Activation) -> TensorId {
        let (filter, bias) = (self.weights(&filter), self.weights(&[filter[0]]));
        let params = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride)
            .stride_h(stride)
            .fused_activation_function(activation);
        self.node(BuiltinOp::CONV_2D, params, &[x, filter, bias])
    }

    fn dense(&mut self, x: TensorId, [outputs, inputs]: [usize; 2], keep_num_dims: bool) -> TensorId {
        let (weights, bias) = (self.weights(&[outputs, inputs]), self.weights(&[outputs]));
        let params = FullyConnectedParams::default().keep_num_dims(keep_num_dims);
        self.node(BuiltinOp::FULLY_CONNECTED, params, &[x, weights, bias])
    }

    fn mean(&mut self, x: TensorId, axes: &[i32], keep_dims: bool) -> TensorId {
        let axes = self.graph.constant("", [axes.len()], axes);
        self.node(BuiltinOp::MEAN, ReducerParams::default().keep_dims(keep_dims), &[x, axes])
    }

    fn transpose(&mut self, x: TensorId, order: &[i32]) -> TensorId {
        let order = self.graph.constant("", [order.len()], order);
        self.node(BuiltinOp::TRANSPOSE, Params::None, &[x, order])
    }

    /// `x` minus its mean along `axis`, divided by its standard deviation there.
    fn normalized(&mut self, x: TensorId, axis: i32) -> TensorId {
        let mean = self.mean(x, &[axis], true);
        let left = self.node(BuiltinOp::SUB, SubParams::default(), &[x, mean]);
        let squares = self.node(BuiltinOp::SQUARED_DIFFERENCE, Params::None, &[x, mean]);
        let variance = self.mean(squares, &[axis], true);
        let small = self.graph.constant("", [] as [usize; 0], &[1e-3f32]);
        let variance = self.node(BuiltinOp::ADD, AddParams::default(), &[variance, small]);
        let scale = self.node(BuiltinOp::RSQRT, Params::None, &[variance]);
        self.node(BuiltinOp::MUL, MulParams::default(), &[left, scale])
    }

    fn model(mut self, outputs: &[TensorId]) -> Model {
        self.graph.outputs(outputs.to_vec());
        ModelBuilder::new().subgraph(self.graph).build().unwrap()
    }
}

fn digits(name: &str) -> Model {
    load(format!("{}/assets/digits/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn batches_of_digits() {
    let sizes: Vec<[[usize; 4]; 1]> = [1, 2, 3, 7, 8, 64, 1].map(|n| [[n, 8, 8, 1]]).to_vec();
    let sizes: Vec<Vec<&[usize]>> = sizes.iter().map(|s| s.iter().map(|s| &s[..]).collect()).collect();
    let sizes: Vec<&[&[usize]]> = sizes.iter().map(|s| &s[..]).collect();
    for name in ["digits_float32.tflite", "digits_float16.tflite", "digits_int8.tflite"] {
        check(digits(name), &sizes);
    }
}

#[test]
fn images_with_a_factor_for_each_and_each_channel() {
    let mut net = Net::new();
    let x = net.graph.input("x", TensorType::Float32, [1, 12, 12, 3]);
    let first = net.conv(x, [16, 3, 3, 3], 1, Activation::Relu6);
    // A factor per image and channel.
    let mean = net.mean(first, &[1, 2], true);
    let less = net.conv(mean, [4, 1, 1, 16], 1, Activation::Relu);
    let factor = net.conv(less, [16, 1, 1, 4], 1, Activation::None);
    let factor = net.node(BuiltinOp::LOGISTIC, Params::None, &[factor]);
    let scaled = net.node(BuiltinOp::MUL, MulParams::default(), &[first, factor]);
    let second = net.conv(scaled, [16, 3, 3, 16], 1, Activation::None);
    let sum = net.node(BuiltinOp::ADD, AddParams::default(), &[first, second]);
    let pool = Pool2DParams::default()
        .padding(Padding::Same)
        .stride_w(2)
        .stride_h(2)
        .filter_width(2)
        .filter_height(2);
    let small = net.node(BuiltinOp::MAX_POOL_2D, pool, &[sum]);
    let half = net.conv(first, [16, 1, 1, 16], 2, Activation::None);
    // These two are only equal because of how sizes are halved.
    let both = net.node(BuiltinOp::ADD, AddParams::default(), &[small, half]);
    let side = net.graph.constant("", [1], &[3i32]);
    let halves =
        net.graph.node(BuiltinOp::SPLIT, delegraph::core::ops::split::SplitParams::default().num_splits(2));
    let halves = halves.inputs([side, both]).outputs(["", ""]);
    let beside = net.node(BuiltinOp::CONCATENATION, concatenation(3), &[halves[1], both, halves[0]]);
    let mean = net.mean(beside, &[1, 2], false);
    let logits = net.dense(mean, [10, 32], false);
    let result = net.node(BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(1.0), &[logits]);
    check(
        net.model(&[result, scaled]),
        &[
            &[&[1, 12, 12, 3]],
            &[&[2, 12, 12, 3]],
            &[&[1, 9, 13, 3]],
            &[&[3, 7, 4, 3]],
            &[&[5, 1, 1, 3]],
            &[&[1, 1, 8, 3]],
            &[&[2, 2, 2, 3]],
            &[&[1, 2, 2, 3]],
            &[&[1, 33, 40, 3]],
            &[&[1, 5, 6, 6]],
            &[&[1, 12, 12, 3]],
        ],
    );
}

fn concatenation(axis: i32) -> delegraph::core::ops::concatenation::ConcatenationParams {
    delegraph::core::ops::concatenation::ConcatenationParams::default().axis(axis)
}

#[test]
fn attention_over_lengths_of_all_kinds() {
    let mut net = Net::new();
    let x = net.graph.input("x", TensorType::Float32, [1, 6, 16]);
    let mask = net.graph.input("mask", TensorType::Float32, [1, 1, 6]);
    let normal = net.normalized(x, 2);
    let [q, k, v] = [(); 3].map(|()| net.dense(normal, [16, 16], true));
    let params = BatchMatMulParams::default().adj_y(true);
    let scores = net.node(BuiltinOp::BATCH_MATMUL, params, &[q, k]);
    let scores = net.node(BuiltinOp::ADD, AddParams::default(), &[scores, mask]);
    let weights = net.node(BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(0.25), &[scores]);
    let mixed = net.node(BuiltinOp::BATCH_MATMUL, BatchMatMulParams::default(), &[weights, v]);
    let out = net.dense(mixed, [16, 16], true);
    let sum = net.node(BuiltinOp::ADD, AddParams::default(), &[x, out]);
    let turned = net.transpose(sum, &[0, 2, 1]);
    let moved = net.transpose(turned, &[1, 0, 2]);
    let most = net.graph.constant("", [1], &[2i32]);
    let arg = net.node(BuiltinOp::REDUCE_MAX, ReducerParams::default().keep_dims(false), &[turned, most]);
    let tokens = net.mean(sum, &[1], false);
    let sizes: Vec<[Vec<usize>; 2]> = [
        (1, 6),
        (1, 7),
        (1, 8),
        (2, 6),
        (3, 5),
        (1, 1),
        (4, 1),
        (2, 16),
        (1, 67),
        (2, 128),
        (1, 300),
        (1, 6),
    ]
    .map(|(n, l)| [vec![n, l, 16], vec![n, 1, l]])
    .to_vec();
    let sizes: Vec<[&[usize]; 2]> = sizes.iter().map(|[x, mask]| [&x[..], &mask[..]]).collect();
    let sizes: Vec<&[&[usize]]> = sizes.iter().map(|s| &s[..]).collect();
    check(net.model(&[moved, arg, tokens]), &sizes);
}

#[test]
fn inputs_that_are_alike_at_first_and_broadcast_later() {
    let mut net = Net::new();
    let x = net.graph.input("x", TensorType::Float32, [1, 4, 8, 16]);
    let y = net.graph.input("y", TensorType::Float32, [1, 4, 8, 16]);
    let conv = net.conv(x, [16, 3, 3, 16], 1, Activation::None);
    let sum =
        net.graph.node(BuiltinOp::ADD, AddParams::default().fused_activation_function(Activation::Relu));
    let sum = sum.inputs([conv, y]).output("");
    let tanh = net.node(BuiltinOp::TANH, Params::None, &[sum]);
    let product = net.node(BuiltinOp::MUL, MulParams::default(), &[x, y]);
    check(
        net.model(&[tanh, product]),
        &[
            &[&[1, 4, 8, 16], &[1, 4, 8, 16]],
            &[&[2, 4, 8, 16], &[1, 4, 8, 16]],
            &[&[2, 4, 8, 16], &[2, 1, 8, 16]],
            &[&[3, 5, 7, 16], &[1, 5, 1, 1]],
            &[&[3, 1, 7, 16], &[1, 5, 1, 16]],
            &[&[1, 1, 1, 16], &[2, 3, 4, 1]],
            &[&[1, 3, 3, 16], &[1, 1, 1, 1]],
            &[&[2, 3, 5, 16], &[2, 3, 5, 16]],
        ],
    );
}

/// A node of `op` on the model's inputs, first with these shapes and then with `sizes`.
#[track_caller]
fn one(
    op: BuiltinOp,
    params: impl Into<Params>,
    first: &[&[usize]],
    constants: &[&[i32]],
    sizes: &[&[&[usize]]],
) {
    let mut net = Net::new();
    let mut inputs: Vec<TensorId> =
        first.iter().map(|shape| net.graph.input("", TensorType::Float32, *shape)).collect();
    inputs.extend(constants.iter().map(|list| net.graph.constant("", [list.len()], list)));
    let output = net.node(op, params, &inputs);
    check(net.model(&[output]), sizes);
}

#[test]
fn two_inputs_of_many_dimensions() {
    let first: [&[usize]; 2] = [&[1, 1, 1, 1], &[1, 1, 1, 1, 1, 1]];
    one(
        BuiltinOp::SUB,
        SubParams::default(),
        &first,
        &[],
        &[
            &[&[16, 16, 1, 16], &[16, 16, 1, 16, 16, 1]],
            &[&[2, 1, 3, 1], &[3, 1, 1, 5, 1, 4]],
            &[&[1, 5, 1, 4], &[2, 3, 2, 1, 3, 1]],
            &first,
        ],
    );
    let first: [&[usize]; 2] = [&[1, 2, 1, 2, 2], &[1, 1, 2]];
    let sizes: [&[&[usize]]; 3] =
        [&[&[2, 2, 2, 2, 2], &[2, 1, 2]], &[&[3, 1, 2, 5, 4], &[2, 5, 1]], &[&[1, 7, 4, 4, 8], &[1, 4, 8]]];
    one(BuiltinOp::PRELU, Params::None, &first, &[], &sizes);
}

#[test]
fn products_of_which_every_dimension_changes() {
    let first: [&[usize]; 3] = [&[2, 10], &[3, 10], &[3]];
    let sizes: [&[&[usize]]; 4] = [
        &[&[1, 4], &[130, 4], &[130]],
        &[&[130, 20], &[2, 20], &[2]],
        &[&[1, 7], &[16, 7], &[16]],
        &[&[5, 1], &[1, 1], &[1]],
    ];
    one(BuiltinOp::FULLY_CONNECTED, FullyConnectedParams::default(), &first, &[], &sizes);
}

#[test]
fn filters_of_all_sizes() {
    let first: [&[usize]; 3] = [&[1, 3, 4, 1], &[1, 3, 3, 1], &[1]];
    let sizes: [&[&[usize]]; 5] = [
        &[&[1, 3, 9, 8], &[8, 3, 3, 1], &[8]],
        &[&[1, 3, 4, 2], &[2, 3, 3, 2], &[2]],
        &[&[2, 5, 5, 12], &[24, 1, 1, 12], &[24]],
        &[&[1, 1, 1, 4], &[6, 2, 1, 4], &[6]],
        &[&[3, 7, 2, 7], &[10, 2, 2, 7], &[10]],
    ];
    let params = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
    one(BuiltinOp::CONV_2D, params, &first, &[], &sizes);
    let first: [&[usize]; 3] = [&[2, 3, 3, 4], &[1, 3, 3, 4], &[4]];
    let sizes: [&[&[usize]]; 3] = [
        &[&[7, 5, 5, 12], &[1, 5, 5, 12], &[12]],
        &[&[1, 5, 2, 2], &[1, 12, 2, 6], &[6]],
        &[&[4, 1, 3, 4], &[1, 9, 9, 4], &[4]],
    ];
    let params = DepthwiseConv2DParams::default()
        .padding(Padding::Same)
        .stride_w(1)
        .stride_h(1)
        .depth_multiplier(1)
        .dilation_w_factor(1)
        .dilation_h_factor(1);
    one(BuiltinOp::DEPTHWISE_CONV_2D, params, &first, &[], &sizes);
}

#[test]
fn what_is_cut_and_put_together() {
    use delegraph::core::ops::depth_to_space::SpaceToDepthParams;
    use delegraph::core::ops::pack::PackParams;
    use delegraph::core::ops::slice::StridedSliceParams;
    let sizes: [&[&[usize]]; 3] = [&[&[12, 20, 4, 6]], &[&[1, 4, 64, 20]], &[&[3, 8, 12, 1]]];
    one(
        BuiltinOp::SPACE_TO_DEPTH,
        SpaceToDepthParams::default().block_size(4),
        &[&[2, 12, 24, 1]],
        &[],
        &sizes,
    );
    let bounds: [&[i32]; 3] = [&[3, 0], &[7, 0], &[2, 1]];
    let params = StridedSliceParams::default().end_mask(2);
    let sizes: [&[&[usize]]; 3] = [&[&[5, 8]], &[&[4, 7]], &[&[70, 64]]];
    one(BuiltinOp::STRIDED_SLICE, params, &[&[33, 1]], &bounds, &sizes);
    let first: [&[usize]; 3] = [&[3, 7, 3][..]; 3];
    let sizes: [&[&[usize]]; 3] = [&[&[1, 12, 1][..]; 3], &[&[5, 1, 4][..]; 3], &[&[1, 1, 1][..]; 3]];
    one(BuiltinOp::PACK, PackParams::default().values_count(3).axis(1), &first, &[], &sizes);
    let sizes: [&[&[usize]]; 2] = [&[&[4]], &[&[1]]];
    one(BuiltinOp::BROADCAST_TO, Params::None, &[&[1]], &[&[3, 4]], &sizes);
}

#[test]
fn dropping_an_interpreter_cancels_its_background_compilation() {
    let Some(delegate) = delegate() else { return };
    let model = Arc::new(digits("digits_float32.tflite"));
    let prepared = || {
        let builder = Interpreter::builder(model.clone()).delegate(delegate.clone());
        let mut interpreter = builder.build().unwrap();
        interpreter.prepare().unwrap();
        interpreter
    };
    // Variants that no interpreter needs anymore are not compiled: the wait ends without them.
    drop(prepared());
    delegate.finish_compiling();
    let first = delegate.compiled_pipelines();
    let mut interpreter = prepared();
    assert_eq!(delegate.compiled_pipelines(), first);
    interpreter.invoke().unwrap();
    delegate.finish_compiling();
    assert!(delegate.compiled_pipelines() > first, "{first}");
    // The interpreter and its delegate may be dropped while variants are compiled.
    let (model, other) = (model.clone(), self::delegate().unwrap());
    let mut last = Interpreter::builder(model).delegate(other).build().unwrap();
    last.invoke().unwrap();
}
