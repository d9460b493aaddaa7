//! Nodes that call subgraphs, and variables shared between them.

use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::control_flow::{
    CallOnceParams, CallParams, IfParams, StableHloCompositeParams, StablehloCaseParams,
    StablehloWhileParams, WhileParams,
};
use delegraph_core::ops::svdf::SvdfParams;
use delegraph_core::ops::variables::VarHandleParams;
use delegraph_core::ops::{Activation, Params};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, ModelBuilder, Result, SubgraphBuilder, TensorId, TensorType};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

/// A subgraph over tensors of one element; tensors with a number are constants.
struct Graph(SubgraphBuilder);

impl Graph {
    fn new(tensors: &[(TensorType, Option<i32>)], inputs: &[usize], outputs: &[usize]) -> Self {
        let mut graph = SubgraphBuilder::new("");
        for (i, &(ty, value)) in tensors.iter().enumerate() {
            match value {
                Some(value) => graph.constant("", [1], &[value]),
                None if inputs.contains(&i) => graph.input("", ty, [1]),
                None => graph.tensor("", ty, [1]),
            };
        }
        graph.outputs(outputs.iter().copied().map(TensorId));
        Graph(graph)
    }

    fn node(mut self, op: BuiltinOp, params: Params, inputs: &[usize], outputs: &[usize]) -> Self {
        let ids = |ids: &[usize]| ids.iter().copied().map(TensorId).collect::<Vec<_>>();
        self.0.node(op, params).inputs(ids(inputs)).writes(ids(outputs));
        self
    }
}

fn interpreter(graphs: Vec<Graph>) -> Result<Interpreter> {
    let model = graphs.into_iter().fold(ModelBuilder::new(), |model, graph| model.subgraph(graph.0));
    Interpreter::builder(model.build()?).resolver(ReferenceOpResolver::new()).build()
}

fn run(interpreter: &mut Interpreter, input: Option<i32>) -> Result<i32> {
    if let Some(input) = input {
        interpreter.input_bytes_mut(0)?.copy_from_slice(&input.to_le_bytes());
    }
    interpreter.invoke()?;
    Ok(interpreter.output_tensor(0)?.elements::<i32>()?[0])
}

fn add() -> Params {
    Params::Add(AddParams::default().fused_activation_function(Activation::None).pot_scale_int16(false))
}

use TensorType::{Bool as B, Int32 as I, Resource as R};

/// `x + 1`
fn increment() -> Graph {
    Graph::new(&[(I, None), (I, Some(1)), (I, None)], &[0], &[2]).node(BuiltinOp::ADD, add(), &[0, 1], &[2])
}

/// `x + x`
fn double() -> Graph {
    Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::ADD, add(), &[0, 0], &[1])
}

/// `x < 5`
fn below_five() -> Graph {
    let graph = Graph::new(&[(I, None), (I, Some(5)), (B, None)], &[0], &[2]);
    graph.node(BuiltinOp::LESS, Params::None, &[0, 1], &[2])
}

#[test]
fn loops_while_the_condition_holds() {
    let params = Params::While(WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2));
    let stablehlo = StablehloWhileParams::default().cond_subgraph_index(1).body_subgraph_index(2).into();
    for (op, params) in [(BuiltinOp::WHILE, params), (BuiltinOp::STABLEHLO_WHILE, stablehlo)] {
        let main = Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(op, params, &[0], &[1]);
        let mut interpreter = interpreter(vec![main, below_five(), increment()]).unwrap();
        for (from, to) in [(-2, 5), (7, 7), (4, 5)] {
            assert_eq!(run(&mut interpreter, Some(from)).unwrap(), to);
        }
    }
}

#[test]
fn takes_one_branch() {
    let params = Params::If(IfParams::default().then_subgraph_index(1).else_subgraph_index(2));
    let tensors = [(I, None), (I, Some(5)), (B, None), (I, None)];
    let main = Graph::new(&tensors, &[0], &[3]).node(BuiltinOp::LESS, Params::None, &[0, 1], &[2]).node(
        BuiltinOp::IF,
        params,
        &[2, 0],
        &[3],
    );
    let mut interpreter = interpreter(vec![main, increment(), double()]).unwrap();
    assert_eq!(run(&mut interpreter, Some(4)).unwrap(), 5);
    assert_eq!(run(&mut interpreter, Some(6)).unwrap(), 12);
}

