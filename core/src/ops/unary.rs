//! Elementwise ops of one input: ABS, CEIL, COS, EXP, FLOOR, LOG, NEG, ROUND, RSQRT, SIGN, SIN, SQRT, SQUARE,
//! LOGICAL_NOT, ZEROS_LIKE, and the activations RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1, LOGISTIC, TANH, HARD_SWISH,
//! ELU, GELU, LEAKY_RELU.

use smallvec::smallvec;

use super::{BuiltinOp, InferContext, InferResult, Inferred, OpDef, Options, Params, ReadError, read_none};

/// `ABS`.
pub static ABS: OpDef = OpDef {
    op: BuiltinOp::ABS,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.13.0"), (2, "2.4.0"), (3, "2.5.0"), (4, "2.6.0"), (5, "2.12.0")],
};

/// `CEIL`.
pub static CEIL: OpDef =
    OpDef { op: BuiltinOp::CEIL, family: "unary", read: read_none, infer, history: &[(1, "1.14.0")] };

/// `COS`.
pub static COS: OpDef = OpDef {
    op: BuiltinOp::COS,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "2.23.0")],
};

/// `EXP`.
pub static EXP: OpDef = OpDef {
    op: BuiltinOp::EXP,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.7.0"), (2, "2.12.0")],
};

/// `FLOOR`.
pub static FLOOR: OpDef =
    OpDef { op: BuiltinOp::FLOOR, family: "unary", read: read_none, infer, history: &[(1, "1.9.0")] };

/// `LOG`.
pub static LOG: OpDef = OpDef {
    op: BuiltinOp::LOG,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "2.15.0")],
};

/// `NEG`.
pub static NEG: OpDef =
    OpDef { op: BuiltinOp::NEG, family: "unary", read: read_none, infer, history: &[(1, "1.9.0")] };

/// `ROUND`.
pub static ROUND: OpDef =
    OpDef { op: BuiltinOp::ROUND, family: "unary", read: read_none, infer, history: &[(1, "1.14.0")] };

/// `RSQRT`.
pub static RSQRT: OpDef = OpDef {
    op: BuiltinOp::RSQRT,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.10.0"), (2, "2.5.0"), (3, "2.15.0")],
};

/// `SIGN`.
pub static SIGN: OpDef = OpDef {
    op: BuiltinOp::SIGN,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "2.11.0"), (2, "2.12.0")],
};

/// `SIN`.
pub static SIN: OpDef = OpDef {
    op: BuiltinOp::SIN,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.9.0"), (2, "2.23.0")],
};

/// `SQRT`.
pub static SQRT: OpDef = OpDef {
    op: BuiltinOp::SQRT,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.10.0"), (2, "2.21.0")],
};

/// `SQUARE`.
pub static SQUARE: OpDef = OpDef {
    op: BuiltinOp::SQUARE,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.12.0")],
};

/// `LOGICAL_NOT`.
pub static LOGICAL_NOT: OpDef = OpDef {
    op: BuiltinOp::LOGICAL_NOT,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.11.0")],
};

/// `ZEROS_LIKE`.
pub static ZEROS_LIKE: OpDef = OpDef {
    op: BuiltinOp::ZEROS_LIKE,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.12.0")],
};

/// `RELU`.
pub static RELU: OpDef = OpDef {
    op: BuiltinOp::RELU,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.5.0"), (2, "2.1.0"), (3, "2.5.0")],
};

/// `RELU6`.
pub static RELU6: OpDef = OpDef {
    op: BuiltinOp::RELU6,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.5.0")],
};

/// `RELU_N1_TO_1`.
pub static RELU_N1_TO_1: OpDef = OpDef {
    op: BuiltinOp::RELU_N1_TO_1,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.5.0")],
};

/// `RELU_0_TO_1`.
pub static RELU_0_TO_1: OpDef = OpDef {
    op: BuiltinOp::RELU_0_TO_1,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "2.10.0")],
};

/// `LOGISTIC`.
pub static LOGISTIC: OpDef = OpDef {
    op: BuiltinOp::LOGISTIC,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `TANH`.
pub static TANH: OpDef = OpDef {
    op: BuiltinOp::TANH,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0")],
};

/// `HARD_SWISH`.
pub static HARD_SWISH: OpDef = OpDef {
    op: BuiltinOp::HARD_SWISH,
    family: "unary",
    read: read_none,
    infer,
    history: &[(1, "1.15.0")],
};

/// `ELU`.
pub static ELU: OpDef =
    OpDef { op: BuiltinOp::ELU, family: "unary", read: read_none, infer, history: &[(1, "1.14.0")] };

/// `GELU`.
pub static GELU: OpDef = OpDef {
    op: BuiltinOp::GELU,
    family: "unary",
    read: read_gelu,
    infer,
    history: &[(1, "2.9.0"), (2, "2.9.0"), (3, "2.23.0")],
};

/// `LEAKY_RELU`.
pub static LEAKY_RELU: OpDef = OpDef {
    op: BuiltinOp::LEAKY_RELU,
    family: "unary",
    read: read_leaky_relu,
    infer,
    history: &[(1, "1.13.1"), (2, "2.3.0")],
};

/// Params of GELU.
#[derive(Debug, Clone, PartialEq)]
pub struct GeluParams {
    /// By `tanh` instead of the error function.
    pub approximate: bool,
}

fn read_gelu(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_gelu_options())?;
    Ok(Params::Gelu(GeluParams { approximate: t.approximate() }))
}

/// Params of LEAKY_RELU.
#[derive(Debug, Clone, PartialEq)]
pub struct LeakyReluParams {
    /// The slope below 0.
    pub alpha: f32,
}

fn read_leaky_relu(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_leaky_relu_options())?;
    Ok(Params::LeakyRelu(LeakyReluParams { alpha: t.alpha() }))
}

/// The output has the input's type and shape.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let input = cx.input(0)?;
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}
