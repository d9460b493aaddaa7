//! FULLY_CONNECTED.

use delegraph_core::kernel::{Charged, Parallel, PrepareContext};
use delegraph_core::ops::fully_connected::FullyConnectedParams;
use delegraph_core::ops::{TensorType, WeightsFormat};
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Quantization, Result};

use crate::common::pace::{PIECE, Pace, Polls};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::QuantizedElement;
use crate::common::weights::{
    DynamicInput, Requantize, Weights, block_scales, channel_scales, check_bias_type, check_symmetric,
    clamp_bounds, dense_form, integer_dot, scale_zero_point, weight_scales,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::FULLY_CONNECTED, prepared(prepare), 1..=14);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    use TensorType::{Float32, Int2, Int4, Int8, Int16, Int64, UInt8};
    let p: &FullyConnectedParams = cx.params()?;
    let (input, weights, output) = (cx.input(0)?, cx.input(1)?, cx.output(0)?);
    if depth(cx)? == 0 {
        return Ok(Box::new(|cx| {
            cx.output_bytes(0)?.fill(0);
            Ok(())
        }));
    }
    // Without a bias, its declared type determines the width of the accumulator.
    let bias = cx.optional_input(2).map_or(p.quantized_bias_type, |bias| bias.ty());
    let types = (input.ty(), weights.ty(), output.ty());
    if p.weights_format == WeightsFormat::Shuffled4x16Int8 {
        return match types {
            (UInt8, UInt8, Int16) => shuffled(cx),
            (input, weights, output) => Err(Error::Unsupported(format!(
                "shuffled weights of type {weights} with input of type {input} and output of type {output}; \
                 only UINT8 weights and inputs with INT16 outputs are supported"
            ))),
        };
    }
    match types {
        (Float32, Float32, _) => float(cx),
        (Float32, Int8 | Int4 | Int2, _)
            if matches!(weights.quantization(), Some(Quantization::Blockwise { .. })) =>
        {
            blockwise(cx)
        }
        (Float32, Int8 | UInt8 | Int4 | Int2, _) => hybrid(cx),
        (UInt8, UInt8, UInt8) => uint8::<u8>(cx),
        (UInt8, UInt8, Int16) => uint8::<i16>(cx),
        (Int8, Int8 | Int4 | Int2, Int8) => int8(cx),
        (Int16, Int8 | Int4 | Int2, Int16) if bias == Int64 => int16::<i64>(cx),
        (Int16, Int8 | Int4 | Int2, Int16) => int16::<i32>(cx),
        (Int16, Int16, Int16) if bias == Int64 => int16_weights::<i64>(cx),
        (Int16, Int16, Int16) => int16_weights::<i32>(cx),
        (UInt8 | Int8 | Int16, UInt8 | Int8 | Int16 | Int4 | Int2, _) => {
            Err(unsupported_type("output", output))
        }
        (Float32 | UInt8 | Int8 | Int16, ..) => Err(unsupported_type("weights", weights)),
        _ => Err(unsupported_type("input", input)),
    }
}

/// Steps of a poll per output, beside its products.
const OUTPUT_STEPS: usize = 8;

/// For each row of `input` and each row of `weights`: `finish(input row, output channel, dot(input row, weights row))`.
fn run<I, W, A, O>(
    (parallel, depth): (&dyn Parallel, usize),
    input: &[I],
    weights: &[W],
    output: &mut [O],
    dot: impl Fn(usize, &[I], &[W]) -> A,
    finish: impl Fn(usize, usize, A) -> O,
) {
    let units = weights.len() / depth;
    if units == 0 {
        return;
    }
    let mut polls = Polls::new(parallel);
    for (row, (input, output)) in input.chunks_exact(depth).zip(output.chunks_exact_mut(units)).enumerate() {
        for (o, (out, weights)) in output.iter_mut().zip(weights.chunks_exact(depth)).enumerate() {
            if polls.interrupted_after(depth.saturating_add(OUTPUT_STEPS)) {
                return;
            }
            *out = finish(row, o, dot(row, input, weights));
        }
    }
}

