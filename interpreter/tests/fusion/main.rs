//! Fusion of recurrent layers: from a loop of products to one op.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use std::sync::Arc;

use delegraph_core::error::ErrorKind;
use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::svdf::SvdfParams;
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, Node, NodeId, Op, OpResolver, Result, SubgraphBuilder, Tensor, TensorId,
    TensorType,
};
use delegraph_interpreter::fusion::{
    Call, CompositeFusion, ModelPair, Outcome, PatternFusion, Pipeline, Rewriter, compare,
};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter, ReferenceOpResolver};

mod libraries;
mod random;
mod recurrent;
mod unrolled;

use recurrent::{Framework, Layer};
use unrolled::Unrolled;

const FRAMEWORKS: [Framework; 3] = [Framework::Keras, Framework::Onnx, Framework::Torch];

fn layer(framework: Framework, hybrid: bool) -> Layer {
    Layer { framework, batch: 2, time: 5, features: 3, cells: 4, hybrid }
}

/// The ops of all subgraphs.
fn ops(model: &Model) -> Vec<String> {
    model.subgraphs().iter().flat_map(|g| g.nodes()).map(|n| n.op().to_string()).collect()
}

fn differences(a: &Model, b: &Model) -> f64 {
    let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
    // Three samples, each with new state.
    let models = ModelPair { original: &Arc::new(a.clone()), fused: &Arc::new(b.clone()) };
    let found = compare(models, &resolver, 3).unwrap();
    found.iter().map(|d| d.greatest).fold(0.0, f64::max)
}

#[test]
fn loops_of_three_frameworks_become_one_op() {
    for framework in FRAMEWORKS {
        let model = layer(framework, false).model();
        assert!(ops(&model).contains(&"WHILE".to_owned()));
        let fused = Pipeline::new().run(&model).unwrap();
        assert_eq!(fused.report.unchanged, [], "{framework:?}");
        let all = ops(&fused.model);
        assert_eq!(all.iter().filter(|op| *op == "UNIDIRECTIONAL_SEQUENCE_LSTM").count(), 1, "{all:?}");
        assert!(!all.contains(&"WHILE".to_owned()) && !all.contains(&"BATCH_MATMUL".to_owned()), "{all:?}");
        assert_eq!(fused.model.subgraphs().len(), 2);
        assert!(differences(&model, &fused.model) < 1e-5, "{framework:?}");
        // The same from a file.
        let file = delegraph_core::ModelBytes::new(fused.model.to_bytes().unwrap());
        assert!(differences(&model, &Model::from_bytes(file).unwrap()) < 1e-5);
    }
}

/// Keras returns the output of the last step or of all steps, and the two states.
#[test]
fn three_results_of_keras() {
    for absent in [0, 1] {
        let mut draft = layer(Framework::Keras, false).model().into_draft();
        let main = &mut draft.subgraphs[0];
        let is_composite = |node: &&mut Node| *node.op() == Op::Builtin(BuiltinOp::STABLEHLO_COMPOSITE);
        let composite = main.nodes_mut().iter_mut().find(is_composite).unwrap();
        let unused = composite.outputs_mut().remove(absent);
        // The fused op does not return the cell state.
        let results = composite.outputs()[..2].to_vec();
        main.nodes_mut().retain(|node| !node.inputs().contains(&Some(unused)));
        *main.outputs_mut() = results;
        let body = draft.subgraphs.iter_mut().find(|graph| graph.name() == "body").unwrap();
        body.outputs_mut().remove(absent);
        let model = draft.verify().unwrap();
        let fused = Pipeline::new().run(&model).unwrap();
        assert_eq!(fused.report.unchanged, [], "{absent}");
        assert!(ops(&fused.model).contains(&"UNIDIRECTIONAL_SEQUENCE_LSTM".to_owned()), "{absent}");
        assert!(differences(&model, &fused.model) < 1e-5, "{absent}");
    }
}

