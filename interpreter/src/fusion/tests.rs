//! Patterns and composites, each compared with the nodes that it replaces.

use std::sync::Arc;
use std::time::Duration;

use delegraph_core::error::{Error, ErrorKind, LimitExceeded};
use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::variables::VarHandleParams;
use delegraph_core::ops::{Activation, Padding};
use delegraph_core::{
    Attributes, BuiltinOp as B, Model, ModelBuilder, OpResolver, Params, Quantization, Result, Signature,
    SubgraphBuilder, TensorId, TensorType,
};

use super::*;
use crate::BuiltinOpResolver;
use crate::ResourceLimits;
use crate::random::Random;

mod normalization;
mod state;

fn numbers(count: usize) -> Vec<f32> {
    let mut generator = Random::new(7, 0);
    (0..count).map(|_| generator.draw_f32()).collect()
}

fn build(graph: SubgraphBuilder) -> Model {
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// Returns the ops of the first subgraph after fusing, and checks that results are unchanged.
fn ops_after(pipeline: &Pipeline, model: &Model) -> Vec<String> {
    let fused = pipeline.run(model).unwrap();
    same(model, &fused.model);
    fused.model.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect()
}

fn same(a: &Model, b: &Model) {
    let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
    let models = ModelPair { original: &Arc::new(a.clone()), fused: &Arc::new(b.clone()) };
    for difference in compare(models, &resolver, 3).unwrap() {
        assert!(difference.is_fine(), "{difference:?}");
    }
}

fn check(graph: SubgraphBuilder, expected: &[&str]) -> Model {
    let model = build(graph);
    assert_eq!(ops_after(&Pipeline::new(), &model), expected);
    Pipeline::new().run(&model).unwrap().model
}

fn binary(graph: &mut SubgraphBuilder, op: B, a: TensorId, b: TensorId) -> TensorId {
    let params: Params = match op {
        B::ADD => AddParams::default().into(),
        B::SUB => SubParams::default().into(),
        B::MUL => MulParams::default().into(),
        B::DIV => DivParams::default().into(),
        _ => Params::None,
    };
    graph.node(op, params).inputs([a, b]).output("")
}

fn scalar(graph: &mut SubgraphBuilder, op: B, a: TensorId, value: f32) -> TensorId {
    let c = graph.constant("", [], &[value]);
    binary(graph, op, a, c)
}

fn unary(graph: &mut SubgraphBuilder, op: B, x: TensorId) -> TensorId {
    graph.node(op, Params::None).inputs([x]).output("")
}

fn reduce(graph: &mut SubgraphBuilder, op: B, x: TensorId, axis: i32) -> TensorId {
    let axis = graph.constant("", [1], &[axis]);
    graph.node(op, ReducerParams::default().keep_dims(true)).inputs([x, axis]).output("")
}

fn conv(padding: Padding, stride: i32) -> Conv2DParams {
    Conv2DParams::default()
        .padding(padding)
        .stride_w(stride)
        .stride_h(stride)
        .dilation_w_factor(1)
        .dilation_h_factor(1)
}

#[test]
fn batch_normalization_bias_and_activation_are_folded() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 5, 5, 2]);
    let filter = graph.constant("filter", [3, 3, 3, 2], &numbers(54));
    let bias = graph.constant("bias", [3], &[0.5f32, -0.5, 1.0]);
    let y = graph.node(B::CONV_2D, conv(Padding::Same, 1)).inputs([x, filter, bias]).output("c");
    let factors = graph.constant("factors", [3], &[2f32, -1.0, 0.25]);
    let y = binary(&mut graph, B::MUL, y, factors);
    let terms = graph.constant("terms", [1, 1, 1, 3], &[1f32, 2.0, 3.0]);
    let y = binary(&mut graph, B::SUB, y, terms);
    let y = unary(&mut graph, B::RELU6, y);
    graph.outputs([y]);
    let model = check(graph, &["CONV_2D"]);
    let Params::Conv2D(p) = model.subgraphs()[0].nodes()[0].params() else { panic!() };
    assert_eq!(p.fused_activation_function, Activation::Relu6);
    assert_eq!(model.subgraphs()[0].tensors().len(), 4);
}

