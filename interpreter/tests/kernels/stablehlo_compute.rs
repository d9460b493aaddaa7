//! Nodes that compare and combine elements by a subgraph of several nodes.

use delegraph_core::ops::stablehlo_compute::{StablehloReduceParams, StablehloSortParams};
use delegraph_core::ops::stablehlo_elementwise::StablehloCompareParams;
use delegraph_core::ops::{ComparisonDirection, ComparisonType, Params};
use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorId, TensorType};
use delegraph_interpreter::Interpreter;

/// A subgraph with scalar inputs that computes `a > b` of the first two FLOAT32 ones.
fn greater(types: &[TensorType]) -> (SubgraphBuilder, Vec<TensorId>, TensorId) {
    let mut graph = SubgraphBuilder::new("region");
    let inputs: Vec<TensorId> = types.iter().map(|&ty| graph.input("", ty, [])).collect();
    let floats: Vec<TensorId> =
        inputs.iter().zip(types).filter(|(_, ty)| **ty == TensorType::Float32).map(|(id, _)| *id).collect();
    let params = StablehloCompareParams::default()
        .comparison_direction(ComparisonDirection::Gt)
        .compare_type(ComparisonType::Float);
    let more = graph.node(BuiltinOp::STABLEHLO_COMPARE, params).inputs(floats).output("more");
    (graph, inputs, more)
}

const KEYS: [f32; 6] = [2.0, 3.0, 1.0, 3.0, 2.0, 3.0];

fn run(main: SubgraphBuilder, region: SubgraphBuilder) -> (Vec<f32>, Vec<i32>) {
    let model = ModelBuilder::new().subgraph(main).subgraph(region).build().unwrap();
    let mut interpreter = Interpreter::builder(model).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&KEYS);
    interpreter.input_mut::<i32>(1).unwrap().copy_from_slice(&[0, 1, 2, 3, 4, 5]);
    interpreter.invoke().unwrap();
    (interpreter.output(0).unwrap().to_vec(), interpreter.output(1).unwrap().to_vec())
}

#[test]
fn sorts_by_what_a_subgraph_says() {
    let sort = |shape: [usize; 2], dimension| {
        let mut main = SubgraphBuilder::new("main");
        let inputs =
            [main.input("keys", TensorType::Float32, shape), main.input("values", TensorType::Int32, shape)];
        let params =
            StablehloSortParams::default().dimension(dimension).is_stable(true).comparator_subgraph_index(1);
        let outputs = main.node(BuiltinOp::STABLEHLO_SORT, params).inputs(inputs).outputs(["k", "v"]);
        main.outputs(outputs);
        let (mut region, _, more) =
            greater(&[TensorType::Float32, TensorType::Float32, TensorType::Int32, TensorType::Int32]);
        region.outputs([more]);
        run(main, region)
    };
    assert_eq!(sort([1, 6], -1), (vec![3.0, 3.0, 3.0, 2.0, 2.0, 1.0], vec![1, 3, 5, 0, 4, 2]));
    assert_eq!(sort([3, 2], 0), (vec![2.0, 3.0, 2.0, 3.0, 1.0, 3.0], vec![0, 1, 4, 3, 2, 5]));
}

#[test]
fn reduces_as_a_subgraph_says() {
    // The largest of each row, and its value.
    let mut main = SubgraphBuilder::new("main");
    let inputs =
        [main.input("keys", TensorType::Float32, [2, 3]), main.input("values", TensorType::Int32, [2, 3])];
    let initial = [main.constant("low", [], &[0f32]), main.constant("none", [], &[-1i32])];
    let params = StablehloReduceParams::default().dimensions(vec![1]).body_subgraph_index(1);
    let outputs = [main.tensor("k", TensorType::Float32, [2]), main.tensor("v", TensorType::Int32, [2])];
    main.node(BuiltinOp::STABLEHLO_REDUCE, params).inputs([inputs, initial].concat()).writes(outputs);
    main.outputs(outputs);
    let (mut region, inputs, more) =
        greater(&[TensorType::Float32, TensorType::Int32, TensorType::Float32, TensorType::Int32]);
    let picked = [0, 1].map(|i| {
        let pick = [more, inputs[i], inputs[i + 2]];
        region.node(BuiltinOp::STABLEHLO_SELECT, Params::None).inputs(pick).output("picked")
    });
    region.outputs(picked);
    assert_eq!(run(main, region), (vec![3.0, 3.0], vec![1, 5]));
}
