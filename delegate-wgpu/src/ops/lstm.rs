//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, in floats with constant weights: what the gates get from the input is one
//! product for all steps; the steps then run in one dispatch.

use std::borrow::Cow;

use delegraph_core::BuiltinOp;
use delegraph_core::ops::lstm::inputs::{CELL, INPUT};
use delegraph_core::ops::lstm::{LSTMParams, UnidirectionalSequenceLSTMParams, basic_inputs};
use delegraph_core::ops::{Activation as Fused, LstmKernelType, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::lstm::{Layout, Spec, Weights};
use delegraph_shaders::unary::Unary;
use delegraph_shaders::{Activation, Epilogue, ShaderError, concatenation, fully_connected, gather};

use super::{GpuOp, activation};
use crate::graph::{Element, Join, ValueId};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::LSTM, max_version: 4, lower: step },
    GpuOp { op: BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, max_version: 4, lower: sequence },
];

fn step(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &LSTMParams = cx.params()?;
    if p.kernel_type == LstmKernelType::Basic {
        return basic(cx);
    }
    let sequences = cx.input_shape(INPUT)?.first().copied().unwrap_or(0);
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        sequences,
        steps: 1,
        time_major: true,
    };
    full(cx, settings)
}

fn sequence(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &UnidirectionalSequenceLSTMParams = cx.params()?;
    let shape = cx.input_shape(INPUT)?;
    let &[first, second, _] = shape.as_slice() else {
        return Err(unsupported(format!("an input of shape {shape:?}")));
    };
    let (sequences, steps) = if p.time_major { (second, first) } else { (first, second) };
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        sequences,
        steps,
        time_major: p.time_major,
    };
    full(cx, settings)
}

struct Settings {
    activation: Fused,
    cell_clip: f32,
    output_clip: f32,
    sequences: u32,
    steps: u32,
    time_major: bool,
}

/// Constant floats, one list per gate; empty where the node does not have them.
fn gates<'a, const N: usize>(
    cx: &Lowering<'a, '_, '_>,
    inputs: [Option<usize>; N],
) -> Result<[Cow<'a, [f32]>; N], Rejection> {
    let mut all = [(); N].map(|()| Cow::Borrowed(&[][..]));
    for (values, i) in all.iter_mut().zip(inputs) {
        let Some(i) = i else { continue };
        if cx.ty(i).is_some_and(|ty| ty != TensorType::Float32) {
            // Which quantize each step's vectors while running.
            return Err(cx.wrong_type(i));
        }
        *values = cx.optional_constant(i)?.unwrap_or_default();
    }
    Ok(all)
}

fn full(cx: &mut Lowering<'_, '_, '_>, settings: Settings) -> Result<(), Rejection> {
    cx.expect(INPUT, TensorType::Float32)?;
    let weights = gates(cx, CELL.weights.map(Some))?;
    let recurrent = gates(cx, CELL.recurrent.map(Some))?;
    let bias = gates(cx, CELL.bias.map(Some))?;
    let norm = gates(cx, CELL.norm)?;
    let peephole = gates(cx, [CELL.peephole[0], CELL.peephole[1], CELL.peephole[3]])?;
    let [projection, projection_bias] = gates(cx, [Some(CELL.projection), Some(CELL.projection_bias)])?;
    let Settings { sequences, steps, time_major, .. } = settings;
    let &[cells, features] = cx.input_shape(CELL.weights[3])?.as_slice() else {
        return Err(unsupported("weights that are no matrix"));
    };
    let outputs = cx.output_shape(0)?.last().copied().unwrap_or(0);
    let diagonals = (0..4).filter(|&g| cx.has_input(CELL.recurrent[g]));
    let ranks = diagonals.map(|g| cx.input_shape(CELL.recurrent[g]).map(|shape| shape.len()));
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    if ranks.iter().any(|rank| Some(rank) != ranks.first()) {
        return Err(unsupported("recurrent weights of which some are diagonals"));
    }
    let clip = |limit: f32| if limit > 0.0 { limit } else { f32::INFINITY };
    let spec = Spec {
        sequences,
        steps,
        time_major,
        cells,
        outputs,
        coupled: weights[0].is_empty(),
        diagonal: ranks.first() == Some(&1),
        peephole: !peephole[2].is_empty(),
        norm: !norm[3].is_empty(),
        projection: !projection.is_empty(),
        cell_clip: clip(settings.cell_clip),
        output_clip: clip(settings.output_clip),
        activation: activation(settings.activation)?,
        alignment: alignment(cx),
    };
    let own_bias = if spec.norm { bias.each_ref().map(|b| &**b) } else { [&[][..]; 4] };
    let constants = Weights {
        recurrent: recurrent.each_ref().map(|w| &**w),
        peephole: peephole.each_ref().map(|w| &**w),
        norm: norm.each_ref().map(|w| &**w),
        bias: own_bias,
        projection: &projection,
        projection_bias: &projection_bias,
    };
    let constants = spec.constants(&constants).map_err(invalid)?;
    let rows = sequences.checked_mul(steps).ok_or_else(|| unsupported("that many steps"))?;
    let filter = joined(&weights, cells as usize * features as usize);
    let bias = (!spec.norm).then(|| joined(&bias, cells as usize));
    let input = cx.input(INPUT)?;
    let product = from_input(cx, [rows, features, cells], input, filter, bias)?;
    let states = [cx.state(CELL.output_state)?, cx.state(CELL.cell_state)?];
    let (whole, layout) = run(cx, spec, product, &constants, states)?;
    cx.alias(0, whole, 0)?;
    cx.set_state(CELL.output_state, whole, u64::from(layout.last) * 4)?;
    cx.set_state(CELL.cell_state, whole, u64::from(layout.state) * 4)
}

