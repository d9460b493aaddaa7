//! Fusion of recurrent layers: from a loop of products to one op.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use std::sync::Arc;

use delegraph_core::{BuiltinOp, Model, Op, OpResolver, TensorType};
use delegraph_interpreter::fusion::{Pipeline, compare};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter, ReferenceOpResolver};

mod recurrent;

use recurrent::{Framework, Layer};

const FRAMEWORKS: [Framework; 3] = [Framework::Keras, Framework::Onnx, Framework::Torch];

fn layer(framework: Framework, hybrid: bool) -> Layer {
    Layer { framework, batch: 2, time: 5, features: 3, cells: 4, hybrid }
}

/// Every op that an invocation comes by.
fn ops(model: &Model) -> Vec<String> {
    model.subgraphs.iter().flat_map(|g| &g.nodes).map(|n| n.op.to_string()).collect()
}

fn differences(a: &Model, b: &Model) -> f64 {
    let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
    // Three invocations: state begins anew in each.
    let found = compare(&Arc::new(a.clone()), &Arc::new(b.clone()), &resolver, 3).unwrap();
    found.iter().map(|d| d.greatest).fold(0.0, f64::max)
}

#[test]
fn loops_of_three_frameworks_become_one_op() {
    for framework in FRAMEWORKS {
        let model = layer(framework, false).model();
        assert!(ops(&model).contains(&"WHILE".to_owned()));
        let fused = Pipeline::new().run(&model).unwrap();
        assert_eq!(fused.report.left, [], "{framework:?}");
        let all = ops(&fused.model);
        assert_eq!(all.iter().filter(|op| *op == "UNIDIRECTIONAL_SEQUENCE_LSTM").count(), 1, "{all:?}");
        assert!(!all.contains(&"WHILE".to_owned()) && !all.contains(&"BATCH_MATMUL".to_owned()), "{all:?}");
        assert_eq!(fused.model.subgraphs.len(), 2);
        assert!(differences(&model, &fused.model) < 1e-5, "{framework:?}");
        // And from a file.
        let file = delegraph_core::ModelBytes::new(fused.model.to_bytes().unwrap());
        assert!(differences(&model, &Model::from_bytes(file).unwrap()) < 1e-5);
    }
}

#[test]
fn where_it_is_asked_for_the_op_is_in_the_graph_itself() {
    let model = layer(Framework::Keras, false).model();
    let fused = Pipeline::new().stateful().run(&model).unwrap().model;
    let is_lstm = |op: &Op| *op == Op::Builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM);
    assert!(fused.subgraphs.len() == 1 && fused.subgraphs[0].nodes.iter().any(|n| is_lstm(&n.op)));
    // The first invocation is the same; the next one goes on from there, until state is reset.
    let mut interpreter = Interpreter::builder(fused).build().unwrap();
    let mut plain = Interpreter::builder(model).build().unwrap();
    for i in [&mut interpreter, &mut plain] {
        i.input_mut::<f32>(0).unwrap().fill(0.5);
        i.invoke().unwrap();
    }
    let close = |a: &Interpreter, b: &Interpreter| {
        let (a, b) = (a.output::<f32>(0).unwrap(), b.output::<f32>(0).unwrap());
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
    };
    assert!(close(&interpreter, &plain));
    interpreter.invoke().unwrap();
    assert!(!close(&interpreter, &plain));
    interpreter.reset_variables().unwrap();
    interpreter.invoke().unwrap();
    assert!(close(&interpreter, &plain));
}

#[test]
fn int8_weights_make_a_hybrid_op() {
    for framework in FRAMEWORKS {
        let model = layer(framework, true).model();
        let exact = Pipeline::new().run(&model).unwrap();
        assert!(exact.report.left[0].reason.contains("not constants of FLOAT32"), "{:?}", exact.report.left);
        let fused = Pipeline::new().allow_hybrid().run(&model).unwrap();
        let Some((graph, lstm)) = fused.model.subgraphs.iter().find_map(|g| {
            let is_lstm =
                |n: &&delegraph_core::Node| n.op == Op::Builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM);
            Some((g, g.nodes.iter().find(is_lstm)?))
        }) else {
            panic!("{framework:?}: {:?}", fused.report.left);
        };
        assert_eq!(graph.tensor(lstm.input(1).unwrap()).ty, TensorType::Int8);
        // Activations are quantized on the fly: to 1 of 127.
        assert!(differences(&model, &fused.model) < 2e-2, "{framework:?}");
        Interpreter::builder(fused.model)
            .resolver(ReferenceOpResolver::new())
            .build()
            .unwrap()
            .invoke()
            .unwrap();
    }
}

#[test]
fn a_state_that_is_not_zero_or_is_read_is_left() {
    let mut model = layer(Framework::Keras, false).model();
    let composite = model.subgraphs[0].nodes.iter().position(|n| n.outputs.len() == 4).unwrap();
    let cell_state = model.subgraphs[0].nodes[composite].outputs[3];
    model.subgraphs[0].outputs.push(cell_state);
    let fused = Pipeline::new().run(&model).unwrap();
    assert!(fused.report.left[0].reason.contains("cell state at the end"), "{:?}", fused.report.left);
    assert!(ops(&fused.model).contains(&"WHILE".to_owned()));
    assert!(differences(&model, &fused.model) < 1e-6);
}
