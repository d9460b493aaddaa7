//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM with constant weights. The contribution of the
//! input to all gates is one product for all steps; the steps then run in one dispatch. This file has float cells,
//! whose states are quantized in every step if the weights are integers; `lstm_quantized.rs` has integer cells.

use std::borrow::Cow;

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8, UInt8};
use delegraph_core::ops::lstm::inputs::{self, AUXILIARY, BACKWARD, CELL, FORWARD, INPUT};
use delegraph_core::ops::lstm::{
    BidirectionalSequenceLstmParams, LstmParams, UnidirectionalSequenceLstmParams, basic_inputs,
};
use delegraph_core::ops::{LstmKernelType, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::lstm::{Hybrid, Layout, Spec, Weights};
use delegraph_shaders::unary::Unary;
use delegraph_shaders::{Activation, Epilogue, RealChannel, binary, concatenation, fully_connected, gather};

use super::integers::{SignedWeights, push_rows, signed_weights};
use super::recurrent::{Settings, alignment, beside, both, invalid, joined_inputs, order};
use super::{GpuOp, cell_activation, count_of, lstm_quantized, product_of};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, Join, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::LSTM, 4, &[Float32, UInt8, Int8], step),
    GpuOp::new(BuiltinOp::UNIDIRECTIONAL_SEQUENCE_LSTM, 4, &[Float32, Int8], sequence),
    GpuOp::new(BuiltinOp::BIDIRECTIONAL_SEQUENCE_LSTM, 3, &[Float32], bidirectional),
];

fn step(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &LstmParams = cx.params()?;
    if p.kernel_type == LstmKernelType::Basic {
        return basic(cx);
    }
    let sequences = cx.input_shape(INPUT)?.first().copied().unwrap_or(0);
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences,
        steps: 1,
        time_major: true,
    };
    one_direction(cx, &settings)
}

fn sequence(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &UnidirectionalSequenceLstmParams = cx.params()?;
    let ([sequences, steps], _) = order(cx, INPUT, p.time_major)?;
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences,
        steps,
        time_major: p.time_major,
    };
    one_direction(cx, &settings)
}

fn one_direction(cx: &mut Lowering<'_, '_, '_>, settings: &Settings) -> Result<(), Rejection> {
    if cx.ty(INPUT) == Some(TensorType::Int8) {
        return lstm_quantized::full(cx, settings);
    }
    let (whole, _) = cell(cx, &CELL, settings, INPUT, false)?;
    cx.alias(0, whole, 0)
}

fn bidirectional(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &BidirectionalSequenceLstmParams = cx.params()?;
    let ([sequences, steps], _) = order(cx, INPUT, p.time_major)?;
    let settings = Settings {
        activation: p.fused_activation_function,
        cell_clip: p.cell_clip,
        output_clip: p.proj_clip,
        asymmetric: p.asymmetric_quantize_inputs,
        sequences,
        steps,
        time_major: p.time_major,
    };
    let weighted = FORWARD.auxiliary[3].is_some_and(|i| cx.has_input(i));
    // An auxiliary input without weights is the backward cell's input.
    let second = if cx.has_input(AUXILIARY) && !weighted { AUXILIARY } else { INPUT };
    let forward = cell(cx, &FORWARD, &settings, INPUT, false)?;
    let backward = cell(cx, &BACKWARD, &settings, second, true)?;
    both(cx, p.merge_outputs, [forward, backward])
}

/// Constant floats, one list per gate; empty for inputs that the node omits. `vectors`: integers with a scale are
/// dequantized.
fn gates<'a, const N: usize>(
    cx: &Lowering<'a, '_, '_>,
    inputs: [Option<usize>; N],
    vectors: bool,
) -> Result<[Cow<'a, [f32]>; N], Rejection> {
    let mut all = [(); N].map(|()| Cow::Borrowed(&[][..]));
    for (values, i) in all.iter_mut().zip(inputs) {
        let Some(i) = i else { continue };
        *values = match cx.ty(i) {
            None => continue,
            Some(TensorType::Int8 | TensorType::UInt8) if vectors => {
                let SignedWeights { weights, scale } = signed_weights(cx, i)?;
                weights.iter().map(|&w| scale * f32::from(w)).collect()
            }
            Some(TensorType::Float32) => cx.optional_constant(i)?.unwrap_or_default(),
            Some(_) => return Err(cx.wrong_type(i)),
        };
    }
    Ok(all)
}

