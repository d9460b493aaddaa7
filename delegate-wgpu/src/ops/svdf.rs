//! SVDF with constant weights: float weights, integer weights with float activations, and integers only.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{Float32, Int8};
use delegraph_core::fixed_point::Multiplier;
use delegraph_core::ops::svdf::SvdfParams;
use delegraph_core::ops::{Activation as Fused, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::binary::{self, Binary};
use delegraph_shaders::reduce::{self, Reduce};
use delegraph_shaders::rescale::{self, By};
use delegraph_shaders::{Activation, Epilogue, RealChannel, concatenation, fully_connected, slice};

use super::integers::{SignedWeights, push_rows, signed_weights};
use super::lstm_quantized::{Sizes as Sums, push_sums, scale_zero_point};
use super::quantize::factor;
use super::{GpuOp, cell_activation, invalid_scale, mixed_types, product_of};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, Join, ValueId};

pub(super) const OPS: &[GpuOp] = &[GpuOp::new(BuiltinOp::SVDF, 4, &[Float32, Int8], lower)];

const INPUT: usize = 0;
const FEATURE: usize = 1;
const TIME: usize = 2;
const BIAS: usize = 3;
const STATE: usize = 4;

#[derive(Clone, Copy)]
struct Sizes {
    batch: u32,
    inputs: u32,
    filters: u32,
    memory: u32,
    rank: u32,
    units: u32,
}

/// Shifts the state by one, writes the products of input and filters to its last column, and sums the filters of each
/// unit over time.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    use TensorType::{Float32, Int8, Int16, UInt8};
    let p: &SvdfParams = cx.params()?;
    let shapes = [cx.input_shape(INPUT)?, cx.input_shape(TIME)?];
    let [&[batch, inputs], &[filters, memory]] = shapes.each_ref().map(Vec::as_slice) else {
        return Err(unsupported(format!(
            "an input and time weights of shapes {shapes:?}; \
            only rank 2 is supported"
        )));
    };
    let rank = u32::try_from(p.rank).ok().filter(|&rank| rank > 0 && filters.is_multiple_of(rank));
    let rank = rank.ok_or_else(|| {
        unsupported(format!(
            "{filters} filters of rank {}; \
        only multiples of a positive rank are supported",
            p.rank
        ))
    })?;
    let sizes = Sizes { batch, inputs, filters, memory, rank, units: filters / rank };
    match (cx.ty(INPUT), cx.ty(FEATURE), cx.ty(TIME)) {
        (Some(Float32), Some(Float32), Some(Float32)) => floats(cx, sizes, p),
        (Some(Float32), Some(Int8 | UInt8), Some(Int8 | UInt8)) => hybrid(cx, sizes, p),
        (Some(Int8), Some(Int8), Some(Int16)) => integers(cx, sizes),
        (Some(Float32 | Int8), ..) => Err(cx.wrong_type(FEATURE)),
        _ => Err(cx.wrong_type(INPUT)),
    }
}

fn floats(cx: &mut Lowering<'_, '_, '_>, sizes: Sizes, p: &SvdfParams) -> Result<(), Rejection> {
    let Sizes { batch, inputs, filters, .. } = sizes;
    let latest = cx.temporary(&[batch, filters]);
    let product =
        fully_connected::Spec { rows: batch, inputs, outputs: filters, epilogue: Epilogue::default() };
    let (input, feature) = (cx.input(INPUT)?, cx.constant(FEATURE)?);
    cx.push_weighted(product, input, feature, None, latest)?;
    let time = cx.input(TIME)?;
    over_time(cx, sizes, latest, time, p.fused_activation_function)
}

