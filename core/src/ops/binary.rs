//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR,
//! RIGHT_SHIFT.

use smallvec::smallvec;

use super::{
    Activation, Codec, InferContext, InferError, InferResult, Inferred, OpSignature, Operand, TensorType,
    always_1, lowest_with, options, per_output,
};
use crate::schema::BuiltinOptions;
use crate::types::shape::{Shape, broadcast};

ops! {
    ADD {
        codec: AddParams::CODEC,
        infer,
        min_version: min_version_add,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.4.0"), (4, "2.6.0"), (5, "2.13.0"), (6, "2.23.0")],
    }

    SUB {
        codec: SubParams::CODEC,
        infer,
        min_version: min_version_sub,
        multiply_adds: per_output,
        history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.4.0"), (5, "2.4.0")],
    }

    MUL {
        codec: MulParams::CODEC,
        infer: infer_mul,
        min_version: min_version_mul,
        multiply_adds: per_output,
        history: &[
            (1, "1.5.0"),
            (2, "1.14.0"),
            (3, "1.15.0"),
            (4, "2.3.0"),
            (5, "2.6.0"),
            (6, "2.11.0"),
            (7, "2.13.0"),
            (8, "2.23.0"),
        ],
    }

    DIV {
        codec: DivParams::CODEC,
        infer,
        min_version: min_version_div,
        multiply_adds: per_output,
        history: &[(1, "1.6.0"), (2, "2.3.0")],
    }

    MAXIMUM {
        codec: Codec::empty(BuiltinOptions::MaximumMinimumOptions),
        infer,
        min_version: min_version_extremum,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.3.0")],
    }

    MINIMUM {
        codec: Codec::empty(BuiltinOptions::MaximumMinimumOptions),
        infer,
        min_version: min_version_extremum,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.3.0")],
    }

    POW {
        codec: Codec::empty(BuiltinOptions::PowOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.10.0")],
    }

    SQUARED_DIFFERENCE {
        codec: Codec::empty(BuiltinOptions::SquaredDifferenceOptions),
        infer,
        min_version: min_version_squared_difference,
        multiply_adds: per_output,
        history: &[(1, "1.13.1"), (2, "2.5.0")],
    }

    FLOOR_DIV {
        codec: Codec::empty(BuiltinOptions::FloorDivOptions),
        infer,
        min_version: min_version_floor_div,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
    }

    FLOOR_MOD {
        codec: Codec::empty(BuiltinOptions::FloorModOptions),
        infer,
        min_version: min_version_floor_mod,
        multiply_adds: per_output,
        history: &[(1, "1.13.0"), (2, "2.13.0")],
    }

    ATAN2 {
        codec: Codec::empty(BuiltinOptions::ATan2Options),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.10.0")],
    }

    BITWISE_XOR {
        codec: Codec::empty(BuiltinOptions::BitwiseXorOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.13.0")],
    }

    RIGHT_SHIFT {
        codec: Codec::empty(BuiltinOptions::RightShiftOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.13.0")],
    }
}

options! {
    /// Params of ADD.
    Add(AddParams) in BuiltinOptions::AddOptions(builtin_options_as_add_options, AddOptionsArgs) as TfLiteAddParams {
        /// Applied to the result.
        fused_activation_function: Activation;
        /// Whether 16-bit scales that are powers of two are computed with shifts alone.
        pot_scale_int16: bool, since 3;
    }
}

options! {
    /// Params of SUB.
    Sub(SubParams) in BuiltinOptions::SubOptions(builtin_options_as_sub_options, SubOptionsArgs) as TfLiteSubParams {
        /// Applied to the result.
        fused_activation_function: Activation;
        /// Whether 16-bit scales that are powers of two are computed with shifts alone.
        pot_scale_int16: bool, since 5;
    }
}

options! {
    /// Params of MUL.
    Mul(MulParams) in BuiltinOptions::MulOptions(builtin_options_as_mul_options, MulOptionsArgs) as TfLiteMulParams {
        /// Applied to the result.
        fused_activation_function: Activation;
    }
}

options! {
    /// Params of DIV.
    Div(DivParams) in BuiltinOptions::DivOptions(builtin_options_as_div_options, DivOptionsArgs) as TfLiteDivParams {
        /// Applied to the result.
        fused_activation_function: Activation;
    }
}

/// Two inputs of one type that broadcast to the output.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let shape = broadcast_inputs(cx)?;
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, shape)])
}

