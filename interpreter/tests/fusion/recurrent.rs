//! Recurrent layers written as a loop of products, in the layouts of three frameworks, marked as composites.

use delegraph_core::ops::Params;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::binary::{AddParams, MulParams};
use delegraph_core::ops::control_flow::WhileParams;
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::ops::reshape::ReshapeParams;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::{
    Attributes, BuiltinOp as B, Model, ModelBuilder, Quantization, SubgraphBuilder, TensorId, TensorType,
};

pub(crate) const FLOAT: TensorType = TensorType::Float32;

/// The sizes of a layer, and the storage of its weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    pub(crate) framework: Framework,
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) features: usize,
    pub(crate) cells: usize,
    /// Weights are int8.
    pub(crate) hybrid: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framework {
    Keras,
    Onnx,
    Torch,
}

impl Framework {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Framework::Keras => "keras.lstm",
            Framework::Onnx => "onnx.LSTM",
            Framework::Torch => "aten.lstm.input",
        }
    }

    /// The positions of the gates input, forget, cell and output.
    pub(crate) fn gates(self) -> [usize; 4] {
        if self == Framework::Onnx { [0, 2, 3, 1] } else { [0, 1, 2, 3] }
    }

    /// Weights are `[4 · cells, …]`.
    fn rows(self) -> bool {
        self != Framework::Keras
    }
}

/// Distinct small numbers.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (((i * 37 + seed * 101) % 61) as f32 - 30.0) / 120.0).collect()
}

pub(crate) fn binary(graph: &mut SubgraphBuilder, op: B, a: TensorId, b: TensorId) -> TensorId {
    let params: Params = if op == B::ADD { AddParams::default().into() } else { MulParams::default().into() };
    graph.node(op, params).inputs([a, b]).output("")
}

pub(crate) fn unary(graph: &mut SubgraphBuilder, op: B, x: TensorId) -> TensorId {
    graph.node(op, Params::None).inputs([x]).output("")
}

impl Layer {
    /// The values that a loop carries: time, `h`, `c`, all outputs, and the unchanged `x`, weights and biases.
    fn state(&self, graph: &mut SubgraphBuilder) -> [TensorId; 8] {
        let Layer { batch, time, features, cells, .. } = *self;
        let (kernel, recurrent) = match self.framework.rows() {
            true => ([4 * cells, features], [4 * cells, cells]),
            false => ([features, 4 * cells], [cells, 4 * cells]),
        };
        [
            graph.input("t", TensorType::Int32, [1]),
            graph.input("h", FLOAT, [batch, cells]),
            graph.input("c", FLOAT, [batch, cells]),
            graph.input("outputs", FLOAT, [time, batch, cells]),
            graph.input("x", FLOAT, [time, batch, features]),
            graph.input("kernel", FLOAT, kernel),
            graph.input("recurrent", FLOAT, recurrent),
            graph.input("bias", FLOAT, [4 * cells]),
        ]
    }

    fn condition(&self) -> SubgraphBuilder {
        let mut graph = SubgraphBuilder::new("condition");
        let [t, ..] = self.state(&mut graph);
        let end = graph.constant("end", [1], &[self.time as i32]);
        let less = graph.node(B::LESS, Params::None).inputs([t, end]).output("less");
        graph.outputs([less]);
        graph
    }

