//! Models of one layer, and the time of each; `scripts/bench_layers.py` compares the times with LiteRT's.
//!
//! `layers draw DIR SEED COUNT` writes COUNT layers of random shapes and types, `layers nets DIR SEED COUNT` small
//! nets. `layers extract DIR MODEL…` writes the distinct nodes of models whose shapes are known. `layers time THREADS
//! SECONDS MODEL…` prints, for each model, the shortest time of an invocation in microseconds. `layers first THREADS
//! RUNS MODEL…` prints the shortest times from the file to the first result, and of loading, preparing and the first
//! invocation. `layers invoke RUNS MODEL` runs a model with one thread, whose executed instructions
//! `scripts/count_instructions.py` counts, and prints the sum of each output.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delegraph_core::graph::{Tensor, TensorId};
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::resize::ResizeBilinearParams;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::{Activation, Padding, Params};
use delegraph_core::quantization::Affine;
use delegraph_core::{
    BuiltinOp, Model, ModelBuilder, ModelBytes, Quantization, Shape, SubgraphBuilder, TensorType,
};
use delegraph_interpreter::Interpreter;

#[path = "layers/nets.rs"]
mod nets;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["draw", folder, seed, count] => draw(Path::new(folder), seed, count),
        ["nets", folder, seed, count] => nets::draw(Path::new(folder), seed, count),
        ["extract", folder, ref models @ ..] => extract(Path::new(folder), models),
        ["time", threads, seconds, ref models @ ..] => time(threads, seconds, models),
        ["first", threads, runs, ref models @ ..] => first(threads, runs, models),
        ["invoke", runs, model] => invoke(runs, model),
        _ => Err("usage: layers draw DIR SEED COUNT | nets DIR SEED COUNT | extract DIR MODEL… | time THREADS SECONDS MODEL… \
                  | first THREADS RUNS MODEL… | invoke RUNS MODEL"
            .into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.draw() % all.len() as u64) as usize]
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.draw() >> 56) as u8).collect()
    }

    fn floats(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| ((self.draw() >> 40) as f32 * 2f32.powi(-23) - 1.0) * scale).collect()
    }
}

/// The types of a layer's activations and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    F16,
    Int8,
    Int8PerTensor,
    UInt8,
    Int16,
    Dynamic,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::F32, Kind::F16, Kind::Int8, Kind::Int8PerTensor, Kind::UInt8, Kind::Int16, Kind::Dynamic];

    fn activations(self) -> TensorType {
        match self {
            Kind::F32 | Kind::F16 | Kind::Dynamic => TensorType::Float32,
            Kind::Int8 | Kind::Int8PerTensor => TensorType::Int8,
            Kind::UInt8 => TensorType::UInt8,
            Kind::Int16 => TensorType::Int16,
        }
    }

    fn quantization(self, scale: f32) -> Option<Quantization> {
        match self.activations() {
            TensorType::Int8 => Some(Quantization::per_tensor(scale, -3)),
            TensorType::UInt8 => Some(Quantization::per_tensor(scale, 125)),
            TensorType::Int16 => Some(Quantization::per_tensor(scale / 256.0, 0)),
            _ => None,
        }
    }
}

/// A model under construction.
struct Layer {
    graph: SubgraphBuilder,
    kind: Kind,
    random: Random,
}

impl Layer {
    fn input(&mut self, shape: &[usize]) -> TensorId {
        let id = self.graph.input("x", self.kind.activations(), Shape::from(shape));
        quantize(&mut self.graph, id, self.kind.quantization(0.05));
        id
    }

