use std::ops::Range;

use super::*;
use crate::graph::{ModelBytes, ModelDraft, NodeId, VariantType, check_versions, min_versions};
use crate::ops::Activation;
use crate::ops::binary::{AddParams, SubParams};
use crate::ops::control_flow::{CallOnceParams, IfParams, StableHloCompositeParams, WhileParams};
use crate::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use crate::ops::reshape::ReshapeParams;
use crate::ops::split::SplitParams;
use crate::types::Shape;
use crate::types::TensorType::{self, Bool, Float32, Int4, Int8, Int32, Resource, String as Text, Variant};
use crate::types::quantization::{Affine, MinMax, Quantization};
use crate::types::sparsity::{Level, Sparsity};

fn add() -> Params {
    AddParams::default().into()
}

fn one(graph: SubgraphBuilder) -> Result<Model> {
    ModelBuilder::new().subgraph(graph).build()
}

fn error(graph: SubgraphBuilder) -> String {
    one(graph).unwrap_err().to_string()
}

fn versions(model: &Model) -> Vec<u32> {
    model.subgraphs().iter().flat_map(|g| g.nodes()).map(|n| n.version()).collect()
}

/// Two additions of which the second is over integers.
fn two_additions() -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("main");
    let (a, b) = (graph.input("a", Float32, [2]), graph.input("b", Int8, [2]));
    graph.quantize(b, Quantization::per_tensor(0.5, 0));
    let c = graph.node(BuiltinOp::ADD, add()).inputs([a, a]).output("c");
    let quantization = Quantization::per_tensor(1.0, 0);
    let d = graph.node(BuiltinOp::ADD, add()).inputs([b, b]).output_quantization(quantization).output("d");
    graph.outputs([c, d]);
    graph
}

#[test]
fn versions_are_the_lowest_that_are_enough_for_all_nodes_of_an_op() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [1, 8, 8, 2]);
    let weights = graph.constant("weights", [1, 3, 3, 2], &[1f32; 18]);
    let bias = graph.constant("bias", [2], &[0f32; 2]);
    let mut params = DepthwiseConv2DParams::default().depth_multiplier(1).stride_w(1).stride_h(1);
    let mut convolve = |x, params: &DepthwiseConv2DParams, name| {
        graph.node(BuiltinOp::DEPTHWISE_CONV_2D, params.clone()).inputs([x, weights, bias]).output(name)
    };
    let y = convolve(x, &params, "y");
    params.dilation_h_factor = 2;
    let z = convolve(y, &params, "z");
    graph.outputs([z]);
    let model = one(graph.clone()).unwrap();
    assert_eq!(versions(&model), [2, 2]);
    assert_eq!(model.min_runtime_version(), Some("1.12.0"));
    assert_eq!(model.metadata("min_runtime_version").map(<[u8]>::len), Some(16));
    let shape = model.subgraphs()[0].tensor(z).shape();
    assert_eq!(**shape, [1, 8, 8, 2]);

    assert_eq!(versions(&one(two_additions()).unwrap()), [2, 2]);
}

#[test]
fn a_given_version_is_kept_or_refused() {
    let mut graph = SubgraphBuilder::new("main");
    let a = graph.input("a", Float32, [2]);
    let b = graph.node(BuiltinOp::ADD, add()).version(4).inputs([a, a]).output("b");
    let c = graph.node(BuiltinOp::ADD, add()).inputs([b, b]).output("c");
    let d = graph.tensor("d", Float32, [2]);
    graph.custom("Mine").version(9).inputs([c]).writes([d]);
    graph.outputs([d]);
    let model = one(graph).unwrap();
    assert_eq!(versions(&model), [4, 1, 9]);
    assert_eq!(model.min_runtime_version(), Some("2.6.0"));

    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [1, 8, 8, 1]);
    let weights = graph.constant("weights", [1, 3, 3, 1], &[1f32; 9]);
    let params =
        DepthwiseConv2DParams::default().depth_multiplier(1).stride_w(1).stride_h(1).dilation_w_factor(2);
    let y = graph.node(BuiltinOp::DEPTHWISE_CONV_2D, params).version(1).inputs([x, weights]).output("y");
    graph.outputs([y]);
    let message = error(graph);
    assert!(message.contains("node 0 (DEPTHWISE_CONV_2D v1, writes "), "{message}");
    assert!(
        message.contains("its params (dilation_w_factor, dilation_h_factor) need version 2"),
        "{message}"
    );
    assert!(message.contains("TFLite has it since 1.12.0"), "{message}");
}

