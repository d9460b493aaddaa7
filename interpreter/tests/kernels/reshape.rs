//! Nodes whose output shares the memory of their input.

use delegraph_core::ops::Params;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::{BuiltinOp, ModelBuilder, SubgraphBuilder, TensorType};
use delegraph_interpreter::{Interpreter, ReferenceOpResolver};

#[test]
fn nodes_that_change_nothing_take_no_memory() {
    let build = |rows: i32, reference: bool| {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Int32, [1, 4, 1, 3]);
        let order = graph.constant("order", [4], &[1i32, 0, 3, 2]);
        let y = graph.node(BuiltinOp::TRANSPOSE, Params::None).inputs([x, order]).output("t0");
        let (begin, size) =
            (graph.constant("b", [4], &[0i32; 4]), graph.constant("s", [4], &[rows, -1, -1, -1]));
        let y = graph.node(BuiltinOp::SLICE, Params::None).inputs([y, begin, size]).output("t1");
        let params = ConcatenationParams::default().axis(0);
        let y = graph.node(BuiltinOp::CONCATENATION, params).inputs([y]).output("t2");
        let once = graph.constant("once", [4], &[1i32; 4]);
        let y = graph.node(BuiltinOp::TILE, Params::None).inputs([y, once]).output("t3");
        let axis = graph.constant("axis", [], &[0i32]);
        let y =
            graph.node(BuiltinOp::SPLIT, SplitParams::default().num_splits(1)).inputs([axis, y]).output("t4");
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        let builder = Interpreter::builder(model);
        if reference { builder.resolver(ReferenceOpResolver::new()) } else { builder }.build().unwrap()
    };
    for reference in [false, true] {
        for (rows, sizes) in [(-1, [12, 0]), (3, [12, 9])] {
            let mut interpreter = build(rows, reference);
            let bytes = |n: usize| (4 * n).next_multiple_of(64);
            assert_eq!(interpreter.memory().naive_bytes, bytes(sizes[0]) + bytes(sizes[1]), "{rows}");
            for round in 0..2 {
                let input: Vec<i32> = (round..round + 12).collect();
                interpreter.input_mut::<i32>(0).unwrap().copy_from_slice(&input);
                interpreter.invoke().unwrap();
                let count = if rows < 0 { 12 } else { 9 };
                assert_eq!(interpreter.output::<i32>(0).unwrap(), &input[..count]);
            }
        }
    }
}
