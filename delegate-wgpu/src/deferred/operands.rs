//! The operands that lowering reads as constants: axes, paddings, sizes, weights. If they are not constants of the
//! model, stand-in data shows whether a node is supported.

use delegraph_core::ops::Padding;
use delegraph_core::ops::split::SplitParams;
use delegraph_core::ops::transpose_conv::TransposeConvParams;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::{NodeView, TensorInfo};

/// Maximum size of an operand in bytes. A run compares each operand with that of the last run, and copies it when it
/// differs.
pub(super) const MAX_OPERAND_BYTES: usize = 64 << 20;

/// The stand-in data of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StandIn {
    Zeros,
    Ones,
    /// 0, 1, 2, …
    Ascending,
    /// Axes of input 0, repeated where there are more numbers than axes.
    Axes,
    /// The shape `[-1, 1, …]`: an inferred dimension, then ones.
    OneRow,
    /// The shape of this input.
    ShapeOf(usize),
    /// The first axis that can be split into equal parts.
    SplitAxis,
    /// One element per part, and the others in the first part.
    SplitSizes,
    /// The output shape of a transposed convolution.
    ConvShape,
}

/// The inputs that lowering reads as constants, with their stand-ins, by op.
fn operands(op: BuiltinOp) -> &'static [(usize, StandIn)] {
    use BuiltinOp as B;
    use StandIn::*;
    const WEIGHTS: &[(usize, StandIn)] = &[(1, Zeros), (2, Zeros)];
    const RECURRENT: &[(usize, StandIn)] = &[(1, Zeros), (2, Zeros), (3, Zeros)];
    // Weights, biases and projection, then the coefficients of layer normalization; inputs 18 and 19 are the state.
    #[rustfmt::skip]
    const LSTM: &[(usize, StandIn)] = &[
        (1, Zeros), (2, Zeros), (3, Zeros), (4, Zeros), (5, Zeros), (6, Zeros), (7, Zeros), (8, Zeros), (9, Zeros),
        (10, Zeros), (11, Zeros), (12, Zeros), (13, Zeros), (14, Zeros), (15, Zeros), (16, Zeros), (17, Zeros),
        (20, Zeros), (21, Zeros), (22, Zeros), (23, Zeros),
    ];
    match op {
        B::ARG_MAX | B::ARG_MIN | B::CUMSUM | B::EMBEDDING_LOOKUP | B::EXPAND_DIMS | B::PRELU => {
            &[(1, Zeros)]
        }
        B::MIRROR_PAD | B::PAD => &[(1, Zeros)],
        B::PADV2 => &[(1, Zeros), (2, Zeros)],
        B::MEAN | B::SUM | B::REDUCE_ALL | B::REDUCE_ANY | B::REDUCE_MAX | B::REDUCE_MIN | B::REDUCE_PROD => {
            &[(1, Axes)]
        }
        B::REVERSE_V2 | B::TRANSPOSE => &[(1, Ascending)],
        B::BATCH_TO_SPACE_ND | B::SPACE_TO_BATCH_ND => &[(1, Ones), (2, Zeros)],
        B::BROADCAST_TO => &[(1, ShapeOf(0))],
        B::CONV_2D | B::CONV_3D | B::DEPTHWISE_CONV_2D | B::FULLY_CONNECTED => WEIGHTS,
        B::FILL => &[(0, Ones)],
        B::LSTM | B::UNIDIRECTIONAL_SEQUENCE_LSTM => LSTM,
        B::ONE_HOT | B::RESIZE_BILINEAR | B::RESIZE_NEAREST_NEIGHBOR | B::TILE | B::TOPK_V2 => &[(1, Ones)],
        B::RESHAPE => &[(1, OneRow)],
        B::RNN | B::UNIDIRECTIONAL_SEQUENCE_RNN | B::SVDF => RECURRENT,
        B::SLICE => &[(1, Zeros), (2, Ones)],
        B::SPLIT => &[(0, SplitAxis)],
        B::SPLIT_V => &[(1, SplitSizes), (2, Zeros)],
        B::STRIDED_SLICE => &[(1, Zeros), (2, Ones), (3, Ones)],
        B::TRANSPOSE_CONV => &[(0, ConvShape), (1, Zeros), (3, Zeros)],
        _ => &[],
    }
}

