//! CAST, BITCAST.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, read_none,
};

/// `CAST`.
pub static CAST: OpDef = OpDef {
    op: BuiltinOp::CAST,
    family: "cast",
    read: read_cast,
    infer: infer_cast,
    history: &[
        (1, "1.5.0"),
        (2, "2.7.0"),
        (3, "2.8.0"),
        (4, "2.9.0"),
        (5, "2.12.0"),
        (6, "2.15.0"),
        (7, "2.17.0"),
        (8, "2.21.0"),
        (9, "2.23.0"),
    ],
};

/// `BITCAST`.
pub static BITCAST: OpDef = OpDef {
    op: BuiltinOp::BITCAST,
    family: "cast",
    read: read_none,
    infer: infer_bitcast,
    history: &[(1, "2.13.0")],
};

/// Params of CAST.
#[derive(Debug, Clone, PartialEq)]
pub struct CastParams {
    /// What the input is; the tensor itself says so, too.
    pub in_data_type: TensorType,
    /// What the output is; the tensor itself says so, too.
    pub out_data_type: TensorType,
}

fn read_cast(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_cast_options())?;
    Ok(Params::Cast(CastParams {
        in_data_type: TensorType::read(t.in_data_type())?,
        out_data_type: TensorType::read(t.out_data_type())?,
    }))
}

/// The same values in the output's type.
fn infer_cast(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    Ok(smallvec![Inferred::known(declared(cx)?, cx.input(0)?.shape.clone())])
}

/// The same bits in the output's type: a smaller type adds a dimension, a larger one takes the last one away.
fn infer_bitcast(cx: &InferContext<'_>) -> InferResult {
    cx.arity(1..=1, 1)?;
    let (input, to) = (cx.input(0)?, declared(cx)?);
    let error = || InferError::new(format!("{} {} is not bits of {to}", input.ty, input.shape));
    let (Some(from_bits), Some(to_bits)) = (input.ty.bits(), to.bits()) else { return Err(error()) };
    let mut dims = input.shape.to_vec();
    if from_bits > to_bits {
        dims.push(from_bits / to_bits);
    } else if from_bits < to_bits && dims.pop() != Some(to_bits / from_bits) {
        return Err(error());
    }
    Ok(smallvec![Inferred::known(to, dims.as_slice())])
}

fn declared(cx: &InferContext<'_>) -> Result<TensorType, InferError> {
    cx.outputs.first().map(|o| o.ty).ok_or_else(|| InferError::new("output 0 is missing"))
}