#[test]
fn the_same_for_depthwise_and_dense_ones_without_bias() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 4, 4, 2]);
    let filter = graph.constant("filter", [1, 2, 2, 4], &numbers(16));
    let params = DepthwiseConv2DParams::default()
        .padding(Padding::Valid)
        .stride_w(1)
        .stride_h(1)
        .depth_multiplier(2)
        .dilation_w_factor(1)
        .dilation_h_factor(1);
    let zero = graph.constant("zero", [4], &[0f32; 4]);
    let y = graph.node(B::DEPTHWISE_CONV_2D, params).inputs([x, filter, zero]).output("d");
    let factors = graph.constant("factors", [4], &[2f32, -1.0, 0.25, 3.0]);
    let y = binary(&mut graph, B::DIV, y, factors);
    let shape = graph.constant("shape", [2], &[1i32, -1]);
    let y = graph.node(B::RESHAPE, ReshapeParams::default()).inputs([y, shape]).output("flat");
    let weights = graph.constant("weights", [5, 36], &numbers(180));
    let y = graph.node(B::FULLY_CONNECTED, FullyConnectedParams::default()).inputs([y, weights]).output("f");
    let y = scalar(&mut graph, B::MUL, y, 0.5);
    let terms = graph.constant("terms", [5], &numbers(5));
    let y = binary(&mut graph, B::ADD, terms, y);
    let y = unary(&mut graph, B::RELU, y);
    graph.outputs([y]);
    check(graph, &["DEPTHWISE_CONV_2D", "RESHAPE", "FULLY_CONNECTED"]);
}

#[test]
fn a_chain_of_factors_and_terms_adds_weights_and_bias_once() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 64]);
    let weights = graph.constant("weights", [64, 64], &numbers(64 * 64));
    let terms = graph.constant("terms", [64], &numbers(64));
    let params = FullyConnectedParams::default();
    let mut y = graph.node(B::FULLY_CONNECTED, params).inputs([x, weights, terms]).output("f");
    for i in 0..20 {
        let factor = graph.constant("", [64], &[1.001 + 0.01 * i as f32; 64]);
        y = binary(&mut graph, B::MUL, y, factor);
    }
    for i in 0..20 {
        y = scalar(&mut graph, B::ADD, y, 0.5 + i as f32);
    }
    graph.outputs([y]);
    let model = build(graph);
    assert_eq!(ops_after(&Pipeline::new(), &model), ["FULLY_CONNECTED"]);
    // Less than a copy of the weights for each factor.
    let limits = ResourceLimits::default().with_memory(8 * 64 * 64 * size_of::<f32>());
    let pipeline = Pipeline::new().limits(limits);
    assert_eq!(ops_after(&pipeline, &model), ["FULLY_CONNECTED"]);
    let fused = Pipeline::new().run(&model).unwrap().model;
    let names: usize = fused.subgraphs()[0].tensors().iter().map(|t| t.name().len()).sum();
    assert!(names < 200, "{names}");
}

#[test]
fn fusions_without_memory_for_their_constants_are_left_out() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 64]);
    let weights = graph.constant("weights", [64, 64], &numbers(64 * 64));
    let y = graph.node(B::FULLY_CONNECTED, FullyConnectedParams::default()).inputs([x, weights]).output("f");
    let y = scalar(&mut graph, B::MUL, y, 3.0);
    let y = unary(&mut graph, B::RELU, y);
    graph.outputs([y]);
    let model = build(graph);
    let ops = |limits: ResourceLimits| {
        let fused = Pipeline::new().limits(limits).run(&model)?.model;
        Ok::<_, Error>(fused.subgraphs()[0].nodes().iter().map(|n| n.op().to_string()).collect::<Vec<_>>())
    };
    assert_eq!(ops(ResourceLimits::default()).unwrap(), ["FULLY_CONNECTED"]);
    // Less than a copy of the weights.
    let little = ResourceLimits::default().with_memory(64 * 64 * size_of::<f32>() - 1);
    assert_eq!(ops(little).unwrap(), ["FULLY_CONNECTED", "MUL"]);
    for limits in [
        ResourceLimits::default().with_time(Duration::ZERO),
        ResourceLimits::default().with_total_time(Duration::ZERO),
    ] {
        assert!(ops(limits).unwrap_err().is_interruption());
    }
}

