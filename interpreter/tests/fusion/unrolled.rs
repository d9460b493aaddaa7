//! Recurrent layers of one or two directions written step by step, without a loop.

use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_core::ops::concatenation::ConcatenationParams;
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::gather::GatherParams;
use delegraph_core::ops::pack::PackParams;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::{
    BuiltinOp as B, Model, ModelBuilder, Params, Quantization, SubgraphBuilder, TensorId, TensorType,
};

use crate::recurrent::{FLOAT, Framework, SCALE, binary, numbers, unary};

/// The sizes of a layer, and the storage of its weights.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unrolled {
    pub(crate) framework: Framework,
    pub(crate) directions: usize,
    pub(crate) batch: usize,
    pub(crate) time: usize,
    pub(crate) features: usize,
    pub(crate) cells: usize,
    /// Weights are int8.
    pub(crate) hybrid: bool,
}

/// The operands of one direction.
#[derive(Clone, Copy)]
struct Operands {
    h: TensorId,
    c: TensorId,
    kernel: TensorId,
    recurrent: TensorId,
    biases: [Option<TensorId>; 2],
}

impl Unrolled {
    /// Element `i` of the first dimension.
    fn take(g: &mut SubgraphBuilder, x: TensorId, i: usize) -> TensorId {
        let i = g.constant("", [], &[i as i32]);
        g.node(B::GATHER, GatherParams::default()).inputs([x, i]).output("")
    }

    /// The output of each step of one direction, for `x [time, batch, features]`.
    fn steps(&self, g: &mut SubgraphBuilder, x: TensorId, own: Operands, backward: bool) -> Vec<TensorId> {
        let (mut h, mut c) = (own.h, own.c);
        let mut outputs = Vec::new();
        for i in 0..self.time {
            let now = Self::take(g, x, if backward { self.time - 1 - i } else { i });
            let product = |g: &mut SubgraphBuilder, a: TensorId, b: TensorId| match self.framework {
                Framework::Keras => {
                    g.node(B::BATCH_MATMUL, BatchMatMulParams::default()).inputs([a, b]).output("")
                }
                _ => {
                    let node = g.node(B::FULLY_CONNECTED, FullyConnectedParams::default());
                    node.optional_inputs([Some(a), Some(b), None]).output("")
                }
            };
            let mut sum = product(g, now, own.kernel);
            // One bias is added before the second product, one after it.
            if let Some(bias) = own.biases[0] {
                sum = binary(g, B::ADD, sum, bias);
            }
            let other = product(g, h, own.recurrent);
            sum = binary(g, B::ADD, other, sum);
            if let Some(bias) = own.biases[1] {
                sum = binary(g, B::ADD, sum, bias);
            }
            let axis = g.constant("", [], &[1i32]);
            let parts = g
                .node(B::SPLIT, SplitParams::default().num_splits(4))
                .inputs([axis, sum])
                .outputs(["", "", "", ""]);
            let [i, f, new, o] = self.framework.gates().map(|place| parts[place]);
            let [i, f, o] = [i, f, o].map(|gate| unary(g, B::LOGISTIC, gate));
            let new = unary(g, B::TANH, new);
            let (kept, new) = (binary(g, B::MUL, c, f), binary(g, B::MUL, new, i));
            c = binary(g, B::ADD, new, kept);
            let squashed = unary(g, B::TANH, c);
            h = binary(g, B::MUL, squashed, o);
            outputs.push(h);
        }
        if backward {
            outputs.reverse();
        }
        outputs
    }

    fn pack(g: &mut SubgraphBuilder, values: Vec<TensorId>, axis: i32) -> TensorId {
        let params = PackParams::default().values_count(values.len() as i32).axis(axis);
        g.node(B::PACK, params).inputs(values).output("")
    }

