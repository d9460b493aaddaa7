//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferError, InferResult, Inferred, LstmKernelType, OpSignature, TensorType,
    expect_shape, lowest_with, options, recurrent,
};
use crate::error::counted;

ops! {
    LSTM {
        codec: LstmParams::CODEC,
        infer: infer_step,
        min_version: min_version_lstm,
        multiply_adds: recurrent,
        history: &[(1, "1.7.0"), (2, "1.10.0"), (3, "1.14.0"), (4, "2.3.0")],
    }

    UNIDIRECTIONAL_SEQUENCE_LSTM {
        codec: UnidirectionalSequenceLstmParams::CODEC,
        infer: infer_sequence,
        min_version: min_version_sequence,
        multiply_adds: recurrent,
        history: &[(1, "1.13.1"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.12.0")],
    }

    BIDIRECTIONAL_SEQUENCE_LSTM {
        codec: BidirectionalSequenceLstmParams::CODEC,
        infer: infer_bidirectional,
        min_version: min_version_bidirectional,
        multiply_adds: recurrent,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "1.14.0")],
    }
}

options! {
    /// Params of LSTM.
    Lstm(LstmParams) in BuiltinOptions::LSTMOptions(builtin_options_as_lstmoptions, LSTMOptionsArgs) as TfLiteLSTMParams {
        /// Applied to the candidates for the cell state, and to the cell state for the output.
        fused_activation_function: Activation;
        /// The greatest magnitude of the cell state; 0 for any.
        cell_clip: f32;
        /// The greatest magnitude of the projected output; 0 for any.
        proj_clip: f32;
        /// The kind of cell.
        kernel_type: LstmKernelType, since 2;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 4;
    }
}

options! {
    /// Params of UNIDIRECTIONAL_SEQUENCE_LSTM.
    UnidirectionalSequenceLstm(UnidirectionalSequenceLstmParams) in BuiltinOptions::UnidirectionalSequenceLSTMOptions(builtin_options_as_unidirectional_sequence_lstmoptions, UnidirectionalSequenceLSTMOptionsArgs) as TfLiteUnidirectionalSequenceLSTMParams {
        /// Applied to the candidates for the cell state, and to the cell state for the output.
        fused_activation_function: Activation;
        /// The greatest magnitude of the cell state; 0 for any.
        cell_clip: f32;
        /// The greatest magnitude of the projected output; 0 for any.
        proj_clip: f32;
        /// Whether time is the outermost dimension, before the batch.
        time_major: bool;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
        /// Whether recurrent weights are diagonal matrices; the file holds the diagonals.
        diagonal_recurrent_tensors: bool, since 4;
    }
}

options! {
    /// Params of BIDIRECTIONAL_SEQUENCE_LSTM.
    BidirectionalSequenceLstm(BidirectionalSequenceLstmParams) in BuiltinOptions::BidirectionalSequenceLSTMOptions(builtin_options_as_bidirectional_sequence_lstmoptions, BidirectionalSequenceLSTMOptionsArgs) as TfLiteBidirectionalSequenceLSTMParams {
        /// Applied to the candidates for the cell state, and to the cell state for the output.
        fused_activation_function: Activation;
        /// The greatest magnitude of the cell states; 0 for any.
        cell_clip: f32;
        /// The greatest magnitude of the projected outputs; 0 for any.
        proj_clip: f32;
        /// Whether both directions are written to one output, each step's forward outputs before the backward ones.
        merge_outputs: bool;
        /// Whether time is the outermost dimension, before the batch.
        time_major: bool, since 2;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
    }
}

/// The inputs of the full LSTM ops, by their positions. Gates come in the order input, forget, cell, output.
pub mod inputs {
    /// The data of one step, or of all.
    pub const INPUT: usize = 0;
    /// A second sequence; see [`Cell::auxiliary`].
    pub const AUXILIARY: usize = 39;