#[test]
fn an_index_selects_a_branch() {
    let case =
        |branches: &[i32]| StablehloCaseParams::default().branch_subgraph_indices(branches.to_vec()).into();
    let main = |branches| {
        let graph = Graph::new(&[(I, None), (I, Some(5)), (I, None)], &[0], &[2]);
        graph.node(BuiltinOp::STABLEHLO_CASE, case(branches), &[0, 1], &[2])
    };
    let mut two = interpreter(vec![main(&[2, 1]), increment(), double()]).unwrap();
    for (index, want) in [(0, 10), (1, 6), (2, 6), (-1, 6)] {
        assert_eq!(run(&mut two, Some(index)).unwrap(), want, "index {index}");
    }
    let e = interpreter(vec![main(&[])]).and_then(|mut i| run(&mut i, Some(1))).unwrap_err().to_string();
    assert!(e.ends_with("the node has 0 branches"), "{e}");
    let e = interpreter(vec![main(&[1]), below_five()]).and_then(|mut i| run(&mut i, Some(1)));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("subgraph 1 returns BOOL for an output of INT32"), "{e}");
}

/// A shape that depends on a condition is updated in every run.
#[test]
fn shapes_follow_what_runs() {
    let mut main = SubgraphBuilder::new("main");
    let (condition, x) = (main.input("condition", B, []), main.input("x", I, [2]));
    main.resizable(x, [None]);
    let (y, z) = (main.tensor("y", I, [1]), main.tensor("z", I, [1]));
    let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
    main.node(BuiltinOp::IF, params).inputs([condition, x]).writes([y]);
    main.node(BuiltinOp::ADD, add()).inputs([y, y]).writes([z]);
    main.outputs([z]);
    let mut same = SubgraphBuilder::new("same");
    let x = same.input("x", I, [2]);
    same.outputs([x]);
    let mut twice = SubgraphBuilder::new("twice");
    let x = twice.input("x", I, [2]);
    let y = twice.node(BuiltinOp::CONCATENATION, ConcatenationParams::default()).inputs([x, x]).output("y");
    twice.outputs([y]);
    let model = ModelBuilder::new().subgraph(main).subgraph(same).subgraph(twice).build().unwrap();
    let mut interpreter = Interpreter::builder(model).build().unwrap();
    for x in [&[1, 2][..], &[3, 4, 5], &[6]] {
        interpreter.resize_input(1, &[x.len()]).unwrap();
        for condition in [true, false, true] {
            interpreter.input_mut::<Bool>(0).unwrap()[0] = condition.into();
            interpreter.input_mut::<i32>(1).unwrap().copy_from_slice(x);
            interpreter.invoke().unwrap();
            let want: Vec<i32> = x.iter().map(|v| 2 * v).collect();
            let want = if condition { want } else { want.repeat(2) };
            assert_eq!(interpreter.output::<i32>(0).unwrap(), want, "{condition} {x:?}");
        }
    }
}

#[test]
fn composites_run_what_they_are_made_of() {
    let composite = |decomposition_subgraph_index| {
        StableHloCompositeParams::default().decomposition_subgraph_index(decomposition_subgraph_index).into()
    };
    // (x + 1) + (x + 1), in a subgraph that calls another one.
    let middle = Graph::new(&[(I, None), (I, None), (I, None)], &[0], &[2])
        .node(BuiltinOp::STABLEHLO_COMPOSITE, composite(2), &[0], &[1])
        .node(BuiltinOp::ADD, add(), &[1, 1], &[2]);
    let main = |op, params| Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(op, params, &[0], &[1]);
    let call = CallParams::default().subgraph(1).into();
    let mut nested = interpreter(vec![main(BuiltinOp::CALL, call), middle, increment()]).unwrap();
    assert_eq!(run(&mut nested, Some(3)).unwrap(), 8);
    let main = |callee| main(BuiltinOp::STABLEHLO_COMPOSITE, composite(callee));
    for (callee, other) in [(0, 1), (1, 0), (1, 1)] {
        let e = interpreter(vec![main(callee), main(other)]).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains("calls itself, directly or through others"), "{e}");
    }
    let e = interpreter(vec![main(7)]).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(e.contains("calls subgraph 7, which does not exist"), "{e}");
}

