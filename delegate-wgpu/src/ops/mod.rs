//! Lowering of each op to steps of the GPU graph: one file per family, with the family's name in every crate.
//!
//! A family lists its ops with the highest supported version and the supported types, and has one function that
//! lowers a node or rejects it with a reason. A node is supported when lowering it into a temporary graph succeeds,
//! so that support and lowering cannot disagree.

use delegraph_core::ops::{Activation as Fused, InferError, Padding, Window, pad_amount};
use delegraph_core::{BuiltinOp, Op, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, VersionTable};
use delegraph_shaders::Activation;
use delegraph_shaders::quantize::Affine;
use delegraph_shaders::unary::Unary;

use crate::device::time;
use crate::graph::ValueId;
use crate::graph::builder::Builder;
use crate::graph::lowering::{Lowering, unsupported};

pub(crate) use partition::lower_partition;

/// Adds the steps of a node to the graph.
pub(crate) type Lower = fn(&mut Lowering<'_, '_, '_>) -> Result<(), Rejection>;

/// A builtin op that can run on the GPU.
pub(crate) struct GpuOp {
    op: BuiltinOp,
    /// Up to this version, every meaning of the op is either lowered or rejected by type or param.
    max_version: u32,
    /// The supported types of data, in the order of their numbers in the schema, as the support table lists them.
    /// `lower` decides; `tests/op_table.rs` compares the list with the claims of the generated cases. Empty for ops
    /// without generated cases.
    types: &'static [TensorType],
    lower: Lower,
}

impl GpuOp {
    /// The types that [`Lowering::any_input`] accepts.
    const UNPACKED: &[TensorType] = &[
        TensorType::Float32,
        TensorType::Float16,
        TensorType::Int32,
        TensorType::UInt8,
        TensorType::Bool,
        TensorType::Int16,
        TensorType::Int8,
        TensorType::UInt32,
        TensorType::UInt16,
        TensorType::BFloat16,
    ];
    const FLOATS: &[TensorType] = &[TensorType::Float32, TensorType::Float16];
    const NUMBERS: &[TensorType] = &[TensorType::Float32, TensorType::Float16, TensorType::Int32];
    const ANY: &[TensorType] = &[
        TensorType::Float32,
        TensorType::Float16,
        TensorType::Int32,
        TensorType::UInt8,
        TensorType::Bool,
        TensorType::Int8,
    ];

    const fn new(op: BuiltinOp, max_version: u32, types: &'static [TensorType], lower: Lower) -> Self {
        GpuOp { op, max_version, types, lower }
    }
}

/// The entry of a builtin op; `None` for ops that never run on the GPU.
fn gpu_op(op: BuiltinOp) -> Option<&'static GpuOp> {
    FAMILIES.iter().flat_map(|ops| ops.iter()).find(|entry| entry.op == op)
}

macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(mod $family;)*
        const FAMILIES: &[&[GpuOp]] = &[$($family::OPS),*];
    };
}

families! {
    add_n,
    arg_min_max,
    batch_matmul,
    binary,
    cast,
    comparison,
    complex,
    concatenation,
    conv_2d,
    conv_3d,
    cumsum,
    depth_to_space,
    depthwise_conv_2d,
    dynamic_update_slice,
    embedding_lookup,
    fill,
    fully_connected,
    gather,
    l2_normalization,
    local_response_normalization,
    lstm,
    one_hot,
    pack,
    pad,
    pool_2d,
    prelu,
    quantize,
    reduce,
    reshape,
    resize,
    reverse,
    rnn,
    scatter,
    select,
    slice,
    softmax,
    space_to_batch,
    split,
    stablehlo_elementwise,
    stablehlo_movement,
    svdf,
    tile,
    topk,
    transpose,
    transpose_conv,
    unary,
    variables,
}

mod computed;
mod custom_op;
mod integers;
mod landmarks;
mod lstm_quantized;
mod max_pooling;
mod partition;
mod quantized_table;
mod recurrent;
mod resample;
mod transpose_conv_bias;

