//! Quantized products on the GPU, of random shapes, values and scales, match the reference kernels bit by bit.
//! Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

use delegraph::core::ops::batch_matmul::BatchMatMulParams;
use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::transpose_conv::TransposeConvParams;
use delegraph::core::ops::{Activation, Padding, WeightsFormat};
use delegraph::core::quantization::Affine;
use delegraph::core::{BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId};
use delegraph::delegate_wgpu::{WgpuDelegate, WgpuOptions};
use delegraph::{Interpreter, Policy, ReferenceOpResolver, TensorType};

use TensorType::{Int4, Int8, Int16, Int32, Int64, UInt8};

/// Numbers that are the same on every machine.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn within(&mut self, low: i64, high: i64) -> i64 {
        low + (self.bits() % (high - low + 1).unsigned_abs()).cast_signed()
    }

    fn size(&mut self, sizes: &[usize]) -> usize {
        sizes[self.bits() as usize % sizes.len()]
    }

    fn yes(&mut self) -> bool {
        self.bits().is_multiple_of(2)
    }

    fn scale(&mut self, about: f64) -> f32 {
        (about * (0.5 + self.bits() as f64 / 2_f64.powi(31))) as f32
    }
}

fn limits(ty: TensorType) -> (i64, i64) {
    match ty {
        Int4 => (-8, 7),
        Int8 => (-128, 127),
        UInt8 => (0, 255),
        _ => (-32_768, 32_767),
    }
}

/// A product under construction. In half of the cases, all weights are large. Each case runs with inputs that are all
/// large, and with inputs of any size.
struct Case {
    random: Random,
    graph: SubgraphBuilder,
    ty: TensorType,
    input: (f32, i64),
    /// The largest magnitude of weights, and whether all have about that magnitude.
    weights: (i64, bool),
}

impl Case {
    fn new(seed: u64, ty: TensorType) -> Self {
        let mut random = Random(seed);
        (0..4).for_each(|_| _ = random.bits());
        let (low, high) = limits(ty);
        let zero = match (ty, random.yes()) {
            (Int16, _) => 0,
            (_, true) => low,
            (_, false) => random.within(low, high),
        };
        let input = (random.scale(0.01), zero);
        Case { random, graph: SubgraphBuilder::new("main"), ty, input, weights: (127, false) }
    }

    fn input(&mut self, shape: &[usize]) -> TensorId {
        let id = self.graph.input("x", self.ty, shape);
        self.graph.quantize(id, Quantization::per_tensor(self.input.0, self.input.1));
        id
    }

    /// Weights with their channels along `dimension`, and the scale of each channel's sums.
    fn weights(
        &mut self,
        ty: TensorType,
        shape: &[usize],
        dimension: usize,
        zero: i64,
    ) -> (TensorId, Vec<f32>) {
        let (low, high) = limits(ty);
        let (large, random) = (self.random.yes(), &mut self.random);
        self.weights = (high - zero, large);
        let count = shape.iter().product::<usize>();
        let values: Vec<i64> = (0..count)
            .map(|_| if large { high - random.within(0, 1) } else { random.within(low, high) })
            .collect();
        let bytes: Vec<u8> = match ty {
            Int4 => values.chunks(2).map(|p| (p[0] & 15 | p.get(1).unwrap_or(&0) << 4) as u8).collect(),
            _ => values.iter().map(|&v| v as u8).collect(),
        };
        let id = self.graph.constant_bytes("w", ty, shape, &bytes);
        let per_channel = self.random.yes() && zero == 0 && ty != UInt8;
        let scales: Vec<f32> = match per_channel {
            true => (0..shape[dimension]).map(|_| self.random.scale(0.02)).collect(),
            false => vec![self.random.scale(0.02)],
        };
        let zero_points = vec![zero; scales.len()].into();
        self.graph
            .quantize(id, Quantization::Affine(Affine { scales: scales.clone(), zero_points, dimension }));
        (id, scales)
    }

