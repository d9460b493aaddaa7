//! SOFTMAX, LOG_SOFTMAX.

use std::ops::Add;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::softmax::SoftmaxParams;
use delegraph_core::quantized::softmax::{Wide, check_output, exp_table};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};
use half::f16;

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{QuantizedElement, steps_of};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SOFTMAX, prepared(softmax), 1..=4).add_builtin(
        BuiltinOp::LOG_SOFTMAX,
        prepared(log_softmax),
        1..=2,
    );
}

fn softmax(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let beta = cx.params::<SoftmaxParams>()?.beta;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    match (input.ty(), output.ty()) {
        (TensorType::Float32, _) => {
            float(cx, move |pace, row, out| exp_over_sum(pace, row, |x| x, beta, out))
        }
        (TensorType::Float16, _) => {
            let depth = depth(cx)?;
            let sums = cx.temporary_of::<f32>(depth)?;
            Ok(Box::new(move |cx| {
                let (input, output) = (cx.input::<f16>(0)?, cx.output::<f16>(0)?);
                let sums = &mut cx.temporary::<f32>(sums)?[..depth];
                let mut pace = Pace::new(cx);
                for (row, out) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
                    exp_over_sum(&mut pace, row, f16::to_f32, beta, sums)?;
                    pace.zip(ROW_STEPS, sums, out, |sums, out| {
                        out.iter_mut().zip(sums).for_each(|(o, s)| *o = f16::from_f32(*s));
                    })?;
                }
                Ok(())
            }))
        }
        (TensorType::UInt8, TensorType::UInt8) => {
            // TFLite ignores the zero point here.
            quantized::<u8, u8>(cx, beta, |probability, _| (probability + 0.5) as i32)
        }
        (TensorType::UInt8, TensorType::Int16) => quantized::<u8, i16>(cx, beta, rounded),
        (TensorType::Int8, TensorType::Int8) => {
            check_output(steps_of(output)?, 1.0 / 256.0, i8::MIN.into())?;
            quantized::<i8, i8>(cx, beta, rounded)
        }
        (TensorType::Int8, TensorType::Int16) => quantized::<i8, i16>(cx, beta, rounded),
        (TensorType::Int16, _) => {
            check_output(steps_of(output)?, 1.0 / 32768.0, 0)?;
            of_16_bits(cx, beta)
        }
        _ => Err(unsupported_type("input", input)),
    }
}

fn log_softmax(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => float(cx, |pace, row, out| {
            let max =
                pace.fold(1, row, f32::NEG_INFINITY, |max, row| row.iter().fold(max, |m, &x| m.max(x)))?;
            let exps = |sum, row: &[f32]| row.iter().map(|x| (x - max).exp()).fold(sum, f32::add);
            let log_sum = pace.fold(ROW_STEPS, row, 0.0, exps)?.ln();
            pace.zip(1, row, out, |row, out| {
                out.iter_mut().zip(row).for_each(|(o, x)| *o = x - max - log_sum);
            })
        }),
        TensorType::UInt8 => quantized_log::<u8>(cx, 255),
        TensorType::Int8 => quantized_log::<i8>(cx, 127),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

/// Steps of a [`Pace`] per element of a row.
const ROW_STEPS: usize = 8;

/// Size of the innermost dimension; 1 if it is empty, as rows must not be empty.
fn depth(cx: &PrepareContext<'_>) -> Result<usize> {
    Ok(cx.input(0)?.shape().last().copied().unwrap_or(1).max(1))
}

fn float(
    cx: &PrepareContext<'_>,
    f: impl Fn(&mut Pace, &[f32], &mut [f32]) -> Result<()> + Send + 'static,
) -> Result<Invoke> {
    let depth = depth(cx)?;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            f(&mut pace, row, out)?;
        }
        Ok(())
    }))
}

fn exp_over_sum<T: Copy>(
    pace: &mut Pace,
    row: &[T],
    real: impl Fn(T) -> f32,
    beta: f32,
    out: &mut [f32],
) -> Result<()> {
    let most = |max, row: &[T]| row.iter().map(|x| real(*x)).fold(max, f32::max);
    let max = pace.fold(2, row, f32::NEG_INFINITY, most)?;
    pace.zip(ROW_STEPS, row, out, |row, out| {
        let row = row.iter().map(|x| real(*x));
        out.iter_mut().zip(row).for_each(|(o, x)| *o = ((x - max) * beta).exp());
    })?;
    let factor = 1.0 / pace.fold(1, out, 0f32, |sum, out| out.iter().copied().fold(sum, f32::add))?;
    out.iter_mut().for_each(|o| *o *= factor);
    Ok(())
}

fn rounded(probability: f32, zero_point: i32) -> i32 {
    (probability.round() as i32).saturating_add(zero_point)
}

fn quantized<I: QuantizedElement, O: QuantizedElement>(
    cx: &PrepareContext<'_>,
    beta: f32,
    quantize: fn(f32, i32) -> i32,
) -> Result<Invoke> {
    let depth = depth(cx)?;
    let (input_scale, _) = cx.input(0)?.scale_zero_point()?;
    let (scale, zero_point) = cx.output(0)?.scale_zero_point()?;
    let table = exp_table(input_scale * beta);
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<I>(0)?, cx.output::<O>(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let max = pace.fold(1, row, I::MIN, highest)?;
            let exp = |x: &I| table[(max - (*x).into()) as usize];
            let sum = pace.fold(2, row, 0f32, |sum, row| row.iter().map(exp).fold(sum, f32::add))?;
            let factor = 1.0 / (sum * scale);
            pace.zip(ROW_STEPS, row, out, |row, out| {
                for (o, x) in out.iter_mut().zip(row) {
                    *o = O::clamped(quantize(exp(x) * factor, zero_point), O::MIN, O::MAX);
                }
            })?;
        }
        Ok(())
    }))
}