/// 16-bit inputs may give an 8-bit output.
fn infer_mul(cx: &InferContext<'_>) -> InferResult {
    let mut outputs = infer(cx)?;
    if let (TensorType::Int16, Some(declared)) = (cx.input(0)?.ty, cx.outputs.first())
        && matches!(declared.ty, TensorType::Int8 | TensorType::UInt8)
    {
        outputs.iter_mut().for_each(|o| o.ty = declared.ty);
    }
    Ok(outputs)
}

/// Returns the shape that inputs 0 and 1, which must have one type, broadcast to.
pub(crate) fn broadcast_inputs(cx: &InferContext<'_>) -> Result<Shape, InferError> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.ty != b.ty {
        return Err(InferError::new(format!("the inputs have different types, {} and {}", a.ty, b.ty)));
    }
    let (a, b) = (a.shape, b.shape);
    broadcast(a, b).ok_or_else(|| InferError::new(format!("{a} and {b} do not broadcast")))
}

/// Versions added 8-bit, 16-bit with any scale, 64-bit, plain 16-bit and float16, in this order.
fn min_version_add(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float16, Int8, Int16, Int64};
    let p = s.params::<AddParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16]) && p.is_some_and(|p| !p.pot_scale_int16)),
        (4, s.input_is(0, &[Int64])),
        (5, s.input_is(0, &[Int16]) && !s.quantized(0)),
        (6, s.input_is(0, &[Float16])),
    ])
}

/// Versions added 8-bit, broadcasting beyond rank 4, 64-bit, and 16-bit with any scale, in this order.
fn min_version_sub(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, Int64};
    let p = s.params::<SubParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.broadcasts_beyond_rank_4()),
        (4, s.input_is(0, &[Int64])),
        (5, s.input_is(0, &[Int16]) && p.is_some_and(|p| !p.pot_scale_int16)),
    ])
}

/// Versions added 8-bit, a product scale of 1 and more, 16-bit, 64-bit, complex, unsigned and plain 16-bit, and
/// float16, in this order.
fn min_version_mul(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Complex64, Float16, Int8, Int16, Int64, UInt32};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, rescales_up(s)),
        (4, s.input_is(0, &[Int16])),
        (5, s.input_is(0, &[Int64])),
        (6, s.input_is(0, &[Complex64])),
        (7, s.input_is(0, &[UInt32]) || (s.input_is(0, &[Int16]) && !s.quantized(0) && !s.quantized(1))),
        (8, s.input_is(0, &[Float16])),
    ])
}

/// Returns whether the product of the input scales is at least the output's scale.
fn rescales_up(s: &OpSignature<'_>) -> bool {
    let scale = |t: Option<&Operand<'_>>| {
        t.and_then(|t| t.quantization?.affine()?.scales.first().copied()).filter(|&scale| scale != 0.0)
    };
    match (scale(s.input(0)), scale(s.input(1)), scale(s.outputs.first())) {
        (Some(a), Some(b), Some(out)) => a * b / out >= 1.0,
        _ => false,
    }
}

/// Version 2 added broadcasting beyond rank 4.
fn min_version_div(s: &OpSignature<'_>) -> u32 {
    lowest_with(&[(2, s.broadcasts_beyond_rank_4())])
}

/// Versions added 8-bit, broadcasting beyond rank 4, and 16-bit, in this order.
fn min_version_extremum(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.broadcasts_beyond_rank_4()),
        (4, s.input_is(0, &[Int16])),
    ])
}

/// Version 2 added floats, version 3 small integers.
fn min_version_floor_div(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float32, Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Float32])), (3, s.input_is(0, &[Int8, Int16]))])
}

/// Version 2 added small integers.
fn min_version_floor_mod(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8, Int16]))])
}

/// Version 2 added 8-bit.
fn min_version_squared_difference(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int8;
    lowest_with(&[(2, s.input_is(0, &[Int8]))])
}
