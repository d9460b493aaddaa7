//! RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN.

use smallvec::smallvec;

use super::{
    Activation, InferContext, InferError, InferResult, Inferred, OpSignature, expect_shape, lowest_with,
    options, recurrent,
};

ops! {
    RNN {
        codec: RnnParams::CODEC,
        infer: infer_step,
        min_version: |s| min_version(s, s.params::<RnnParams>().is_some_and(|p| p.asymmetric_quantize_inputs)),
        multiply_adds: recurrent,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    UNIDIRECTIONAL_SEQUENCE_RNN {
        codec: SequenceRnnParams::CODEC,
        infer: infer_sequence,
        min_version: |s| {
            min_version(s, s.params::<SequenceRnnParams>().is_some_and(|p| p.asymmetric_quantize_inputs))
        },
        multiply_adds: recurrent,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    BIDIRECTIONAL_SEQUENCE_RNN {
        codec: BidirectionalSequenceRnnParams::CODEC,
        infer: infer_bidirectional,
        min_version: |s| {
            let p = s.params::<BidirectionalSequenceRnnParams>();
            min_version(s, p.is_some_and(|p| p.asymmetric_quantize_inputs))
        },
        multiply_adds: recurrent,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
    }
}

options! {
    /// Params of RNN.
    Rnn(RnnParams) in BuiltinOptions::RNNOptions(builtin_options_as_rnnoptions, RNNOptionsArgs) as TfLiteRNNParams {
        /// Applied to the units' sums; the result is both output and state.
        fused_activation_function: Activation;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
    }
}

options! {
    /// Params of UNIDIRECTIONAL_SEQUENCE_RNN.
    SequenceRnn(SequenceRnnParams) in BuiltinOptions::SequenceRNNOptions(builtin_options_as_sequence_rnnoptions, SequenceRNNOptionsArgs) as TfLiteSequenceRNNParams {
        /// Whether time is the outermost dimension, before the batch.
        time_major: bool;
        /// Applied to the units' sums; the result is both output and state.
        fused_activation_function: Activation;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
    }
}

options! {
    /// Params of BIDIRECTIONAL_SEQUENCE_RNN.
    BidirectionalSequenceRnn(BidirectionalSequenceRnnParams) in BuiltinOptions::BidirectionalSequenceRNNOptions(builtin_options_as_bidirectional_sequence_rnnoptions, BidirectionalSequenceRNNOptionsArgs) as TfLiteBidirectionalSequenceRNNParams {
        /// Whether time is the outermost dimension, before the batch.
        time_major: bool;
        /// Applied to the units' sums; the result is both output and state.
        fused_activation_function: Activation;
        /// Whether both directions are written to one output, each step's forward units before the backward ones.
        merge_outputs: bool;
        /// Whether float inputs with integer weights are quantized with a zero point.
        asymmetric_quantize_inputs: bool, since 3;
    }
}

/// The inputs of the RNN ops, by their positions.
pub mod inputs {
    /// The data of one step, or of all.
    pub const INPUT: usize = 0;
    /// A second sequence; see [`Cell::auxiliary`].
    pub const AUXILIARY: usize = 9;

    /// The inputs that make up the cell of one direction.
    #[derive(Debug, Clone, Copy)]
    #[non_exhaustive]
    pub struct Cell {
        /// Weights `[units, features]`.
        pub weights: usize,
        /// Weights `[units, units]` for the last output.
        pub recurrent: usize,
        /// Bias `[units]`.
        pub bias: usize,
        /// The last output `[batch, units]`, a variable.
        pub state: usize,
        /// Weights `[units, auxiliary features]` for [`AUXILIARY`]. If both cells lack them and the auxiliary input is
        /// present, the backward cell reads it instead of the input.
        pub auxiliary: usize,
    }

    /// The only cell, or the forward one.
    pub const FORWARD: Cell = Cell { weights: 1, recurrent: 2, bias: 3, state: 4, auxiliary: 10 };
    /// The backward cell of BIDIRECTIONAL_SEQUENCE_RNN.
    pub const BACKWARD: Cell = Cell { weights: 5, recurrent: 6, bias: 7, state: 8, auxiliary: 11 };
}

/// One step: input `[batch, features]`, output `[batch, units]`.
fn infer_step(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 1)?;
    let [batch, features] = cx.shape_of_rank(inputs::INPUT, "the input")?;
    let units = check_cell(cx, inputs::FORWARD, batch, features)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [batch, units])])
}

/// All steps: input `[time, batch, features]` or `[batch, time, features]`, output likewise.
fn infer_sequence(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 1)?;
    let [first, second, features] = cx.shape_of_rank(inputs::INPUT, "the input")?;
    let batch = if cx.params::<SequenceRnnParams>()?.time_major { second } else { first };
    let units = check_cell(cx, inputs::FORWARD, batch, features)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, [first, second, units])])
}