#[test]
fn values_with_other_readers_and_broadcasts_are_left() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 3]);
    let weights = graph.constant("weights", [3, 3], &numbers(9));
    let y = graph.node(B::FULLY_CONNECTED, FullyConnectedParams::default()).inputs([x, weights]).output("f");
    let a = unary(&mut graph, B::RELU, y);
    // A term per row changes the shape.
    let terms = graph.constant("terms", [2, 1], &[1f32, 2.0]);
    let b = binary(&mut graph, B::ADD, y, terms);
    graph.outputs([a, b]);
    check(graph, &["FULLY_CONNECTED", "RELU", "ADD"]);
}

#[test]
fn equal_padding_is_merged_into_the_convolution() {
    let padded = |amounts: [i32; 8], stride: i32, resizable: bool| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 6, 6, 1]);
        if resizable {
            graph.resizable(x, [Some(1), None, None, Some(1)]);
        }
        let amounts = graph.constant("amounts", [4, 2], &amounts);
        let y = graph.node(B::PAD, Params::None).inputs([x, amounts]).output("p");
        let filter = graph.constant("filter", [2, 3, 3, 1], &numbers(18));
        let bias = graph.constant("bias", [2], &[0f32; 2]);
        let y = graph.node(B::CONV_2D, conv(Padding::Valid, stride)).inputs([y, filter, bias]).output("c");
        graph.outputs([y]);
        graph
    };
    check(padded([0, 0, 1, 1, 1, 1, 0, 0], 1, true), &["CONV_2D"]);
    check(padded([0, 0, 0, 1, 0, 1, 0, 0], 2, false), &["CONV_2D"]);
    // Another size would need other padding.
    check(padded([0, 0, 0, 1, 0, 1, 0, 0], 2, true), &["PAD", "CONV_2D"]);
    check(padded([0, 0, 1, 1, 1, 1, 0, 0], 2, false), &["PAD", "CONV_2D"]);
}

#[test]
fn clamps_hard_swish_and_gelu_are_recognised() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 9]);
    let a = scalar(&mut graph, B::MAXIMUM, x, 0.0);
    let a = scalar(&mut graph, B::MINIMUM, a, 6.0);
    let b = scalar(&mut graph, B::MINIMUM, x, 1.0);
    let b = scalar(&mut graph, B::MAXIMUM, b, -1.0);
    graph.outputs([a, b]);
    check(graph, &["RELU6", "RELU_N1_TO_1"]);
    for form in 0..4 {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [2, 9]);
        let x = scalar(&mut graph, B::MUL, x, 4.0);
        let gate = scalar(&mut graph, B::ADD, x, 3.0);
        let gate = unary(&mut graph, B::RELU6, gate);
        let y = match form {
            0 => {
                let y = binary(&mut graph, B::MUL, x, gate);
                scalar(&mut graph, B::MUL, y, 1.0 / 6.0)
            }
            1 => {
                let y = binary(&mut graph, B::MUL, gate, x);
                scalar(&mut graph, B::DIV, y, 6.0)
            }
            2 => {
                let gate = scalar(&mut graph, B::MUL, gate, 0.166_666_67);
                binary(&mut graph, B::MUL, gate, x)
            }
            _ => {
                let sixth = scalar(&mut graph, B::DIV, x, 6.0);
                binary(&mut graph, B::MUL, sixth, gate)
            }
        };
        graph.outputs([y]);
        check(graph, &["MUL", "HARD_SWISH"]);
    }
}

