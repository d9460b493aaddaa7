//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use delegraph_core::TensorType::{Bool, Float32, Int8, Int16, Int32, UInt8};
use delegraph_core::ops::axis_in;
use delegraph_core::ops::reduce::ReducerParams;
use delegraph_core::quantized::Steps;
use delegraph_core::quantized::reduce::{Mean, Sum, product_factor};
use delegraph_core::{BuiltinOp, TensorType};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::Activation;
use delegraph_shaders::reduce::{Reduce, Spec};
use delegraph_shaders::reduce_ordered::{Ordered as Kind, Spec as Ordered};
use delegraph_shaders::rescale::{By, Spec as Rescale};

use super::quantize::factor;
use super::{GpuOp, expect_one_of, invalid, invalid_scale, mixed_scales, mixed_types};
use crate::graph::lowering::{Lowering, unsupported};
use crate::graph::{Element, ValueId};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::MEAN, 3, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::SUM, 2, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::REDUCE_MAX, 3, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::REDUCE_MIN, 3, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::REDUCE_PROD, 2, &[Float32, Int32, UInt8, Int16, Int8], lower),
    GpuOp::new(BuiltinOp::REDUCE_ANY, 1, &[Bool], lower),
    GpuOp::new(BuiltinOp::REDUCE_ALL, 1, &[Bool], lower),
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
    let mut shape = cx.shape(input);
    let mut axes = cx.integers(1)?;
    let is_scalar = shape.is_empty();
    if is_scalar {
        // The op's definition accepts any axes of a scalar, which is reduced as a row of one number.
        (shape, axes) = (vec![1], vec![0]);
    }
    let axes = axes.into_iter().map(|axis| axis_in(axis, shape.len()));
    let mut axes = axes.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
    axes.sort_unstable();
    axes.dedup();
    let (element, activation) = (cx.element(input), Activation::None);
    if is_scalar && cx.is_narrow(input) && matches!(reduce, Reduce::Mean | Reduce::Sum | Reduce::Prod) {
        return Err(unsupported("a scalar of narrow integers; only tensors of rank 1 or more are supported"));
    }
    if cx.is_narrow(input) {
        match reduce {
            Reduce::Mean | Reduce::Sum => return of_integers(cx, reduce, [input, output], axes),
            // Quantization is monotonic: the largest integer stands for the largest number.
            Reduce::Max | Reduce::Min if cx.affine(input) == cx.affine(output) => {}
            Reduce::Max | Reduce::Min => {
                return Err(mixed_scales(cx, input, output));
            }
            Reduce::Prod => return product(cx, [input, output], axes),
        }
    }
    if reduce == Reduce::Mean && element == Element::I32 && cx.ty(0) == Some(TensorType::Int32) {
        return cx.push(Ordered { op: Kind::Mean, input: shape, axes }, &[input], output);
    }
    cx.push(Spec { op: reduce, element, input: shape, axes, activation }, &[input], output)
}

/// Products of narrow integers, which CPU kernels round after every factor, or which wrap around.
fn product(
    cx: &mut Lowering<'_, '_, '_>,
    [input, output]: [ValueId; 2],
    axes: Vec<usize>,
) -> Result<(), Rejection> {
    use TensorType::{Int8, Int16, UInt8};
    let shape = cx.shape(input);
    let Some((bits, signed)) = cx.narrow(input).filter(|narrow| Some(*narrow) == cx.narrow(output)) else {
        return Err(mixed_types(cx));
    };
    let op = match cx.quantization(0) {
        Some(_) => {
            expect_one_of(cx, 0, &[Int8, Int16])?;
            let (from, to) = (cx.steps(input)?, cx.steps(output)?);
            let count: usize = axes.iter().filter_map(|&axis| shape.get(axis)).map(|&n| n as usize).product();
            let factor = product_factor(from.scale, to.scale, count).map_err(invalid_scale)?;
            let (multiplier, right) = factor.wide();
            Kind::Product {
                input_zero: from.zero,
                multiplier: multiplier.unsigned_abs(),
                right,
                output_zero: to.zero,
                range: [to.low, to.high],
            }
        }
        None => {
            expect_one_of(cx, 0, &[Int8, UInt8, Int16])?;
            Kind::Wrapped { bits, signed }
        }
    };
    cx.push(Ordered { op, input: shape, axes }, &[input], output)
}

/// Sums of integers, scaled as in the CPU kernels.
fn of_integers(
    cx: &mut Lowering<'_, '_, '_>,
    reduce: Reduce,
    [input, output]: [ValueId; 2],
    axes: Vec<usize>,
) -> Result<(), Rejection> {
    let (from, to, shape) = (cx.steps(input)?, cx.steps(output)?, cx.shape(input));
    if cx.narrow(input) != cx.narrow(output) {
        return Err(mixed_types(cx));
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
            // `keep_dims` affects the output's shape only.
            let params = Params::None;
            check(op, 1, params, &[Some(input.clone()), Some(axes)], &[expected]);
        };
        run(BuiltinOp::MEAN, &[1], T::new(&[2], &[3.0_f32, 3.0]));
        run(BuiltinOp::SUM, &[0], T::new(&[3], &[5.0_f32, 7.0, 6.0]));
        run(BuiltinOp::REDUCE_MAX, &[-1, 0], T::new(&[], &[6.0_f32]));
        run(BuiltinOp::REDUCE_MIN, &[1, 1], T::new(&[2], &[1.0_f32, 0.0]));
        run(BuiltinOp::REDUCE_PROD, &[0], T::new(&[3], &[4.0_f32, 10.0, 0.0]));
    }

    #[test]
    fn whole_numbers_without_a_scale() {
        let run = |op, input: T, axes: &[i32], expected: T| {
            let axes = T::new(&[axes.len()], axes).constant();
            check(op, 1, Params::None, &[Some(input), Some(axes)], &[expected]);
        };
        // Sums need more than 32 bits, and the fraction is truncated.
        let large = [i32::MAX, i32::MAX - 1, i32::MAX - 3, i32::MIN, i32::MIN, i32::MIN + 1];
        let means = T::new(&[2], &[i32::MAX - 2, i32::MIN + 1]);
        run(BuiltinOp::MEAN, T::new(&[2, 3], &large), &[1], means);
        run(BuiltinOp::MEAN, T::new(&[2, 2], &[-7_i32, 7, 0, 0]), &[0], T::new(&[2], &[-3_i32, 3]));
        run(BuiltinOp::REDUCE_PROD, T::new(&[3], &[100_u8, 3, 1]), &[0], T::new(&[], &[44_u8]));
        run(BuiltinOp::REDUCE_PROD, T::new(&[3], &[-100_i8, 3, 1]), &[0], T::new(&[], &[-44_i8]));
    }
}
