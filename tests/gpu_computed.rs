//! Filters, weights and biases that are computed or inputs of the model, in every combination with constants: the
//! results on the GPU match the reference kernels. Skipped with a message on machines without an adapter.

#![allow(clippy::unwrap_used, clippy::panic)] // Only tests call this.

#[path = "common/gpu.rs"]
mod gpu;

use std::sync::Arc;

use delegraph::core::ops::conv_2d::Conv2DParams;
use delegraph::core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph::core::ops::fully_connected::FullyConnectedParams;
use delegraph::core::ops::lstm::UnidirectionalSequenceLstmParams;
use delegraph::core::ops::lstm::inputs::{CELL, INPUT};
use delegraph::core::ops::transpose_conv::TransposeConvParams;
use delegraph::core::ops::{Activation, Padding};
use delegraph::core::{BuiltinOp, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId};
use delegraph::delegate_wgpu::WgpuDelegate;
use delegraph::{Interpreter, Policy, ReferenceOpResolver, TensorType};

fn value(k: usize, seed: usize) -> f32 {
    ((k * 37 + seed * 11 + k / 7) % 29) as f32 / 14.0 - 1.0
}

/// A node whose operands are inputs of the model, except the ones in `constant`.
struct Case {
    graph: SubgraphBuilder,
    constant: [bool; 3],
    operands: Vec<TensorId>,
}

impl Case {
    fn new(constant: [bool; 3]) -> Self {
        Case { graph: SubgraphBuilder::new("main"), constant, operands: Vec::new() }
    }

    fn operand(mut self, shape: &[usize]) -> Self {
        let place = self.operands.len();
        let data: Vec<f32> = (0..shape.iter().product()).map(|k| value(k, place)).collect();
        let id = match self.constant[place] {
            true => self.graph.constant("", shape, &data),
            false => self.graph.input("", TensorType::Float32, shape),
        };
        self.operands.push(id);
        self
    }

    #[track_caller]
    fn check(mut self, delegate: &WgpuDelegate, op: BuiltinOp, params: Params, operands: &[TensorId]) {
        let said = format!("{op:?} {params:?} of {:?}", self.constant);
        let output = self.graph.node(op, params).inputs(operands.to_vec()).output("y");
        self.graph.outputs([output]);
        check(delegate, self.graph, &said);
    }
}

/// Runs a graph of floats twice, on the GPU only and on the reference kernels.
#[track_caller]
fn check(delegate: &WgpuDelegate, graph: SubgraphBuilder, said: &str) {
    let model = Arc::new(ModelBuilder::new().subgraph(graph).build().unwrap());
    let gpu = Interpreter::builder(model.clone()).delegate(delegate.clone());
    let mut gpu = gpu.policy(Policy::Require).build().unwrap();
    let mut cpu = Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build().unwrap();
    for round in 0..2 {
        for interpreter in [&mut gpu, &mut cpu] {
            interpreter.prepare().unwrap_or_else(|e| panic!("{said}: {e}"));
            for i in 0..interpreter.input_count() {
                let input = interpreter.input_mut::<f32>(i).unwrap();
                input.iter_mut().enumerate().for_each(|(k, x)| *x = value(k, i + 5 * (round + 1)));
            }
            interpreter.invoke().unwrap();
        }
        let (got, want) = (gpu.output::<f32>(0).unwrap(), cpu.output::<f32>(0).unwrap());
        let most = want.iter().fold(0.0_f32, |most, v| most.max(v.abs()));
        assert!(most > 0.0, "{said}: nothing but zeros");
        for (k, (g, w)) in got.iter().zip(want).enumerate() {
            let close = approx::abs_diff_eq!(g, w, epsilon = 1e-5 + 1e-4 * most);
            assert!(close, "{said}: element {k} is {g}, expected {w}");
        }
    }
}

/// Whether data, filter and bias are constant. At least one is not.
const MIXTURES: [[bool; 3]; 5] = [
    [false, false, false],
    [false, false, true],
    [false, true, false],
    [true, false, false],
    [true, true, false],
];

