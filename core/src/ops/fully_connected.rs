//! FULLY_CONNECTED.

use smallvec::{SmallVec, smallvec};

use super::conv_2d::check_bias;
use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params,
    ReadError, TensorType, WeightsFormat,
};
use crate::shape::Shape;

/// `FULLY_CONNECTED`.
pub static FULLY_CONNECTED: OpDef = OpDef {
    op: BuiltinOp::FULLY_CONNECTED,
    family: "fully_connected",
    read: read_fully_connected,
    infer,
    history: &[
        (1, "1.5.0"),
        (2, "1.10.0"),
        (3, "1.14.0"),
        (4, "1.14.0"),
        (5, "2.0.0"),
        (6, "2.1.0"),
        (7, "2.3.0"),
        (8, "2.3.0"),
        (9, "2.3.0"),
        (10, "2.11.0"),
        (11, "2.15.0"),
        (12, "2.17.0"),
        (13, "2.18.0"),
        (14, "2.21.0"),
    ],
};

/// Params of FULLY_CONNECTED.
#[derive(Debug, Clone, PartialEq)]
pub struct FullyConnectedParams {
    /// The activation applied to the result.
    pub fused_activation_function: Activation,
    /// How the weights are stored. Since version 2; `Default` before.
    pub weights_format: WeightsFormat,
    /// Whether the output keeps the input's leading dimensions instead of one batch dimension. Since version 5; false before.
    pub keep_num_dims: bool,
    /// Whether float inputs that meet integer weights are quantized with a zero point. Since version 9; false before.
    pub asymmetric_quantize_inputs: bool,
    /// The type of the bias of 16-bit activations. Since version 11; `Float32` stands for "not given".
    pub quantized_bias_type: TensorType,
}

fn read_fully_connected(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_fully_connected_options())?;
    Ok(Params::FullyConnected(FullyConnectedParams {
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        weights_format: WeightsFormat::read(t.weights_format())?,
        keep_num_dims: t.keep_num_dims(),
        asymmetric_quantize_inputs: t.asymmetric_quantize_inputs(),
        quantized_bias_type: TensorType::read(t.quantized_bias_type())?,
    }))
}

/// Input `[…, inputs]`, weights `[outputs, inputs]`, bias `[outputs]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    let p: &FullyConnectedParams = cx.params()?;
    let shuffled = p.weights_format == WeightsFormat::Shuffled4x16Int8;
    cx.arity(2..=3, if shuffled { 2 } else { 1 })?;
    let input = cx.input(0)?;
    let [units, depth] = cx.shape_of_rank(1, "the weights")?;
    let elements = input.shape.elements();
    // Without depth the outputs are 0, one row for each of the input's.
    let rows = match depth {
        0 => input.shape.iter().take(input.shape.rank().saturating_sub(1)).product(),
        depth => elements / depth,
    };
    if depth != 0 && elements % depth != 0 {
        return Err(InferError::new(format!(
            "weights of {units}x{depth} do not fit an input of {}",
            input.shape
        )));
    }
    check_bias(cx, 2, units)?;
    // Quantized inputs keep their type; integer weights alone do not change that of a float input.
    let shape: Shape = match p.keep_num_dims {
        true if input.shape.last() == Some(&depth) => {
            input.shape.iter().take(input.shape.rank() - 1).copied().chain([units]).collect()
        }
        true => {
            return Err(InferError::new(format!("the last dimension of {} must be {depth}", input.shape)));
        }
        false => Shape::new(&[rows, units]),
    };
    // 8-bit inputs may give 16-bit outputs; then the file says so.
    let ty = match (input.ty, cx.outputs[0].ty) {
        (TensorType::UInt8 | TensorType::Int8, TensorType::Int16) => TensorType::Int16,
        (ty, _) => ty,
    };
    let mut outputs: SmallVec<[Inferred; 2]> = smallvec![Inferred::known(ty, shape)];
    if shuffled {
        // Room for the inputs in the order that suits shuffled weights.
        outputs.push(Inferred::known(TensorType::UInt8, input.shape.clone()));
    }
    Ok(outputs)
}
