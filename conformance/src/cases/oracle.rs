//! What is asked of a case's outputs: the kind of computing its nodes do, and how much of it.

use delegraph_core::ops::cost;
use delegraph_core::{BuiltinOp as Op, Model, Node, Params, Quantization, Subgraph, Tensor, TensorType};

use super::{Case, Operand};
use crate::compare::{Arithmetic, Check, Kind, Value, numbers};

impl Case {
    /// What is asked of every output of `model`, which is the case's own, in each step.
    pub fn check(&self, model: &Model, arithmetic: Arithmetic) -> Check {
        let mut check = Check { terms: 0, functions: 0, steps: 0, ..Check::new(Kind::Movement, arithmetic) };
        let mut computing = 0;
        for graph in &model.subgraphs {
            for node in &graph.nodes {
                let (kind, functions) = kind_of(node, graph);
                check.kind = check.kind.max(kind);
                if kind < Kind::Arithmetic {
                    continue;
                }
                computing += 1;
                check.functions = check.functions.saturating_add(functions);
                check.terms = check.terms.saturating_add(terms(node, graph));
                let mut outputs = node.outputs.iter().filter_map(|&id| graph.tensors.get(id.0));
                if let Some(scale) = outputs.find_map(|t| scale(t.quantization.as_deref())) {
                    check.steps += 1 + quirks(node, graph);
                    let last = node.outputs.iter().any(|id| graph.outputs.contains(id));
                    check.quantum = if last { check.quantum } else { check.quantum.max(scale) };
                }
            }
        }
        // Errors of several operations add up, and cancel like terms of a sum.
        if computing > 1 || (check.functions > 0 && check.terms > 1) {
            check.kind = check.kind.max(Kind::Accumulating);
        }
        check.terms = check.terms.saturating_mul(self.steps as u64).max(1);
        check.functions = check.functions.saturating_mul(self.steps as u32);
        check.steps = (check.steps * self.steps as u32).clamp(1, 4);
        check.precision = self.precision(model);
        check.term = self.term(model);
        check
    }

    /// The classes of values in its data that not all arithmetic treats alike.
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

    /// Whether such arithmetic has to get the case right; where not, an output that differs is no failure.
    pub fn demanded(&self, model: &Model, arithmetic: Arithmetic) -> bool {
        let kind = self.check(model, arithmetic).kind;
        self.specials().into_iter().all(|value| value.demanded(kind, arithmetic))
    }

    /// The narrowest float type of what is computed; constants are widened without loss.
    fn precision(&self, model: &Model) -> TensorType {
        let narrow = |ty: TensorType| match ty {
            TensorType::BFloat16 => 2,
            TensorType::Float16 => 1,
            _ => 0,
        };
        let tensors = model.subgraphs.iter().flat_map(|g| &g.tensors);
        let computed = tensors.filter(|t| t.data.is_none()).map(|t| t.ty);
        computed.max_by_key(|&ty| narrow(ty)).filter(|&ty| narrow(ty) > 0).unwrap_or(TensorType::Float32)
    }