#[test]
fn what_needs_a_version_is_named() {
    let too_low = |op, params: Params, ty: TensorType, shape: &[usize]| {
        let mut graph = SubgraphBuilder::new("main");
        let (a, b) = (graph.input("a", ty, shape), graph.input("b", ty, [1]));
        let (a, b) = if op == BuiltinOp::TRANSPOSE {
            (a, graph.constant("order", [shape.len()], &[0i32, 1, 2, 3, 4, 5][..shape.len()]))
        } else {
            (a, b)
        };
        let y = graph.node(op, params).version(1).inputs([a, b]).output("y");
        graph.outputs([y]);
        error(graph)
    };
    let message = too_low(BuiltinOp::ADD, add(), Int8, &[1]);
    assert!(message.contains("its types (INT8, INT8 to INT8) need version 2"), "{message}");
    let message = too_low(BuiltinOp::TRANSPOSE, Params::None, Float32, &[1; 5]);
    assert!(message.contains("its 2 inputs of shapes [1, 1, 1, 1, 1], [5] need version"), "{message}");
}

#[test]
fn all_that_a_tensor_can_say_is_kept() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [1, 2]);
    graph.resizable(x, [None, Some(2)]);
    graph.change(x, |t| t.set_min_max(Some(MinMax::new(vec![-1.0], vec![1.0]))));
    let channels = graph.constant("channels", [2, 1], &[1i8, 2]);
    let affine = Affine { scales: vec![0.5, 0.25], zero_points: vec![0, 0].into(), dimension: 0 };
    graph.quantize(channels, Quantization::Affine(affine));
    let scales = graph.constant("scales", [2, 1], &[half::f16::ONE; 2]);
    let blocks = graph.constant_bytes("blocks", Int4, [2, 2], &[0x21, 0x43]);
    graph.quantize(blocks, Quantization::Blockwise { scales, zero_points: None, block_size: 2 });
    let sparse = graph.constant_bytes("sparse", Int8, [2, 3], &[7, 8, 9]);
    let levels = vec![Level::Dense { size: 2 }, Level::csr(&[0, 1, 3], &[2, 0, 1])];
    graph.sparse(sparse, Sparsity { traversal_order: vec![0, 1], block_map: vec![], levels });
    let texts = graph.strings("texts", [3], &["one", "", "three"]);
    let again = graph.constant("equal to channels", [2], &[1i8, 2]);
    let list = graph.tensor("list", Variant, []);
    graph.change(list, |t| t.set_variants(vec![VariantType { ty: Text, shape: vec![None], has_rank: true }]));
    let state = graph.variable("state", Float32, [1, 2]);
    let y = graph.node(BuiltinOp::ADD, add()).inputs([x, state]).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new()
        .description("tensors")
        .subgraph(graph)
        .metadata("notes", *b"some")
        .signature("serve", 0, [("in", x)], [("out", y)])
        .build()
        .unwrap();

    let tensor = |id| model.subgraphs()[0].tensor(id);
    assert_eq!(tensor(x).shape_signature(), Some(&[None, Some(2)][..]));
    assert_eq!(tensor(channels).quantization().and_then(|q| q.affine()).map(|a| a.scales.len()), Some(2));
    assert!(matches!(
        tensor(blocks).quantization(),
        Some(Quantization::Blockwise { scales: TensorId(2), .. })
    ));
    assert!(tensor(sparse).sparsity().is_some() && tensor(state).is_variable());
    assert_eq!(tensor(list).variants().len(), 1);
    assert_eq!(tensor(channels).data(), tensor(again).data(), "equal data is there once");
    let text = model.constant(tensor(texts)).unwrap();
    assert_eq!(text[..20], [3, 20, 23, 23, 28].map(i32::to_le_bytes).concat()[..]);
    assert_eq!(&text[20..], b"onethree");
    assert_eq!(model.metadata("notes"), Some(&b"some"[..]));
    assert_eq!(model.signature("serve").map(|s| s.outputs()[0].1), Some(y));
    let read = Model::from_bytes(ModelBytes::new(model.to_bytes().unwrap())).unwrap();
    assert_eq!(model.difference(&read), None);
}