    /// The inputs that make up the cell of one direction.
    #[derive(Debug, Clone, Copy)]
    #[non_exhaustive]
    pub struct Cell {
        /// Weights `[cells, features]` of each gate; the first is left out where input and forget gate are coupled.
        pub weights: [usize; 4],
        /// Weights `[cells, outputs]` of each gate for the last output, or diagonals `[cells]`.
        pub recurrent: [usize; 4],
        /// Weights `[cells]` of the input, forget and output gates for the cell state; none for the cell gate.
        pub peephole: [Option<usize>; 4],
        /// Biases `[cells]` of each gate.
        pub bias: [usize; 4],
        /// Weights `[outputs, cells]` of the projection.
        pub projection: usize,
        /// Bias `[outputs]` of the projection.
        pub projection_bias: usize,
        /// The last output `[batch, outputs]`, a variable.
        pub output_state: usize,
        /// The cell state `[batch, cells]`, a variable.
        pub cell_state: usize,
        /// Factors `[cells]` of each gate's normalization; none for cells that cannot have it.
        pub norm: [Option<usize>; 4],
        /// Weights `[cells, auxiliary features]` of each gate for [`AUXILIARY`]; none for cells that cannot have it.
        /// Where both cells lack them but the auxiliary input is given, the backward cell reads it in place of the
        /// input.
        pub auxiliary: [Option<usize>; 4],
    }

    const fn gates(first: usize) -> [usize; 4] {
        [first, first + 1, first + 2, first + 3]
    }

    impl Cell {
        const fn new(first: usize, states: usize) -> Self {
            Cell {
                weights: gates(first),
                recurrent: gates(first + 4),
                peephole: [Some(first + 8), Some(first + 9), None, Some(first + 10)],
                bias: gates(first + 11),
                projection: first + 15,
                projection_bias: first + 16,
                output_state: states,
                cell_state: states + 1,
                norm: [None; 4],
                auxiliary: [None; 4],
            }
        }
    }

    /// The cell of LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM.
    pub const CELL: Cell = Cell { norm: [Some(20), Some(21), Some(22), Some(23)], ..Cell::new(1, 18) };
    /// The forward cell of BIDIRECTIONAL_SEQUENCE_LSTM.
    pub const FORWARD: Cell =
        Cell { auxiliary: [Some(40), Some(41), Some(42), Some(43)], ..Cell::new(1, 35) };
    /// The backward cell of BIDIRECTIONAL_SEQUENCE_LSTM.
    pub const BACKWARD: Cell =
        Cell { auxiliary: [Some(44), Some(45), Some(46), Some(47)], ..Cell::new(18, 37) };
}

/// The inputs of the basic cell, by their positions.
pub mod basic_inputs {
    /// The data `[batch, features]` of one step.
    pub const INPUT: usize = 0;
    /// The last output `[batch, cells]`.
    pub const OUTPUT_STATE: usize = 1;
    /// Weights `[4 cells, features + cells]`: the gates input, cell, forget, output, below each other.
    pub const WEIGHTS: usize = 2;
    /// Bias `[4 cells]`.
    pub const BIAS: usize = 3;
    /// The cell state `[batch, cells]`.
    pub const CELL_STATE: usize = 4;
}

/// One step: input `[batch, features]`, output `[batch, outputs]`.
fn infer_step(cx: &InferContext<'_>) -> InferResult {
    if cx.params::<LstmParams>()?.kernel_type == LstmKernelType::Basic {
        return infer_basic(cx);
    }
    cx.arity(20..=24, 1)?;
    let [batch, features] = cx.shape_of_rank(inputs::INPUT, "the input")?;
    let outputs = check_cell(cx, &inputs::CELL, batch, features, None)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [batch, outputs])])
}

/// All steps: input `[time, batch, features]` or `[batch, time, features]`, output likewise.
fn infer_sequence(cx: &InferContext<'_>) -> InferResult {
    cx.arity(20..=24, 1)?;
    let [first, second, features] = cx.shape_of_rank(inputs::INPUT, "the input")?;
    let time_major = cx.params::<UnidirectionalSequenceLstmParams>()?.time_major;
    let batch = if time_major { second } else { first };
    let outputs = check_cell(cx, &inputs::CELL, batch, features, None)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [first, second, outputs])])
}