    /// Weights whose channels run along `dimension`.
    fn weights(&mut self, shape: &[usize], dimension: usize) -> TensorId {
        let len = shape.iter().product();
        let (channels, shape) = (shape[dimension], Shape::from(shape));
        let per_channel = Affine {
            scales: (0..channels).map(|c| 0.004 + 0.0001 * (c % 17) as f32).collect(),
            zero_points: vec![0; channels].into(),
            dimension,
        };
        let (ty, quantization) = match self.kind {
            Kind::F32 => {
                let values = self.random.floats(len, 0.3);
                return self.graph.constant("w", shape, &values);
            }
            Kind::F16 => {
                let values: Vec<u16> =
                    self.random.floats(len, 0.3).iter().map(|&x| half::f16::from_f32(x).to_bits()).collect();
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                let id = self.graph.constant_bytes("w", TensorType::Float16, shape, &bytes);
                return self.graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([id]).output("wf");
            }
            Kind::UInt8 => (TensorType::UInt8, Quantization::per_tensor(0.005, 121)),
            Kind::Int8PerTensor => (TensorType::Int8, Quantization::per_tensor(0.005, 0)),
            Kind::Int8 | Kind::Int16 | Kind::Dynamic => (TensorType::Int8, Quantization::Affine(per_channel)),
        };
        let bytes: Vec<u8> = self
            .random
            .bytes(len)
            .iter()
            .map(|&b| if b == 128 && ty == TensorType::Int8 { 0 } else { b })
            .collect();
        let id = self.graph.constant_bytes("w", ty, shape, &bytes);
        self.graph.quantize(id, quantization);
        id
    }

    fn bias(&mut self, weights: TensorId, len: usize) -> TensorId {
        match self.kind {
            Kind::F32 | Kind::F16 | Kind::Dynamic => {
                let values = self.random.floats(len, 1.0);
                self.graph.constant("b", [len], &values)
            }
            Kind::Int16 => {
                let values: Vec<i64> = (0..len).map(|i| 300 * (i as i64 % 7 - 3)).collect();
                let id = self.graph.constant("b", [len], &values);
                self.bias_scale(id, weights, 0.05 / 256.0);
                id
            }
            _ => {
                let values: Vec<i32> = (0..len).map(|i| 300 * (i as i32 % 7 - 3)).collect();
                let id = self.graph.constant("b", [len], &values);
                self.bias_scale(id, weights, 0.05);
                id
            }
        }
    }

    fn bias_scale(&mut self, bias: TensorId, weights: TensorId, input: f32) {
        let mut quantization = None;
        self.graph.change(weights, |t| quantization = t.quantization().cloned());
        if let Some(Quantization::Affine(affine)) = quantization {
            let scales: Vec<f32> = affine.scales.iter().map(|s| s * input).collect();
            let zero_points = vec![0; scales.len()].into();
            self.graph.quantize(bias, Quantization::Affine(Affine { scales, zero_points, dimension: 0 }));
        }
    }

    fn finish(
        self,
        op: BuiltinOp,
        params: impl Into<Params>,
        inputs: Vec<TensorId>,
        scale: f32,
    ) -> Result<Model, Failure> {
        let quantization = self.kind.quantization(scale);
        self.finish_with(op, params, inputs, quantization)
    }

    fn finish_with(
        mut self,
        op: BuiltinOp,
        params: impl Into<Params>,
        inputs: Vec<TensorId>,
        quantization: Option<Quantization>,
    ) -> Result<Model, Failure> {
        let node = self.graph.node(op, params).inputs(inputs);
        let y = match quantization {
            Some(quantization) => node.output_quantization(quantization).output("y"),
            None => node.output("y"),
        };
        self.graph.outputs([y]);
        Ok(ModelBuilder::new().subgraph(self.graph).build()?)
    }
}

fn quantize(graph: &mut SubgraphBuilder, id: TensorId, quantization: Option<Quantization>) {
    if let Some(quantization) = quantization {
        graph.quantize(id, quantization);
    }
}

const SIDES: [usize; 17] = [1, 2, 4, 5, 7, 8, 10, 14, 16, 20, 25, 28, 32, 49, 56, 64, 96];
const CHANNELS: [usize; 21] =
    [1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 64, 72, 96, 128, 192, 256];
const WINDOWS: [[usize; 2]; 12] =
    [[1, 1], [1, 1], [3, 3], [3, 3], [3, 3], [5, 5], [7, 7], [3, 1], [1, 9], [10, 4], [4, 3], [2, 2]];
const ACTIVATIONS: [Activation; 3] = [Activation::None, Activation::Relu, Activation::Relu6];

fn draw(folder: &Path, seed: &str, count: &str) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let (seed, count): (u64, usize) = (seed.parse()?, count.parse()?);
    for i in 0..count {
        let mut random = Random(seed.wrapping_mul(0x1_0000).wrapping_add(i as u64));
        // Some random sizes have no output or too much work.
        while layer(&mut random, folder, i)?.is_none() {}
    }
    Ok(())
}

