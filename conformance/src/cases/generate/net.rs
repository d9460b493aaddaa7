//! Graphs of several nodes, built node by node.

use std::string::String;

use delegraph_core::ops::conv_2d::Conv2DParams;
use delegraph_core::ops::depthwise_conv_2d::DepthwiseConv2DParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::{Model, ModelBuilder, Quantization, SubgraphBuilder, TensorId};

use super::super::prelude::*;
use super::draw::Draw;
use super::elementwise;
use crate::Error;

/// A tensor of a graph.
#[derive(Debug, Clone)]
pub(super) struct T {
    pub(super) id: TensorId,
    pub(super) shape: Vec<usize>,
    pub(super) ty: TensorType,
    /// Upper bound of the elements' magnitudes.
    pub(super) bound: f32,
}

/// Returns the shape with a different last dimension.
pub(super) fn with_last(shape: &[usize], change: impl FnOnce(usize) -> usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = change(*last);
    }
    shape
}

/// A subgraph under construction.
pub(super) struct Net {
    pub(super) graph: SubgraphBuilder,
    pub(super) draw: Draw,
    others: Vec<SubgraphBuilder>,
    count: usize,
}

impl Net {
    pub(super) fn new(name: &str, draw: Draw) -> Self {
        Net { graph: SubgraphBuilder::new(name), draw, others: Vec::new(), count: 0 }
    }

    /// Adds a subgraph that this one calls, and returns its index in the model.
    pub(super) fn call(&mut self, graph: SubgraphBuilder) -> i32 {
        self.others.push(graph);
        self.others.len() as i32
    }

    pub(super) fn model(self) -> Result<Model, Error> {
        let model = ModelBuilder::new().subgraph(self.graph);
        let model = self.others.into_iter().fold(model, ModelBuilder::subgraph);
        Ok(model.build()?)
    }