#[test]
fn outputs_are_inferred() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", Float32, [2, 6]);
    let axis = graph.constant("axis", [], &[1i32]);
    let [left, _] = graph
        .node(BuiltinOp::SPLIT, SplitParams::default().num_splits(2))
        .inputs([axis, x])
        .outputs(["left", "right"]);
    let shape = graph.constant("shape", [1], &[6i32]);
    let flat = graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([left, shape]).output("flat");
    let small = graph
        .node(BuiltinOp::QUANTIZE, Params::None)
        .inputs([flat])
        .output_type(Int8)
        .output_quantization(Quantization::per_tensor(0.1, 3))
        .output("small");
    graph.outputs([small]);
    let model = one(graph).unwrap();
    let tensor = |id| model.subgraphs()[0].tensor(id);
    assert_eq!(**tensor(left).shape(), [2, 3]);
    assert_eq!((tensor(small).ty(), &**tensor(small).shape()), (Int8, &[6][..]));
    assert_eq!(tensor(small).quantization().and_then(|q| q.scale_zero_point()), Some((0.1, 3)));
}

#[test]
fn subgraphs_call_each_other() {
    let mut main = SubgraphBuilder::new("main");
    let (condition, x) = (main.input("condition", Bool, [1]), main.input("x", Int32, [1]));
    let [chosen, counted, sum] = ["chosen", "counted", "sum"].map(|name| main.tensor(name, Int32, [1]));
    main.node(BuiltinOp::CALL_ONCE, CallOnceParams::default().init_subgraph_index(5)).writes([]);
    let branches = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
    main.node(BuiltinOp::IF, branches).inputs([condition, x]).writes([chosen]);
    let counting = WhileParams::default().cond_subgraph_index(3).body_subgraph_index(1);
    main.node(BuiltinOp::WHILE, counting).inputs([chosen]).writes([counted]);
    let composite = StableHloCompositeParams::default()
        .name("mine.increment".into())
        .decomposition_subgraph_index(4)
        .composite_attributes(vec![1, 2, 3]);
    main.node(BuiltinOp::STABLEHLO_COMPOSITE, composite.clone()).inputs([counted]).writes([sum]);
    main.outputs([sum]);
    let increment = |name: &str| {
        let mut graph = SubgraphBuilder::new(name);
        let x = graph.input("x", Int32, [1]);
        let one = graph.constant("one", [1], &[1i32]);
        let y = graph.node(BuiltinOp::ADD, add()).inputs([x, one]).output("y");
        graph.outputs([y]);
        graph
    };
    let mut same = SubgraphBuilder::new("else");
    let y = same.input("x", Int32, [1]);
    same.outputs([y]);
    let mut small = SubgraphBuilder::new("condition");
    let x = small.input("x", Int32, [1]);
    let ten = small.constant("ten", [1], &[10i32]);
    let less = small.node(BuiltinOp::LESS, Params::None).inputs([x, ten]).output("less");
    small.outputs([less]);
    let model = ModelBuilder::new()
        .subgraph(main)
        .subgraph(increment("then"))
        .subgraph(same)
        .subgraph(small)
        .subgraph(increment("decomposition"))
        .subgraph(SubgraphBuilder::new("start"))
        .build()
        .unwrap();
    assert_eq!(model.subgraphs().len(), 6);
    assert_eq!(*model.subgraphs()[0].nodes()[3].params(), composite.into());
    assert_eq!(model.min_runtime_version(), Some("2.17.0"));
}