    /// The product of the two largest magnitudes among the operands: what a single term can be.
    fn term(&self, model: &Model) -> f64 {
        let mut magnitudes: Vec<f64> = self.operands().filter_map(|(i, o)| o.magnitude(i)).collect();
        magnitudes.sort_by(f64::total_cmp);
        let product = model.subgraphs.iter().all(|g| g.nodes.iter().any(multiplies));
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

/// Steps that the field's kernel of a node may itself be off what an exact one computes.
fn quirks(node: &Node, graph: &Subgraph) -> u32 {
    let input = node.input(0).and_then(|id| graph.tensors.get(id.0));
    let output = node.outputs.first().and_then(|id| graph.tensors.get(id.0));
    let (Some(input), Some(output)) = (input, output) else { return 0 };
    if !matches!(output.ty, TensorType::Int8 | TensorType::UInt8) {
        return 0;
    }
    match builtin(node) {
        // Positions of signed bytes have ten bits behind the point: the last of n rows is up to n / 2048 of the way to the next
        // one off.
        Some(Op::RESIZE_BILINEAR) if output.ty == TensorType::Int8 => {
            let size = output.shape.iter().skip(1).take(2).max().copied().unwrap_or(1);
            (255 * size as u32).div_ceil(2048)
        }
        // What the zero point comes to on the output's scale is truncated, where height and width of an image are kept.
        Some(Op::MEAN) if input.quantization != output.quantization => {
            let kept = matches!(&node.params, Params::Reducer(p) if p.keep_dims);
            u32::from(kept && input.shape.rank() == 4)
        }
        _ => 0,
    }
}

fn builtin(node: &Node) -> Option<Op> {
    node.op.builtin()
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

/// Multiply-adds of an output element.
fn terms(node: &Node, graph: &Subgraph) -> u64 {
    let elements = |ids: &mut dyn Iterator<Item = usize>| {
        ids.filter_map(|id| graph.tensors.get(id)).map(|t| t.shape.elements() as u64).max().unwrap_or(1)
    };
    let outputs = elements(&mut node.outputs.iter().map(|id| id.0)).max(1);
    let inputs = elements(&mut node.inputs.iter().flatten().map(|id| id.0));
    let count = match builtin(node) {
        // Along one dimension, whichever.
        Some(Op::CUMSUM | Op::SOFTMAX | Op::LOG_SOFTMAX | Op::L2_NORMALIZATION) => {
            let input = node.inputs.iter().flatten().next().and_then(|id| graph.tensors.get(id.0));
            input.and_then(|t| t.shape.iter().max().copied()).unwrap_or(1) as u64
        }
        // The position is a product of floats: its error grows with the size.
        Some(Op::RESIZE_BILINEAR) => 64,
        _ => cost(graph, node).multiply_adds.max(inputs) / outputs,
    };
    count.max(1)
}

/// How a node's outputs come about, and how many functions are in it.
fn kind_of(node: &Node, graph: &Subgraph) -> (Kind, u32) {
    let Some(op) = builtin(node) else { return (Kind::Accumulating, 1) };
    let (kind, functions) = kind(op);
    if kind > Kind::Exact {
        return (kind, functions);
    }
    // Moving and comparing quantized values is exact where none is rescaled.
    let tensor = |id: usize| graph.tensors.get(id);
    let quantized = |t: &&Tensor| t.quantization.is_some() && t.ty.bits().is_some_and(|b| b <= 16);
    let mut outputs = node.outputs.iter().filter_map(|id| tensor(id.0)).filter(quantized);
    let rescaled = outputs.any(|output| {
        let inputs = node.inputs.iter().flatten().filter_map(|id| tensor(id.0)).filter(quantized);
        inputs.into_iter().any(|t| t.quantization != output.quantization)
    });
    if rescaled { (Kind::Arithmetic, 0) } else { (kind, functions) }
}

/// The kind of an op, and how many functions it evaluates in a row.
pub(super) fn kind(op: Op) -> (Kind, u32) {
    match op {
        Op::RANDOM_STANDARD_NORMAL | Op::RANDOM_UNIFORM | Op::MULTINOMIAL => (Kind::Statistical, 0),
        Op::RESHAPE | Op::SQUEEZE | Op::EXPAND_DIMS | Op::CONCATENATION | Op::SHAPE | Op::RANK => MOVED,
        Op::PAD | Op::PADV2 | Op::MIRROR_PAD | Op::TRANSPOSE | Op::SLICE | Op::STRIDED_SLICE => MOVED,
        Op::SPLIT | Op::SPLIT_V | Op::PACK | Op::UNPACK | Op::DEPTH_TO_SPACE | Op::SPACE_TO_DEPTH => MOVED,
        Op::DYNAMIC_UPDATE_SLICE | Op::SPACE_TO_BATCH_ND | Op::BATCH_TO_SPACE_ND | Op::BITCAST => MOVED,
        Op::REVERSE_V2 | Op::REVERSE_SEQUENCE | Op::FILL | Op::TILE | Op::BROADCAST_TO => MOVED,
        Op::BROADCAST_ARGS | Op::GATHER | Op::GATHER_ND | Op::SELECT | Op::SELECT_V2 | Op::DENSIFY => MOVED,
        Op::RESIZE_NEAREST_NEIGHBOR | Op::ONE_HOT | Op::MATRIX_DIAG | Op::MATRIX_SET_DIAG => MOVED,
        Op::SPARSE_TO_DENSE | Op::HASHTABLE | Op::HASHTABLE_FIND | Op::HASHTABLE_IMPORT => MOVED,
        Op::HASHTABLE_SIZE | Op::HASHTABLE_LOOKUP | Op::REAL | Op::IMAG | Op::ZEROS_LIKE => MOVED,
        Op::VAR_HANDLE | Op::READ_VARIABLE | Op::ASSIGN_VARIABLE | Op::CALL_ONCE | Op::DILATE => MOVED,
        Op::IF | Op::WHILE | Op::CALL | Op::STABLEHLO_CASE | Op::STABLEHLO_COMPOSITE => MOVED,
        Op::STABLEHLO_PAD | Op::STABLEHLO_GATHER | Op::WHERE | Op::STABLEHLO_WHILE => MOVED,
        Op::STABLEHLO_RESHAPE | Op::STABLEHLO_CONCATENATE | Op::STABLEHLO_SLICE => MOVED,
        Op::STABLEHLO_BROADCAST_IN_DIM | Op::STABLEHLO_DYNAMIC_SLICE | Op::STABLEHLO_IOTA => MOVED,
        Op::STABLEHLO_DYNAMIC_UPDATE_SLICE | Op::STABLEHLO_TRANSPOSE | Op::STABLEHLO_SELECT => MOVED,
        Op::STABLEHLO_ABS | Op::STABLEHLO_NEGATE | Op::STABLEHLO_FLOOR | Op::STABLEHLO_SORT => EXACT,
        Op::STABLEHLO_OR | Op::STABLEHLO_COMPARE | Op::STABLEHLO_CLAMP => EXACT,
        Op::STABLEHLO_CONVERT => EXACT,
        Op::ABS | Op::CEIL | Op::FLOOR | Op::NEG | Op::ROUND | Op::SIGN | Op::RELU | Op::RELU6 => EXACT,
        Op::RELU_N1_TO_1 | Op::RELU_0_TO_1 | Op::MAXIMUM | Op::MINIMUM | Op::LOGICAL_NOT => EXACT,
        Op::EQUAL | Op::NOT_EQUAL | Op::LESS | Op::LESS_EQUAL | Op::GREATER | Op::GREATER_EQUAL => EXACT,
        Op::LOGICAL_AND | Op::LOGICAL_OR | Op::BITWISE_XOR | Op::RIGHT_SHIFT | Op::MAX_POOL_2D => EXACT,
        Op::REDUCE_MAX | Op::REDUCE_MIN | Op::REDUCE_ANY | Op::REDUCE_ALL | Op::ARG_MAX => EXACT,
        Op::ARG_MIN | Op::TOPK_V2 | Op::UNIQUE | Op::BUCKETIZE | Op::CAST | Op::FLOOR_DIV => EXACT,
        Op::UNSORTED_SEGMENT_MAX | Op::UNSORTED_SEGMENT_MIN | Op::LSH_PROJECTION => EXACT,
        Op::SKIP_GRAM | Op::STABLEHLO_MAXIMUM | Op::STABLEHLO_MINIMUM | Op::STABLEHLO_AND => EXACT,
        Op::STABLEHLO_SHIFT_LEFT | Op::STABLEHLO_RNG_BIT_GENERATOR => EXACT,
        Op::ADD | Op::SUB | Op::MUL | Op::DIV | Op::SQUARED_DIFFERENCE | Op::SQUARE => ROUNDED,
        Op::SQRT | Op::RSQRT | Op::LEAKY_RELU | Op::PRELU | Op::QUANTIZE | Op::DEQUANTIZE => ROUNDED,
        Op::FAKE_QUANT | Op::EMBEDDING_LOOKUP | Op::RANGE | Op::STABLEHLO_ADD => ROUNDED,
        Op::STABLEHLO_MULTIPLY | Op::STABLEHLO_SUBTRACT | Op::STABLEHLO_DIVIDE => ROUNDED,
        Op::STABLEHLO_RSQRT => ROUNDED,
        Op::COS | Op::SIN | Op::EXP | Op::LOG | Op::LOGISTIC | Op::TANH | Op::HARD_SWISH => FUNCTION,
        Op::ELU | Op::GELU | Op::POW | Op::ATAN2 | Op::FLOOR_MOD | Op::COMPLEX_ABS => FUNCTION,
        Op::STABLEHLO_LOGISTIC | Op::STABLEHLO_COSINE | Op::STABLEHLO_EXPONENTIAL => FUNCTION,
        Op::STABLEHLO_LOG | Op::STABLEHLO_TANH | Op::STABLEHLO_CBRT | Op::STABLEHLO_POWER => FUNCTION,
        Op::STABLEHLO_REMAINDER => FUNCTION,
        Op::NON_MAX_SUPPRESSION_V4 | Op::NON_MAX_SUPPRESSION_V5 => FUNCTION,
        Op::SOFTMAX | Op::LOG_SOFTMAX => (Kind::Accumulating, 2),
        Op::L2_NORMALIZATION | Op::LOCAL_RESPONSE_NORMALIZATION | Op::RFFT2D => (Kind::Accumulating, 1),
        Op::LSTM | Op::UNIDIRECTIONAL_SEQUENCE_LSTM | Op::BIDIRECTIONAL_SEQUENCE_LSTM => RECURRENT,
        Op::RNN | Op::UNIDIRECTIONAL_SEQUENCE_RNN | Op::BIDIRECTIONAL_SEQUENCE_RNN => RECURRENT,
        _ => (Kind::Accumulating, 0),
    }
}

const MOVED: (Kind, u32) = (Kind::Movement, 0);
const EXACT: (Kind, u32) = (Kind::Exact, 0);
const ROUNDED: (Kind, u32) = (Kind::Arithmetic, 0);
const FUNCTION: (Kind, u32) = (Kind::Function, 1);
const RECURRENT: (Kind, u32) = (Kind::Accumulating, 4);
