//! Elementwise ops of one input: ABS, CEIL, COS, EXP, FLOOR, LOG, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE,
//! LOGICAL_NOT, ZEROS_LIKE, and the activations RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, LOGISTIC, TANH, HARD_SWISH,
//! ELU, GELU, LEAKY_RELU.

use smallvec::smallvec;

use super::{
    BuiltinOp, Codec, InferContext, InferResult, Inferred, OpDef, OpSignature, TensorType, always_1,
    lowest_with, options, per_output,
};
use crate::schema::BuiltinOptions;

/// `ABS`.
pub static ABS: OpDef = OpDef {
    op: BuiltinOp::ABS,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::AbsOptions),
    infer,
    min_version: min_version_abs,
    multiply_adds: per_output,
    history: &[(1, "1.13.0"), (2, "2.4.0"), (3, "2.5.0"), (4, "2.6.0"), (5, "2.12.0")],
};

/// `CEIL`.
pub static CEIL: OpDef = OpDef {
    op: BuiltinOp::CEIL,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.14.0")],
};

/// `COS`.
pub static COS: OpDef = OpDef {
    op: BuiltinOp::COS,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::CosOptions),
    infer,
    min_version: min_version_sin,
    multiply_adds: per_output,
    history: &[(1, "1.14.0"), (2, "2.23.0")],
};

/// `EXP`.
pub static EXP: OpDef = OpDef {
    op: BuiltinOp::EXP,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::ExpOptions),
    infer,
    min_version: min_version_exp,
    multiply_adds: per_output,
    history: &[(1, "1.7.0"), (2, "2.12.0")],
};

/// `FLOOR`.
pub static FLOOR: OpDef = OpDef {
    op: BuiltinOp::FLOOR,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.9.0")],
};

/// `LOG`.
pub static LOG: OpDef = OpDef {
    op: BuiltinOp::LOG,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_exp,
    multiply_adds: per_output,
    history: &[(1, "1.14.0"), (2, "2.15.0")],
};

/// `NEG`.
pub static NEG: OpDef = OpDef {
    op: BuiltinOp::NEG,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::NegOptions),
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.9.0")],
};

/// `ROUND`.
pub static ROUND: OpDef = OpDef {
    op: BuiltinOp::ROUND,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.14.0")],
};

/// `RSQRT`.
pub static RSQRT: OpDef = OpDef {
    op: BuiltinOp::RSQRT,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_8_then_16_bit,
    multiply_adds: per_output,
    history: &[(1, "1.10.0"), (2, "2.5.0"), (3, "2.15.0")],
};

/// `SIGN`.
pub static SIGN: OpDef = OpDef {
    op: BuiltinOp::SIGN,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::SignOptions),
    infer,
    min_version: min_version_sign,
    multiply_adds: per_output,
    history: &[(1, "2.11.0"), (2, "2.12.0")],
};

/// `SIN`.
pub static SIN: OpDef = OpDef {
    op: BuiltinOp::SIN,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_sin,
    multiply_adds: per_output,
    history: &[(1, "1.9.0"), (2, "2.23.0")],
};

/// `SQRT`.
pub static SQRT: OpDef = OpDef {
    op: BuiltinOp::SQRT,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_exp,
    multiply_adds: per_output,
    history: &[(1, "1.10.0"), (2, "2.21.0")],
};

/// `SQUARE`.
pub static SQUARE: OpDef = OpDef {
    op: BuiltinOp::SQUARE,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::SquareOptions),
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.12.0")],
};

/// `LOGICAL_NOT`.
pub static LOGICAL_NOT: OpDef = OpDef {
    op: BuiltinOp::LOGICAL_NOT,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::LogicalNotOptions),
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.11.0")],
};

/// `ZEROS_LIKE`.
pub static ZEROS_LIKE: OpDef = OpDef {
    op: BuiltinOp::ZEROS_LIKE,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::ZerosLikeOptions),
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.12.0")],
};

/// `RELU`.
pub static RELU: OpDef = OpDef {
    op: BuiltinOp::RELU,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_relu,
    multiply_adds: per_output,
    history: &[(1, "1.5.0"), (2, "2.1.0"), (3, "2.5.0")],
};

/// `RELU6`.
pub static RELU6: OpDef = OpDef {
    op: BuiltinOp::RELU6,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_8_then_16_bit,
    multiply_adds: per_output,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.5.0")],
};

