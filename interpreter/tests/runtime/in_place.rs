//! Elementwise nodes whose output overwrites an input: results stay the same with less memory.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::{Params, TensorType};
use delegraph_core::quantization::{Affine, Quantization};
use delegraph_core::{
    BuiltinOp, Element, Model, ModelBuilder, MutableOpResolver, Op, Registration, Result, SubgraphBuilder,
    TensorId,
};
use proptest::prelude::*;

use delegraph_interpreter::{Interpreter, InterpreterBuilder};

const ROWS: usize = 3;
const COLUMNS: usize = 50;
const ALL: usize = ROWS * COLUMNS;

/// The kind of a node, and the earlier tensors that it reads.
type Step = (u8, usize, usize);

/// Steps over one input. The outputs are all tensors without a consumer, and the tensor with index `also`.
fn model(ty: TensorType, steps: &[Step], also: usize) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let quantized = |graph: &mut SubgraphBuilder, id: TensorId| {
        if ty == TensorType::Int8 {
            let affine = Affine { scales: vec![0.05], zero_points: vec![3].into(), dimension: 0 };
            graph.quantize(id, Quantization::Affine(affine));
        }
    };
    let x = graph.input("x", ty, [ROWS, COLUMNS]);
    let row = match ty {
        TensorType::Int8 => {
            graph.constant("row", [COLUMNS], &(0..COLUMNS).map(|i| i as i8).collect::<Vec<_>>())
        }
        _ => graph.constant("row", [COLUMNS], &(0..COLUMNS).map(|i| i as f32 - 9.5).collect::<Vec<_>>()),
    };
    quantized(&mut graph, x);
    quantized(&mut graph, row);
    let (mut tensors, mut read) = (vec![x], vec![true]);
    for (n, &(op, a, b)) in steps.iter().enumerate() {
        let (a, b) = (a % tensors.len(), b % tensors.len());
        let y = graph.tensor(&format!("t{n}"), ty, [ROWS, COLUMNS]);
        quantized(&mut graph, y);
        read[a] = true;
        let inputs = match op % 8 {
            4 | 5 => {
                read[b] = true;
                vec![tensors[a], tensors[b]]
            }
            6 => vec![tensors[a], row],
            7 => vec![row, tensors[a]],
            _ => vec![tensors[a]],
        };
        let (op, params): (_, Params) = match op % 8 {
            0 => (BuiltinOp::RELU, Params::None),
            1 => (BuiltinOp::ABS, Params::None),
            2 => (BuiltinOp::HARD_SWISH, Params::None),
            3 => (
                BuiltinOp::RESHAPE,
                ReshapeParams::default().new_shape(vec![ROWS as i32, COLUMNS as i32]).into(),
            ),
            5 | 7 => (BuiltinOp::MUL, MulParams::default().into()),
            _ => (BuiltinOp::ADD, AddParams::default().into()),
        };
        graph.node(op, params).inputs(inputs).writes([y]);
        tensors.push(y);
        read.push(false);
    }
    let outputs = tensors.iter().zip(&read).enumerate();
    graph.outputs(outputs.filter(|(i, (_, read))| !**read || *i == also).map(|(_, (t, _))| *t));
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn build(model: Model, options: fn(InterpreterBuilder) -> InterpreterBuilder) -> Interpreter {
    options(Interpreter::builder(model).threads(2)).build().unwrap()
}

fn run<T: Element>(interpreter: &mut Interpreter, value: impl Fn(usize) -> T) -> Vec<Vec<u8>> {
    let input = interpreter.input_mut::<T>(0).unwrap();
    input.iter_mut().enumerate().for_each(|(i, x)| *x = value(i));
    interpreter.invoke().unwrap();
    (0..interpreter.output_count()).map(|i| interpreter.output_tensor(i).unwrap().bytes().to_vec()).collect()
}

/// Compares repeated runs with and without shared memory.
fn compare<T: Element>(ty: TensorType, steps: &[Step], also: usize, value: impl Fn(usize) -> T) {
    let mut shared = build(model(ty, steps, also), |b| b);
    let mut apart = build(model(ty, steps, also), InterpreterBuilder::preserve_all_tensors);
    for round in 0..3 {
        let value = |i| value(i + 7 * round);
        assert_eq!(run(&mut shared, value), run(&mut apart, value), "{steps:?}");
    }
    assert!(shared.memory().arena_bytes <= apart.memory().arena_bytes);
    assert_eq!(shared.memory().naive_bytes, apart.memory().naive_bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn nothing_is_overwritten_too_early(
        steps in prop::collection::vec((any::<u8>(), 0usize..1000, 0usize..1000), 1..20),
        // Mostly chains, in which lifetimes end immediately.
        near in any::<bool>(),
        also in 0usize..40,
    ) {
        let place = |at: usize, n: usize| if near { n - at % 2.min(n + 1) } else { at };
        let steps: Vec<Step> =
            steps.iter().enumerate().map(|(n, &(op, a, b))| (op, place(a, n), place(b, n))).collect();
        compare(TensorType::Float32, &steps, also, |i| (i % 31) as f32 / 8.0 - 2.0);
        compare(TensorType::Int8, &steps, also, |i| (i * 37 % 256) as u8 as i8);
    }
}

#[test]
fn chains_take_the_memory_of_one_tensor() {
    // RELU, ADD of a row, ABS, RESHAPE, HARD_SWISH; then ADD of the input.
    let steps = [(0, 0, 0), (6, 1, 0), (1, 2, 0), (3, 3, 0), (2, 4, 0), (4, 5, 0)];
    for (ty, size) in [(TensorType::Float32, 4), (TensorType::Int8, 1)] {
        let size = (size * ALL).next_multiple_of(64);
        let memory = build(model(ty, &steps, 0), |b| b).memory();
        // The input must keep its data for the caller.
        assert_eq!((memory.arena_bytes, memory.lower_bound_bytes), (2 * size, 2 * size));
        assert_eq!(memory.naive_bytes, 6 * size);
    }
}

#[test]
fn an_input_that_is_overwritten_is_not_handed_out() {
    struct Careless;
    impl Kernel for Careless {
        fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
            cx.may_overwrite(0);
            cx.set_output_shape(0, cx.input(0)?.shape().clone())
        }

        fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
            assert_eq!(cx.input_shape(0)?.elements(), ALL);
            assert!(cx.input_tensor(0).is_err());
            cx.output::<f32>(0)?.fill(1.0);
            cx.input::<f32>(0).map(drop)
        }
    }
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [ALL]);
    let y = graph.node(BuiltinOp::RELU, Params::None).inputs([x]).output("y");
    let z = graph.tensor("z", TensorType::Float32, [ALL]);
    graph.node(Op::Custom("careless".into()), Params::None).inputs([y]).writes([z]);
    graph.outputs([z]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut resolver = MutableOpResolver::extending(delegraph_interpreter::BuiltinOpResolver::new());
    resolver.add_custom("careless", Registration::new(|_| Ok(Careless)), 1);
    let mut interpreter = Interpreter::builder(model).resolver(resolver).build().unwrap();
    let error = interpreter.invoke().unwrap_err().to_string();
    assert!(error.contains("input 0 (\"y\") is overwritten by the output"), "{error}");
}

#[test]
fn both_operands_may_be_the_same_tensor() {
    let steps = [(0, 0, 0), (4, 1, 1), (3, 2, 0), (5, 2, 3), (7, 4, 0)];
    compare(TensorType::Float32, &steps, 40, |i| i as f32);
}