#[test]
fn gelu_is_recognised_in_the_forms_of_the_frameworks() {
    let root = (2.0 / std::f32::consts::PI).sqrt();
    for form in 0..4 {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [2, 9]);
        let cubic = match form {
            0 => {
                let cube = scalar(&mut graph, B::POW, x, 3.0);
                scalar(&mut graph, B::MUL, cube, 0.044_715)
            }
            1 => {
                let square = binary(&mut graph, B::MUL, x, x);
                let cube = binary(&mut graph, B::MUL, square, x);
                scalar(&mut graph, B::MUL, cube, 0.044_715)
            }
            2 => {
                let square = unary(&mut graph, B::SQUARE, x);
                let cube = scalar(&mut graph, B::MUL, square, 0.044_715);
                binary(&mut graph, B::MUL, cube, x)
            }
            _ => {
                let square = binary(&mut graph, B::MUL, x, x);
                scalar(&mut graph, B::MUL, square, 0.044_715)
            }
        };
        let inside = match form {
            3 => {
                let sum = scalar(&mut graph, B::ADD, cubic, 1.0);
                let scaled = scalar(&mut graph, B::MUL, x, root);
                binary(&mut graph, B::MUL, scaled, sum)
            }
            _ => {
                let sum = binary(&mut graph, B::ADD, x, cubic);
                scalar(&mut graph, B::MUL, sum, root)
            }
        };
        let tanh = unary(&mut graph, B::TANH, inside);
        let gate = scalar(&mut graph, B::ADD, tanh, 1.0);
        let y = match form {
            0 => {
                let half = scalar(&mut graph, B::MUL, x, 0.5);
                binary(&mut graph, B::MUL, half, gate)
            }
            1 => {
                let half = scalar(&mut graph, B::MUL, gate, 0.5);
                binary(&mut graph, B::MUL, x, half)
            }
            _ => {
                let y = binary(&mut graph, B::MUL, x, gate);
                scalar(&mut graph, B::MUL, y, 0.5)
            }
        };
        graph.outputs([y]);
        check(graph, &["GELU"]);
    }
}

#[test]
fn a_long_chain_of_squares_is_not_a_gelu() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 9]);
    let mut power = x;
    for _ in 0..40 {
        power = unary(&mut graph, B::SQUARE, power);
    }
    let sum = binary(&mut graph, B::ADD, x, power);
    let tanh = unary(&mut graph, B::TANH, sum);
    let gate = scalar(&mut graph, B::ADD, tanh, 1.0);
    let y = binary(&mut graph, B::MUL, x, gate);
    let y = scalar(&mut graph, B::MUL, y, 0.5);
    graph.outputs([y]);
    let expected = [vec!["SQUARE"; 40], vec!["ADD", "TANH", "ADD", "MUL", "MUL"]].concat();
    check(graph, &expected);
}

#[test]
fn softmax_and_l2_norm_are_recognised() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [3, 7]);
    let largest = reduce(&mut graph, B::REDUCE_MAX, x, -1);
    let difference = binary(&mut graph, B::SUB, x, largest);
    let exponent = unary(&mut graph, B::EXP, difference);
    let sum = reduce(&mut graph, B::SUM, exponent, 1);
    let y = binary(&mut graph, B::DIV, exponent, sum);
    let square = binary(&mut graph, B::MUL, x, x);
    let sum = reduce(&mut graph, B::SUM, square, -1);
    let least = scalar(&mut graph, B::MAXIMUM, sum, 1e-12);
    let root = unary(&mut graph, B::RSQRT, least);
    let z = binary(&mut graph, B::MUL, x, root);
    graph.outputs([y, z]);
    check(graph, &["SOFTMAX", "L2_NORMALIZATION"]);
}

#[test]
fn chains_duplicates_and_identities_are_removed() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3, 4]);
    let order = graph.constant("order", [3], &[2i32, 0, 1]);
    let y = graph.node(B::TRANSPOSE, Params::None).inputs([x, order]).output("a");
    let back = graph.constant("back", [3], &[1i32, 2, 0]);
    let y = graph.node(B::TRANSPOSE, Params::None).inputs([y, back]).output("b");
    let y = scalar(&mut graph, B::ADD, y, 0.0);
    let shape = graph.constant("shape", [2], &[6i32, 4]);
    let y = graph.node(B::RESHAPE, ReshapeParams::default()).inputs([y, shape]).output("c");
    let shape = graph.constant("shape", [1], &[24i32]);
    let y = graph.node(B::RESHAPE, ReshapeParams::default()).inputs([y, shape]).output("d");
    let (a, b) = (unary(&mut graph, B::ABS, y), unary(&mut graph, B::ABS, y));
    let y = binary(&mut graph, B::MUL, a, b);
    let y = scalar(&mut graph, B::MUL, y, 1.0);
    graph.outputs([y]);
    check(graph, &["RESHAPE", "ABS", "MUL"]);
}