#[test]
fn tables_without_inputs_and_outputs_are_models_too() {
    let mut graph = SubgraphBuilder::new("start");
    let params =
        crate::ops::variables::VarHandleParams::default().container("".into()).shared_name("v".into());
    let handle = graph.tensor("handle", Resource, []);
    graph.node(BuiltinOp::VAR_HANDLE, params).writes([handle]);
    let zero = graph.constant("zero", [1], &[0f32]);
    graph.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([handle, zero]).writes([]);
    assert_eq!(versions(&one(graph).unwrap()), [1, 1]);
}

#[test]
fn the_first_thing_that_is_wrong_is_the_error() {
    let start = || {
        let mut graph = SubgraphBuilder::new("main");
        let (a, b) = (graph.input("a", Float32, [2]), graph.input("b", Float32, [3]));
        (graph, a, b)
    };
    let (mut graph, a, b) = start();
    let y = graph.node(BuiltinOp::ADD, add()).inputs([a, b]).output("y");
    graph.node(BuiltinOp::ADD, add()).inputs([y, a]).output("z");
    let message = error(graph);
    assert!(message.contains("node 0 (ADD, writes \"y\"): "), "{message}");

    let (mut graph, a, _) = start();
    graph.node(BuiltinOp::WHERE, Params::None).inputs([a]).output("y");
    let message = error(graph);
    assert!(message.contains("depends on data; the outputs can be made with `tensor`"), "{message}");

    let (mut graph, a, _) = start();
    graph.custom("Mine").inputs([a]).output("y");
    assert!(error(graph).contains("only its author knows"));

    let (mut graph, a, _) = start();
    graph.node(BuiltinOp::ADD, add()).inputs([a, TensorId(99)]).output("y");
    assert!(error(graph).contains("it reads tensor 99, which does not exist"));

    let (mut graph, ..) = start();
    graph.quantize(TensorId(7), Quantization::per_tensor(1.0, 0));
    assert!(error(graph).contains("there is no tensor 7"));

    let (mut graph, ..) = start();
    graph.constant("short", [3], &[1f32; 2]);
    assert!(error(graph).contains("tensor 2 (\"short\"): its data has 8 bytes, its type and shape need 12"));

    let (mut graph, a, _) = start();
    let y = graph.tensor("y", Float32, [2]);
    graph
        .node(BuiltinOp::IF, IfParams::default().then_subgraph_index(1).else_subgraph_index(1))
        .inputs([a])
        .writes([y]);
    assert!(error(graph).contains("subgraph 1"));

    let (mut graph, a, _) = start();
    let y = graph.tensor("y", Float32, [2]);
    graph.node(BuiltinOp(250), Params::None).inputs([a]).writes([y]);
    assert!(error(graph).contains("does not know the op"));

    let (mut graph, a, _) = start();
    let y = graph.tensor("y", Float32, [2]);
    graph.node(BuiltinOp::ADD, Params::None).inputs([a, a]).writes([y]);
    assert!(error(graph).contains("the node has no Add params"));

    assert!(ModelBuilder::new().build().unwrap_err().to_string().contains("no subgraphs"));
}

