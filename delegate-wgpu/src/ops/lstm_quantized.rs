//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM of integers with constant weights, in the arithmetic of the reference kernels.
//! The contribution of the input to the gates is one product for all steps.

use std::borrow::Cow;

use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::lstm::basic_inputs;
use delegraph_core::ops::lstm::inputs::{CELL, INPUT};
use delegraph_core::quantized::lstm::{
    Cell, Gate as Numbers, Settings as Given, logistic_of_float, norm_factor, norm_scales, tanh_of_float,
};
use delegraph_core::{Error, Quantization};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::lstm_quantized::{Gate, Spec, Weights};
use delegraph_shaders::{
    Activation, Epilogue, FixedChannel, IntegerResult, Integers, Scaling, concatenation, fully_connected,
    lstm_basic,
};

use super::integers::sums_of;
use super::quantize::factor;
use super::recurrent::{Settings, alignment, invalid};
use super::{count_of, invalid_scale, product_of};
use crate::graph::lowering::{Lowering, Product, unsupported};
use crate::graph::{Element, Join, ValueId, Weights as Filter};

/// Checks the types of all operands, and the ranks of the recurrent weights.
fn expect_operands(cx: &Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use TensorType::{Int8, Int16, Int32};
    let gates = CELL.weights.into_iter().chain(CELL.recurrent).chain([CELL.projection, CELL.output_state]);
    gates.chain([INPUT]).try_for_each(|i| cx.expect(i, Int8))?;
    let wide = CELL.peephole.into_iter().chain(CELL.norm).flatten();
    wide.chain([CELL.cell_state]).try_for_each(|i| cx.expect(i, Int16))?;
    CELL.bias.into_iter().chain([CELL.projection_bias]).try_for_each(|i| cx.expect(i, Int32))?;
    expect_output(cx, 0, Int8)?;
    for i in CELL.recurrent.into_iter().filter(|&i| cx.has_input(i)) {
        if cx.input_shape(i)?.len() != 2 {
            return Err(unsupported(format!(
                "recurrent weights of rank {}; only rank 2 is supported",
                cx.input_shape(i)?.len()
            )));
        }
    }
    Ok(())
}