/// Rows of the input are quantized for the filters; all else is float.
fn hybrid(cx: &mut Lowering<'_, '_, '_>, sizes: Sizes, p: &SvdfParams) -> Result<(), Rejection> {
    let Sizes { batch, inputs, filters, memory, .. } = sizes;
    let (feature, time) = (signed_weights(cx, FEATURE)?, signed_weights(cx, TIME)?);
    let latest = cx.temporary(&[batch, filters]);
    let input = cx.input(INPUT)?;
    let channels = vec![RealChannel { scale: feature.scale, bias: 0.0 }; filters as usize];
    let asymmetric = p.asymmetric_quantize_inputs;
    push_rows(cx, [batch, inputs, filters], input, feature.weights, &channels, asymmetric, latest)?;
    let SignedWeights { weights, scale } = time;
    let time: Vec<f32> = weights.iter().map(|&w| f32::from(w) * scale).collect();
    let time = cx.new_constant(&[filters, memory], Element::F32, &time);
    over_time(cx, sizes, latest, time, p.fused_activation_function)
}

/// The steps after the filters' products, in floats.
fn over_time(
    cx: &mut Lowering<'_, '_, '_>,
    sizes: Sizes,
    latest: ValueId,
    time: ValueId,
    fused: Fused,
) -> Result<(), Rejection> {
    [BIAS, STATE].into_iter().try_for_each(|i| cx.expect(i, TensorType::Float32))?;
    let activation = cell_activation(fused)?;
    let state = moved(cx, sizes, latest, TensorType::Float32)?;
    let biased = cx.has_input(BIAS);
    let output = cx.output(0)?;
    let summed = if biased { cx.temporary(&[sizes.batch, sizes.units]) } else { output };
    let of_sum = if biased { Activation::None } else { activation };
    sum_over_time(cx, sizes, [state, time], summed, Element::F32, of_sum)?;
    if biased {
        add_bias(cx, sizes, summed, output, Element::F32, activation)?;
    }
    cx.set_state(STATE, state, 0)
}

/// 8-bit activations and filters, 16-bit states and time weights, in the arithmetic of the reference kernel.
fn integers(cx: &mut Lowering<'_, '_, '_>, sizes: Sizes) -> Result<(), Rejection> {
    let Sizes { batch, inputs, filters, units, .. } = sizes;
    cx.expect(BIAS, TensorType::Int32)?;
    cx.expect(STATE, TensorType::Int16)?;
    let output = cx.output(0)?;
    if cx.narrow(output) != Some((8, true)) {
        return Err(mixed_types(cx));
    }
    let of = |i| scale_zero_point(cx.quantization(i)).map_err(invalid_scale);
    let (input_scale, input_zero) = of(INPUT)?;
    let (feature_scale, time_scale, state_scale) = (of(FEATURE)?.0, of(TIME)?.0, of(STATE)?.0);
    let to = cx.steps(output)?;
    // In single precision, as in LiteRT's kernel.
    let to_state = Multiplier::new((input_scale * feature_scale / state_scale).into());
    let to_output = Multiplier::new((state_scale * time_scale / to.scale).into());
    let (to_state, to_output) = (to_state.map_err(invalid_scale)?, to_output.map_err(invalid_scale)?);
    let feature = signed_weights(cx, FEATURE)?.weights;
    let input = cx.any_input(INPUT)?;
    let latest = cx.temporary_of(&[batch, filters], Element::I32);
    let range = [i16::MIN.into(), i16::MAX.into()];
    let sums = Sums { rows: batch, inputs, outputs: filters, zeros: [input_zero, 0], up: false, range };
    push_sums(cx, sums, input, feature, &vec![(0, to_state); filters as usize], latest)?;
    let state = moved(cx, sizes, latest, TensorType::Int16)?;
    let time = cx.any_input(TIME)?;
    let mut sum = cx.temporary_of(&[batch, units], Element::I32);
    sum_over_time(cx, sizes, [state, time], sum, Element::I32, Activation::None)?;
    if cx.has_input(BIAS) {
        let biased = cx.temporary_of(&[batch, units], Element::I32);
        add_bias(cx, sizes, sum, biased, Element::I32, Activation::None)?;
        sum = biased;
    }
    let elements = batch * units;
    let by = By::Fixed { before: 0, factor: factor(to_output), up: [elements, 0] };
    let (low, high) = (to.low, to.high);
    cx.push(rescale::Spec { by, after: to.zero, saturates: false, low, high, elements }, &[sum], output)?;
    cx.set_state(STATE, state, 0)
}