fn quantized_log<T: QuantizedElement>(cx: &PrepareContext<'_>, zero_point: i32) -> Result<Invoke> {
    check_output(steps_of(cx.output(0)?)?, 16.0 / 256.0, zero_point)?;
    let depth = depth(cx)?;
    let (input_scale, _) = cx.input(0)?.scale_zero_point()?;
    let (output_scale, _) = cx.output(0)?.scale_zero_point()?;
    let table = exp_table(input_scale);
    let scale = input_scale / output_scale;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let max = pace.fold(1, row, T::MIN, highest)?;
            let exp = |x: &T| table[(max - (*x).into()) as usize];
            let sum = pace.fold(2, row, 0f32, |sum, row| row.iter().map(exp).fold(sum, f32::add))?;
            let offset = (input_scale * max as f32 + sum.ln()) / output_scale;
            pace.zip(ROW_STEPS, row, out, |row, out| {
                for (o, &x) in out.iter_mut().zip(row) {
                    let log = scale * x.into() as f32 - offset;
                    *o = T::clamped((log.round_ties_even() + zero_point as f32) as i32, T::MIN, T::MAX);
                }
            })?;
        }
        Ok(())
    }))
}

/// 16-bit values, by a table of `exp` over `[-10, 0]` and one of `1 / (1 + x)` over `[0, 1]`.
fn of_16_bits(cx: &PrepareContext<'_>, beta: f32) -> Result<Invoke> {
    let depth = depth(cx)?;
    let Wide { exp, inverse, to_table } = Wide::new(steps_of(cx.input(0)?)?, beta, depth)?;
    let saturated = |x: i32| x.clamp(i16::MIN.into(), i16::MAX.into()) as i16;
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<i16>(0)?, cx.output::<i16>(0)?);
        let mut pace = Pace::new(cx);
        for (row, out) in input.chunks_exact(depth).zip(output.chunks_exact_mut(depth)) {
            let max = pace.fold(1, row, i16::MIN.into(), highest)?;
            let mut sum = 0i32;
            pace.zip(ROW_STEPS, row, out, |row, out| {
                // Kept in a register, unlike the captured sum.
                let mut of_piece = 0i32;
                for (o, &x) in out.iter_mut().zip(row) {
                    let scaled = to_table.apply(i32::from(x) - max);
                    *o = exp.at(saturated(scaled.saturating_add(i16::MAX.into())));
                    of_piece += i32::from(*o);
                }
                sum += of_piece;
            })?;
            // Writes the sum, which is at least about 1, as a power of two times 1 + x, for the table of `1 / (1 + x)`.
            let headroom = sum.leading_zeros().clamp(1, 30);
            let shifted = ((i64::from(sum) << (headroom - 1)) + (1 << 13)) >> 14;
            let factor = i64::from(inverse.at(saturated((shifted - (1 << 15) - (1 << 16)) as i32)));
            let shift = 31 - headroom;
            for o in out {
                let product = (i64::from(*o) * factor + (1 << (shift - 1))) >> shift;
                *o = product.clamp(0, i16::MAX.into()) as i16;
            }
        }
        Ok(())
    }))
}

/// The largest of `max` and the elements.
fn highest<T: QuantizedElement>(max: i32, row: &[T]) -> i32 {
    row.iter().fold(max, |max, &x| max.max(x.into()))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(beta: f32) -> Params {
        Params::Softmax(SoftmaxParams::default().beta(beta))
    }

    #[test]
    fn rows_sum_to_one() {
        let input = || Some(T::new(&[2, 2], &[0f32, 2f32.ln(), 1000.0, 1000.0]));
        let output = T::new(&[2, 2], &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5f32]);
        check(BuiltinOp::SOFTMAX, 1, params(1.0), &[input()], &[output]);
        let output = T::new(&[2, 2], &[0.2, 0.8, 0.5, 0.5f32]);
        check(BuiltinOp::SOFTMAX, 1, params(2.0), &[input()], &[output]);
        let logs = [-(3f32.ln()), (2.0 / 3.0f32).ln(), 0.5f32.ln(), 0.5f32.ln()];
        check(BuiltinOp::LOG_SOFTMAX, 1, Params::None, &[input()], &[T::new(&[2, 2], &logs)]);
    }

    #[test]
    fn quantized_rows() {
        let q = |v: [i8; 3]| T::new(&[1, 3], &v).quantized(1.0 / 256.0, -128);
        let input = || Some(T::new(&[1, 3], &[0i8, 0, -128]).quantized(1.0, 3));
        check(BuiltinOp::SOFTMAX, 2, params(1.0), &[input()], &[q([0, 0, -128])]);
        let input16 = Some(T::new(&[1, 2], &[100i16, 100]).quantized(1.0 / 32768.0, 0));
        let output16 = T::new(&[1, 2], &[16384i16, 16384]).quantized(1.0 / 32768.0, 0);
        check(BuiltinOp::SOFTMAX, 3, params(1.0), &[input16], &[output16]);
        let wrong = T::new(&[1, 3], &[0i8; 3]).quantized(0.5, 0);
        let text = error(BuiltinOp::SOFTMAX, 2, params(1.0), &[input()], &[wrong]);
        assert!(text.contains("scale 0.5"), "{text}");
    }
}