#[test]
fn duplicates_with_equal_constants_are_merged() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [64]);
    let mut sums = Vec::new();
    for i in 0..9 {
        // Equal at both ends.
        let mut terms = numbers(64);
        terms[32] = (i % 3) as f32;
        let terms = graph.constant("terms", [64], &terms);
        let activation = if i < 6 { Activation::None } else { Activation::Relu };
        let params = AddParams::default().fused_activation_function(activation);
        sums.push(graph.node(B::ADD, params).inputs([x, terms]).output("sum"));
    }
    let product = sums.iter().copied().reduce(|a, b| binary(&mut graph, B::MUL, a, b)).unwrap();
    graph.outputs([product]);
    let expected = [vec!["ADD"; 6], vec!["MUL"; 8]].concat();
    let model = check(graph, &expected);
    let inputs = |i: usize| model.subgraphs()[0].nodes()[i].inputs();
    let sum = |i: usize| Some(model.subgraphs()[0].nodes()[i].outputs()[0]);
    // The third product is that of the second one and of the first sum again.
    assert_eq!(inputs(8)[1], sum(0));
}

#[test]
fn quantized_values_that_go_by_way_of_floats_do_not() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [8]);
    graph.quantize(x, Quantization::per_tensor(0.5, 3));
    let y = graph.node(B::DEQUANTIZE, Params::None).inputs([x]);
    let real = y.output_type(TensorType::Float32).output("r");
    let node = graph.node(B::QUANTIZE, Params::None).inputs([real]).output_type(TensorType::Int8);
    let same_scale = node.output_quantization(Quantization::per_tensor(0.5, 3)).output("same");
    let node = graph.node(B::QUANTIZE, Params::None).inputs([real]).output_type(TensorType::Int8);
    let other_scale = node.output_quantization(Quantization::per_tensor(0.75, -1)).output("other");
    let shape = graph.constant("shape", [2], &[2i32, 4]);
    let node = graph.node(B::RESHAPE, ReshapeParams::default()).inputs([same_scale, shape]);
    let y = node.output_quantization(Quantization::per_tensor(0.5, 3)).output("y");
    graph.outputs([y, other_scale]);
    check(graph, &["QUANTIZE", "RESHAPE"]);
}

#[test]
fn constants_are_computed_unless_the_file_would_grow() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [64, 64]);
    let a = graph.constant("a", [64, 64], &numbers(64 * 64));
    let b = unary(&mut graph, B::NEG, a);
    let c = unary(&mut graph, B::ABS, b);
    let half: Vec<half::f16> = numbers(64 * 64).iter().map(|v| half::f16::from_f32(*v)).collect();
    let half = graph.constant("half", [64, 64], &half);
    let node = graph.node(B::DEQUANTIZE, Params::None).inputs([half]);
    let whole = node.output_type(TensorType::Float32).output("whole");
    let y = binary(&mut graph, B::MUL, x, c);
    let y = binary(&mut graph, B::MUL, y, whole);
    graph.outputs([y]);
    check(graph, &["DEQUANTIZE", "MUL", "MUL"]);
}

/// `y = x + v`, where an initialization assigns `v`, with an optional second assignment.
fn with_variable(assigned_again: bool) -> Model {
    let handle = |graph: &mut SubgraphBuilder| {
        let id = graph.tensor("handle", TensorType::Resource, []);
        let params = VarHandleParams::default().container(String::new()).shared_name("v".into());
        graph.node(B::VAR_HANDLE, params).writes([id]);
        id
    };
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [3]);
    let once = delegraph_core::ops::control_flow::CallOnceParams::default().init_subgraph_index(1);
    graph.node(B::CALL_ONCE, once).writes([]);
    let v = handle(&mut graph);
    let value = graph.tensor("value", TensorType::Float32, [3]);
    graph.node(B::READ_VARIABLE, Params::None).inputs([v]).writes([value]);
    let y = graph.tensor("y", TensorType::Float32, [3]);
    graph.node(B::ADD, AddParams::default()).inputs([x, value]).writes([y]);
    if assigned_again {
        graph.node(B::ASSIGN_VARIABLE, Params::None).inputs([v, y]).writes([]);
    }
    graph.outputs([y]);
    let mut init = SubgraphBuilder::new("init");
    let v = handle(&mut init);
    let value = init.constant("value", [3], &[1f32, 2.0, 3.0]);
    init.node(B::ASSIGN_VARIABLE, Params::None).inputs([v, value]).writes([]);
    ModelBuilder::new().subgraph(graph).subgraph(init).build().unwrap()
}