    fn body(&self) -> SubgraphBuilder {
        let Unrolled { framework, directions, .. } = *self;
        let mut graph = SubgraphBuilder::new("body");
        let g = &mut graph;
        let mut all = Vec::new();
        for (name, ty, shape) in self.operands() {
            let mut id = g.input(name, ty, &shape[..]);
            if ty == TensorType::Int8 {
                g.quantize(id, Quantization::per_tensor(SCALE, 0));
                id = g.node(B::DEQUANTIZE, Params::None).inputs([id]).output_type(FLOAT).output("");
            }
            all.push(id);
        }
        let x = all.remove(0);
        let mut results = Vec::new();
        let steps_of = |own: &dyn Fn(&mut SubgraphBuilder, usize) -> Operands, g: &mut SubgraphBuilder, x| {
            (0..directions)
                .map(|d| {
                    let own = own(g, d);
                    self.steps(g, x, own, d == 1)
                })
                .collect::<Vec<_>>()
        };
        match framework {
            Framework::Keras => {
                let order = g.constant("", [3], &[1i32, 0, 2]);
                let x = g.node(B::TRANSPOSE, Params::None).inputs([x, order]).output("");
                let own = |_: &mut SubgraphBuilder, d: usize| {
                    let [h, c, kernel, recurrent, bias] = [0, 1, 2, 3, 4].map(|i| all[5 * d + i]);
                    Operands { h, c, kernel, recurrent, biases: [None, Some(bias)] }
                };
                for steps in steps_of(&own, g, x) {
                    results.push(Self::pack(g, steps, 1));
                }
            }
            Framework::Torch => {
                let own = |g: &mut SubgraphBuilder, d: usize| {
                    let (h, c) = (Self::take(g, all[0], d), Self::take(g, all[1], d));
                    let [kernel, recurrent, a, b] = [2, 3, 4, 5].map(|i| all[4 * d + i]);
                    Operands { h, c, kernel, recurrent, biases: [Some(a), Some(b)] }
                };
                for steps in steps_of(&own, g, x) {
                    results.push(Self::pack(g, steps, 0));
                }
            }
            Framework::Onnx => {
                let own = |g: &mut SubgraphBuilder, d: usize| {
                    let [kernel, recurrent, both, h, c] = [0, 1, 2, 3, 4].map(|i| Self::take(g, all[i], d));
                    let axis = g.constant("", [], &[0i32]);
                    let split = g.node(B::SPLIT, SplitParams::default().num_splits(2));
                    let [a, b] = split.inputs([axis, both]).outputs(["", ""]);
                    Operands { h, c, kernel, recurrent, biases: [Some(a), Some(b)] }
                };
                for steps in steps_of(&own, g, x) {
                    results.push(Self::pack(g, steps, 0));
                }
            }
        }
        let y = match (framework, results.as_slice()) {
            (Framework::Onnx, _) => Self::pack(g, results, 1),
            (_, [one]) => *one,
            _ => {
                let params = ConcatenationParams::default().axis(2);
                g.node(B::CONCATENATION, params).inputs(results).output("")
            }
        };
        g.outputs([y]);
        graph
    }

    /// The operands in their order.
    fn operands(&self) -> Vec<(&'static str, TensorType, Vec<usize>)> {
        let Unrolled { framework, directions, batch, time, features, cells, hybrid } = *self;
        let weights = if hybrid { TensorType::Int8 } else { FLOAT };
        match framework {
            Framework::Keras => {
                let mut operands = vec![("x", FLOAT, vec![batch, time, features])];
                for _ in 0..directions {
                    operands.extend([
                        ("h", FLOAT, vec![batch, cells]),
                        ("c", FLOAT, vec![batch, cells]),
                        ("kernel", weights, vec![features, 4 * cells]),
                        ("recurrent", weights, vec![cells, 4 * cells]),
                        ("bias", FLOAT, vec![4 * cells]),
                    ]);
                }
                operands
            }
            Framework::Torch => {
                let mut operands = vec![
                    ("x", FLOAT, vec![time, batch, features]),
                    ("h", FLOAT, vec![directions, batch, cells]),
                    ("c", FLOAT, vec![directions, batch, cells]),
                ];
                for _ in 0..directions {
                    operands.extend([
                        ("w_ih", weights, vec![4 * cells, features]),
                        ("w_hh", weights, vec![4 * cells, cells]),
                        ("b_ih", FLOAT, vec![4 * cells]),
                        ("b_hh", FLOAT, vec![4 * cells]),
                    ]);
                }
                operands
            }
            Framework::Onnx => vec![
                ("X", FLOAT, vec![time, batch, features]),
                ("W", weights, vec![directions, 4 * cells, features]),
                ("R", weights, vec![directions, 4 * cells, cells]),
                ("B", FLOAT, vec![directions, 8 * cells]),
                ("initial_h", FLOAT, vec![directions, batch, cells]),
                ("initial_c", FLOAT, vec![directions, batch, cells]),
            ],
        }
    }

    /// The layer in a model, between two other ops.
    pub(crate) fn model(&self) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let mut inputs = Vec::new();
        for (i, (name, ty, shape)) in self.operands().into_iter().enumerate() {
            let count = shape.iter().product();
            inputs.push(match (name, ty) {
                ("x" | "X", _) => {
                    let x = graph.input(name, ty, &shape[..]);
                    unary(&mut graph, B::TANH, x)
                }
                ("h" | "c" | "initial_h" | "initial_c", _) => {
                    graph.constant(name, &shape[..], &vec![0f32; count])
                }
                (_, TensorType::Int8) => {
                    let values: Vec<i8> =
                        numbers(count, i).iter().map(|v| (v / SCALE).round() as i8).collect();
                    let id = graph.constant(name, &shape[..], &values);
                    graph.quantize(id, Quantization::per_tensor(SCALE, 0));
                    id
                }
                _ => graph.constant(name, &shape[..], &numbers(count, i)),
            });
        }
        let y = graph.composite(self.framework.name(), self.body()).inputs(inputs).output("all");
        let y = unary(&mut graph, B::ABS, y);
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }
}
