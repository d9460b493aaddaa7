//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::axis_in;
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::reduce::{Reduce, Spec};

use super::{GpuOp, invalid};
use crate::lower::Lowering;

pub(super) const OPS: &[GpuOp] = &[
    GpuOp { op: BuiltinOp::MEAN, max_version: 3, lower },
    GpuOp { op: BuiltinOp::SUM, max_version: 2, lower },
    GpuOp { op: BuiltinOp::REDUCE_MAX, max_version: 3, lower },
    GpuOp { op: BuiltinOp::REDUCE_MIN, max_version: 3, lower },
    GpuOp { op: BuiltinOp::REDUCE_PROD, max_version: 2, lower },
    GpuOp { op: BuiltinOp::REDUCE_ANY, max_version: 1, lower },
    GpuOp { op: BuiltinOp::REDUCE_ALL, max_version: 1, lower },
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let op = cx.node().op();
    let reduce = match op.builtin() {
        Some(BuiltinOp::MEAN) => Reduce::Mean,
        Some(BuiltinOp::SUM) => Reduce::Sum,
        Some(BuiltinOp::REDUCE_MAX | BuiltinOp::REDUCE_ANY) => Reduce::Max,
        Some(BuiltinOp::REDUCE_MIN | BuiltinOp::REDUCE_ALL) => Reduce::Min,
        Some(BuiltinOp::REDUCE_PROD) => Reduce::Prod,
        _ => return Err(Rejection::UnsupportedOp { op: op.clone() }),
    };
    let mut input = cx.any_input(0)?;
    let output = cx.output(0)?;
    // The largest and the smallest integers stand for the largest and the smallest numbers.
    let stored = matches!(reduce, Reduce::Max | Reduce::Min) && cx.affine(input) == cx.affine(output);
    let narrow = cx.is_narrow(input) && !stored;
    if narrow {
        cx.allow_wide();
        if reduce == Reduce::Prod {
            // The kernels on the CPU round after every factor.
            return Err(cx.wrong_type(0));
        }
        input = cx.input(0)?;
    }
    let output = if narrow { cx.real_output(0)? } else { output };
    let shape = cx.shape(input);
    let axes = cx.integers(1)?.into_iter().map(|axis| axis_in(axis, shape.len()));
    let mut axes = axes.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    axes.sort_unstable();
    axes.dedup();
    let (element, activation) = (cx.element(input), Activation::None);
    cx.push(Spec { op: reduce, element, input: shape, axes, activation }, &[input], output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;

    #[test]
    fn along_rows_and_columns() {
        let input = T::new(&[2, 3], &[1.0_f32, 2.0, 6.0, 4.0, 5.0, 0.0]);
        let run = |op, axes: &[i32], expected: T| {
            let axes = T::new(&[axes.len()], axes).constant();
            // Whether dimensions are kept shows in the output's shape alone.
            let params = Params::None;
            check(op, 1, params, &[Some(input.clone()), Some(axes)], &[expected]);
        };
        run(BuiltinOp::MEAN, &[1], T::new(&[2], &[3.0_f32, 3.0]));
        run(BuiltinOp::SUM, &[0], T::new(&[3], &[5.0_f32, 7.0, 6.0]));
        run(BuiltinOp::REDUCE_MAX, &[-1, 0], T::new(&[], &[6.0_f32]));
        run(BuiltinOp::REDUCE_MIN, &[1, 1], T::new(&[2], &[1.0_f32, 0.0]));
        run(BuiltinOp::REDUCE_PROD, &[0], T::new(&[3], &[4.0_f32, 10.0, 0.0]));
    }
}
