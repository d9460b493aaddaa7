//! Data without a result is the same error on the GPU and on the CPU. Skipped with a message on machines without an
//! adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use delegraph::core::ops::Activation;
use delegraph::core::ops::binary::DivParams;
use delegraph::core::ops::gather::GatherParams;
use delegraph::core::{BuiltinOp, Element, ModelBuilder, Params, Quantization, SubgraphBuilder};
use delegraph::delegate_api::Policy;
use delegraph::delegate_wgpu::WgpuDelegate;
use delegraph::{Interpreter, Model, TensorType};

/// An input tensor of the test.
struct Fed {
    ty: TensorType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn fed<E: Element>(shape: &[usize], values: &[E]) -> Fed {
    let bytes = values.iter().flat_map(|value| bytemuck::bytes_of(value).to_vec()).collect();
    Fed { ty: E::TYPE, shape: shape.to_vec(), bytes }
}

/// A node whose operands are inputs, except a shape in the last place.
struct Case {
    op: BuiltinOp,
    params: Params,
    operands: Vec<Fed>,
    shape: Option<Vec<i32>>,
    /// Whether operands and output are quantized, with a zero point of 1.
    quantized: bool,
}

fn case(op: BuiltinOp, operands: impl IntoIterator<Item = Fed>) -> Case {
    let operands = operands.into_iter().collect();
    Case { op, params: Params::None, operands, shape: None, quantized: false }
}

impl Case {
    fn model(&self) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let mut operands = Vec::new();
        for operand in &self.operands {
            let id = graph.input("operand", operand.ty, operand.shape.as_slice());
            if self.quantized {
                graph.quantize(id, Quantization::per_tensor(0.5, 1));
            }
            operands.push(id);
        }
        operands.extend(self.shape.as_ref().map(|shape| graph.constant("shape", [shape.len()], shape)));
        let node = graph.node(self.op, self.params.clone()).inputs(operands);
        let output = match self.quantized {
            true => node.output_quantization(Quantization::per_tensor(0.5, 1)).output("result"),
            false => node.output("result"),
        };
        graph.outputs([output]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }

    fn feed(&self, interpreter: &mut Interpreter) {
        for (i, operand) in self.operands.iter().enumerate() {
            interpreter.set_input_bytes(i, &operand.bytes).unwrap();
        }
    }

    fn run(&self, interpreter: &mut Interpreter) -> Result<Vec<u8>, String> {
        self.feed(interpreter);
        interpreter.invoke().map_err(|e| e.to_string())?;
        Ok(interpreter.output_tensor(0).unwrap().bytes().to_vec())
    }