#[test]
fn convolutions() {
    let Some(delegate) = gpu::delegate() else { return };
    // Channel counts that are multiples of four or not, one or several groups, windows of one or several pixels.
    for (filter, channels, stride) in [
        ([3, 2, 2, 3], 3, 1),
        ([8, 3, 1, 4], 4, 2),
        ([6, 1, 1, 5], 5, 1),
        ([4, 2, 3, 2], 4, 1),
        ([1, 1, 1, 1], 1, 2),
        ([32, 1, 1, 16], 16, 1),
    ] {
        for constant in MIXTURES {
            for has_bias in [true, false] {
                let mut case = Case::new(constant).operand(&[2, 5, 6, channels]).operand(&filter);
                if has_bias {
                    case = case.operand(&filter[..1]);
                }
                if case.operands.iter().zip(constant).all(|(_, constant)| constant) {
                    continue;
                }
                let params = Conv2DParams::default()
                    .padding(Padding::Same)
                    .stride_w(stride)
                    .stride_h(stride)
                    .fused_activation_function(Activation::ReluN1To1);
                let operands = case.operands.clone();
                case.check(&delegate, BuiltinOp::CONV_2D, Params::Conv2D(params), &operands);
            }
        }
    }
}

#[test]
fn depthwise_convolutions() {
    let Some(delegate) = gpu::delegate() else { return };
    for (window, channels, multiplier) in [([3, 3], 4, 1), ([1, 2], 3, 2), ([5, 1], 8, 1), ([2, 2], 1, 5)] {
        for constant in MIXTURES {
            let outputs = channels * multiplier;
            let [h, w] = window;
            let case = Case::new(constant)
                .operand(&[2, 6, 5, channels])
                .operand(&[1, h, w, outputs])
                .operand(&[outputs]);
            let params = DepthwiseConv2DParams::default()
                .padding(Padding::Valid)
                .stride_w(1)
                .stride_h(1)
                .depth_multiplier(i32::try_from(multiplier).unwrap())
                .fused_activation_function(Activation::ReluN1To1)
                .dilation_w_factor(1)
                .dilation_h_factor(1);
            let operands = case.operands.clone();
            case.check(&delegate, BuiltinOp::DEPTHWISE_CONV_2D, Params::DepthwiseConv2D(params), &operands);
        }
    }
}

#[test]
fn transposed_convolutions() {
    let Some(delegate) = gpu::delegate() else { return };
    for (filter, stride) in [([3, 2, 2, 4], 2), ([4, 3, 3, 5], 1), ([1, 2, 1, 1], 2)] {
        for constant in MIXTURES {
            let [outputs, _, _, channels] = filter;
            let case = Case::new(constant).operand(&[1, 3, 4, channels]).operand(&filter).operand(&[outputs]);
            let mut case = case;
            let out = [1, 3 * stride, 4 * stride, i32::try_from(outputs).unwrap()];
            let shape = case.graph.constant("", [4], &out);
            let params = TransposeConvParams::default()
                .padding(Padding::Same)
                .stride_w(stride)
                .stride_h(stride)
                .fused_activation_function(Activation::None)
                .quantized_bias_type(TensorType::Float32);
            let operands = [shape, case.operands[1], case.operands[0], case.operands[2]];
            case.check(&delegate, BuiltinOp::TRANSPOSE_CONV, Params::TransposeConv(params), &operands);
        }
    }
}

#[test]
fn layers() {
    let Some(delegate) = gpu::delegate() else { return };
    for [rows, inputs, outputs] in [[1, 7, 5], [3, 8, 16], [9, 64, 6]] {
        for constant in MIXTURES {
            let case =
                Case::new(constant).operand(&[rows, inputs]).operand(&[outputs, inputs]).operand(&[outputs]);
            let params = FullyConnectedParams::default().fused_activation_function(Activation::ReluN1To1);
            let operands = case.operands.clone();
            case.check(&delegate, BuiltinOp::FULLY_CONNECTED, Params::FullyConnected(params), &operands);
        }
    }
}