#[test]
fn variables_that_never_change_become_constants() {
    let frozen = Pipeline::new().run(&with_variable(false)).unwrap().model;
    assert_eq!(frozen.subgraphs().len(), 1);
    assert_eq!(ops_after(&Pipeline::new(), &with_variable(false)), ["ADD"]);
    let expected = ["CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE"];
    assert_eq!(ops_after(&Pipeline::new(), &with_variable(true)), expected);
}

#[test]
fn signatures_refer_to_the_new_numbers() {
    let mut graph = SubgraphBuilder::new("other");
    let x = graph.input("x", TensorType::Float32, [3]);
    let y = binary(&mut graph, B::ADD, x, x);
    let y = unary(&mut graph, B::RELU, y);
    graph.outputs([y]);
    let mut draft = with_variable(false).into_draft();
    draft.subgraphs.extend(build(graph).into_draft().subgraphs);
    let ends = |name: &str, id| vec![(name.to_owned(), id)];
    draft.signatures.push(Signature::new("other", 2, ends("in", x), ends("out", y)));
    // The initialization and the sum before RELU are removed.
    let fused = Pipeline::new().run(&draft.verify().unwrap()).unwrap().model;
    let [signature] = fused.signatures() else { panic!() };
    assert_eq!((signature.subgraph(), fused.subgraphs().len()), (1, 2));
    let outputs = fused.subgraphs()[1].outputs();
    assert_eq!((signature.outputs()[0].1, outputs), (outputs[0], &[TensorId(1)][..]));
}

/// A model of one composite with inputs of these types and shapes.
fn composite(
    name: &str,
    attributes: &Attributes,
    body: SubgraphBuilder,
    inputs: &[(TensorType, &[usize])],
) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let ids: Vec<TensorId> = inputs.iter().map(|(ty, shape)| graph.input("x", *ty, *shape)).collect();
    let y = graph.composite(name, body).attributes(attributes).inputs(ids).output("y");
    graph.outputs([y]);
    build(graph)
}

#[test]
fn embedding_lookup_takes_its_operands_in_the_other_order() {
    for ids in [&[5usize][..], &[2, 3]] {
        let mut body = SubgraphBuilder::new("body");
        let table = body.input("table", TensorType::Float32, [4, 6]);
        let which = body.input("ids", TensorType::Int32, ids);
        let y = body.node(B::GATHER, delegraph_core::ops::gather::GatherParams::default());
        let y = y.inputs([table, which]).output("y");
        body.outputs([y]);
        let inputs = [(TensorType::Float32, &[4usize, 6][..]), (TensorType::Int32, ids)];
        let model = composite("embedding_lookup", &Attributes::new(), body, &inputs);
        let expected: &[&str] =
            if ids.len() == 1 { &["EMBEDDING_LOOKUP"] } else { &["RESHAPE", "EMBEDDING_LOOKUP", "RESHAPE"] };
        assert_eq!(ops_after(&Pipeline::new(), &model), expected);
    }
}

#[test]
fn a_signature_that_is_none_is_an_error_with_composite_and_argument() {
    let mut body = SubgraphBuilder::new("body");
    let table = body.input("table", TensorType::Float32, [4, 6]);
    let which = body.input("ids", TensorType::Float32, [4, 6]);
    let y = binary(&mut body, B::ADD, table, which);
    body.outputs([y]);
    let inputs = [(TensorType::Float32, &[4usize, 6][..]), (TensorType::Float32, &[4, 6])];
    let model = composite("embedding_lookup", &Attributes::new(), body, &inputs);
    let error = Pipeline::new().run(&model).unwrap_err().to_string();
    let expected = "composite \"embedding_lookup\" version 1: argument 1 (the ids) must be of INT32 or INT64, is of FLOAT32";
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("node 0"), "{error}");
    // A disabled fusion leaves the composite.
    assert_eq!(ops_after(&Pipeline::new().skip("embedding_lookup"), &model), ["STABLEHLO_COMPOSITE"]);
}