/// Two sequences, one of them backward in time: an output for each, or one for both.
fn infer_bidirectional(cx: &InferContext<'_>) -> InferResult {
    use inputs::{AUXILIARY, BACKWARD, FORWARD, INPUT};
    let p = cx.params::<BidirectionalSequenceRnnParams>()?;
    cx.arity(12..=12, if p.merge_outputs { 1 } else { 2 })?;
    let [first, second, features] = cx.shape_of_rank(INPUT, "the input")?;
    let batch = if p.time_major { second } else { first };
    let forward = check_cell(cx, FORWARD, batch, features)?;
    let backward = check_cell(cx, BACKWARD, batch, features)?;
    let weights = [cx.optional(FORWARD.auxiliary), cx.optional(BACKWARD.auxiliary)];
    match weights {
        [Some(_), Some(_)] => {
            let auxiliary: [usize; 3] = cx.shape_of_rank(AUXILIARY, "the auxiliary input")?;
            expect_shape(cx, AUXILIARY, &[first, second, auxiliary[2]])?;
            expect_shape(cx, FORWARD.auxiliary, &[forward, auxiliary[2]])?;
            expect_shape(cx, BACKWARD.auxiliary, &[backward, auxiliary[2]])?;
        }
        [None, None] if cx.optional(AUXILIARY).is_some() => {
            expect_shape(cx, AUXILIARY, &[first, second, features])?;
        }
        [None, None] => {}
        _ => return Err(InferError::new("one direction alone has weights for the auxiliary input")),
    }
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

/// Checks the operands of a cell; returns the number of units.
fn check_cell(
    cx: &InferContext<'_>,
    cell: inputs::Cell,
    batch: usize,
    features: usize,
) -> Result<usize, InferError> {
    let [units, _] = cx.shape_of_rank(cell.weights, "the weights")?;
    expect_shape(cx, cell.weights, &[units, features])?;
    expect_shape(cx, cell.recurrent, &[units, units])?;
    expect_shape(cx, cell.bias, &[units])?;
    expect_shape(cx, cell.state, &[batch, units])?;
    Ok(units)
}

/// Versions added 8-bit weights and activations quantized with a zero point, in this order.
fn min_version(s: &OpSignature<'_>, asymmetric: bool) -> u32 {
    lowest_with(&[(2, s.hybrid(0, 1)), (3, s.hybrid(0, 1) && asymmetric)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, gives, infer, refused};
    use crate::ops::{Params, TensorType};

    fn floats(shapes: &[&[usize]]) -> Vec<Option<T>> {
        shapes.iter().map(|s| (!s.is_empty()).then(|| T::new(TensorType::Float32, s))).collect()
    }

    #[test]
    fn sequences() {
        let def = &UNIDIRECTIONAL_SEQUENCE_RNN;
        let inputs = |weights| floats(&[&[2, 3, 4], weights, &[5, 5], &[5], &[2, 5]]);
        let params = |time_major| Params::from(SequenceRnnParams::default().time_major(time_major));
        gives(def, params(false), &inputs(&[5, 4]), TensorType::Float32, &[2, 3, 5]);
        refused(def, params(false), &inputs(&[5, 3]), 1, "input 1 has the shape [5, 3], expected [5, 4]");
        refused(def, params(false), &inputs(&[5]), 1, "the weights must have rank 2");
        refused(def, params(true), &inputs(&[5, 4]), 1, "input 4 has the shape [2, 5], expected [3, 5]");
        refused(&RNN, RnnParams::default().into(), &inputs(&[5, 4]), 1, "the input must have rank 2");
    }

    #[test]
    fn two_directions() {
        let def = &BIDIRECTIONAL_SEQUENCE_RNN;
        let params = |merge_outputs| {
            Params::from(BidirectionalSequenceRnnParams::default().merge_outputs(merge_outputs))
        };
        let inputs = |auxiliary, of_forward, of_backward| {
            let forward: [&[usize]; 4] = [&[5, 4], &[5, 5], &[5], &[2, 5]];
            let backward: [&[usize]; 4] = [&[6, 4], &[6, 6], &[6], &[2, 6]];
            let ends = [auxiliary, of_forward, of_backward];
            floats(&[&[&[2, 3, 4][..]], &forward[..], &backward[..], &ends[..]].concat())
        };
        let float = TensorType::Float32;
        gives(def, params(true), &inputs(&[], &[], &[]), float, &[2, 3, 11]);
        let apart = infer(def, params(false), &inputs(&[], &[], &[]), &[float; 2]).unwrap();
        let want = [[2, 3, 5], [2, 3, 6]].map(|shape| Inferred::known(float, shape));
        assert_eq!(apart.as_slice(), want);
        refused(def, params(false), &inputs(&[], &[], &[]), 1, "expected 2 outputs");
        refused(def, params(true), &inputs(&[2, 3, 7], &[], &[]), 1, "input 9 has the shape");
        refused(def, params(true), &inputs(&[2, 3, 7], &[5, 7], &[]), 1, "one direction alone");
        refused(def, params(true), &inputs(&[], &[5, 7], &[6, 7]), 1, "input 9 is missing");
        refused(def, params(true), &inputs(&[2, 7], &[5, 7], &[6, 7]), 1, "must have rank 3");
        gives(def, params(true), &inputs(&[2, 3, 7], &[5, 7], &[6, 7]), float, &[2, 3, 11]);
    }
}