    fn step(&self) -> SubgraphBuilder {
        let mut graph = SubgraphBuilder::new("step");
        let g = &mut graph;
        let [t, h, c, outputs, x, kernel, recurrent, bias] = self.state(g);
        let now = g.node(B::GATHER, GatherParams::default()).inputs([x, t]).output("now");
        let shape = g.constant("", [2], &[self.batch as i32, self.features as i32]);
        let now = g.node(B::RESHAPE, ReshapeParams::default()).inputs([now, shape]).output("");
        let product = || BatchMatMulParams::default().adj_y(self.framework.rows());
        let a = g.node(B::BATCH_MATMUL, product()).inputs([now, kernel]).output("");
        let b = g.node(B::BATCH_MATMUL, product()).inputs([h, recurrent]).output("");
        let sum = binary(g, B::ADD, a, b);
        let sum = binary(g, B::ADD, sum, bias);
        let axis = g.constant("axis", [], &[1i32]);
        let parts = g
            .node(B::SPLIT, SplitParams::default().num_splits(4))
            .inputs([axis, sum])
            .outputs(["", "", "", ""]);
        let [i, f, cell, o] = self.framework.gates().map(|place| parts[place]);
        let [i, f, o] = [i, f, o].map(|gate| unary(g, B::LOGISTIC, gate));
        let candidate = unary(g, B::TANH, cell);
        let (kept, new) = (binary(g, B::MUL, f, c), binary(g, B::MUL, i, candidate));
        let c = binary(g, B::ADD, kept, new);
        let squashed = unary(g, B::TANH, c);
        let h = binary(g, B::MUL, o, squashed);
        let shape = g.constant("", [3], &[1, self.batch as i32, self.cells as i32]);
        let row = g.node(B::RESHAPE, ReshapeParams::default()).inputs([h, shape]).output("");
        let rest = g.constant("", [2], &[0i32, 0]);
        let concatenation = delegraph_core::ops::concatenation::ConcatenationParams::default();
        let at = g.node(B::CONCATENATION, concatenation).inputs([t, rest]).output("");
        let outputs = g.node(B::DYNAMIC_UPDATE_SLICE, Params::None).inputs([outputs, row, at]).output("");
        let one = g.constant("one", [1], &[1i32]);
        let t = binary(g, B::ADD, t, one);
        g.outputs([t, h, c, outputs, x, kernel, recurrent, bias]);
        graph
    }

