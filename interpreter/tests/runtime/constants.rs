//! The release of the memory of constants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use delegraph_core::graph::Backing;
use delegraph_core::kernel::{Placement, SharedWeights};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::shape::ShapeParams;
use delegraph_core::{BuiltinOp, Model, ModelBuilder, ModelBytes, Params, SubgraphBuilder, TensorId};
use half::f16;

use delegraph_interpreter::{Interpreter, InterpreterBuilder, ResourceLimits};

/// Weights in half precision with two products as consumers; with `added`, also an ADD.
fn model(added: bool) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [if added { 4 } else { 3 }, 4]);
    let halves: Vec<f16> = (0..16u8).map(|i| f16::from_f32(f32::from(i) / 4.0 - 2.0)).collect();
    let halves = graph.constant("halves", [4, 4], &halves);
    let weights = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([halves]).output("weights");
    let params = FullyConnectedParams::default();
    let mut y = graph.node(BuiltinOp::FULLY_CONNECTED, params.clone()).inputs([x, weights]).output("y");
    if added {
        let params = delegraph_core::ops::binary::AddParams::default();
        let z = graph.node(BuiltinOp::ADD, params).inputs([y, weights]).output("z");
        y = z;
    }
    let out = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([y, weights]).output("out");
    graph.outputs([out]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

fn placement(interpreter: &Interpreter, name: &str) -> Placement {
    let tensors = interpreter.model().subgraphs()[0].tensors();
    let id = tensors.iter().position(|t| t.name() == name).unwrap();
    interpreter.tensor(TensorId(id)).unwrap().placement()
}

fn run(interpreter: &mut Interpreter) -> Vec<f32> {
    let input = interpreter.input_mut::<f32>(0).unwrap();
    input.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 - 5.0);
    interpreter.invoke().unwrap();
    interpreter.output::<f32>(0).unwrap().to_vec()
}

fn build(model: Model, options: fn(InterpreterBuilder) -> InterpreterBuilder) -> Interpreter {
    options(Interpreter::builder(model)).build().unwrap()
}

#[test]
fn packed_weights_are_not_held_twice() {
    let mut released = build(model(false), |b| b);
    assert_eq!(placement(&released, "weights"), Placement::Released);
    let mut preserved = build(model(false), InterpreterBuilder::preserve_all_tensors);
    assert_eq!(placement(&preserved, "weights"), Placement::Constant);
    assert_eq!(released.memory().weights_bytes + 4 * 16, preserved.memory().weights_bytes);
    let mut reference =
        build(model(false), |b| b.resolver(delegraph_interpreter::ReferenceOpResolver::new()));
    assert_eq!(placement(&reference, "weights"), Placement::Constant);
    let expected = run(&mut reference);
    assert_eq!(run(&mut released), expected);
    assert_eq!(run(&mut preserved), expected);
    // Another shape needs the weights again.
    released.resize_input(0, &[1, 4]).unwrap();
    assert_eq!(run(&mut released), expected[..4]);
    assert_eq!(placement(&released, "weights"), Placement::Released);
}

/// A chain of products, each with `size` x `size` weights in half precision. With `reshaped`, the shape of their input
/// depends on data.
fn products(count: usize, size: usize, reshaped: bool) -> Model {
    let mut graph = SubgraphBuilder::new("main");
    let mut x = graph.input("x", TensorType::Float32, [1, size]);
    if reshaped {
        let shape = graph.input("shape", TensorType::Int32, [2]);
        let reshaped = graph.tensor("reshaped", TensorType::Float32, [1, size]);
        graph.node(BuiltinOp::RESHAPE, ReshapeParams::default()).inputs([x, shape]).writes([reshaped]);
        x = reshaped;
    }
    for layer in 0..count {
        let halves: Vec<f16> =
            (0..size * size).map(|i| f16::from_f32(((i * 7 + layer) % 5) as f32 / 64.0 - 0.03)).collect();
        let halves = graph.constant(&format!("halves {layer}"), [size, size], &halves);
        let weights = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([halves]);
        let weights = weights.output(&format!("weights {layer}"));
        let params = FullyConnectedParams::default();
        let product = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]);
        x = product.output(&format!("product {layer}"));
    }
    graph.outputs([x]);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

/// Returns whether all elements agree within 1e-4 of the second one, or of 1.
fn near(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| approx::abs_diff_eq!(*a, *b, epsilon = 1e-4 * b.abs().max(1.0)))
}

#[test]
fn weights_are_converted_one_by_one() {
    const SIZE: usize = 512;
    // Memory for the packed weights of four layers, the converted weights of one, and other data; the converted weights
    // of all layers do not fit.
    fn limited(builder: InterpreterBuilder) -> InterpreterBuilder {
        builder.limits(ResourceLimits::default().with_memory((4 + 1) * 4 * SIZE * SIZE + (1 << 20)))
    }
    let mut waiting = build(products(4, SIZE, false), limited);
    assert_eq!(placement(&waiting, "weights 3"), Placement::Released);
    let all = limited(Interpreter::builder(products(4, SIZE, false))).preserve_all_tensors().build();
    let error = all.expect_err("all converted weights are within the limit").to_string();
    assert!(error.contains("memory"), "{error}");
    let reference = &mut build(products(4, SIZE, false), |b| {
        b.resolver(delegraph_interpreter::ReferenceOpResolver::new())
    });
    let expected = run(reference);
    assert!(near(&run(&mut waiting), &expected));
    // Another shape needs the weights again, with other sizes of memory.
    waiting.resize_input(0, &[2, SIZE]).unwrap();
    assert!(near(&run(&mut waiting)[..SIZE], &expected));
}

