//! Maximum rates of the machine, measured: a large matrix product for arithmetic, a copy for data movement.

use delegraph::core::ops::Padding;
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::{BuiltinOp, Model, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorType};
use delegraph::{Interpreter, ReferenceOpResolver};
use serde::Serialize;

use crate::cli::delegates::{Choice, Engine};
use crate::cli::failure::Failure;

/// Rates that kernels exceed at most slightly.
#[derive(Serialize)]
pub(super) struct Peak {
    /// The runner, as named in the lines of nodes.
    pub(super) runner: String,
    /// In float32.
    pub(super) multiply_adds_per_s: f64,
    /// In 8-bit integers, if the runner has kernels for them.
    pub(super) integer_multiply_adds_per_s: Option<f64>,
    pub(super) bytes_per_s: f64,
}

/// Number of copied floats: 16 MiB.
const COPIED: usize = 4 << 20;

/// Returns the peaks of the CPU kernels and of the delegates. A delegate that does not run the measured ops has none.
pub(super) fn measure(engine: &Engine) -> Result<Vec<Peak>, Failure> {
    let mut peaks = Vec::new();
    let delegates = engine.delegates.iter().filter(|c| !matches!(c, Choice::Cpu | Choice::Reference));
    for choice in std::iter::once(None).chain(delegates.map(Some)) {
        let name = choice.map_or_else(|| engine.cpu_name().to_owned(), Choice::name);
        let meter = Meter { engine, choice };
        peaks.extend(meter.peak(name)?);
    }
    Ok(peaks)
}

struct Meter<'e> {
    engine: &'e Engine,
    choice: Option<&'e Choice>,
}

impl Meter<'_> {
    fn peak(&self, runner: String) -> Result<Option<Peak>, Failure> {
        // A small product first: a large one takes reference kernels many seconds.
        let Some(small) = self.seconds(dense(256)?)? else { return Ok(None) };
        let size: usize = if small < 5e-3 { 1024 } else { 256 };
        let products = [self.seconds(dense(size)?)?, self.seconds(pointwise(size)?)?];
        let Some(product) = products.into_iter().flatten().reduce(f64::min) else { return Ok(None) };
        let Some(copy) = self.seconds(copy()?)? else { return Ok(None) };
        let rate = |seconds: f64| size.pow(3) as f64 / seconds;
        let integers = [self.seconds(quantized_dense(size)?)?, self.seconds(quantized_pointwise(size)?)?];
        Ok(Some(Peak {
            runner,
            multiply_adds_per_s: rate(product),
            integer_multiply_adds_per_s: integers.into_iter().flatten().reduce(f64::min).map(rate),
            bytes_per_s: (2 * 4 * COPIED) as f64 / copy,
        }))
    }

    /// Seconds of the best of several runs, measured on the device where it has timers. `None` if it does not run the model.
    fn seconds(&self, model: Model) -> Result<Option<f64>, Failure> {
        let mut builder = Interpreter::builder(model).threads(self.engine.threads);
        if self.engine.cpu_name() == "reference" {
            builder = builder.resolver(ReferenceOpResolver::new());
        }
        if let Some(delegate) = self.choice.map(|choice| choice.open_for(true)).transpose()?.flatten() {
            builder = builder.delegate(delegate);
        }
        let mut interpreter = builder.build()?;
        let report = interpreter.report();
        if self.choice.is_some() && report.delegated_nodes() < report.nodes.len() {
            return Ok(None);
        }
        match interpreter.input_tensor(0)?.ty {
            TensorType::Float32 => interpreter.input_mut::<f32>(0)?.fill(0.5),
            _ => interpreter.input_mut::<i8>(0)?.fill(5),
        }
        interpreter.invoke()?;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            interpreter.invoke()?;
            let elapsed = start.elapsed().as_secs_f64();
            let device = interpreter.delegate_stats().first().and_then(|s| s.device_time);
            best = best.min(device.map_or(elapsed, |time| time.as_secs_f64()));
        }
        Ok((best > 0.0).then_some(best))
    }
}

fn dense(size: usize) -> Result<Model, Failure> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [size, size]);
    let weights = graph.constant("", [size, size], &vec![0.01f32; size * size]);
    let params = FullyConnectedParams::default();
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]).output("");
    graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

fn pointwise(size: usize) -> Result<Model, Failure> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [1, 32, size / 32, size]);
    let weights = graph.constant("", [size, 1, 1, size], &vec![0.01f32; size * size]);
    let bias = graph.constant("", [size], &vec![0f32; size]);
    let params = Conv2DParams::default().padding(Padding::Valid).stride_w(1).stride_h(1);
    let y = graph.node(BuiltinOp::CONV_2D, params).inputs([x, weights, bias]).output("");
    graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

/// Returns the quantization of activations and weights: sums of 1024 products stay within the range of an output.
fn scale() -> Quantization {
    Quantization::per_tensor(0.05, 0)
}

fn quantized_dense(size: usize) -> Result<Model, Failure> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [size, size]);
    let weights = graph.constant("", [size, size], &vec![1i8; size * size]);
    for id in [x, weights] {
        graph.quantize(id, scale());
    }
    let params = FullyConnectedParams::default();
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]);
    let y = y.output_type(TensorType::Int8).output_quantization(Quantization::per_tensor(1.0, 0)).output("");
    graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

fn quantized_pointwise(size: usize) -> Result<Model, Failure> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [1, 32, size / 32, size]);
    let weights = graph.constant("", [size, 1, 1, size], &vec![1i8; size * size]);
    let bias = graph.constant("", [size], &vec![0i32; size]);
    for id in [x, weights] {
        graph.quantize(id, scale());
    }
    graph.quantize(bias, Quantization::per_tensor(0.05 * 0.05, 0));
    let params = Conv2DParams::default().padding(Padding::Valid).stride_w(1).stride_h(1);
    let y = graph.node(BuiltinOp::CONV_2D, params).inputs([x, weights, bias]);
    let y = y.output_type(TensorType::Int8).output_quantization(Quantization::per_tensor(1.0, 0)).output("");
    graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

fn copy() -> Result<Model, Failure> {
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [COPIED]);
    let y = graph.node(BuiltinOp::ABS, Params::None).inputs([x]).output("");
    graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}
