//! BATCH_MATMUL.

use smallvec::smallvec;

use super::{InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with, options};
use crate::types::shape::{Shape, broadcast};

ops! {
    BATCH_MATMUL {
        codec: BatchMatMulParams::CODEC,
        infer,
        min_version,
        multiply_adds,
        history: &[(1, "2.3.0"), (2, "2.3.0"), (3, "2.4.0"), (4, "2.5.0")],
    }
}

options! {
    /// Params of BATCH_MATMUL.
    BatchMatMul(BatchMatMulParams) in BuiltinOptions::BatchMatMulOptions(builtin_options_as_batch_mat_mul_options, BatchMatMulOptionsArgs) as TfLiteBatchMatMulParams {
        /// Whether the matrices of input 0 are transposed.
        adj_x: bool;
        /// Whether the matrices of input 1 are transposed.
        adj_y: bool;
        /// Whether a float input that is multiplied by an integer one is quantized with a zero point. Since version 4;
        /// false before.
        asymmetric_quantize_inputs: bool, since 4;
    }
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
    // 8-bit products may be output unscaled: the declared output type is INT32 then.
    let ty = match (a.ty, cx.outputs[0].ty) {
        (TensorType::Int8, TensorType::Int32) => TensorType::Int32,
        (ty, _) => ty,
    };
    Ok(smallvec![Inferred::known(ty, shape)])
}

/// Versions added 8-bit, 16-bit, and activations quantized with a zero point, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    let p = s.params::<BatchMatMulParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16])),
        (4, s.hybrid(0, 1) && p.is_some_and(|p| p.asymmetric_quantize_inputs)),
    ])
}

fn multiply_adds(s: &OpSignature<'_>) -> u64 {
    let transposed = s.params::<BatchMatMulParams>().is_some_and(|p| p.adj_x);
    let dims = s.input(0).map_or(&[][..], |a| a.shape.dims());
    let depth = if transposed { dims.iter().nth_back(1) } else { dims.last() };
    s.output_elements().saturating_mul(depth.map_or(0, |&n| n as u64))
}