pub(super) fn full(cx: &mut Lowering<'_, '_, '_>, settings: &Settings) -> Result<(), Rejection> {
    use TensorType::{Int8, Int16};
    expect_operands(cx)?;
    let shape = cx.input_shape(CELL.weights[3])?;
    let &[cells, features] = shape.as_slice() else {
        return Err(unsupported(format!("weights of shape {shape:?}; only rank 2 is supported")));
    };
    let &Settings { sequences, steps, time_major, cell_clip, output_clip, .. } = settings;
    let outputs = cx.output_shape(0)?.last().copied().unwrap_or(0);
    let output_scale = scale_zero_point(cx.node().output(0).and_then(|t| t.quantization()));
    let given = Given {
        cells: cells as usize,
        outputs: outputs as usize,
        output_scale: output_scale.map_err(invalid_scale)?.0,
        cell_clip,
        output_clip,
    };
    let of = |i| match cx.has_input(i) {
        true => scale_zero_point(cx.quantization(i)).map(Some),
        false => Ok(None),
    };
    let cell = Cell::new(of, &intermediates(cx), given).map_err(invalid_scale)?;
    let norm = cell.gates[1].is_some_and(|gate| gate.norm.is_some());
    let limit = |limit: i32, none: i32| if limit > 0 { limit } else { none };
    let spec = Spec {
        sequences,
        steps,
        time_major,
        cells,
        outputs,
        coupled: cell.gates[0].is_none(),
        peephole: cx.has_input(CELL.peephole[3].unwrap_or(INPUT)),
        norm,
        narrow: cell.narrow,
        hidden: (factor(cell.hidden.0), cell.hidden.1),
        projection: cell.projection.map(factor),
        output_zero: cell.output_zero,
        state_exponent: cell.state_exponent,
        cell_clip: limit(cell.cell_clip, 1 << 15),
        output_clip: limit(cell.output_clip, 1 << 7),
        alignment: alignment(cx),
    };
    let mut numbers = [Gate::default(); 4];
    for (to, from) in numbers.iter_mut().zip(cell.gates) {
        if let Some(from) = from {
            *to = gate(from)?;
        }
    }
    let recurrent: [Vec<i8>; 4] = each(CELL.recurrent.map(Some), |i| constants(cx, i))?;
    let [input, forget, _, output] = CELL.peephole;
    let peephole: [Vec<i16>; 3] = each([input, forget, output], |i| constants(cx, i))?;
    let factors: [Vec<i16>; 4] = each(CELL.norm, |i| constants(cx, i))?;
    let bias: [Vec<i32>; 4] = each(CELL.bias.map(Some), |i| constants(cx, i))?;
    let [projection]: [Vec<i8>; 1] = each([Some(CELL.projection)], |i| constants(cx, i))?;
    let [projection_bias]: [Vec<i32>; 1] = each([Some(CELL.projection_bias)], |i| constants(cx, i))?;
    let weights = Weights {
        gates: numbers,
        recurrent: recurrent.each_ref().map(|w| &**w),
        peephole: peephole.each_ref().map(|w| &**w),
        norm: factors.each_ref().map(|w| &**w),
        bias: if norm { bias.each_ref().map(|b| &**b) } else { [&[]; 4] },
        projection: &projection,
        projection_bias: &projection_bias,
        tables: if cell.narrow { cx.cell_tables(tables).each_ref().map(|t| &**t) } else { [&[]; 3] },
    };
    let constants_of_spec = spec.constants(&weights).map_err(invalid)?;
    // The contribution of the input to the gates.
    let rows = product_of("sequences and steps", sequences, steps)?;
    let (height, width) = (cells as usize, features as usize);
    let (mut filter, mut channels) = (Vec::new(), Vec::new());
    for (i, from) in cell.gates.iter().enumerate() {
        filter.extend(constants::<i8>(cx, CELL.weights[i])?);
        filter.resize(height.saturating_mul(width).saturating_mul(i + 1), 0);
        let by = from.map_or_else(Multiplier::default, |gate| gate.input.by);
        let bias = |c: usize| if norm { 0 } else { bias[i].get(c).copied().unwrap_or(0) };
        channels.extend((0..height).map(|c| (bias(c), by)));
    }
    let input_zero = cell.gates[1].map_or(0, |gate| gate.input.from);
    let range = if cell.narrow { [i32::MIN, i32::MAX] } else { [i16::MIN.into(), i16::MAX.into()] };
    let input = cx.any_input(INPUT)?;
    let outputs = product_of("gates of cells", cells, 4)?;
    cx.check_size(&[rows, outputs])?;
    let product = cx.temporary_of(&[rows, outputs], Element::I32);
    let sums = Sizes { rows, inputs: features, outputs, zeros: [input_zero, 0], up: false, range };
    push_sums(cx, sums, input, filter, &channels, product)?;
    // All steps, in one dispatch.
    let layout = spec.layout().map_err(invalid)?;
    let states = [cx.state_of(CELL.output_state, Int8)?, cx.state_of(CELL.cell_state, Int16)?];
    let whole = whole(cx, layout.elements)?;
    let count = count_of("weights", constants_of_spec.len())?;
    let constant = cx.new_constant(&[count], Element::I32, &constants_of_spec);
    cx.push(spec, &[product, constant, states[0], states[1]], whole)?;
    cx.alias(0, whole, 0)?;
    cx.set_state(CELL.output_state, whole, u64::from(layout.last) * 4)?;
    cx.set_state(CELL.cell_state, whole, u64::from(layout.state) * 4)
}

