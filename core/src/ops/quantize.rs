//! QUANTIZE, DEQUANTIZE, FAKE_QUANT.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, options,
    per_output,
};
use crate::schema::BuiltinOptions;

ops! {
    QUANTIZE {
        codec: Codec::empty(BuiltinOptions::QuantizeOptions),
        infer: infer_quantize,
        min_version: min_version_quantize,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.15.0"), (3, "2.7.0"), (4, "2.21.0"), (5, "2.21.0"), (6, "2.21.0")],
    }

    DEQUANTIZE {
        codec: Codec::empty(BuiltinOptions::DequantizeOptions),
        infer: infer_dequantize,
        min_version: min_version_dequantize,
        multiply_adds: per_output,
        history: &[
            (1, "1.13.1"),
            (2, "1.14.0"),
            (3, "1.15.0"),
            (4, "2.2.0"),
            (5, "2.7.0"),
            (6, "2.18.0"),
            (7, "2.21.0"),
            (8, "2.22.0"),
            (9, "2.23.0"),
        ],
    }

    FAKE_QUANT {
        codec: FakeQuantParams::CODEC,
        infer: infer_fake_quant,
        min_version: min_version_fake_quant,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "1.10.0")],
    }
}

options! {
    /// Params of FAKE_QUANT.
    FakeQuant(FakeQuantParams) in BuiltinOptions::FakeQuantOptions(builtin_options_as_fake_quant_options, FakeQuantOptionsArgs) as TfLiteFakeQuantParams {
        /// The lowest value that must be representable.
        min: f32;
        /// The highest value that must be representable.
        max: f32;
        /// Bits of the quantized type that is imitated.
        num_bits: i32;
        /// Whether the lowest quantized value is left out. Since version 2; false before.
        narrow_range: bool, since 2;
    }
}

/// Floats become quantized, or quantized values get another scale. The output has the type that the file declares.
fn infer_quantize(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let (input, output) = (cx.input(0)?, &cx.outputs[0]);
    if output.quantization.is_none() {
        return Err(InferError::new("the output has no scale"));
    }
    if input.ty != TensorType::Float32 && input.quantization.is_none() {
        return Err(InferError::new(format!("the {} input has no scale", input.ty)));
    }
    Ok(smallvec![Inferred::known(output.ty, input.shape.clone())])
}

/// Quantized values or narrow floats become float32.
fn infer_dequantize(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    if !input.ty.is_float() && input.quantization.is_none() {
        return Err(InferError::new(format!("the {} input has no scale", input.ty)));
    }
    Ok(smallvec![Inferred::known(TensorType::Float32, input.shape.clone())])
}

/// The input, rounded as by quantization: type and shape stay the same.
fn infer_fake_quant(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let p: &FakeQuantParams = cx.params()?;
    let spans_zero = p.min <= 0.0 && p.max >= 0.0 && p.min < p.max && (p.max - p.min).is_finite();
    if !(2..=16).contains(&p.num_bits) || !spans_zero {
        return Err(InferError::new(format!(
            "{} bits cannot span {} to {} around 0",
            p.num_bits, p.min, p.max
        )));
    }
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// Versions added 16-bit, a scale per channel and 4-bit, in this order.
fn min_version_quantize(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int4, Int16, UInt4};
    lowest_with(&[
        (2, s.output_is(0, &[Int16])),
        (3, s.outputs.first().is_some_and(|t| t.scales() > 1)),
        (4, s.input_is(0, &[Int4]) || s.output_is(0, &[Int4])),
        (5, s.input_is(0, &[UInt4]) || s.output_is(0, &[UInt4])),
    ])
}

/// Several versions added types; version 5 added a scale per channel.
fn min_version_dequantize(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float8E4M3FN, Float8E5M2, Float16, Int2, Int4, Int8, Int16, UInt4};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16, Float16])),
        (5, s.input_is(0, &[Int8]) && s.input(0).is_some_and(|t| t.scales() > 1)),
        (6, s.input_is(0, &[Int4])),
        (7, s.input_is(0, &[Int2])),
        (8, s.input_is(0, &[UInt4])),
        (9, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Version 2 added the narrow range.
fn min_version_fake_quant(s: &OpSignature<'_>) -> u32 {
    let p = s.params::<FakeQuantParams>();
    lowest_with(&[(2, p.is_some_and(|p| p.narrow_range))])
}