/// Errors of `rewrite` are failures of the fusion, so `verify_signature` has to report wrong attributes.
#[test]
fn attributes_of_a_wrong_type_are_errors_of_the_model() {
    for (name, attribute) in [("odml.softmax", "axis"), ("odml.softmax", "beta"), ("odml.l2_norm", "axis")] {
        let mut body = SubgraphBuilder::new("body");
        let x = body.input("x", TensorType::Float32, [2, 4]);
        let y = unary(&mut body, B::NEG, x);
        body.outputs([y]);
        let attributes = Attributes::new().with(attribute, "text");
        let model = composite(name, &attributes, body, &[(TensorType::Float32, &[2, 4])]);
        let error = Pipeline::new().run(&model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let want = format!("invalid node: composite \"{name}\": option \"{attribute}\"");
        assert!(error.to_string().contains(&want), "{error}");
    }
}

#[test]
fn a_body_that_differs_from_its_name_is_left() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [2, 4]);
    let y = unary(&mut body, B::NEG, x);
    body.outputs([y]);
    let inputs = [(TensorType::Float32, &[2usize, 4][..])];
    let model = composite("odml.l2_norm", &Attributes::new(), body, &inputs);
    let fused = Pipeline::new().run(&model).unwrap();
    assert!(
        fused.report.unchanged[0].reason.contains("does not compute the operation \"odml.l2_norm\""),
        "{:?}",
        fused.report.unchanged
    );
    assert_eq!(ops_after(&Pipeline::new(), &model), ["NEG"]);
}

#[test]
fn composites_of_activations_become_their_ops() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [2, 4]);
    let square = binary(&mut body, B::MUL, x, x);
    let sum = reduce(&mut body, B::SUM, square, -1);
    let sum = scalar(&mut body, B::ADD, sum, 1e-6);
    let root = unary(&mut body, B::RSQRT, sum);
    let y = binary(&mut body, B::MUL, x, root);
    body.outputs([y]);
    let attributes = Attributes::new().with("epsilon", 1e-6).with("axis", -1);
    let model = composite("odml.l2_norm", &attributes, body, &[(TensorType::Float32, &[2, 4])]);
    assert_eq!(ops_after(&Pipeline::new(), &model), ["L2_NORMALIZATION"]);
    let kept = Pipeline::empty().keep_composites();
    assert_eq!(ops_after(&kept, &model), ["STABLEHLO_COMPOSITE"]);
}

/// `(x - mean) / deviation`, scaled.
fn normalized(rank: usize, groups: usize) -> SubgraphBuilder {
    let dims = if rank == 2 { vec![3usize, 8] } else { vec![2, 3, 5, 8] };
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, &dims[..]);
    let factors = body.input("factors", TensorType::Float32, [8]);
    let terms = body.input("terms", TensorType::Float32, [8]);
    let mut value = x;
    let mut axes = vec![-1i32];
    if rank == 4 {
        let shape = body.constant("", [5], &[2i32, 3, 5, groups as i32, (8 / groups) as i32]);
        value = body.node(B::RESHAPE, ReshapeParams::default()).inputs([x, shape]).output("");
        axes = vec![1, 2, 4];
    }
    let axes = body.constant("", [axes.len()], &axes);
    let keep = || ReducerParams::default().keep_dims(true);
    let mean = body.node(B::MEAN, keep()).inputs([value, axes]).output("");
    let difference = binary(&mut body, B::SUB, value, mean);
    let square = binary(&mut body, B::MUL, difference, difference);
    let variance = body.node(B::MEAN, keep()).inputs([square, axes]).output("");
    let variance = scalar(&mut body, B::ADD, variance, 1e-3);
    let root = unary(&mut body, B::RSQRT, variance);
    let mut y = binary(&mut body, B::MUL, difference, root);
    if rank == 4 {
        let shape = body.constant("", [4], &[2i32, 3, 5, 8]);
        y = body.node(B::RESHAPE, ReshapeParams::default()).inputs([y, shape]).output("");
    }
    let y = binary(&mut body, B::MUL, y, factors);
    let y = binary(&mut body, B::ADD, y, terms);
    body.outputs([y]);
    body
}

