//! Ops of float inputs and integer weights: the input is quantized while running.

use delegraph_core::kernel::{Charged, PrepareContext, TensorView};
use delegraph_core::ops::{Activation, TensorType};
use delegraph_core::{Quantization, Result};

use super::{compute_error, pack_own, pack_shared};
use crate::common::pace::{IMAGE_STEPS, PRODUCTS, Polls};
use crate::common::prepared::Invoke;
use crate::common::weights::{DynamicInput, Weights, check_zero_points, weight_scales};
use delegraph_compute::{
    ByteQuant, Clamp, ConvGeometry, ConvI8, DepthwiseF32, DepthwiseFilter, Filter, GemmI8, Isa, Pixels,
    RowScales, SumScales, map, spread,
};

/// Inputs are quantized to signed steps.
const STEPS: ByteQuant = ByteQuant { signed: true, zero_point: 0 };

/// Parameters shared by all of these ops.
struct Parts {
    weights: Charged<u8>,
    scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    clamp: Clamp,
}

impl Parts {
    /// `None` for weights or a bias that are not constant, for unsupported types, and for an activation that is not a
    /// clamp.
    fn new(cx: &PrepareContext<'_>, dimension: usize, activation: Activation) -> Result<Option<Self>> {
        let weights = cx.input(1)?;
        let taken = matches!(
            weights.ty(),
            TensorType::Int8 | TensorType::UInt8 | TensorType::Int4 | TensorType::Int2
        );
        let Some((low, high)) = activation.clamp().filter(|_| taken) else { return Ok(None) };
        let bias = match cx.optional_input(2) {
            Some(bias) if bias.ty() == TensorType::Float32 => match bias.constant::<f32>()? {
                Some(bias) => Some(bias.to_vec()),
                None => return Ok(None),
            },
            Some(_) => return Ok(None),
            None => None,
        };
        let Some(weights) = Weights::constant(cx, 1)?.filter(|w| !w.is_empty()) else { return Ok(None) };
        let scales = weight_scales(cx.input(1)?, dimension)?.to_vec();
        Ok(Some(Parts { weights, scales, bias, clamp: Clamp { low, high } }))
    }

    /// Returns the sum of each column of `depth` consecutive weights.
    fn totals(&self, depth: usize) -> Vec<i32> {
        let total = |column: &[u8]| column.iter().map(|w| i32::from(w.cast_signed())).sum();
        self.weights.chunks_exact(depth.max(1)).map(total).collect()
    }
}

pub(super) fn fully_connected(
    cx: &mut PrepareContext<'_>,
    (rows, depth, units): (usize, usize, usize),
    activation: Activation,
    asymmetric: bool,
) -> Result<Option<Invoke>> {
    let Some(parts) = Parts::new(cx, 0, activation)? else { return Ok(None) };
    let pack = || GemmI8::pack(Isa::best(), (depth, units), &parts.weights, STEPS, None, STEPS, None);
    let gemm = pack_shared(cx, &[], pack)?;
    let totals = parts.totals(depth);
    let scale = || gemm.float_output(&parts.scales, &totals, parts.bias.as_deref(), parts.clamp);
    let floats = pack_own(cx, scale)?;
    let plan = gemm.plan(rows, cx.threads()).map_err(compute_error)?;
    let dynamic = DynamicInput::new(cx, rows, depth, asymmetric)?;
    if plan.is_single_row() {
        return Ok(Some(Box::new(move |cx| {
            let input = cx.input::<f32>(0)?;
            let (steps, output) = (dynamic.quantize(cx, input)?, cx.output::<f32>(0)?);
            let scales = RowScales::Each(steps.scales, steps.zero_points);
            gemm.run_row_floats(bytemuck::cast_slice(steps.values), (&floats, scales), output)
                .map_err(compute_error)
        })));
    }
    let scratch = cx.temporary(plan.scratch_len());
    Ok(Some(Box::new(move |cx| {
        let input = cx.input::<f32>(0)?;
        let steps = dynamic.quantize(cx, input)?;
        let (scratch, output) = (cx.temporary::<u8>(scratch)?, cx.output::<f32>(0)?);
        let scales = RowScales::Each(steps.scales, steps.zero_points);
        let steps = bytemuck::cast_slice(steps.values);
        gemm.run_floats(&plan, steps, (&floats, scales), output, scratch, cx.parallel())
            .map_err(compute_error)
    })))
}

