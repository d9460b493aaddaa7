//! How each op becomes steps of the GPU graph: one file per family, named as in every other crate.
//!
//! A family lists its ops with the highest version that it knows, and one function that lowers a node or says why it
//! cannot. Asking whether a node is supported is lowering it into a graph that is thrown away: the two cannot
//! disagree.

use delegraph_core::ops::{Activation as Fused, InferError, Padding};
use delegraph_core::{BuiltinOp, Op, TensorType};
use delegraph_delegate_api::{NodeView, Rejection, VersionTable};
use delegraph_shaders::Activation;
use delegraph_shaders::unary::Unary;

use crate::custom;
use crate::lower::{Builder, Lowering, unsupported};

/// Adds the steps of a node to the graph.
pub(crate) type Lower = fn(&mut Lowering<'_, '_, '_>) -> Result<(), Rejection>;

/// A builtin op that can run on the GPU.
pub(crate) struct GpuOp {
    op: BuiltinOp,
    /// Up to this version, everything that the op can mean is either lowered or rejected by type or param.
    max_version: u32,
    lower: Lower,
}

impl GpuOp {
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
}

pub(crate) use integers::Product;

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
}

mod computed;
mod integers;
mod landmarks;
mod lstm_quantized;
mod max_pooling;
mod resample;
mod transpose_conv_bias;
mod types;

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

/// Ops that are claimed only where their result is computed while preparing.
const FOLDED_ONLY: &[(BuiltinOp, u32)] = &[
    (BuiltinOp::BROADCAST_ARGS, 1),
    (BuiltinOp::DENSIFY, 1),
    (BuiltinOp::RANGE, 2),
    (BuiltinOp::RANK, 1),
    (BuiltinOp::SHAPE, 1),
];

/// The highest version that runs, per op.
pub(crate) fn versions() -> VersionTable {
    let lowered = FAMILIES.iter().flat_map(|ops| ops.iter()).map(|op| (op.op, op.max_version));
    let table: Vec<_> = lowered.chain(FOLDED_ONLY.iter().copied()).collect();
    CUSTOM.iter().fold(VersionTable::new(&table), |table, op| table.with_custom(op.name, op.max_version))
}

/// The types of data on which `op` runs; none for ops that are claimed only where they were computed already.
pub(crate) fn types(op: BuiltinOp) -> &'static [TensorType] {
    types::types(op)
}

/// Adds the steps of `node` to the graph; none where its outputs are constants already.
pub(crate) fn lower<'a>(
    node: NodeView<'a>,
    builder: &mut Builder<'a, '_>,
    trial: bool,
) -> Result<(), Rejection> {
    if node.state().folded {
        return Ok(());
    }
    node.check_static()?;
    // An application's own shaders come before ours.
    if let Op::Custom(name) = node.op()
        && let Some(op) = builder.custom_ops().iter().rev().find(|op| op.name() == &**name)
    {
        return custom::lower(op, &mut Lowering::new(node, builder, trial));
    }
    let found = match node.op() {
        Op::Builtin(op) => FAMILIES.iter().flat_map(|ops| ops.iter()).find(|o| o.op == *op).map(|o| o.lower),
        Op::Custom(name) => CUSTOM.iter().find(|op| *op.name == **name).map(|op| op.lower),
    };
    match (found, node.op()) {
        (Some(lower), _) => {
            let mut lowering = Lowering::new(node, builder, trial);
            lower(&mut lowering)?;
            lowering.finish()
        }
        (None, Op::Builtin(op)) if FOLDED_ONLY.iter().any(|(o, _)| o == op) => {
            Err(unsupported(format!("{} of data that is not constant", node.op())))
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

/// A rejection for operands that inference refuses.
pub(crate) fn invalid(error: InferError) -> Rejection {
    unsupported(error.to_string())
}

/// A rejection for scales that fixed-point factors don't reach.
pub(crate) fn invalid_scale(error: delegraph_core::Error) -> Rejection {
    unsupported(error.to_string())
}

/// A rejection for an operand that decides what the op does and is known only while running.
pub(crate) fn not_constant() -> Rejection {
    unsupported("an operand that decides about shapes is not constant")
}

/// The activation that an op applies to its result.
pub(crate) fn activation(fused: Fused) -> Result<Activation, Rejection> {
    Ok(match fused {
        Fused::None => Activation::None,
        Fused::Relu => Activation::RELU,
        Fused::ReluN1To1 => Activation::RELU_N1_TO_1,
        Fused::Relu6 => Activation::RELU6,
        Fused::Tanh => Activation::Unary(Unary::Tanh),
        Fused::SignBit => return Err(unsupported("fused activation SIGN_BIT")),
    })
}

/// A stride, dilation or window of the model, which inference checked to be positive.
pub(crate) fn positive(value: i32, what: &str) -> Result<u32, Rejection> {
    u32::try_from(value).ok().filter(|&v| v > 0).ok_or_else(|| unsupported(format!("{what} {value}")))
}

/// Padding in front of a dimension.
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
    let [input, output, window, stride, dilation] =
        [input, output, window, stride, dilation].map(|v| v as usize);
    let pad = delegraph_core::ops::pad_amount(input, output, window, stride, dilation);
    i32::try_from(pad).map_err(|_| unsupported(format!("padding {pad}")))
}
