//! GATHER, GATHER_ND.

use delegraph_core::BuiltinOp;
use delegraph_core::TensorType::{BFloat16, Bool, Float16, Float32, Int4, Int8, Int16, Int32, UInt8};
use delegraph_core::ops::gather::gather_dimensions;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::check::Condition;
use delegraph_shaders::gather::Spec;
use delegraph_shaders::gather_nd;

use super::{GpuOp, invalid};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Fault, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(
        BuiltinOp::GATHER,
        8,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, Int4, BFloat16],
        lower,
    ),
    GpuOp::new(
        BuiltinOp::GATHER_ND,
        6,
        &[Float32, Float16, Int32, UInt8, Bool, Int16, Int8, BFloat16],
        gather_nd,
    ),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let inputs = [cx.moved_input(0)?, cx.index_input(1)?];
    let output = cx.moved_output(0)?;
    let [input, indices] = inputs.map(|id| cx.shape(id));
    let (axis, batch_dims) = gather_dimensions(&cx.infer()).map_err(invalid)?;
    check_indices(cx, 1, inputs[1], input.get(axis..=axis).unwrap_or_default())?;
    cx.push(Spec { input, indices, axis, batch_dims }, &inputs, output)
}

fn gather_nd(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let inputs = [cx.any_input(0)?, cx.index_input(1)?];
    let [input, indices] = inputs.map(|id| cx.shape(id));
    let (&depth, tuples) = indices
        .split_last()
        .ok_or_else(|| unsupported("a scalar index; only tensors of indices are supported"))?;
    let (depth, tuples) = (depth as usize, tuples.iter().product());
    check_indices(cx, 1, inputs[1], input.get(..depth).unwrap_or_default())?;
    let output = cx.output(0)?;
    cx.push(gather_nd::Spec { input, tuples, depth }, &inputs, output)
}

/// Checks that tuples of indices, which are input `i`, are within dimensions of these sizes: constants here, others in
/// each run.
pub(super) fn check_indices(
    cx: &mut Lowering<'_, '_, '_>,
    i: usize,
    indices: ValueId,
    sizes: &[u32],
) -> Result<(), Rejection> {
    if sizes.is_empty() {
        return Ok(());
    }
    if !cx.is_constant(i) {
        let last = |size: &u32| i32::try_from(size.saturating_sub(1)).unwrap_or(i32::MAX);
        let bounds = sizes.iter().map(|size| [0, last(size)]).collect();
        return cx.check(indices, Condition::Within(bounds), Fault::Index { sizes: sizes.to_vec() });
    }
    for (index, size) in cx.integers(i)?.iter().zip(sizes.iter().cycle()) {
        if !(0..i64::from(*size)).contains(index) {
            return Err(unsupported(format!(
                "constant index {index} along a dimension of {size}; \
                only indices within it are supported"
            )));
        }
    }
    Ok(())
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
        let params = || Params::Gather(GatherParams::default().axis(0).batch_dims(0));
        let picked = T::new(&[2, 2], &[5.0_f32, 6.0, 1.0, 2.0]);
        let inputs = |indices: &[i32]| [Some(rows.clone()), Some(T::new(&[2], indices).constant())];
        check(BuiltinOp::GATHER, 1, params(), &inputs(&[2, 0]), std::slice::from_ref(&picked));
        let answer = support(BuiltinOp::GATHER, 1, params(), &inputs(&[2, 3]), &[picked]);
        assert!(answer.is_none_or(|answer| answer.is_err()));
    }

    #[test]
    fn computed_indices() {
        let rows = T::new(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let params = Params::Gather(GatherParams::default().axis(0).batch_dims(0));
        let inputs = [Some(rows.clone()), Some(T::new(&[2], &[2_i32, 0]))];
        check(BuiltinOp::GATHER, 1, params, &inputs, &[T::new(&[2, 2], &[5.0_f32, 6.0, 1.0, 2.0])]);
        let params = Params::Gather(GatherParams::default().axis(0).batch_dims(0));
        for indices in [T::new(&[2], &[2_i64, 0]), T::new(&[2], &[2_i64, 0]).constant()] {
            let picked = T::new(&[2, 2], &[5.0_f32, 6.0, 1.0, 2.0]);
            check(BuiltinOp::GATHER, 1, params.clone(), &[Some(rows.clone()), Some(indices)], &[picked]);
        }
        let inputs = [Some(rows.clone()), Some(T::new(&[2, 1], &[2_i32, 0]))];
        let picked = T::new(&[2, 2], &[5.0_f32, 6.0, 1.0, 2.0]);
        check(BuiltinOp::GATHER_ND, 1, Params::None, &inputs, &[picked]);
        let inputs = [Some(rows.clone()), Some(T::new(&[3, 2], &[2_i32, 0, 0, 1, 1, 1]))];
        check(BuiltinOp::GATHER_ND, 1, Params::None, &inputs, &[T::new(&[3], &[5.0_f32, 2.0, 4.0])]);
        let inputs = [Some(rows), Some(T::new(&[1, 2], &[1_i32, 2]).constant())];
        let answer = support(BuiltinOp::GATHER_ND, 1, Params::None, &inputs, &[T::new(&[1], &[0.0_f32])]);
        assert!(answer.is_none_or(|answer| answer.is_err()));
    }
}