/// The basic cell: one matrix with the gates input, cell, forget and output below each other, and four outputs.
pub(super) fn basic(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use TensorType::{Int16, Int32, UInt8};
    use basic_inputs::{BIAS, CELL_STATE, INPUT, OUTPUT_STATE, WEIGHTS};
    [INPUT, OUTPUT_STATE, WEIGHTS].into_iter().try_for_each(|i| cx.expect(i, UInt8))?;
    cx.expect(BIAS, Int32)?;
    cx.expect(CELL_STATE, Int16)?;
    [(0, UInt8), (1, Int16), (2, UInt8), (3, Int16)]
        .into_iter()
        .try_for_each(|(i, ty)| expect_output(cx, i, ty))?;
    let (input, state) = (cx.input_shape(INPUT)?, cx.input_shape(OUTPUT_STATE)?);
    let (&[sequences, features], &[_, cells]) = (input.as_slice(), state.as_slice()) else {
        return Err(unsupported(format!(
            "an input of shape {input:?} and a state of shape {state:?}; only rank 2 is supported"
        )));
    };
    let state_scale = scale_zero_point(cx.node().output(1).and_then(|t| t.quantization()));
    let (state_scale, _) = state_scale.map_err(invalid_scale)?;
    if state_scale != 1.0 / 2048.0 {
        return Err(unsupported(format!("state scale {state_scale}; only 1/2048 is supported")));
    }
    let (_, zero) = scale_zero_point(cx.quantization(WEIGHTS)).map_err(invalid_scale)?;
    let (bias_scale, _) = scale_zero_point(cx.quantization(BIAS)).map_err(invalid_scale)?;
    let by = Multiplier::new((4096.0 * bias_scale).into()).map_err(invalid_scale)?;
    let weights: Vec<u8> = constants(cx, WEIGHTS)?;
    let filter = weights.into_iter().map(|w| (w ^ 0x80).cast_signed()).collect();
    let channels: Vec<_> = constants::<i32>(cx, BIAS)?.into_iter().map(|bias| (bias, by)).collect();
    let (width, outputs) = (features.checked_add(cells), cells.checked_mul(4));
    let (Some(width), Some(outputs)) = (width, outputs) else {
        return Err(unsupported(format!(
            "{cells} cells of {features} features; at most {} columns are supported",
            u32::MAX
        )));
    };
    // The left operand of the product: input and last output side by side.
    let sides =
        concatenation::Spec { inputs: vec![vec![sequences, features], vec![sequences, cells]], axis: 1 };
    let (input, last) = (cx.any_input(INPUT)?, cx.state_of(OUTPUT_STATE, UInt8)?);
    let (joined, gates) = (cx.output(2)?, cx.output(3)?);
    cx.push(Join { spec: sides.clone(), part: 0 }, &[input], joined)?;
    cx.push(Join { spec: sides, part: 1 }, &[last], joined)?;
    let zeros = [128, zero.saturating_sub(128)];
    let range = [i16::MIN.into(), i16::MAX.into()];
    let sums = Sizes { rows: sequences, inputs: width, outputs, zeros, up: true, range };
    push_sums(cx, sums, joined, filter, &channels, gates)?;
    let spec = lstm_basic::Spec { sequences, cells, alignment: alignment(cx) };
    let at = u64::from(spec.state().map_err(invalid)?) * 4;
    let state = cx.state_of(CELL_STATE, Int16)?;
    let whole = whole(cx, spec.elements().map_err(invalid)?)?;
    cx.push(spec, &[gates, state], whole)?;
    cx.alias(0, whole, 0)?;
    cx.alias(1, whole, at)?;
    cx.set_state(OUTPUT_STATE, whole, 0)?;
    cx.set_state(CELL_STATE, whole, at)
}

/// A product of 8-bit integers whose sums are rescaled per channel.
pub(super) struct Sizes {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// Zero points of input and weights.
    pub zeros: [i32; 2],
    /// Whether halves are rounded upwards.
    pub up: bool,
    /// The range of the results.
    pub range: [i32; 2],
}

/// Adds the product. Per channel, `channels` has the bias of a sum and the factor that is applied to the result.
pub(super) fn push_sums(
    cx: &mut Lowering<'_, '_, '_>,
    sizes: Sizes,
    input: ValueId,
    filter: Vec<i8>,
    channels: &[(i32, Multiplier)],
    output: ValueId,
) -> Result<(), Rejection> {
    let Sizes { rows, inputs, outputs, zeros: [input_zero, weight_zero], up, range: [low, high] } = sizes;
    if !(-128..=127).contains(&weight_zero) {
        return Err(unsupported(format!("weight zero point {weight_zero}; only -128 to 127 is supported")));
    }
    let sums = sums_of(&filter, inputs, 255, weight_zero)?;
    let result = IntegerResult::Fixed { scaling: Scaling::Narrow, zero: 0, low, high, tail: [rows, outputs] };
    let integers = Integers { input_zero, weight_zero, bits: 8, sums, result };
    let epilogue = Epilogue::of_integers(Activation::None, integers);
    let channel = |&(bias, by): &(i32, Multiplier)| {
        FixedChannel { bias, multiplier: by.multiplier, shift: by.shift, up }.words()
    };
    let weights =
        Filter::Integers { filter: filter.into(), channels: channels.iter().flat_map(channel).collect() };
    let spec = fully_connected::Spec { rows, inputs, outputs, epilogue };
    cx.push_product(spec, Product { epilogue, inputs: vec![input], weights, output })
}

