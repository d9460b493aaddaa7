//! REVERSE_V2, REVERSE_SEQUENCE.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError,
    TensorType, axis_in, read_none,
};

/// `REVERSE_V2`.
pub static REVERSE_V2: OpDef = OpDef {
    op: BuiltinOp::REVERSE_V2,
    family: "reverse",
    read: read_none,
    infer: infer_reverse,
    history: &[(1, "1.14.0"), (2, "2.2.0"), (3, "2.5.0"), (4, "2.23.0")],
};

/// `REVERSE_SEQUENCE`.
pub static REVERSE_SEQUENCE: OpDef = OpDef {
    op: BuiltinOp::REVERSE_SEQUENCE,
    family: "reverse",
    read: read_reverse_sequence,
    infer: infer_sequence,
    history: &[(1, "1.14.0")],
};

/// Params of REVERSE_SEQUENCE.
#[derive(Debug, Clone, PartialEq)]
pub struct ReverseSequenceParams {
    /// The dimension that is reversed.
    pub seq_dim: i32,
    /// The dimension along which the lengths differ.
    pub batch_dim: i32,
}

fn read_reverse_sequence(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_reverse_sequence_options())?;
    Ok(Params::ReverseSequence(ReverseSequenceParams { seq_dim: t.seq_dim(), batch_dim: t.batch_dim() }))
}

/// The input with the order along the dimensions in input 1 reversed.
fn infer_reverse(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, axes) = (cx.input(0)?, cx.input(1)?);
    if axes.ty != TensorType::Int32 {
        return Err(InferError::new(format!("the axes must be INT32, got {}", axes.ty)));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// The input with the first elements of each sequence reversed, as many as input 1 says.
fn infer_sequence(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (input, lengths) = (cx.input(0)?, cx.input(1)?);
    let (sequence, batch) = sequence_dimensions(cx)?;
    if sequence == batch || lengths.shape.dims() != [input.shape[batch]] {
        return Err(InferError::new(format!(
            "lengths of shape {} do not fit {}",
            lengths.shape, input.shape
        )));
    }
    Ok(smallvec![Inferred::known(input.ty, input.shape.clone())])
}

/// The dimension that REVERSE_SEQUENCE reverses, and the one along which the lengths differ.
pub fn sequence_dimensions(cx: &InferContext<'_>) -> Result<(usize, usize), InferError> {
    let (p, rank): (&ReverseSequenceParams, _) = (cx.params()?, cx.input(0)?.shape.rank());
    Ok((axis_in(p.seq_dim.into(), rank)?, axis_in(p.batch_dim.into(), rank)?))
}
