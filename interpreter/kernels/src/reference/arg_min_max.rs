//! ARG_MAX, ARG_MIN.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::arg_min_max::axis;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, known, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::ARG_MAX, prepared(|cx| prepare(cx, true)), 1..=3).add_builtin(
        BuiltinOp::ARG_MIN,
        prepared(|cx| prepare(cx, false)),
        1..=3,
    );
}

fn prepare(cx: &mut PrepareContext<'_>, largest: bool) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => search(cx, largest, |v: f32| v),
        TensorType::Int8 => search(cx, largest, |v: i8| v),
        TensorType::UInt8 => search(cx, largest, |v: u8| v),
        TensorType::Int32 => search(cx, largest, |v: i32| v),
        TensorType::Bool => search(cx, largest, Bool::get),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn is_number<K: PartialOrd>(key: &K) -> bool {
    key.partial_cmp(key).is_some()
}

/// Steps of a [`Pace`] per element.
const CANDIDATE_STEPS: usize = 8;

/// The first of equal elements is returned; a NaN only if all elements are NaN.
fn search<T: Element, K: PartialOrd + 'static>(
    cx: &mut PrepareContext<'_>,
    largest: bool,
    key: fn(T) -> K,
) -> Result<Invoke> {
    let axis = known(axis(&cx.infer_context())?)?;
    let shape = cx.input(0)?.shape();
    let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let wide = cx.output(0)?.ty() == TensorType::Int64;
    let count = cx.output(0)?.shape().elements();
    Ok(Box::new(move |cx| {
        let input = cx.input::<T>(0)?;
        let mut pace = Pace::new(cx);
        let mut place = |i: usize| {
            let first = i / inner * size * inner + i % inner;
            let mut best = 0;
            for from in (0..size).step_by(PIECE) {
                let candidates = from..size.min(from + PIECE);
                pace.spend(candidates.len().saturating_mul(CANDIDATE_STEPS))?;
                for candidate in candidates {
                    let [a, b] = [candidate, best].map(|at| key(input[first + at * inner]));
                    let better = if largest { a > b } else { a < b };
                    if better || (is_number(&a) && !is_number(&b)) {
                        best = candidate;
                    }
                }
            }
            Ok(best)
        };
        match wide {
            true => (cx.output::<i64>(0)?.iter_mut().zip(0..count))
                .try_for_each(|(o, i)| place(i).map(|place| *o = place as i64)),
            false => (cx.output::<i32>(0)?.iter_mut().zip(0..count))
                .try_for_each(|(o, i)| place(i).map(|place| *o = place as i32)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::arg_min_max::{ArgMaxParams, ArgMinParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn finds_the_first() {
        let x = || Some(T::new(&[2, 3], &[f32::NAN, 7.0, 7.0, 4.0, -5.0, 6.0]));
        let axis = |axis: i32| Some(T::new(&[], &[axis]).constant());
        let max = Params::ArgMax(ArgMaxParams::default().output_type(TensorType::Int64));
        check(BuiltinOp::ARG_MAX, 1, max.clone(), &[x(), axis(-1)], &[T::new(&[2], &[1i64, 2])]);
        let min = Params::ArgMin(ArgMinParams::default().output_type(TensorType::Int32));
        check(BuiltinOp::ARG_MIN, 1, min, &[x(), axis(0)], &[T::new(&[3], &[1i32, 1, 1])]);
        let empty = Some(T::new(&[0], &[0.0f32; 0]));
        let e = error(BuiltinOp::ARG_MAX, 1, max, &[empty, axis(0)], &[T::new(&[], &[0i64])]);
        assert!(e.contains("dimension 0 of [0] is empty"), "{e}");
    }
}