#[test]
fn weights_behind_shapes_that_depend_on_data_are_converted_as_well() {
    let [mut optimized, mut reference] = [
        build(products(2, 256, true), |b| b),
        build(products(2, 256, true), |b| b.resolver(delegraph_interpreter::ReferenceOpResolver::new())),
    ];
    for interpreter in [&mut optimized, &mut reference] {
        interpreter.input_mut::<i32>(1).unwrap().copy_from_slice(&[1, 256]);
    }
    let (a, b) = (run(&mut optimized), run(&mut reference));
    assert_eq!(a.len(), 256);
    assert!(near(&a, &b));
}

#[test]
fn small_constants_are_read_from_copies() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [2000]);
    let small = graph.constant("small", [1], &[2.0f32]);
    let large = graph.constant("large", [2000], &[1.0f32; 2000]);
    let params = delegraph_core::ops::binary::AddParams::default();
    let y = graph.node(BuiltinOp::ADD, params.clone()).inputs([x, small]).output("y");
    let z = graph.node(BuiltinOp::ADD, params).inputs([y, large]).output("z");
    graph.outputs([z]);
    let mut interpreter = build(ModelBuilder::new().subgraph(graph).build().unwrap(), |b| b);
    let model = interpreter.model().clone();
    let tensors = model.subgraphs()[0].tensors();
    let in_file = |name: &str| {
        let id = TensorId(tensors.iter().position(|t| t.name() == name).unwrap());
        let file = model.constant(&tensors[id.0]).unwrap().as_ptr();
        std::ptr::eq(interpreter.tensor(id).unwrap().bytes().as_ptr(), file)
    };
    assert_eq!(["small", "large"].map(in_file), [false, true]);
    assert_eq!(run(&mut interpreter)[..2], [-2.0, -1.0]);
}

#[test]
fn what_a_kernel_still_reads_stays() {
    let [mut optimized, mut reference] = [
        build(model(true), |b| b),
        build(model(true), |b| b.resolver(delegraph_interpreter::ReferenceOpResolver::new())),
    ];
    assert_eq!(run(&mut optimized), run(&mut reference));
    assert_eq!(placement(&optimized, "weights"), Placement::Constant);
}

#[test]
fn interpreters_on_one_model_pack_once() {
    let model = Arc::new(model(false));
    let new = || Interpreter::builder(model.clone()).build().unwrap();
    let mut a = new();
    assert_eq!(model.extension::<SharedWeights>().count(), (2, 2));
    let mut b = new();
    assert_eq!(model.extension::<SharedWeights>().count(), (2, 4));
    let expected = run(&mut a);
    assert_eq!(run(&mut b), expected);
    // Another number of rows uses the same weights.
    a.resize_input(0, &[1, 4]).unwrap();
    assert_eq!(run(&mut a), expected[..4]);
    assert_eq!(model.extension::<SharedWeights>().count(), (2, 4));
    drop(a);
    assert_eq!(run(&mut b), expected);
    assert_eq!(Model::clone(&model).extension::<SharedWeights>().count(), (0, 0));
    drop(b);
    assert_eq!(model.extension::<SharedWeights>().count(), (0, 0));
}

#[test]
fn weights_that_depend_on_shapes_are_not_shared() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 2]);
    let shape = graph.node(BuiltinOp::SHAPE, ShapeParams::default().out_type(TensorType::Int32));
    let shape = shape.inputs([x]).output("shape");
    let weights = graph.tensor("weights", TensorType::Float32, [2]);
    graph.node(BuiltinOp::CAST, CastParams::default()).inputs([shape]).writes([weights]);
    let params = ReshapeParams::default().new_shape(vec![1, 2]);
    let weights = graph.node(BuiltinOp::RESHAPE, params).inputs([weights]).output("row");
    let params = FullyConnectedParams::default();
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]).output("y");
    graph.outputs([y]);
    let model = Arc::new(ModelBuilder::new().subgraph(graph).build().unwrap());
    let new = |rows: usize| {
        let mut interpreter = Interpreter::builder(model.clone()).build().unwrap();
        interpreter.resize_input(0, &[rows, 2]).unwrap();
        interpreter.input_mut::<f32>(0).unwrap().fill(1.0);
        interpreter.invoke().unwrap();
        interpreter
    };
    let (a, b) = (new(1), new(3));
    assert_eq!((a.output::<f32>(0).unwrap(), b.output::<f32>(0).unwrap()), (&[3.0][..], &[5.0; 3][..]));
    assert_eq!(model.extension::<SharedWeights>().count(), (0, 0));
}

#[test]
fn the_file_may_leave_memory_after_packing() {
    struct File(Vec<u8>, Arc<AtomicUsize>);
    impl AsRef<[u8]> for File {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Backing for File {
        fn release_pages(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let times = Arc::new(AtomicUsize::new(0));
    let file = File(model(false).to_bytes().unwrap(), times.clone());
    let model = Model::from_bytes(ModelBytes::backed(file)).unwrap();
    let mut interpreter = build(model, |b| b);
    assert_eq!(times.load(Ordering::Relaxed), 1);
    run(&mut interpreter);
    assert_eq!(times.load(Ordering::Relaxed), 1);
}
