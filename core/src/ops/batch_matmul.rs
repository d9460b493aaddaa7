//! BATCH_MATMUL.

use smallvec::smallvec;

use super::{
    BuiltinOp, InferContext, InferError, InferResult, Inferred, OpDef, Options, Params, ReadError, TensorType,
};
use crate::shape::{Shape, broadcast};

/// `BATCH_MATMUL`.
pub static BATCH_MATMUL: OpDef = OpDef {
    op: BuiltinOp::BATCH_MATMUL,
    family: "batch_matmul",
    read: read_batch_mat_mul,
    infer,
    history: &[(1, "2.3.0"), (2, "2.3.0"), (3, "2.4.0"), (4, "2.5.0")],
};

/// Params of BATCH_MATMUL.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchMatMulParams {
    /// Whether the matrices of input 0 are transposed.
    pub adj_x: bool,
    /// Whether the matrices of input 1 are transposed.
    pub adj_y: bool,
    /// Whether float inputs that meet integer ones are quantized with a zero point. Since version 4; false before.
    pub asymmetric_quantize_inputs: bool,
}

fn read_batch_mat_mul(options: &Options<'_>) -> Result<Params, ReadError> {
    let t = options.table(|o| o.builtin_options_as_batch_mat_mul_options())?;
    Ok(Params::BatchMatMul(BatchMatMulParams {
        adj_x: t.adj_x(),
        adj_y: t.adj_y(),
        asymmetric_quantize_inputs: t.asymmetric_quantize_inputs(),
    }))
}

/// `[…, rows, depth]` times `[…, depth, columns]` gives `[…, rows, columns]`; leading dimensions broadcast.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let p: &BatchMatMulParams = cx.params()?;
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let (Some((a_batch, &[a0, a1])), Some((b_batch, &[b0, b1]))) =
        (a.shape.split_last_chunk(), b.shape.split_last_chunk())
    else {
        return Err(InferError::new(format!("{} and {} are not both matrices", a.shape, b.shape)));
    };
    let (rows, depth) = if p.adj_x { (a1, a0) } else { (a0, a1) };
    let (b_depth, columns) = if p.adj_y { (b1, b0) } else { (b0, b1) };
    let batch = broadcast(&Shape::new(a_batch), &Shape::new(b_batch)).filter(|_| depth == b_depth);
    let Some(mut shape) = batch else {
        return Err(InferError::new(format!("{} and {} do not multiply", a.shape, b.shape)));
    };
    shape.push(rows);
    shape.push(columns);
    // 8-bit products may be given as they are; then the file says so.
    let ty = match (a.ty, cx.outputs[0].ty) {
        (TensorType::Int8, TensorType::Int32) => TensorType::Int32,
        (ty, _) => ty,
    };
    Ok(smallvec![Inferred::known(ty, shape)])
}