#[test]
fn normalizations_become_custom_ops_where_these_are_allowed() {
    let float = TensorType::Float32;
    let inputs: [(_, &[usize]); 3] = [(float, &[2, 3, 5, 8]), (float, &[8]), (float, &[8])];
    let attributes = Attributes::new().with("epsilon", 1e-3).with("num_groups", 4).with("channel_axis", -1);
    let group = composite("odml.group_norm", &attributes, normalized(4, 4), &inputs);
    assert!(ops_after(&Pipeline::new(), &group).len() > 5);
    let expected = ["custom op \"delegraph.group_norm\""];
    assert_eq!(ops_after(&Pipeline::new().allow_custom(), &group), expected);
    let inputs: [(_, &[usize]); 3] = [(float, &[3, 8]), (float, &[8]), (float, &[8])];
    let layer = composite("odml.layer_norm", &attributes, normalized(2, 1), &inputs);
    assert_eq!(ops_after(&Pipeline::new().allow_custom(), &layer), ["custom op \"delegraph.layer_norm\""]);
    let report = Pipeline::new().allow_custom().run(&layer).unwrap().report;
    assert_eq!((report.after.nodes, report.after.multiply_adds), (1, 4 * 24));
}

/// A pattern of an application: replaces `-(-x)` by `x`.
struct TwoNegations;

impl PatternFusion for TwoNegations {
    fn name(&self) -> &str {
        "two-negations"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, node: delegraph_core::NodeId) -> Result<bool> {
        let Some(x) = graph.node_of(node, B::NEG).and_then(|n| n.input(0)) else { return Ok(false) };
        let Some((_, inner)) = graph.made_by(x, B::NEG) else { return Ok(false) };
        let (Some(x), Some(output)) = (inner.input(0), graph.node(node).map(|n| n.outputs()[0])) else {
            return Ok(false);
        };
        Ok(graph.redirect(Redirect { from: output, to: x }))
    }
}

#[test]
fn an_application_adds_its_own_pattern_and_fuses_before_running() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = unary(&mut graph, B::NEG, x);
    let y = unary(&mut graph, B::NEG, y);
    let y = unary(&mut graph, B::ABS, y);
    graph.outputs([y]);
    let model = build(graph);
    let pipeline = Pipeline::empty().pattern(TwoNegations);
    assert_eq!(ops_after(&pipeline, &model), ["ABS"]);
    let mut interpreter = crate::Interpreter::builder(model).fusion(pipeline).build().unwrap();
    assert_eq!(interpreter.fusion_report().unwrap().after.nodes, 1);
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&[-1.0, 2.0, -3.0, 0.0]);
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [1.0, 2.0, 3.0, 0.0]);
}

#[test]
fn an_interrupted_rewritten_model_is_not_the_file() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1]);
    let y = unary(&mut graph, B::NEG, x);
    graph.outputs([y]);
    let model = build(graph);
    let exceeded = || {
        let late = LimitExceeded::Time { allowed: std::time::Duration::from_secs(1) };
        delegraph_core::Error::from(late).at(model.locate(0, delegraph_core::NodeId(0)))
    };
    let text = |error: delegraph_core::Error| {
        assert!(error.is_interruption());
        error.to_string().split(" (").next().unwrap_or_default().to_owned()
    };
    assert_eq!(text(composite::failed("the pass \"a\"", exceeded())), "node 0");
    let of_rewritten = || proof::interrupted(exceeded(), "the rewritten model");
    assert_eq!(text(of_rewritten()), "the rewritten model: node 0");
    assert_eq!(text(composite::failed("the pass \"a\"", of_rewritten())), "the pass \"a\": node 0");
    let library = "lib.so: fusion \"a\": it";
    assert_eq!(text(composite::invalid(library, exceeded())), "lib.so: fusion \"a\": node 0");
}