/// The sizes of a layer. Each family uses some of them.
struct Sizes {
    kind: Kind,
    height: usize,
    width: usize,
    channels: usize,
    out: usize,
    window: [usize; 2],
    stride: usize,
    padding: Padding,
    activation: Activation,
}

impl Sizes {
    fn draw(random: &mut Random) -> Self {
        let height = random.one_of(&SIDES);
        Sizes {
            kind: random.one_of(&Kind::ALL),
            height,
            width: if random.one_of(&[true, false, false]) { random.one_of(&SIDES) } else { height },
            channels: random.one_of(&CHANNELS),
            out: random.one_of(&CHANNELS),
            window: random.one_of(&WINDOWS),
            stride: random.one_of(&[1, 1, 1, 2]),
            padding: random.one_of(&[Padding::Same, Padding::Same, Padding::Valid]),
            activation: random.one_of(&ACTIVATIONS),
        }
    }

    fn image(&self) -> [usize; 4] {
        [1, self.height, self.width, self.channels]
    }

    fn text(&self) -> String {
        let Sizes { height, width, channels, window: [kh, kw], stride, .. } = self;
        format!("{height}x{width}x{channels}_{kh}x{kw}s{stride}")
    }

    fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Whether the window fits, and has more than one element unless `single`.
    fn windowed(&self, single: bool) -> bool {
        let [kh, kw] = self.window;
        (single || kh * kw > 1) && (self.padding == Padding::Same || (kh <= self.height && kw <= self.width))
    }

    /// Whether only the weights have a type of their own: without weights, the layer is the same as with `F32`.
    fn has_weight_type(&self) -> bool {
        matches!(self.kind, Kind::F16 | Kind::Dynamic)
    }
}

/// A name and a model; `None` for sizes with too much work or without output.
type Drawn = Result<Option<(String, Model)>, Failure>;

fn suits(work: usize) -> bool {
    (4_000..30_000_000).contains(&work)
}

fn layer(random: &mut Random, folder: &Path, i: usize) -> Result<Option<()>, Failure> {
    let sizes = Sizes::draw(random);
    let l = Layer { graph: SubgraphBuilder::new("main"), kind: sizes.kind, random: Random(random.draw()) };
    let families = [
        "conv",
        "conv",
        "conv",
        "conv",
        "depthwise",
        "depthwise",
        "depthwise",
        "fc",
        "fc",
        "pool",
        "add",
        "mul",
        "softmax",
        "mean",
        "resize",
    ];
    let family = random.one_of(&families);
    let drawn = match family {
        "conv" => conv(l, &sizes),
        "depthwise" => depthwise(l, &sizes, random),
        "fc" => fully_connected(l, &sizes, random),
        _ if sizes.has_weight_type() => return Ok(None),
        "pool" => pool(l, &sizes, random),
        "add" | "mul" => binary(l, &sizes, family == "add"),
        "softmax" => softmax(l, &sizes),
        "mean" => mean(l, &sizes),
        _ => resize(l, &sizes, random),
    };
    let Some((text, model)) = drawn? else { return Ok(None) };
    model.save(folder.join(format!("{i:04}_{family}_{:?}_{text}.tflite", sizes.kind)))?;
    Ok(Some(()))
}

fn conv(mut l: Layer, s: &Sizes) -> Drawn {
    let ([kh, kw], c, out) = (s.window, s.channels, s.out);
    if !s.windowed(true) || !suits(s.pixels() / (s.stride * s.stride) * c * out * kh * kw) {
        return Ok(None);
    }
    let x = l.input(&s.image());
    let f = l.weights(&[out, kh, kw, c], 0);
    let b = l.bias(f, out);
    let params = Conv2DParams::default()
        .padding(s.padding)
        .stride_w(s.stride as i32)
        .stride_h(s.stride as i32)
        .dilation_w_factor(1)
        .dilation_h_factor(1)
        .fused_activation_function(s.activation);
    let scale = 0.01 * ((c * kh * kw) as f32).sqrt();
    let model = l.finish(BuiltinOp::CONV_2D, params, vec![x, f, b], scale)?;
    Ok(Some((format!("{}_{out}", s.text()), model)))
}