/// `RELU_N1_TO_1`.
pub static RELU_N1_TO_1: OpDef = OpDef {
    op: BuiltinOp::RELU_N1_TO_1,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.5.0")],
};

/// `RELU_0_TO_1`.
pub static RELU_0_TO_1: OpDef = OpDef {
    op: BuiltinOp::RELU_0_TO_1,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "2.10.0")],
};

/// `LOGISTIC`.
pub static LOGISTIC: OpDef = OpDef {
    op: BuiltinOp::LOGISTIC,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_8_then_16_bit,
    multiply_adds: per_output,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `TANH`.
pub static TANH: OpDef = OpDef {
    op: BuiltinOp::TANH,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: min_version_8_then_16_bit,
    multiply_adds: per_output,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `HARD_SWISH`.
pub static HARD_SWISH: OpDef = OpDef {
    op: BuiltinOp::HARD_SWISH,
    family: "unary",
    codec: Codec::empty(BuiltinOptions::HardSwishOptions),
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.15.0")],
};

/// `ELU`.
pub static ELU: OpDef = OpDef {
    op: BuiltinOp::ELU,
    family: "unary",
    codec: Codec::NONE,
    infer,
    min_version: always_1,
    multiply_adds: per_output,
    history: &[(1, "1.14.0")],
};

/// `GELU`.
pub static GELU: OpDef = OpDef {
    op: BuiltinOp::GELU,
    family: "unary",
    codec: GeluParams::CODEC,
    infer,
    min_version: min_version_gelu,
    multiply_adds: per_output,
    history: &[(1, "2.9.0"), (2, "2.9.0"), (3, "2.23.0")],
};

/// `LEAKY_RELU`.
pub static LEAKY_RELU: OpDef = OpDef {
    op: BuiltinOp::LEAKY_RELU,
    family: "unary",
    codec: LeakyReluParams::CODEC,
    infer,
    min_version: min_version_leaky_relu,
    multiply_adds: per_output,
    history: &[(1, "1.13.1"), (2, "2.3.0")],
};

options! {
    /// Params of GELU.
    Gelu(GeluParams) in BuiltinOptions::GeluOptions(builtin_options_as_gelu_options, GeluOptionsArgs) {
        /// By `tanh` instead of the error function.
        approximate: bool;
    }
}

options! {
    /// Params of LEAKY_RELU.
    LeakyRelu(LeakyReluParams) in BuiltinOptions::LeakyReluOptions(builtin_options_as_leaky_relu_options, LeakyReluOptionsArgs) {
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

/// 8-bit, quantized 16-bit, plain 16-bit and 32-bit came one after the other.
fn min_version_abs(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, Int32, UInt8};
    lowest_with(&[
        (2, s.input_is(0, &[Int8, UInt8])),
        (3, s.input_is(0, &[Int16]) && s.quantized(0)),
        (4, s.input_is(0, &[Int16]) && !s.quantized(0)),
        (5, s.input_is(0, &[Int32])),
    ])
}

/// 8-bit came with version 2, 16-bit with version 3.
fn min_version_relu(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16, UInt8};
    lowest_with(&[(2, s.input_is(0, &[Int8, UInt8])), (3, s.input_is(0, &[Int16]))])
}

/// Signed 8-bit came with version 2, 16-bit with version 3.
fn min_version_8_then_16_bit(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}

/// 16-bit came with version 2.
fn min_version_leaky_relu(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int16;
    lowest_with(&[(2, s.input_is(0, &[Int16]))])
}

/// 8-bit came with version 2, float16 with version 3.
fn min_version_gelu(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float16, Int8, UInt8};
    lowest_with(&[(2, s.input_is(0, &[Int8, UInt8])), (3, s.input_is(0, &[Float16]))])
}

/// Integers came with version 2.
fn min_version_sign(s: &OpSignature<'_>) -> u32 {
    use TensorType::Int32;
    lowest_with(&[(2, s.input_is(0, &[Int32]))])
}

/// float16 came with version 2.
fn min_version_sin(s: &OpSignature<'_>) -> u32 {
    use TensorType::Float16;
    lowest_with(&[(2, s.input_is(0, &[Float16]))])
}

/// Quantized values came with version 2.
fn min_version_exp(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8, Int16]))])
}
