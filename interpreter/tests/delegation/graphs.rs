//! The graph that delegates see: versions, overridden ops, constants, state, shapes known only while running, called
//! subgraphs.

use delegraph_core::ops::control_flow::{CallOnceParams, WhileParams};
use delegraph_core::ops::variables::VarHandleParams;
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, MutableOpResolver, NodeId, Op, OpResolver, Params, Result,
    SubgraphBuilder, TensorType,
};
use delegraph_delegate_api::{
    Capabilities, Delegate, DelegateContext, DelegateKernel, Policy, Runner, VersionTable,
};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter};
use half::f16;

use crate::support::{
    ABS, ADD, NEG, Scripted, X, build, chain, on_cpu, params, partitions, reasons, run, step, with,
};

/// `-(x + v)`, where the variable `v` becomes `x + v`: an attempt that is not undone changes the result of the next
/// one.
pub(crate) fn accumulator() -> Model {
    let handle = || VarHandleParams::default().container(String::new()).shared_name("v".into());
    let mut main = SubgraphBuilder::new("main");
    let x = main.input("x", TensorType::Float32, [4]);
    main.node(BuiltinOp::CALL_ONCE, CallOnceParams::default().init_subgraph_index(1)).inputs([]).writes([]);
    let v = main.tensor("v", TensorType::Resource, [1]);
    main.node(BuiltinOp::VAR_HANDLE, handle()).inputs([]).writes([v]);
    let old = main.tensor("old", TensorType::Float32, [4]);
    main.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([old]);
    let new = main.node(ADD, params(ADD)).inputs([old, x]).output("new");
    main.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, new]).writes([]);
    let y = main.node(NEG, Params::None).inputs([new]).output("y");
    main.outputs([y]);
    let mut init = SubgraphBuilder::new("init");
    let v = init.tensor("v", TensorType::Resource, [1]);
    init.node(BuiltinOp::VAR_HANDLE, handle()).inputs([]).writes([v]);
    let zeros = init.constant("zeros", [4], &[0f32; 4]);
    init.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, zeros]).writes([]);
    ModelBuilder::new().subgraph(main).subgraph(init).build().unwrap()
}

/// Three times `x = -x`, in a loop.
pub(crate) fn looped(body_name: &str) -> Model {
    let (mut main, mut condition, mut body) =
        (SubgraphBuilder::new("main"), SubgraphBuilder::new("condition"), SubgraphBuilder::new(body_name));
    let x = main.input("x", TensorType::Float32, [4]);
    let zero = main.constant("zero", [], &[0i32]);
    let ends = [main.tensor("y", TensorType::Float32, [4]), main.tensor("i", TensorType::Int32, [])];
    let callees = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    main.node(BuiltinOp::WHILE, callees).inputs([x, zero]).writes(ends);
    main.outputs(ends);
    condition.input("x", TensorType::Float32, [4]);
    let (i, three) = (condition.input("i", TensorType::Int32, []), condition.constant("three", [], &[3i32]));
    let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, three]).output("more");
    condition.outputs([more]);
    let x = body.input("x", TensorType::Float32, [4]);
    let (i, one) = (body.input("i", TensorType::Int32, []), body.constant("one", [], &[1i32]));
    let y = body.node(NEG, Params::None).inputs([x]).output("y");
    let next = body.node(ADD, params(ADD)).inputs([i, one]).output("next");
    body.outputs([y, next]);
    ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap()
}

#[test]
fn a_version_above_the_maximum_is_refused_whatever_is_claimed() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.node(NEG, Params::None).inputs([x]).output("y");
    let z = graph.node(ABS, Params::None).version(2).inputs([y]).output("z");
    let custom = graph.tensor("custom", TensorType::Float32, [4]);
    graph.custom("Mine").version(3).inputs([z]).writes([custom]);
    graph.outputs([custom]);
    let model = build(graph);
    let delegate = || {
        let mut delegate = Scripted::new("eager", &[NEG, ABS]);
        delegate.versions = delegate.versions.with_custom("Mine", 2);
        delegate
    };
    let kernel = BuiltinOpResolver::new().find(&Op::Builtin(NEG), 1).unwrap().clone();
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    resolver.add_custom("Mine", kernel, 3);
    let interpreter = with(&model, [delegate()]).resolver(resolver).policy(Policy::Report).build().unwrap();
    assert_eq!(reasons(&interpreter), [(1, "VersionTooHigh"), (2, "VersionTooHigh")]);
    assert_eq!(partitions(&interpreter), [[0]]);
}

