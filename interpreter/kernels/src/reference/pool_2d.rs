//! AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D.

use std::ops::Range;

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::pool_2d::Pool2DParams;
use delegraph_core::ops::{TensorType, Window, pad_amount};
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, prepared, unsupported_type};
use crate::common::quantized::{QuantizedElement, activation_range};
use crate::common::weights::clamp_bounds;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::AVERAGE_POOL_2D, prepared(average), 1..=3)
        .add_builtin(BuiltinOp::MAX_POOL_2D, prepared(max), 1..=3)
        .add_builtin(BuiltinOp::L2_POOL_2D, prepared(l2), 1);
}

fn average(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => float(cx, |window| window.iter().sum::<f32>() / window.len() as f32),
        TensorType::UInt8 => quantized::<u8>(cx, rounded_mean),
        TensorType::Int8 => quantized::<i8>(cx, rounded_mean),
        TensorType::Int16 => quantized::<i16>(cx, rounded_mean),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

fn max(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn highest<T: QuantizedElement>(window: &[T]) -> i32 {
        window.iter().fold(T::MIN, |m, &v| m.max(v.into()))
    }
    match cx.input(0)?.ty() {
        TensorType::Float32 => float(cx, |window| window.iter().fold(f32::MIN, |m, &v| m.max(v))),
        TensorType::UInt8 => quantized::<u8>(cx, highest),
        TensorType::Int8 => quantized::<i8>(cx, highest),
        TensorType::Int16 => quantized::<i16>(cx, highest),
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

fn l2(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => {
            float(cx, |window| (window.iter().map(|v| v * v).sum::<f32>() / window.len() as f32).sqrt())
        }
        _ => Err(unsupported_type("input", cx.input(0)?)),
    }
}

/// The mean; ties round away from zero.
fn rounded_mean<T: QuantizedElement>(window: &[T]) -> i32 {
    let count = i64::try_from(window.len()).unwrap_or(i64::MAX);
    let sum: i64 = window.iter().map(|&v| i64::from(v.into())).sum();
    let half = if sum > 0 { count / 2 } else { -(count / 2) };
    // The mean of values of a type is in the type's range.
    ((sum + half) / count) as i32
}

fn float(cx: &mut PrepareContext<'_>, combine: fn(&[f32]) -> f32) -> Result<Invoke> {
    let activation = cx.params::<Pool2DParams>()?.fused_activation_function;
    let (low, high) = clamp_bounds(activation)?;
    pool(cx, move |window: &[f32]| combine(window).clamp(low, high))
}

fn quantized<T: QuantizedElement>(cx: &mut PrepareContext<'_>, combine: fn(&[T]) -> i32) -> Result<Invoke> {
    let activation = cx.params::<Pool2DParams>()?.fused_activation_function;
    let (low, high) = activation_range(activation, cx.output(0)?)?;
    pool(cx, move |window: &[T]| T::clamped(combine(window), low, high))
}

/// Steps of a [`Pace`] per element of a window.
const ELEMENT_STEPS: usize = 2;

/// Steps of a [`Pace`] per row of a window, beside its elements.
const ROW_STEPS: usize = 4;

/// Combines the elements of each window, per channel. Windows are cut at the edges of the input.
fn pool<T: Element>(
    cx: &mut PrepareContext<'_>,
    combine: impl Fn(&[T]) -> T + Send + 'static,
) -> Result<Invoke> {
    let params = cx.params::<Pool2DParams>()?;
    let (input, output) = (cx.input(0)?.shape(), cx.output(0)?.shape());
    let (height, width, channels) = (input[1], input[2], input[3]);
    let rows = cx.budget().collect(windows(height, output[1], params.filter_height, params.stride_h))?;
    let columns = cx.budget().collect(windows(width, output[2], params.filter_width, params.stride_w))?;
    let longest = |windows: &[Range<usize>]| windows.iter().map(Range::len).max().unwrap_or(0);
    let gathered = cx.temporary_of::<T>(longest(&rows).saturating_mul(longest(&columns)))?;
    if has_empty_window(&rows, &columns) {
        return Err(Error::InvalidNode("a window is entirely padding".into()));
    }
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let gathered = cx.temporary::<T>(gathered)?;
        let (mut outputs, mut pace) = (output.iter_mut(), Pace::new(cx));
        for image in input.chunks_exact((height * width * channels).max(1)) {
            for rows in &rows {
                for columns in &columns {
                    let gathered = &mut gathered[..rows.len() * columns.len()];
                    for channel in 0..channels {
                        for (row, to) in rows.clone().zip(gathered.chunks_mut(columns.len())) {
                            for (i, to) in to.chunks_mut(PIECE).enumerate() {
                                pace.spend(to.len() * ELEMENT_STEPS + ROW_STEPS)?;
                                let from = row * width + columns.start + i * PIECE;
                                for (at, to) in (from..).zip(to) {
                                    *to = image[at * channels + channel];
                                }
                            }
                        }
                        let Some(output) = outputs.next() else { return Ok(()) };
                        *output = combine(gathered);
                    }
                }
            }
        }
        Ok(())
    }))
}

