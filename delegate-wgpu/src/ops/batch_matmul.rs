//! BATCH_MATMUL.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::batch_matmul::BatchMatMulParams;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::batch_matmul::Spec;

use super::GpuOp;
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::BATCH_MATMUL, max_version: 4, lower }];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let p: &BatchMatMulParams = cx.params()?;
    // Of floats and bytes, the field's kernel makes bytes of the floats first, with a scale for each row.
    if cx.ty(0) != cx.ty(1) {
        return Err(cx.wrong_type(1));
    }
    let inputs = [cx.input(0)?, cx.input(1)?];
    let output = cx.real_output(0)?;
    let [a, b] = inputs.map(|id| cx.shape(id));
    let (transpose_a, transpose_b) = (p.adj_x, p.adj_y);
    cx.push(Spec { a, b, transpose_a, transpose_b, activation: Activation::None }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn products_of_matrices() {
        let a = T::new(&[2, 1, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let b = T::new(&[3, 2], &[1.0_f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let params = BatchMatMulParams { adj_x: false, adj_y: true, asymmetric_quantize_inputs: false };
        let expected = T::new(&[2, 1, 3], &[1.0_f32, 2.0, 3.0, 3.0, 4.0, 7.0]);
        let inputs = [Some(a), Some(b)];
        check(BuiltinOp::BATCH_MATMUL, 1, Params::BatchMatMul(params), &inputs, &[expected]);
    }
}
