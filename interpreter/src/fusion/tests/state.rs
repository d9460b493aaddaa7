//! State that lasts between invocations, in comparisons and in pipelines.

use delegraph_core::ops::control_flow::CallOnceParams;
use delegraph_core::ops::rnn::BidirectionalSequenceRnnParams;
use delegraph_core::ops::svdf::SvdfParams;
use delegraph_core::{Node, NodeId, Tensor};

use super::super::state;
use super::*;

const FLOAT: TensorType = TensorType::Float32;

/// The value that a counter keeps.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    Sum,
    Input,
}

fn handle(graph: &mut SubgraphBuilder, name: &str) -> TensorId {
    let id = graph.tensor("handle", TensorType::Resource, []);
    let params = VarHandleParams::default().container(String::new()).shared_name(name.into());
    graph.node(B::VAR_HANDLE, params).writes([id]);
    id
}

/// Adds the variable `name`, which subgraph `init` initializes, to `x` and assigns the sum, or `x`.
fn counted(graph: &mut SubgraphBuilder, x: TensorId, (name, init): (&str, i32), kept: Kept) -> TensorId {
    graph.node(B::CALL_ONCE, CallOnceParams::default().init_subgraph_index(init)).writes([]);
    let variable = handle(graph, name);
    let value = graph.tensor("value", FLOAT, [3]);
    graph.node(B::READ_VARIABLE, Params::None).inputs([variable]).writes([value]);
    let sum = graph.tensor("sum", FLOAT, [3]);
    graph.node(B::ADD, AddParams::default()).inputs([x, value]).writes([sum]);
    let new = if kept == Kept::Sum { sum } else { x };
    graph.node(B::ASSIGN_VARIABLE, Params::None).inputs([variable, new]).writes([]);
    sum
}

/// A model of a chain of counters with the variables `names`, all of which begin with 0.
fn counter(names: &[&str], kept: Kept) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut y = graph.input("x", FLOAT, [3]);
    for (name, init) in names.iter().zip(1..) {
        y = counted(&mut graph, y, (*name, init), kept);
    }
    graph.outputs([y]);
    let inits = names.iter().map(|name| {
        let mut init = SubgraphBuilder::new("init");
        let variable = handle(&mut init, name);
        let zeros = init.constant("zeros", [3], &[0f32; 3]);
        init.node(B::ASSIGN_VARIABLE, Params::None).inputs([variable, zeros]).writes([]);
        init
    });
    inits.fold(ModelBuilder::new().subgraph(graph), ModelBuilder::subgraph).build().unwrap()
}

fn compared(a: &Model, b: &Model) -> bool {
    let resolver: Arc<dyn OpResolver> = Arc::new(BuiltinOpResolver::new());
    let models = ModelPair { original: &Arc::new(a.clone()), fused: &Arc::new(b.clone()) };
    compare(models, &resolver, 2).unwrap().iter().all(Difference::is_fine)
}

/// A model of one SVDF. The weight of the oldest step is `first`, all other weights of time are 0.5.
fn svdf(memory: usize, first: f32) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", FLOAT, [1, 2]);
    let features = graph.constant("features", [2, 2], &[0.5f32, -1.0, 2.0, 0.25]);
    let mut steps = vec![0.5f32; 2 * memory];
    steps.iter_mut().step_by(memory).for_each(|weight| *weight = first);
    let steps = graph.constant("steps", [2, memory], &steps);
    let state = graph.variable("state", FLOAT, [1, 2 * memory]);
    let y = graph.tensor("y", FLOAT, [1, 2]);
    let inputs = [Some(x), Some(features), Some(steps), None, Some(state)];
    graph.node(B::SVDF, SvdfParams::default().rank(1)).optional_inputs(inputs).writes([y]);
    graph.outputs([y]);
    build(graph)
}

#[test]
fn added_state_is_reset_and_all_other_state_is_compared() {
    let original = counter(&["v"], Kept::Sum);
    // The additional variable is 0 in each invocation, because its initialization runs again.
    assert!(compared(&original, &counter(&["v", "added"], Kept::Sum)));
    assert!(!compared(&original, &counter(&["v", "added"], Kept::Input)));
    assert!(!compared(&original, &counter(&["v"], Kept::Input)));
    // State of another name is not that of the original.
    assert!(!compared(&original, &counter(&["added"], Kept::Sum)));
    assert!(!compared(&counter(&["v", "lost"], Kept::Sum), &original));
}

