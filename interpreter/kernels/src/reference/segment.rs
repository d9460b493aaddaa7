//! SEGMENT_SUM, UNSORTED_SEGMENT_PROD, UNSORTED_SEGMENT_MAX, UNSORTED_SEGMENT_SUM, UNSORTED_SEGMENT_MIN.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let sum = || prepared(|cx| reduce(cx, (0.0, |a, b| a + b), (0, i32::wrapping_add)));
    resolver
        .add_builtin(BuiltinOp::SEGMENT_SUM, sum(), 1)
        .add_builtin(BuiltinOp::UNSORTED_SEGMENT_SUM, sum(), 1)
        .add_builtin(
            BuiltinOp::UNSORTED_SEGMENT_PROD,
            prepared(|cx| reduce(cx, (1.0, |a, b| a * b), (1, i32::wrapping_mul))),
            1,
        )
        .add_builtin(
            BuiltinOp::UNSORTED_SEGMENT_MAX,
            prepared(|cx| reduce(cx, (f32::MIN, f32::max), (i32::MIN, i32::max))),
            1,
        )
        .add_builtin(
            BuiltinOp::UNSORTED_SEGMENT_MIN,
            prepared(|cx| reduce(cx, (f32::MAX, f32::min), (i32::MAX, i32::min))),
            1,
        );
}

/// The value of an empty segment, and the function that combines the value of a segment with an element.
type Reduction<T> = (T, fn(T, T) -> T);

fn reduce(cx: &mut PrepareContext<'_>, floats: Reduction<f32>, ints: Reduction<i32>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => on(cx, floats),
        TensorType::Int32 => on(cx, ints),
        _ => Err(unsupported_type("data", cx.input(0)?)),
    }
}

/// Data `[ids, inner]`, output `[segments, inner]`; elements with negative ids are skipped.
fn on<T: Element>(cx: &mut PrepareContext<'_>, (empty, add): Reduction<T>) -> Result<Invoke> {
    let output = cx.output(0)?.shape();
    let (segments, inner) = (output[0], output[1..].iter().product::<usize>());
    Ok(Box::new(move |cx| {
        let (data, ids, output) = (cx.input::<T>(0)?, cx.input::<i32>(1)?, cx.output::<T>(0)?);
        output.fill(empty);
        let mut pace = Pace::new(cx);
        for (i, &id) in ids.iter().enumerate().filter(|(_, id)| **id >= 0) {
            pace.spend(inner.saturating_add(4))?;
            let segment = usize::try_from(id).ok().filter(|&segment| segment < segments);
            let segment = segment.ok_or_else(|| {
                Error::Kernel(format!("segment {id} is out of range for {segments} segments"))
            })?;
            let target = &mut output[segment * inner..][..inner];
            target.iter_mut().zip(&data[i * inner..][..inner]).for_each(|(o, x)| *o = add(*o, *x));
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn sorted() {
        let data = Some(T::new(&[3, 2], &[1i32, 2, 3, 4, 5, 6]));
        let ids = Some(T::new(&[3], &[0i32, 0, 1]));
        let want = T::new(&[2, 2], &[4i32, 6, 5, 6]);
        check(BuiltinOp::SEGMENT_SUM, 1, Params::None, &[data, ids], &[want]);
    }

    #[test]
    fn unsorted() {
        let data = || Some(T::new(&[2, 2, 1], &[1.5f32, -2.0, 3.0, 4.0]));
        let inputs = |ids: &[i32]| [data(), Some(T::new(&[2, 2], ids)), Some(T::new(&[1], &[3i32]))];
        let want = |x: &[f32]| T::new(&[3, 1], x);
        let ids = [2, 0, -1, 2];
        let gives = |op, x: &[f32]| check(op, 1, Params::None, &inputs(&ids), &[want(x)]);
        gives(BuiltinOp::UNSORTED_SEGMENT_SUM, &[-2.0, 0.0, 5.5]);
        gives(BuiltinOp::UNSORTED_SEGMENT_PROD, &[-2.0, 1.0, 6.0]);
        gives(BuiltinOp::UNSORTED_SEGMENT_MAX, &[-2.0, f32::MIN, 4.0]);
        gives(BuiltinOp::UNSORTED_SEGMENT_MIN, &[-2.0, f32::MAX, 1.5]);
        let e = error(
            BuiltinOp::UNSORTED_SEGMENT_SUM,
            1,
            Params::None,
            &inputs(&[0, 1, 2, 3]),
            &[want(&[0.0; 3])],
        );
        assert!(e.ends_with("segment 3 is out of range for 3 segments"), "{e}");
    }
}