/// Constant integers with their scales, one list per gate.
fn integer_gates<const N: usize>(
    cx: &Lowering<'_, '_, '_>,
    inputs: [usize; N],
) -> Result<[SignedWeights; N], Rejection> {
    let mut all = [(); N].map(|()| SignedWeights::default());
    for (weights, i) in all.iter_mut().zip(inputs).filter(|(_, i)| cx.has_input(*i)) {
        *weights = signed_weights(cx, i)?;
    }
    Ok(all)
}

/// Returns whether the recurrent weights are vectors, one factor per cell.
fn is_diagonal(cx: &Lowering<'_, '_, '_>, at: &inputs::Cell) -> Result<bool, Rejection> {
    let given = at.recurrent.iter().filter(|&&i| cx.has_input(i));
    let ranks = given.map(|&i| cx.input_shape(i).map(|shape| shape.len()));
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    if ranks.iter().any(|rank| Some(rank) != ranks.first()) {
        return Err(unsupported(format!(
            "recurrent weights of ranks {ranks:?}; \
            only one rank for all is supported"
        )));
    }
    Ok(ranks.first() == Some(&1))
}

/// Adds the steps of one direction. Returns the value that begins with the outputs, and their width.
fn cell(
    cx: &mut Lowering<'_, '_, '_>,
    at: &inputs::Cell,
    settings: &Settings,
    input: usize,
    backward: bool,
) -> Result<(ValueId, u32), Rejection> {
    cx.expect(input, TensorType::Float32)?;
    let &Settings { sequences, steps, time_major, asymmetric, .. } = settings;
    let shape = cx.input_shape(at.weights[3])?;
    let &[cells, features] = shape.as_slice() else {
        return Err(unsupported(format!("weights of shape {shape:?}; only rank 2 is supported")));
    };
    let diagonal = is_diagonal(cx, at)?;
    let hybrid = cx.ty(at.weights[3]) != Some(TensorType::Float32);
    let norm = gates(cx, at.norm, false)?;
    // The bias of a cell without normalization may be computed.
    let computes_bias = norm[3].is_empty() && at.bias.iter().any(|&i| cx.has_input(i) && !cx.is_constant(i));
    let bias = match computes_bias {
        true => Default::default(),
        false => gates(cx, at.bias.map(Some), false)?,
    };
    let peephole = gates(cx, [at.peephole[0], at.peephole[1], at.peephole[3]], true)?;
    let [projection_bias] = gates(cx, [Some(at.projection_bias)], false)?;
    let outputs = match cx.has_input(at.projection) {
        true => cx.input_shape(at.projection)?.first().copied().unwrap_or(0),
        false => cells,
    };
    let recurrent = match hybrid && !diagonal {
        true => Default::default(),
        false => gates(cx, at.recurrent.map(Some), true)?,
    };
    let integers = match hybrid && !diagonal {
        true => integer_gates(cx, at.recurrent)?,
        false => Default::default(),
    };
    let ([projection], [projected]) = match hybrid {
        true => ([Cow::Borrowed(&[][..])], integer_gates(cx, [at.projection])?),
        false => (gates(cx, [Some(at.projection)], false)?, Default::default()),
    };
    let clip = |limit: f32| if limit > 0.0 { limit } else { f32::INFINITY };
    let spec = Spec {
        sequences,
        steps,
        time_major,
        backward,
        cells,
        outputs,
        coupled: !cx.has_input(at.weights[0]),
        diagonal,
        peephole: !peephole[2].is_empty(),
        norm: !norm[3].is_empty(),
        projection: cx.has_input(at.projection),
        cell_clip: clip(settings.cell_clip),
        output_clip: clip(settings.output_clip),
        activation: cell_activation(settings.activation)?,
        hybrid: hybrid.then_some(Hybrid {
            asymmetric,
            recurrent: integers.each_ref().map(|w| w.scale),
            projection: projected.scale,
        }),
        alignment: alignment(cx),
    };
    let own_bias = if spec.norm { bias.each_ref().map(|b| &**b) } else { [&[][..]; 4] };
    let constants = Weights {
        recurrent: recurrent.each_ref().map(|w| &**w),
        integers: integers.each_ref().map(|w| &*w.weights),
        peephole: peephole.each_ref().map(|w| &**w),
        norm: norm.each_ref().map(|w| &**w),
        bias: own_bias,
        projection: &projection,
        projected_integers: &projected.weights,
        projection_bias: &projection_bias,
    };
    let constants = spec.constants(&constants).map_err(invalid)?;
    let rows = product_of("sequences and steps", sequences, steps)?;
    let bias = (!spec.norm && !computes_bias).then(|| joined(&bias, cells as usize));
    let sizes = [rows, features, cells];
    let product = if hybrid {
        integers_from_input(cx, at, sizes, input, bias.as_deref(), asymmetric)?
    } else {
        floats_from_input(cx, at, sizes, input, bias)?
    };
    let product = if computes_bias { with_bias(cx, [rows, cells], product, at.bias)? } else { product };
    let states = [cx.state(at.output_state)?, cx.state(at.cell_state)?];
    let (whole, layout) = run(cx, spec, product, &constants, states)?;
    cx.set_state(at.output_state, whole, u64::from(layout.last) * 4)?;
    cx.set_state(at.cell_state, whole, u64::from(layout.state) * 4)?;
    Ok((whole, outputs))
}

