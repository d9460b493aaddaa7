//! Kernels whose invocations loop over many elements give the results of the CPU, or their nodes are left to it: Mesa's
//! software adapter ends the loops of an invocation after 65,535 iterations, without an error. Skipped with a message
//! on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use delegraph::core::ops::batch_matmul::BatchMatMulParams;
use delegraph::core::ops::cumsum::CumsumParams;
use delegraph::core::ops::reduce::ReducerParams;
use delegraph::core::ops::softmax::SoftmaxParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Params, SubgraphBuilder};
use delegraph::{Interpreter, Model, TensorType};

/// A node whose operands are float inputs, then constants.
struct Case {
    op: BuiltinOp,
    params: Params,
    inputs: Vec<Vec<usize>>,
    /// Index tuples of SCATTER_ND, before the inputs.
    indices: Option<Vec<i32>>,
    /// The last operand, a list or a scalar.
    list: Option<(Vec<i32>, bool)>,
}

impl Case {
    fn new(op: BuiltinOp, params: impl Into<Params>, inputs: &[&[usize]]) -> Self {
        let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
        Case { op, params: params.into(), inputs, indices: None, list: None }
    }

    fn list(self, list: &[i32]) -> Self {
        Case { list: Some((list.to_vec(), false)), ..self }
    }

    fn scalar(self, scalar: i32) -> Self {
        Case { list: Some((vec![scalar], true)), ..self }
    }

    fn model(&self) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let mut operands = Vec::new();
        if let Some(indices) = &self.indices {
            operands.push(graph.constant("indices", [indices.len(), 1], indices));
        }
        for shape in &self.inputs {
            operands.push(graph.input("operand", TensorType::Float32, shape.as_slice()));
        }
        if let Some((list, is_scalar)) = &self.list {
            let shape = if *is_scalar { vec![] } else { vec![list.len()] };
            operands.push(graph.constant("list", shape.as_slice(), list));
        }
        let output = graph.node(self.op, self.params.clone()).inputs(operands).output("result");
        graph.outputs([output]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }

    /// Runs on small integers, whose sums are exact in any order, and returns output 0.
    fn run(&self, interpreter: &mut Interpreter) -> Vec<f32> {
        for (i, shape) in self.inputs.iter().enumerate() {
            let values: Vec<f32> =
                (0..shape.iter().product()).map(|n: usize| ((n * 7919 + i) % 13) as f32 - 6.0).collect();
            interpreter.set_input_bytes(i, bytemuck::cast_slice(&values)).unwrap();
        }
        interpreter.invoke().unwrap();
        bytemuck::pod_collect_to_vec(interpreter.output_tensor(0).unwrap().bytes())
    }
}

#[test]
fn loops_are_complete_or_left_to_the_cpu() {
    let Some(delegate) = gpu::delegate() else { return };
    let reduce = |op, shape: &[usize]| {
        Case::new(op, ReducerParams::default(), &[shape]).list(&[if shape[0] == 3 { 1 } else { 0 }])
    };
    let scatter = |updates: usize, elements: i32| {
        let indices = (0..updates).map(|n| (n as i32 * 31) % elements).collect();
        let case = Case::new(BuiltinOp::SCATTER_ND, Params::None, &[&[updates]]).list(&[elements]);
        Case { indices: Some(indices), ..case }
    };
    let softmax =
        |shape: &[usize]| Case::new(BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(1.0), &[shape]);
    let sums = |shape: &[usize]| Case::new(BuiltinOp::CUMSUM, CumsumParams::default(), &[shape]).scalar(1);
    let product = |depth: usize| {
        Case::new(BuiltinOp::BATCH_MATMUL, BatchMatMulParams::default(), &[&[3, depth], &[depth, 5]])
    };
    // With the iterations of an invocation on a software adapter.
    let within = [
        reduce(BuiltinOp::SUM, &[60_000, 20]),        // 60,000
        reduce(BuiltinOp::SUM, &[3, 1_000_000]),      // 7,813: 32 invocations share a row, in vectors of four
        reduce(BuiltinOp::REDUCE_MAX, &[60_000, 20]), // 60,000
        scatter(5_000, 50_000),                       // 5,000 for each of 13 elements, at most
        sums(&[40, 1_500]),                           // 1,500
        product(200_000),                             // 50,000
        softmax(&[2, 60_000]),                        // 60,000
    ];
    let beyond = [
        reduce(BuiltinOp::SUM, &[140_000, 20]),
        reduce(BuiltinOp::REDUCE_MIN, &[140_000, 20]),
        scatter(70_000, 64),
        sums(&[2, 70_000]),
        product(300_000),
        softmax(&[2, 120_000]),
    ];
    for (case, fits) in within.iter().map(|c| (c, true)).chain(beyond.iter().map(|c| (c, false))) {
        let name = format!("{:?} {:?}", case.op, case.inputs);
        let mut cpu = Interpreter::builder(case.model()).build().unwrap();
        let mut gpu = Interpreter::builder(case.model()).delegate(delegate.clone()).build().unwrap();
        let claimed = gpu.report().delegated_nodes() == 1;
        assert!(claimed || !fits, "{name}: not claimed");
        let (wanted, results) = (case.run(&mut cpu), case.run(&mut gpu));
        assert_eq!(results.len(), wanted.len(), "{name}");
        for (i, (result, wanted)) in results.iter().zip(&wanted).enumerate() {
            let close = approx::relative_eq!(result, wanted, max_relative = 1e-4);
            assert!(close, "{name}: element {i} is {result}, expected {wanted}");
        }
    }
}
