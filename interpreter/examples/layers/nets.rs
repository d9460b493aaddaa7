//! Small nets of random sizes: convolutions, recurrent layers, attention, and subgraphs that are called.

use std::fs;
use std::path::Path;

use delegraph_core::graph::TensorId;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::binary::{AddParams, MulParams, SubParams};
use delegraph_core::ops::control_flow::{IfParams, WhileParams};
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::lstm::UnidirectionalSequenceLstmParams;
use delegraph_core::ops::lstm::inputs::CELL;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::ops::{Activation, Padding, Params};
use delegraph_core::{BuiltinOp, Model, ModelBuilder, Quantization, Shape, SubgraphBuilder, TensorType};

use super::{Failure, Kind, Layer, Random, quantize};

const CHANNELS: [usize; 9] = [4, 8, 12, 16, 20, 24, 32, 48, 64];
const UNITS: [usize; 8] = [8, 10, 16, 24, 32, 64, 96, 128];
const ACTIVATIONS: [Activation; 3] = [Activation::None, Activation::Relu, Activation::Relu6];

/// A net under construction: the next layer reads `x`.
struct Net {
    layer: Layer,
    x: TensorId,
    shape: Vec<usize>,
}

/// Writes `count` nets.
pub(super) fn draw(folder: &Path, seed: &str, count: &str) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let (seed, count): (u64, usize) = (seed.parse()?, count.parse()?);
    for i in 0..count {
        let mut random = Random(seed.wrapping_mul(0x1_0000).wrapping_add(i as u64));
        let kind = Kind::ALL[i % Kind::ALL.len()];
        let mut families = vec!["keyword", "mobile", "residual", "dense"];
        if kind.activations() == TensorType::Float32 {
            families.extend(["attention", "lstm", "gru", "branch", "loop"]);
        } else if kind != Kind::Int16 {
            families.extend(["branch", "loop"]);
        }
        let family = random.one_of(&families);
        let model = match family {
            "keyword" => keyword(kind, &mut random),
            "mobile" => mobile(kind, &mut random),
            "residual" => residual(kind, &mut random),
            "dense" => dense(kind, &mut random),
            "attention" => attention(kind, &mut random),
            "lstm" => lstm(kind, &mut random),
            "gru" => gru(kind, &mut random),
            "branch" => branch(kind, &mut random),
            _ => repeated(kind, &mut random),
        }?;
        model.save(folder.join(format!("{i:04}_{family}_{kind:?}.tflite")))?;
    }
    Ok(())
}

impl Net {
    fn new(kind: Kind, random: &mut Random, name: &str, shape: &[usize]) -> Self {
        let mut layer = Layer { graph: SubgraphBuilder::new(name), kind, random: Random(random.draw()) };
        let x = layer.input(shape);
        Net { layer, x, shape: shape.to_vec() }
    }

    /// Adds a node that reads `inputs`.
    fn node(
        &mut self,
        op: BuiltinOp,
        params: impl Into<Params>,
        inputs: &[TensorId],
        quantization: Option<Quantization>,
    ) -> TensorId {
        let node = self.layer.graph.node(op, params).inputs(inputs.iter().copied());
        match quantization {
            Some(quantization) => node.output_quantization(quantization).output("y"),
            None => node.output("y"),
        }
    }

    /// Adds a node whose output is an activation.
    fn op(&mut self, op: BuiltinOp, params: impl Into<Params>, inputs: &[TensorId]) -> TensorId {
        let quantization = self.layer.kind.quantization(0.05);
        self.node(op, params, inputs, quantization)
    }