fn depthwise(mut l: Layer, s: &Sizes, random: &mut Random) -> Drawn {
    let multiplier =
        if s.channels <= 4 { random.one_of(&[1, 8, 4, 2, 16]) } else { random.one_of(&[1, 1, 1, 1, 2]) };
    let ([kh, kw], out) = (s.window, s.channels * multiplier);
    if !s.windowed(false) || !suits(s.pixels() / (s.stride * s.stride) * out * kh * kw) {
        return Ok(None);
    }
    let x = l.input(&s.image());
    let f = l.weights(&[1, kh, kw, out], 3);
    let b = l.bias(f, out);
    let params = DepthwiseConv2DParams::default()
        .padding(s.padding)
        .stride_w(s.stride as i32)
        .stride_h(s.stride as i32)
        .depth_multiplier(multiplier as i32)
        .dilation_w_factor(1)
        .dilation_h_factor(1)
        .fused_activation_function(s.activation);
    let model = l.finish(BuiltinOp::DEPTHWISE_CONV_2D, params, vec![x, f, b], 0.1)?;
    Ok(Some((format!("{}_m{multiplier}", s.text()), model)))
}

fn fully_connected(mut l: Layer, s: &Sizes, random: &mut Random) -> Drawn {
    let rows = random.one_of(&[1, 1, 1, 2, 4, 8, 49]);
    let (from, to) = (s.channels * random.one_of(&[1, 4, 10]), s.out * random.one_of(&[1, 4]));
    if !suits(rows * from * to) {
        return Ok(None);
    }
    let x = l.input(&[rows, from]);
    let f = l.weights(&[to, from], 0);
    let b = l.bias(f, to);
    let params = FullyConnectedParams::default().fused_activation_function(s.activation);
    let model = l.finish(BuiltinOp::FULLY_CONNECTED, params, vec![x, f, b], 0.3)?;
    Ok(Some((format!("{rows}x{from}_{to}"), model)))
}

fn pool(mut l: Layer, s: &Sizes, random: &mut Random) -> Drawn {
    if !s.windowed(false) || !suits(s.pixels() * s.channels * 4) {
        return Ok(None);
    }
    let (op, name) =
        random.one_of(&[(BuiltinOp::AVERAGE_POOL_2D, "average"), (BuiltinOp::MAX_POOL_2D, "max")]);
    let x = l.input(&s.image());
    let params = Pool2DParams::default()
        .padding(s.padding)
        .stride_w(s.stride as i32)
        .stride_h(s.stride as i32)
        .filter_width(s.window[1] as i32)
        .filter_height(s.window[0] as i32);
    let model = l.finish(op, params, vec![x], 0.05)?;
    Ok(Some((format!("{name}_{}", s.text()), model)))
}

fn binary(mut l: Layer, s: &Sizes, add: bool) -> Drawn {
    if !suits(s.pixels() * s.channels) {
        return Ok(None);
    }
    let (second, name) = if s.out > 64 { ([1, 1, 1, s.channels], "channel") } else { (s.image(), "all") };
    let inputs = vec![l.input(&s.image()), l.input(&second)];
    let model = if add {
        let params = AddParams::default().fused_activation_function(s.activation);
        l.finish(BuiltinOp::ADD, params, inputs, 0.09)?
    } else {
        let params = MulParams::default().fused_activation_function(s.activation);
        l.finish(BuiltinOp::MUL, params, inputs, 0.09)?
    };
    Ok(Some((format!("{}x{}x{}_{name}", s.height, s.width, s.channels), model)))
}

fn softmax(mut l: Layer, s: &Sizes) -> Drawn {
    if !suits(s.height * s.out * 8) {
        return Ok(None);
    }
    let x = l.input(&[s.height, s.out]);
    let quantization = match s.kind.activations() {
        TensorType::Int8 => Some(Quantization::per_tensor(1.0 / 256.0, -128)),
        TensorType::UInt8 => Some(Quantization::per_tensor(1.0 / 256.0, 0)),
        TensorType::Int16 => Some(Quantization::per_tensor(1.0 / 32768.0, 0)),
        _ => None,
    };
    let params = SoftmaxParams::default().beta(1.0);
    let model = l.finish_with(BuiltinOp::SOFTMAX, params, vec![x], quantization)?;
    Ok(Some((format!("{}x{}", s.height, s.out), model)))
}