fn depth(cx: &PrepareContext<'_>) -> Result<usize> {
    Ok(cx.input(1)?.shape()[1])
}

fn float(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    let (low, high) = clamp_bounds(cx.params::<FullyConnectedParams>()?.fused_activation_function)?;
    let depth = depth(cx)?;
    let dense = dense_weights(cx)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<f32>(2)?;
        let weights = match &dense {
            Some(weights) => weights,
            None => cx.input::<f32>(1)?,
        };
        let dot = |_, a: &[f32], b: &[f32]| a.iter().zip(b).fold(0f32, |sum, (a, b)| sum + a * b);
        run((cx.parallel(), depth), cx.input(0)?, weights, cx.output::<f32>(0)?, dot, |_, o, sum| {
            (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
        });
        Ok(())
    }))
}

/// Dense form of sparse weights; `None` for dense weights.
fn dense_weights(cx: &PrepareContext<'_>) -> Result<Option<Charged<f32>>> {
    let weights = cx.input(1)?;
    let sparsity = weights.tensor().sparsity.as_deref();
    sparsity.map(|sparsity| dense_form(cx.budget(), weights, sparsity)).transpose()
}

/// Float inputs and integer weights: every row is quantized while running.
fn hybrid(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    let p: &FullyConnectedParams = cx.params()?;
    let (low, high) = clamp_bounds(p.fused_activation_function)?;
    let depth = depth(cx)?;
    let units = cx.input(1)?.shape()[0];
    let scales = channel_scales(cx, weight_scales(cx.input(1)?, 0)?, units)?;
    let rows = cx.input(0)?.shape().elements() / depth;
    let dynamic = DynamicInput::new(cx, rows, depth, p.asymmetric_quantize_inputs)?;
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let input = cx.input(0)?;
        let rows = dynamic.quantize(cx, input)?;
        let bias = cx.optional_input::<f32>(2)?;
        let dot = |row: usize, a: &[i8], b: &[i8]| integer_dot(0, a, b, rows.zero_points[row], 0);
        run(
            (cx.parallel(), depth),
            rows.values,
            weights.get(cx)?,
            cx.output::<f32>(0)?,
            dot,
            |row, o, sum: i32| {
                let sum = sum as f32 * (rows.scales[row] * scales[o]);
                (sum + bias.map_or(0.0, |bias| bias[o])).clamp(low, high)
            },
        );
        Ok(())
    }))
}

/// Float inputs and integer weights with a scale per block of a row: the scaled sums of the blocks are added up. Rows
/// of the input are always quantized with a zero point.
fn blockwise(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<f32>(cx, 2)?;
    let (low, high) = clamp_bounds(cx.params::<FullyConnectedParams>()?.fused_activation_function)?;
    let depth = depth(cx)?;
    let units = cx.input(1)?.shape()[0];
    let Some((scales, block)) = block_scales(cx, 1, (units, depth))? else {
        return Err(Error::State("weights without blocks".into()));
    };
    let rows = cx.input(0)?.shape().elements() / depth;
    let dynamic = DynamicInput::new(cx, rows, depth, true)?;
    let weights = Weights::new(cx, 1)?;
    let blocks = depth / block;
    Ok(Box::new(move |cx| {
        let input = cx.input(0)?;
        let rows = dynamic.quantize(cx, input)?;
        let bias = cx.optional_input::<f32>(2)?;
        let weights = weights.get(cx)?;
        let outputs = cx.output::<f32>(0)?.chunks_exact_mut(units.max(1));
        let mut pace = Pace::new(cx);
        for (row, (input, outputs)) in rows.values.chunks_exact(depth).zip(outputs).enumerate() {
            let columns = weights.chunks_exact(depth).zip(scales.chunks_exact(blocks));
            for (o, (out, (weights, scales))) in outputs.iter_mut().zip(columns).enumerate() {
                pace.spend(depth.saturating_mul(2))?;
                // Sum of the row's steps times weights, and sum of the weights for the zero point.
                let (mut sum, mut ones) = (0f32, 0f32);
                let terms = input.chunks_exact(block).zip(weights.chunks_exact(block));
                for ((input, weights), scale) in terms.zip(scales) {
                    sum += integer_dot(0, input, weights, 0, 0) as f32 * scale;
                    ones += scale * weights.iter().map(|&w| i32::from(w)).sum::<i32>() as f32;
                }
                let value = (sum - rows.zero_points[row] as f32 * ones) * rows.scales[row];
                *out = (value + bias.map_or(0.0, |bias| bias[o])).clamp(low, high);
            }
        }
        Ok(())
    }))
}

