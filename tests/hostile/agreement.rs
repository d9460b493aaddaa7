//! Zero sizes, huge strides, constants and variables of other shapes: both kernel sets return results of the same
//! shapes, or both return an error. No error comes from a panic.

use std::sync::Arc;

use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::conv_3d::Conv3DParams;
use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::pool_2d::Pool2DParams;
use delegraph::core::ops::transpose_conv::TransposeConvParams;
use delegraph::core::ops::{Activation, Padding};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId};
use delegraph::interpreter::{InterpreterBuilder, ResourceLimits};
use delegraph::{BuiltinOpResolver, Interpreter, Model, ReferenceOpResolver, TensorType};
use delegraph_conformance::seeded::{self, SplitMix64};

use crate::models;

/// Element types of input, weights, bias and output.
type Types = [TensorType; 4];

const TYPES: [(&str, Types); 5] = {
    use TensorType::{Float32, Int8, Int16, Int32, Int64, UInt8};
    [
        ("float", [Float32; 4]),
        ("hybrid", [Float32, Int8, Float32, Float32]),
        ("int8", [Int8, Int8, Int32, Int8]),
        ("uint8", [UInt8, UInt8, Int32, UInt8]),
        ("int16", [Int16, Int8, Int64, Int16]),
    ]
};

/// The outputs' shapes and bytes, or the error.
type Outcome = Result<Vec<(Vec<usize>, Vec<u8>)>, String>;

fn run(model: &Arc<Model>, builder: impl FnOnce(Arc<Model>) -> InterpreterBuilder) -> Outcome {
    let limits = ResourceLimits::default().with_memory(256 << 20);
    let outcome = || -> delegraph::Result<_> {
        let mut interpreter = builder(model.clone()).limits(limits).build()?;
        for i in 0..interpreter.input_count() {
            let ty = interpreter.input_tensor(i)?.ty;
            seeded::fill(ty, interpreter.input_bytes_mut(i)?, &mut SplitMix64::new(3).for_input(i));
        }
        interpreter.invoke()?;
        let output = |i| {
            let tensor = interpreter.output_tensor(i)?;
            Ok((tensor.shape.to_vec(), tensor.bytes().to_vec()))
        };
        (0..interpreter.output_count()).map(output).collect()
    };
    outcome().map_err(|e| e.to_string())
}

/// Runs both kernel sets, and compares the shapes and sizes of their outputs. Returns whether they run without error.
fn check(name: &str, model: &Model) -> bool {
    let model = Arc::new(model.clone());
    let optimized = run(&model, |model| Interpreter::builder_with_resolver(model, BuiltinOpResolver::new()));
    let reference =
        run(&model, |model| Interpreter::builder_with_resolver(model, ReferenceOpResolver::new()));
    for outcome in [&optimized, &reference] {
        if let Err(e) = outcome {
            assert!(!e.contains("unexpectedly") && !e.contains("Alignment"), "{name}: {e}");
        }
    }
    match (optimized, reference) {
        (Ok(optimized), Ok(reference)) => {
            let shape = |(shape, bytes): &(Vec<usize>, Vec<u8>)| (shape.clone(), bytes.len());
            let (a, b): (Vec<_>, Vec<_>) =
                (optimized.iter().map(shape).collect(), reference.iter().map(shape).collect());
            assert_eq!(a, b, "{name}");
            true
        }
        (Err(_), Err(_)) => false,
        (optimized, reference) => panic!("{name}: cpu {optimized:?}, reference {reference:?}"),
    }
}

/// One node with an input, constant weights and a constant bias of these `shapes`.
fn node(
    op: BuiltinOp,
    params: impl Into<Params>,
    [input, weights, bias, output]: Types,
    shapes: [&[usize]; 3],
    first: Option<&[i32]>,
) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", input, shapes[0]);
    let mut constant = |name: &str, ty: TensorType, shape: &[usize]| {
        let bytes = ty.byte_size(shape.iter().product()).unwrap();
        graph.constant_bytes(name, ty, shape, &vec![1; bytes])
    };
    let (w, b) = (constant("w", weights, shapes[1]), constant("b", bias, shapes[2]));
    let y = graph.tensor("y", output, [1]);
    let zero = |ty| if ty == TensorType::UInt8 { 128 } else { 0 };
    for (id, ty, scale) in [(x, input, 0.5), (w, weights, 0.25), (b, bias, 0.125), (y, output, 2.0)] {
        if ty != TensorType::Float32 {
            let zero = if id == b { 0 } else { zero(ty) };
            graph.quantize(id, Quantization::per_tensor(scale, zero));
        }
    }
    let inputs: Vec<TensorId> = match first {
        // A transposed convolution's first input is the shape of its output.
        Some(shape) => vec![graph.constant("shape", [shape.len()], shape), w, x, b],
        None => vec![x, w, b],
    };
    graph.node(op, params).inputs(inputs).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// `base`, and `base` with each position set to 0.