/// A custom op that can run on the GPU.
pub(crate) struct CustomOp {
    name: &'static str,
    max_version: u32,
    lower: Lower,
}

const CUSTOM: &[CustomOp] = &[
    landmarks::MATRIX,
    landmarks::TRANSFORM,
    max_pooling::POOL,
    max_pooling::UNPOOL,
    resample::RESAMPLER,
    resample::TRANSFORM,
    transpose_conv_bias::CUSTOM,
];

/// Ops that are claimed only where their outputs are constant.
const FOLDED_ONLY: &[(BuiltinOp, u32)] = &[
    (BuiltinOp::BROADCAST_ARGS, 1),
    (BuiltinOp::DENSIFY, 1),
    (BuiltinOp::RANGE, 2),
    (BuiltinOp::RANK, 1),
    (BuiltinOp::SHAPE, 1),
    (BuiltinOp::VAR_HANDLE, 1),
];

/// Returns the highest supported version per op.
pub(crate) fn versions() -> VersionTable {
    let lowered = FAMILIES.iter().flat_map(|ops| ops.iter()).map(|op| (op.op, op.max_version));
    let table: Vec<_> = lowered.chain(FOLDED_ONLY.iter().copied()).collect();
    CUSTOM.iter().fold(VersionTable::new(&table), |table, op| table.with_custom(op.name, op.max_version))
}

/// Returns the types of data on which `op` runs; empty for ops that are claimed only where their outputs are constant.
pub(crate) fn types(op: BuiltinOp) -> &'static [TensorType] {
    gpu_op(op).map_or(&[], |entry| entry.types)
}

/// Adds the steps of `node` to the graph; none where its outputs are constant.
pub(crate) fn lower<'a>(
    node: NodeView<'a>,
    builder: &mut Builder<'a, '_>,
    trial: bool,
) -> Result<(), Rejection> {
    if node.state().folded {
        return Ok(());
    }
    node.check_static()?;
    // The application's shaders take precedence over those of this crate.
    if let Op::Custom(name) = node.op()
        && let Some(op) = builder.custom_ops().iter().rev().find(|op| op.name() == &**name)
    {
        return custom_op::lower(op, &mut Lowering::new(node, builder, trial));
    }
    let found = match node.op() {
        Op::Builtin(op) => gpu_op(*op).map(|entry| entry.lower),
        Op::Custom(name) => CUSTOM.iter().find(|op| *op.name == **name).map(|op| op.lower),
    };
    match (found, node.op()) {
        (Some(lower), _) => {
            let mut lowering = Lowering::new(node, builder, trial);
            let caps = lowering.caps();
            lower(&mut lowering)?;
            lowering.finish()?;
            time::check(caps, &node)
        }
        (None, Op::Builtin(op)) if FOLDED_ONLY.iter().any(|(o, _)| o == op) => {
            Err(unsupported(format!("{} of computed data; only constants are supported", node.op())))
        }
        (None, op) => Err(Rejection::UnsupportedOp { op: op.clone() }),
    }
}

/// Checks that input `i`, where the node has it, is of one of these types.
pub(crate) fn expect_one_of(
    cx: &Lowering<'_, '_, '_>,
    i: usize,
    types: &[TensorType],
) -> Result<(), Rejection> {
    match cx.node().input(i).map(|tensor| tensor.ty()) {
        Some(ty) if !types.contains(&ty) => {
            Err(Rejection::UnsupportedType { operand: format!("input {i}"), ty })
        }
        _ => Ok(()),
    }
}

/// Returns a rejection of operands of different types.
pub(crate) fn mixed_types(cx: &Lowering<'_, '_, '_>) -> Rejection {
    let list = |tensors: &mut dyn Iterator<Item = TensorType>| {
        tensors.map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ")
    };
    let inputs = list(&mut cx.node().inputs().map(|tensor| tensor.ty()));
    let outputs = list(&mut cx.node().outputs().map(|tensor| tensor.ty()));
    unsupported(format!(
        "inputs of types {inputs}, outputs of types {outputs}; only equal types of data are supported"
    ))
}