    fn bias(&mut self, ty: TensorType, channels: usize) -> TensorId {
        let large = if ty == Int64 { 1 << 36 } else { 1 << 24 };
        let values: Vec<i64> = (0..channels).map(|_| self.random.within(-large, large)).collect();
        match ty {
            Int64 => self.graph.constant("b", [channels], &values),
            _ => self.graph.constant("b", [channels], &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
        }
    }

    /// Runs the node on CPU and GPU. `scales`: the scales of the weights; `depth`: the number of products in a sum.
    fn check(
        mut self,
        name: &str,
        op: BuiltinOp,
        params: impl Into<Params>,
        inputs: Vec<Option<TensorId>>,
        scales: &[f32],
        depth: usize,
    ) {
        let (low, high) = limits(self.ty);
        let zero = if self.ty == Int16 { 0 } else { self.random.within(low, high) };
        // Most results are within the range, for terms that are all large, and for terms of either sign.
        let term = ((high - self.input.1) * self.weights.0) as f64;
        let sum = if self.weights.1 { term * depth as f64 } else { term * (depth as f64).sqrt() };
        let steps = if self.ty == Int16 { 20_000.0 } else { 100.0 };
        let step = f64::from(scales[0]) * f64::from(self.input.0) * sum / steps;
        let scale = self.random.scale(step);
        let node = self.graph.node(op, params).optional_inputs(inputs).output_type(self.ty);
        let y = node.output_quantization(Quantization::per_tensor(scale, zero)).output("y");
        self.graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(self.graph).build().unwrap();
        let Some(delegate) = delegate() else { return };
        let mut reference =
            Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new()).build().unwrap();
        let delegated = Interpreter::builder(model).delegate(delegate).policy(Policy::Require).build();
        let mut delegated = delegated.unwrap_or_else(|e| panic!("{name}: {e}"));
        for large in [true, false] {
            let random = &mut self.random;
            let mut value = || if large { high - random.within(0, 2) } else { random.within(low, high) };
            for i in 0..reference.input_count() {
                let bytes = reference.input_bytes_mut(i).unwrap();
                match self.ty {
                    Int16 => bytes
                        .chunks_exact_mut(2)
                        .for_each(|to| to.copy_from_slice(&(value() as i16).to_le_bytes())),
                    _ => bytes.iter_mut().for_each(|to| *to = value() as u8),
                }
                let bytes = bytes.to_vec();
                delegated.set_input_bytes(i, &bytes).unwrap();
            }
            reference.invoke().unwrap();
            delegated.invoke().unwrap();
            let (want, got) =
                (reference.output_tensor(0).unwrap().bytes(), delegated.output_tensor(0).unwrap().bytes());
            assert!(want == got, "{name}, {depth} products, large inputs: {large}\n{want:?}\n{got:?}");
        }
    }
}

fn delegate() -> Option<Box<WgpuDelegate>> {
    let opened = WgpuDelegate::new(WgpuOptions::default());
    opened.inspect_err(|e| eprintln!("skipped: {e}")).ok().map(Box::new)
}

/// Types of activations, weights and biases.
const TYPES: [[TensorType; 3]; 5] = [
    [Int8, Int8, Int32],
    [UInt8, UInt8, Int32],
    [Int8, Int4, Int32],
    [Int16, Int8, Int64],
    [Int16, Int8, Int32],
];

const ACTIVATIONS: [Activation; 2] = [Activation::None, Activation::Relu];

fn activation(random: &mut Random) -> Activation {
    ACTIVATIONS[usize::from(random.yes())]
}

fn zero_of(random: &mut Random, ty: TensorType) -> i64 {
    if ty == UInt8 { random.within(0, 255) } else { 0 }
}

#[test]
fn convolutions() {
    for (seed, [ty, weights, bias]) in (0..30).zip(TYPES.into_iter().cycle()) {
        let mut case = Case::new(seed, ty);
        let r = &mut case.random;
        let (groups, side, channels, outputs) =
            (r.size(&[1, 1, 2]), r.size(&[1, 4, 7]), r.size(&[4, 6, 600, 1030]), r.size(&[2, 10, 16]));
        let (window, stride, has_bias, fused) =
            (r.size(&[1, 3]), r.within(1, 2) as i32, r.within(0, 3) > 0, activation(r));
        let zero = zero_of(r, weights);
        let depth = channels / groups;
        let x = case.input(&[1, side, side, channels]);
        let (w, scales) = case.weights(weights, &[outputs, window, window, depth], 0, zero);
        let b = (has_bias || bias == Int64).then(|| case.bias(bias, outputs));
        let params = Conv2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride)
            .stride_h(stride)
            .fused_activation_function(fused)
            .dilation_w_factor(1)
            .dilation_h_factor(1)
            .quantized_bias_type(bias);
        let name = format!("convolution {seed} of {ty} and {weights}");
        let inputs = vec![Some(x), Some(w), b];
        case.check(
            &name,
            BuiltinOp::CONV_2D,
            Params::Conv2D(params),
            inputs,
            &scales,
            depth * window * window,
        );
    }
}