/// CONV_2D. Each image is quantized separately.
pub(super) fn conv_2d(
    cx: &mut PrepareContext<'_>,
    filter: Filter,
    geo: ConvGeometry,
    activation: Activation,
) -> Result<Option<Invoke>> {
    check_zero_points(cx.input(1)?)?;
    let Some(parts) = Parts::new(cx, 0, activation)? else { return Ok(None) };
    // Zero points are used for per-channel scales and grouped convolutions.
    let asymmetric = parts.scales.iter().any(|scale| *scale != parts.scales[0]) || filter.groups != 1;
    let batch = geo.batch;
    let geo = ConvGeometry { batch: 1, ..geo };
    let whole = geo.input_len().map_err(compute_error)?;
    // Strides of single pixels leave out most of the image, which is not quantized.
    let kept = (geo.window == [1, 1] && geo.padding == [0, 0] && geo.stride != [1, 1]).then_some(Pixels {
        width: geo.input[1],
        channels: geo.in_channels,
        stride: geo.stride,
        count: geo.output,
    });
    let geo = match kept {
        Some(_) => ConvGeometry { input: geo.output, stride: [1, 1], ..geo },
        None => geo,
    };
    let pack = || ConvI8::pack(Isa::best(), filter, &geo, &parts.weights, STEPS, None, STEPS, None);
    let conv = pack_shared(cx, &[filter.groups], pack)?;
    let depth = filter.height * filter.width * filter.in_channels;
    let totals = parts.totals(depth);
    let scale = || conv.float_output(&parts.scales, &totals, parts.bias.as_deref(), parts.clamp);
    let floats = pack_own(cx, scale)?;
    let mut plan = pack_own(cx, || conv.plan(&geo, cx.threads())?.keep_addresses())?;
    let (image, pixels) = (geo.input_len().map_err(compute_error)?, geo.pixels().map_err(compute_error)?);
    let out_image = pixels.saturating_mul(filter.out_channels);
    let dynamic = match kept {
        Some(pixels) => DynamicInput::of_pixels(cx, (batch, whole), pixels, asymmetric)?,
        None => DynamicInput::new(cx, batch, whole, asymmetric)?,
    };
    let products = out_image.saturating_mul(depth.div_ceil(PRODUCTS));
    let steps_per_image = image.saturating_add(products).saturating_add(IMAGE_STEPS);
    let (scratch, padding) = (cx.temporary(plan.scratch_len()), cx.temporary(conv.padding_len()));
    Ok(Some(Box::new(move |cx| {
        let input = cx.input::<f32>(0)?;
        let steps = dynamic.quantize(cx, input)?;
        let padding = &mut cx.temporary::<u8>(padding)?[..conv.padding_len()];
        let (scratch, output, par) = (cx.temporary::<u8>(scratch)?, cx.output::<f32>(0)?, cx.parallel());
        let mut polls = Polls::new(par);
        for (i, output) in output.chunks_exact_mut(out_image.max(1)).enumerate() {
            if polls.interrupted_after(steps_per_image) {
                break;
            }
            let scales = RowScales::Single(steps.scales[i], steps.zero_points[i]);
            // The contribution of padding to the sums cancels out with the zero point's correction.
            padding.fill(steps.zero_points[i] as u8);
            let steps: &[u8] = bytemuck::cast_slice(&steps.values[i * image..][..image]);
            conv.run_floats_padded(&mut plan, steps, padding, (&floats, scales), output, scratch, par)
                .map_err(compute_error)?;
        }
        Ok(())
    })))
}

