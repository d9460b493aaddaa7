//! Ops of 16-bit inputs and 8-bit weights.

use delegraph_core::Result;
use delegraph_core::kernel::{Charged, PrepareContext, Temporary};
use delegraph_core::ops::TensorType;
use delegraph_core::ops::fully_connected::FullyConnectedParams;

use super::spread::Spread;
use super::{compute_error, compute_multiplier, pack_shared};
use crate::common::pace::{IMAGE_STEPS, PRODUCTS, Polls};
use crate::common::prepared::Invoke;
use crate::common::weights::{
    Requantize, Weights, check_symmetric, check_zero_points, scale_zero_point, weight_scales,
};
use delegraph_compute::{
    ByteQuant, ConvGeometry, ConvI8, ConvPlan, DepthwiseFilter, DepthwiseI16, Filter, GemmI8, Isa,
    LOW_OF_ZERO, Scale, Ties, WideSums, halves,
};

/// Both halves of an activation are signed bytes.
const HALF: ByteQuant = ByteQuant { signed: true, zero_point: 0 };

/// Maximum number of outputs whose sums are in memory at the same time.
const MAX_SUMS: usize = 32 << 10;

/// Constant weights and bias. [`Operands::new`] returns `None` if they are not constant, the weights are not INT8, INT4
/// or INT2, or the bias is not INT32 or INT64.
struct Operands {
    weights: Charged<u8>,
    bias: Option<Vec<i64>>,
    /// Whether sums are wider than 32 bits.
    wide: bool,
}

impl Operands {
    fn new(cx: &PrepareContext<'_>) -> Result<Option<Self>> {
        let signed = matches!(cx.input(1)?.ty(), TensorType::Int8 | TensorType::Int4 | TensorType::Int2);
        let (bias, wide) = match cx.optional_input(2) {
            None => (None, false),
            Some(bias) => match bias.ty() {
                TensorType::Int64 => (bias.constant::<i64>()?.map(<[i64]>::to_vec), true),
                TensorType::Int32 => {
                    (bias.constant::<i32>()?.map(|b| b.iter().map(|b| (*b).into()).collect()), false)
                }
                _ => (None, false),
            },
        };
        let missing = bias.is_none() && cx.optional_input(2).is_some();
        if !signed || missing {
            return Ok(None);
        }
        let weights = Weights::constant(cx, 1)?.filter(|weights| !weights.is_empty());
        Ok(weights.map(|weights| Operands { weights, bias, wide }))
    }
}

/// Memory for the two halves of activations and the sums of each.
struct Memory {
    halves: [Temporary; 2],
    sums: [Temporary; 2],
    scratch: Temporary,
}

impl Memory {
    fn new(cx: &mut PrepareContext<'_>, inputs: usize, outputs: usize, scratch: usize) -> Result<Self> {
        Ok(Memory {
            halves: [cx.temporary(inputs), cx.temporary(inputs)],
            sums: [cx.temporary_of::<i32>(outputs)?, cx.temporary_of::<i32>(outputs)?],
            scratch: cx.temporary(scratch),
        })
    }
}

/// Scaling of the sums and bounds of the results: wide sums in fixed point, others with ties as given by `ties`. `None`
/// for factors that [`Scale::fixed`] does not support, a zero point other than 0, and bounds that exclude every value.
fn fixed(requantize: &Requantize, wide: bool, ties: Ties) -> Option<(Scale, [i32; 2])> {
    let (multipliers, zero_point, bounds) = requantize.parts();
    let multipliers: Vec<_> = multipliers.iter().copied().map(compute_multiplier).collect();
    let scale = if wide { Scale::fixed(&multipliers)? } else { Scale::Narrow(multipliers, ties) };
    (zero_point == 0 && bounds[0] <= bounds[1]).then_some((scale, bounds))
}