    fn conv(&mut self, out: usize, window: [usize; 2], stride: usize, activation: Activation) {
        let channels = self.shape[3];
        let w = self.layer.weights(&[out, window[0], window[1], channels], 0);
        let b = self.layer.bias(w, out);
        let params = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride as i32)
            .stride_h(stride as i32)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .fused_activation_function(activation);
        self.x = self.op(BuiltinOp::CONV_2D, params, &[self.x, w, b]);
        self.shape = vec![1, self.shape[1].div_ceil(stride), self.shape[2].div_ceil(stride), out];
    }

    fn depthwise(&mut self, window: [usize; 2], stride: usize, activation: Activation) {
        let channels = self.shape[3];
        let w = self.layer.weights(&[1, window[0], window[1], channels], 3);
        let b = self.layer.bias(w, channels);
        let params = DepthwiseConv2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride as i32)
            .stride_h(stride as i32)
            .depth_multiplier(1)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .fused_activation_function(activation);
        self.x = self.op(BuiltinOp::DEPTHWISE_CONV_2D, params, &[self.x, w, b]);
        self.shape = vec![1, self.shape[1].div_ceil(stride), self.shape[2].div_ceil(stride), channels];
    }

    /// A layer that reads `x`, whose last dimension is the depth.
    fn dense(&mut self, x: TensorId, [depth, units]: [usize; 2], activation: Activation) -> TensorId {
        let w = self.layer.weights(&[units, depth], 0);
        let b = self.layer.bias(w, units);
        let params = FullyConnectedParams::default().fused_activation_function(activation);
        self.op(BuiltinOp::FULLY_CONNECTED, params, &[x, w, b])
    }

    fn add(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.op(BuiltinOp::ADD, AddParams::default(), &[a, b])
    }

    fn mul(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.op(BuiltinOp::MUL, MulParams::default(), &[a, b])
    }

    /// The mean over an image, followed by a classifier.
    fn classify(mut self, classes: usize) -> Result<Model, Failure> {
        let channels = self.shape[3];
        if self.layer.random.one_of(&[true, false]) {
            let axes = self.layer.graph.constant("axes", [2], &[1i32, 2]);
            let params = ReducerParams::default().keep_dims(false);
            self.x = self.op(BuiltinOp::MEAN, params, &[self.x, axes]);
            self.x = self.dense(self.x, [channels, classes], Activation::None);
        } else {
            let params = Pool2DParams::default()
                .padding(Padding::Valid)
                .stride_w(self.shape[2] as i32)
                .stride_h(self.shape[1] as i32)
                .filter_width(self.shape[2] as i32)
                .filter_height(self.shape[1] as i32);
            self.x = self.op(BuiltinOp::AVERAGE_POOL_2D, params, &[self.x]);
            self.x = self.dense(self.x, [channels, classes], Activation::None);
        }
        self.softmax()
    }

    fn softmax(mut self) -> Result<Model, Failure> {
        let quantization = match self.layer.kind.activations() {
            TensorType::Int8 => Some(Quantization::per_tensor(1.0 / 256.0, -128)),
            TensorType::UInt8 => Some(Quantization::per_tensor(1.0 / 256.0, 0)),
            TensorType::Int16 => Some(Quantization::per_tensor(1.0 / 32768.0, 0)),
            _ => None,
        };
        self.x = self.node(BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(1.0), &[self.x], quantization);
        self.finish()
    }

    fn finish(mut self) -> Result<Model, Failure> {
        self.layer.graph.outputs([self.x]);
        Ok(ModelBuilder::new().subgraph(self.layer.graph).build()?)
    }
}

/// A convolution of a spectrogram, and one-dimensional or depthwise convolutions.
fn keyword(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let shape = [1, random.one_of(&[16, 25, 32, 49]), random.one_of(&[10, 20, 40]), 1];
    let mut net = Net::new(kind, random, "main", &shape);
    net.conv(
        random.one_of(&CHANNELS),
        random.one_of(&[[10, 4], [3, 3], [4, 3], [5, 5]]),
        2,
        Activation::Relu,
    );
    for _ in 0..random.one_of(&[1, 2, 3]) {
        let window = random.one_of(&[[3, 3], [3, 1], [1, 5], [3, 3]]);
        if random.one_of(&[true, false]) {
            net.depthwise(window, random.one_of(&[1, 1, 2]), Activation::Relu);
            net.conv(random.one_of(&CHANNELS), [1, 1], 1, Activation::Relu);
        } else {
            net.conv(random.one_of(&CHANNELS), window, random.one_of(&[1, 2]), Activation::Relu);
        }
    }
    net.classify(random.one_of(&[2, 4, 10, 12]))
}

/// Separable convolutions of an image.
fn mobile(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let side = random.one_of(&[16, 24, 28, 32, 48]);
    let colors = random.one_of(&[1, 3, 3]);
    let mut net = Net::new(kind, random, "main", &[1, side, side, colors]);
    net.conv(random.one_of(&[8, 16]), [3, 3], 2, Activation::Relu6);
    for _ in 0..random.one_of(&[2, 3, 5]) {
        net.depthwise(random.one_of(&[[3, 3], [3, 3], [5, 5]]), random.one_of(&[1, 2]), Activation::Relu6);
        net.conv(random.one_of(&CHANNELS), [1, 1], 1, random.one_of(&ACTIVATIONS));
    }
    net.classify(random.one_of(&[2, 10, 100]))
}

/// Residual blocks.
fn residual(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let side = random.one_of(&[8, 16, 32]);
    let colors = random.one_of(&[1, 3]);
    let mut net = Net::new(kind, random, "main", &[1, side, side, colors]);
    let channels = random.one_of(&CHANNELS);
    net.conv(channels, [3, 3], random.one_of(&[1, 2]), Activation::Relu);
    for _ in 0..random.one_of(&[1, 2, 3]) {
        let before = net.x;
        net.conv(channels, [3, 3], 1, Activation::Relu);
        net.conv(channels, [3, 3], 1, Activation::None);
        net.x = net.add(before, net.x);
    }
    net.classify(10)
}