fn with_zeros<const N: usize>(base: [usize; N]) -> impl Iterator<Item = [usize; N]> {
    (0..=N).map(move |zero| std::array::from_fn(|i| if i == zero { 0 } else { base[i] }))
}

#[test]
fn zero_sizes_of_convolutions() {
    let mut results = 0;
    for (types_name, types) in TYPES {
        for padding in [Padding::Same, Padding::Valid] {
            for [n, h, w, c, out, kh, kw, depth] in with_zeros([1, 4, 4, 4, 2, 3, 3, 4]) {
                let name = format!("{types_name} {padding:?} {:?}", [n, h, w, c, out, kh, kw, depth]);
                let conv = Conv2DParams::default().padding(padding).stride_w(1).stride_h(1);
                let conv = conv.dilation_w_factor(1).dilation_h_factor(1);
                let shapes: [&[usize]; 3] = [&[n, h, w, c], &[out, kh, kw, depth], &[out]];
                let model = node(BuiltinOp::CONV_2D, conv, types, shapes, None);
                results += usize::from(check(&format!("CONV_2D {name}"), &model));

                let channels = c * out;
                let depthwise = DepthwiseConv2DParams::default().padding(padding).stride_w(1).stride_h(1);
                let depthwise = depthwise.dilation_w_factor(1).dilation_h_factor(1);
                let shapes: [&[usize]; 3] = [&[n, h, w, c], &[1, kh, kw, channels], &[channels]];
                let model = node(BuiltinOp::DEPTHWISE_CONV_2D, depthwise, types, shapes, None);
                results += usize::from(check(&format!("DEPTHWISE_CONV_2D {name}"), &model));

                let transpose = TransposeConvParams::default().padding(padding).stride_w(2).stride_h(2);
                let shape = [n, 2 * h + 1, 2 * w + 1, out].map(|n| i32::try_from(n).unwrap());
                let shapes: [&[usize]; 3] = [&[n, h, w, c], &[out, kh, kw, depth], &[out]];
                let model = node(BuiltinOp::TRANSPOSE_CONV, transpose, types, shapes, Some(&shape));
                results += usize::from(check(&format!("TRANSPOSE_CONV {name}"), &model));
            }
        }
        for [rows, depth, units] in with_zeros([3, 4, 2]) {
            let name = format!("FULLY_CONNECTED {types_name} {:?}", [rows, depth, units]);
            let shapes: [&[usize]; 3] = [&[rows, depth], &[units, depth], &[units]];
            let model =
                node(BuiltinOp::FULLY_CONNECTED, FullyConnectedParams::default(), types, shapes, None);
            results += usize::from(check(&name, &model));
        }
    }
    for [n, d, h, w, c, out, k] in with_zeros([1, 3, 4, 4, 2, 3, 2]) {
        let params = Conv3DParams::default().padding(Padding::Same).stride_d(1).stride_h(1).stride_w(1);
        let params = params.dilation_d_factor(1).dilation_h_factor(1).dilation_w_factor(1);
        let shapes: [&[usize]; 3] = [&[n, d, h, w, c], &[k, k, k, c, out], &[out]];
        let model = node(BuiltinOp::CONV_3D, params, TYPES[0].1, shapes, None);
        results += usize::from(check(&format!("CONV_3D {:?}", [n, d, h, w, c, out, k]), &model));
    }
    assert!(results > 50, "{results}");
}

