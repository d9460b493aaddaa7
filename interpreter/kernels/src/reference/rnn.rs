//! RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN with float states and float or quantized weights.

use delegraph_core::kernel::{InvokeContext, PrepareContext};
use delegraph_core::ops::rnn::inputs::{self, AUXILIARY, BACKWARD, FORWARD, INPUT};
use delegraph_core::ops::rnn::{BidirectionalSequenceRnnParams, RnnParams, SequenceRnnParams};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use super::lstm::multiply_add;
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::recurrent::{Order, Vector, Weights};
use crate::common::weights::{check_bias_type, float_activation};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::RNN, prepared(step), 1..=3)
        .add_builtin(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN, prepared(sequence), 1..=3)
        .add_builtin(BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN, prepared(bidirectional), 1..=3);
}

fn step(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<RnnParams>()?;
    let batch = cx.input(INPUT)?.shape().first().copied().unwrap_or(0);
    let order = Order { batch, steps: 1, time_major: true };
    one_direction(cx, order, p.fused_activation_function, p.asymmetric_quantize_inputs)
}

fn sequence(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<SequenceRnnParams>()?;
    let order = Order::new(cx.input(INPUT)?.shape(), p.time_major);
    one_direction(cx, order, p.fused_activation_function, p.asymmetric_quantize_inputs)
}

fn one_direction(
    cx: &mut PrepareContext<'_>,
    order: Order,
    activation: Activation,
    asymmetric: bool,
) -> Result<Invoke> {
    let cell = Cell::new(cx, FORWARD, activation, asymmetric)?;
    let bytes = cx.temporary_of::<i8>(cell.scratch())?;
    Ok(Box::new(move |cx| {
        let (output, bytes) = (cx.output::<f32>(0)?, cx.temporary::<i8>(bytes)?);
        cell.run(cx, &Run { order, times: 1, input: INPUT, backward: false, offset: 0 }, output, bytes)
    }))
}

fn bidirectional(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<BidirectionalSequenceRnnParams>()?;
    let order = Order::new(cx.input(INPUT)?.shape(), p.time_major);
    let (merged, activation) = (p.merge_outputs, p.fused_activation_function);
    let forward = Cell::new(cx, FORWARD, activation, p.asymmetric_quantize_inputs)?;
    let backward = Cell::new(cx, BACKWARD, activation, p.asymmetric_quantize_inputs)?;
    let bytes = cx.temporary_of::<i8>(forward.scratch().max(backward.scratch()))?;
    // An auxiliary input without weights is the backward cell's input; TFLite ignores it if the batch is the outermost
    // dimension.
    let instead =
        order.time_major && forward.of_auxiliary.is_none() && cx.optional_input(AUXILIARY).is_some();
    // With integer weights and time as the outermost dimension, TFLite repeats the whole sequence once per step; each
    // repetition begins with the final states of the previous one.
    let hybrid = cx.input(FORWARD.weights)?.ty() != TensorType::Float32;
    let times = if hybrid && order.time_major { order.steps } else { 1 };
    let first = Run { order, times, input: INPUT, backward: false, offset: 0 };
    let second = Run {
        order,
        times,
        input: if instead { AUXILIARY } else { INPUT },
        backward: true,
        offset: if merged { forward.units } else { 0 },
    };
    Ok(Box::new(move |cx| {
        let (output, bytes) = (cx.output::<f32>(0)?, cx.temporary::<i8>(bytes)?);
        forward.run(cx, &first, output, bytes)?;
        let output = if merged { output } else { cx.output::<f32>(1)? };
        backward.run(cx, &second, output, bytes)
    }))
}

/// The order in which a cell visits the steps, and its part of the output.
struct Run {
    order: Order,
    /// Number of passes over all steps.
    times: usize,
    input: usize,
    backward: bool,
    /// Offset of the cell's outputs within a step of the output tensor.
    offset: usize,
}

/// The cell of one direction.
struct Cell {
    at: inputs::Cell,
    activation: fn(f32) -> f32,
    asymmetric: bool,
    features: usize,
    /// Width of the auxiliary input; 0 if the cell has no weights for it.
    auxiliary: usize,
    units: usize,
    weights: Option<Weights>,
    of_auxiliary: Option<Weights>,
    recurrent: Option<Weights>,
}

impl Cell {
    fn new(
        cx: &PrepareContext<'_>,
        at: inputs::Cell,
        activation: Activation,
        asymmetric: bool,
    ) -> Result<Self> {
        let input = cx.input(INPUT)?;
        if input.ty() != TensorType::Float32 {
            return Err(unsupported_type("input", input));
        }
        check_bias_type::<f32>(cx, at.bias)?;
        check_bias_type::<f32>(cx, at.state)?;
        let width = |i: usize| cx.optional_input(i).and_then(|t| t.shape().last().copied()).unwrap_or(0);
        Ok(Cell {
            at,
            activation: float_activation(activation),
            asymmetric,
            features: width(INPUT),
            auxiliary: width(at.auxiliary),
            units: width(at.bias),
            weights: Weights::new(cx, at.weights, false)?,
            of_auxiliary: Weights::new(cx, at.auxiliary, false)?,
            recurrent: Weights::new(cx, at.recurrent, false)?,
        })
    }