#[test]
fn restamping_lowers_what_is_too_high_and_raises_what_is_too_low() {
    let mut graph = two_additions();
    let c = TensorId(2);
    let relu = AddParams::default().fused_activation_function(Activation::Relu);
    let e = graph.node(BuiltinOp::ADD, relu).inputs([c, c]).output("e");
    let f = graph.tensor("f", Float32, [2]);
    graph.custom("Mine").version(9).inputs([e]).writes([f]);
    graph.outputs([f]);
    let model =
        ModelBuilder::new().subgraph(graph).metadata("min_runtime_version", *b"2.99.0").build().unwrap();
    // Two operator codes: one too low for the second node, one too high for the third.
    let mut draft = model.into_draft();
    for (node, version) in draft.subgraphs[0].nodes_mut().iter_mut().zip([1, 1, 5]) {
        node.set_version(version);
    }
    let mut model = draft.verify().unwrap();
    let before = model.clone();

    let report = model.restamp().unwrap();
    assert_eq!(versions(&model), [2, 2, 1, 9]);
    let node = |i| (0, NodeId(i));
    let changed = |from, to, nodes| RestampedOp { op: BuiltinOp::ADD.into(), from, to, nodes };
    assert_eq!(report.ops, [changed(1, 2, vec![node(0), node(1)]), changed(5, 1, vec![node(2)])]);
    assert_eq!(
        (report.old_runtime.as_deref(), report.new_runtime.as_deref()),
        (Some("2.99.0"), Some("1.14.0"))
    );
    assert_eq!(model.min_runtime_version(), Some("1.14.0"));
    assert!(before.difference(&model).is_some());

    let stamped = model.clone();
    let report = model.restamp().unwrap();
    assert!(report.ops.is_empty() && report.old_runtime == report.new_runtime);
    assert_eq!(model.bytes(), stamped.bytes(), "nothing is left to change");
}

/// A RESHAPE to 5 dimensions, and a SUB that broadcasts its result, which needs version 3 and has version 1. The file
/// declares the shapes of both outputs as empty.
fn undeclared_broadcast(change: impl FnOnce(&mut ModelDraft)) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let (x, z) = (graph.input("x", Float32, [12]), graph.input("z", Float32, [3]));
    let shape = graph.constant("shape", [5], &[1i32, 1, 2, 2, 3]);
    let y = graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([x, shape]).output("y");
    let w = graph.node(BuiltinOp::SUB, SubParams::default()).inputs([y, z]).output("w");
    graph.outputs([w]);
    let model = one(graph).unwrap();
    assert_eq!(versions(&model), [1, 3]);
    let mut draft = model.into_draft();
    for id in [y, w] {
        draft.subgraphs[0].tensors_mut()[id.0].set_shape(Shape::default());
    }
    draft.subgraphs[0].nodes_mut()[1].set_version(1);
    change(&mut draft);
    draft.verify().unwrap()
}

#[test]
fn versions_follow_from_inferred_shapes() {
    let mut model = undeclared_broadcast(|_| {});
    assert_eq!(min_versions(&model), [[1, 3]]);
    assert_eq!(
        check_versions(&model).unwrap_err().to_string(),
        "versions are too low: SUB version 1 uses features of version 3: node 1"
    );
    model.restamp().unwrap();
    assert_eq!(versions(&model), [1, 3]);
    assert_eq!(model.subgraphs()[0].tensor(TensorId(3)).shape().rank(), 0, "only versions change");
    check_versions(&model).unwrap();

    // Inference rejects the node, or does not know the shape: the declared shapes count.
    let rejected = undeclared_broadcast(|draft| {
        draft.subgraphs[0].tensors_mut()[0].set_shape([13]);
    });
    assert_eq!(min_versions(&rejected), [[1, 1]]);
    let unknown = undeclared_broadcast(|draft| {
        draft.subgraphs[0].tensors_mut()[2].set_data(None::<Range<usize>>);
        draft.subgraphs[0].inputs_mut().push(TensorId(2));
    });
    assert_eq!(min_versions(&unknown), [[1, 1]]);
    let declared = undeclared_broadcast(|draft| {
        draft.subgraphs[0].tensors_mut()[2].set_data(None::<Range<usize>>);
        draft.subgraphs[0].inputs_mut().push(TensorId(2));
        draft.subgraphs[0].tensors_mut()[3].set_shape([1, 1, 2, 2, 3]);
    });
    assert_eq!(min_versions(&declared), [[1, 3]]);
    check_versions(&undeclared_broadcast(|draft| draft.subgraphs[0].nodes_mut()[1].set_version(3))).unwrap();
}

