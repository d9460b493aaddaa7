//! Tests of the topics in `pieces.rs`.

use delegraph_conformance::author::{DelegateTrial, agree, claims_of};
use delegraph_core::ops::Params;
use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::control_flow::IfParams;
use delegraph_core::ops::rnn::RnnParams;
use delegraph_core::{Bool, BuiltinOp, Model, ModelBuilder, SubgraphBuilder, TensorType};
use delegraph_delegate_api::{PartitionOptions, Rejection, Simple};
use delegraph_interpreter::Interpreter;

use crate::pieces::*;

fn one(graph: SubgraphBuilder) -> Model {
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn state_lives_from_run_to_run() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 2]);
    let weights = graph.constant("weights", [3, 2], &[0.5f32, -1.0, 0.25, 0.75, -0.5, 1.0]);
    let recurrent = graph.constant("recurrent", [3, 3], &[0.1f32, 0.2, 0.3, -0.1, 0.0, 0.4, 0.5, 0.1, -0.2]);
    let bias = graph.constant("bias", [3], &[0.1f32, 0.0, -0.1]);
    let h = graph.variable("h", TensorType::Float32, [1, 3]);
    let rnn = graph.node(BuiltinOp::RNN, RnnParams::default());
    let y = rnn.inputs([x, weights, recurrent, bias, h]).output("y");
    graph.outputs([y]);
    let delegate = || Simple(Small::new(BuiltinOp::RNN, 1, Recurrent::create));
    agree(&one(graph), delegate(), 3).unwrap();
}

#[test]
fn shapes_that_only_data_tell() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Bool, [8]);
    // The number of true elements depends on data.
    let found = graph.tensor("found", TensorType::Int64, [0, 1]);
    graph.node(BuiltinOp::WHERE, Params::None).inputs([x]).writes([found]);
    let floats = graph.tensor("floats", TensorType::Float32, [0, 1]);
    let cast = CastParams::default().in_data_type(TensorType::Int64).out_data_type(TensorType::Float32);
    graph.node(BuiltinOp::CAST, cast).inputs([found]).writes([floats]);
    let y = graph.tensor("y", TensorType::Float32, [0, 1]);
    graph.node(BuiltinOp::RELU, Params::None).inputs([floats]).writes([y]);
    graph.outputs([y]);
    let model = one(graph);
    let plain = || Simple(Small::new(BuiltinOp::RELU, 1, |_, _| Ok(Box::new(AnyShape))));
    claims_of(&model, plain()).unwrap().assert_rejects(2, "DynamicShape");
    claims_of(&model, AnyShape::delegate()).unwrap().assert_claims(&[2]);
    agree(&model, AnyShape::delegate(), 0).unwrap();
}

#[test]
fn half_the_bytes_where_the_file_has_halves() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2]);
    let halves = graph.constant_bytes("halves", TensorType::Float16, [2], &[0, 0x3c, 0, 0x40]);
    let w = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([halves]).output_type(TensorType::Float32);
    let w = w.output("w");
    let y = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, w]).output("y");
    graph.outputs([y]);
    let mut delegate = Small::new(BuiltinOp::ADD, 1, |_, _| Ok(Box::new(AnyShape)));
    delegate.supports = |node| {
        let graph = node.graph();
        let upload = |i| weights_to_upload(&graph, node.input(i)?, &graph.producers());
        let (found, none) = (upload(1), upload(0));
        assert_eq!((found, none), (Some((TensorType::Float16, &[0u8, 0x3c, 0, 0x40][..])), None));
        Ok(())
    };
    claims_of(&one(graph), Simple(delegate)).unwrap().assert_claims(&[1]);
}

#[test]
fn branches_are_looked_at() {
    let branch = |name: &str, op: BuiltinOp| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", TensorType::Float32, [2]);
        let y = graph.node(op, Params::None).inputs([x]).output("y");
        graph.outputs([y]);
        graph
    };
    let model = |other| {
        let mut graph = SubgraphBuilder::new("main");
        let condition = graph.constant("condition", [1], &[Bool(1)]);
        let x = graph.input("x", TensorType::Float32, [2]);
        let y = graph.tensor("y", TensorType::Float32, [2]);
        let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
        graph.node(BuiltinOp::IF, params).inputs([condition, x]).writes([y]);
        graph.outputs([y]);
        let builder = ModelBuilder::new().subgraph(graph).subgraph(branch("then", BuiltinOp::RELU));
        builder.subgraph(branch("else", other)).build().unwrap()
    };
    let delegate = || {
        let mut delegate = Small::new(BuiltinOp::IF, 1, |_, _| Ok(Box::new(AnyShape)));
        delegate.supports = |node| supports_if(node, &[BuiltinOp::RELU, BuiltinOp::NEG]);
        Simple(delegate)
    };
    claims_of(&model(BuiltinOp::NEG), delegate()).unwrap().assert_claims(&[0]);
    let claims = claims_of(&model(BuiltinOp::ABS), delegate()).unwrap();
    assert_eq!(claims.reason(0), Some(&Rejection::UnsupportedOp { op: BuiltinOp::ABS.into() }));
}

/// `op` twice, on a vector of `elements` elements.
fn two(op: BuiltinOp, elements: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [elements]);
    let a = graph.node(op, Params::None).inputs([x]).output("a");
    let y = graph.node(op, Params::None).inputs([a]).output("y");
    graph.outputs([y]);
    one(graph)
}

#[test]
fn small_partitions_are_left() {
    let delegate = || {
        let delegate = Small::new(BuiltinOp::RELU, 1, |_, _| Ok(Box::new(AnyShape)));
        Simple(Small { options: worthwhile(), ..delegate })
    };
    claims_of(&two(BuiltinOp::RELU, 4), delegate()).unwrap().assert_rejects(0, "CostModel");
    claims_of(&two(BuiltinOp::RELU, 4 << 20), delegate()).unwrap().assert_claims(&[0, 1]);
}

#[test]
fn data_stay_on_the_device() {
    let model = two(BuiltinOp::NEG, 4);
    let delegate = || Simple(Small::new(BuiltinOp::NEG, 1, |_, _| Ok(Box::<Negate>::default())));
    let only = |nodes| PartitionOptions::default().with_nodes(nodes);
    for nodes in [0..1, 1..2] {
        DelegateTrial::new(&model).limits(only(nodes)).agree(delegate()).unwrap();
    }
    // Two delegates with a node each: the second takes the first one's buffer.
    let builder = Interpreter::builder(model).keep_outputs();
    let builder = builder.delegate_with(delegate(), only(0..1)).delegate_with(delegate(), only(1..2));
    let mut interpreter = builder.build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    interpreter.invoke().unwrap();
    assert!(interpreter.output_buffer(0).unwrap().downcast_ref::<OnDevice>().is_some());
    interpreter.fetch_output(0).unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}