#[test]
fn where_it_is_asked_for_the_op_is_in_the_graph_itself() {
    let model = layer(Framework::Keras, false).model();
    let fused = Pipeline::new().stateful().run(&model).unwrap().model;
    let is_lstm = |op: &Op| *op == Op::Builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM);
    assert!(fused.subgraphs().len() == 1 && fused.subgraphs()[0].nodes().iter().any(|n| is_lstm(n.op())));
    // The first invocation is equal; the next one continues with its state, until state is reset.
    let mut interpreter = Interpreter::builder(fused).build().unwrap();
    let mut plain = Interpreter::builder(model).build().unwrap();
    for i in [&mut interpreter, &mut plain] {
        i.input_mut::<f32>(0).unwrap().fill(0.5);
        i.invoke().unwrap();
    }
    let close = |a: &Interpreter, b: &Interpreter| {
        let (a, b) = (a.output::<f32>(0).unwrap(), b.output::<f32>(0).unwrap());
        approx::abs_diff_eq!(*a, *b, epsilon = 1e-5)
    };
    assert!(close(&interpreter, &plain));
    interpreter.invoke().unwrap();
    assert!(!close(&interpreter, &plain));
    interpreter.reset_variables().unwrap();
    interpreter.invoke().unwrap();
    assert!(close(&interpreter, &plain));
}

/// Fusing adds two variables and removes two. The added ones are recognized and reset, as the second invocation would
/// differ otherwise.
#[test]
fn state_that_fusing_adds_is_not_compared() {
    let mut draft = layer(Framework::Keras, false).model().into_draft();
    for name in ["unused", "unused too"] {
        let variable = Tensor::new(name, TensorType::Float32, [4]).into_variable();
        draft.subgraphs[0].tensors_mut().push(variable);
    }
    let model = draft.verify().unwrap();
    let fused = Pipeline::new().stateful().run(&model).unwrap().model;
    let variables = |model: &Model| model.subgraphs()[0].tensors().iter().filter(|t| t.is_variable()).count();
    assert_eq!((variables(&model), variables(&fused)), (2, 2));
    assert!(differences(&model, &fused) < 1e-5);
}

#[test]
fn state_in_a_loop_stays_in_its_composite() {
    let model = layer(Framework::Keras, false).looped();
    for pipeline in [Pipeline::new(), Pipeline::new().stateful()] {
        let fused = pipeline.run(&model).unwrap();
        assert!(ops(&fused.model).contains(&"UNIDIRECTIONAL_SEQUENCE_LSTM".to_owned()));
        assert!(ops(&fused.model).contains(&"STABLEHLO_COMPOSITE".to_owned()), "{:?}", ops(&fused.model));
        assert!(differences(&model, &fused.model) < 1e-5);
    }
    let kept = Pipeline::new().stateful().run(&model).unwrap().report.unchanged;
    assert!(kept.len() == 1 && kept[0].reason.contains("more than once per invocation"), "{kept:?}");
}

/// Adds an SVDF with a memory of three steps.
fn svdf(graph: &mut SubgraphBuilder, x: TensorId) -> TensorId {
    let features = graph.constant("features", [2, 2], &[0.5f32, -1.0, 2.0, 0.25]);
    let steps = graph.constant("steps", [2, 3], &[1f32, -0.5, 2.0, 0.75, 1.5, -1.0]);
    let state = graph.variable("state", TensorType::Float32, [1, 6]);
    let y = graph.tensor("y", TensorType::Float32, [1, 2]);
    let inputs = [Some(x), Some(features), Some(steps), None, Some(state)];
    graph.node(BuiltinOp::SVDF, SvdfParams::default().rank(1)).optional_inputs(inputs).writes([y]);
    y
}

