//! The code of `docs/custom-ops.md` that is not in an example, and tests that the page shows compiled code.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // Clippy recognizes only `#[test]` functions as tests.

mod common;

use common::delegraph;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delegraph::core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph::core::ops::binary::AddParams;
use delegraph::core::{BuiltinOp, ModelBuilder, Quantization, SubgraphBuilder, Tensor, ensure, ensure_eq};
use delegraph::interpreter::{Profiler, StepEvent};
use delegraph::{
    BuiltinOpResolver, Error, Interpreter, Model, MutableOpResolver, Registration, Result, TensorType,
};

/// `y = Sin(x + 1)` over five floats.
fn sin_model() -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [5]);
    let offset = graph.constant("offset", [], &[1.0f32]);
    let sum = graph.node(BuiltinOp::ADD, AddParams::default()).inputs([x, offset]).output("sum");
    // The types and shapes of a custom op's outputs cannot be inferred, so the node writes an existing tensor.
    let y = graph.tensor("y", TensorType::Float32, [5]);
    graph.custom("Sin").version(1).inputs([sum]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build()
}

/// `y = x · factor`.
struct Scale {
    factor: f32,
    /// Scale and zero point of input and output, where they are INT8.
    quantization: Option<[(f32, i32); 2]>,
}

/// The factor is an option of the node: `{"factor": 2.5}` as a FlexBuffer map.
fn scale() -> Registration {
    Registration::new(|cx| {
        let options = cx.options()?;
        Ok(Scale { factor: options.get_or("factor", 1.0)?, quantization: None })
    })
}

/// The same with the factor as four bytes of options.
fn raw_scale() -> Registration {
    Registration::new(|cx| {
        let bytes: [u8; 4] = cx.custom_options.try_into().map_err(|_| {
            Error::InvalidNode(format!("{} bytes of options, wanted 4", cx.custom_options.len()))
        })?;
        Ok(Scale { factor: f32::from_le_bytes(bytes), quantization: None })
    })
}

impl Kernel for Scale {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(1, 1)?;
        ensure!(self.factor.is_finite(), "option \"factor\" is {}", self.factor);
        let input = cx.input(0)?.ensure_type(&[TensorType::Float32, TensorType::Int8])?;
        let output = cx.output(0)?;
        ensure_eq!(output.ty(), input.ty(), "the type of {}", output.describe());
        self.quantization = match input.ty() {
            TensorType::Int8 => Some([input.scale_zero_point()?, output.scale_zero_point()?]),
            _ => None,
        };
        let shape = input.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let Some([(in_scale, in_zero), (out_scale, out_zero)]) = self.quantization else {
            let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
            output.iter_mut().zip(input).for_each(|(y, x)| *y = x * self.factor);
            return Ok(());
        };
        // real = scale · (quantized − zero point)
        let (input, output) = (cx.input::<i8>(0)?, cx.output::<i8>(0)?);
        for (y, x) in output.iter_mut().zip(input) {
            let real = in_scale * (i32::from(*x) - in_zero) as f32 * self.factor;
            *y = ((real / out_scale).round() as i32).saturating_add(out_zero).clamp(-128, 127) as i8;
        }
        Ok(())
    }
}

/// Adds the first input to the second, a variable tensor, and returns the positive sums.
struct Accumulate;

impl Kernel for Accumulate {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(2, 1)?;
        let shape = cx.input(0)?.ensure_type(&[TensorType::Float32])?.shape().clone();
        cx.input(1)?.ensure_type(&[TensorType::Float32])?.ensure_shape(&shape)?;
        // The number of positive sums is known in `invoke` only.
        cx.set_output_data_dependent(0)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, sum) = (cx.input::<f32>(0)?, cx.variable::<f32>(1)?);
        sum.iter_mut().zip(input).for_each(|(s, x)| *s += x);
        let positive = || sum.iter().filter(|s| **s > 0.0);
        cx.resize_output(0, [positive().count()])?;
        cx.output::<f32>(0)?.iter_mut().zip(positive()).for_each(|(y, s)| *y = *s);
        Ok(())
    }
}

fn register(resolver: &mut MutableOpResolver) {
    resolver.add_custom("Scale", scale(), 1..=2);
    resolver.add_custom("RawScale", raw_scale(), ());
    // Writes a variable: its nodes keep their order.
    resolver.add_custom("Accumulate", Registration::new(|_| Ok(Accumulate)).with_side_effects(), ());
}

/// Records node and time of every step.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<(usize, Duration)>>>);

impl Profiler for Times {
    fn step(&mut self, event: &StepEvent<'_>) {
        // One node, or all those of a delegate's partition.
        if let ([node], Ok(mut times)) = (event.nodes, self.0.lock()) {
            times.push((node.0, event.duration));
        }
    }
}

fn time_of(interpreter: &mut Interpreter, node: usize) -> Result<Duration> {
    let times = Times::default();
    interpreter.set_profiler(Some(Box::new(times.clone())));
    (0..10).try_for_each(|_| interpreter.invoke())?;
    interpreter.set_profiler(None);
    let mut all: Vec<Duration> = match times.0.lock() {
        Ok(times) => times.iter().filter(|(n, _)| *n == node).map(|(_, time)| *time).collect(),
        Err(_) => Vec::new(),
    };
    all.sort();
    Ok(all.get(all.len() / 2).copied().unwrap_or_default())
}

