//! Operands that are known at run time only: axes, paddings, sizes, k and weights that are inputs. The GPU returns the
//! results and the errors of the CPU, for operands that change between invocations. Skipped with a message on machines
//! without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use delegraph::core::ops::arg_min_max::ArgMaxParams;
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::cumsum::CumsumParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::one_hot::OneHotParams;
use delegraph::core::ops::pad::MirrorPadParams;
use delegraph::core::ops::reduce::ReducerParams;
use delegraph::core::ops::reshape::ReshapeParams;
use delegraph::core::ops::resize::ResizeBilinearParams;
use delegraph::core::ops::slice::StridedSliceParams;
use delegraph::core::ops::split::{SplitParams, SplitVParams};
use delegraph::core::ops::transpose_conv::TransposeConvParams;
use delegraph::core::ops::{Activation, Padding};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder};
use delegraph::delegate_api::Runner;
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, Model, ReferenceOpResolver, TensorType};

use TensorType::{Float32, Int8, Int32};

/// The data of an input.
#[derive(Clone, Copy)]
enum Data<'a> {
    Floats(&'a [f32]),
    Integers(&'a [i32]),
    Bytes(&'a [i8]),
}

use Data::{Bytes, Floats, Integers};

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + 5) % 23) as f32 / 4.0 - 2.5).collect()
}

fn bytes(count: usize) -> Vec<i8> {
    (0..count).map(|i| ((i * 53 + 11) % 101) as i8 - 50).collect()
}