/// A value for all results of a cell.
fn whole(cx: &mut Lowering<'_, '_, '_>, elements: u32) -> Result<ValueId, Rejection> {
    cx.check_size(&[elements])?;
    Ok(cx.temporary_of(&[elements], Element::I32))
}

/// A gate's parameters in the shader's form.
fn gate(from: Numbers) -> Result<Gate, Rejection> {
    let narrow = from.narrow.unwrap_or_default();
    if narrow[1].multiplier < 0 && narrow[1].shift > 16 {
        return Err(unsupported(format!(
            "factor {} · 2^{}; only positive factors are supported with a shift above 16",
            narrow[1].multiplier, narrow[1].shift
        )));
    }
    let zero = |product: delegraph_core::quantized::lstm::Product| i32::from(product.to as i8);
    let (scale, least) = from.norm.unwrap_or_default();
    let norm = match from.narrow {
        Some(_) => norm_scales(scale).map(|scale| scale.to_bits().cast_signed()),
        None => [norm_factor(scale).multiplier, shift_of(norm_factor(scale))],
    };
    Ok(Gate {
        last: factor(from.last.by),
        zeros: [zero(from.last), zero(from.input)],
        narrow: narrow.map(factor),
        peephole: factor(from.peephole),
        norm,
        least,
    })
}

/// The shift; CPU kernels take the lowest five bits of a shift to the left.
fn shift_of(by: Multiplier) -> i32 {
    if by.shift > 0 { by.shift & 31 } else { by.shift }
}

/// Tables, over all 16-bit integers, of the functions of cells with 8-bit additions.
fn tables() -> [Vec<i16>; 3] {
    let all = || i16::MIN..=i16::MAX;
    [
        all().map(logistic_of_float).collect(),
        all().map(|x| tanh_of_float(x, -12)).collect(),
        all().map(|x| tanh_of_float(x, -15)).collect(),
    ]
}

/// Returns the quantization of an operand, which must have a single scale.
pub(super) fn scale_zero_point(of: Option<&Quantization>) -> delegraph_core::Result<(f32, i32)> {
    let text = match of.and_then(Quantization::scale_zero_point) {
        Some((scale, zero)) if scale.is_finite() && scale > 0.0 => return Ok((scale, zero)),
        Some((scale, _)) => format!("scale {scale}; only finite positive scales are supported"),
        None => {
            "integers without a single scale; only one scale and zero point per tensor is supported".into()
        }
    };
    Err(Error::Unsupported(text))
}

/// Scale and zero point of the values inside a cell, where the model has them.
fn intermediates(cx: &Lowering<'_, '_, '_>) -> Vec<Option<(f32, i32)>> {
    let (node, graph) = (cx.node().node(), cx.node().graph().subgraph());
    let scale = |id: &Option<_>| id.and_then(|id| graph.tensor(id).quantization()?.scale_zero_point());
    node.intermediates().iter().map(scale).collect()
}

/// The operands at these indices; empty for those that the node omits.
fn each<T, const N: usize>(
    places: [Option<usize>; N],
    of: impl Fn(usize) -> Result<Vec<T>, Rejection>,
) -> Result<[Vec<T>; N], Rejection> {
    let mut all = [(); N].map(|()| Vec::new());
    for (values, i) in all.iter_mut().zip(places) {
        if let Some(i) = i {
            *values = of(i)?;
        }
    }
    Ok(all)
}

/// The constant elements of input `i`; empty if the node omits it.
fn constants<T: bytemuck::Pod>(cx: &Lowering<'_, '_, '_>, i: usize) -> Result<Vec<T>, Rejection> {
    let Some(tensor) = cx.node().input(i) else { return Ok(Vec::new()) };
    if tensor.tensor().sparsity.is_some() {
        return Err(unsupported(format!("input {i} is sparse; only dense weights are supported")));
    }
    cx.dense_bytes(i).map(|bytes: Cow<'_, [u8]>| bytemuck::pod_collect_to_vec(&bytes))
}

fn expect_output(cx: &Lowering<'_, '_, '_>, i: usize, wanted: TensorType) -> Result<(), Rejection> {
    match cx.node().output(i).map(|tensor| tensor.ty()) {
        Some(ty) if ty != wanted => Err(Rejection::UnsupportedType { operand: format!("output {i}"), ty }),
        _ => Ok(()),
    }
}