/// Two sequences, one of them backward in time: an output for each, or one for both.
fn infer_bidirectional(cx: &InferContext<'_>) -> InferResult {
    use inputs::{AUXILIARY, BACKWARD, FORWARD, INPUT};
    let p = cx.params::<BidirectionalSequenceLstmParams>()?;
    cx.arity(48..=48, if p.merge_outputs { 1 } else { 2 })?;
    let [first, second, features] = cx.shape_of_rank(INPUT, "the input")?;
    let batch = if p.time_major { second } else { first };
    // Every cell has a forget gate.
    let weighted = [FORWARD, BACKWARD].map(|c| c.auxiliary[1].is_some_and(|i| cx.optional(i).is_some()));
    if weighted[0] != weighted[1] {
        return Err(InferError::new("one direction alone has weights for the auxiliary input"));
    }
    let mut auxiliary = None;
    if weighted[0] {
        let [_, _, width] = cx.shape_of_rank(AUXILIARY, "the auxiliary input")?;
        expect_shape(cx, AUXILIARY, &[first, second, width])?;
        auxiliary = Some(width);
    } else if cx.optional(AUXILIARY).is_some() {
        expect_shape(cx, AUXILIARY, &[first, second, features])?;
    }
    let forward = check_cell(cx, &FORWARD, batch, features, auxiliary)?;
    let backward = check_cell(cx, &BACKWARD, batch, features, auxiliary)?;
    let ty = cx.input(INPUT)?.ty;
    if !p.merge_outputs {
        return Ok(smallvec![
            Inferred::known(ty, [first, second, forward]),
            Inferred::known(ty, [first, second, backward]),
        ]);
    }
    let both = forward.checked_add(backward).ok_or_else(|| InferError::new("the sizes overflow"))?;
    Ok(smallvec![Inferred::known(ty, [first, second, both])])
}

/// The basic cell's outputs: output, state, and two that hold intermediate values.
fn infer_basic(cx: &InferContext<'_>) -> InferResult {
    use basic_inputs::{BIAS, CELL_STATE, INPUT, OUTPUT_STATE, WEIGHTS};
    cx.arity(5..=5, 4)?;
    let [batch, features] = cx.shape_of_rank(INPUT, "the input")?;
    let [_, cells] = cx.shape_of_rank(OUTPUT_STATE, "the last output")?;
    let too_large = || InferError::new("the sizes overflow");
    let joined = features.checked_add(cells).ok_or_else(too_large)?;
    let gates = cells.checked_mul(4).ok_or_else(too_large)?;
    expect_shape(cx, OUTPUT_STATE, &[batch, cells])?;
    expect_shape(cx, WEIGHTS, &[gates, joined])?;
    expect_shape(cx, BIAS, &[gates])?;
    expect_shape(cx, CELL_STATE, &[batch, cells])?;
    let (ty, state) = (cx.input(INPUT)?.ty, cx.input(CELL_STATE)?.ty);
    Ok(smallvec![
        Inferred::known(ty, [batch, cells]),
        Inferred::known(state, [batch, cells]),
        Inferred::known(ty, [batch, joined]),
        Inferred::known(state, [batch, gates]),
    ])
}

/// Checks the operands of a full cell, which has weights for an auxiliary input if `auxiliary` is the width of one;
/// returns the number of outputs.
fn check_cell(
    cx: &InferContext<'_>,
    cell: &inputs::Cell,
    batch: usize,
    features: usize,
    auxiliary: Option<usize>,
) -> Result<usize, InferError> {
    let there = |i: Option<usize>| i.is_some_and(|i| cx.optional(i).is_some());
    let [cells, _] = cx.shape_of_rank(cell.weights[3], "the output gate's weights")?;
    let Some(&outputs) = cx.input(cell.recurrent[3])?.shape.last() else {
        return Err(InferError::new("the recurrent weights have no dimension"));
    };
    let coupled = cx.optional(cell.weights[0]).is_none();
    let (peephole, normalized) = (there(cell.peephole[3]), there(cell.norm[3]));
    for gate in 0..4 {
        let used = !(coupled && gate == 0);
        let diagonal = cx.optional(cell.recurrent[gate]).is_some_and(|w| w.shape.rank() == 1);
        expect_if(cx, used, cell.weights[gate], &[cells, features])?;
        let matrix = [cells, outputs];
        expect_if(cx, used, cell.recurrent[gate], if diagonal { &matrix[..1] } else { &matrix })?;
        expect_if(cx, used, cell.bias[gate], &[cells])?;
        if let Some(weights) = cell.peephole[gate] {
            expect_if(cx, used && peephole, weights, &[cells])?;
        }
        if let Some(factors) = cell.norm[gate] {
            expect_if(cx, used && normalized, factors, &[cells])?;
        }
        if let Some(weights) = cell.auxiliary[gate] {
            expect_if(cx, used && auxiliary.is_some(), weights, &[cells, auxiliary.unwrap_or(0)])?;
        }
    }
    let projected = cx.optional(cell.projection).is_some();
    expect_if(cx, projected, cell.projection, &[outputs, cells])?;
    let biased = projected && cx.optional(cell.projection_bias).is_some();
    expect_if(cx, biased, cell.projection_bias, &[outputs])?;
    if !projected && outputs != cells {
        let (outputs, cells) = (counted(outputs, "output"), counted(cells, "cell"));
        return Err(InferError::new(format!("{outputs} of {cells} without a projection")));
    }
    expect_state(cx, cell.output_state, batch, outputs)?;
    expect_state(cx, cell.cell_state, batch, cells)?;
    Ok(outputs)
}