/// The contribution of the input to all gates in all steps, for float weights.
fn floats_from_input(
    cx: &mut Lowering<'_, '_, '_>,
    at: &inputs::Cell,
    [rows, features, cells]: [u32; 3],
    input: usize,
    bias: Option<Vec<f32>>,
) -> Result<ValueId, Rejection> {
    let filter = joined(&gates(cx, at.weights.map(Some), false)?, cells as usize * features as usize);
    if !has_auxiliary(cx, at) {
        let from = cx.input(input)?;
        return from_input(cx, [rows, features, cells], from, filter, bias);
    }
    cx.expect(AUXILIARY, TensorType::Float32)?;
    let other = cx.input_shape(AUXILIARY)?.last().copied().unwrap_or(0);
    let weights = joined(&gates(cx, at.auxiliary, false)?, cells as usize * other as usize);
    let filter = beside([&filter, &weights], [features, other]);
    let from = joined_inputs(cx, rows, [(input, features), (AUXILIARY, other)])?;
    let width = features.checked_add(other).ok_or_else(|| {
        unsupported(format!("{features} and {other} features; at most {} are supported", u32::MAX))
    })?;
    from_input(cx, [rows, width, cells], from, filter, bias)
}

fn has_auxiliary(cx: &Lowering<'_, '_, '_>, at: &inputs::Cell) -> bool {
    at.auxiliary[3].is_some_and(|i| cx.has_input(i))
}

/// The contribution of the input to all gates in all steps, for integer weights.
fn integers_from_input(
    cx: &mut Lowering<'_, '_, '_>,
    at: &inputs::Cell,
    [rows, features, cells]: [u32; 3],
    input: usize,
    bias: Option<&[f32]>,
    asymmetric: bool,
) -> Result<ValueId, Rejection> {
    if has_auxiliary(cx, at) {
        return Err(unsupported(
            "integer weights of an auxiliary input; \
            only float weights are supported",
        ));
    }
    let weights = integer_gates(cx, at.weights)?;
    let outputs = product_of("gates of cells", cells, 4)?;
    let (height, each) = (cells as usize, cells as usize * features as usize);
    let (mut filter, mut channels) = (Vec::with_capacity(each.saturating_mul(4)), Vec::new());
    for (i, gate) in weights.iter().enumerate() {
        filter.extend_from_slice(&gate.weights);
        filter.resize(each.saturating_mul(i + 1), 0);
        let bias = |c: usize| bias.and_then(|bias| bias.get(i * height + c)).copied().unwrap_or(0.0);
        channels.extend((0..height).map(|c| RealChannel { scale: gate.scale, bias: bias(c) }));
    }
    let (input, product) = (cx.input(input)?, cx.checked_temporary(&[rows, outputs])?);
    push_rows(cx, [rows, features, outputs], input, filter, &channels, asymmetric, product)?;
    Ok(product)
}

/// The basic cell: one matrix with the gates input, cell, forget and output below each other, and four outputs.
fn basic(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use basic_inputs::{BIAS, CELL_STATE, INPUT, OUTPUT_STATE, WEIGHTS};
    if cx.ty(INPUT) == Some(TensorType::UInt8) {
        return lstm_quantized::basic(cx);
    }
    [INPUT, OUTPUT_STATE, WEIGHTS, BIAS, CELL_STATE]
        .into_iter()
        .try_for_each(|i| cx.expect(i, TensorType::Float32))?;
    let (input, state) = (cx.input_shape(INPUT)?, cx.input_shape(OUTPUT_STATE)?);
    let (&[sequences, features], &[_, cells]) = (input.as_slice(), state.as_slice()) else {
        return Err(unsupported(format!(
            "an input of shape {input:?} and a state of shape {state:?}; only rank 2 is supported"
        )));
    };
    let (matrix, bias) = (cx.constant(WEIGHTS)?, cx.constant(BIAS)?);
    let (width, height) = (features as usize + cells as usize, cells as usize);
    // The order of this crate's gates within the matrix.
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
        backward: false,
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
        hybrid: None,
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
    // The left operand of the product: input and last output side by side.
    let sides =
        concatenation::Spec { inputs: vec![vec![sequences, features], vec![sequences, cells]], axis: 1 };
    let beside = cx.output(2)?;
    cx.push(Join { spec: sides.clone(), part: 0 }, &[input], beside)?;
    cx.push(Join { spec: sides, part: 1 }, &[states[0]], beside)?;
    // The gates before their activations, in the matrix's order.
    let gates = cx.view(whole, &[sequences, 4, cells], u64::from(layout.gates) * 4);
    let order = cx.new_constant(&[4], Element::I32, &ORDER.map(|g| g as i32));
    let ordered = gather::Spec { input: vec![sequences, 4, cells], indices: vec![4], axis: 1, batch_dims: 0 };
    let output = cx.output(3)?;
    cx.push(ordered, &[gates, order], output)?;
    cx.set_state(OUTPUT_STATE, whole, u64::from(layout.last) * 4)?;
    cx.set_state(CELL_STATE, whole, u64::from(layout.state) * 4)
}

