//! GATHER.

use delegraph_core::ops::gather::gather_dimensions;
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::gather::Spec;

use super::{GpuOp, invalid};
use crate::lower::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[GpuOp { op: BuiltinOp::GATHER, max_version: 8, types: GpuOp::ANY, lower }];

/// Only constant indices are taken: one that lies outside is an error of the node, which a shader cannot report.
fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    cx.expect(1, TensorType::Int32)?;
    let picked = cx.integers(1)?;
    let inputs = [cx.any_input(0)?, cx.any_input(1)?];
    let output = cx.output(0)?;
    let [input, indices] = inputs.map(|id| cx.shape(id));
    let (axis, batch_dims) = gather_dimensions(&cx.infer()).map_err(invalid)?;
    let size = input.get(axis).copied().map_or(0, i64::from);
    if let Some(outside) = picked.iter().find(|i| !(0..size).contains(*i)) {
        return Err(unsupported(format!("index {outside} along a dimension of {size}")));
    }
    cx.push(Spec { input, indices, axis, batch_dims }, &inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check, support};
    use delegraph_core::Params;
    use delegraph_core::ops::gather::GatherParams;

    #[test]
    fn rows_are_picked() {
        let rows = T::new(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let params = || Params::Gather(GatherParams { axis: 0, batch_dims: 0 });
        let picked = T::new(&[2, 2], &[5.0_f32, 6.0, 1.0, 2.0]);
        let inputs = |indices: &[i32]| [Some(rows.clone()), Some(T::new(&[2], indices).constant())];
        check(BuiltinOp::GATHER, 1, params(), &inputs(&[2, 0]), std::slice::from_ref(&picked));
        let said = support(BuiltinOp::GATHER, 1, params(), &inputs(&[2, 3]), &[picked]);
        assert!(said.is_none_or(|said| said.is_err()));
    }
}