#[test]
fn depthwise_convolutions() {
    for (seed, [ty, weights, bias]) in
        (100..124).zip(TYPES.into_iter().cycle().filter(|t| t[2] != Int32 || t[0] != Int16))
    {
        let mut case = Case::new(seed, ty);
        let r = &mut case.random;
        let (side, channels, multiplier, window) =
            (r.size(&[5, 25]), r.size(&[1, 4, 5, 12]), r.size(&[1, 1, 3]), r.size(&[1, 3, 23]));
        let (stride, has_bias, fused, zero) =
            (r.within(1, 2) as i32, r.yes(), activation(r), zero_of(r, weights));
        let outputs = channels * multiplier;
        let window = window.min(if ty == Int16 { 19 } else { 23 });
        let x = case.input(&[1, side, side, channels]);
        let (w, scales) = case.weights(weights, &[1, window, window, outputs], 3, zero);
        let b = has_bias.then(|| case.bias(bias, outputs));
        let params = DepthwiseConv2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride)
            .stride_h(stride)
            .depth_multiplier(multiplier as i32)
            .fused_activation_function(fused)
            .dilation_w_factor(1)
            .dilation_h_factor(1);
        let name = format!("depthwise convolution {seed} of {ty} and {weights}");
        let (inputs, params) = (vec![Some(x), Some(w), b], Params::DepthwiseConv2D(params));
        case.check(&name, BuiltinOp::DEPTHWISE_CONV_2D, params, inputs, &scales, window * window);
    }
}

#[test]
fn fully_connected_layers() {
    for (seed, [ty, weights, bias]) in (200..250).zip(TYPES.into_iter().cycle()) {
        let mut case = Case::new(seed, ty);
        let r = &mut case.random;
        let (rows, inputs, outputs) =
            (r.size(&[1, 3, 20]), r.size(&[3, 16, 700, 2500]), r.size(&[2, 10, 16]));
        let (has_bias, fused, zero) = (r.yes(), activation(r), r.within(0, 3));
        let zero = if weights == UInt8 {
            100 + zero
        } else if zero == 0 && weights == Int8 {
            -128
        } else {
            0
        };
        let x = case.input(&[rows, inputs]);
        let (w, scales) = case.weights(weights, &[outputs, inputs], 0, zero);
        let b = has_bias.then(|| case.bias(bias, outputs));
        let params = FullyConnectedParams::default()
            .fused_activation_function(fused)
            .weights_format(WeightsFormat::Default)
            .keep_num_dims(false)
            .asymmetric_quantize_inputs(false)
            .quantized_bias_type(bias);
        let name = format!("layer {seed} of {ty} and {weights}, zero point {zero}");
        let (operands, params) = (vec![Some(x), Some(w), b], Params::FullyConnected(params));
        case.check(&name, BuiltinOp::FULLY_CONNECTED, params, operands, &scales, inputs);
    }
}

