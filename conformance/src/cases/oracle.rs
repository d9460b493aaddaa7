//! The required precision of a case's outputs, from the kind of arithmetic of its nodes and the amount of it.

use delegraph_core::graph::cost;
use delegraph_core::{BuiltinOp as Op, Model, Node, Params, Quantization, Subgraph, Tensor, TensorType};

use super::{Case, Operand};
use crate::compare::{Arithmetic, Check, ComputationKind, Value, numbers};

impl Case {
    /// Returns the required precision of the outputs of `model`, the case's model, in each step.
    pub fn check(&self, model: &Model, arithmetic: Arithmetic) -> Check {
        let mut check =
            Check { terms: 0, functions: 0, steps: 0, ..Check::new(ComputationKind::Movement, arithmetic) };
        let mut computing = 0;
        for graph in model.subgraphs() {
            for node in graph.nodes() {
                let (kind, functions) = kind_of(node, graph);
                check.kind = check.kind.max(kind);
                if kind < ComputationKind::Arithmetic {
                    continue;
                }
                computing += 1;
                check.functions = check.functions.saturating_add(functions);
                check.terms = check.terms.saturating_add(terms(node, graph));
                let mut outputs = node.outputs().iter().filter_map(|&id| graph.tensors().get(id.0));
                if let Some(scale) = outputs.find_map(|t| scale(t.quantization())) {
                    check.steps += 1 + quirks(node, graph);
                    let last = node.outputs().iter().any(|id| graph.outputs().contains(id));
                    check.quantum = if last { check.quantum } else { check.quantum.max(scale) };
                }
            }
        }
        // Errors of several operations accumulate, and cancel like the terms of a sum.
        if computing > 1 || (check.functions > 0 && check.terms > 1) {
            check.kind = check.kind.max(ComputationKind::Accumulating);
        }
        check.terms = check.terms.saturating_mul(self.steps as u64).max(1);
        check.functions = check.functions.saturating_mul(self.steps as u32);
        check.steps = (check.steps * self.steps as u32).clamp(1, 4);
        check.precision = self.precision(model);
        check.term = self.term(model);
        check
    }

    /// Returns the classes of values in the data that not all arithmetic handles equally.
    pub fn specials(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for (i, operand) in self.operands() {
            if operand.may_be_special() {
                found.extend(Value::among(operand.ty, &operand.data(i, 0)));
            }
        }
        let divides = [Op::DIV, Op::FLOOR_DIV, Op::FLOOR_MOD, Op::STABLEHLO_DIVIDE, Op::STABLEHLO_REMAINDER];
        let zero = |o: &Operand| {
            let divisors = numbers(o.ty, &o.data(1, 0)).unwrap_or_default();
            o.may_be_special() && divisors.contains(&0.0)
        };
        if divides.contains(&self.op) && self.operands().any(|(i, o)| i == 1 && zero(o)) {
            found.push(Value::Divisor);
        }
        found.sort();
        found.dedup();
        found
    }

    /// Returns whether `arithmetic` must handle the case. If not, a different output is not a failure.
    pub fn demanded(&self, model: &Model, arithmetic: Arithmetic) -> bool {
        let kind = self.check(model, arithmetic).kind;
        self.specials().into_iter().all(|value| value.demanded(kind, arithmetic))
    }

    /// Returns the narrowest float type that is computed with; constants are widened without loss.
    fn precision(&self, model: &Model) -> TensorType {
        let narrow = |ty: TensorType| match ty {
            TensorType::BFloat16 => 2,
            TensorType::Float16 => 1,
            _ => 0,
        };
        let tensors = model.subgraphs().iter().flat_map(|g| g.tensors());
        let computed = tensors.filter(|t| t.data().is_none()).map(|t| t.ty());
        computed.max_by_key(|&ty| narrow(ty)).filter(|&ty| narrow(ty) > 0).unwrap_or(TensorType::Float32)
    }

    /// Returns a bound of a single term: the product of the two largest magnitudes among the operands if every subgraph
    /// has a node that multiplies them, otherwise the largest magnitude.
    fn term(&self, model: &Model) -> f64 {
        let mut magnitudes: Vec<f64> = self.operands().filter_map(|(i, o)| o.magnitude(i)).collect();
        magnitudes.sort_by(f64::total_cmp);
        let product = model.subgraphs().iter().all(|g| g.nodes().iter().any(multiplies));
        match (magnitudes.pop(), magnitudes.pop()) {
            (Some(a), Some(b)) if product => a * b,
            (Some(a), _) => a,
            _ => 0.0,
        }
    }
}

fn scale(quantization: Option<&Quantization>) -> Option<f64> {
    let scales = &quantization?.affine()?.scales;
    scales.iter().map(|&s| f64::from(s)).max_by(f64::total_cmp)
}

/// Returns the number of steps by which LiteRT's kernel of a node may differ from an exact kernel.
fn quirks(node: &Node, graph: &Subgraph) -> u32 {
    let input = node.input(0).and_then(|id| graph.tensors().get(id.0));
    let output = node.outputs().first().and_then(|id| graph.tensors().get(id.0));
    let (Some(input), Some(output)) = (input, output) else { return 0 };
    if !matches!(output.ty(), TensorType::Int8 | TensorType::UInt8) {
        return 0;
    }
    match builtin(node) {
        // Positions of signed 8-bit images have ten fractional bits: the last of n rows is up to n / 2048 of a row off.
        Some(Op::RESIZE_BILINEAR) if output.ty() == TensorType::Int8 => {
            let size = output.shape().iter().skip(1).take(2).max().copied().unwrap_or(1);
            (255 * size as u32).div_ceil(2048)
        }
        // The zero point on the output's scale is truncated if height and width of an image are kept.
        Some(Op::MEAN) if input.quantization() != output.quantization() => {
            let kept = matches!(node.params(), Params::Reducer(p) if p.keep_dims);
            u32::from(kept && input.shape().rank() == 4)
        }
        _ => 0,
    }
}

