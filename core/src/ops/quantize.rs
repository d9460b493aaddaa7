//! QUANTIZE, DEQUANTIZE, FAKE_QUANT.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError, TensorType, read_none,
};

/// `QUANTIZE`.
pub static QUANTIZE: OpDef = OpDef {
    op: BuiltinOp::QUANTIZE,
    family: "quantize",
    read: read_none,
    infer: infer_quantize,
    history: &[(1, "1.14.0"), (2, "1.15.0"), (3, "2.7.0"), (4, "2.21.0"), (5, "2.21.0"), (6, "2.21.0")],
};

/// `DEQUANTIZE`.
pub static DEQUANTIZE: OpDef = OpDef {
    op: BuiltinOp::DEQUANTIZE,
    family: "quantize",
    read: read_none,
    infer: infer_dequantize,
    history: &[(1, "1.13.1"), (2, "1.14.0"), (3, "1.15.0"), (4, "2.2.0"), (5, "2.7.0"), (6, "2.18.0"), (7, "2.21.0"), (8, "2.22.0"), (9, "2.23.0")],
};

/// `FAKE_QUANT`.
pub static FAKE_QUANT: OpDef = OpDef {
    op: BuiltinOp::FAKE_QUANT,
    family: "quantize",
    read: read_fake_quant,
    infer: infer_fake_quant,
    history: &[(1, "1.5.0"), (2, "1.10.0")],
};

/// Params of FAKE_QUANT.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeQuantParams {
    /// The lowest value that must be representable.
    pub min: f32,
    /// The highest value that must be representable.
    pub max: f32,
    /// Bits of the quantized type that is imitated.
    pub num_bits: i32,
    /// Whether the lowest quantized value is left out. Since version 2; false before.
    pub narrow_range: bool,
}

fn read_fake_quant(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_fake_quant_options())?;
    Ok(Params::FakeQuant(FakeQuantParams {
        min: t.min(),
        max: t.max(),
        num_bits: t.num_bits(),
        narrow_range: t.narrow_range(),
    }))
}

/// Floats become quantized, or quantized values get another scale: the output's type is what the file declares.
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

/// Floats stay floats.
fn infer_fake_quant(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let p: &FakeQuantParams = cx.params()?;
    let spans_zero = p.min <= 0.0 && p.max >= 0.0 && p.min < p.max && (p.max - p.min).is_finite();
    if !(2..=16).contains(&p.num_bits) || !spans_zero {
        return Err(InferError::new(format!("{} bits cannot span {} to {} around 0", p.num_bits, p.min, p.max)));
    }
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
