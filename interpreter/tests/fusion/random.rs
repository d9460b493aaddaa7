//! Random graphs of patterns that fusions match, and of similar ones that they must not match: the fused graphs compute
//! the same, and fusing them again changes nothing.

use std::sync::Arc;

use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::{Activation, Padding};
use delegraph_core::{
    BuiltinOp as B, Model, ModelBuilder, ModelBytes, OpResolver, Params, Quantization, SubgraphBuilder,
    TensorId, TensorType,
};
use delegraph_interpreter::fusion::{ModelPair, Pipeline, compare};
use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};

use crate::recurrent::FLOAT;

/// The number of graphs of each kind.
const GRAPHS: u64 = 300;

/// A generator that draws the same numbers from the same seed.
struct SplitMix64(u64);

impl SplitMix64 {
    fn new(seed: u64, stream: u64) -> Self {
        SplitMix64(seed.wrapping_add(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(stream)))
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A float in [-1, 1).
    fn draw_f32(&mut self) -> f32 {
        (self.draw() >> 40) as f32 * 2f32.powi(-23) - 1.0
    }
}

/// A graph under construction, extended at its end.
struct Grower {
    graph: SubgraphBuilder,
    random: SplitMix64,
    /// The end, `[1, height, width, channels]`.
    x: TensorId,
    shape: [usize; 4],
    /// Outputs in addition to the end.
    outputs: Vec<TensorId>,
}

impl Grower {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed, 1);
        let mut size = |low: u64, high: u64| (low + random.draw() % (high - low)) as usize;
        let shape = [1, size(2, 7), size(2, 7), size(1, 6)];
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", FLOAT, shape);
        Grower { graph, random, x, shape, outputs: Vec::new() }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.draw() % count
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.random.draw_f32()).collect()
    }

    fn scalar(&mut self, value: f32) -> TensorId {
        let shape: &[usize] = if self.coin() { &[] } else { &[1] };
        self.graph.constant("", shape, &[value])
    }

    fn binary(&mut self, op: B, a: TensorId, b: TensorId) -> TensorId {
        let params: Params = match op {
            B::ADD => AddParams::default().into(),
            B::SUB => SubParams::default().into(),
            B::MUL => MulParams::default().into(),
            B::DIV => DivParams::default().into(),
            _ => Params::None,
        };
        // Operands of commutative ops may be swapped.
        let swap = !matches!(op, B::SUB | B::DIV | B::POW) && self.coin();
        self.graph.node(op, params).inputs(if swap { [b, a] } else { [a, b] }).output("")
    }

    fn with(&mut self, op: B, a: TensorId, value: f32) -> TensorId {
        let c = self.scalar(value);
        self.binary(op, a, c)
    }

    fn unary(&mut self, op: B, x: TensorId) -> TensorId {
        self.graph.node(op, Params::None).inputs([x]).output("")
    }

    fn reduce(&mut self, op: B, x: TensorId) -> TensorId {
        let axis = if self.coin() { -1 } else { 3 };
        let axis = self.graph.constant("", [1], &[axis]);
        self.graph.node(op, ReducerParams::default().keep_dims(true)).inputs([x, axis]).output("")
    }

    /// Occasionally adds an intermediate value to the outputs.
    fn perhaps_read(&mut self) {
        if self.below(8) == 0 {
            self.outputs.push(self.x);
        }
    }

    fn reshape(&mut self, x: TensorId, shape: &[i32]) -> TensorId {
        let sizes = self.graph.constant("", [shape.len()], shape);
        self.graph.node(B::RESHAPE, ReshapeParams::default()).inputs([x, sizes]).output("")
    }

    fn product(&mut self) {
        let [_, height, width, channels] = self.shape;
        if self.coin() && height > 3 && width > 3 {
            let amounts: Vec<i32> = match self.below(3) {
                0 => vec![0, 0, 1, 1, 1, 1, 0, 0],
                1 => vec![0, 0, 0, 1, 0, 1, 0, 0],
                _ => vec![0, 0, 2, 0, 1, 1, 0, 0],
            };
            let amounts = self.graph.constant("", [4, 2], &amounts);
            self.x = self.graph.node(B::PAD, Params::None).inputs([self.x, amounts]).output("");
            self.shape = self.graph_shape();
            self.perhaps_read();
        }
        let stride = 1 + self.below(2) as i32;
        // The output must not be empty.
        let large = self.shape[1] > 2 && self.shape[2] > 2;
        let padding = if large && self.coin() { Padding::Valid } else { Padding::Same };
        let outputs = match self.below(3) {
            0 => {
                let outputs = 1 + self.below(5) as usize;
                let values = self.numbers(outputs * 4 * channels);
                let filter = self.graph.constant("", [outputs, 2, 2, channels], &values);
                let params = Conv2DParams::default()
                    .padding(padding)
                    .stride_w(stride)
                    .stride_h(stride)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1);
                let bias = self.bias(outputs, true);
                let node = self.graph.node(B::CONV_2D, params);
                self.x = node.optional_inputs([Some(self.x), Some(filter), bias]).output("");
                outputs
            }
            1 => {
                let values = self.numbers(4 * channels);
                let filter = self.graph.constant("", [1, 2, 2, channels], &values);
                let params = DepthwiseConv2DParams::default()
                    .padding(padding)
                    .stride_w(stride)
                    .stride_h(stride)
                    .depth_multiplier(1)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1);
                let bias = self.bias(channels, true);
                let node = self.graph.node(B::DEPTHWISE_CONV_2D, params);
                self.x = node.optional_inputs([Some(self.x), Some(filter), bias]).output("");
                channels
            }
            _ => {
                let outputs = 1 + self.below(5) as usize;
                let values = self.numbers(outputs * channels);
                let weights = self.graph.constant("", [outputs, channels], &values);
                let bias = self.bias(outputs, false);
                let params = FullyConnectedParams::default().keep_num_dims(true);
                let node = self.graph.node(B::FULLY_CONNECTED, params);
                self.x = node.optional_inputs([Some(self.x), Some(weights), bias]).output("");
                outputs
            }
        };
        self.shape = self.graph_shape();
        assert_eq!(self.shape[3], outputs);
    }

    fn bias(&mut self, count: usize, needed: bool) -> Option<TensorId> {
        let values = self.numbers(count);
        (needed || self.coin()).then(|| self.graph.constant("", [count], &values))
    }

    /// The inferred shape of the end.
    fn graph_shape(&mut self) -> [usize; 4] {
        let mut probe = self.graph.clone();
        probe.outputs([self.x]);
        let model = ModelBuilder::new().subgraph(probe).build().unwrap();
        let output = model.subgraphs()[0].outputs()[0];
        model.subgraphs()[0].tensor(output).shape().dims().try_into().unwrap()
    }

    /// A factor or a term: per channel, for all channels, or per element.
    fn affine(&mut self) {
        let [_, height, width, channels] = self.shape;
        let op = [B::MUL, B::ADD, B::SUB, B::DIV][self.below(4) as usize];
        let shape: Vec<usize> = match self.below(5) {
            0 => vec![],
            1 => vec![channels],
            2 => vec![1, 1, channels],
            3 => vec![1, height, width, channels],
            _ => vec![height, 1, 1],
        };
        let values: Vec<f32> =
            self.numbers(shape.iter().product()).iter().map(|v| v + 1.5 * v.signum()).collect();
        let c = self.graph.constant("", &shape[..], &values);
        self.x = if self.below(4) == 0 { self.binary(op, c, self.x) } else { self.binary(op, self.x, c) };
    }

    fn activation(&mut self) {
        let x = self.x;
        self.x = match self.below(7) {
            0 => self.unary(B::RELU, x),
            1 => self.unary(B::RELU6, x),
            2 => self.unary(B::RELU_N1_TO_1, x),
            3 => {
                let y = self.with(B::MAXIMUM, x, 0.0);
                self.with(B::MINIMUM, y, 6.0)
            }
            4 => {
                let y = self.with(B::MINIMUM, x, 1.0);
                self.with(B::MAXIMUM, y, -1.0)
            }
            5 => {
                let y = self.with(B::MINIMUM, x, 2.0);
                self.with(B::MAXIMUM, y, -0.5)
            }
            _ => self.unary(B::TANH, x),
        };
    }

    /// `x · relu6(x + 3) / 6`, or with another number somewhere.
    fn hard_swish(&mut self) {
        let (x, three) = (self.x, if self.below(4) == 0 { 2.5 } else { 3.0 });
        let sum = self.with(B::ADD, x, three);
        let gate = self.unary(B::RELU6, sum);
        self.x = if self.coin() {
            let y = self.binary(B::MUL, x, gate);
            self.with(B::DIV, y, 6.0)
        } else {
            let gate = self.with(B::MUL, gate, 1.0 / 6.0);
            self.binary(B::MUL, x, gate)
        };
    }

    fn gelu(&mut self) {
        let (x, root) = (self.x, (2.0 / std::f32::consts::PI).sqrt());
        let factor = if self.below(4) == 0 { 0.05 } else { 0.044_715 };
        let square = self.binary(B::MUL, x, x);
        let cube = self.binary(B::MUL, square, x);
        let cube = self.with(B::MUL, cube, factor);
        let sum = self.binary(B::ADD, x, cube);
        let inside = self.with(B::MUL, sum, root);
        let tanh = self.unary(B::TANH, inside);
        let one = self.with(B::ADD, tanh, 1.0);
        let half = self.with(B::MUL, x, 0.5);
        self.x = self.binary(B::MUL, half, one);
    }

    fn normalization(&mut self) {
        let (x, channels) = (self.x, self.shape[3]);
        self.x = match self.below(5) {
            0 => {
                let largest = self.reduce(B::REDUCE_MAX, x);
                let difference = self.binary(B::SUB, x, largest);
                let exponent = self.unary(B::EXP, difference);
                let sum = self.reduce(B::SUM, exponent);
                self.binary(B::DIV, exponent, sum)
            }
            1 => {
                let square = self.unary(B::SQUARE, x);
                let sum = self.reduce(B::SUM, square);
                let least = self.with(B::MAXIMUM, sum, 1e-12);
                let root = self.unary(B::RSQRT, least);
                self.binary(B::MUL, x, root)
            }
            2 => {
                let square = self.binary(B::MUL, x, x);
                let sum = self.reduce(B::SUM, square);
                let least = self.with(B::MAXIMUM, sum, 1e-12);
                let root = self.unary(B::SQRT, least);
                self.binary(B::DIV, x, root)
            }
            form => {
                let mean = self.reduce(B::MEAN, x);
                let (gamma, beta) = (self.numbers(channels), self.numbers(channels));
                let (gamma, beta) = match self.coin() {
                    true => (
                        self.graph.constant("", [channels], &gamma),
                        self.graph.constant("", [channels], &beta),
                    ),
                    false => (
                        self.graph.constant("", [1, 1, channels], &gamma),
                        self.graph.constant("", [1, 1, channels], &beta),
                    ),
                };
                // Rows of one channel have variance 0: only epsilon keeps results defined.
                let epsilon = 1e-2;
                if form == 3 {
                    let square = self.binary(B::SQUARED_DIFFERENCE, x, mean);
                    let variance = self.reduce(B::MEAN, square);
                    let sum = self.with(B::ADD, variance, epsilon);
                    let root = self.unary(B::RSQRT, sum);
                    let scale = self.binary(B::MUL, root, gamma);
                    let scaled = self.binary(B::MUL, x, scale);
                    let moved = self.binary(B::MUL, mean, scale);
                    let shifted = self.binary(B::SUB, beta, moved);
                    self.binary(B::ADD, scaled, shifted)
                } else {
                    let difference = self.binary(B::SUB, x, mean);
                    let square = self.binary(B::MUL, difference, difference);
                    let variance = self.reduce(B::MEAN, square);
                    let sum = self.with(B::ADD, variance, epsilon);
                    let y = if self.coin() {
                        let root = self.unary(B::SQRT, sum);
                        self.binary(B::DIV, difference, root)
                    } else {
                        let root = self.unary(B::RSQRT, sum);
                        self.binary(B::MUL, difference, root)
                    };
                    let y = self.binary(B::MUL, y, gamma);
                    self.binary(B::ADD, y, beta)
                }
            }
        };
    }

    fn movement(&mut self) {
        let [_, h, w, c] = self.shape.map(|d| d as i32);
        match self.below(3) {
            0 => {
                let orders: [[i32; 4]; 4] = [[0, 2, 1, 3], [0, 3, 1, 2], [0, 2, 3, 1], [0, 1, 2, 3]];
                for _ in 0..1 + self.below(3) {
                    let order = orders[self.below(4) as usize];
                    let constant = self.graph.constant("", [4], &order);
                    self.x =
                        self.graph.node(B::TRANSPOSE, Params::None).inputs([self.x, constant]).output("");
                    self.shape = order.map(|d| self.shape[d as usize]);
                    self.perhaps_read();
                }
            }
            1 => {
                let flat = self.reshape(self.x, &[-1, c]);
                let other = if self.coin() { self.reshape(flat, &[h * w * c]) } else { flat };
                self.x = self.reshape(other, &[1, h, w, c]);
            }
            _ => self.x = self.reshape(self.x, &[1, h, w, c]),
        }
    }

    /// Adds nodes without effect, duplicate nodes, or a MAX_POOL_2D.
    fn superfluous(&mut self) {
        let x = self.x;
        self.x = match self.below(6) {
            0 => self.with(B::ADD, x, 0.0),
            1 => self.with(B::MUL, x, 1.0),
            2 => self.with(B::DIV, x, 1.0),
            3 => {
                let (a, b) = (self.unary(B::ABS, x), self.unary(B::ABS, x));
                self.binary(B::ADD, a, b)
            }
            4 => {
                let node = self.graph.node(B::CONCATENATION, ConcatenationParams::default().axis(3));
                node.inputs([x]).output("")
            }
            _ => {
                let params = Pool2DParams::default()
                    .padding(Padding::Same)
                    .stride_w(1)
                    .stride_h(1)
                    .filter_width(2)
                    .filter_height(2)
                    .fused_activation_function(Activation::None);
                self.graph.node(B::MAX_POOL_2D, params).inputs([x]).output("")
            }
        };
    }

    fn grow(mut self) -> Model {
        for _ in 0..2 + self.below(7) {
            match self.below(9) {
                0 | 1 => self.product(),
                2 => self.affine(),
                3 => self.activation(),
                4 => self.hard_swish(),
                5 => self.gelu(),
                6 => self.normalization(),
                7 => self.movement(),
                _ => self.superfluous(),
            }
            self.perhaps_read();
        }
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.retain(|id| *id != self.x);
        outputs.dedup();
        outputs.push(self.x);
        self.graph.outputs(outputs);
        ModelBuilder::new().subgraph(self.graph).build().unwrap()
    }
}