fn dense(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (rows, mut depth) = (random.one_of(&[1, 1, 1, 4, 8]), random.one_of(&UNITS));
    let mut net = Net::new(kind, random, "main", &[rows, depth]);
    for _ in 0..random.one_of(&[1, 2, 3, 4]) {
        let units = random.one_of(&UNITS);
        net.x = net.dense(net.x, [depth, units], random.one_of(&ACTIVATIONS));
        depth = units;
    }
    if random.one_of(&[true, false]) { net.softmax() } else { net.finish() }
}

/// Blocks of a transformer with one head.
fn attention(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (rows, width) = (random.one_of(&[8, 16, 32]), random.one_of(&[16, 32, 64]));
    let mut net = Net::new(kind, random, "main", &[rows, width]);
    for _ in 0..random.one_of(&[1, 2]) {
        let x = net.x;
        let [q, k, v] = [(); 3].map(|()| net.dense(x, [width, width], Activation::None));
        let scores = net.op(BuiltinOp::BATCH_MATMUL, BatchMatMulParams::default().adj_y(true), &[q, k]);
        let scale = net.layer.graph.constant("scale", [1], &[1.0 / (width as f32).sqrt()]);
        let scores = net.mul(scores, scale);
        let shares = net.op(BuiltinOp::SOFTMAX, SoftmaxParams::default().beta(1.0), &[scores]);
        let mixed = net.op(BuiltinOp::BATCH_MATMUL, BatchMatMulParams::default(), &[shares, v]);
        let projected = net.dense(mixed, [width, width], Activation::None);
        let sum = net.add(x, projected);
        let x = normalized(&mut net, sum, width);
        let wide = net.dense(x, [width, 2 * width], Activation::Relu);
        let narrow = net.dense(wide, [2 * width, width], Activation::None);
        net.x = net.add(x, narrow);
    }
    net.finish()
}

/// Rows with mean 0 and variance 1, scaled and shifted.
fn normalized(net: &mut Net, x: TensorId, width: usize) -> TensorId {
    let axis = net.layer.graph.constant("axis", [1], &[1i32]);
    let keep = || ReducerParams::default().keep_dims(true);
    let mean = net.op(BuiltinOp::MEAN, keep(), &[x, axis]);
    let squares = net.op(BuiltinOp::SQUARED_DIFFERENCE, Params::None, &[x, mean]);
    let variance = net.op(BuiltinOp::MEAN, keep(), &[squares, axis]);
    let epsilon = net.layer.graph.constant("epsilon", [1], &[1e-3f32]);
    let variance = net.add(variance, epsilon);
    let factor = net.op(BuiltinOp::RSQRT, Params::None, &[variance]);
    let centered = net.op(BuiltinOp::SUB, SubParams::default(), &[x, mean]);
    let normal = net.mul(centered, factor);
    let gamma = net.layer.random.floats(width, 1.0);
    let gamma = net.layer.graph.constant("gamma", [width], &gamma);
    let scaled = net.mul(normal, gamma);
    let beta = net.layer.graph.constant("beta", [width], &vec![0.1f32; width]);
    net.add(scaled, beta)
}

fn lstm(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (steps, features) = (random.one_of(&[4, 10, 25]), random.one_of(&[8, 16, 40]));
    let cells = random.one_of(&[8, 16, 32, 64]);
    let mut net = Net::new(kind, random, "main", &[1, steps, features]);
    let mut inputs = vec![None; 20];
    inputs[0] = Some(net.x);
    for gate in 0..4 {
        for (at, depth) in [(CELL.weights[gate], features), (CELL.recurrent[gate], cells)] {
            let w = net.layer.weights(&[cells, depth], 0);
            if kind == Kind::Dynamic {
                net.layer.graph.quantize(w, Quantization::per_tensor(0.005, 0));
            }
            inputs[at] = Some(w);
        }
        inputs[CELL.bias[gate]] = Some(net.layer.graph.constant("b", [cells], &vec![0.1f32; cells]));
    }
    for state in [CELL.output_state, CELL.cell_state] {
        inputs[state] = Some(net.layer.graph.variable("state", TensorType::Float32, [1, cells]));
    }
    let params = UnidirectionalSequenceLstmParams::default().fused_activation_function(Activation::Tanh);
    let node = net.layer.graph.node(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, params);
    let y = node.optional_inputs(inputs).output("y");
    net.x = net.dense(y, [cells, random.one_of(&[2, 10])], Activation::None);
    net.finish()
}