/// A model of one node, to test a kernel in isolation.
fn one_node(op: &str, options: &[u8], input: Tensor, output: Tensor) -> Result<Model> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input(input.name(), input.ty(), input.shape());
    let y = graph.tensor(output.name(), output.ty(), output.shape());
    for (id, quantization) in [(x, input.quantization()), (y, output.quantization())] {
        if let Some(quantization) = quantization {
            graph.quantize(id, (*quantization).clone());
        }
    }
    graph.custom(op).options(options).inputs([x]).writes([y]);
    graph.outputs([y]);
    ModelBuilder::new().subgraph(graph).build()
}

#[test]
fn scales() {
    let mut builder = flexbuffers::Builder::default();
    let mut map = builder.start_map();
    map.push("factor", 2.5f32);
    map.end_map();
    let float = |name: &str| Tensor::new(name, TensorType::Float32, [2]);
    let model = one_node("Scale", builder.view(), float("x"), float("y")).unwrap();
    let mut interpreter = Interpreter::builder(model).resolver(resolver()).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&[1.0, -2.0]);
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [2.5, -5.0]);
}

fn resolver() -> MutableOpResolver {
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    register(&mut resolver);
    resolver
}

#[test]
fn scales_quantized_values_and_raw_options() {
    let quantized = |name: &str, scale: f32, zero_point: i64| {
        let mut tensor = Tensor::new(name, TensorType::Int8, [4]);
        tensor.set_quantization(Quantization::per_tensor(scale, zero_point));
        tensor
    };
    let (x, y) = (quantized("x", 0.5, 10), quantized("y", 0.25, -1));
    let model = one_node("RawScale", &2.0f32.to_le_bytes(), x, y).unwrap();
    let mut interpreter = Interpreter::builder(model).resolver(resolver()).build().unwrap();
    interpreter.input_mut::<i8>(0).unwrap().copy_from_slice(&[10, 12, 8, 127]);
    interpreter.invoke().unwrap();
    // 0, 1, −1 and 58.5, times two, in steps of a quarter.
    assert_eq!(interpreter.output::<i8>(0).unwrap(), [-1, 7, -9, 127]);
    let float = |name: &str| Tensor::new(name, TensorType::Float32, [2]);
    let error = Interpreter::builder(one_node("RawScale", b"raw", float("x"), float("y")).unwrap());
    let error = error.resolver(resolver()).build().err().unwrap().to_string();
    assert!(error.contains("3 bytes of options, wanted 4"), "{error}");
}

#[test]
fn accumulates_and_is_timed() {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [3]);
    let sum = graph.variable("sum", TensorType::Float32, [3]);
    let y = graph.tensor("y", TensorType::Float32, [3]);
    graph.custom("Accumulate").inputs([x, sum]).writes([y]);
    graph.outputs([y]);
    let model = ModelBuilder::new().subgraph(graph).build().unwrap();
    let mut interpreter = Interpreter::builder(model).resolver(resolver()).build().unwrap();
    interpreter.input_mut::<f32>(0).unwrap().copy_from_slice(&[1.0, -1.0, 0.5]);
    interpreter.invoke().unwrap();
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [2.0, 1.0]);
    interpreter.reset_variables().unwrap();
    interpreter.invoke().unwrap();
    assert_eq!(interpreter.output::<f32>(0).unwrap(), [1.0, 0.5]);
    assert!(time_of(&mut interpreter, 0).unwrap() > Duration::ZERO);
    assert_eq!(sin_model().unwrap().subgraphs()[0].nodes().len(), 2);
}

const PAGE: &str = include_str!("../docs/custom-ops.md");

/// All Rust, C, WGSL and Python on the page is in a file that is compiled and run.
#[test]
fn the_page_shows_what_is_tested() {
    let sources = [
        include_str!("custom_ops_guide.rs"),
        include_str!("../examples/custom_sin.rs"),
        include_str!("../examples/custom_sin.wgsl"),
        include_str!("../examples/kernels/src/lib.rs"),
        include_str!("../examples/kernels/Cargo.toml"),
        include_str!("../examples/kernels-c/sin.c"),
        include_str!("../scripts/make_sin_model.py"),
    ];
    let mut lines = PAGE.lines();
    let mut blocks = 0;
    while let Some(line) = lines.next() {
        if !["```rust", "```c", "```wgsl", "```python"].contains(&line) {
            continue;
        }
        let block = lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        assert!(sources.iter().any(|source| source.contains(&block)), "not tested:\n{block}");
        blocks += 1;
    }
    assert!(blocks > 10, "{blocks} blocks");
}

/// The command prints the output that is on the page.
#[test]
fn the_page_shows_what_is_printed() {
    let sin = "assets/custom/sin.tflite";
    let missing = delegraph(&["run", sin]).expect(3, "");
    let is_shown = |line: &&str| ["custom op", "at node", "help: "].iter().any(|part| line.contains(part));
    let shown: Vec<&str> = missing.stderr.lines().filter(is_shown).collect();
    assert_eq!(shown.len(), 3, "{}", missing.stderr);
    for line in shown {
        let line = line.trim_start_matches(['×', '│', '╰', '├', '─', '▶', ' ']);
        assert!(PAGE.contains(line.trim()), "{line}");
    }
}
