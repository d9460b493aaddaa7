//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM.

use smallvec::smallvec;

use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, LstmKernelType, OpDef,
    OpSignature, TensorType, lowest_with, options, recurrent,
};

/// `LSTM`.
pub static LSTM: OpDef = OpDef {
    op: BuiltinOp::LSTM,
    family: "lstm",
    codec: LSTMParams::CODEC,
    infer: infer_step,
    min_version: min_version_lstm,
    multiply_adds: recurrent,
    history: &[(1, "1.7.0"), (2, "1.10.0"), (3, "1.14.0"), (4, "2.3.0")],
};

/// `UNIDIRECTIONAL_SEQUENCE_LSTM`.
pub static UNIDIRECTIONAL_SEQUENCE_LSTM: OpDef = OpDef {
    op: BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM,
    family: "lstm",
    codec: UnidirectionalSequenceLSTMParams::CODEC,
    infer: infer_sequence,
    min_version: min_version_sequence,
    multiply_adds: recurrent,
    history: &[(1, "1.13.1"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.12.0")],
};

options! {
    /// Params of LSTM.
    LSTM(LSTMParams) in BuiltinOptions::LSTMOptions(builtin_options_as_lstmoptions, LSTMOptionsArgs) {
        /// Applied to the candidates for the cell state, and to the cell state for the output.
        fused_activation_function: Activation;
        /// The greatest magnitude of the cell state; 0 for any.
        cell_clip: f32;
        /// The greatest magnitude of the projected output; 0 for any.
        proj_clip: f32;
        /// Which cell.
        kernel_type: LstmKernelType, since 2;
        /// Whether float inputs that meet integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 4;
    }
}

options! {
    /// Params of UNIDIRECTIONAL_SEQUENCE_LSTM.
    UnidirectionalSequenceLSTM(UnidirectionalSequenceLSTMParams) in BuiltinOptions::UnidirectionalSequenceLSTMOptions(builtin_options_as_unidirectional_sequence_lstmoptions, UnidirectionalSequenceLSTMOptionsArgs) {
        /// Applied to the candidates for the cell state, and to the cell state for the output.
        fused_activation_function: Activation;
        /// The greatest magnitude of the cell state; 0 for any.
        cell_clip: f32;
        /// The greatest magnitude of the projected output; 0 for any.
        proj_clip: f32;
        /// Whether time is the outermost dimension, before the batch.
        time_major: bool;
        /// Whether float inputs that meet integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
        /// Whether recurrent weights are diagonal matrices, of which the file holds the diagonal.
        diagonal_recurrent_tensors: bool, since 4;
    }
}

/// The inputs of a full LSTM, by their positions. Gates come in the order input, forget, cell, output.
pub mod inputs {
    /// The data of one step, or of all.
    pub const INPUT: usize = 0;
    /// Weights `[cells, features]` of each gate; the first is left out where input and forget gate are coupled.
    pub const WEIGHTS: [usize; 4] = [1, 2, 3, 4];
    /// Weights `[cells, outputs]` of each gate for the last output, or diagonals `[cells]`.
    pub const RECURRENT: [usize; 4] = [5, 6, 7, 8];
    /// Weights `[cells]` of the input, forget and output gates for the cell state; none for the cell gate.
    pub const PEEPHOLE: [Option<usize>; 4] = [Some(9), Some(10), None, Some(11)];
    /// Biases `[cells]` of each gate.
    pub const BIAS: [usize; 4] = [12, 13, 14, 15];
    /// Weights `[outputs, cells]` of the projection.
    pub const PROJECTION: usize = 16;
    /// Bias `[outputs]` of the projection.
    pub const PROJECTION_BIAS: usize = 17;
    /// The last output `[batch, outputs]`, a variable.
    pub const OUTPUT_STATE: usize = 18;
    /// The cell state `[batch, cells]`, a variable.
    pub const CELL_STATE: usize = 19;
    /// Factors `[cells]` of each gate's normalization.
    pub const NORM: [usize; 4] = [20, 21, 22, 23];
}

/// One step: input `[batch, features]`, output `[batch, outputs]`.
fn infer_step(cx: &InferContext<'_>) -> InferResult {
    if cx.params::<LSTMParams>()?.kernel_type == LstmKernelType::Basic {
        return infer_basic(cx);
    }
    let [batch, features] = cx.shape_of_rank(0, "the input")?;
    let outputs = check_full(cx, batch, features)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [batch, outputs])])
}

/// All steps: input `[time, batch, features]` or `[batch, time, features]`, output likewise.
fn infer_sequence(cx: &InferContext<'_>) -> InferResult {
    let [first, second, features] = cx.shape_of_rank(0, "the input")?;
    let time_major = cx.params::<UnidirectionalSequenceLSTMParams>()?.time_major;
    let outputs = check_full(cx, if time_major { second } else { first }, features)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [first, second, outputs])])
}

