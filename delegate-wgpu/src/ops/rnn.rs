//! RNN, UNIDIRECTIONAL_SEQUENCE_RNN, BIDIRECTIONAL_SEQUENCE_RNN in floats, with constant weights that are floats or
//! integers. The contribution of the input to the units is one product for all steps; the steps then run in one
//! dispatch.

use std::borrow::Cow;

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::Float32;
use delegraph_core::ops::rnn::inputs::{self, AUXILIARY, BACKWARD, FORWARD, INPUT};
use delegraph_core::ops::rnn::{BidirectionalSequenceRnnParams, RnnParams, SequenceRnnParams};
use delegraph_core::ops::{Activation as Fused, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::rnn::{Hybrid, Spec, Weights};
use delegraph_shaders::{Epilogue, RealChannel, fully_connected};

use super::integers::{push_rows, signed_weights};
use super::recurrent::{alignment, beside, both, invalid, joined_inputs, order};
use super::{GpuOp, cell_activation, count_of, product_of};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::RNN, 3, &[Float32], step),
    GpuOp::new(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN, 3, &[Float32], sequence),
    GpuOp::new(BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN, 3, &[Float32], bidirectional),
];

struct Settings {
    activation: Fused,
    asymmetric: bool,
    sequences: u32,
    steps: u32,
    time_major: bool,
}

fn step(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &RnnParams = cx.params()?;
    let settings = Settings {
        activation: p.fused_activation_function,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences: cx.input_shape(INPUT)?.first().copied().unwrap_or(0),
        steps: 1,
        time_major: true,
    };
    let (whole, _) = cell(cx, FORWARD, &settings, INPUT, false)?;
    cx.alias(0, whole, 0)
}

fn sequence(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &SequenceRnnParams = cx.params()?;
    let ([sequences, steps], _) = order(cx, INPUT, p.time_major)?;
    let settings = Settings {
        activation: p.fused_activation_function,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences,
        steps,
        time_major: p.time_major,
    };
    let (whole, _) = cell(cx, FORWARD, &settings, INPUT, false)?;
    cx.alias(0, whole, 0)
}

fn bidirectional(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &BidirectionalSequenceRnnParams = cx.params()?;
    let ([sequences, steps], _) = order(cx, INPUT, p.time_major)?;
    let settings = Settings {
        activation: p.fused_activation_function,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences,
        steps,
        time_major: p.time_major,
    };
    if cx.ty(FORWARD.weights) != Some(TensorType::Float32) && p.time_major && steps > 1 {
        return Err(unsupported(
            "integer weights with time first in two directions; \
            only the batch first is supported",
        ));
    }
    let weighted = cx.has_input(FORWARD.auxiliary);
    // An auxiliary input without weights is the backward cell's input. With the batch first, LiteRT's kernels ignore
    // it.
    let instead = p.time_major && !weighted && cx.has_input(AUXILIARY);
    let forward = cell(cx, FORWARD, &settings, INPUT, false)?;
    let backward = cell(cx, BACKWARD, &settings, if instead { AUXILIARY } else { INPUT }, true)?;
    both(cx, p.merge_outputs, [forward, backward])
}