pub(super) fn conv_2d(
    cx: &mut PrepareContext<'_>,
    filter: Filter,
    geo: ConvGeometry,
    requantize: &Requantize,
) -> Result<Option<Invoke>> {
    check_zero_points(cx.input(1)?)?;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let Some(operands) = Operands::new(cx)? else { return Ok(None) };
    let ties = if filter.groups == 1 { Ties::Up } else { Ties::Away };
    let Some((scale, bounds)) = fixed(requantize, operands.wide, ties) else { return Ok(None) };
    // Sums that could overflow are left to the reference kernel, which has wider accumulators.
    let Ok(to) = WideSums::of_bytes(&operands.weights, operands.bias.as_deref(), scale, bounds) else {
        return Ok(None);
    };
    let isa = Isa::best();
    let one = ConvGeometry { batch: 1, ..geo };
    let pack = || ConvI8::pack(isa, filter, &one, &operands.weights, HALF, None, HALF, None);
    let conv = pack_shared(cx, &[filter.groups], pack)?;
    let Bands { list, inputs, rows } = Bands::new(&one, filter.out_channels);
    let plan = |band: &Band| conv.plan(&band.geo, cx.threads()).map_err(compute_error);
    let mut plans = list.iter().map(plan).collect::<Result<Vec<_>>>()?;
    let scratch = plans.iter().map(ConvPlan::scratch_len).max().unwrap_or(0);
    let (line, depth) =
        (geo.output[1] * filter.out_channels, filter.height * filter.width * filter.in_channels);
    let memory = Memory::new(cx, inputs, rows * line, scratch)?;
    let padding = [0, LOW_OF_ZERO].map(|byte| vec![byte; conv.padding_len()]);
    let (image, out_image) = (geo.input[0] * geo.input[1] * geo.in_channels, geo.output[0] * line);
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<i16>(0)?, cx.output::<i16>(0)?);
        let par = cx.parallel();
        let scratch = cx.temporary::<u8>(memory.scratch)?;
        let [high, low] = [cx.temporary::<u8>(memory.halves[0])?, cx.temporary::<u8>(memory.halves[1])?];
        let [high_sums, low_sums] =
            [cx.temporary::<i32>(memory.sums[0])?, cx.temporary::<i32>(memory.sums[1])?];
        let mut polls = Polls::new(par);
        for (input, output) in input.chunks_exact(image.max(1)).zip(output.chunks_exact_mut(out_image.max(1)))
        {
            for (band, plan) in list.iter().zip(&mut plans) {
                // The steps of a small band are single tasks, which are not interrupted.
                let sums = (band.geo.output[0] * line).saturating_mul(1 + depth / PRODUCTS);
                if polls.interrupted_after(band.input.len().saturating_add(sums).saturating_add(IMAGE_STEPS))
                {
                    return Ok(());
                }
                let input = &input[band.input.clone()];
                let output = &mut output[band.first * line..][..band.geo.output[0] * line];
                let (high, low) = (&mut high[..input.len()], &mut low[..input.len()]);
                let (high_sums, low_sums) = (&mut high_sums[..output.len()], &mut low_sums[..output.len()]);
                halves(isa, input, high, low, par).map_err(compute_error)?;
                conv.run_sums_padded(plan, high, &padding[0], high_sums, scratch, par)
                    .and_then(|()| conv.run_sums_padded(plan, low, &padding[1], low_sums, scratch, par))
                    .and_then(|()| to.run(isa, [high_sums, low_sums], output, par))
                    .map_err(compute_error)?;
            }
        }
        Ok(())
    })))
}

/// An image that is computed in bands of output rows.
struct Bands {
    list: Vec<Band>,
    /// Maximum number of input elements and of output rows of a band.
    inputs: usize,
    rows: usize,
}

struct Band {
    geo: ConvGeometry,
    /// First output row.
    first: usize,
    /// Input elements of the band.
    input: std::ops::Range<usize>,
}

impl Bands {
    fn new(geo: &ConvGeometry, out_channels: usize) -> Self {
        let line = geo.output[1].saturating_mul(out_channels);
        let rows = (MAX_SUMS / line.max(1)).clamp(1, geo.output[0].max(1));
        let reach = (geo.window[0] - 1) * geo.dilation[0] + 1;
        let row = geo.input[1] * geo.in_channels;
        let band = |first: usize| {
            let count = rows.min(geo.output[0] - first);
            let from = (first * geo.stride[0]).saturating_sub(geo.padding[0]).min(geo.input[0]);
            let padding = geo.padding[0].saturating_sub(first * geo.stride[0]);
            let end = ((first + count - 1) * geo.stride[0] + reach).saturating_sub(geo.padding[0]);
            let end = end.clamp(from, geo.input[0]);
            let part = ConvGeometry {
                input: [end - from, geo.input[1]],
                output: [count, geo.output[1]],
                padding: [padding, geo.padding[1]],
                ..*geo
            };
            Band { geo: part, first, input: from * row..end * row }
        };
        let list: Vec<Band> = (0..geo.output[0]).step_by(rows).map(band).collect();
        let inputs = list.iter().map(|band| band.input.len()).max().unwrap_or(0);
        Bands { list, inputs, rows }
    }
}