fn builtin(node: &Node) -> Option<Op> {
    node.op().builtin()
}

fn multiplies(node: &Node) -> bool {
    let ops = [
        Op::CONV_2D,
        Op::DEPTHWISE_CONV_2D,
        Op::TRANSPOSE_CONV,
        Op::CONV_3D,
        Op::CONV_3D_TRANSPOSE,
        Op::FULLY_CONNECTED,
        Op::BATCH_MATMUL,
        Op::SVDF,
        Op::STABLEHLO_CONVOLUTION,
        Op::STABLEHLO_DOT_GENERAL,
    ];
    builtin(node).is_some_and(|op| ops.contains(&op))
}

/// Returns the multiply-adds of an output element.
fn terms(node: &Node, graph: &Subgraph) -> u64 {
    let elements = |ids: &mut dyn Iterator<Item = usize>| {
        ids.filter_map(|id| graph.tensors().get(id)).map(|t| t.shape().elements() as u64).max().unwrap_or(1)
    };
    let outputs = elements(&mut node.outputs().iter().map(|id| id.0)).max(1);
    let inputs = elements(&mut node.inputs().iter().flatten().map(|id| id.0));
    let count = match builtin(node) {
        // Sums along any one dimension.
        Some(Op::CUMSUM | Op::SOFTMAX | Op::LOG_SOFTMAX | Op::L2_NORMALIZATION) => {
            let input = node.inputs().iter().flatten().next().and_then(|id| graph.tensors().get(id.0));
            input.and_then(|t| t.shape().iter().max().copied()).unwrap_or(1) as u64
        }
        // The position is a product of floats, whose error grows with the size.
        Some(Op::RESIZE_BILINEAR) => 64,
        _ => cost(graph, node).multiply_adds.max(inputs) / outputs,
    };
    count.max(1)
}

/// Returns the kind of a node's arithmetic, and the number of functions in it.
pub(super) fn kind_of(node: &Node, graph: &Subgraph) -> (ComputationKind, u32) {
    let Some(op) = builtin(node) else { return (ComputationKind::Accumulating, 1) };
    let (kind, functions) = kind(op);
    if kind > ComputationKind::Exact {
        return (kind, functions);
    }
    // Moving and comparing quantized values is exact if none is rescaled.
    let tensor = |id: usize| graph.tensors().get(id);
    let quantized = |t: &&Tensor| t.quantization().is_some() && t.ty().bits().is_some_and(|b| b <= 16);
    let mut outputs = node.outputs().iter().filter_map(|id| tensor(id.0)).filter(quantized);
    let rescaled = outputs.any(|output| {
        let inputs = node.inputs().iter().flatten().filter_map(|id| tensor(id.0)).filter(quantized);
        inputs.into_iter().any(|t| t.quantization() != output.quantization())
    });
    if rescaled { (ComputationKind::Arithmetic, 0) } else { (kind, functions) }
}

/// Returns the kind of an op, and the number of functions that it evaluates in sequence. The files of the families list
/// them.
pub(super) fn kind(op: Op) -> (ComputationKind, u32) {
    let of_family = |kinds: &OpKinds| kinds.iter().find(|(_, ops)| ops.contains(&op)).map(|(kind, _)| *kind);
    let kind = super::OP_KINDS.iter().find_map(of_family).unwrap_or(OpKind::ACCUMULATING);
    (kind.kind, kind.functions)
}

/// The ops of a family by the kind of their arithmetic. Ops that are not listed accumulate.
pub(super) type OpKinds = &'static [(OpKind, &'static [Op])];

/// The kind of an op's arithmetic, and the number of functions that it evaluates in sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpKind {
    kind: ComputationKind,
    functions: u32,
}

impl OpKind {
    pub(super) const MOVED: Self = OpKind { kind: ComputationKind::Movement, functions: 0 };
    pub(super) const EXACT: Self = OpKind { kind: ComputationKind::Exact, functions: 0 };
    pub(super) const ROUNDED: Self = OpKind { kind: ComputationKind::Arithmetic, functions: 0 };
    pub(super) const FUNCTION: Self = OpKind { kind: ComputationKind::Function, functions: 1 };
    pub(super) const ACCUMULATING: Self = OpKind { kind: ComputationKind::Accumulating, functions: 0 };
    pub(super) const ACCUMULATING_FUNCTION: Self =
        OpKind { kind: ComputationKind::Accumulating, functions: 1 };
    pub(super) const ACCUMULATING_TWO_FUNCTIONS: Self =
        OpKind { kind: ComputationKind::Accumulating, functions: 2 };
    pub(super) const RECURRENT: Self = OpKind { kind: ComputationKind::Accumulating, functions: 4 };
    pub(super) const STATISTICAL: Self = OpKind { kind: ComputationKind::Statistical, functions: 0 };
}