#[test]
fn empty_shapes_of_inputs_of_called_subgraphs_are_unknown() {
    let model = |declared: &[usize]| {
        let mut body = SubgraphBuilder::new("body");
        let x = body.input("x", Float32, [1, 1, 1, 1, 2]);
        let other = body.constant("other", [1, 1, 1, 1, 2], &[1f32, 2.0]);
        let y = body.node(BuiltinOp::NEG, Params::None).inputs([x]).output("y");
        let z = body.node(BuiltinOp::SUB, SubParams::default()).inputs([y, other]).output("z");
        body.outputs([z]);
        let mut graph = SubgraphBuilder::new("main");
        let (a, b) = (graph.input("a", Bool, [1]), graph.input("b", Float32, [1, 1, 1, 1, 2]));
        let c = graph.tensor("c", Float32, [1, 1, 1, 1, 2]);
        let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(1);
        graph.node(BuiltinOp::IF, params).inputs([a, b]).writes([c]);
        graph.outputs([c]);
        let mut draft = ModelBuilder::new().subgraph(graph).subgraph(body).build().unwrap().into_draft();
        draft.subgraphs[1].tensors_mut()[x.0].set_shape(declared);
        draft.verify().unwrap()
    };
    assert_eq!(min_versions(&model(&[])), [vec![1], vec![1, 1]]);
    assert_eq!(min_versions(&model(&[1, 1, 1, 2, 1])), [vec![1], vec![1, 3]]);
}

#[test]
fn versions_newer_than_the_op_table_are_kept() {
    let model = ModelBuilder::new()
        .subgraph(two_additions())
        .metadata("min_runtime_version", *b"2.99.0")
        .build()
        .unwrap();
    let mut draft = model.into_draft();
    for (node, version) in draft.subgraphs[0].nodes_mut().iter_mut().zip([99, 0]) {
        node.set_version(version);
    }
    let mut model = draft.verify().unwrap();
    let report = model.restamp().unwrap();
    assert_eq!(versions(&model), [99, 2]);
    let changed =
        |from, to, node| RestampedOp { op: BuiltinOp::ADD.into(), from, to, nodes: vec![(0, NodeId(node))] };
    assert_eq!((report.ops, report.unknown), (vec![changed(0, 2, 1)], vec![changed(99, 99, 0)]));
    assert_eq!(model.min_runtime_version(), Some("2.99.0"), "the release of an unknown version is unknown");
}

#[test]
fn ops_without_a_release_do_not_count() {
    let mut graph = SubgraphBuilder::new("main");
    let a = graph.input("a", Float32, [2]);
    let b = graph.node(BuiltinOp::STABLEHLO_ADD, Params::None).inputs([a, a]).output("b");
    let c = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([b, b]).output("c");
    graph.outputs([c]);
    let mut model = one(graph).unwrap();
    let built = model.min_runtime_version().map(str::to_owned);
    assert!(built.is_some());
    assert_eq!(model.restamp().unwrap().new_runtime, built);
}

#[test]
fn what_cannot_be_written_is_not_restamped_either() {
    let mut draft = one(two_additions()).unwrap().into_draft();
    draft.subgraphs[0].nodes_mut()[0].set_params(Params::None);
    let mut model = draft.verify().unwrap();
    let before = model.clone();
    assert!(model.restamp().is_err());
    assert_eq!(before.difference(&model), None);
}