    /// Bytes of the temporary for one step.
    fn scratch(&self) -> usize {
        self.features.saturating_add(self.auxiliary).saturating_add(self.units)
    }

    /// Runs all steps of all sequences.
    fn run(&self, cx: &mut InvokeContext<'_>, run: &Run, output: &mut [f32], bytes: &mut [i8]) -> Result<()> {
        let &Cell { features, auxiliary: width, units, asymmetric, .. } = self;
        let weights = [&self.weights, &self.of_auxiliary, &self.recurrent];
        let [weights, of_auxiliary, recurrent] = weights.map(|w| w.as_ref().map(|w| w.get(cx)).transpose());
        let (weights, of_auxiliary, recurrent) = (weights?, of_auxiliary?, recurrent?);
        let (input, bias) = (cx.input::<f32>(run.input)?, cx.input::<f32>(self.at.bias)?);
        let auxiliary = if width > 0 { cx.input::<f32>(AUXILIARY)? } else { &[] };
        let state = cx.variable::<f32>(self.at.state)?;
        let (for_input, rest) = bytes.split_at_mut(features);
        let (for_auxiliary, rest) = rest.split_at_mut(width);
        let for_state = &mut rest[..units];
        let stride = output.len().checked_div(run.order.batch * run.order.steps).unwrap_or(0);
        let mut pace = Pace::new(cx);
        for batch in 0..run.order.batch {
            let state = &mut state[batch * units..][..units];
            for step in (0..run.times).flat_map(|_| run.order.walk(run.backward)) {
                cx.check_interrupted()?;
                let at = run.order.at(batch, step);
                let output = &mut output[at * stride + run.offset..][..units];
                output.copy_from_slice(bias);
                let vectors = [
                    (&weights, Vector::new(&input[at * features..][..features], for_input, asymmetric)),
                    (
                        &of_auxiliary,
                        Vector::new(&auxiliary[at * width..][..width], for_auxiliary, asymmetric),
                    ),
                    (&recurrent, Vector::new(state, for_state, asymmetric)),
                ];
                for (matrix, vector) in &vectors {
                    if let Some(matrix) = matrix {
                        multiply_add(matrix, vector, vector.scale(), output, &mut pace)?;
                    }
                }
                for o in output.iter_mut() {
                    pace.spend(16)?;
                    *o = (self.activation)(*o);
                }
                state.copy_from_slice(output);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn cell(weight: impl Fn(f32) -> T) -> Vec<Option<T>> {
        let bias = T::new(&[1], &[0.5f32]);
        let state = T::new(&[1, 1], &[0f32]).variable();
        vec![Some(weight(1.0)), Some(weight(0.5)), Some(bias), Some(state)]
    }

    fn float(w: f32) -> T {
        T::new(&[1, 1], &[w])
    }

    fn integer(w: f32) -> T {
        T::new(&[1, 1], &[(w * 100.0) as i8]).quantized(0.01, 0)
    }

    #[test]
    fn units_see_their_last_output() {
        let op = BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN;
        let params =
            || Params::from(SequenceRnnParams::default().fused_activation_function(Activation::Relu));
        let input = || Some(T::new(&[1, 3, 1], &[1f32, 2.0, -9.0]));
        // 1 + 0.5, then 2 + 0.5 + 1.5 / 2, then below 0.
        let output = || T::new(&[1, 3, 1], &[1.5f32, 3.25, 0.0]);
        check(op, 1, params(), &[vec![input()], cell(float)].concat(), &[output()]);
        check(op, 2, params(), &[vec![input()], cell(integer)].concat(), &[output()]);
        let double = |_: f32| T::new(&[1, 1], &[1f64]);
        let text = error(op, 1, params(), &[vec![input()], cell(double)].concat(), &[output()]);
        assert!(text.contains("weights \"t1\" of type FLOAT64"), "{text}");
        let first = T::new(&[1, 1], &[1.5f32]);
        let input = Some(T::new(&[1, 1], &[1f32]));
        check(BuiltinOp::RNN, 1, RnnParams::default().into(), &[vec![input], cell(float)].concat(), &[first]);
    }

    #[test]
    fn two_directions() {
        let params = |merge_outputs| {
            Params::from(BidirectionalSequenceRnnParams::default().merge_outputs(merge_outputs))
        };
        let input = Some(T::new(&[1, 2, 1], &[1f32, 2.0]));
        let inputs = [vec![input], cell(float), cell(float), vec![None; 3]].concat();
        let op = BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN;
        let (forward, backward) = ([1.5f32, 3.25], [2.75f32, 2.5]);
        let apart = [T::new(&[1, 2, 1], &forward), T::new(&[1, 2, 1], &backward)];
        check(op, 1, params(false), &inputs, &apart);
        let merged = T::new(&[1, 2, 2], &[forward[0], backward[0], forward[1], backward[1]]);
        check(op, 1, params(true), &inputs, &[merged]);
    }
}