#[test]
fn an_op_that_the_application_replaced_is_refused() {
    let model = chain(&[NEG, ABS]);
    let kernel = BuiltinOpResolver::new().find(&Op::Builtin(NEG), 1).unwrap().clone();
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    resolver.add_builtin(NEG, kernel, 1);
    let delegate = Scripted::new("d", &[NEG, ABS]);
    let mut interpreter = with(&model, [delegate]).resolver(resolver).build().unwrap();
    assert_eq!(reasons(&interpreter), [(0, "Overridden")]);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
}

/// `|v| + |v|` of the nonzero elements `v` of `x`.
fn dynamic() -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let at = graph.tensor("at", TensorType::Int64, [0, 1]);
    graph.node(BuiltinOp::WHERE, Params::None).inputs([x]).writes([at]);
    let values = graph.tensor("values", TensorType::Float32, [0]);
    graph.node(BuiltinOp::GATHER_ND, Params::None).inputs([x, at]).writes([values]);
    let a = graph.tensor("a", TensorType::Float32, [0]);
    graph.node(ABS, Params::None).inputs([values]).writes([a]);
    let b = graph.tensor("b", TensorType::Float32, [0]);
    graph.node(ADD, params(ADD)).inputs([a, a]).writes([b]);
    graph.outputs([b]);
    build(graph)
}

#[test]
fn shapes_that_depend_on_data_are_left_to_the_cpu_unless_the_delegate_takes_them() {
    let model = dynamic();
    let mut interpreter = with(&model, [Scripted::new("static", &[ABS, ADD])]).build().unwrap();
    assert!(reasons(&interpreter).contains(&(2, "DynamicShape")));
    assert_eq!(run(&mut interpreter, &X).unwrap(), [3.0, 4.0, 10.0]);
    for propagated_shapes in [false, true] {
        let mut delegate = Scripted::new("dynamic", &[ABS, ADD]);
        delegate.capabilities =
            Capabilities::default().with_dynamic_shapes(true).with_propagated_shapes(propagated_shapes);
        let seen = delegate.seen.clone();
        let mut interpreter = with(&model, [delegate]).build().unwrap();
        assert_eq!(partitions(&interpreter), [[2, 3]]);
        assert_eq!(run(&mut interpreter, &X).unwrap(), [3.0, 4.0, 10.0]);
        assert_eq!(run(&mut interpreter, &[0.0, 0.0, 0.0, -2.0]).unwrap(), [4.0]);
        let told = seen.log().iter().any(|l| l == "prepare kernel, outputs [1]");
        assert_eq!(told, propagated_shapes, "{:?}", seen.log());
    }
}

/// Reads the float16 weights of a graph, and claims nothing.
struct Asks(VersionTable);

impl Delegate for Asks {
    fn name(&self) -> &str {
        "asks"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        let add = graph.node(NodeId(1));
        let weights = add.input(1).unwrap();
        assert_eq!(weights.constant_as::<f32>().unwrap(), [0.5, 1.5, 2.5, 3.5]);
        let half = graph.float16_source(weights.id(), &graph.producers()).unwrap();
        assert_eq!(half.constant_as::<f16>().unwrap(), [0.5, 1.5, 2.5, 3.5].map(f16::from_f32));
        assert!(graph.float16_source(add.input(0).unwrap().id(), &graph.producers()).is_none());
        assert!(graph.callee(1).is_none());
        assert_eq!(add.cost().multiply_adds, 4);
        Ok(())
    }
}

#[test]
fn float16_weights_are_constants_in_both_forms_and_free_to_claim() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let half = graph.constant("half", [4], &[0.5, 1.5, 2.5, 3.5].map(f16::from_f32));
    let weights = graph
        .node(BuiltinOp::DEQUANTIZE, Params::None)
        .inputs([half])
        .output_type(TensorType::Float32)
        .output("weights");
    let y = graph.node(ADD, params(ADD)).inputs([x, weights]).output("y");
    graph.outputs([y]);
    let model = build(graph);
    let asks = Interpreter::builder(model.clone()).delegate(Asks(VersionTable::default())).build().unwrap();
    assert!(asks.report().failures.is_empty(), "{:?}", asks.report().failures);
    // Claimed or not, the weights are not among the inputs of the partition, and no node over them remains to run.
    let mut interpreter = with(&model, [Scripted::new("d", &[ADD])]).build().unwrap();
    assert_eq!(interpreter.report().nodes[0].runner, Runner::Folded);
    assert_eq!(interpreter.report().partitions[0].inputs.len(), 1);
    assert_eq!(run(&mut interpreter, &X).unwrap(), on_cpu(&model));
}