/// The part of each window along one dimension that is inside the input.
fn windows(
    input: usize,
    output: usize,
    window: i32,
    stride: i32,
) -> impl ExactSizeIterator<Item = Range<usize>> {
    // Inference has checked that both are positive.
    let (window, stride) = (window.max(1).cast_unsigned() as usize, stride.max(1).cast_unsigned() as usize);
    let before = pad_amount(input, output, Window { size: window, stride, dilation: 1 });
    let within = move |position: usize| position.saturating_sub(before).min(input);
    let start = move |o: usize| o.saturating_mul(stride);
    (0..output).map(move |o| within(start(o))..within(start(o).saturating_add(window)))
}

fn has_empty_window(rows: &[Range<usize>], columns: &[Range<usize>]) -> bool {
    let empty = |windows: &[Range<usize>]| windows.iter().any(Range::is_empty);
    (empty(rows) && !columns.is_empty()) || (empty(columns) && !rows.is_empty())
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::{Activation, Padding};

    use super::*;
    use crate::testing::{T, check, error};

    fn params(padding: Padding, window: i32, stride: i32, activation: Activation) -> Params {
        Params::Pool2D(
            Pool2DParams::default()
                .padding(padding)
                .stride_w(stride)
                .stride_h(stride)
                .filter_width(window)
                .filter_height(window)
                .fused_activation_function(activation),
        )
    }

    #[test]
    fn padding_is_not_part_of_a_window() {
        let input = || Some(T::new(&[1, 3, 3, 1], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -9.0]));
        let same = || params(Padding::Same, 2, 2, Activation::None);
        let output = |values: &[f32]| T::new(&[1, 2, 2, 1], values);
        check(BuiltinOp::AVERAGE_POOL_2D, 1, same(), &[input()], &[output(&[3.0, 4.5, 7.5, -9.0])]);
        check(BuiltinOp::MAX_POOL_2D, 1, same(), &[input()], &[output(&[5.0, 6.0, 8.0, -9.0])]);
        let relu = params(Padding::Same, 2, 2, Activation::Relu6);
        check(BuiltinOp::MAX_POOL_2D, 1, relu, &[input()], &[output(&[5.0, 6.0, 6.0, 0.0])]);
        let l2 = [11.5f32.sqrt(), 22.5f32.sqrt(), 56.5f32.sqrt(), 9.0];
        check(BuiltinOp::L2_POOL_2D, 1, same(), &[input()], &[output(&l2)]);
    }

    #[test]
    fn quantized_means_round_halves_away_from_zero() {
        let q = |shape: &[usize], values: &[i8]| T::new(shape, values).quantized(0.5, 0);
        let input = Some(q(&[1, 2, 2, 2], &[1, -1, 2, -2, 1, -1, 2, -2]));
        let valid = params(Padding::Valid, 2, 1, Activation::None);
        check(
            BuiltinOp::AVERAGE_POOL_2D,
            2,
            valid.clone(),
            std::slice::from_ref(&input),
            &[q(&[1, 1, 1, 2], &[2, -2])],
        );
        let clamped = params(Padding::Valid, 2, 1, Activation::ReluN1To1);
        let input = Some(q(&[1, 2, 2, 2], &[9, -9, 9, -9, 1, -1, 2, -8]));
        check(BuiltinOp::MAX_POOL_2D, 2, clamped, &[input], &[q(&[1, 1, 1, 2], &[2, -1])]);
        let text = error(
            BuiltinOp::MAX_POOL_2D,
            1,
            valid,
            &[Some(T::new(&[1, 2, 2, 1], &[1i32; 4]))],
            &[T::new(&[1, 1, 1, 1], &[1i32])],
        );
        assert!(text.contains("INT32"), "{text}");
    }

    #[test]
    fn integers_without_a_scale() {
        let input = || [Some(T::new(&[1, 2, 2, 1], &[-128i8, 3, 4, 127]))];
        let of = |activation| params(Padding::Valid, 2, 1, activation);
        let output = |value: i8| [T::new(&[1, 1, 1, 1], &[value])];
        check(BuiltinOp::MAX_POOL_2D, 2, of(Activation::None), &input(), &output(127));
        check(BuiltinOp::AVERAGE_POOL_2D, 2, of(Activation::None), &input(), &output(2));
        let text = error(BuiltinOp::MAX_POOL_2D, 2, of(Activation::Relu6), &input(), &output(0));
        assert!(text.contains("must be quantized with one scale and zero point"), "{text}");
    }
}