fn mean(mut l: Layer, s: &Sizes) -> Drawn {
    if !suits(s.pixels() * s.channels) {
        return Ok(None);
    }
    let x = l.input(&s.image());
    let axes = l.graph.constant("axes", [2], &[1i32, 2]);
    let params = ReducerParams::default().keep_dims(false);
    let model = l.finish(BuiltinOp::MEAN, params, vec![x, axes], 0.05)?;
    Ok(Some((format!("{}x{}x{}", s.height, s.width, s.channels), model)))
}

fn resize(mut l: Layer, s: &Sizes, random: &mut Random) -> Drawn {
    if !suits(s.pixels() * s.channels * 4) {
        return Ok(None);
    }
    let x = l.input(&s.image());
    let to = l.graph.constant("to", [2], &[2 * s.height as i32, 2 * s.width as i32]);
    let params = ResizeBilinearParams::default().half_pixel_centers(random.one_of(&[true, false]));
    let model = l.finish(BuiltinOp::RESIZE_BILINEAR, params, vec![x, to], 0.05)?;
    Ok(Some((format!("{}x{}x{}", s.height, s.width, s.channels), model)))
}

/// Writes each distinct node of the models as a model of its own: same op, types, shapes and params.
fn extract(folder: &Path, models: &[&str]) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let mut known = BTreeSet::new();
    for path in models {
        let model = Arc::new(Model::from_bytes(ModelBytes::new(fs::read(path)?))?);
        let stem = Path::new(path).file_stem().map_or("model".into(), |stem| stem.to_string_lossy());
        for (s, subgraph) in model.subgraphs().iter().enumerate() {
            for (n, node) in subgraph.nodes().iter().enumerate() {
                let tensors = node.inputs().iter().flatten().chain(node.outputs());
                let shapes: Vec<String> = tensors
                    .map(|&id| subgraph.tensor(id))
                    .map(|t| format!("{:?}{:?}{}", t.ty(), t.shape(), model.constant(t).is_some()))
                    .collect();
                if node.callees().next().is_some()
                    || !known.insert(format!("{} {shapes:?} {:?}", node.op(), node.params()))
                {
                    continue;
                }
                let Ok(single) = single(&model, s, n) else { continue };
                single.save(folder.join(format!("{stem}_{s}_{n:03}_{}.tflite", node.op())))?;
            }
        }
    }
    Ok(())
}

fn single(model: &Model, s: usize, n: usize) -> Result<Model, Failure> {
    let subgraph = &model.subgraphs()[s];
    let node = &subgraph.nodes()[n];
    let mut graph = SubgraphBuilder::new("main");
    let mut inputs = Vec::new();
    for id in node.inputs() {
        let Some(id) = *id else {
            inputs.push(None);
            continue;
        };
        let tensor: &Tensor = subgraph.tensor(id);
        if tensor.is_variable() {
            return Err("a variable".into());
        }
        let new = match model.constant(tensor) {
            Some(bytes) => graph.constant_bytes(tensor.name(), tensor.ty(), tensor.shape().clone(), bytes),
            None => graph.input(tensor.name(), tensor.ty(), tensor.shape().clone()),
        };
        quantize(&mut graph, new, tensor.quantization().cloned());
        inputs.push(Some(new));
    }
    let outputs: Vec<TensorId> = node
        .outputs()
        .iter()
        .map(|&id| {
            let tensor = subgraph.tensor(id);
            let new = graph.tensor(tensor.name(), tensor.ty(), tensor.shape().clone());
            quantize(&mut graph, new, tensor.quantization().cloned());
            new
        })
        .collect();
    graph
        .node(node.op().clone(), node.params().clone())
        .optional_inputs(inputs)
        .writes(outputs.iter().copied());
    graph.outputs(outputs);
    Ok(ModelBuilder::new().subgraph(graph).build()?)
}

fn time(threads: &str, seconds: &str, models: &[&str]) -> Result<(), Failure> {
    let (threads, limit): (usize, Duration) =
        (threads.parse()?, Duration::try_from_secs_f64(seconds.parse()?)?);
    for path in models {
        match shortest(path, threads, limit) {
            Ok(time) => println!("{path}\t{:.3}", time.as_secs_f64() * 1e6),
            Err(e) => println!("{path}\t{}", e.to_string().replace(['\n', '\t'], " ")),
        }
    }
    Ok(())
}