#[test]
fn state_is_the_same_with_and_without_a_delegate() {
    let model = accumulator();
    let mut plain = Interpreter::builder(model.clone()).build().unwrap();
    let mut interpreter = with(&model, [Scripted::new("d", &[ADD, NEG])]).build().unwrap();
    for round in 0..3 {
        assert_eq!(run(&mut interpreter, &X).unwrap(), run(&mut plain, &X).unwrap(), "round {round}");
    }
    // State persists when a delegate is removed, and is cleared by a reset.
    assert_eq!(interpreter.remove_delegates().len(), 1);
    assert_eq!(interpreter.report().delegated_nodes(), 0);
    assert_eq!(run(&mut interpreter, &X).unwrap(), run(&mut plain, &X).unwrap());
    interpreter.reset_variables().unwrap();
    plain.reset_variables().unwrap();
    assert_eq!(run(&mut interpreter, &X).unwrap(), run(&mut plain, &X).unwrap());
}

#[test]
fn nodes_with_side_effects_keep_their_order() {
    // Three times: negate, assign, read, add. No partition may extend across an assignment.
    let handle = || VarHandleParams::default().container(String::new()).shared_name("v".into());
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let v = graph.tensor("v", TensorType::Resource, [1]);
    graph.node(BuiltinOp::VAR_HANDLE, handle()).inputs([]).writes([v]);
    let mut reads = Vec::new();
    let mut value = x;
    for i in 0..3 {
        let negated = step(&mut graph, NEG, value, &format!("n{i}"));
        graph.node(BuiltinOp::ASSIGN_VARIABLE, Params::None).inputs([v, negated]).writes([]);
        let read = graph.tensor(&format!("r{i}"), TensorType::Float32, [4]);
        graph.node(BuiltinOp::READ_VARIABLE, Params::None).inputs([v]).writes([read]);
        value = step(&mut graph, ADD, read, &format!("a{i}"));
        reads.push(value);
    }
    graph.outputs(reads);
    let model = build(graph);
    let mut plain = Interpreter::builder(model.clone()).build().unwrap();
    let mut interpreter = with(&model, [Scripted::new("d", &[ADD, NEG])]).build().unwrap();
    for interpreter in [&mut plain, &mut interpreter] {
        run(interpreter, &X).unwrap();
    }
    for i in 0..3 {
        assert_eq!(interpreter.output::<f32>(i).unwrap(), plain.output::<f32>(i).unwrap());
    }
}

#[test]
fn control_dependencies_of_the_model_hold() {
    // Two independent nodes of the delegate around a CPU node: one partition, unless the CPU node must run between
    // them.
    let model = |metadata: Option<&[u8]>| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [4]);
        let ends = [NEG, ABS, NEG].map(|op| step(&mut graph, op, x, ""));
        graph.outputs(ends);
        let builder = ModelBuilder::new().subgraph(graph);
        let builder = match metadata {
            Some(bytes) => builder.metadata("model_control_dependencies", bytes),
            None => builder,
        };
        builder.build().unwrap()
    };
    let (none, between, foreign) = ([1, 1, 0], [1, 1, 2, 0, 2, 2, 4], [1, 2, 0, 0]);
    for (metadata, expected) in [
        (None, vec![vec![0, 2]]),
        (Some(&none[..]), vec![vec![0, 2]]),
        (Some(&between), vec![vec![0], vec![2]]),
        (Some(&foreign), vec![vec![0, 2]]),
    ] {
        let interpreter = with(&model(metadata), [Scripted::new("d", &[NEG])]).build().unwrap();
        assert_eq!(partitions(&interpreter), expected, "{metadata:?}");
    }
}

#[test]
fn bodies_of_loops_are_delegated_and_named_validation_ones_are_not() {
    for (name, delegated) in [("body", 1), ("VALIDATION:body", 0)] {
        let model = looped(name);
        let delegate = Scripted::new("d", &[NEG]);
        let seen = delegate.seen.clone();
        let mut interpreter = with(&model, [delegate]).build().unwrap();
        assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x));
        let body = interpreter.subgraph_report(2).unwrap();
        assert_eq!(body.delegated_nodes(), delegated);
        assert_eq!(seen.log().iter().filter(|l| *l == "invoke").count(), 3 * delegated);
        let reasons = body.nodes.iter().flat_map(|node| &node.rejections);
        let named = reasons.filter(|(_, reason)| reason.to_string().contains("VALIDATION:")).count();
        assert_eq!(named, if delegated == 0 { body.nodes.len() } else { 0 });
    }
}