/// Fuses the model, and compares it with the original: with the optimized and with the reference kernels, and from a
/// file. `allowed` is the factor of the allowed difference, per output. Returns the number of removed nodes.
fn hold(seed: u64, model: &Model, pipeline: &Pipeline, allowed: impl Fn(TensorId) -> f64) -> usize {
    let fused = pipeline.run(model).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let (before, after) = (fused.report.before, fused.report.after);
    assert!(after.nodes <= before.nodes, "seed {seed}: {:?}", fused.report);
    let [original, fused] = [model, &fused.model].map(|m| Arc::new(m.clone()));
    let resolvers: [Arc<dyn OpResolver>; 2] =
        [Arc::new(BuiltinOpResolver::new()), Arc::new(ReferenceOpResolver::new())];
    for resolver in &resolvers {
        let models = ModelPair { original: &original, fused: &fused };
        let differences = compare(models, resolver, 2).unwrap();
        for (difference, output) in differences.iter().zip(model.subgraphs()[0].outputs()) {
            assert!(difference.within(allowed(*output)), "seed {seed}: {difference:?}");
        }
    }
    // Writing and reading does not change the fused model, and neither does fusing it again.
    let file = Model::from_bytes(ModelBytes::new(fused.to_bytes().unwrap())).unwrap();
    assert_eq!(fused.difference(&file), None, "seed {seed}");
    let again = pipeline.run(&fused).unwrap().report;
    assert_eq!(again.changes, [], "seed {seed}");
    before.nodes - after.nodes
}