#[test]
fn the_oldest_step_of_a_memory_is_compared() {
    for memory in [1, 3, 20] {
        assert!(compared(&svdf(memory, 0.5), &svdf(memory, 0.5)));
        assert!(!compared(&svdf(memory, 0.5), &svdf(memory, 0.0)), "{memory}");
    }
}

#[test]
fn a_sample_has_as_many_invocations_as_its_state_needs() {
    let stateless = with_variable(false);
    let stateless = Pipeline::new().run(&stateless).unwrap().model;
    assert_eq!(state::invocations([&stateless, &stateless]), 1);
    for (memory, invocations) in [(3, 16), (15, 16), (20, 21), (255, 256), (1000, 256)] {
        assert_eq!(state::invocations([&svdf(memory, 0.5), &stateless]), invocations, "{memory}");
        assert_eq!(state::invocations([&stateless, &svdf(memory, 0.5)]), invocations, "{memory}");
    }
    let counter = counter(&["v"], Kept::Sum);
    assert_eq!(state::invocations([&counter, &counter]), 16);
}

#[test]
fn of_variables_with_equal_names_the_last_ones_are_added() {
    let variables = |count: usize| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", FLOAT, [4]);
        for _ in 0..count {
            let _ = graph.variable("state", FLOAT, [4]);
        }
        let y = unary(&mut graph, B::ABS, x);
        graph.outputs([y]);
        build(graph)
    };
    let (one, three) = (variables(1), variables(3));
    let added = state::Reset::of_added(&one, &three);
    assert_eq!(added.variables, [TensorId(2), TensorId(3)]);
    assert!(state::Added::between(&three, &one).first().is_none());
}

/// Replaces NEG by an SVDF.
struct AddsState;

impl PatternFusion for AddsState {
    fn name(&self) -> &str {
        "adds-state"
    }

    fn rewrite(&self, graph: &mut Rewriter<'_>, id: NodeId) -> Result<bool> {
        let Some(neg) = graph.node_of(id, B::NEG).cloned() else { return Ok(false) };
        let features = graph.new_constant("features", [2, 2], &[-1f32, 0.0, 0.0, -1.0]);
        let steps = graph.new_constant("steps", [2, 1], &[1f32, 1.0]);
        let state = graph.new_tensor(Tensor::new("memory", FLOAT, [1, 2]).into_variable());
        let inputs = [neg.input(0), Some(features), Some(steps), None, Some(state)];
        let params = SvdfParams::default().rank(1);
        graph.replace(id, &[id], Node::new(B::SVDF, 1, params, inputs, neg.outputs().to_vec()));
        Ok(true)
    }
}

#[test]
fn only_a_stateful_pipeline_adds_state() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", FLOAT, [1, 2]);
    let y = unary(&mut graph, B::NEG, x);
    graph.outputs([y]);
    let model = build(graph);
    let error = Pipeline::empty().pattern(AddsState).run(&model).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    let text =
        "the pass \"adds-state\" added variable \"memory\": only a pipeline with `stateful` may add state";
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!(ops_after(&Pipeline::empty().pattern(AddsState).stateful(), &model), ["SVDF"]);
}

#[test]
fn states_of_recurrent_ops_must_be_different_variables() {
    let model = |variable: bool, same: bool| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", FLOAT, [1, 2, 2]);
        let mut state = |name: &str| match variable {
            true => graph.variable(name, FLOAT, [1, 2]),
            false => graph.input(name, FLOAT, [1, 2]),
        };
        let (forward, other) = (state("forward"), state("backward"));
        let backward = if same { forward } else { other };
        let mut inputs = [Some(x); 12];
        (inputs[4], inputs[8]) = (Some(forward), Some(backward));
        let y = graph.tensor("y", FLOAT, [1, 2, 4]);
        let params = BidirectionalSequenceRnnParams::default().merge_outputs(true);
        graph.node(B::BIDIRECTIONAL_SEQUENCE_RNN, params).optional_inputs(inputs).writes([y]);
        graph.outputs([y]);
        build(graph)
    };
    let check = |model: &Model| state::check_operands(model, &BuiltinOpResolver::new());
    check(&model(true, false)).unwrap();
    for (model, text) in [
        (model(false, false), "invalid node: input 4 (\"forward\") must be a variable tensor"),
        (model(true, true), "invalid node: inputs 4 and 8 (\"forward\") must be different variable tensors"),
    ] {
        let error = check(&model).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(text), "{error}");
    }
}
