//! What the delegate claims, why it leaves the rest, and that it computes what the reference kernels compute.

use delegraph_conformance::author::{Trial, agree, offer};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Model, ModelBuilder, SubgraphBuilder, TensorId, TensorType};
use the_delegate::MyDelegate;

/// A model whose input `x` has this shape. `build` adds nodes and returns the outputs.
fn model(
    ty: TensorType,
    shape: [usize; 2],
    build: impl FnOnce(&mut SubgraphBuilder, TensorId) -> Vec<TensorId>,
) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", ty, shape);
    let outputs = build(&mut graph, x);
    graph.outputs(outputs);
    ModelBuilder::new().subgraph(graph).build().expect("a valid model")
}

fn add(graph: &mut SubgraphBuilder, activation: Activation, inputs: [TensorId; 2], name: &str) -> TensorId {
    let params = AddParams { fused_activation_function: activation, ..AddParams::default() };
    graph.node(BuiltinOp::ADD, params).inputs(inputs).output(name)
}

/// `(x + c) + x`, with RELU6 at the end, and a NEG that is not claimed.
fn chain() -> Model {
    model(TensorType::Float32, [2, 3], |graph, x| {
        let c = graph.constant("c", [2, 3], &[0.5f32, -1.0, 2.0, 0.0, 1.5, -0.25]);
        let a = add(graph, Activation::None, [x, c], "a");
        let b = add(graph, Activation::Relu6, [a, x], "b");
        let y = graph.node(BuiltinOp::NEG, Params::None).inputs([b]).output("y");
        vec![y, a]
    })
}

#[test]
fn claims() {
    let offer = offer(&chain(), MyDelegate::new()).expect("it prepares");
    offer.assert_partitions(&[&[0, 1]]);
    offer.assert_rejects(2, "UnsupportedOp");
}

#[test]
fn rejections() {
    let offer_of = |model: &Model| offer(model, MyDelegate::new()).expect("it prepares");
    let broadcast = model(TensorType::Float32, [2, 3], |graph, x| {
        let row = graph.constant("row", [3], &[1f32, 2.0, 3.0]);
        vec![add(graph, Activation::None, [x, row], "y")]
    });
    offer_of(&broadcast).assert_rejects(0, "UnsupportedParam");
    let integers =
        model(TensorType::Int32, [2, 3], |graph, x| vec![add(graph, Activation::None, [x, x], "y")]);
    offer_of(&integers).assert_rejects(0, "UnsupportedType");
    // 64-bit integers came with version 4.
    let wide = model(TensorType::Int64, [2, 3], |graph, x| vec![add(graph, Activation::None, [x, x], "y")]);
    offer_of(&wide).assert_rejects(0, "VersionTooHigh");
}

#[test]
fn results() {
    for seed in 0..3 {
        agree(&chain(), MyDelegate::new(), seed).unwrap();
    }
    for activation in [Activation::None, Activation::Relu, Activation::ReluN1To1, Activation::Relu6] {
        let sum = model(TensorType::Float32, [4, 5], |graph, x| vec![add(graph, activation, [x, x], "y")]);
        agree(&sum, MyDelegate::new(), 0).unwrap();
        // Another shape: the delegate is asked anew.
        Trial::new(&sum).resize(0, &[1, 7]).agree(MyDelegate::new()).unwrap();
    }
}