/// Lists of `each` values one after the other; omitted lists are zeros.
fn joined(lists: &[Cow<'_, [f32]>; 4], each: usize) -> Vec<f32> {
    let mut all = Vec::with_capacity(each.saturating_mul(4));
    for (i, list) in (1..).zip(lists) {
        all.extend_from_slice(list);
        all.resize(each.saturating_mul(i), 0.0);
    }
    all
}

/// The contribution of the input to all gates in all steps.
fn from_input(
    cx: &mut Lowering<'_, '_, '_>,
    [rows, inputs, cells]: [u32; 3],
    input: ValueId,
    filter: Vec<f32>,
    bias: Option<Vec<f32>>,
) -> Result<ValueId, Rejection> {
    let outputs = product_of("gates of cells", cells, 4)?;
    let product = cx.checked_temporary(&[rows, outputs])?;
    let spec = fully_connected::Spec { rows, inputs, outputs, epilogue: Epilogue::default() };
    cx.push_weighted(spec, input, filter.into(), bias.map(Cow::Owned), product)?;
    Ok(product)
}

/// Adds these inputs, one per gate, to each row.
fn with_bias(
    cx: &mut Lowering<'_, '_, '_>,
    [rows, cells]: [u32; 2],
    product: ValueId,
    bias: [usize; 4],
) -> Result<ValueId, Rejection> {
    let all = cx.checked_temporary(&[4, cells])?;
    let spec = concatenation::Spec { inputs: vec![vec![1, cells]; 4], axis: 0 };
    for (part, i) in bias.into_iter().enumerate() {
        let gate = match cx.has_input(i) {
            true => {
                cx.expect(i, TensorType::Float32)?;
                cx.input(i)?
            }
            false => cx.new_constant(&[cells], Element::F32, &vec![0.0_f32; cells as usize]),
        };
        cx.push(Join { spec: spec.clone(), part }, &[gate], all)?;
    }
    let shape = vec![rows, cells.saturating_mul(4)];
    let sum = cx.checked_temporary(&shape)?;
    let add = binary::Spec {
        op: binary::Binary::Add,
        element: Element::F32,
        a: shape.clone(),
        b: shape[1..].to_vec(),
        output: shape,
        activation: Activation::None,
    };
    cx.push(add, &[product, all], sum)?;
    Ok(sum)
}

/// Adds the dispatch of all steps. Returns the value with its results and their layout.
fn run(
    cx: &mut Lowering<'_, '_, '_>,
    spec: Spec,
    product: ValueId,
    constants: &[u32],
    [last, state]: [ValueId; 2],
) -> Result<(ValueId, Layout), Rejection> {
    let layout = spec.layout().map_err(invalid)?;
    let count = count_of("weights", constants.len())?;
    // Packed integers must not be stored as 16-bit floats.
    let element = if spec.hybrid.is_some() { Element::U32 } else { Element::F32 };
    let constants = cx.new_constant(&[count], element, constants);
    let whole = cx.checked_temporary(&[layout.elements])?;
    cx.push(spec, &[product, constants, last, state], whole)?;
    Ok((whole, layout))
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
        let params = LstmParams::default()
            .fused_activation_function(delegraph_core::ops::Activation::Tanh)
            .cell_clip(0.0)
            .proj_clip(0.0)
            .kernel_type(LstmKernelType::Basic)
            .asymmetric_quantize_inputs(false);
        let inputs = [input, last, weights, bias, state].map(Some);
        let expected = [
            T::new(&[1, 1], &[output]),
            T::new(&[1, 1], &[next]),
            T::new(&[1, 2], &[2.0_f32, 3.0]),
            T::new(&[1, 4], &gates),
        ];
        check(BuiltinOp::LSTM, 2, Params::Lstm(params), &inputs, &expected);
    }
}