    /// The composite's body, where `loops` has the subgraphs of its loop.
    fn body(&self, loops: WhileParams) -> SubgraphBuilder {
        let Layer { batch, time, features, cells, framework, .. } = *self;
        let mut graph = SubgraphBuilder::new("body");
        let g = &mut graph;
        let weights = if self.hybrid { TensorType::Int8 } else { FLOAT };
        let reshaped = |g: &mut SubgraphBuilder, x: TensorId, shape: &[usize]| {
            let sizes: Vec<i32> = shape.iter().map(|&d| d as i32).collect();
            let sizes = g.constant("", [sizes.len()], &sizes);
            g.node(B::RESHAPE, ReshapeParams::default()).inputs([x, sizes]).output("")
        };
        let transposed = |g: &mut SubgraphBuilder, x: TensorId| {
            let order = g.constant("", [3], &[1i32, 0, 2]);
            g.node(B::TRANSPOSE, Params::None).inputs([x, order]).output("")
        };
        let real = |g: &mut SubgraphBuilder, x: TensorId| match self.hybrid {
            true => {
                g.quantize(x, Quantization::per_tensor(SCALE, 0));
                g.node(B::DEQUANTIZE, Params::None).inputs([x]).output_type(FLOAT).output("")
            }
            false => x,
        };
        let (x, h, c, kernel, recurrent, bias) = match framework {
            Framework::Keras => {
                let x = g.input("x", FLOAT, [batch, time, features]);
                let [h, c] = ["h", "c"].map(|name| g.input(name, FLOAT, [batch, cells]));
                let kernel = g.input("kernel", weights, [features, 4 * cells]);
                let recurrent = g.input("recurrent", weights, [cells, 4 * cells]);
                let bias = g.input("bias", FLOAT, [4 * cells]);
                let x = transposed(g, x);
                let (kernel, recurrent) = (real(g, kernel), real(g, recurrent));
                (x, h, c, kernel, recurrent, bias)
            }
            Framework::Onnx => {
                let x = g.input("X", FLOAT, [time, batch, features]);
                let kernel = g.input("W", weights, [1, 4 * cells, features]);
                let recurrent = g.input("R", weights, [1, 4 * cells, cells]);
                let biases = g.input("B", FLOAT, [1, 8 * cells]);
                let [h, c] = ["initial_h", "initial_c"].map(|name| g.input(name, FLOAT, [1, batch, cells]));
                let (kernel, recurrent) = (real(g, kernel), real(g, recurrent));
                let kernel = reshaped(g, kernel, &[4 * cells, features]);
                let recurrent = reshaped(g, recurrent, &[4 * cells, cells]);
                let both = reshaped(g, biases, &[2, 4 * cells]);
                let axis = g.constant("", [1], &[0i32]);
                let bias = g.node(B::SUM, ReducerParams::default()).inputs([both, axis]).output("");
                let [h, c] = [h, c].map(|state| reshaped(g, state, &[batch, cells]));
                (x, h, c, kernel, recurrent, bias)
            }
            Framework::Torch => {
                let x = g.input("x", FLOAT, [time, batch, features]);
                let [h, c] = ["h", "c"].map(|name| g.input(name, FLOAT, [1, batch, cells]));
                let kernel = g.input("w_ih", weights, [4 * cells, features]);
                let recurrent = g.input("w_hh", weights, [4 * cells, cells]);
                let [a, b] = ["b_ih", "b_hh"].map(|name| g.input(name, FLOAT, [4 * cells]));
                let (kernel, recurrent) = (real(g, kernel), real(g, recurrent));
                let bias = binary(g, B::ADD, a, b);
                let [h, c] = [h, c].map(|state| reshaped(g, state, &[batch, cells]));
                (x, h, c, kernel, recurrent, bias)
            }
        };
        let t = g.constant("t", [1], &[0i32]);
        let outputs = g.constant("outputs", [time, batch, cells], &vec![0f32; time * batch * cells]);
        let state = [t, h, c, outputs, x, kernel, recurrent, bias];
        let ends = [
            g.tensor("t", TensorType::Int32, [1]),
            g.tensor("h", FLOAT, [batch, cells]),
            g.tensor("c", FLOAT, [batch, cells]),
            g.tensor("outputs", FLOAT, [time, batch, cells]),
            g.tensor("x", FLOAT, [time, batch, features]),
            g.tensor(
                "kernel",
                FLOAT,
                if framework.rows() { [4 * cells, features] } else { [features, 4 * cells] },
            ),
            g.tensor(
                "recurrent",
                FLOAT,
                if framework.rows() { [4 * cells, cells] } else { [cells, 4 * cells] },
            ),
            g.tensor("bias", FLOAT, [4 * cells]),
        ];
        g.node(B::WHILE, loops).inputs(state).writes(ends);
        let [_, h, c, all, ..] = ends;
        match framework {
            Framework::Keras => {
                let all = transposed(g, all);
                g.outputs([h, all, h, c]);
            }
            Framework::Onnx => {
                let all = reshaped(g, all, &[time, 1, batch, cells]);
                let [h, c] = [h, c].map(|state| reshaped(g, state, &[1, batch, cells]));
                g.outputs([all, h, c]);
            }
            Framework::Torch => {
                let [h, c] = [h, c].map(|state| reshaped(g, state, &[1, batch, cells]));
                g.outputs([all, h, c]);
            }
        }
        graph
    }

    /// The shape of the layer's input.
    fn shape(&self) -> [usize; 3] {
        let Layer { batch, time, features, framework, .. } = *self;
        if framework == Framework::Keras { [batch, time, features] } else { [time, batch, features] }
    }