#[test]
fn random_graphs_compute_what_they_did() {
    let (plain, custom) = (Pipeline::new(), Pipeline::new().allow_custom());
    let mut gone = [0, 0];
    for seed in 0..GRAPHS {
        let model = Grower::new(seed).grow();
        // A chain of divisions and normalizations amplifies rounding errors more than one op.
        gone[0] += hold(seed, &model, &plain, |_| 4.0);
        gone[1] += hold(seed, &model, &custom, |_| 4.0);
    }
    // Checks that the graphs contained patterns.
    assert!(gone[0] > 5 * GRAPHS as usize && gone[1] > gone[0], "{gone:?}");
}

/// The largest scale.
const COARSEST: f32 = 0.3;

/// Chains of QUANTIZE, DEQUANTIZE and ops between them, with equal or different scales.
fn quantized(seed: u64) -> Model {
    let mut random = SplitMix64::new(seed, 2);
    let mut below = move |count: u64| random.draw() % count;
    let mut graph = SubgraphBuilder::new("main");
    let types = [TensorType::Int8, TensorType::UInt8, TensorType::Int16];
    let draw = |below: &mut dyn FnMut(u64) -> u64| {
        let ty = types[below(3) as usize];
        let zero = match ty {
            TensorType::Int8 => [0, -3][below(2) as usize],
            TensorType::UInt8 => [128, 120][below(2) as usize],
            _ => 0,
        };
        let scale = if ty == TensorType::Int16 { 1.0 / 4096.0 } else { [0.25, COARSEST][below(2) as usize] };
        (ty, Quantization::per_tensor(scale, zero))
    };
    let (ty, own) = draw(&mut below);
    let mut x = graph.input("x", ty, [2, 6]);
    graph.quantize(x, own);
    let mut outputs = Vec::new();
    for i in 0..1 + below(4) {
        let mut real = graph.node(B::DEQUANTIZE, Params::None).inputs([x]).output_type(FLOAT).output("");
        // Later values may differ by a step, which exceeds the tolerance of floats.
        if i == 0 && below(4) == 0 {
            outputs.push(real);
        }
        if below(3) == 0 {
            real = graph.node(B::ABS, Params::None).inputs([real]).output("");
        }
        for _ in 0..1 + below(2) {
            let (ty, own) = draw(&mut below);
            let node = graph.node(B::QUANTIZE, Params::None).inputs([real]).output_type(ty);
            x = node.output_quantization(own).output("");
            if below(4) == 0 {
                outputs.push(x);
            }
        }
    }
    outputs.retain(|id| *id != x);
    outputs.push(x);
    graph.outputs(outputs);
    ModelBuilder::new().subgraph(graph).build().unwrap()
}

#[test]
fn random_chains_of_quantized_values_stay_within_a_step() {
    let mut gone = 0;
    for seed in 0..GRAPHS {
        let model = quantized(seed);
        // A step of the coarsest tensor, which may be many steps of a finer one after it; a second conversion may add
        // another step.
        let steps = |id: TensorId| {
            let quantization = model.subgraphs()[0].tensor(id).quantization();
            let scale = quantization.and_then(Quantization::scale_zero_point).map_or(1.0, |(scale, _)| scale);
            2.0 * f64::from(COARSEST / scale).ceil()
        };
        gone += hold(seed, &model, &Pipeline::new(), steps);
    }
    assert!(gone > GRAPHS as usize / 2, "{gone}");
}