/// The old cell: one matrix, the gates input, cell, forget and output below each other, and four outputs.
fn basic(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use basic_inputs::{BIAS, CELL_STATE, INPUT, OUTPUT_STATE, WEIGHTS};
    [INPUT, OUTPUT_STATE, WEIGHTS, BIAS, CELL_STATE]
        .into_iter()
        .try_for_each(|i| cx.expect(i, TensorType::Float32))?;
    let (&[sequences, features], &[_, cells]) =
        (cx.input_shape(INPUT)?.as_slice(), cx.input_shape(OUTPUT_STATE)?.as_slice())
    else {
        return Err(unsupported("an input or a state that is no matrix"));
    };
    let (matrix, bias) = (cx.constant(WEIGHTS)?, cx.constant(BIAS)?);
    let (width, height) = (features as usize + cells as usize, cells as usize);
    // Where our gates are among those of the matrix.
    const ORDER: [usize; 4] = [0, 2, 1, 3];
    let gate = |place: usize| matrix.chunks_exact(width).skip(place * height).take(height);
    let filter = ORDER.iter().flat_map(|&g| gate(g).flat_map(|row| &row[..features as usize])).copied();
    let filter: Vec<f32> = filter.collect();
    let recurrent =
        ORDER.map(|g| -> Vec<f32> { gate(g).flat_map(|row| &row[features as usize..]).copied().collect() });
    let bias = ORDER.iter().flat_map(|&g| bias.iter().skip(g * height).take(height)).copied().collect();
    let spec = Spec {
        sequences,
        steps: 1,
        time_major: true,
        cells,
        outputs: cells,
        coupled: false,
        diagonal: false,
        peephole: false,
        norm: false,
        projection: false,
        cell_clip: f32::INFINITY,
        output_clip: f32::INFINITY,
        activation: Activation::Unary(Unary::Tanh),
        alignment: alignment(cx),
    };
    let weights = Weights { recurrent: recurrent.each_ref().map(|w| &**w), ..Weights::default() };
    let constants = spec.constants(&weights).map_err(invalid)?;
    let input = cx.input(INPUT)?;
    let product = from_input(cx, [sequences, features, cells], input, filter, Some(bias))?;
    let states = [cx.state(OUTPUT_STATE)?, cx.state(CELL_STATE)?];
    let (whole, layout) = run(cx, spec, product, &constants, states)?;
    cx.alias(0, whole, 0)?;
    cx.alias(1, whole, u64::from(layout.state) * 4)?;
    // What goes into the product, side by side.
    let sides =
        concatenation::Spec { inputs: vec![vec![sequences, features], vec![sequences, cells]], axis: 1 };
    let beside = cx.output(2)?;
    cx.push(Join { spec: sides.clone(), part: 0 }, &[input], beside)?;
    cx.push(Join { spec: sides, part: 1 }, &[states[0]], beside)?;
    // The gates before their functions, in the matrix's order.
    let gates = cx.view(whole, &[sequences, 4, cells], u64::from(layout.gates) * 4);
    let order = cx.new_constant(&[4], Element::I32, &ORDER.map(|g| g as i32));
    let ordered = gather::Spec { input: vec![sequences, 4, cells], indices: vec![4], axis: 1, batch_dims: 0 };
    let output = cx.output(3)?;
    cx.push(ordered, &[gates, order], output)?;
    cx.set_state(OUTPUT_STATE, whole, u64::from(layout.last) * 4)?;
    cx.set_state(CELL_STATE, whole, u64::from(layout.state) * 4)
}

