//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::axis_in;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::quantized::Steps;
use delegraph_core::quantized::reduce::{Mean, Sum};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::reduce::{Reduce, Spec};
use delegraph_shaders::rescale::{By, Spec as Rescale};

use super::quantize::factor;
use super::{GpuOp, invalid, invalid_scale};
use crate::graph::{Element, ValueId};
use crate::lower::{Lowering, unsupported};

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
    let (input, output) = (cx.any_input(0)?, cx.output(0)?);
    let shape = cx.shape(input);
    let axes = cx.integers(1)?.into_iter().map(|axis| axis_in(axis, shape.len()));
    let mut axes = axes.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    axes.sort_unstable();
    axes.dedup();
    let (element, activation) = (cx.element(input), Activation::None);
    if cx.is_narrow(input) {
        match reduce {
            Reduce::Mean | Reduce::Sum => return of_integers(cx, reduce, [input, output], axes),
            // The largest and the smallest integers stand for the largest and the smallest numbers.
            Reduce::Max | Reduce::Min if cx.affine(input) == cx.affine(output) => {}
            Reduce::Max | Reduce::Min => {
                return Err(unsupported("an output of another scale than the input"));
            }
            // The kernels on the CPU round after every factor.
            Reduce::Prod => return Err(cx.wrong_type(0)),
        }
    }
    cx.push(Spec { op: reduce, element, input: shape, axes, activation }, &[input], output)
}

/// Sums of integers, and what the kernels on the CPU make of them.
fn of_integers(
    cx: &mut Lowering<'_, '_, '_>,
    reduce: Reduce,
    [input, output]: [ValueId; 2],
    axes: Vec<usize>,
) -> Result<(), Rejection> {
    let (from, to, shape) = (cx.steps(input)?, cx.steps(output)?, cx.shape(input));
    if cx.narrow(input) != cx.narrow(output) {
        return Err(unsupported("an output of another type than the input"));
    }
    let count: u32 = axes.iter().filter_map(|&axis| shape.get(axis)).product();
    let elements: u32 = cx.shape(output).iter().product();
    let channels = shape.last().copied().unwrap_or(1);
    let (by, after, saturates) = match reduce {
        Reduce::Mean => {
            let image = cx.params::<ReducerParams>()?.keep_dims && shape.len() == 4 && axes == [1, 2];
            let image = image.then_some(channels as usize);
            let mean = Mean::new(from, to, count as usize, image).map_err(invalid_scale)?;
            let up = match mean.up.map(u32::try_from) {
                [Ok(of), Ok(up)] if up > 0 => [of, up],
                _ => [elements, 0],
            };
            let by = By::Fixed { before: mean.before, factor: factor(mean.multiplier), up };
            (by, mean.after, false)
        }
        _ => {
            let Sum { scale, bias, .. } = Sum::new(from, to, count as usize);
            (By::Real { scale, bias }, to.zero, true)
        }
    };
    let sums = cx.temporary_of(&cx.shape(output), Element::I32);
    let (op, element, activation) = (Reduce::Sum, Element::I32, Activation::None);
    cx.push(Spec { op, element, input: shape, axes, activation }, &[input], sums)?;
    let Steps { low, high, .. } = to;
    cx.push(Rescale { by, after, saturates, low, high, elements }, &[sums], output)
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