fn requantize(cx: &PrepareContext<'_>) -> Result<Requantize> {
    let activation = cx.params::<FullyConnectedParams>()?.fused_activation_function;
    let (input, weights) = (cx.input(0)?, cx.input(1)?);
    let single = weight_scales(weights, 0)?.len() == 1;
    Requantize::new(cx.budget(), (input, weights), cx.output(0)?, 0, activation, single)
}

fn uint8<O: QuantizedElement>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    let requantize = requantize(cx)?;
    let (zero, weights_zero) = (scale_zero_point(cx.input(0)?)?.1, scale_zero_point(cx.input(1)?)?.1);
    let depth = depth(cx)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let dot = |_, a: &[u8], b: &[u8]| integer_dot(0, a, b, zero, weights_zero);
        run((cx.parallel(), depth), cx.input(0)?, cx.input(1)?, cx.output::<O>(0)?, dot, |_, o, sum: i32| {
            let value = requantize.apply_up(o, sum.wrapping_add(bias.map_or(0, |bias| bias[o])));
            O::clamped(value, O::MIN, O::MAX)
        });
        Ok(())
    }))
}

/// 8-bit weights in the layout of an old converter: blocks of 4 rows and 16 columns. The zero point of weights and
/// inputs is 128, and is already subtracted from the weights.
fn shuffled(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    check_symmetric(cx.output(0)?)?;
    let requantize = requantize(cx)?;
    let depth = depth(cx)?;
    let units = cx.input(1)?.shape()[0];
    if units % 4 != 0 || depth % 16 != 0 {
        return Err(Error::InvalidNode(format!("weights of {units}x{depth} are not multiples of 4x16")));
    }
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let (input, weights) = (cx.input::<u8>(0)?, cx.input::<u8>(1)?);
        let output = cx.output::<i16>(0)?;
        // The second output has the inputs in the layout that TFLite's kernel reads: minus 128, in blocks of four rows.
        let rows = if input.len() == 4 * depth { 4 } else { 1 };
        let mut pace = Pace::new(cx);
        for (piece, shown) in cx.output::<u8>(1)?.chunks_mut(PIECE).enumerate() {
            pace.spend(shown.len())?;
            for (i, shown) in (piece * PIECE..).zip(shown) {
                let (block, row, column) = (i / (rows * 16), i / 16 % rows, i % 16);
                *shown = input[row * depth + block * 16 + column] ^ 0x80;
            }
        }
        for (input, output) in input.chunks_exact(depth).zip(output.chunks_exact_mut(units.max(1))) {
            for (o, out) in output.iter_mut().enumerate() {
                pace.spend(depth)?;
                let row = &weights[o / 4 * 4 * depth..][..4 * depth];
                let parts = row.chunks_exact(64).map(|block| &block[o % 4 * 16..][..16]);
                let sum = input.iter().zip(parts.flatten()).fold(0i32, |sum, (&a, &b)| {
                    sum.wrapping_add((i32::from(a) - 128) * i32::from(b.cast_signed()))
                });
                *out = requantize.apply(o, sum.wrapping_add(bias.map_or(0, |bias| bias[o]))) as i16;
            }
        }
        Ok(())
    }))
}