/// Lists of `each` values one after the other; what is left out is zero.
fn joined(lists: &[Cow<'_, [f32]>; 4], each: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity(each.saturating_mul(4));
    for (i, list) in (1..).zip(lists) {
        all.extend_from_slice(list);
        all.resize(each.saturating_mul(i), 0.0);
    }
    all
}

/// What all gates get from the input, in all steps.
fn from_input(
    cx: &mut Lowering<'_, '_, '_>,
    [rows, inputs, cells]: [u32; 3],
    input: ValueId,
    filter: Vec<f32>,
    bias: Option<Vec<f32>>,
) -> Result<ValueId, Rejection> {
    let outputs = cells.checked_mul(4).ok_or_else(|| unsupported(format!("{cells} cells")))?;
    let product = cx.checked_temporary(&[rows, outputs])?;
    let spec = fully_connected::Spec { rows, inputs, outputs, epilogue: Epilogue::default() };
    cx.push_weighted(spec, input, filter.into(), bias.map(Cow::Owned), product)?;
    Ok(product)
}

/// All steps, and where their results lie.
fn run(
    cx: &mut Lowering<'_, '_, '_>,
    spec: Spec,
    product: ValueId,
    constants: &[f32],
    [last, state]: [ValueId; 2],
) -> Result<(ValueId, Layout), Rejection> {
    let layout = spec.layout().map_err(invalid)?;
    let count = u32::try_from(constants.len()).map_err(|_| unsupported("that many weights"))?;
    let constants = cx.new_constant(&[count], Element::F32, constants);
    let whole = cx.checked_temporary(&[layout.elements])?;
    cx.push(spec, &[product, constants, last, state], whole)?;
    Ok((whole, layout))
}

/// In elements.
fn alignment(cx: &Lowering<'_, '_, '_>) -> u32 {
    u32::try_from(cx.view_alignment() / 4).unwrap_or(1).max(1)
}

fn invalid(error: ShaderError) -> Rejection {
    unsupported(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    fn sigmoid(x: f32) -> f32 {
        1.0 / (1.0 + (-x).exp())
    }

    #[test]
    fn the_basic_cell_gives_its_gates_in_the_order_of_the_matrix() {
        let (input, last, state) =
            (T::new(&[1, 1], &[2.0_f32]), T::new(&[1, 1], &[3.0_f32]), T::new(&[1, 1], &[0.5_f32]));
        let weights = T::new(&[4, 2], &[0.1_f32, 0.2, 0.3, 0.1, -0.1, 0.0, 0.0, 0.5]).constant();
        let bias = T::new(&[4], &[0.0_f32, 0.1, 0.2, -1.0]).constant();
        let gates = [0.8_f32, 1.0, 0.0, 0.5];
        let next = sigmoid(gates[2]) * 0.5 + sigmoid(gates[0]) * gates[1].tanh();
        let output = sigmoid(gates[3]) * next.tanh();
        let params = LSTMParams {
            fused_activation_function: Fused::Tanh,
            cell_clip: 0.0,
            proj_clip: 0.0,
            kernel_type: LstmKernelType::Basic,
            asymmetric_quantize_inputs: false,
        };
        let inputs = [input, last, weights, bias, state].map(Some);
        let expected = [
            T::new(&[1, 1], &[output]),
            T::new(&[1, 1], &[next]),
            T::new(&[1, 2], &[2.0_f32, 3.0]),
            T::new(&[1, 4], &gates),
        ];
        check(BuiltinOp::LSTM, 2, Params::LSTM(params), &inputs, &expected);
    }
}