/// Returns the inputs whose data is needed to lower a node and is not constant, with their numbers.
pub(super) fn deferred(node: NodeView<'_>) -> impl Iterator<Item = (usize, TensorInfo<'_>)> {
    let all = node.op().builtin().map_or(&[][..], operands);
    let operand = move |(i, _): &(usize, StandIn)| Some((*i, node.input(*i)?));
    all.iter().filter_map(operand).filter(|(_, tensor)| !tensor.is_constant() && !tensor.is_variable())
}

/// Returns stand-in data for input `i`; `None` if no data is known to fit, or it takes too much memory.
pub(super) fn stand_in(node: NodeView<'_>, i: usize) -> Option<Vec<u8>> {
    let tensor = node.input(i)?;
    let count = tensor.shape()?.checked_elements()?;
    let bytes = tensor.ty().byte_size(count).filter(|bytes| *bytes <= MAX_OPERAND_BYTES)?;
    let (_, kind) = operands(node.op().builtin()?).iter().find(|(input, _)| *input == i)?;
    if *kind == StandIn::Zeros {
        let mut zeros = Vec::new();
        zeros.try_reserve_exact(bytes).ok()?;
        zeros.resize(bytes, 0);
        return Some(zeros);
    }
    let dims = |input: usize| Some(node.input(input)?.shape()?.dims());
    let mut numbers: Vec<i64> = match kind {
        StandIn::Zeros => vec![0; count],
        StandIn::Ones => vec![1; count],
        StandIn::Ascending => (0..).take(count).collect(),
        StandIn::Axes => {
            let rank = i64::try_from(dims(0)?.len()).ok()?.max(1);
            (0..).take(count).map(|axis: i64| axis % rank).collect()
        }
        StandIn::OneRow => [-1].into_iter().chain(std::iter::repeat(1)).take(count).collect(),
        StandIn::ShapeOf(input) => shape(dims(*input)?)?,
        StandIn::SplitAxis => {
            let params: &SplitParams = node.params().try_into().ok()?;
            let parts = usize::try_from(params.num_splits).ok().filter(|parts| *parts > 0)?;
            let axis = dims(1)?.iter().position(|size| size % parts == 0)?;
            vec![i64::try_from(axis).ok()?; count]
        }
        StandIn::SplitSizes => {
            let axis = match node.input(2)? {
                axis if axis.is_constant() => *axis.constant_as::<i32>()?.first()?,
                _ => 0,
            };
            let dims = dims(0)?;
            let axis = if axis < 0 { dims.len().checked_add_signed(axis as isize)? } else { axis as usize };
            let first = dims.get(axis)?.checked_sub(count.checked_sub(1)?)?;
            [i64::try_from(first).ok()?].into_iter().chain(std::iter::repeat(1)).take(count).collect()
        }
        StandIn::ConvShape => conv_shape(node)?,
    };
    // A shape operand with more numbers than the rank of the input adds outer dimensions.
    while numbers.len() < count {
        numbers.insert(0, 1);
    }
    match tensor.ty() {
        TensorType::Int32 => {
            let numbers: Option<Vec<i32>> = numbers.into_iter().map(|n| i32::try_from(n).ok()).collect();
            Some(bytemuck::pod_collect_to_vec(&numbers?))
        }
        TensorType::Int64 => Some(bytemuck::pod_collect_to_vec(&numbers)),
        _ => None,
    }
}

fn shape(dims: &[usize]) -> Option<Vec<i64>> {
    dims.iter().map(|size| i64::try_from(*size).ok()).collect()
}

/// Returns an output shape for which a transposed convolution, with its strides and padding, has this input shape.
fn conv_shape(node: NodeView<'_>) -> Option<Vec<i64>> {
    let params: &TransposeConvParams = node.params().try_into().ok()?;
    let &[channels, height, width, _] = node.input(1)?.shape()?.dims() else { return None };
    let &[batch, rows, columns, _] = node.input(2)?.shape()?.dims() else { return None };
    let size = |input: usize, stride: i32, window: usize| {
        let stride = usize::try_from(stride).ok()?;
        match params.padding {
            Padding::Same => input.checked_mul(stride),
            Padding::Valid => input.checked_sub(1)?.checked_mul(stride)?.checked_add(window),
        }
    };
    shape(&[batch, size(rows, params.stride_h, height)?, size(columns, params.stride_w, width)?, channels])
}