/// Maximum number of taps whose sums single precision holds exactly.
const MAX_TAPS: usize = (1 << 24) / (255 * 128);

/// DEPTHWISE_CONV_2D. Each image is quantized separately. Sums are computed in floating point, where they are exact.
pub(super) fn depthwise_conv_2d(
    cx: &mut PrepareContext<'_>,
    (filter, multiplier): (DepthwiseFilter, usize),
    geo: ConvGeometry,
    activation: Activation,
) -> Result<Option<Invoke>> {
    check_zero_points(cx.input(1)?)?;
    let [height, width] = filter.window;
    if height.saturating_mul(width) > MAX_TAPS || cx.input(1)?.ty() != TensorType::Int8 {
        return Ok(None);
    }
    let Some(parts) = Parts::new(cx, 3, activation)? else { return Ok(None) };
    let weights = cx.budget().collect(parts.weights.iter().map(|w| f32::from(w.cast_signed())))?;
    let isa = Isa::best();
    let DepthwiseFilter { channels, window } = filter;
    let pack = || DepthwiseF32::pack(isa, [channels; 2], window, &weights, None);
    let conv = pack_shared(cx, &[channels, window[0]], pack)?;
    let columns =
        SumScales::new(&parts.scales, vec![0; channels], parts.bias.as_deref()).map_err(compute_error)?;
    let batch = geo.batch;
    let geo = ConvGeometry { batch: 1, ..geo };
    let (spread_len, pixels) =
        (geo.input_len().map_err(compute_error)?, geo.pixels().map_err(compute_error)?);
    let image = spread_len / multiplier;
    let products = pixels.saturating_mul(channels).saturating_mul((height * width).div_ceil(PRODUCTS));
    let steps_per_image = spread_len.saturating_add(products).saturating_add(IMAGE_STEPS);
    let dynamic = DynamicInput::new(cx, batch, image, true)?;
    let whole = cx.temporary_of::<f32>(spread_len)?;
    let single = if multiplier == 1 { None } else { Some(cx.temporary_of::<f32>(image)?) };
    let clamp = parts.clamp;
    Ok(Some(Box::new(move |cx| {
        let input = cx.input::<f32>(0)?;
        let steps = dynamic.quantize(cx, input)?;
        let whole = &mut cx.temporary::<f32>(whole)?[..spread_len];
        let mut single = match single {
            Some(single) => Some(&mut cx.temporary::<f32>(single)?[..image]),
            None => None,
        };
        let (output, par) = (cx.output::<f32>(0)?, cx.parallel());
        let images =
            steps.values.chunks_exact(image.max(1)).zip(output.chunks_exact_mut((pixels * channels).max(1)));
        let mut polls = Polls::new(par);
        for (i, (steps_of_image, output)) in images.enumerate() {
            if polls.interrupted_after(steps_per_image) {
                break;
            }
            let (scale, zero) = (steps.scales[i], steps.zero_points[i]);
            let real = |step: i8| (i32::from(step) - zero) as f32;
            // Each channel is repeated for the output channels that read it.
            match &mut single {
                Some(single) => {
                    map(isa, steps_of_image, single, real);
                    spread(multiplier, single, whole, par).map_err(compute_error)?;
                }
                None => map(isa, steps_of_image, whole, real),
            }
            conv.run(&geo, whole, output, Clamp::NONE, par).map_err(compute_error)?;
            columns.scale(isa, scale, output, clamp, par).map_err(compute_error)?;
        }
        Ok(())
    })))
}

/// Returns whether input 0 is float and the weights are integers that are not quantized per block.
pub(super) fn is_hybrid(input: TensorView<'_>, weights: TensorView<'_>) -> bool {
    input.ty() == TensorType::Float32
        && matches!(weights.ty(), TensorType::Int8 | TensorType::UInt8 | TensorType::Int4 | TensorType::Int2)
        && !matches!(weights.quantization(), Some(Quantization::Blockwise { .. }))
}
