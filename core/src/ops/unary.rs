//! Elementwise ops of one input: ABS, CEIL, COS, EXP, FLOOR, LOG, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE,
//! LOGICAL_NOT, ZEROS_LIKE, and the activations RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, LOGISTIC, TANH, HARD_SWISH,
//! ELU, GELU, LEAKY_RELU.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferResult, Inferred, OpSignature, TensorType, always_1, lowest_with, options,
    per_output,
};
use crate::schema::BuiltinOptions;

ops! {
    ABS {
        codec: Codec::empty(BuiltinOptions::AbsOptions),
        infer,
        min_version: min_version_abs,
        multiply_adds: per_output,
        history: &[(1, "1.13.0"), (2, "2.4.0"), (3, "2.5.0"), (4, "2.6.0"), (5, "2.12.0")],
    }

    CEIL {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.14.0")],
    }

    COS {
        codec: Codec::empty(BuiltinOptions::CosOptions),
        infer,
        min_version: min_version_sin,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "2.23.0")],
    }

    EXP {
        codec: Codec::empty(BuiltinOptions::ExpOptions),
        infer,
        min_version: min_version_exp,
        multiply_adds: per_output,
        history: &[(1, "1.7.0"), (2, "2.12.0")],
    }

    FLOOR {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.9.0")],
    }

    LOG {
        codec: Codec::NONE,
        infer,
        min_version: min_version_exp,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "2.15.0")],
    }

    NEG {
        codec: Codec::empty(BuiltinOptions::NegOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.9.0")],
    }

    ROUND {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.14.0")],
    }

    RSQRT {
        codec: Codec::NONE,
        infer,
        min_version: min_version_8_then_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.10.0"), (2, "2.5.0"), (3, "2.15.0")],
    }

    SIGN {
        codec: Codec::empty(BuiltinOptions::SignOptions),
        infer,
        min_version: min_version_sign,
        multiply_adds: per_output,
        history: &[(1, "2.11.0"), (2, "2.12.0")],
    }

    SIN {
        codec: Codec::NONE,
        infer,
        min_version: min_version_sin,
        multiply_adds: per_output,
        history: &[(1, "1.9.0"), (2, "2.23.0")],
    }

    SQRT {
        codec: Codec::NONE,
        infer,
        min_version: min_version_exp,
        multiply_adds: per_output,
        history: &[(1, "1.10.0"), (2, "2.21.0")],
    }

    SQUARE {
        codec: Codec::empty(BuiltinOptions::SquareOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.12.0")],
    }

    LOGICAL_NOT {
        codec: Codec::empty(BuiltinOptions::LogicalNotOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.11.0")],
    }

    ZEROS_LIKE {
        codec: Codec::empty(BuiltinOptions::ZerosLikeOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.12.0")],
    }

    RELU {
        codec: Codec::NONE,
        infer,
        min_version: min_version_relu,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "2.1.0"), (3, "2.5.0")],
    }

    RELU6 {
        codec: Codec::NONE,
        infer,
        min_version: min_version_8_then_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.5.0")],
    }

    RELU_N1_TO_1 {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.5.0")],
    }

    RELU_0_TO_1 {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "2.10.0")],
    }

    LOGISTIC {
        codec: Codec::NONE,
        infer,
        min_version: min_version_8_then_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    TANH {
        codec: Codec::NONE,
        infer,
        min_version: min_version_8_then_16_bit,
        multiply_adds: per_output,
        history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
    }

    HARD_SWISH {
        codec: Codec::empty(BuiltinOptions::HardSwishOptions),
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.15.0")],
    }

    ELU {
        codec: Codec::NONE,
        infer,
        min_version: always_1,
        multiply_adds: per_output,
        history: &[(1, "1.14.0")],
    }

    GELU {
        codec: GeluParams::CODEC,
        infer,
        min_version: min_version_gelu,
        multiply_adds: per_output,
        history: &[(1, "2.9.0"), (2, "2.9.0"), (3, "2.23.0")],
    }

    LEAKY_RELU {
        codec: LeakyReluParams::CODEC,
        infer,
        min_version: min_version_leaky_relu,
        multiply_adds: per_output,
        history: &[(1, "1.13.1"), (2, "2.3.0")],
    }
}

options! {
    /// Params of GELU.
    Gelu(GeluParams) in BuiltinOptions::GeluOptions(builtin_options_as_gelu_options, GeluOptionsArgs) as TfLiteGeluParams {
        /// Whether it is computed with `tanh` instead of the error function.
        approximate: bool;
    }
}

options! {
    /// Params of LEAKY_RELU.
    LeakyRelu(LeakyReluParams) in BuiltinOptions::LeakyReluOptions(builtin_options_as_leaky_relu_options, LeakyReluOptionsArgs) as TfLiteLeakyReluParams {
        /// The slope below 0.
        alpha: f32;
    }
}

/// The output has the input's type and shape.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// Versions added 8-bit, quantized 16-bit, plain 16-bit and 32-bit, in this order.
fn min_version_abs(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, Int32, UInt8};
    lowest_with(&[
        (2, s.input_is(0, &[Int8, UInt8])),
        (3, s.input_is(0, &[Int16]) && s.quantized(0)),
        (4, s.input_is(0, &[Int16]) && !s.quantized(0)),
        (5, s.input_is(0, &[Int32])),
    ])
}

/// Version 2 added 8-bit, version 3 16-bit.
fn min_version_relu(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, UInt8};
    lowest_with(&[(2, s.input_is(0, &[Int8, UInt8])), (3, s.input_is(0, &[Int16]))])
}

/// Version 2 added signed 8-bit, version 3 16-bit.
fn min_version_8_then_16_bit(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}

/// Version 2 added 16-bit.
fn min_version_leaky_relu(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    lowest_with(&[(2, s.input_is(0, &[Int16]))])
}

/// Version 2 added 8-bit, version 3 float16.
fn min_version_gelu(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float16, Int8, UInt8};
    lowest_with(&[(2, s.input_is(0, &[Int8, UInt8])), (3, s.input_is(0, &[Float16]))])
}

/// Version 2 added integers.
fn min_version_sign(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int32;
    lowest_with(&[(2, s.input_is(0, &[Int32]))])
}

/// Version 2 added float16.
fn min_version_sin(s: &OpSignature<'_>) -> u32 {
    use TensorType::Float16;
    lowest_with(&[(2, s.input_is(0, &[Float16]))])
}

/// Version 2 added quantized values.
fn min_version_exp(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8, Int16]))])
}