/// Adds the steps of one direction. Returns the value that begins with the outputs, and their width.
fn cell(
    cx: &mut Lowering<'_, '_, '_>,
    at: inputs::Cell,
    settings: &Settings,
    input: usize,
    backward: bool,
) -> Result<(ValueId, u32), Rejection> {
    [input, at.bias, at.state].into_iter().try_for_each(|i| cx.expect(i, TensorType::Float32))?;
    let shape = cx.input_shape(at.weights)?;
    let &[units, features] = shape.as_slice() else {
        return Err(unsupported(format!("weights of shape {shape:?}; only rank 2 is supported")));
    };
    let &Settings { sequences, steps, time_major, asymmetric, .. } = settings;
    let rows = product_of("sequences and steps", sequences, steps)?;
    let hybrid = cx.ty(at.weights) != Some(TensorType::Float32);
    let bias = cx.constant(at.bias)?;
    let product = cx.checked_temporary(&[rows, units])?;
    let (recurrent, scale) = if hybrid {
        if cx.has_input(at.auxiliary) {
            return Err(unsupported(
                "integer weights of an auxiliary input; \
                only float weights are supported",
            ));
        }
        let (weights, recurrent) = (signed_weights(cx, at.weights)?, signed_weights(cx, at.recurrent)?);
        let channel = |&bias| RealChannel { scale: weights.scale, bias };
        let channels: Vec<_> = bias.iter().map(channel).collect();
        let from = cx.input(input)?;
        push_rows(cx, [rows, features, units], from, weights.weights, &channels, asymmetric, product)?;
        (Recurrent::Integers(recurrent.weights), Some(recurrent.scale))
    } else {
        [at.weights, at.recurrent, at.auxiliary]
            .into_iter()
            .try_for_each(|i| cx.expect(i, TensorType::Float32))?;
        let (mut filter, recurrent) = (cx.constant(at.weights)?, cx.constant(at.recurrent)?);
        let (mut from, mut inputs) = (cx.input(input)?, features);
        if cx.has_input(at.auxiliary) {
            cx.expect(AUXILIARY, TensorType::Float32)?;
            let other = cx.input_shape(AUXILIARY)?.last().copied().unwrap_or(0);
            filter = beside([&filter, &cx.constant(at.auxiliary)?], [features, other]).into();
            from = joined_inputs(cx, rows, [(input, features), (AUXILIARY, other)])?;
            inputs = features.checked_add(other).ok_or_else(|| {
                unsupported(format!("{features} and {other} features; at most {} are supported", u32::MAX))
            })?;
        }
        let spec = fully_connected::Spec { rows, inputs, outputs: units, epilogue: Epilogue::default() };
        cx.push_weighted(spec, from, filter, Some(bias), product)?;
        (Recurrent::Floats(recurrent), None)
    };
    let spec = Spec {
        sequences,
        steps,
        time_major,
        backward,
        units,
        activation: cell_activation(settings.activation)?,
        hybrid: scale.map(|scale| Hybrid { asymmetric, scale }),
        alignment: alignment(cx),
    };
    let constants = spec.constants(match &recurrent {
        Recurrent::Floats(weights) => Weights::Floats(weights),
        Recurrent::Integers(weights) => Weights::Integers(weights),
    });
    let count = count_of("weights", constants.len())?;
    // Packed integers must not be stored as 16-bit floats.
    let element = if scale.is_some() { Element::U32 } else { Element::F32 };
    let constants = cx.new_constant(&[count], element, &constants);
    let before = cx.state(at.state)?;
    let whole = cx.checked_temporary(&[spec.elements().map_err(invalid)?])?;
    cx.push(spec, &[product, constants, before], whole)?;
    cx.set_state(at.state, whole, u64::from(spec.state().map_err(invalid)?) * 4)?;
    Ok((whole, units))
}

enum Recurrent<'a> {
    Floats(Cow<'a, [f32]>),
    Integers(Vec<i8>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    fn cell(weight: impl Fn(f32) -> T) -> Vec<Option<T>> {
        let (bias, state) = (T::new(&[1], &[0.5_f32]).constant(), T::new(&[1, 1], &[0.0_f32]));
        vec![Some(weight(1.0).constant()), Some(weight(0.5).constant()), Some(bias), Some(state)]
    }

    fn float(w: f32) -> T {
        T::new(&[1, 1], &[w])
    }

    #[test]
    fn units_see_their_last_output() {
        let input = || vec![Some(T::new(&[1, 3, 1], &[1.0_f32, 2.0, -9.0]))];
        let integer = |w: f32| T::new(&[1, 1], &[(w * 100.0) as i8]).quantized(0.01, 0);
        // 1 + 0.5, then 2 + 0.5 + 1.5 / 2, then below 0.
        let expected = [T::new(&[1, 3, 1], &[1.5_f32, 3.25, 0.0])];
        for asymmetric_quantize_inputs in [false, true] {
            let params = || {
                Params::from(
                    SequenceRnnParams::default()
                        .fused_activation_function(Fused::Relu)
                        .asymmetric_quantize_inputs(asymmetric_quantize_inputs),
                )
            };
            let op = BuiltinOp::UNIDIRECTIONAL_SEQUENCE_RNN;
            check(op, 1, params(), &[input(), cell(float)].concat(), &expected);
            check(op, 3, params(), &[input(), cell(integer)].concat(), &expected);
        }
    }

    #[test]
    fn two_directions() {
        let params = |merge_outputs| {
            Params::from(BidirectionalSequenceRnnParams::default().merge_outputs(merge_outputs))
        };
        let input = Some(T::new(&[1, 2, 1], &[1.0_f32, 2.0]));
        let inputs = [vec![input], cell(float), cell(float), vec![None; 3]].concat();
        let op = BuiltinOp::BIDIRECTIONAL_SEQUENCE_RNN;
        let (forward, backward) = ([1.5_f32, 3.25], [2.75_f32, 2.5]);
        let apart = [T::new(&[1, 2, 1], &forward), T::new(&[1, 2, 1], &backward)];
        check(op, 1, params(false), &inputs, &apart);
        let merged = T::new(&[1, 2, 2], &[forward[0], backward[0], forward[1], backward[1]]);
        check(op, 1, params(true), &inputs, &[merged]);
    }
}