#[test]
fn variables_are_initialized_once_and_keep_their_value() {
    let handle =
        || Params::VarHandle(VarHandleParams::default().container("".into()).shared_name("count".into()));
    let tensors = [(R, None), (I, None), (I, Some(1)), (I, None)];
    let main = |once| {
        let graph = Graph::new(&tensors, &[], &[3]);
        let once = Params::CallOnce(CallOnceParams::default().init_subgraph_index(once));
        graph
            .node(BuiltinOp::CALL_ONCE, once, &[], &[])
            .node(BuiltinOp::VAR_HANDLE, handle(), &[], &[0])
            .node(BuiltinOp::READ_VARIABLE, Params::None, &[0], &[1])
            .node(BuiltinOp::ADD, add(), &[1, 2], &[3])
            .node(BuiltinOp::ASSIGN_VARIABLE, Params::None, &[0, 3], &[])
    };
    let five = Graph::new(&[(R, None), (I, Some(5))], &[], &[])
        .node(BuiltinOp::VAR_HANDLE, handle(), &[], &[0])
        .node(BuiltinOp::ASSIGN_VARIABLE, Params::None, &[0, 1], &[]);
    let nothing = Graph::new(&[], &[], &[]);
    let mut counting = interpreter(vec![main(1), five]).unwrap();
    for want in [6, 7, 8] {
        assert_eq!(run(&mut counting, None).unwrap(), want);
    }
    let e = run(&mut interpreter(vec![main(1), nothing]).unwrap(), None).unwrap_err();
    assert!(
        e.to_string().ends_with("the variable has no value yet")
            && e.to_string().contains("node 2 (READ_VARIABLE v1, writes "),
        "{e}"
    );
}

/// Stores its input, and returns its sum with the previous one.
fn filter(graph: &mut SubgraphBuilder, x: TensorId) -> TensorId {
    let features = graph.constant("features", [1, 1], &[1f32]);
    let times = graph.constant("times", [1, 2], &[1f32, 1.0]);
    let state = graph.variable("state", TensorType::Float32, [1, 2]);
    let params = SvdfParams::default().rank(1);
    graph
        .node(BuiltinOp::SVDF, params)
        .optional_inputs([Some(x), Some(features), Some(times), None, Some(state)])
        .output("y")
}

#[test]
fn called_subgraphs_remember_for_one_call() {
    let float = |graph: &mut SubgraphBuilder| graph.input("x", TensorType::Float32, [1, 1]);
    let mut callee = SubgraphBuilder::new("callee");
    let x = float(&mut callee);
    let y = filter(&mut callee, x);
    callee.outputs([y]);
    let mut main = SubgraphBuilder::new("main");
    let x = float(&mut main);
    let y = main.tensor("y", TensorType::Float32, [1, 1]);
    main.node(BuiltinOp::CALL, CallParams::default().subgraph(1)).inputs([x]).writes([y]);
    main.outputs([y]);
    let called = ModelBuilder::new().subgraph(main).subgraph(callee).build().unwrap();
    // A loop of three passes.
    let (mut main, mut condition, mut body) =
        (SubgraphBuilder::new("main"), SubgraphBuilder::new("condition"), SubgraphBuilder::new("body"));
    let x = float(&mut main);
    let zero = main.constant("zero", [], &[0i32]);
    let ends = [main.tensor("y", TensorType::Float32, [1, 1]), main.tensor("i", I, [])];
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    main.node(BuiltinOp::WHILE, params).inputs([x, zero]).writes(ends);
    main.outputs(ends);
    float(&mut condition);
    let (i, three) = (condition.input("i", I, []), condition.constant("three", [], &[3i32]));
    let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, three]).output("more");
    condition.outputs([more]);
    let x = float(&mut body);
    let (i, one) = (body.input("i", I, []), body.constant("one", [], &[1i32]));
    let y = filter(&mut body, x);
    let next = body.node(BuiltinOp::ADD, add()).inputs([i, one]).output("next");
    body.outputs([y, next]);
    let looped = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap();
    for (model, want) in [(called, 1.0), (looped, 3.0)] {
        let mut interpreter = Interpreter::builder(model).build().unwrap();
        for _ in 0..2 {
            interpreter.input_mut::<f32>(0).unwrap()[0] = 1.0;
            interpreter.invoke().unwrap();
            assert_eq!(interpreter.output::<f32>(0).unwrap(), [want]);
        }
    }
}

#[test]
fn callees_must_fit() {
    let params = Params::While(WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2));
    let main = Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::WHILE, params, &[0], &[1]);
    let e = interpreter(vec![main, increment(), increment()]).and_then(|mut i| run(&mut i, Some(1)));
    let e = e.unwrap_err().to_string();
    assert!(e.contains("the condition must be one BOOL, got INT32 [1]"), "{e}");
}