/// Checks that input `i` has this shape if `there`, and is left out if not.
fn expect_if(cx: &InferContext<'_>, there: bool, i: usize, shape: &[usize]) -> Result<(), InferError> {
    match cx.optional(i) {
        Some(_) if !there => Err(InferError::new(format!("input {i} does not go with the inputs left out"))),
        _ if there => expect_shape(cx, i, shape),
        _ => Ok(()),
    }
}

/// Checks the number of elements of input `i`, a state, which may be flat.
fn expect_state(cx: &InferContext<'_>, i: usize, batch: usize, width: usize) -> Result<(), InferError> {
    let shape = cx.input(i)?.shape;
    if shape.checked_elements().is_some_and(|n| Some(n) == batch.checked_mul(width)) {
        return Ok(());
    }
    Err(InferError::new(format!("input {i}, a state, has the shape {shape}, expected [{batch}, {width}]")))
}

/// Versions added the basic cell, 8-bit weights, and activations quantized with a zero point, in this order. No
/// released runtime has the version 5 that some converters write for 16-bit activations.
fn min_version_lstm(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    let p = s.params::<LstmParams>();
    lowest_with(&[
        (2, p.is_some_and(|p| p.kernel_type == LstmKernelType::Basic)),
        (3, s.hybrid(0, 2)),
        (4, s.hybrid(0, 2) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
        (4, s.input_is(0, &[Int16])),
    ])
}

/// Versions added 8-bit weights, activations quantized with a zero point, and diagonal recurrent weights, in this
/// order. No released runtime has the version 5 that some converters write for 16-bit activations.
fn min_version_sequence(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    let p = s.params::<UnidirectionalSequenceLstmParams>();
    lowest_with(&[
        (2, s.hybrid(0, 2)),
        (3, s.hybrid(0, 2) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
        (4, p.is_some_and(|p| p.diagonal_recurrent_tensors)),
        (4, s.input_is(0, &[Int16])),
    ])
}

/// Versions added 8-bit weights and activations quantized with a zero point, in this order.
fn min_version_bidirectional(s: &OpSignature<'_>) -> u32 {
    let p = s.params::<BidirectionalSequenceLstmParams>();
    // Input 1 is left out where gates are coupled.
    let hybrid = s.hybrid(0, 1) || s.hybrid(0, 2);
    lowest_with(&[(2, hybrid), (3, hybrid && p.is_some_and(|p| p.asymmetric_quantize_inputs))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Params;
    use crate::ops::testing::{T, gives, infer, refused};

    const FLOAT: TensorType = TensorType::Float32;

    /// The operands of a cell with these sizes, without peepholes and normalization.
    fn cell(inputs: &mut [Option<T>], cell: &inputs::Cell, [features, cells, outputs]: [usize; 3]) {
        let mut set = |i: usize, shape: &[usize]| inputs[i] = Some(T::new(FLOAT, shape));
        for gate in 0..4 {
            set(cell.weights[gate], &[cells, features]);
            set(cell.recurrent[gate], &[cells, outputs]);
            set(cell.bias[gate], &[cells]);
        }
        set(cell.projection, &[outputs, cells]);
        set(cell.output_state, &[2 * outputs]);
        set(cell.cell_state, &[2, cells]);
    }

    #[test]
    fn one_direction() {
        let def = &UNIDIRECTIONAL_SEQUENCE_LSTM;
        let params = || Params::from(UnidirectionalSequenceLstmParams::default());
        let good = || {
            let mut inputs = vec![None; 24];
            inputs[0] = Some(T::new(FLOAT, &[2, 3, 4]));
            cell(&mut inputs, &inputs::CELL, [4, 6, 5]);
            inputs
        };
        gives(def, params(), &good(), FLOAT, &[2, 3, 5]);
        let with = |i: usize, shape: Option<&[usize]>| {
            let mut inputs = good();
            inputs[i] = shape.map(|s| T::new(FLOAT, s));
            inputs
        };
        refused(def, params(), &with(0, Some(&[3, 4])), 1, "the input must have rank 3");
        for i in (1..=8).chain(12..=16).chain([18, 19]) {
            for shape in [&[][..], &[7], &[2, 7], &[5, 6, 1]] {
                infer(def, params(), &with(i, Some(shape)), &[FLOAT]).expect_err("a shape that does not fit");
            }
        }
        refused(def, params(), &with(1, None), 1, "input 5 does not go with");
        refused(def, params(), &with(11, Some(&[6])), 1, "input 9 is missing");
        refused(def, params(), &with(23, Some(&[6])), 1, "input 20 is missing");
        refused(def, params(), &with(16, None), 1, "5 outputs of 6 cells");
        gives(def, params(), &with(17, Some(&[5])), FLOAT, &[2, 3, 5]);
    }

    #[test]
    fn two_directions() {
        let def = &BIDIRECTIONAL_SEQUENCE_LSTM;
        let params = |merge_outputs| {
            let mut params = BidirectionalSequenceLstmParams::default();
            (params.merge_outputs, params.time_major) = (merge_outputs, false);
            Params::from(params)
        };
        let mut inputs = vec![None; 48];
        inputs[0] = Some(T::new(FLOAT, &[2, 3, 4]));
        cell(&mut inputs, &inputs::FORWARD, [4, 6, 5]);
        cell(&mut inputs, &inputs::BACKWARD, [4, 8, 7]);
        gives(def, params(true), &inputs, FLOAT, &[2, 3, 12]);
        assert_eq!(infer(def, params(false), &inputs, &[FLOAT; 2]).unwrap().len(), 2);
        refused(def, params(false), &inputs, 1, "expected 2 outputs");
        inputs[inputs::AUXILIARY] = Some(T::new(FLOAT, &[2, 3, 9]));
        refused(def, params(true), &inputs, 1, "input 39 has the shape [2, 3, 9], expected [2, 3, 4]");
        for gate in inputs::FORWARD.auxiliary.into_iter().flatten() {
            inputs[gate] = Some(T::new(FLOAT, &[6, 9]));
        }
        refused(def, params(true), &inputs, 1, "one direction alone");
        for gate in inputs::BACKWARD.auxiliary.into_iter().flatten() {
            inputs[gate] = Some(T::new(FLOAT, &[8, 9]));
        }
        gives(def, params(true), &inputs, FLOAT, &[2, 3, 12]);
        inputs[44] = None;
        refused(def, params(true), &inputs, 1, "input 44 is missing");
    }

    #[test]
    fn the_basic_cell() {
        let params = || Params::from(LstmParams::default().kernel_type(LstmKernelType::Basic));
        let inputs = |weights: &[usize]| {
            [&[2, 3][..], &[2, 4], weights, &[16], &[2, 4]].map(|s| Some(T::new(FLOAT, s)))
        };
        let inferred = infer(&LSTM, params(), &inputs(&[16, 7]), &[FLOAT; 4]).unwrap();
        assert_eq!(inferred[2], Inferred::known(FLOAT, [2, 7]));
        refused(&LSTM, params(), &inputs(&[16, 8]), 4, "input 2 has the shape [16, 8]");
        refused(&LSTM, params(), &inputs(&[16, 7]), 1, "expected 4 outputs");
    }
}