fn int8(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<i32>(cx, 2)?;
    let requantize = requantize(cx)?;
    let (zero, weights_zero) = (scale_zero_point(cx.input(0)?)?.1, weights_zero_point(cx)?);
    let depth = depth(cx)?;
    let sparse = cx.input(1)?.tensor().sparsity.is_some();
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<i32>(2)?;
        let dot = |_, a: &[i8], b: &[i8]| integer_dot(0, a, b, zero, weights_zero);
        run(
            (cx.parallel(), depth),
            cx.input(0)?,
            weights.get(cx)?,
            cx.output::<i8>(0)?,
            dot,
            |_, o, sum: i32| {
                let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o]));
                // TFLite's kernel for sparse weights is not a matrix product, and rounds differently.
                (if sparse { requantize.apply(o, sum) } else { requantize.apply_up(o, sum) }) as i8
            },
        );
        Ok(())
    }))
}

/// Zero point of the weights; must be 0 for per-channel scales.
fn weights_zero_point(cx: &PrepareContext<'_>) -> Result<i32> {
    let weights = cx.input(1)?;
    Ok(if weight_scales(weights, 0)?.len() == 1 { scale_zero_point(weights)?.1 } else { 0 })
}

/// 16-bit activations and integer weights. The accumulator is as wide as the bias.
fn int16<B: Element + Into<i64>>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<B>(cx, 2)?;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let requantize = requantize(cx)?;
    let depth = depth(cx)?;
    let zero = weights_zero_point(cx)?;
    // With a zero point TFLite does not use a matrix product, and a missing bias means a wide accumulator.
    let wide = B::TYPE == TensorType::Int64 || (zero != 0 && cx.optional_input(2).is_none());
    let (from, to) = (scale_zero_point(cx.input(0)?)?.0, scale_zero_point(cx.output(0)?)?.0);
    let ratio = |scale: &f32| f64::from(from) * f64::from(*scale) / f64::from(to);
    let ratios = cx.budget().collect(weight_scales(cx.input(1)?, 0)?.iter().map(ratio))?;
    let (_, _, [low, high]) = requantize.parts();
    let weights = Weights::new(cx, 1)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<B>(2)?;
        let dot = |_, a: &[i16], b: &[i8]| {
            let product = |(&a, &b): (&i16, &i8)| i64::from(a) * (i64::from(b) - i64::from(zero));
            a.iter().zip(b).map(product).fold(0i64, i64::wrapping_add)
        };
        run(
            (cx.parallel(), depth),
            cx.input(0)?,
            weights.get(cx)?,
            cx.output::<i16>(0)?,
            dot,
            |_, o, sum: i64| {
                let sum = sum.wrapping_add(bias.map_or(0, |bias| bias[o].into()));
                if !wide && zero == 0 {
                    return requantize.apply_up(o, sum as i32) as i16;
                }
                // TFLite scales in double precision if it does not use its integer matrix product.
                let sum = if wide { sum as f64 } else { f64::from(sum as i32) };
                let ratio = if ratios.len() == 1 { ratios[0] } else { ratios[o] };
                ((sum * ratio).round() as i32).clamp(low, high) as i16
            },
        );
        Ok(())
    }))
}

