use delegraph_conformance::author::{DelegateTrial, agree, claims_of};
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Model, ModelBuilder, Quantization, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{Rejection, Simple};

use crate::dense::DenseDelegate;

/// Two layers: one with float16 weights and a bias, one with neither; RELU between them, TANH at the end.
fn layers() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2, 3]);
    // 1, 2, -1, 0.5, 1.5, -2 as float16.
    let halves = [0x3c00u16, 0x4000, 0xbc00, 0x3800, 0x3e00, 0xc000].map(u16::to_le_bytes);
    let halves = graph.constant_bytes("halves", TensorType::Float16, [2, 3], halves.as_flattened());
    let to_float = graph.node(BuiltinOp::DEQUANTIZE, Params::None).output_type(TensorType::Float32);
    let weights = to_float.inputs([halves]).output("weights");
    let bias = graph.constant("bias", [2], &[0.5f32, -0.5]);
    let dense = FullyConnectedParams::default();
    let hidden = graph.node(BuiltinOp::FULLY_CONNECTED, dense.clone());
    let hidden = hidden.inputs([x, weights, bias]).output("hidden");
    let relu = graph.node(BuiltinOp::RELU, Params::None).inputs([hidden]).output("relu");
    let more = graph.constant("more", [2, 2], &[1f32, 0.25, -0.75, 2.0]);
    // `None` is an omitted optional input: -1 in the file.
    let last = graph.node(BuiltinOp::FULLY_CONNECTED, dense);
    let last = last.optional_inputs([Some(relu), Some(more), None]).output("last");
    let y = graph.node(BuiltinOp::TANH, Params::None).inputs([last]).output("y");
    // A tensor inside the partition is an output, too.
    graph.outputs([y, relu]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn layers_are_one_partition() {
    let claims = claims_of(&layers(), Simple(DenseDelegate::new())).unwrap();
    claims.assert_partitions(&[&[0, 1, 2, 3]]);
    claims.assert_rejects(4, "UnsupportedOp");
}

#[test]
fn layers_are_right() {
    for seed in 0..3 {
        agree(&layers(), Simple(DenseDelegate::new()), seed).unwrap();
    }
    // Another batch: the delegate is asked again, and creates a new kernel.
    DelegateTrial::new(&layers()).resize(0, &[5, 3]).threads(2).agree(Simple(DenseDelegate::new())).unwrap();
}

#[test]
fn what_is_not_done_has_a_reason() {
    let one = |constant: bool, version| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 2]);
        let weights = match constant {
            true => graph.constant("weights", [1, 2], &[1f32, 2.0]),
            false => graph.input("weights", TensorType::Float32, [1, 2]),
        };
        let params = FullyConnectedParams::default().fused_activation_function(Activation::Relu6);
        let node = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]);
        let y = node.version(version).output("y");
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        claims_of(&model, Simple(DenseDelegate::new())).unwrap()
    };
    one(true, 6).assert_claims(&[0]);
    one(false, 6).assert_rejects(0, "UnsupportedParam");
    one(true, 9).assert_rejects(0, "VersionTooHigh");
}

#[test]
fn eight_bits_are_left() {
    let scale = Quantization::per_tensor(0.5, 0);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [1, 2]);
    let weights = graph.constant("weights", [1, 2], &[1i8, 2]);
    graph.quantize(x, scale.clone());
    graph.quantize(weights, scale.clone());
    let node = graph.node(BuiltinOp::FULLY_CONNECTED, FullyConnectedParams::default());
    let y = node.inputs([x, weights]).output_quantization(scale).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let claims = claims_of(&model, Simple(DenseDelegate::new())).unwrap();
    let reason = Rejection::UnsupportedType { operand: "input 0".into(), ty: TensorType::Int8 };
    assert_eq!(claims.reason(0), Some(&reason));
}
