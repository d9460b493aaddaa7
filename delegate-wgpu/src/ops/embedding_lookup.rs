//! EMBEDDING_LOOKUP.

use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::gather::Spec;

use super::GpuOp;
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::EMBEDDING_LOOKUP, max_version: 5, lower }];

/// An id that no row has gives a row of zeros.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(0, TensorType::Int32)?;
    let ty = |tensor: Option<delegraph_delegate_api::TensorInfo<'_>>| tensor.map(|t| t.ty());
    if ty(cx.node().input(1)) != ty(cx.node().output(0)) {
        return Err(unsupported("a table of another type than the output"));
    }
    let (ids, table, output) = (cx.any_input(0)?, cx.any_input(1)?, cx.output(0)?);
    let (input, indices) = (cx.shape(table), cx.shape(ids));
    cx.push(Spec { input, indices, axis: 0, batch_dims: 0 }, &[table, ids], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn rows_of_a_table() {
        let inputs = [
            Some(T::new(&[3], &[2_i32, 0, 2])),
            Some(T::new(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).constant()),
        ];
        let expected = T::new(&[3, 2], &[5.0_f32, 6.0, 1.0, 2.0, 5.0, 6.0]);
        check(BuiltinOp::EMBEDDING_LOOKUP, 1, Params::None, &inputs, &[expected]);
    }
}