#[test]
fn transposed_convolutions() {
    for (seed, [ty, weights, bias]) in (300..324).zip(TYPES.into_iter().cycle().filter(|t| t[1] != Int4)) {
        let mut case = Case::new(seed, ty);
        let r = &mut case.random;
        let (side, channels, outputs, window) =
            (r.size(&[1, 3]), r.size(&[3, 8, 600]), r.size(&[1, 9, 16]), r.size(&[2, 3]));
        let (stride, has_bias, zero) = (r.within(1, 2) as i32, r.yes(), zero_of(r, weights));
        let out = side * stride as usize;
        let shape = case.graph.constant("s", [4], &[1, out as i32, out as i32, outputs as i32]);
        let (w, scales) = case.weights(weights, &[outputs, window, window, channels], 0, zero);
        let x = case.input(&[1, side, side, channels]);
        let b = has_bias.then(|| case.bias(bias, outputs));
        let params = TransposeConvParams::default()
            .padding(Padding::Same)
            .stride_w(stride)
            .stride_h(stride)
            .fused_activation_function(Activation::None)
            .quantized_bias_type(bias);
        let name = format!("transposed convolution {seed} of {ty} and {weights}");
        let (inputs, params) = (vec![Some(shape), Some(w), Some(x), b], Params::TransposeConv(params));
        case.check(&name, BuiltinOp::TRANSPOSE_CONV, params, inputs, &scales, channels * window);
    }
}

#[test]
fn products_of_computed_matrices() {
    for (seed, ty) in (400..424).zip([Int8, Int16].into_iter().cycle()) {
        let mut case = Case::new(seed, ty);
        let r = &mut case.random;
        let (rows, columns, depth) = (r.size(&[1, 3, 20]), r.size(&[1, 7, 16]), r.size(&[5, 16, 300, 1030]));
        let (adj_x, adj_y) = (r.yes(), r.yes());
        let order = |swap: bool, [a, b]: [usize; 2]| if swap { [b, a] } else { [a, b] };
        let x = case.input(&order(adj_x, [rows, depth]));
        let y = case.input(&order(adj_y, [depth, columns]));
        let params = BatchMatMulParams::default().adj_x(adj_x).adj_y(adj_y).asymmetric_quantize_inputs(false);
        let (name, scales) = (format!("product {seed}"), [case.input.0]);
        let (inputs, params) = (vec![Some(x), Some(y)], Params::BatchMatMul(params));
        case.check(&name, BuiltinOp::BATCH_MATMUL, params, inputs, &scales, depth);
    }
}

/// Float activations with integer weights. The CPU computes the zero point of a row in double precision. For a
/// symmetric row it is half-way between two integers, or close to it, and single precision rounds it differently: then
/// the row's ends differ by a step.
#[test]
fn rows_of_floats_become_the_integers_of_the_reference_kernels() {
    let Some(delegate) = delegate() else { return };
    let (rows, width) = (400, 8);
    for asymmetric_quantize_inputs in [false, true] {
        let mut random = Random(77);
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [rows, width]);
        // Each output is one of the inputs.
        let identity: Vec<i8> = (0..width * width).map(|i| i8::from(i % width == i / width)).collect();
        let weights = graph.constant("w", [width, width], &identity);
        graph.quantize(weights, Quantization::per_tensor(1.0, 0));
        let params = FullyConnectedParams::default()
            .fused_activation_function(Activation::None)
            .weights_format(WeightsFormat::Default)
            .keep_num_dims(false)
            .asymmetric_quantize_inputs(asymmetric_quantize_inputs)
            .quantized_bias_type(TensorType::Float32);
        let node =
            graph.node(BuiltinOp::FULLY_CONNECTED, params).optional_inputs([Some(x), Some(weights), None]);
        let y = node.output("y");
        graph.outputs([y]);
        let model = ModelBuilder::new().subgraph(graph).build().unwrap();
        let mut values = Vec::new();
        for row in 0..rows {
            let high = random.scale(1.0);
            let low = if row % 2 == 0 { -high } else { -random.scale(1.0) };
            values.extend([low, high]);
            values.extend((2..width).map(|_| low + random.scale(0.6) * (high - low)));
        }
        let outputs = |builder: delegraph::interpreter::InterpreterBuilder| -> Vec<f32> {
            let mut interpreter = builder.build().unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            interpreter.set_input_bytes(0, &bytes).unwrap();
            interpreter.invoke().unwrap();
            interpreter.output::<f32>(0).unwrap().to_vec()
        };
        let want = outputs(Interpreter::builder(model.clone()).resolver(ReferenceOpResolver::new()));
        let got = outputs(Interpreter::builder(model).delegate(delegate.clone()).policy(Policy::Require));
        let off = want.iter().zip(&got).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(off, 0, "of {} numbers, asymmetric: {asymmetric_quantize_inputs}", want.len());
    }
}