fn invoke(runs: &str, path: &str) -> Result<(), Failure> {
    let mut interpreter = filled(path, 1)?;
    for _ in 0..runs.parse::<usize>()? {
        interpreter.invoke()?;
    }
    for i in 0..interpreter.output_count() {
        let ty = interpreter.output_tensor(i)?.ty;
        let sum = match ty {
            TensorType::Float32 => interpreter.output::<f32>(i)?.iter().map(|&x| f64::from(x)).sum::<f64>(),
            TensorType::Int8 => interpreter.output::<i8>(i)?.iter().map(|&x| f64::from(x)).sum(),
            TensorType::UInt8 => interpreter.output::<u8>(i)?.iter().map(|&x| f64::from(x)).sum(),
            _ => continue,
        };
        println!("{i}\t{ty}\t{sum}");
    }
    Ok(())
}

fn shortest(path: &str, threads: usize, limit: Duration) -> Result<Duration, Failure> {
    let mut interpreter = filled(path, threads)?;
    interpreter.invoke()?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < limit {
        // Short invocations are timed in groups of ten, so that the cost of reading the clock is negligible.
        let count = if best < Duration::from_micros(20) { 10 } else { 1 };
        let begin = Instant::now();
        for _ in 0..count {
            interpreter.invoke()?;
        }
        best = best.min(begin.elapsed() / count);
    }
    Ok(best)
}

fn first(threads: &str, runs: &str, models: &[&str]) -> Result<(), Failure> {
    let (threads, runs): (usize, usize) = (threads.parse()?, runs.parse()?);
    for path in models {
        match (0..runs).map(|_| phases(path, threads)).collect::<Result<Vec<_>, _>>() {
            Ok(all) => {
                let shortest = |of: &dyn Fn(&[Duration; 3]) -> Duration| {
                    all.iter().map(of).min().unwrap_or_default().as_secs_f64() * 1e6
                };
                let total = shortest(&|phases| phases.iter().sum());
                let [load, prepare, run] = [0, 1, 2].map(|i| shortest(&move |phases| phases[i]));
                println!("{path}\t{total:.1}\t{load:.1}\t{prepare:.1}\t{run:.1}");
            }
            Err(e) => println!("{path}\t{}", e.to_string().replace(['\n', '\t'], " ")),
        }
    }
    Ok(())
}

/// The times of loading a model from a mapped file, as `delegraph::load` does, of preparing it, and of the first
/// invocation. Filling its inputs is not counted.
fn phases(path: &str, threads: usize) -> Result<[Duration; 3], Failure> {
    let begin = Instant::now();
    // SAFETY: nothing writes to the file while it is measured.
    let file = unsafe { memmap2::Mmap::map(&fs::File::open(path)?) }?;
    let model = Model::from_bytes(ModelBytes::new(file))?;
    let load = begin.elapsed();
    let begin = Instant::now();
    let mut interpreter = Interpreter::builder(model).threads(threads).build()?;
    let prepare = begin.elapsed();
    fill(&mut interpreter)?;
    let begin = Instant::now();
    interpreter.invoke()?;
    Ok([load, prepare, begin.elapsed()])
}

/// An interpreter with random inputs.
fn filled(path: &str, threads: usize) -> Result<Interpreter, Failure> {
    let model = Model::from_bytes(ModelBytes::new(fs::read(path)?))?;
    let mut interpreter = Interpreter::builder(model).threads(threads).build()?;
    fill(&mut interpreter)?;
    Ok(interpreter)
}

fn fill(interpreter: &mut Interpreter) -> Result<(), Failure> {
    for i in 0..interpreter.input_count() {
        let mut random = Random(i as u64);
        let ty = interpreter.input_tensor(i)?.ty;
        let float = ty == TensorType::Float32;
        let bytes = interpreter.input_bytes_mut(i)?;
        if float {
            let values = random.floats(bytes.len() / 4, 1.0);
            bytes.copy_from_slice(&values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        } else if ty == TensorType::Bool {
            bytes.fill(1);
        } else {
            let values = random.bytes(bytes.len());
            bytes.copy_from_slice(&values);
        }
    }
    Ok(())
}
