//! MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_ANY, REDUCE_ALL.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::reduce::{ReducerParams, reduced};
use delegraph_core::quantized::reduce::{Mean, Sum, product_factor};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::index::{Nest, Strides, dense_strides};
use crate::common::number::Number;
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, check_same_quantization, known, prepared, unsupported_type};
use crate::common::quantized::{QuantizedElement, steps_of};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::MEAN, prepared(mean), 1..=3)
        .add_builtin(BuiltinOp::SUM, prepared(sum), 1..=2)
        .add_builtin(BuiltinOp::REDUCE_MAX, prepared(|cx| extremum(cx, true)), 1..=3)
        .add_builtin(BuiltinOp::REDUCE_MIN, prepared(|cx| extremum(cx, false)), 1..=3)
        .add_builtin(BuiltinOp::REDUCE_PROD, prepared(product), 1..=2)
        .add_builtin(BuiltinOp::REDUCE_ANY, prepared(|cx| logical(cx, false)), 1)
        .add_builtin(BuiltinOp::REDUCE_ALL, prepared(|cx| logical(cx, true)), 1);
}

fn mean(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let r = Reduction::new(cx)?;
    match cx.input(0)?.ty() {
        TensorType::Float32 => Ok(Box::new(move |cx| {
            let (mut pace, output) = (Pace::new(cx), cx.output::<f32>(0)?);
            r.fold(&mut pace, (cx.input::<f32>(0)?, output), r.zero(), |sum, v| sum + v)?;
            output.chunks_mut(PIECE).try_for_each(|piece| {
                pace.spend(piece.len())?;
                // The mean of no elements is NaN.
                piece.iter_mut().for_each(|sum| *sum /= r.count as f32);
                Ok(())
            })
        })),
        TensorType::Int32 => integer_mean::<i32>(cx, r),
        TensorType::Int64 => integer_mean::<i64>(cx, r),
        TensorType::Int8 => quantized_mean::<i8>(cx, r),
        TensorType::UInt8 => quantized_mean::<u8>(cx, r),
        TensorType::Int16 => quantized_mean::<i16>(cx, r),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

/// Steps of a [`Pace`] per result that is computed from a sum or a product.
const RESULT_STEPS: usize = 8;

/// Rounds towards 0.
fn integer_mean<T: Number + Into<i64>>(cx: &mut PrepareContext<'_>, r: Reduction) -> Result<Invoke> {
    let sums = cx.temporary_of::<i64>(r.outputs)?;
    Ok(Box::new(move |cx| {
        let (mut pace, sums) = (Pace::new(cx), &mut cx.temporary::<i64>(sums)?[..r.outputs]);
        r.fold(&mut pace, (cx.input::<T>(0)?, sums), 0, |sum, v| sum.wrapping_add(v.into()))?;
        let count = r.count.max(1) as i64;
        pace.zip(RESULT_STEPS, sums, cx.output::<T>(0)?, |sums, output| {
            output.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::truncated(*sum / count));
        })
    }))
}

fn quantized_mean<T: QuantizedElement>(cx: &mut PrepareContext<'_>, r: Reduction) -> Result<Invoke> {
    let mean = mean_of(cx, &r)?;
    let sums = cx.temporary_of::<i32>(r.outputs)?;
    Ok(Box::new(move |cx| {
        let (mut pace, sums) = (Pace::new(cx), &mut cx.temporary::<i32>(sums)?[..r.outputs]);
        r.fold(&mut pace, (cx.input::<T>(0)?, sums), 0, |sum: i32, v| sum.wrapping_add(v.into()))?;
        let mut results = 0..;
        pace.zip(RESULT_STEPS, sums, cx.output::<T>(0)?, |sums, output| {
            for ((o, &sum), i) in output.iter_mut().zip(sums).zip(results.by_ref()) {
                *o = T::clamped(mean.of(i, sum), T::MIN, T::MAX);
            }
        })
    }))
}

/// Conversion of sums to means.
pub(crate) fn mean_of(cx: &PrepareContext<'_>, r: &Reduction) -> Result<Mean> {
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let image = cx.params::<ReducerParams>()?.keep_dims && r.reduced.as_slice() == [false, true, true, false];
    let channels = input.shape().last().copied().unwrap_or(1);
    Mean::new(steps_of(input)?, steps_of(output)?, r.count, image.then_some(channels))
}

fn sum(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => folded(cx, Reduction::new(cx)?.zero(), f32::plus),
        TensorType::Int32 => folded(cx, 0, i32::plus),
        TensorType::Int64 => folded(cx, 0, i64::plus),
        TensorType::Int8 => quantized_sum::<i8>(cx),
        TensorType::UInt8 => quantized_sum::<u8>(cx),
        TensorType::Int16 => quantized_sum::<i16>(cx),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn quantized_sum<T: QuantizedElement>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let r = Reduction::new(cx)?;
    let rescale = sum_of(cx, &r)?;
    let sums = cx.temporary_of::<i32>(r.outputs)?;
    Ok(Box::new(move |cx| {
        let (mut pace, sums) = (Pace::new(cx), &mut cx.temporary::<i32>(sums)?[..r.outputs]);
        r.fold(&mut pace, (cx.input::<T>(0)?, sums), 0, |sum: i32, v| sum.wrapping_add(v.into()))?;
        pace.zip(RESULT_STEPS, sums, cx.output::<T>(0)?, |sums, output| {
            let results = output.iter_mut().zip(sums);
            results.for_each(|(o, &sum)| *o = T::clamped(rescale.of(sum), T::MIN, T::MAX));
        })
    }))
}

/// Requantization of sums.
pub(crate) fn sum_of(cx: &PrepareContext<'_>, r: &Reduction) -> Result<Sum> {
    Ok(Sum::new(steps_of(cx.input(0)?)?, steps_of(cx.output(0)?)?, r.count))
}

fn extremum(cx: &mut PrepareContext<'_>, largest: bool) -> Result<Invoke> {
    fn on<T: Number>(cx: &mut PrepareContext<'_>, largest: bool) -> Result<Invoke> {
        match largest {
            true => folded(cx, T::LOWEST, |a: T, b| if b > a { b } else { a }),
            false => folded(cx, T::HIGHEST, |a: T, b| if b < a { b } else { a }),
        }
    }
    let ty = cx.input(0)?.ty();
    if matches!(ty, TensorType::Int8 | TensorType::UInt8 | TensorType::Int16) {
        check_same_quantization(cx.input(0)?, cx.output(0)?)?;
    }
    match ty {
        TensorType::Float32 => on::<f32>(cx, largest),
        TensorType::Int8 => on::<i8>(cx, largest),
        TensorType::UInt8 => on::<u8>(cx, largest),
        TensorType::Int16 => on::<i16>(cx, largest),
        TensorType::Int32 => on::<i32>(cx, largest),
        TensorType::Int64 => on::<i64>(cx, largest),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn product(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let input = cx.input(0)?;
    if input.quantization().is_some() {
        return match input.ty() {
            TensorType::Int8 => quantized_product::<i8>(cx),
            TensorType::Int16 => quantized_product::<i16>(cx),
            _ => Err(unsupported_type("quantized input 0", input)),
        };
    }
    match input.ty() {
        TensorType::Float32 => folded(cx, 1.0, f32::times),
        TensorType::Int8 => folded(cx, 1, i8::times),
        TensorType::UInt8 => folded(cx, 1, u8::times),
        TensorType::Int16 => folded(cx, 1, i16::times),
        TensorType::Int32 => folded(cx, 1, i32::times),
        TensorType::Int64 => folded(cx, 1, i64::times),
        _ => Err(unsupported_type("input 0", input)),
    }
}

/// Requantized after every factor.
fn quantized_product<T: QuantizedElement>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    // No product has this value.
    const NONE: i64 = i64::MIN;
    let r = Reduction::new(cx)?;
    let ((scale_in, zero_in), (scale_out, zero_out)) =
        (cx.input(0)?.scale_zero_point()?, cx.output(0)?.scale_zero_point()?);
    let multiplier = product_factor(scale_in, scale_out, r.count)?;
    let products = cx.temporary_of::<i64>(r.outputs)?;
    Ok(Box::new(move |cx| {
        let (mut pace, products) = (Pace::new(cx), &mut cx.temporary::<i64>(products)?[..r.outputs]);
        r.fold(&mut pace, (cx.input::<T>(0)?, products), NONE, |product, v: T| {
            let v = i64::from(v.into().wrapping_sub(zero_in));
            if product == NONE { v } else { multiplier.apply_wide(product.wrapping_mul(v)).into() }
        })?;
        pace.zip(RESULT_STEPS, products, cx.output::<T>(0)?, |products, output| {
            for (o, &product) in output.iter_mut().zip(products) {
                let value = multiplier.apply_wide(if product == NONE { 1 } else { product });
                *o = T::clamped(value.wrapping_add(zero_out), T::MIN, T::MAX);
            }
        })
    }))
}

fn logical(cx: &mut PrepareContext<'_>, all: bool) -> Result<Invoke> {
    match all {
        true => folded(cx, Bool(1), |a: Bool, b: Bool| Bool::from(a.get() && b.get())),
        false => folded(cx, Bool(0), |a: Bool, b: Bool| Bool::from(a.get() || b.get())),
    }
}

/// Each output is the fold of `f` over its elements, in order, from `init`.
fn folded<T: Element>(
    cx: &mut PrepareContext<'_>,
    init: T,
    f: impl Fn(T, T) -> T + Send + 'static,
) -> Result<Invoke> {
    let r = Reduction::new(cx)?;
    Ok(Box::new(move |cx| r.fold(&mut Pace::new(cx), (cx.input(0)?, cx.output(0)?), init, &f)))
}

/// The elements of the input that reduce to each element of the output.
pub(crate) struct Reduction {
    pub(crate) nest: Nest<2>,
    reduced: Vec<bool>,
    pub(crate) outputs: usize,
    /// Number of elements per output.
    pub(crate) count: usize,
}

impl Reduction {
    pub(crate) fn new(cx: &PrepareContext<'_>) -> Result<Self> {
        let reduced = known(reduced(&cx.infer_context())?)?.to_vec();
        let shape = cx.input(0)?.shape();
        let mut to = Strides::from_elem(0, shape.rank());
        let (mut outputs, mut count) = (1, 1);
        for d in (0..shape.rank()).rev() {
            if reduced[d] {
                count *= shape[d];
            } else {
                to[d] = outputs as isize;
                outputs *= shape[d];
            }
        }
        Ok(Reduction { nest: Nest::new(shape, [&dense_strides(shape), &to]), reduced, outputs, count })
    }

    /// Returns what sums of floats begin with. A scalar is its own sum, also if it is `-0.0`, which added to `0.0` is `0.0`.
    pub(crate) fn zero(&self) -> f32 {
        if self.reduced.is_empty() { -0.0 } else { 0.0 }
    }

    /// Folds, and polls between pieces of the work.
    fn fold<T: Copy, A: Copy>(
        &self,
        pace: &mut Pace,
        (input, sums): (&[T], &mut [A]),
        init: A,
        f: impl Fn(A, T) -> A,
    ) -> Result<()> {
        sums.fill(init);
        let (size, [_, step]) = self.nest.inner();
        self.nest.try_for_each_run([0; 2], |[i, o]| {
            for (first, run) in (0..).step_by(PIECE).zip(input[i..][..size].chunks(PIECE)) {
                pace.spend(run.len())?;
                match step {
                    0 => sums[o] = run.iter().fold(sums[o], |sum, v| f(sum, *v)),
                    _ => {
                        let sums = sums[o + first..][..run.len()].iter_mut();
                        sums.zip(run).for_each(|(sum, v)| *sum = f(*sum, *v));
                    }
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{self, T, check, error};
    use crate::{BuiltinOpResolver, ReferenceOpResolver};

    fn keep(keep_dims: bool) -> Params {
        Params::Reducer(ReducerParams::default().keep_dims(keep_dims))
    }

    fn axes(axes: &[i32]) -> Option<T> {
        Some(T::new(&[axes.len()], axes).constant())
    }

    #[test]
    fn runs_longer_than_a_piece() {
        let n = PIECE + 3;
        let values: Vec<i32> = (0..2 * n as i32).collect();
        let x = || Some(T::new(&[2, n], &values));
        let columns: Vec<i32> = (0..n as i32).map(|i| 2 * i + n as i32).collect();
        check(BuiltinOp::SUM, 1, keep(false), &[x(), axes(&[0])], &[T::new(&[n], &columns)]);
        let last = T::new(&[2], &[n as i32 - 1, 2 * n as i32 - 1]);
        check(BuiltinOp::REDUCE_MAX, 1, keep(false), &[x(), axes(&[1])], &[last]);
    }

    #[test]
    fn any_dimensions() {
        let x = || Some(T::new(&[2, 1, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let (op, want) = (BuiltinOp::SUM, T::new(&[1, 1, 3], &[5.0f32, 7.0, 9.0]));
        check(op, 1, keep(true), &[x(), axes(&[0])], &[want]);
        check(op, 1, keep(false), &[x(), axes(&[-1, 0])], &[T::new(&[1], &[21.0f32])]);
        check(BuiltinOp::MEAN, 1, keep(false), &[x(), axes(&[2, 1])], &[T::new(&[2], &[2.0f32, 5.0])]);
        check(BuiltinOp::REDUCE_MAX, 1, keep(false), &[x(), axes(&[0, 1, 2])], &[T::new(&[], &[6.0f32])]);
        check(
            BuiltinOp::REDUCE_PROD,
            1,
            keep(false),
            &[x(), axes(&[2])],
            &[T::new(&[2, 1], &[6.0f32, 120.0])],
        );
        let e = error(op, 1, keep(true), &[x(), axes(&[3])], &[T::new(&[], &[0.0f32])]);
        assert!(e.contains("axis 3 is out of range for rank 3"), "{e}");
    }

    #[test]
    fn a_scalar_is_its_own_sum() {
        let (inputs, output) = ([Some(T::new(&[], &[-0.0f32])), axes(&[0])], [T::new(&[], &[0.0f32])]);
        for op in [BuiltinOp::SUM, BuiltinOp::MEAN] {
            let reference =
                testing::run(ReferenceOpResolver::new(), op, 1, keep(false), &inputs, &output).unwrap();
            let optimized =
                testing::run(BuiltinOpResolver::new(), op, 1, keep(false), &inputs, &output).unwrap();
            assert_eq!([&reference[0].1, &optimized[0].1], [&(-0.0f32).to_le_bytes().to_vec(); 2], "{op:?}");
        }
    }

    #[test]
    fn quantized() {
        let x = || Some(T::new(&[4], &[1i8, 2, 3, 5]).quantized(0.5, 1));
        let want = T::new(&[1], &[-1i8]).quantized(0.5, -3);
        check(BuiltinOp::MEAN, 2, keep(true), &[x(), axes(&[0])], &[want]);
        let want = T::new(&[1], &[4i8]).quantized(1.0, 0);
        check(BuiltinOp::SUM, 2, keep(true), &[x(), axes(&[0])], &[want]);
        let want = T::new(&[1], &[5i8]).quantized(0.5, 1);
        check(BuiltinOp::REDUCE_MAX, 2, keep(true), &[x(), axes(&[0])], &[want]);
        let other = [T::new(&[1], &[5i8]).quantized(0.5, 2)];
        let e = error(BuiltinOp::REDUCE_MAX, 2, keep(true), &[x(), axes(&[0])], &other);
        assert!(e.contains("scale and zero point"), "{e}");
    }

    #[test]
    fn of_nothing() {
        let x = || Some(T::new(&[2, 0], &[0.0f32; 0]));
        check(BuiltinOp::MEAN, 1, keep(false), &[x(), axes(&[1])], &[T::new(&[2], &[f32::NAN; 2])]);
        check(BuiltinOp::REDUCE_MIN, 1, keep(false), &[x(), axes(&[1])], &[T::new(&[2], &[f32::MAX; 2])]);
        let x = Some(T::new(&[2, 2], &[Bool(1), Bool(1), Bool(0), Bool(7)]));
        let want = T::new(&[2], &[Bool(1), Bool(0)]);
        check(BuiltinOp::REDUCE_ALL, 1, keep(false), &[x, axes(&[1])], &[want]);
    }
}
