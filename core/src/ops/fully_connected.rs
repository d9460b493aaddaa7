//! FULLY_CONNECTED.

use smallvec::{SmallVec, smallvec};

use super::conv_2d::check_bias;
use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, WeightsFormat,
    lowest_with, options, per_weight,
};
use crate::types::Shape;

ops! {
    FULLY_CONNECTED {
        codec: FullyConnectedParams::CODEC,
        infer,
        min_version,
        multiply_adds,
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
    }
}

options! {
    /// Params of FULLY_CONNECTED.
    FullyConnected(FullyConnectedParams) in BuiltinOptions::FullyConnectedOptions(builtin_options_as_fully_connected_options, FullyConnectedOptionsArgs) as TfLiteFullyConnectedParams {
        /// The activation applied to the result.
        fused_activation_function: Activation;
        /// The storage of the weights. Since version 2; `Default` before.
        weights_format: WeightsFormat, since 2;
        /// Whether the output keeps the input's leading dimensions instead of one batch dimension. Since version 5;
        /// false before.
        keep_num_dims: bool, since 5;
        /// Whether float inputs with integer weights are quantized with a zero point. Since version 9; false before.
        asymmetric_quantize_inputs: bool, since 9;
        /// The type of the bias of 16-bit activations. Since version 11; `Float32` means "not given".
        quantized_bias_type: TensorType, since 11;
    }
}

/// Input `[…, inputs]`, weights `[outputs, inputs]`, bias `[outputs]`.
fn infer(cx: &InferContext<'_>) -> InferResult {
    let p: &FullyConnectedParams = cx.params()?;
    let shuffled = p.weights_format == WeightsFormat::Shuffled4x16Int8;
    cx.arity(2..=3, if shuffled { 2 } else { 1 })?;
    let input = cx.input(0)?;
    let [units, depth] = cx.shape_of_rank(1, "the weights")?;
    let elements = input.shape.elements();
    // With a depth of 0, all outputs are 0, one row for each row of the input.
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
    // Quantized inputs keep their type; integer weights do not change the type of a float input.
    let shape: Shape = match p.keep_num_dims {
        true if input.shape.last() == Some(&depth) => {
            input.shape.iter().take(input.shape.rank() - 1).copied().chain([units]).collect()
        }
        true => {
            return Err(InferError::new(format!("the last dimension of {} must be {depth}", input.shape)));
        }
        false => Shape::new(&[rows, units]),
    };
    // 8-bit inputs may give 16-bit outputs: the declared output type decides.
    let ty = match (input.ty, cx.outputs[0].ty) {
        (TensorType::UInt8 | TensorType::Int8, TensorType::Int16) => TensorType::Int16,
        (ty, _) => ty,
    };
    let mut outputs: SmallVec<[Inferred; 2]> = smallvec![Inferred::known(ty, shape)];
    if shuffled {
        // Memory for the inputs in the order that shuffled weights need.
        outputs.push(Inferred::known(TensorType::UInt8, input.shape.clone()));
    }
    Ok(outputs)
}

/// Each version added one feature, in the order of the list.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float32, Int2, Int4, Int8, Int16};
    let p = s.params::<FullyConnectedParams>();
    lowest_with(&[
        (2, p.is_some_and(|p| p.weights_format != WeightsFormat::Default)),
        (3, s.hybrid(0, 1)),
        (4, s.input_is(0, &[Int8])),
        (5, p.is_some_and(|p| p.keep_num_dims)),
        (6, s.inputs.len() == 2),
        (7, s.input_is(0, &[Int16])),
        (8, s.input(1).is_some_and(|w| w.sparse)),
        (9, s.hybrid(0, 1) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
        (10, s.input_is(1, &[Int4])),
        (
            11,
            s.input_is(0, &[Int16])
                && s.input_is(1, &[Int8])
                && p.is_some_and(|p| p.quantized_bias_type != Float32),
        ),
        (12, s.hybrid(0, 1) && s.per_channel(1, 0)),
        (13, s.input_is(0, &[Int16]) && s.input_is(1, &[Int4])),
        (14, s.input_is(1, &[Int2])),
    ])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    per_weight(s, 1, 0)
}