/// Returns a rejection of an input whose quantization differs from that of output 0.
pub(crate) fn mixed_scales(cx: &Lowering<'_, '_, '_>, input: ValueId, output: ValueId) -> Rejection {
    let text = |id| match cx.affine(id) {
        Some(Affine { scale, zero, .. }) => format!("scale {scale} and zero point {zero}"),
        None => String::from("no single scale"),
    };
    let (input, output) = (text(input), text(output));
    unsupported(format!("an input with {input}, an output with {output}; only equal ones are supported"))
}

/// Returns the number of rows or columns of `a` times `b` items.
pub(crate) fn product_of(what: &str, a: u32, b: u32) -> Result<u32, Rejection> {
    a.checked_mul(b)
        .ok_or_else(|| unsupported(format!("{a} × {b} {what}; at most {} are supported", u32::MAX)))
}

/// Returns the number of items of a list.
pub(crate) fn count_of(what: &str, count: usize) -> Result<u32, Rejection> {
    u32::try_from(count)
        .map_err(|_| unsupported(format!("{count} {what}; at most {} are supported", u32::MAX)))
}

/// Returns a rejection of operands for which shape inference fails.
pub(crate) fn invalid(error: InferError) -> Rejection {
    unsupported(error.to_string())
}

/// Returns a rejection of scales whose ratio is not a fixed-point factor.
pub(crate) fn invalid_scale(error: delegraph_core::Error) -> Rejection {
    unsupported(error.to_string())
}

/// Returns a rejection of a computed operand that determines shapes.
pub(crate) fn not_constant() -> Rejection {
    unsupported("an operand that determines shapes is computed; only constants are supported")
}

/// Returns the activation that an op applies to its result. As on the CPU, only activations that clamp are supported.
pub(crate) fn activation(fused: Fused) -> Result<Activation, Rejection> {
    match fused {
        Fused::Tanh => {
            Err(unsupported("fused activation TANH; NONE, RELU, RELU_N1_TO_1 and RELU6 are supported"))
        }
        _ => cell_activation(fused),
    }
}

/// Returns the activation of a recurrent cell.
pub(crate) fn cell_activation(fused: Fused) -> Result<Activation, Rejection> {
    Ok(match fused {
        Fused::None => Activation::None,
        Fused::Relu => Activation::RELU,
        Fused::ReluN1To1 => Activation::RELU_N1_TO_1,
        Fused::Relu6 => Activation::RELU6,
        Fused::Tanh => Activation::Unary(Unary::Tanh),
        Fused::SignBit => {
            return Err(unsupported(
                "fused activation SIGN_BIT; NONE, RELU, RELU_N1_TO_1, RELU6 and TANH are supported",
            ));
        }
    })
}

/// Returns a stride, dilation, window or block size of the model, which must be positive.
pub(crate) fn positive(value: i32, what: &str) -> Result<u32, Rejection> {
    u32::try_from(value)
        .ok()
        .filter(|&v| v > 0)
        .ok_or_else(|| unsupported(format!("{what} {value}; only positive values are supported")))
}

/// Returns the padding before a dimension.
pub(crate) fn pad_front(
    padding: Padding,
    input: u32,
    output: u32,
    window: u32,
    stride: u32,
    dilation: u32,
) -> Result<i32, Rejection> {
    if padding == Padding::Valid {
        return Ok(0);
    }
    let [input, output, size, stride, dilation] =
        [input, output, window, stride, dilation].map(|v| v as usize);
    let pad = pad_amount(input, output, Window { size, stride, dilation });
    i32::try_from(pad).map_err(|_| unsupported(format!("padding {pad}; at most {} is supported", i32::MAX)))
}