/// The state with the latest products in its last column.
fn moved(
    cx: &mut Lowering<'_, '_, '_>,
    Sizes { batch, filters, memory, .. }: Sizes,
    latest: ValueId,
    ty: TensorType,
) -> Result<ValueId, Rejection> {
    if memory < 2 {
        return Ok(latest);
    }
    let element = cx.element(latest);
    let before = cx.state_of(STATE, ty)?;
    let rows = product_of("filters", batch, filters)?;
    let kept = cx.temporary_of(&[rows, memory - 1], element);
    let cut = slice::Spec {
        input: vec![rows, memory],
        output: vec![rows, memory - 1],
        begin: vec![0, 1],
        step: vec![1, 1],
    };
    cx.push(cut, &[before], kept)?;
    let state = cx.temporary_of(&[rows, memory], element);
    let sides = concatenation::Spec { inputs: vec![vec![rows, memory - 1], vec![rows, 1]], axis: 1 };
    cx.push(Join { spec: sides.clone(), part: 0 }, &[kept], state)?;
    cx.push(Join { spec: sides, part: 1 }, &[latest], state)?;
    Ok(state)
}

/// Per unit, the sum of the states of its filters times their weights.
fn sum_over_time(
    cx: &mut Lowering<'_, '_, '_>,
    Sizes { batch, filters, memory, rank, units, .. }: Sizes,
    inputs: [ValueId; 2],
    output: ValueId,
    element: Element,
    activation: Activation,
) -> Result<(), Rejection> {
    let weighted = cx.temporary_of(&[batch, filters, memory], element);
    let weigh = binary::Spec {
        op: Binary::Mul,
        element,
        a: vec![batch, filters, memory],
        b: vec![filters, memory],
        output: vec![batch, filters, memory],
        activation: Activation::None,
    };
    cx.push(weigh, &inputs, weighted)?;
    let input = vec![batch, units, rank * memory];
    let sum = reduce::Spec { op: Reduce::Sum, element, input, axes: vec![2], activation };
    cx.push(sum, &[weighted], output)
}

fn add_bias(
    cx: &mut Lowering<'_, '_, '_>,
    Sizes { batch, units, .. }: Sizes,
    sum: ValueId,
    output: ValueId,
    element: Element,
    activation: Activation,
) -> Result<(), Rejection> {
    let bias = cx.any_input(BIAS)?;
    let (a, b, output_shape) = (vec![batch, units], vec![units], vec![batch, units]);
    let add = binary::Spec { op: Binary::Add, element, a, b, output: output_shape, activation };
    cx.push(add, &[sum, bias], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn integers_are_rescaled_twice() {
        let params = || {
            Params::Svdf(
                SvdfParams::default()
                    .rank(1)
                    .fused_activation_function(Fused::None)
                    .asymmetric_quantize_inputs(false),
            )
        };
        let inputs = [
            Some(T::new(&[1, 2], &[3_i8, 5]).quantized(0.5, 1)),
            Some(T::new(&[1, 2], &[2_i8, 4]).quantized(0.5, 0).constant()),
            Some(T::new(&[1, 2], &[9_i16, 6]).quantized(0.5, 0).constant()),
            Some(T::new(&[1], &[-20_i32]).constant()),
            Some(T::new(&[1, 2], &[7_i16, 0]).quantized(0.25, 0)),
        ];
        // The state becomes 2 · 2 + 4 · 4 = 20; the output (20 · 6 - 20) / 8 - 1.
        let expected = [T::new(&[1, 1], &[12_i8]).quantized(1.0, -1)];
        check(BuiltinOp::SVDF, 3, params(), &inputs, &expected);
    }
}