/// The state of a composite is reset in every call, also if its body is a single op.
#[test]
fn state_in_a_composite_of_the_model_stays_there() {
    for calls in [1, 2] {
        let mut body = SubgraphBuilder::new("body");
        let x = body.input("x", TensorType::Float32, [1, 2]);
        let y = svdf(&mut body, x);
        body.outputs([y]);
        let mut graph = SubgraphBuilder::new("main");
        let mut y = graph.input("x", TensorType::Float32, [1, 2]);
        for _ in 0..calls {
            y = graph.composite("my.svdf", body.clone()).inputs([y]).output("");
        }
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        for pipeline in [Pipeline::new(), Pipeline::new().stateful()] {
            let fused = pipeline.run(&model).unwrap().model;
            let composites = ops(&fused).iter().filter(|op| *op == "STABLEHLO_COMPOSITE").count();
            assert_eq!(composites, calls, "{:?}", ops(&fused));
            assert!(differences(&model, &fused) < 1e-6);
        }
    }
}

#[test]
fn the_result_of_an_earlier_fusion_moves_to_the_graph() {
    let model = layer(Framework::Keras, false).model();
    let fused = Pipeline::new().run(&model).unwrap().model;
    assert!(ops(&fused).contains(&"STABLEHLO_COMPOSITE".to_owned()));
    let moved = Pipeline::new().stateful().run(&fused).unwrap().model;
    assert!(!ops(&moved).contains(&"STABLEHLO_COMPOSITE".to_owned()), "{:?}", ops(&moved));
    assert!(differences(&model, &moved) < 1e-5);
}

#[test]
fn int8_weights_make_a_hybrid_op() {
    for framework in FRAMEWORKS {
        let model = layer(framework, true).model();
        let exact = Pipeline::new().run(&model).unwrap();
        assert!(
            exact.report.unchanged[0].reason.contains("not constants of FLOAT32"),
            "{:?}",
            exact.report.unchanged
        );
        let fused = Pipeline::new().allow_hybrid().run(&model).unwrap();
        let Some((graph, lstm)) = fused.model.subgraphs().iter().find_map(|g| {
            let is_lstm =
                |n: &&delegraph_core::Node| *n.op() == Op::Builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM);
            Some((g, g.nodes().iter().find(is_lstm)?))
        }) else {
            panic!("{framework:?}: {:?}", fused.report.unchanged);
        };
        assert_eq!(graph.tensor(lstm.input(1).unwrap()).ty(), TensorType::Int8);
        // Activations are quantized at run time, to steps of 1/127.
        assert!(differences(&model, &fused.model) < 2e-2, "{framework:?}");
        Interpreter::builder(fused.model)
            .resolver(ReferenceOpResolver::new())
            .build()
            .unwrap()
            .invoke()
            .unwrap();
    }
}

/// TensorFlow's calibrator quantized a layer fused by this crate (`scripts/quantize_fused_lstm.py`). TensorFlow's
/// reference kernels ran it twice; the second run starts with the state of the first.
#[test]
fn a_fused_layer_runs_quantized() {
    let file = include_bytes!("../../../assets/fusion/lstm_int8.tflite");
    let model = Model::from_bytes(delegraph_core::ModelBytes::new(&file[..])).unwrap();
    let lstm = model.subgraphs()[0]
        .nodes()
        .iter()
        .find(|n| *n.op() == Op::Builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM))
        .unwrap();
    for operand in [0, 1, 5] {
        assert_eq!(model.subgraphs()[0].tensor(lstm.input(operand).unwrap()).ty(), TensorType::Int8);
    }
    let input = include_bytes!("../../../assets/fusion/lstm_int8.input");
    let wanted: [&[u8]; 2] = [
        include_bytes!("../../../assets/fusion/lstm_int8.first"),
        include_bytes!("../../../assets/fusion/lstm_int8.second"),
    ];
    assert_ne!(wanted[0], wanted[1]);
    let plain = Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new());
    for builder in [plain, Interpreter::builder(model)] {
        let mut interpreter = builder.build().unwrap();
        for wanted in wanted {
            interpreter.set_input_bytes(0, input).unwrap();
            interpreter.invoke().unwrap();
            let outputs = (0..interpreter.output_count()).map(|i| interpreter.output_tensor(i).unwrap());
            let got: Vec<u8> = outputs.flat_map(|t| t.bytes().to_vec()).collect();
            assert_eq!(got, wanted);
        }
    }
}

