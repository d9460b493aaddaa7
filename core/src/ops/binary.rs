//! ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, POW, SQUARED_DIFFERENCE, FLOOR_DIV, FLOOR_MOD, ATAN2, BITWISE_XOR, RIGHT_SHIFT.

use smallvec::smallvec;

use super::{
    Activation, BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params,
    ReadError, TensorType, read_none,
};
use crate::shape::{Shape, broadcast};

/// `ADD`.
pub static ADD: OpDef = OpDef {
    op: BuiltinOp::ADD,
    family: "binary",
    read: read_add,
    infer,
    history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.4.0"), (4, "2.6.0"), (5, "2.13.0"), (6, "2.23.0")],
};

/// `SUB`.
pub static SUB: OpDef = OpDef {
    op: BuiltinOp::SUB,
    family: "binary",
    read: read_sub,
    infer,
    history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.4.0"), (5, "2.4.0")],
};

/// `MUL`.
pub static MUL: OpDef = OpDef {
    op: BuiltinOp::MUL,
    family: "binary",
    read: read_mul,
    infer: infer_mul,
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
};

/// `DIV`.
pub static DIV: OpDef = OpDef {
    op: BuiltinOp::DIV,
    family: "binary",
    read: read_div,
    infer,
    history: &[(1, "1.6.0"), (2, "2.3.0")],
};

/// `MAXIMUM`.
pub static MAXIMUM: OpDef = OpDef {
    op: BuiltinOp::MAXIMUM,
    family: "binary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.3.0")],
};

/// `MINIMUM`.
pub static MINIMUM: OpDef = OpDef {
    op: BuiltinOp::MINIMUM,
    family: "binary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.3.0")],
};

/// `POW`.
pub static POW: OpDef =
    OpDef { op: BuiltinOp::POW, family: "binary", read: read_none, infer, history: &[(1, "1.10.0")] };

/// `SQUARED_DIFFERENCE`.
pub static SQUARED_DIFFERENCE: OpDef = OpDef {
    op: BuiltinOp::SQUARED_DIFFERENCE,
    family: "binary",
    read: read_none,
    infer,
    history: &[(1, "1.13.1"), (2, "2.5.0")],
};

/// `FLOOR_DIV`.
pub static FLOOR_DIV: OpDef = OpDef {
    op: BuiltinOp::FLOOR_DIV,
    family: "binary",
    read: read_none,
    infer,
    history: &[(1, "1.14.0"), (2, "1.14.0"), (3, "2.13.0")],
};

/// `FLOOR_MOD`.
pub static FLOOR_MOD: OpDef = OpDef {
    op: BuiltinOp::FLOOR_MOD,
    family: "binary",
    read: read_none,
    infer,
    history: &[(1, "1.13.0"), (2, "2.13.0")],
};

/// `ATAN2`.
pub static ATAN2: OpDef =
    OpDef { op: BuiltinOp::ATAN2, family: "binary", read: read_none, infer, history: &[(1, "2.10.0")] };

/// `BITWISE_XOR`.
pub static BITWISE_XOR: OpDef =
    OpDef { op: BuiltinOp::BITWISE_XOR, family: "binary", read: read_none, infer, history: &[(1, "2.13.0")] };

/// `RIGHT_SHIFT`.
pub static RIGHT_SHIFT: OpDef =
    OpDef { op: BuiltinOp::RIGHT_SHIFT, family: "binary", read: read_none, infer, history: &[(1, "2.13.0")] };

/// Params of ADD.
#[derive(Debug, Clone, PartialEq)]
pub struct AddParams {
    /// Applied to the result.
    pub fused_activation_function: Activation,
    /// Since version 3: whether 16-bit scales that are powers of two are computed with shifts alone.
    pub pot_scale_int16: bool,
}

fn read_add(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_add_options())?;
    Ok(Params::Add(AddParams {
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        pot_scale_int16: t.pot_scale_int16(),
    }))
}

/// Params of SUB.
#[derive(Debug, Clone, PartialEq)]
pub struct SubParams {
    /// Applied to the result.
    pub fused_activation_function: Activation,
    /// Since version 3: whether 16-bit scales that are powers of two are computed with shifts alone.
    pub pot_scale_int16: bool,
}

fn read_sub(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_sub_options())?;
    Ok(Params::Sub(SubParams {
        fused_activation_function: Activation::read(t.fused_activation_function())?,
        pot_scale_int16: t.pot_scale_int16(),
    }))
}

/// Params of MUL.
#[derive(Debug, Clone, PartialEq)]
pub struct MulParams {
    /// Applied to the result.
    pub fused_activation_function: Activation,
}

fn read_mul(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_mul_options())?;
    Ok(Params::Mul(MulParams { fused_activation_function: Activation::read(t.fused_activation_function())? }))
}

/// Params of DIV.
#[derive(Debug, Clone, PartialEq)]
pub struct DivParams {
    /// Applied to the result.
    pub fused_activation_function: Activation,
}

fn read_div(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_div_options())?;
    Ok(Params::Div(DivParams { fused_activation_function: Activation::read(t.fused_activation_function())? }))
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

/// The shape that inputs 0 and 1, which must have one type, broadcast to.
pub(crate) fn broadcast_inputs(cx: &InferContext<'_>) -> Result<Shape, InferError> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.ty != b.ty {
        return Err(InferError::new(format!("the inputs have different types, {} and {}", a.ty, b.ty)));
    }
    let (a, b) = (a.shape, b.shape);
    broadcast(a, b).ok_or_else(|| InferError::new(format!("{a} and {b} do not broadcast")))
}