/// 16-bit activations and weights.
fn int16_weights<B: Element + Into<i64>>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    check_bias_type::<B>(cx, 2)?;
    check_symmetric(cx.input(0)?)?;
    check_symmetric(cx.output(0)?)?;
    let requantize = requantize(cx)?;
    let depth = depth(cx)?;
    let zero = weights_zero_point(cx)?;
    Ok(Box::new(move |cx| {
        let bias = cx.optional_input::<B>(2)?;
        let dot = |_, a: &[i16], b: &[i16]| {
            let product = |(&a, &b): (&i16, &i16)| i64::from(a) * (i64::from(b) - i64::from(zero));
            a.iter().zip(b).map(product).fold(0i64, i64::wrapping_add)
        };
        run(
            (cx.parallel(), depth),
            cx.input(0)?,
            cx.input(1)?,
            cx.output::<i16>(0)?,
            dot,
            |_, o, sum: i64| {
                requantize.apply_wide(o, sum.wrapping_add(bias.map_or(0, |bias| bias[o].into()))) as i16
            },
        );
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::Activation;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(activation: Activation, keep_num_dims: bool) -> Params {
        Params::FullyConnected(
            FullyConnectedParams::default()
                .fused_activation_function(activation)
                .weights_format(WeightsFormat::Default)
                .keep_num_dims(keep_num_dims)
                .asymmetric_quantize_inputs(false)
                .quantized_bias_type(TensorType::Float32),
        )
    }

    #[test]
    fn floats() {
        let input = || Some(T::new(&[2, 1, 2], &[1f32, 2.0, -3.0, 4.0]));
        let weights = || Some(T::new(&[3, 2], &[1f32, 0.0, 0.0, 1.0, 1.0, 1.0]).constant());
        let bias = Some(T::new(&[3], &[0f32, 10.0, 100.0]).constant());
        let output = T::new(&[2, 3], &[1f32, 12.0, 103.0, 0.0, 14.0, 101.0]);
        let relu = params(Activation::Relu, false);
        check(BuiltinOp::FULLY_CONNECTED, 1, relu, &[input(), weights(), bias], &[output]);
        let output = T::new(&[2, 1, 3], &[1f32, 2.0, 3.0, -3.0, 4.0, 1.0]);
        let keep = params(Activation::None, true);
        check(BuiltinOp::FULLY_CONNECTED, 6, keep, &[input(), weights(), None], &[output]);
    }

    #[test]
    fn float_inputs_on_integer_weights() {
        let input = Some(T::new(&[1, 2], &[127f32, -63.5]));
        let weights = Some(T::new(&[1, 2], &[2i8, 4]).quantized(0.5, 0).constant());
        // 127 steps of 1 and -64 of 1 (-63.5, ties away from zero) times 1 and 2.
        let output = T::new(&[1, 1], &[-1f32]);
        check(
            BuiltinOp::FULLY_CONNECTED,
            3,
            params(Activation::None, false),
            &[input, weights, None],
            &[output],
        );
    }

    #[test]
    fn quantized() {
        let input = Some(T::new(&[1, 2], &[3i8, 5]).quantized(0.5, 1));
        let weights = Some(T::new(&[2, 2], &[1i8, 2, -3, 4]).quantized(0.5, 0).constant());
        let bias = Some(T::new(&[2], &[0i32, 8]).constant());
        // Accumulators 2·1 + 4·2 = 10 and 2·-3 + 4·4 + 8 = 18 at scale 0.25; output steps of 0.5.
        let output = T::new(&[1, 2], &[4i8, 8]).quantized(0.5, -1);
        let relu = params(Activation::Relu, false);
        check(BuiltinOp::FULLY_CONNECTED, 4, relu, &[input, weights, bias], &[output]);
    }

    #[test]
    fn sixteen_bits_without_a_bias_are_as_wide_as_it_would_be() {
        let wide = FullyConnectedParams::default().quantized_bias_type(TensorType::Int64);
        // 50 · 100 · 0.0007 is a little below 3.5, as the scale is a little below 0.0007; rounding twice hides it.
        for (params, sum) in [(wide, 3i16), (FullyConnectedParams::default(), 4)] {
            let input = Some(T::new(&[1, 1], &[50i16]).quantized(1.0, 0));
            let weights = Some(T::new(&[1, 1], &[100i8]).quantized(0.0007, 0).constant());
            let output = T::new(&[1, 1], &[sum]).quantized(1.0, 0);
            let params = Params::FullyConnected(params);
            check(BuiltinOp::FULLY_CONNECTED, 4, params, &[input, weights, None], &[output]);
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let text = error(
            BuiltinOp::FULLY_CONNECTED,
            1,
            params(Activation::None, false),
            &[Some(T::new(&[3], &[0f32; 3])), Some(T::new(&[1, 2], &[0f32; 2])), None],
            &[T::new(&[1, 1], &[0f32])],
        );
        assert!(text.contains("weights of 1x2 do not fit an input of [3]"), "{text}");
    }
}