fn pool(op: BuiltinOp, params: Pool2DParams, ty: TensorType, shape: [usize; 4]) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let (x, y) = (graph.input("x", ty, shape), graph.tensor("y", ty, [1]));
    if ty != TensorType::Float32 {
        [x, y].into_iter().for_each(|id| graph.quantize(id, Quantization::per_tensor(0.5, 0)));
    }
    graph.node(op, params).inputs([x]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn zero_sizes_of_pools() {
    let mut results = 0;
    for op in [BuiltinOp::AVERAGE_POOL_2D, BuiltinOp::MAX_POOL_2D, BuiltinOp::L2_POOL_2D] {
        for ty in [TensorType::Float32, TensorType::Int8, TensorType::UInt8, TensorType::Int16] {
            for padding in [Padding::Same, Padding::Valid] {
                for [n, h, w, c, kh, kw] in with_zeros([1, 4, 4, 3, 2, 2]) {
                    let size = |n: usize| i32::try_from(n).unwrap();
                    let params = Pool2DParams::default().padding(padding).stride_w(1).stride_h(1);
                    let params = params.filter_height(size(kh)).filter_width(size(kw));
                    let name = format!("{op:?} {ty} {padding:?} {:?}", [n, h, w, c, kh, kw]);
                    results += usize::from(check(&name, &pool(op, params, ty, [n, h, w, c])));
                }
            }
        }
    }
    assert!(results > 50, "{results}");
}

#[test]
fn huge_strides_dilations_and_windows() {
    const HUGE: [i32; 4] = [1, 1 << 30, (1 << 30) + 7, i32::MAX];
    for (types_name, types) in TYPES {
        for padding in [Padding::Same, Padding::Valid] {
            for (stride, dilation) in HUGE.into_iter().flat_map(|s| HUGE.map(|d| (s, d))) {
                let name = format!("{types_name} {padding:?} stride {stride} dilation {dilation}");
                let shapes: [&[usize]; 3] = [&[1, 4, 4, 4], &[2, 3, 3, 4], &[2]];
                let conv = Conv2DParams::default().padding(padding).stride_w(stride).stride_h(stride);
                let conv = conv.dilation_w_factor(dilation).dilation_h_factor(dilation);
                check(&format!("CONV_2D {name}"), &node(BuiltinOp::CONV_2D, conv, types, shapes, None));
                let shapes: [&[usize]; 3] = [&[1, 4, 4, 4], &[1, 3, 3, 8], &[8]];
                let depthwise = DepthwiseConv2DParams::default().padding(padding).stride_w(stride);
                let depthwise = depthwise.stride_h(stride).dilation_w_factor(dilation);
                let depthwise = depthwise.dilation_h_factor(dilation);
                let model = node(BuiltinOp::DEPTHWISE_CONV_2D, depthwise, types, shapes, None);
                check(&format!("DEPTHWISE_CONV_2D {name}"), &model);
                let shapes: [&[usize]; 3] = [&[1, 1, 1, 4], &[2, 3, 3, 4], &[2]];
                let params =
                    TransposeConvParams::default().padding(padding).stride_w(stride).stride_h(stride);
                let model = node(BuiltinOp::TRANSPOSE_CONV, params, types, shapes, Some(&[1, 3, 3, 2]));
                check(&format!("TRANSPOSE_CONV {name}"), &model);
            }
        }
    }
    for op in [BuiltinOp::AVERAGE_POOL_2D, BuiltinOp::MAX_POOL_2D, BuiltinOp::L2_POOL_2D] {
        for ty in [TensorType::Float32, TensorType::Int8, TensorType::Int16] {
            for padding in [Padding::Same, Padding::Valid] {
                for (stride, window) in HUGE.into_iter().flat_map(|s| HUGE.map(|d| (s, d))) {
                    let params = Pool2DParams::default().padding(padding).stride_w(stride).stride_h(stride);
                    let params = params.filter_width(window).filter_height(window);
                    let params = params.fused_activation_function(Activation::None);
                    let name = format!("{op:?} {ty} {padding:?} stride {stride} window {window}");
                    check(&name, &pool(op, params, ty, [1, 4, 4, 3]));
                }
            }
        }
    }
}

#[test]
fn constants_and_variables_keep_their_shapes() {
    assert!(!check("a constant input of another shape", &models::constant_input(true)));
    check("a constant input", &models::constant_input(false));
    assert!(check("constant outputs", &models::constant_output()));
    assert!(check("a variable", &models::growing_variable(4, 4)));
    for (has, gets) in [(1, 4), (4, 1), (4, 4096), (4096, 4)] {
        assert!(!check("a variable of another shape", &models::growing_variable(has, gets)));
    }
}

#[test]
fn an_interpreter_survives_a_failed_preparation() {
    let model = Arc::new(models::constant_input(true));
    let mut interpreter = Interpreter::builder(model).prepare_later().build().unwrap();
    for _ in 0..3 {
        assert!(interpreter.invoke().is_err());
    }
}
