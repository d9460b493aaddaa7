//! Quantized graphs: 8-bit sections between QUANTIZE and DEQUANTIZE, quantized residual blocks.

use delegraph_core::Quantization;
use delegraph_core::TensorId;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::quantization::{Affine, ZeroPoints};

use super::super::prelude::*;
use super::draw::Draw;
use super::elementwise;
use super::graphs::{Row, image, two};
use super::net::{Net, T, with_last};

const PLAIN: Activation = Activation::None;

fn bytes(draw: &mut Draw) -> Vec<Operand> {
    let shape = [draw.size(1, 2), draw.size(3, 8), draw.size(4, 9), draw.pick(&[2, 3, 4, 5, 8])];
    vec![x(Int8, &shape).q(0.03, draw.int(-20, 20))]
}

/// Creates 8-bit weights with a scale per channel, and a 32-bit bias.
fn weights(net: &mut Net, filter: &[usize], input_scale: f32) -> [TensorId; 2] {
    let n = filter.iter().product::<usize>();
    let values: Vec<i8> = (0..n).map(|_| net.draw.int(-127, 127) as i8).collect();
    let scales: Vec<f32> = (0..filter[0]).map(|_| net.draw.real(0.002, 0.008)).collect();
    let name = net.name("weights");
    let weights = net.graph.constant(&name, filter, &values);
    let zero_points = ZeroPoints::from(vec![0; scales.len()]);
    let affine =
        |scales| Quantization::Affine(Affine { scales, zero_points: zero_points.clone(), dimension: 0 });
    net.graph.quantize(weights, affine(scales.clone()));
    let values: Vec<i32> = (0..filter[0]).map(|_| net.draw.int(-4000, 4000) as i32).collect();
    let name = net.name("bias");
    let bias = net.graph.constant(&name, [filter[0]], &values);
    net.graph.quantize(bias, affine(scales.iter().map(|s| s * input_scale).collect()));
    [weights, bias]
}

fn conv(net: &mut Net, a: &T, outputs: usize, window: usize, scales: [f32; 2], activation: Activation) -> T {
    let params = Conv2DParams::default()
        .padding(Padding::Same)
        .stride_w(1)
        .stride_h(1)
        .fused_activation_function(activation)
        .dilation_w_factor(1)
        .dilation_h_factor(1)
        .quantized_bias_type(Float32);
    let rest = weights(net, &[outputs, window, window, a.shape[3]], scales[0]);
    let shape = [a.shape[0], a.shape[1], a.shape[2], outputs];
    let zero = net.draw.int(-20, 20);
    net.quantized(Op::CONV_2D, params.into(), &[a], &rest, &shape, (scales[1], zero))
}

/// Two convolutions and a sum.
fn block(net: &mut Net, inputs: &[T]) {
    let a = &inputs[0];
    let channels = a.shape[3];
    let first = conv(net, a, channels + 3, 3, [0.03, 0.05], Activation::Relu);
    let second = conv(net, &first, channels, 1, [0.05, 0.06], PLAIN);
    let params = elementwise::params(Op::ADD, Activation::Relu);
    let sum = net.quantized(Op::ADD, params, &[&second, a], &[], &a.shape, (0.07, -11));
    let params = Pool2DParams::default()
        .padding(Padding::Valid)
        .stride_w(2)
        .stride_h(1)
        .filter_width(3)
        .filter_height(2)
        .fused_activation_function(PLAIN);
    let shape = [a.shape[0], a.shape[1] - 1, (a.shape[2] - 3) / 2 + 1, channels];
    let op = net.draw.pick(&[Op::AVERAGE_POOL_2D, Op::MAX_POOL_2D]);
    let pooled = net.quantized(op, params.into(), &[&sum], &[], &shape, (0.07, -11));
    net.outputs(&[&pooled]);
}

/// Floats, 8-bit integers, and floats again.
fn island(net: &mut Net, inputs: &[T]) {
    let before = net.unary(Op::TANH, &inputs[0]);
    let bytes = net.quantize(&before, 1.0 / 100.0, 5);
    let outputs = net.draw.pick(&[3, 4, 5]);
    let inside = conv(net, &bytes, outputs, 2, [0.01, 0.02], PLAIN);
    let after = net.dequantize(&inside);
    let last = net.unary(Op::RELU, &after);
    match net.draw.chance(40) {
        true => net.outputs(&[&last, &inside]),
        false => net.outputs(&[&last]),
    }
}

/// Different scales before QUANTIZE and a concatenation.
fn rescaled(net: &mut Net, inputs: &[T]) {
    let a = net.quantize(&inputs[0], 0.03, 3);
    let b = net.quantize(&inputs[1], 0.05, -7);
    let b = net.quantized(Op::QUANTIZE, Params::None, &[&b], &[], &inputs[1].shape, (0.03, 3));
    let shape = with_last(&inputs[0].shape, |d| 2 * d);
    let params = ConcatenationParams::default().axis(-1).fused_activation_function(PLAIN);
    let both = net.quantized(Op::CONCATENATION, params.into(), &[&a, &b], &[], &shape, (0.03, 3));
    let out = net.dequantize(&both);
    net.outputs(&[&out]);
}

pub(super) const TABLE: &[Row] = &[
    ("quantized_block", Op::CONV_2D, bytes, block, 1, 40),
    ("island", Op::QUANTIZE, image, island, 1, 40),
    ("rescaled", Op::CONCATENATION, two, rescaled, 1, 24),
];
