//! GATHER, GATHER_ND.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::gather::gather_dimensions;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::common::index::dense_strides;
use crate::common::pace::{Pace, STRING_STEPS};
use crate::common::prepared::{Integers, Invoke, copy_elements, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::GATHER, prepared(gather), 1..=8).add_builtin(
        BuiltinOp::GATHER_ND,
        prepared(gather_nd),
        1..=6,
    );
}

/// The input is `[batch, outer, size, inner]`, the indices are `[batch, count]`.
fn gather(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (axis, batch_dims) = gather_dimensions(&cx.infer_context())?;
    let (input, indices) = (cx.input(0)?.shape(), cx.input(1)?.shape());
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    let (batch, outer) = (product(&input[..batch_dims]), product(&input[batch_dims..axis]));
    let (size, inner) = (input[axis], product(&input[axis + 1..]));
    let count = product(&indices[batch_dims..]);
    runs(cx, inner, move |indices, copy| {
        for b in 0..batch {
            for slab in b * outer..(b + 1) * outer {
                for i in 0..count {
                    copy((slab * size + indices.index(b * count + i, size)?) * inner)?;
                }
            }
        }
        Ok(())
    })
}

fn gather_nd(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, indices) = (cx.input(0)?.shape().clone(), cx.input(1)?.shape());
    let depth = indices.last().copied().unwrap_or(0);
    let tuples: usize = indices.iter().rev().skip(1).product();
    let strides = dense_strides(&input);
    let inner: usize = input[depth..].iter().product();
    runs(cx, inner, move |indices, copy| {
        for tuple in 0..tuples {
            let mut from = 0;
            for d in 0..depth {
                from += indices.index(tuple * depth + d, input[d])? * strides[d].cast_unsigned();
            }
            copy(from)?;
        }
        Ok(())
    })
}

/// Fills the output with runs of `inner` elements of the input. `each` receives the indices, and a callback that takes
/// the start of each run.
fn runs<F>(cx: &PrepareContext<'_>, inner: usize, each: F) -> Result<Invoke>
where
    F: Fn(Integers<'_>, &mut dyn FnMut(usize) -> Result<()>) -> Result<()> + Send + 'static,
{
    if cx.input(0)?.ty() == TensorType::String {
        let output = cx.output(0)?.shape().clone();
        return Ok(Box::new(move |cx| {
            let mut sources = cx.budget().reserved(output.elements())?;
            let mut pace = Pace::new(cx);
            each(Integers::input(cx, 1)?, &mut |from| {
                pace.spend(inner.saturating_mul(STRING_STEPS))?;
                (from..from + inner).try_for_each(|i| sources.push(i))
            })?;
            let strings = cx.strings(0)?;
            cx.write_strings(0, output.clone(), sources.iter().map(|&i| strings.get(i)))
        }));
    }
    let bits = moved_bits("input", cx.input(0)?)?;
    Ok(Box::new(move |cx| {
        let (input, indices, output) = (cx.input_bytes(0)?, Integers::input(cx, 1)?, cx.output_bytes(0)?);
        let (mut to, mut pace) = (0, Pace::new(cx));
        each(indices, &mut |from| {
            pace.spend(inner.saturating_add(4))?;
            copy_elements(bits, input, from, output, to, inner);
            to += inner;
            Ok(())
        })
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::gather::GatherParams;

    use super::*;
    use crate::testing::{T, check, error};

    fn params(axis: i32, batch_dims: i32) -> Params {
        Params::Gather(GatherParams::default().axis(axis).batch_dims(batch_dims))
    }

    #[test]
    fn slices() {
        let x = || Some(T::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let indices = |shape: &[usize], i: &[i64]| Some(T::new(shape, i));
        let (op, want) = (BuiltinOp::GATHER, T::new(&[2, 2, 1], &[3.0f32, 1.0, 6.0, 4.0]));
        check(op, 1, params(-1, 0), &[x(), indices(&[2, 1], &[2, 0])], &[want]);
        let want = T::new(&[2, 1], &[2.0f32, 6.0]);
        check(op, 5, params(1, 1), &[x(), indices(&[2, 1], &[1, 2])], std::slice::from_ref(&want));
        let e = error(op, 5, params(1, 1), &[x(), indices(&[2, 1], &[1, 3])], &[want]);
        assert!(e.ends_with("index 3 is out of range for a dimension of 3"), "{e}");
    }

    #[test]
    fn strings() {
        let x = || Some(T::strings(&[2, 2], &["a", "bc", "", "d"]));
        let indices = |shape: &[usize], i: &[i32]| Some(T::new(shape, i));
        let want = T::strings(&[1, 2], &["", "d"]);
        check(BuiltinOp::GATHER, 1, params(0, 0), &[x(), indices(&[1], &[1])], std::slice::from_ref(&want));
        let e = error(BuiltinOp::GATHER, 1, params(0, 0), &[x(), indices(&[1], &[2])], &[want]);
        assert!(e.ends_with("index 2 is out of range for a dimension of 2"), "{e}");
        let want = T::strings(&[2], &["bc", "a"]);
        check(BuiltinOp::GATHER_ND, 2, Params::None, &[x(), indices(&[2, 2], &[0, 1, 0, 0])], &[want]);
    }

    #[test]
    fn tuples() {
        let x = || Some(T::new(&[2, 3], &[1i8, 2, 3, 4, 5, 6]));
        let indices = |shape: &[usize], i: &[i32]| Some(T::new(shape, i));
        let (op, want) = (BuiltinOp::GATHER_ND, T::new(&[2], &[6i8, 1]));
        check(op, 1, Params::None, &[x(), indices(&[2, 2], &[1, 2, 0, 0])], std::slice::from_ref(&want));
        check(op, 1, Params::None, &[x(), indices(&[1, 1], &[1])], &[T::new(&[1, 3], &[4i8, 5, 6])]);
        let e = error(op, 1, Params::None, &[x(), indices(&[2, 2], &[1, 2, -1, 0])], &[want]);
        assert!(e.ends_with("index -1 is out of range for a dimension of 2"), "{e}");
    }
}