    /// Returns a name that is not in use.
    pub(super) fn name(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}_{}", self.count)
    }

    /// Adds an input like `operand`.
    pub(super) fn input(&mut self, operand: &Operand) -> T {
        let name = self.name("input");
        let id = self.graph.input(&name, operand.ty, operand.shape.clone());
        operand.quantization.iter().for_each(|q| self.graph.quantize(id, q.clone()));
        T { id, shape: operand.shape.to_vec(), ty: operand.ty, bound: 4.0 }
    }

    pub(super) fn outputs(&mut self, tensors: &[&T]) {
        self.graph.outputs(tensors.iter().map(|t| t.id));
    }

    /// Adds constant floats from `low` to `high`.
    pub(super) fn floats(&mut self, shape: &[usize], low: f32, high: f32) -> T {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|_| self.draw.real(low, high)).collect();
        let name = self.name("constant");
        let id = self.graph.constant(&name, shape, &values);
        T { id, shape: shape.to_vec(), ty: Float32, bound: low.abs().max(high.abs()) }
    }

    /// Adds a constant list of integers.
    pub(super) fn list(&mut self, values: &[i32]) -> TensorId {
        let name = self.name("list");
        self.graph.constant(&name, [values.len()], values)
    }

    /// Adds a node whose output has this shape and the type of the first input.
    pub(super) fn node(
        &mut self,
        op: Op,
        params: Params,
        inputs: &[&T],
        rest: &[TensorId],
        shape: &[usize],
    ) -> T {
        let ids = inputs.iter().map(|t| t.id).chain(rest.iter().copied());
        let name = self.name("t");
        let id = self.graph.node(op, params).inputs(ids).output(&name);
        let bound = inputs.iter().map(|t| t.bound).fold(0.0, f32::max);
        T { id, shape: shape.to_vec(), ty: inputs[0].ty, bound }
    }

    /// Adds an elementwise op with one input.
    pub(super) fn unary(&mut self, op: Op, a: &T) -> T {
        let mut t = self.node(op, Params::None, &[a], &[], &a.shape);
        t.bound = match op {
            Op::LOGISTIC | Op::TANH | Op::COS | Op::SIN => 1.0,
            Op::RELU6 => a.bound.min(6.0),
            Op::SQUARE => a.bound * a.bound,
            _ => a.bound,
        };
        t
    }

    /// Adds arithmetic of two inputs that broadcast.
    pub(super) fn binary(&mut self, op: Op, a: &T, b: &T, activation: Activation) -> T {
        let rank = a.shape.len().max(b.shape.len());
        let at = |t: &T, i: usize| {
            let missing = rank - t.shape.len();
            if i < missing { 1 } else { t.shape[i - missing] }
        };
        let shape: Vec<usize> = (0..rank).map(|i| at(a, i).max(at(b, i))).collect();
        let mut t = self.node(op, elementwise::params(op, activation), &[a, b], &[], &shape);
        t.bound = match op {
            Op::MUL => a.bound * b.bound,
            Op::SQUARED_DIFFERENCE => (a.bound + b.bound).powi(2),
            Op::ADD | Op::SUB => a.bound + b.bound,
            _ => t.bound,
        };
        if activation == Activation::Relu6 {
            t.bound = t.bound.min(6.0);
        }
        t
    }

    pub(super) fn reshape(&mut self, a: &T, shape: &[usize]) -> T {
        let new_shape: Vec<i32> = shape.iter().map(|&d| d as i32).collect();
        let list = self.list(&new_shape);
        self.node(Op::RESHAPE, ReshapeParams::default().new_shape(new_shape).into(), &[a], &[list], shape)
    }

    pub(super) fn transpose(&mut self, a: &T, order: &[usize]) -> T {
        let list = self.list(&order.iter().map(|&d| d as i32).collect::<Vec<_>>());
        let shape: Vec<usize> = order.iter().map(|&d| a.shape[d]).collect();
        self.node(Op::TRANSPOSE, Params::None, &[a], &[list], &shape)
    }

    pub(super) fn softmax(&mut self, a: &T) -> T {
        let mut t = self.node(Op::SOFTMAX, SoftmaxParams::default().beta(1.0).into(), &[a], &[], &a.shape);
        t.bound = 1.0;
        t
    }

    pub(super) fn reduce(&mut self, op: Op, a: &T, axes: &[usize], keep_dims: bool) -> T {
        let list = self.list(&axes.iter().map(|&d| d as i32).collect::<Vec<_>>());
        let dims = a.shape.iter().enumerate();
        let shape: Vec<usize> = dims
            .filter(|(i, _)| keep_dims || !axes.contains(i))
            .map(|(i, &d)| if axes.contains(&i) { 1 } else { d })
            .collect();
        self.node(op, ReducerParams::default().keep_dims(keep_dims).into(), &[a], &[list], &shape)
    }

    /// Adds FULLY_CONNECTED with these weights, or with new ones.
    pub(super) fn dense(&mut self, a: &T, units: usize, weights: Option<&T>, activation: Activation) -> T {
        let depth = a.shape[a.shape.len() - 1];
        let reach = 1.5 / (depth as f32).sqrt();
        let own = self.floats(&[units, depth], -reach, reach);
        let weights = weights.cloned().unwrap_or(own);
        let bias = self.floats(&[units], -0.5, 0.5);
        let params = FullyConnectedParams::default()
            .fused_activation_function(activation)
            .keep_num_dims(a.shape.len() > 2);
        let shape = with_last(&a.shape, |_| units);
        let mut t = self.node(Op::FULLY_CONNECTED, params.into(), &[a, &weights, &bias], &[], &shape);
        t.bound = a.bound * 1.5 + 0.5;
        t
    }

    /// Adds CONV_2D with `outputs` channels or, without `outputs`, DEPTHWISE_CONV_2D; with stride 1, the size is
    /// unchanged.
    pub(super) fn conv(
        &mut self,
        a: &T,
        outputs: Option<usize>,
        window: usize,
        stride: usize,
        activation: Activation,
    ) -> T {
        let channels = a.shape[3];
        let depth = (window * window * outputs.map_or(1, |_| channels)) as f32;
        let reach = 1.5 / depth.sqrt();
        let count = outputs.unwrap_or(channels);
        let filter = match outputs {
            Some(n) => self.floats(&[n, window, window, channels], -reach, reach),
            None => self.floats(&[1, window, window, channels], -reach, reach),
        };
        let bias = self.floats(&[count], -0.5, 0.5);
        let step = stride as i32;
        let (op, params): (Op, Params) = match outputs {
            Some(_) => (
                Op::CONV_2D,
                Conv2DParams::default()
                    .padding(Padding::Same)
                    .stride_w(step)
                    .stride_h(step)
                    .fused_activation_function(activation)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1)
                    .quantized_bias_type(Float32)
                    .into(),
            ),
            None => (
                Op::DEPTHWISE_CONV_2D,
                DepthwiseConv2DParams::default()
                    .padding(Padding::Same)
                    .stride_w(step)
                    .stride_h(step)
                    .depth_multiplier(1)
                    .fused_activation_function(activation)
                    .dilation_w_factor(1)
                    .dilation_h_factor(1)
                    .into(),
            ),
        };
        let shape = [a.shape[0], a.shape[1].div_ceil(stride), a.shape[2].div_ceil(stride), count];
        let mut t = self.node(op, params, &[a, &filter, &bias], &[], &shape);
        t.bound = a.bound * 1.5 + 0.5;
        t
    }

    pub(super) fn pool(&mut self, op: Op, a: &T, stride: usize) -> T {
        let params = Pool2DParams::default()
            .padding(Padding::Same)
            .stride_w(stride as i32)
            .stride_h(stride as i32)
            .filter_width(3)
            .filter_height(2)
            .fused_activation_function(Activation::None);
        let shape = [a.shape[0], a.shape[1].div_ceil(stride), a.shape[2].div_ceil(stride), a.shape[3]];
        self.node(op, params.into(), &[a], &[], &shape)
    }

    /// Adds QUANTIZE of a float tensor to 8 bits.
    pub(super) fn quantize(&mut self, a: &T, scale: f32, zero: i64) -> T {
        let name = self.name("bytes");
        let q = Quantization::per_tensor(scale, zero);
        let id = self
            .graph
            .node(Op::QUANTIZE, Params::None)
            .inputs([a.id])
            .output_type(Int8)
            .output_quantization(q)
            .output(&name);
        T { id, shape: a.shape.clone(), ty: Int8, bound: a.bound }
    }

    pub(super) fn dequantize(&mut self, a: &T) -> T {
        let name = self.name("floats");
        let id =
            self.graph.node(Op::DEQUANTIZE, Params::None).inputs([a.id]).output_type(Float32).output(&name);
        T { id, shape: a.shape.clone(), ty: Float32, bound: a.bound }
    }

    /// Adds a quantized node with one scale.
    pub(super) fn quantized(
        &mut self,
        op: Op,
        params: Params,
        inputs: &[&T],
        rest: &[TensorId],
        shape: &[usize],
        q: (f32, i64),
    ) -> T {
        let ids = inputs.iter().map(|t| t.id).chain(rest.iter().copied());
        let name = self.name("q");
        let node = self.graph.node(op, params).inputs(ids);
        let id = node.output_quantization(Quantization::per_tensor(q.0, q.1)).output(&name);
        T { id, shape: shape.to_vec(), ty: inputs[0].ty, bound: 128.0 * q.0 }
    }
}