#[test]
fn cells_with_biases_that_are_computed() {
    let Some(delegate) = gpu::delegate() else { return };
    let (batch, steps, features, cells) = (2, 3, 5, 6);
    // Without an input gate, the forget gate is used for both.
    for coupled in [false, true] {
        let mut graph = SubgraphBuilder::new("main");
        let mut inputs = vec![None; 20];
        inputs[INPUT] = Some(graph.input("x", TensorType::Float32, [batch, steps, features]));
        for gate in usize::from(coupled)..4 {
            let mut weights = |shape: [usize; 2], seed| {
                let data: Vec<f32> = (0..shape[0] * shape[1]).map(|k| value(k, seed) / 2.0).collect();
                Some(graph.constant("", shape, &data))
            };
            inputs[CELL.weights[gate]] = weights([cells, features], gate);
            inputs[CELL.recurrent[gate]] = weights([cells, cells], gate + 4);
            inputs[CELL.bias[gate]] = Some(graph.input("", TensorType::Float32, [cells]));
        }
        inputs[CELL.output_state] = Some(graph.variable("", TensorType::Float32, [batch, cells]));
        inputs[CELL.cell_state] = Some(graph.variable("", TensorType::Float32, [batch, cells]));
        let params = UnidirectionalSequenceLstmParams::default().fused_activation_function(Activation::Tanh);
        let node = graph.node(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, params);
        let output = node.optional_inputs(inputs).output("y");
        graph.outputs([output]);
        check(&delegate, graph, &format!("a cell, coupled: {coupled}"));
    }
}

#[test]
fn layers_of_floats_and_bytes_with_a_bias_that_is_computed() {
    let Some(delegate) = gpu::delegate() else { return };
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [3, 16]);
    let weights: Vec<i8> = (0..7 * 16).map(|k| (k * 31 % 255 - 127) as i8).collect();
    let weights = graph.constant("w", [7, 16], &weights);
    graph.quantize(weights, Quantization::per_tensor(0.01, 0));
    let bias = graph.input("b", TensorType::Float32, [7]);
    let params = FullyConnectedParams::default().fused_activation_function(Activation::Relu);
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights, bias]).output("y");
    graph.outputs([y]);
    check(&delegate, graph, "a layer of floats and bytes");
}

#[test]
fn layers_of_bytes_with_a_bias_that_is_computed() {
    let Some(delegate) = gpu::delegate() else { return };
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Int8, [3, 16]);
    let weights: Vec<i8> = (0..7 * 16).map(|k| (k * 31 % 255 - 127) as i8).collect();
    let weights = graph.constant("w", [7, 16], &weights);
    let bias = graph.input("b", TensorType::Int32, [7]);
    let params = FullyConnectedParams::default().quantized_bias_type(TensorType::Int32);
    let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights, bias]).output("y");
    for (id, scale, zero) in [(x, 0.02, 3), (weights, 0.01, 0), (bias, 0.0002, 0), (y, 0.1, -5)] {
        graph.quantize(id, Quantization::per_tensor(scale, zero));
    }
    graph.outputs([y]);
    let model = Arc::new(ModelBuilder::new().subgraph(graph).build().unwrap());
    let gpu = Interpreter::builder(model.clone()).delegate(delegate).policy(Policy::Require);
    let mut gpu = gpu.build().unwrap();
    let mut cpu = Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build().unwrap();
    for interpreter in [&mut gpu, &mut cpu] {
        interpreter.prepare().unwrap();
        let input = interpreter.input_mut::<i8>(0).unwrap();
        input.iter_mut().enumerate().for_each(|(k, x)| *x = (k * 53 % 256) as u8 as i8);
        let bias = interpreter.input_mut::<i32>(1).unwrap();
        bias.iter_mut().zip([0, -9000, 5000, 12_345, -1, 7, 30_000]).for_each(|(x, v)| *x = v);
        interpreter.invoke().unwrap();
    }
    assert_eq!(gpu.output::<i8>(0).unwrap(), cpu.output::<i8>(0).unwrap());
}