/// A recurrent layer whose steps are nodes.
fn gru(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (steps, features, cells) =
        (random.one_of(&[4, 8]), random.one_of(&[8, 16]), random.one_of(&[16, 32]));
    let mut net = Net::new(kind, random, "main", &[steps, features]);
    let axis = net.layer.graph.constant("axis", [], &[0i32]);
    let params = SplitParams::default().num_splits(steps as i32);
    let rows: Vec<TensorId> =
        (0..steps).map(|_| net.layer.graph.tensor("row", TensorType::Float32, [1, features])).collect();
    net.layer.graph.node(BuiltinOp::SPLIT, params).inputs([axis, net.x]).writes(rows.iter().copied());
    let gates = [(); 3].map(|()| {
        let w = net.layer.weights(&[cells, features], 0);
        let u = net.layer.weights(&[cells, cells], 0);
        let b = net.layer.graph.constant("b", [cells], &vec![0.1f32; cells]);
        (w, u, b)
    });
    let mut state = net.layer.graph.constant("start", [1, cells], &vec![0.0f32; cells]);
    for row in rows {
        let gate = |net: &mut Net, (w, u, b): (TensorId, TensorId, TensorId), state: TensorId| {
            let params = || FullyConnectedParams::default();
            let x = net.op(BuiltinOp::FULLY_CONNECTED, params(), &[row, w, b]);
            let h = net.op(BuiltinOp::FULLY_CONNECTED, params(), &[state, u, b]);
            net.add(x, h)
        };
        let update = gate(&mut net, gates[0], state);
        let update = net.op(BuiltinOp::LOGISTIC, Params::None, &[update]);
        let reset = gate(&mut net, gates[1], state);
        let reset = net.op(BuiltinOp::LOGISTIC, Params::None, &[reset]);
        let kept = net.mul(reset, state);
        let new = gate(&mut net, gates[2], kept);
        let new = net.op(BuiltinOp::TANH, Params::None, &[new]);
        let change = net.op(BuiltinOp::SUB, SubParams::default(), &[state, new]);
        let change = net.mul(update, change);
        state = net.add(new, change);
    }
    net.x = net.dense(state, [cells, 4], Activation::None);
    net.softmax()
}

/// A condition that selects one of two nets.
fn branch(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (depth, units) = (random.one_of(&UNITS), random.one_of(&UNITS));
    let part = |random: &mut Random, name: &str| {
        let hidden = random.one_of(&UNITS);
        let mut net = Net::new(kind, random, name, &[1, depth]);
        net.x = net.dense(net.x, [depth, hidden], Activation::Relu);
        net.x = net.dense(net.x, [hidden, units], Activation::None);
        net.layer.graph.outputs([net.x]);
        net.layer.graph
    };
    let (one, other) = (part(random, "one"), part(random, "other"));
    let mut main = Net::new(kind, random, "main", &[1, depth]);
    let condition = main.layer.graph.input("condition", TensorType::Bool, []);
    let y = main.layer.graph.tensor("y", kind.activations(), Shape::from([1, units]));
    quantize(&mut main.layer.graph, y, kind.quantization(0.05));
    let params = IfParams::default().then_subgraph_index(1).else_subgraph_index(2);
    main.layer.graph.node(BuiltinOp::IF, params).inputs([condition, main.x]).writes([y]);
    main.layer.graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(main.layer.graph).subgraph(one).subgraph(other).build()?)
}

/// A layer that runs several times on its own result.
fn repeated(kind: Kind, random: &mut Random) -> Result<Model, Failure> {
    let (depth, times) = (random.one_of(&UNITS), random.one_of(&[2, 4, 8]));
    let counter = TensorType::Int32;
    let mut body = Net::new(kind, random, "body", &[1, depth]);
    let count = body.layer.graph.input("count", counter, []);
    let one = body.layer.graph.constant("one", [], &[1i32]);
    let next = body.node(BuiltinOp::ADD, AddParams::default(), &[count, one], None);
    body.x = body.dense(body.x, [depth, depth], Activation::Relu);
    body.layer.graph.outputs([body.x, next]);
    let mut test = SubgraphBuilder::new("test");
    let x = test.input("x", kind.activations(), [1, depth]);
    quantize(&mut test, x, kind.quantization(0.05));
    let count = test.input("count", counter, []);
    let end = test.constant("end", [], &[times]);
    let more = test.node(BuiltinOp::LESS, Params::None).inputs([count, end]).output("more");
    test.outputs([more]);
    let mut main = Net::new(kind, random, "main", &[1, depth]);
    let start = main.layer.graph.constant("start", [], &[0i32]);
    let y = main.layer.graph.tensor("y", kind.activations(), Shape::from([1, depth]));
    quantize(&mut main.layer.graph, y, kind.quantization(0.05));
    let ran = main.layer.graph.tensor("ran", counter, []);
    let params = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
    main.layer.graph.node(BuiltinOp::WHILE, params).inputs([main.x, start]).writes([y, ran]);
    main.layer.graph.outputs([y]);
    Ok(ModelBuilder::new().subgraph(main.layer.graph).subgraph(test).subgraph(body.layer.graph).build()?)
}