fn set(interpreter: &mut Interpreter, inputs: &[Data<'_>]) {
    for (i, data) in inputs.iter().enumerate() {
        match data {
            Floats(data) => interpreter.input_mut::<f32>(i).unwrap().copy_from_slice(data),
            Integers(data) => interpreter.input_mut::<i32>(i).unwrap().copy_from_slice(data),
            Bytes(data) => interpreter.input_mut::<i8>(i).unwrap().copy_from_slice(data),
        }
    }
}

/// A model of one node whose operands are all inputs.
fn one(
    op: BuiltinOp,
    params: impl Into<Params>,
    inputs: &[(TensorType, &[usize])],
    outputs: &[TensorType],
) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let scale = |graph: &mut SubgraphBuilder, id, ty, scale| {
        if ty == Int8 {
            graph.quantize(id, Quantization::per_tensor(scale, 0));
        }
    };
    let mut ids = Vec::new();
    for (ty, shape) in inputs {
        let id = graph.input("", *ty, *shape);
        scale(&mut graph, id, *ty, 0.5);
        ids.push(id);
    }
    let mut results = Vec::new();
    for ty in outputs {
        // The shapes of the outputs follow from the operands.
        let id = graph.tensor("", *ty, [0usize; 0]);
        scale(&mut graph, id, *ty, 4.0);
        results.push(id);
    }
    graph.node(op, params).inputs(ids).writes(results.clone());
    graph.outputs(results);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// Runs `model` with each of these inputs on CPU and GPU. `valid`: whether the CPU accepts the inputs.
#[track_caller]
fn check(delegate: &WgpuDelegate, model: &Model, runs: &[(&[Data<'_>], bool)]) {
    let mut cpu = Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new()).build().unwrap();
    let gpu = Interpreter::builder(model.clone()).delegate(delegate.clone());
    let mut gpu = gpu.resolver(ReferenceOpResolver::new()).build().unwrap();
    let on_gpu = gpu.report().nodes.iter().any(|node| matches!(node.runner, Runner::Delegate { .. }));
    assert!(on_gpu, "{:?}", gpu.report());
    for (run, (inputs, valid)) in runs.iter().enumerate() {
        let mut results = Vec::new();
        for interpreter in [&mut cpu, &mut gpu] {
            set(interpreter, inputs);
            results.push(interpreter.invoke().map_err(|e| e.to_string()));
        }
        assert_eq!(results[0].is_ok(), *valid, "run {run}: {results:?}");
        assert_eq!(results[0], results[1], "run {run}");
        if !valid {
            continue;
        }
        for output in 0..model.subgraphs()[0].outputs().len() {
            let [one, other] = [&cpu, &gpu].map(|i| i.output_tensor(output).unwrap());
            assert_eq!(one.shape, other.shape, "run {run}");
            if one.ty != Float32 {
                assert_eq!(one.bytes(), other.bytes(), "run {run}");
                continue;
            }
            for (a, b) in one.elements::<f32>().unwrap().iter().zip(other.elements::<f32>().unwrap()) {
                let close = approx::abs_diff_eq!(a, b, epsilon = 1e-5 * (1.0 + a.abs()));
                assert!(close, "run {run}: {a} and {b}");
            }
        }
    }
}

#[test]
fn shapes_and_axes_follow_the_operands_of_each_run() {
    let Some(delegate) = gpu::delegate() else { return };
    let data = floats(24);
    let x = Floats(&data);
    let of = |ty, shape| -> [(TensorType, &[usize]); 2] { [(Float32, &[2, 3, 4]), (ty, shape)] };
    let run = |op, params: Params, shape: &'static [usize], operands: &[(&[i32], bool)]| {
        let model = one(op, params, &of(Int32, shape), &[Float32]);
        let runs: Vec<_> = operands.iter().map(|(operand, valid)| ([x, Integers(operand)], *valid)).collect();
        let runs: Vec<(&[Data<'_>], bool)> =
            runs.iter().map(|(inputs, valid)| (&inputs[..], *valid)).collect();
        check(&delegate, &model, &runs);
    };
    let sum = || Params::from(ReducerParams::default().keep_dims(true));
    use BuiltinOp as B;
    run(
        B::TRANSPOSE,
        Params::None,
        &[3],
        &[
            (&[0, 2, 1], true),
            (&[2, 1, 0], true),
            (&[2, 1, 0], true),
            (&[0, 0, 3], false),
            (&[1, 0, 2], true),
        ],
    );
    run(
        B::RESHAPE,
        ReshapeParams::default().into(),
        &[2],
        &[(&[4, 6], true), (&[-1, 3], true), (&[5, 5], false), (&[24, 1], true)],
    );
    run(B::TILE, Params::None, &[3], &[(&[1, 2, 1], true), (&[2, 1, 3], true)]);
    run(
        B::PAD,
        Params::None,
        &[3, 2],
        &[(&[0, 0, 1, 2, 0, 1], true), (&[1, 0, 0, 0, 0, 0], true), (&[-1, 0, 0, 0, 0, 0], false)],
    );
    run(
        B::MIRROR_PAD,
        MirrorPadParams::default().into(),
        &[3, 2],
        &[(&[1, 0, 1, 2, 0, 1], true), (&[0; 6], true)],
    );
    run(B::SUM, sum(), &[2], &[(&[0, 1], true), (&[2, -3], true), (&[0, 7], false), (&[1, 1], true)]);
    run(B::REDUCE_MAX, sum(), &[1], &[(&[2], true), (&[0], true)]);
    run(B::REVERSE_V2, Params::None, &[1], &[(&[1], true), (&[-1], true), (&[3], false)]);
    run(B::CUMSUM, CumsumParams::default().into(), &[], &[(&[1], true), (&[-3], true)]);
}

#[test]
fn slices_parts_and_classes_follow_the_operands_of_each_run() {
    let Some(delegate) = gpu::delegate() else { return };
    let data = floats(24);
    let x = Floats(&data);
    let image: (TensorType, &[usize]) = (Float32, &[2, 3, 4]);
    let three: (TensorType, &[usize]) = (Int32, &[3]);
    use BuiltinOp as B;
    let model = one(B::SLICE, Params::None, &[image, three, three], &[Float32]);
    let slice = |begin: &'static [i32], size: &'static [i32]| [x, Integers(begin), Integers(size)];
    check(
        &delegate,
        &model,
        &[
            (&slice(&[0, 1, 1], &[2, 1, -1]), true),
            (&slice(&[1, 0, 2], &[1, 3, 2]), true),
            (&slice(&[1, 0, 2], &[2, 3, 2]), false),
        ],
    );
    let model = one(
        B::STRIDED_SLICE,
        StridedSliceParams::default().shrink_axis_mask(1),
        &[image, three, three, three],
        &[Float32],
    );
    let strided = |begin: &'static [i32], end: &'static [i32], step: &'static [i32]| {
        [x, Integers(begin), Integers(end), Integers(step)]
    };
    check(
        &delegate,
        &model,
        &[
            (&strided(&[0, 0, 0], &[1, 3, 4], &[1, 2, 1]), true),
            (&strided(&[1, 2, 3], &[2, -4, 0], &[1, -1, -2]), true),
            (&strided(&[1, 2, 3], &[2, 3, 4], &[1, 0, 1]), false),
        ],
    );
    let model = one(B::SPLIT, SplitParams::default().num_splits(2), &[(Int32, &[]), image], &[Float32; 2]);
    let split = |axis: &'static [i32]| [Integers(axis), x];
    check(&delegate, &model, &[(&split(&[0]), true), (&split(&[2]), true), (&split(&[1]), false)]);
    let parts: (TensorType, &[usize]) = (Int32, &[2]);
    let model =
        one(B::SPLIT_V, SplitVParams::default().num_splits(2), &[image, parts, (Int32, &[])], &[Float32; 2]);
    let split = |parts: &'static [i32], axis: &'static [i32]| [x, Integers(parts), Integers(axis)];
    check(
        &delegate,
        &model,
        &[(&split(&[1, -1], &[1]), true), (&split(&[3, 1], &[2]), true), (&split(&[2, 2], &[1]), false)],
    );
    let model = one(B::TOPK_V2, Params::None, &[image, (Int32, &[])], &[Float32, Int32]);
    let top = |k: &'static [i32]| [x, Integers(k)];
    // A result without elements is left to the CPU.
    check(
        &delegate,
        &model,
        &[
            (&top(&[1]), true),
            (&top(&[3]), true),
            (&top(&[0]), true),
            (&top(&[5]), false),
            (&top(&[4]), true),
        ],
    );
    let model = one(B::ARG_MAX, ArgMaxParams::default().output_type(Int32), &[image, (Int32, &[])], &[Int32]);
    check(&delegate, &model, &[(&top(&[1]), true), (&top(&[-1]), true), (&top(&[3]), false)]);
    let model = one(
        B::ONE_HOT,
        OneHotParams::default().axis(-1),
        &[(Int32, &[2]), (Int32, &[]), (Float32, &[]), (Float32, &[])],
        &[Float32],
    );
    let hot = |depth: &'static [i32]| [Integers(&[1, 4]), Integers(depth), Floats(&[2.0]), Floats(&[-1.0])];
    check(&delegate, &model, &[(&hot(&[3]), true), (&hot(&[5]), true)]);
    let params = ResizeBilinearParams::default();
    let model = one(B::RESIZE_BILINEAR, params, &[(Float32, &[1, 2, 3, 4]), (Int32, &[2])], &[Float32]);
    let size = |size: &'static [i32]| [x, Integers(size)];
    check(&delegate, &model, &[(&size(&[4, 6]), true), (&size(&[1, 1]), true), (&size(&[0, 3]), false)]);
}

#[test]
fn weights_are_inputs() {
    let Some(delegate) = gpu::delegate() else { return };
    let (image, filters) = (bytes(2 * 4 * 4 * 3), bytes(2 * 2 * 2 * 3 * 2));
    let biases = [100, -30];
    use BuiltinOp as B;
    let params = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
    let params = params.fused_activation_function(Activation::Relu);
    let mut graph = SubgraphBuilder::new("main");
    let mut tensor = |name, ty, shape: &[usize], scale| {
        let id = graph.input(name, ty, shape);
        graph.quantize(id, Quantization::per_tensor(scale, 0));
        id
    };
    let x = tensor("x", Int8, &[2, 4, 4, 3], 0.5);
    let filter = tensor("filter", Int8, &[2, 2, 2, 3], 0.25);
    let bias = tensor("bias", Int32, &[2], 0.125);
    let y = graph.tensor("y", Int8, [2, 4, 4, 2]);
    graph.quantize(y, Quantization::per_tensor(8.0, 3));
    graph.node(B::CONV_2D, params).inputs([x, filter, bias]).writes([y]);
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let inputs = |from: usize| [Bytes(&image), Bytes(&filters[from..from + 24]), Integers(&biases)];
    check(
        &delegate,
        &model,
        &[(&inputs(0), true), (&inputs(24), true), (&inputs(24), true), (&inputs(7), true)],
    );

    let params = TransposeConvParams::default().padding(Padding::Valid).stride_w(2).stride_h(2);
    let operands: [(TensorType, &[usize]); 3] =
        [(Int32, &[4]), (Float32, &[2, 2, 2, 3]), (Float32, &[1, 2, 2, 3])];
    let model = one(B::TRANSPOSE_CONV, params, &operands, &[Float32]);
    let (filter, data) = (floats(24), floats(12));
    let inputs = |shape: &'static [i32]| [Integers(shape), Floats(&filter), Floats(&data)];
    check(
        &delegate,
        &model,
        &[(&inputs(&[1, 4, 4, 2]), true), (&inputs(&[1, 5, 5, 2]), true), (&inputs(&[1, 4, 4, 3]), false)],
    );
}

#[test]
fn integer_weights_of_floats_are_inputs() {
    let Some(delegate) = gpu::delegate() else { return };
    let (data, weights) = (floats(2 * 9), bytes(2 * 4 * 9));
    let operands: [(TensorType, &[usize]); 3] = [(Float32, &[2, 9]), (Int8, &[4, 9]), (Float32, &[4])];
    let bias = floats(4);
    for asymmetric in [false, true] {
        let params = FullyConnectedParams::default().asymmetric_quantize_inputs(asymmetric);
        let model = one(BuiltinOp::FULLY_CONNECTED, params, &operands, &[Float32]);
        let inputs = |from: usize| [Floats(&data), Bytes(&weights[from..from + 36]), Floats(&bias)];
        // The CPU quantizes each row of the data, so a product of floats differs by more than rounding.
        check(&delegate, &model, &[(&inputs(0), true), (&inputs(36), true), (&inputs(5), true)]);
    }
}

/// `reverse(-x)`, and `tile(|reverse(-x)|, reverse(m))`: nodes around deferred ones, and an operand that the GPU
/// computes.
#[test]
fn partitions_with_other_nodes() {
    let Some(delegate) = gpu::delegate() else { return };
    let mut graph = SubgraphBuilder::new("main");
    let (x, m) = (graph.input("x", Float32, [2, 3]), graph.input("m", Int32, [2]));
    let axis = graph.input("axis", Int32, [1]);
    let negated = graph.node(BuiltinOp::NEG, Params::None).inputs([x]).output("negated");
    let reversed = graph.node(BuiltinOp::REVERSE_V2, Params::None).inputs([negated, axis]).output("reversed");
    let again = graph.node(BuiltinOp::ABS, Params::None).inputs([reversed]).output("again");
    let turned = graph.node(BuiltinOp::REVERSE_V2, Params::None).inputs([m, axis]).output("turned");
    let tiled = graph.tensor("tiled", Float32, [0usize; 0]);
    graph.node(BuiltinOp::TILE, Params::None).inputs([again, turned]).writes([tiled]);
    graph.outputs([reversed, tiled]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let data = floats(6);
    let inputs = |m: &'static [i32], axis: &'static [i32]| [Floats(&data), Integers(m), Integers(axis)];
    check(
        &delegate,
        &model,
        &[(&inputs(&[1, 2], &[0]), true), (&inputs(&[3, 1], &[0]), true), (&inputs(&[2, 2], &[0]), true)],
    );
}

#[test]
fn nodes_above_the_limit_of_device_memory_run_on_the_cpu() {
    if gpu::delegate().is_none() {
        return;
    }
    let delegate = gpu::opened(WgpuDelegate::new(WgpuOptions::default().with_max_gpu_bytes(4096))).unwrap();
    let operands: [(TensorType, &[usize]); 2] = [(Float32, &[8]), (Int32, &[1])];
    let model = one(BuiltinOp::TILE, Params::None, &operands, &[Float32]);
    let data = floats(8);
    let inputs = |times: &'static [i32]| [Floats(&data), Integers(times)];
    check(&delegate, &model, &[(&inputs(&[2]), true), (&inputs(&[1000]), true), (&inputs(&[3]), true)]);
}

#[test]
fn types_that_the_device_lacks_are_not_claimed() {
    let Some(delegate) = gpu::delegate() else { return };
    let operands: [(TensorType, &[usize]); 2] = [(TensorType::Int64, &[8]), (Int32, &[1])];
    let model = one(BuiltinOp::TILE, Params::None, &operands, &[TensorType::Int64]);
    let interpreter = Interpreter::builder(model).delegate(delegate).build().unwrap();
    assert_eq!(interpreter.report().nodes[0].runner, Runner::Cpu);
}