/// Unrolled steps, in one direction and in both, become the same ops.
#[test]
fn unrolled_layers_become_one_op_in_both_directions() {
    for (framework, directions) in FRAMEWORKS.into_iter().flat_map(|f| [(f, 1), (f, 2)]) {
        for hybrid in [false, true] {
            let model =
                Unrolled { framework, directions, batch: 2, time: 4, features: 3, cells: 5, hybrid }.model();
            let pipeline = if hybrid { Pipeline::new().allow_hybrid() } else { Pipeline::new() };
            let fused = pipeline.run(&model).unwrap();
            assert_eq!(fused.report.unchanged, [], "{framework:?}");
            let (all, wanted) = (ops(&fused.model), ["UNIDIRECTIONAL", "BIDIRECTIONAL"][directions - 1]);
            let wanted = format!("{wanted}_SEQUENCE_LSTM");
            assert_eq!(all.iter().filter(|op| **op == wanted).count(), 1, "{framework:?}: {all:?}");
            let rest = all.iter().filter(|op| {
                // The remaining ops: the two around the layer, and those that reshape the result.
                !["TANH", "ABS", "RESHAPE", "PACK", "STABLEHLO_COMPOSITE"].contains(&op.as_str())
            });
            assert_eq!(rest.collect::<Vec<_>>(), [&wanted], "{framework:?}");
            let allowed = if hybrid { 2e-2 } else { 1e-5 };
            let found = differences(&model, &fused.model);
            assert!(found < allowed, "{framework:?}, {directions}, {hybrid}: {found}");
        }
    }
}

#[test]
fn a_state_that_is_not_zero_or_is_read_is_left() {
    let model = layer(Framework::Keras, false).model();
    let composite = model.subgraphs()[0].nodes().iter().position(|n| n.outputs().len() == 4).unwrap();
    let cell_state = model.subgraphs()[0].nodes()[composite].outputs()[3];
    let mut draft = model.into_draft();
    draft.subgraphs[0].outputs_mut().push(cell_state);
    let model = draft.verify().unwrap();
    let fused = Pipeline::new().run(&model).unwrap();
    assert!(
        fused.report.unchanged[0].reason.contains("cell state at the end"),
        "{:?}",
        fused.report.unchanged
    );
    assert!(ops(&fused.model).contains(&"WHILE".to_owned()));
    assert!(differences(&model, &fused.model) < 1e-6);
}