    /// The layer in a model, between two other ops. Outputs: all, and the last.
    pub(crate) fn model(&self) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", FLOAT, self.shape());
        let [y, last] = self.layer(&mut graph, x);
        graph.outputs([y, last]);
        let builder = ModelBuilder::new().subgraph(graph).subgraph(self.condition()).subgraph(self.step());
        builder.build().unwrap()
    }

    /// A Keras layer in a loop of three passes, which all have the same input.
    #[allow(dead_code)] // The bench and the example that share this module do not use it.
    pub(crate) fn looped(&self) -> Model {
        let Layer { batch, time, cells, .. } = *self;
        let state = |graph: &mut SubgraphBuilder| {
            let t = graph.input("t", TensorType::Int32, [1]);
            [t, graph.input("x", FLOAT, self.shape()), graph.input("y", FLOAT, [batch, time, cells])]
        };
        let mut main = SubgraphBuilder::new("main");
        let x = main.input("x", FLOAT, self.shape());
        let t = main.constant("t", [1], &[0i32]);
        let y = main.constant("zeros", [batch, time, cells], &vec![0f32; batch * time * cells]);
        let ends = [
            main.tensor("end", TensorType::Int32, [1]),
            main.tensor("same", FLOAT, self.shape()),
            main.tensor("y", FLOAT, [batch, time, cells]),
        ];
        let passes = WhileParams::default().cond_subgraph_index(3).body_subgraph_index(4);
        main.node(B::WHILE, passes).inputs([t, x, y]).writes(ends);
        main.outputs([ends[2]]);
        let mut more = SubgraphBuilder::new("more");
        let [t, ..] = state(&mut more);
        let three = more.constant("three", [1], &[3i32]);
        let less = more.node(B::LESS, Params::None).inputs([t, three]).output("less");
        more.outputs([less]);
        let mut pass = SubgraphBuilder::new("pass");
        let [t, x, _] = state(&mut pass);
        let [y, _] = self.layer(&mut pass, x);
        let one = pass.constant("one", [1], &[1i32]);
        let t = binary(&mut pass, B::ADD, t, one);
        pass.outputs([t, x, y]);
        let builder = ModelBuilder::new().subgraph(main).subgraph(self.condition()).subgraph(self.step());
        builder.subgraph(more).subgraph(pass).build().unwrap()
    }

    /// Adds the layer between two other ops to `graph`; returns all outputs, and the last.
    fn layer(&self, graph: &mut SubgraphBuilder, x: TensorId) -> [TensorId; 2] {
        let Layer { batch, features, cells, framework, hybrid, .. } = *self;
        let scaled = unary(graph, B::TANH, x);
        let matrix = |graph: &mut SubgraphBuilder, name: &str, shape: &[usize], seed: usize| {
            let values = numbers(shape.iter().product(), seed);
            if !hybrid {
                return graph.constant(name, shape, &values);
            }
            let values: Vec<i8> = values.iter().map(|v| (v / SCALE).round() as i8).collect();
            let id = graph.constant(name, shape, &values);
            graph.quantize(id, Quantization::per_tensor(SCALE, 0));
            id
        };
        let zeros = vec![0f32; batch * cells];
        let attributes = Attributes::new();
        let loops = WhileParams::default().cond_subgraph_index(1).body_subgraph_index(2);
        let operands = match framework {
            Framework::Keras => {
                let [h, c] = ["h", "c"].map(|name| graph.constant(name, [batch, cells], &zeros));
                let kernel = matrix(graph, "kernel", &[features, 4 * cells], 1);
                let recurrent = matrix(graph, "recurrent", &[cells, 4 * cells], 2);
                let bias = graph.constant("bias", [4 * cells], &numbers(4 * cells, 3));
                vec![scaled, h, c, kernel, recurrent, bias]
            }
            Framework::Onnx => {
                let kernel = matrix(graph, "W", &[1, 4 * cells, features], 1);
                let recurrent = matrix(graph, "R", &[1, 4 * cells, cells], 2);
                let bias = graph.constant("B", [1, 8 * cells], &numbers(8 * cells, 3));
                let [h, c] = ["h", "c"].map(|name| graph.constant(name, [1, batch, cells], &zeros));
                vec![scaled, kernel, recurrent, bias, h, c]
            }
            Framework::Torch => {
                let [h, c] = ["h", "c"].map(|name| graph.constant(name, [1, batch, cells], &zeros));
                let kernel = matrix(graph, "w_ih", &[4 * cells, features], 1);
                let recurrent = matrix(graph, "w_hh", &[4 * cells, cells], 2);
                let [a, b] = [("b_ih", 3), ("b_hh", 4)]
                    .map(|(name, seed)| graph.constant(name, [4 * cells], &numbers(4 * cells, seed)));
                vec![scaled, h, c, kernel, recurrent, a, b]
            }
        };
        let composite =
            graph.composite(framework.name(), self.body(loops)).attributes(&attributes).inputs(operands);
        let (all, last) = match framework {
            Framework::Keras => {
                let [last, all, ..] = composite.outputs(["last", "all", "h", "c"]);
                (all, last)
            }
            _ => {
                let [all, last, _] = composite.outputs(["all", "h", "c"]);
                (all, last)
            }
        };
        [unary(graph, B::ABS, all), last]
    }
}

/// The scale of int8 weights.
pub(crate) const SCALE: f32 = 1.0 / 400.0;