    /// Returns an interpreter in which the delegate must run the node.
    fn on(&self, delegate: &WgpuDelegate) -> Interpreter {
        let builder = Interpreter::builder(self.model()).delegate(delegate.clone());
        builder.policy(Policy::Require).build().unwrap()
    }
}

/// Runs a node with valid data, with invalid data, and with valid data again.
#[track_caller]
fn check(delegate: &WgpuDelegate, valid: &Case, invalid: &Case, text: &str) {
    let mut cpu = Interpreter::builder(valid.model()).build().unwrap();
    let mut gpu = valid.on(delegate);
    let wanted = valid.run(&mut cpu).unwrap();
    assert_eq!(valid.run(&mut gpu).unwrap(), wanted);
    let error = invalid.run(&mut cpu).unwrap_err();
    assert!(error.ends_with(text), "{error}");
    assert_eq!(invalid.run(&mut gpu).unwrap_err(), error);
    assert_eq!(valid.run(&mut gpu).unwrap(), wanted, "after {error}");
}

fn gather(indices: [i32; 3]) -> Case {
    let operands = [fed(&[4, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), fed(&[3], &indices)];
    Case { params: GatherParams::default().axis(0).batch_dims(0).into(), ..case(BuiltinOp::GATHER, operands) }
}

#[test]
fn indices_out_of_range() {
    let Some(delegate) = gpu::delegate() else { return };
    let text = "index 4 is out of range for a dimension of 4";
    check(&delegate, &gather([3, 0, 2]), &gather([3, 4, -1]), text);
    let text = "index -1 is out of range for a dimension of 4";
    check(&delegate, &gather([3, 0, 2]), &gather([3, -1, 4]), text);
    let table = || fed(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
    let nd = |indices: [i32; 4]| case(BuiltinOp::GATHER_ND, [table(), fed(&[2, 2], &indices)]);
    let text = "index 3 is out of range for a dimension of 3";
    check(&delegate, &nd([0, 2, 1, 0]), &nd([0, 2, 1, 3]), text);
    let text = "index 2 is out of range for a dimension of 2";
    check(&delegate, &nd([0, 2, 1, 0]), &nd([0, 2, 2, 3]), text);
    let scatter = |indices: [i32; 2]| Case {
        shape: Some(vec![3]),
        ..case(BuiltinOp::SCATTER_ND, [fed(&[2, 1], &indices), fed(&[2], &[5.0f32, 6.0])])
    };
    check(&delegate, &scatter([2, 0]), &scatter([2, 3]), "index 3 is out of range for a dimension of 3");
    let lookup = |ids: [i32; 2]| case(BuiltinOp::EMBEDDING_LOOKUP, [fed(&[2], &ids), table()]);
    check(&delegate, &lookup([1, 0]), &lookup([1, 2]), "id 2 is out of range for 2 rows");
}

#[test]
fn divisors_powers_and_roots() {
    let Some(delegate) = gpu::delegate() else { return };
    let numbers = || fed(&[3], &[7i32, -7, 12]);
    let by = |op, b: [i32; 3]| case(op, [numbers(), fed(&[3], &b)]);
    let ops = [BuiltinOp::FLOOR_DIV, BuiltinOp::FLOOR_MOD];
    let ops = ops.into_iter().chain([BuiltinOp::STABLEHLO_DIVIDE, BuiltinOp::STABLEHLO_REMAINDER]);
    for op in ops {
        check(&delegate, &by(op, [2, -3, 5]), &by(op, [2, -3, 0]), "division by 0");
    }
    let div = |b| Case {
        params: DivParams::default().fused_activation_function(Activation::None).into(),
        ..by(BuiltinOp::DIV, b)
    };
    check(&delegate, &div([1, 2, 3]), &div([1, 0, 3]), "division by 0");
    let floats = |b: [f32; 2]| case(BuiltinOp::FLOOR_DIV, [fed(&[2], &[7.0f32, -7.0]), fed(&[2], &b)]);
    check(&delegate, &floats([2.0, -0.5]), &floats([2.0, -0.0]), "division by 0");
    let power = |b| by(BuiltinOp::POW, b);
    let text = "exponents of integers must not be negative";
    check(&delegate, &power([2, 3, 0]), &power([2, 3, -1]), text);
    let root = |op, values: [i8; 3]| Case { quantized: true, ..case(op, [fed(&[3], &values)]) };
    for op in [BuiltinOp::SQRT, BuiltinOp::RSQRT] {
        check(&delegate, &root(op, [1, 9, 100]), &root(op, [1, 0, 100]), "the root of a negative value");
    }
    let quotient = |b: [i8; 2]| Case {
        params: DivParams::default().fused_activation_function(Activation::None).into(),
        quantized: true,
        ..case(BuiltinOp::DIV, [fed(&[2], &[7i8, -7]), fed(&[2], &b)])
    };
    check(&delegate, &quotient([2, -3]), &quotient([2, 1]), "division by 0");
}

#[test]
fn the_delegate_stays_and_outputs_keep_their_values() {
    let Some(delegate) = gpu::delegate() else { return };
    let (valid, invalid) = (gather([3, 0, 2]), gather([3, 4, 2]));
    let builder = Interpreter::builder(valid.model()).delegate(delegate);
    let mut interpreter = builder.policy(Policy::Prefer).build().unwrap();
    let wanted = valid.run(&mut interpreter).unwrap();
    invalid.feed(&mut interpreter);
    // The data is invalid, and the delegate did not fail: the CPU would report the same error.
    assert!(interpreter.invoke_with_fallback().unwrap_err().is_invalid_data());
    assert_eq!(interpreter.report().partitions.len(), 1);
    assert_eq!(interpreter.output_tensor(0).unwrap().bytes(), wanted);
    assert_eq!(valid.run(&mut interpreter).unwrap(), wanted);
}

#[test]
fn outputs_on_the_device_are_checked_as_well() {
    let Some(delegate) = gpu::delegate() else { return };
    let (valid, invalid) = (gather([3, 0, 2]), gather([3, 4, 2]));
    let builder = Interpreter::builder(valid.model()).delegate(delegate);
    let mut interpreter = builder.policy(Policy::Require).keep_outputs().build().unwrap();
    valid.feed(&mut interpreter);
    interpreter.invoke().unwrap();
    interpreter.fetch_output(0).unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [7.0, 8.0, 1.0, 2.0, 5.0, 6.0]);
    invalid.feed(&mut interpreter);
    assert!(interpreter.invoke().unwrap_err().is_invalid_data());
}

#[test]
fn constants_that_are_invalid_stay_on_the_cpu() {
    let Some(delegate) = gpu::delegate() else { return };
    let mut graph = SubgraphBuilder::new("main");
    let updates = graph.input("updates", TensorType::Float32, [2]);
    let indices = graph.constant("indices", [2, 1], &[0i32, 3]);
    let shape = graph.constant("shape", [1], &[3i32]);
    let output =
        graph.node(BuiltinOp::SCATTER_ND, Params::None).inputs([indices, updates, shape]).output("y");
    graph.outputs([output]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut interpreter = Interpreter::builder(model).delegate(delegate).build().unwrap();
    assert!(interpreter.report().partitions.is_empty());
    let error = interpreter.invoke().unwrap_err().to_string();
    assert!(error.ends_with("index 3 is out of range for a dimension of 3"), "{error}");
}