/// The form of PyTorch and ONNX, with factors of higher rank, and a product with a scaled operand.
#[test]
fn factors_before_products_and_centered_normalizations_are_fused() {
    use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
    use delegraph_core::ops::fully_connected::FullyConnectedParams;
    use delegraph_core::ops::reduce::ReducerParams;
    use delegraph_core::{ModelBuilder, Params, SubgraphBuilder};

    let mut graph = SubgraphBuilder::new("main");
    let g = &mut graph;
    let x = g.input("x", recurrent::FLOAT, [2, 3, 8]);
    let factors = g.constant("", [8], &recurrent::numbers(8, 1));
    let scaled = g.node(BuiltinOp::MUL, MulParams::default()).inputs([x, factors]).output("");
    let weights = g.constant("", [8, 8], &recurrent::numbers(64, 2));
    let dense = FullyConnectedParams::default().keep_num_dims(true);
    let x = g
        .node(BuiltinOp::FULLY_CONNECTED, dense)
        .optional_inputs([Some(scaled), Some(weights), None])
        .output("");
    let axis = g.constant("", [1], &[-1i32]);
    let keep = || ReducerParams::default().keep_dims(true);
    let mean = g.node(BuiltinOp::MEAN, keep()).inputs([x, axis]).output("");
    let difference = g.node(BuiltinOp::SUB, SubParams::default()).inputs([x, mean]).output("");
    let square = g.node(BuiltinOp::SQUARE, Params::None).inputs([difference]).output("");
    let variance = g.node(BuiltinOp::MEAN, keep()).inputs([square, axis]).output("");
    let epsilon = g.constant("", [1], &[1e-3f32]);
    let sum = g.node(BuiltinOp::ADD, AddParams::default()).inputs([variance, epsilon]).output("");
    let root = g.node(BuiltinOp::SQRT, Params::None).inputs([sum]).output("");
    let y = g.node(BuiltinOp::DIV, DivParams::default()).inputs([difference, root]).output("");
    let gamma = g.constant("", [1, 1, 8], &recurrent::numbers(8, 3));
    let beta = g.constant("", [8], &recurrent::numbers(8, 4));
    let y = g.node(BuiltinOp::MUL, MulParams::default()).inputs([y, gamma]).output("");
    let y = g.node(BuiltinOp::ADD, AddParams::default()).inputs([beta, y]).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let fused = Pipeline::new().run(&model).unwrap().model;
    assert_eq!(ops(&fused)[..2], ["FULLY_CONNECTED", "MEAN"]);
    assert!(differences(&model, &fused) < 1e-5);
    let fused = Pipeline::new().allow_custom().run(&model).unwrap().model;
    assert_eq!(ops(&fused), ["FULLY_CONNECTED", "custom op \"delegraph.layer_norm\""]);
    assert!(differences(&model, &fused) < 1e-5);
}

/// Fusions that write an ADD with one input, which no kernel supports.
struct Broken;

fn broken(graph: &mut Rewriter<'_>, id: NodeId) {
    let Some(node) = graph.node(id).cloned() else { return };
    let add = Node::new(BuiltinOp::ADD, 1, AddParams::default(), [node.input(0)], node.outputs().to_vec());
    graph.replace(id, &[id], add);
}

impl CompositeFusion for Broken {
    fn name(&self) -> &str {
        "my.double"
    }

    fn verify_signature(&self, _: &Call, _: &Rewriter<'_>) -> Result<()> {
        Ok(())
    }

    fn rewrite(&self, call: &Call, graph: &mut Rewriter<'_>) -> Result<Outcome> {
        broken(graph, call.id);
        Ok(Outcome::Fused)
    }
}

impl PatternFusion for Broken {
    fn name(&self) -> &str {
        "my-pattern"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, node: NodeId) -> Result<bool> {
        if graph.node(node).is_none_or(|n| n.inputs().len() != 2) {
            return Ok(false);
        }
        broken(graph, node);
        Ok(true)
    }
}

#[test]
fn an_invalid_node_is_the_fault_of_the_fusion_that_wrote_it() {
    let model = |body: bool| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [4]);
        let y = if body {
            let mut body = SubgraphBuilder::new("body");
            let x = body.input("x", TensorType::Float32, [4]);
            let y = body.node(BuiltinOp::ADD, AddParams::default()).inputs([x, x]).output("y");
            body.outputs([y]);
            graph.composite("my.double", body).inputs([x]).output("y")
        } else {
            let y = graph.tensor("y", TensorType::Float32, [4]);
            graph.custom("my.double").inputs([x]).writes([y]);
            y
        };
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    };
    let check = |pipeline: Pipeline, model: Model, name: &str| {
        let error = pipeline.run(&model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
        let text = error.chain();
        assert!(text.contains(&format!("\"{name}\" made a model that cannot be prepared")), "{text}");
    };
    // Tried in a separate model, in the model itself, and as a pattern.
    check(Pipeline::empty().composite(Broken), model(true), "my.double");
    check(Pipeline::empty().composite(Broken), model(false), "my.double");
    check(Pipeline::empty().pattern(Broken), model(true), "my-pattern");
}