#[test]
fn the_policy_requires_validation_subgraphs_too() {
    let mut graph = SubgraphBuilder::new("VALIDATION:main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let y = graph.node(NEG, Params::None).inputs([x]).output("y");
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let with = || with(&model, [Scripted::new("d", &[NEG])]);
    assert_eq!(run(&mut with().build().unwrap(), &X).unwrap(), X.map(|x| -x));
    let error = with().policy(Policy::Require).build().and_then(|mut i| i.prepare()).unwrap_err();
    assert!(error.to_string().contains("VALIDATION:"), "{error}");
}

#[test]
fn a_failure_in_a_called_subgraph_gives_everything_back() {
    use crate::support::Hook;
    let model = looped("body");
    for hook in [Hook::CreateKernel, Hook::PrepareKernel] {
        let mut interpreter = with(&model, [Scripted::new("d", &[NEG]).failing(hook, true)]).build().unwrap();
        assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x));
        assert_eq!(interpreter.report().failures.len(), 1);
        assert_eq!(interpreter.subgraph_report(2).unwrap().delegated_nodes(), 0);
    }
    let mut interpreter =
        with(&model, [Scripted::new("d", &[NEG]).failing(Hook::Invoke, false)]).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&X);
    assert_eq!(interpreter.invoke_with_fallback().unwrap().len(), 1);
    assert_eq!(interpreter.output::<f32>(0).unwrap(), X.map(|x| -x));
}

/// Claims loops after inspecting their bodies.
struct Loops {
    versions: VersionTable,
    bodies: Vec<String>,
}

impl Delegate for Loops {
    fn name(&self) -> &str {
        "loops"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.versions
    }

    fn prepare<'a>(&'a mut self, cx: &mut DelegateContext<'a>) -> Result<()> {
        let graph = cx.graph();
        for node in graph.nodes() {
            if let Params::While(params) = node.params() {
                let body = graph.callee(params.body_subgraph_index as usize).unwrap();
                self.bodies.extend(body.nodes().map(|n| n.op().to_string()));
                assert!(body.node(NodeId(0)).output(0).unwrap().shape().is_some());
            }
        }
        assert!(graph.index() != 0 || self.bodies == ["NEG", "ADD"]);
        cx.claim(&[NodeId(0)], |_, _| -> Result<Box<dyn DelegateKernel>> { unreachable!("only reported") });
        Ok(())
    }
}

#[test]
fn a_delegate_sees_the_body_of_a_loop_before_it_claims_it() {
    let versions = VersionTable::new(&[(BuiltinOp::WHILE, 1)]);
    let delegate = Loops { versions, bodies: Vec::new() };
    let builder = Interpreter::builder(looped("body")).delegate(delegate);
    let interpreter = builder.policy(Policy::Report).build().unwrap();
    assert!(interpreter.report().failures.is_empty(), "{:?}", interpreter.report().failures);
    assert_eq!(partitions(&interpreter), [[0]]);
}

/// An SVDF whose state has an initial value in the file, as float16.
#[test]
fn a_node_over_constants_begins_a_variable_once() {
    use delegraph_core::ops::svdf::SvdfParams;
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 1]);
    let half = graph.constant("half", [1, 2], &[3f32, 5.0].map(f16::from_f32));
    let state = graph.variable("state", TensorType::Float32, [1, 2]);
    graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([half]).writes([state]);
    let feature = graph.constant("feature", [1, 1], &[1f32]);
    let time = graph.constant("time", [1, 2], &[1f32, 10.0]);
    let params = SvdfParams::default().rank(1);
    let inputs = [Some(x), Some(feature), Some(time), None, Some(state)];
    let y = graph.node(BuiltinOp::SVDF, params).optional_inputs(inputs).output("y");
    graph.outputs([y]);
    let model = build(graph);
    // The state shifts by one and appends x; the oldest element has weight 1, the newest weight 10.
    for delegates in [Vec::new(), vec![Scripted::new("d", &[BuiltinOp::DEQUANTIZE])]] {
        let mut interpreter = with(&model, delegates).build().unwrap();
        assert_eq!(interpreter.report().delegated_nodes(), 0);
        assert_eq!(run(&mut interpreter, &[1.0]).unwrap(), [15.0]);
        assert_eq!(run(&mut interpreter, &[2.0]).unwrap(), [21.0]);
        interpreter.remove_delegates();
        assert_eq!(run(&mut interpreter, &[0.0]).unwrap(), [2.0]);
    }
}

#[test]
fn what_only_folded_nodes_read_does_not_cross_borders() {
    // SHAPE reads a result of the CPU; it is folded, and claimed together with nodes that run earlier.
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let a = step(&mut graph, NEG, x, "a");
    let b = step(&mut graph, ABS, a, "b");
    let shape = graph.node(
        BuiltinOp::SHAPE,
        delegraph_core::ops::shape::ShapeParams::default().out_type(TensorType::Int32),
    );
    let shape = shape.inputs([b]).output_type(TensorType::Int32).output("shape");
    graph.outputs([b, shape]);
    let model = build(graph);
    let delegate = Scripted::new("d", &[NEG, BuiltinOp::SHAPE]);
    let interpreter = with(&model, [delegate]).policy(Policy::Report).build().unwrap();
    let partition = &interpreter.report().partitions[0];
    assert_eq!((partition.nodes.len(), &*partition.inputs, &*partition.outputs), (2, &[x][..], &[a][..]));
}