/// The old cell: input `[batch, features]`, last output `[batch, cells]`, weights `[4 cells, features + cells]`, bias
/// `[4 cells]`, state `[batch, cells]`; outputs: output, state, and two that hold intermediate values.
fn infer_basic(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 4)?;
    let [batch, features] = cx.shape_of_rank(0, "the input")?;
    let [_, cells] = cx.shape_of_rank(1, "the last output")?;
    let too_large = || InferError::new("the sizes overflow");
    let joined = features.checked_add(cells).ok_or_else(too_large)?;
    let gates = cells.checked_mul(4).ok_or_else(too_large)?;
    expect(cx, 1, &[batch, cells])?;
    expect(cx, 2, &[gates, joined])?;
    expect(cx, 3, &[gates])?;
    expect(cx, 4, &[batch, cells])?;
    let (ty, state) = (cx.input(0)?.ty, cx.input(4)?.ty);
    Ok(smallvec![
        Inferred::known(ty, [batch, cells]),
        Inferred::known(state, [batch, cells]),
        Inferred::known(ty, [batch, joined]),
        Inferred::known(state, [batch, gates]),
    ])
}

/// Checks the operands of a full LSTM; returns how many outputs it has.
fn check_full(cx: &InferContext<'_>, batch: usize, features: usize) -> Result<usize, InferError> {
    use inputs::{
        BIAS, CELL_STATE, NORM, OUTPUT_STATE, PEEPHOLE, PROJECTION, PROJECTION_BIAS, RECURRENT, WEIGHTS,
    };
    cx.arity(20..=24, 1)?;
    let [cells, _] = cx.shape_of_rank(WEIGHTS[3], "the output gate's weights")?;
    let recurrent = cx.input(RECURRENT[3])?.shape;
    let Some(&outputs) = recurrent.last() else {
        return Err(InferError::new("the recurrent weights have no dimension"));
    };
    let coupled = cx.optional(WEIGHTS[0]).is_none();
    let (peephole, normalized) = (cx.optional(11).is_some(), cx.optional(NORM[3]).is_some());
    for gate in 0..4 {
        let there = !(coupled && gate == 0);
        let diagonal = cx.optional(RECURRENT[gate]).is_some_and(|w| w.shape.rank() == 1);
        expect_if(cx, there, WEIGHTS[gate], &[cells, features])?;
        match diagonal {
            true => expect_if(cx, there, RECURRENT[gate], &[cells])?,
            false => expect_if(cx, there, RECURRENT[gate], &[cells, outputs])?,
        }
        expect_if(cx, there, BIAS[gate], &[cells])?;
        if let Some(weights) = PEEPHOLE[gate] {
            expect_if(cx, there && peephole, weights, &[cells])?;
        }
        expect_if(cx, there && normalized, NORM[gate], &[cells])?;
    }
    let projected = cx.optional(PROJECTION).is_some();
    expect_if(cx, projected, PROJECTION, &[outputs, cells])?;
    if !projected && outputs != cells {
        return Err(InferError::new(format!("{outputs} outputs of {cells} cells without a projection")));
    }
    expect_if(cx, cx.optional(PROJECTION_BIAS).is_some() && projected, PROJECTION_BIAS, &[outputs])?;
    expect(cx, OUTPUT_STATE, &[batch, outputs])?;
    expect(cx, CELL_STATE, &[batch, cells])?;
    Ok(outputs)
}

/// Input `i` must be there with this shape, or must not be there.
fn expect_if(cx: &InferContext<'_>, there: bool, i: usize, shape: &[usize]) -> Result<(), InferError> {
    match cx.optional(i) {
        Some(_) if !there => Err(InferError::new(format!("input {i} does not go with the inputs left out"))),
        _ if there => expect(cx, i, shape),
        _ => Ok(()),
    }
}

fn expect(cx: &InferContext<'_>, i: usize, shape: &[usize]) -> Result<(), InferError> {
    let got = cx.input(i)?.shape;
    if got.dims() == shape {
        return Ok(());
    }
    Err(InferError::new(format!("input {i} has the shape {got}, expected {shape:?}")))
}

/// The basic cell, 8-bit weights, and activations quantized with a zero point came one after the other; no released runtime
/// has the version 5 that some converters write for 16-bit activations.
fn min_version_lstm(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    let p = s.params::<LSTMParams>();
    lowest_with(&[
        (2, p.is_some_and(|p| p.kernel_type == LstmKernelType::Basic)),
        (3, s.hybrid(0, 2)),
        (4, s.hybrid(0, 2) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
        (4, s.input_is(0, &[Int16])),
    ])
}

/// 8-bit weights, activations quantized with a zero point, and diagonal recurrent weights came one after the other; no
/// released runtime has the version 5 that some converters write for 16-bit activations.
fn min_version_sequence(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    let p = s.params::<UnidirectionalSequenceLSTMParams>();
    lowest_with(&[
        (2, s.hybrid(0, 2)),
        (3, s.hybrid(0, 2) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
        (4, p.is_some_and(|p| p.diagonal_recurrent_tensors)),
        (4, s.input_is(0, &[Int16])),
    ])
}