pub(super) fn fully_connected(
    cx: &mut PrepareContext<'_>,
    (rows, depth, units): (usize, usize, usize),
    requantize: &Requantize,
) -> Result<Option<Invoke>> {
    let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    check_symmetric(input)?;
    check_symmetric(output)?;
    let zero = weights.scale_zero_point().map_or(0, |(_, zero)| zero);
    let Some(operands) = Operands::new(cx)?.filter(|_| zero == 0 && output.ty() == TensorType::Int16) else {
        return Ok(None);
    };
    let Some((mut scale, bounds)) = fixed(requantize, false, Ties::Up) else { return Ok(None) };
    // Without a bias, its declared type determines the width of the accumulator.
    let would_be = cx.params::<FullyConnectedParams>()?.quantized_bias_type;
    if operands.wide || (operands.bias.is_none() && would_be == TensorType::Int64) {
        // TFLite does not use its integer matrix product here, and scales in double precision.
        let (from, to) = (scale_zero_point(input)?.0, scale_zero_point(output)?.0);
        let real = |scale: &f32| f64::from(from) * f64::from(*scale) / f64::from(to);
        let scales = weight_scales(weights, 0)?;
        cx.budget().check_size(units.saturating_mul(size_of::<f64>()))?;
        scale = Scale::Real(scales.iter().cycle().take(units).map(real).collect());
    }
    let Ok(to) = WideSums::of_bytes(&operands.weights, operands.bias.as_deref(), scale, bounds) else {
        return Ok(None);
    };
    let isa = Isa::best();
    let pack = || GemmI8::pack(isa, (depth, units), &operands.weights, HALF, None, HALF, None);
    let gemm = pack_shared(cx, &[], pack)?;
    let most = (MAX_SUMS / units.max(1)).clamp(1, rows.max(1));
    let mut scratch = 0;
    for rows in [most, rows % most] {
        scratch = scratch.max(gemm.scratch_len(rows, cx.threads()).map_err(compute_error)?);
    }
    let memory = Memory::new(cx, most.saturating_mul(depth), most.saturating_mul(units), scratch)?;
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (cx.input::<i16>(0)?, cx.output::<i16>(0)?);
        let par = cx.parallel();
        let scratch = cx.temporary::<u8>(memory.scratch)?;
        let [high, low] = [cx.temporary::<u8>(memory.halves[0])?, cx.temporary::<u8>(memory.halves[1])?];
        let [high_sums, low_sums] =
            [cx.temporary::<i32>(memory.sums[0])?, cx.temporary::<i32>(memory.sums[1])?];
        let mut polls = Polls::new(par);
        for (input, output) in input.chunks(most * depth).zip(output.chunks_mut(most * units)) {
            if polls.interrupted_after(input.len() + output.len().saturating_mul(1 + depth / PRODUCTS)) {
                break;
            }
            let rows = input.len() / depth;
            let (high, low) = (&mut high[..input.len()], &mut low[..input.len()]);
            let (high_sums, low_sums) = (&mut high_sums[..output.len()], &mut low_sums[..output.len()]);
            halves(isa, input, high, low, par)
                .and_then(|()| gemm.run_sums(rows, high, high_sums, scratch, par))
                .and_then(|()| gemm.run_sums(rows, low, low_sums, scratch, par))
                .and_then(|()| to.run(isa, [high_sums, low_sums], output, par))
                .map_err(compute_error)?;
        }
        Ok(())
    })))
}

pub(super) fn depthwise_conv_2d(
    cx: &mut PrepareContext<'_>,
    (filter, multiplier): (DepthwiseFilter, usize),
    geo: ConvGeometry,
    requantize: &Requantize,
) -> Result<Option<Invoke>> {
    check_zero_points(cx.input(1)?)?;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let Some(operands) = Operands::new(cx)?.filter(|o| o.wide || o.bias.is_none()) else { return Ok(None) };
    let Some((scale, bounds)) = fixed(requantize, true, Ties::Up) else { return Ok(None) };
    let DepthwiseFilter { channels, window } = filter;
    let (weights, bias) = (&operands.weights, operands.bias.as_deref());
    // Sums that could overflow are left to the reference kernel, which has wider accumulators.
    let conv = DepthwiseI16::new(Isa::best(), channels, window, weights, bias, scale, bounds);
    let Ok(conv) = conv else { return Ok(None) };
    let spread = Spread::new::<i16>(cx, multiplier)?;
    Ok(Some(Box::new(move |cx| {
        let (input, output) = (spread.input::<i16>(cx)?, cx.output::<i16>(0)?);
        conv.run(&geo, input, output, cx.parallel()).map_err(compute_error)
    })))
}
