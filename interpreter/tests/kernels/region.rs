//! Nodes that combine elements by a subgraph of one op.

use delegraph_core::ops::binary::AddParams;
use delegraph_core::ops::reduce_window::StablehloReduceWindowParams;
use delegraph_core::ops::stablehlo_compute::StablehloReduceParams;
use delegraph_core::ops::stablehlo_gather::StablehloScatterParams;
use delegraph_core::ops::{Activation, Params};
use delegraph_core::{BuiltinOp, Model, ModelBuilder, Result, SubgraphBuilder, TensorType};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

/// A subgraph that applies `op` to its two scalars or, without an op, returns the second one.
fn region(op: Option<BuiltinOp>) -> SubgraphBuilder {
    let mut graph = SubgraphBuilder::new("region");
    let (a, b) = (graph.input("a", TensorType::Int32, []), graph.input("b", TensorType::Int32, []));
    let result = match op {
        Some(op) => graph.node(op, Params::None).inputs([b, a]).output("c"),
        None => b,
    };
    graph.outputs([result]);
    graph
}

/// Updates of [1, 2, 3, 4] at 3, 1, 7 and 3.
fn scatter(region: SubgraphBuilder) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int32, [4]);
    let indices = graph.constant("indices", [4], &[3i64, 1, 7, 3]);
    let updates = graph.constant("updates", [4], &[-1i32, -2, -3, 5]);
    let params = StablehloScatterParams::default()
        .inserted_window_dims(vec![0])
        .scatter_dims_to_operand_dims(vec![0])
        .index_vector_dim(1)
        .update_computation_subgraph_index(1);
    let y = graph.node(BuiltinOp::STABLEHLO_SCATTER, params).inputs([x, indices, updates]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
}

/// Combines windows by the region, over an input with ones between its elements and around them.
fn windows(region: SubgraphBuilder) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int32, [4]);
    let one = graph.constant("one", [], &[1i32]);
    let params = StablehloReduceWindowParams::default()
        .window_dimensions(vec![3])
        .window_strides(vec![2])
        .base_dilations(vec![2])
        .padding(vec![1, 1])
        .body_subgraph_index(1);
    let y = graph.node(BuiltinOp::STABLEHLO_REDUCE_WINDOW, params).inputs([x, one]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
}

/// Combines each column by the region, beginning with 10.
fn reduction(region: SubgraphBuilder) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int32, [2, 2]);
    let initial = graph.constant("initial", [], &[10i32]);
    let params = StablehloReduceParams::default().dimensions(vec![0]).body_subgraph_index(1);
    let y = graph.node(BuiltinOp::STABLEHLO_REDUCE, params).inputs([x, initial]).output("y");
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
}

fn run(model: Model) -> Result<Vec<i32>> {
    let mut interpreter = Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build()?;
    interpreter.input_mut::<i32>(0)?.copy_from_slice(&[1, 2, 3, 4]);
    interpreter.invoke()?;
    Ok(interpreter.output::<i32>(0)?.to_vec())
}

#[test]
fn elements_that_meet() {
    for (op, want) in [
        (None, [1, -2, 3, 5]),
        (Some(BuiltinOp::STABLEHLO_ADD), [1, 0, 3, 8]),
        (Some(BuiltinOp::STABLEHLO_MULTIPLY), [1, -4, 3, -20]),
        (Some(BuiltinOp::STABLEHLO_MAXIMUM), [1, 2, 3, 5]),
        (Some(BuiltinOp::MINIMUM), [1, -2, 3, -1]),
        (Some(BuiltinOp::STABLEHLO_AND), [1, 2, 3, 4]),
        (Some(BuiltinOp::STABLEHLO_OR), [1, -2, 3, -1]),
    ] {
        assert_eq!(run(scatter(region(op))).unwrap(), want, "{op:?}");
    }
    for (op, want) in [
        (BuiltinOp::STABLEHLO_ADD, [4, 5, 6, 7]),
        (BuiltinOp::MAXIMUM, [1, 2, 3, 4]),
        (BuiltinOp::STABLEHLO_AND, [1, 1, 1, 1]),
    ] {
        assert_eq!(run(windows(region(Some(op)))).unwrap(), want, "{op:?}");
    }
    for (op, want) in [
        (BuiltinOp::STABLEHLO_ADD, [14, 16]),
        (BuiltinOp::STABLEHLO_MINIMUM, [1, 2]),
        (BuiltinOp::STABLEHLO_OR, [11, 14]),
    ] {
        assert_eq!(run(reduction(region(Some(op)))).unwrap(), want, "{op:?}");
    }
}

#[test]
fn other_subgraphs_are_refused() {
    let e = run(scatter(region(Some(BuiltinOp::STABLEHLO_SUBTRACT)))).unwrap_err().to_string();
    assert!(e.contains("subgraph 1 combines elements by STABLEHLO_SUBTRACT"), "{e}");
    let mut first = SubgraphBuilder::new("region");
    let (a, _) = (first.input("a", TensorType::Int32, []), first.input("b", TensorType::Int32, []));
    first.outputs([a]);
    let e = run(scatter(first)).unwrap_err().to_string();
    assert!(e.contains("subgraph 1 combines elements by no op"), "{e}");
    let mut activated = SubgraphBuilder::new("region");
    let (a, b) = (activated.input("a", TensorType::Int32, []), activated.input("b", TensorType::Int32, []));
    let relu = AddParams::default().fused_activation_function(Activation::Relu);
    let c = activated.node(BuiltinOp::ADD, relu).inputs([a, b]).output("c");
    activated.outputs([c]);
    let e = run(scatter(activated)).unwrap_err().to_string();
    assert!(e.contains("subgraph 1 combines elements by ADD"), "{e}");
}
