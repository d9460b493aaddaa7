//! SCATTER_ND.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, MutableOpResolver, Result, TensorType};

use crate::common::index::dense_strides;
use crate::common::number::Number;
use crate::common::pace::Pace;
use crate::common::prepared::{Integers, Invoke, fill_polled, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SCATTER_ND, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(1)?.ty() {
        TensorType::Float32 => scatter(cx, f32::plus),
        TensorType::Int8 => scatter(cx, i8::plus),
        TensorType::UInt8 => scatter(cx, u8::plus),
        TensorType::Int32 => scatter(cx, i32::plus),
        TensorType::Int64 => scatter(cx, i64::plus),
        TensorType::Bool => scatter(cx, |a: Bool, b: Bool| Bool::from(a.get() || b.get())),
        _ => Err(unsupported_type("input 1", cx.input(1)?)),
    }
}

fn scatter<T: Element>(cx: &mut PrepareContext<'_>, add: fn(T, T) -> T) -> Result<Invoke> {
    let shape = cx.output(0)?.shape().clone();
    let indices = cx.input(0)?.shape();
    let depth = indices.last().copied().unwrap_or(0);
    let tuples: usize = indices.iter().rev().skip(1).product();
    let strides = dense_strides(&shape);
    let inner: usize = shape[depth..].iter().product();
    Ok(Box::new(move |cx| {
        let (indices, updates) = (Integers::input(cx, 0)?, cx.input::<T>(1)?);
        let output = cx.output::<T>(0)?;
        fill_polled(bytemuck::cast_slice_mut(output), &[0], cx.parallel());
        let mut pace = Pace::new(cx);
        for tuple in 0..tuples {
            pace.spend(depth + 1)?;
            let mut to = 0;
            for d in 0..depth {
                to += indices.index(tuple * depth + d, shape[d])? * strides[d].cast_unsigned();
            }
            let slice = &updates[tuple * inner..][..inner];
            pace.zip(2, slice, &mut output[to..][..inner], |slice, output| {
                output.iter_mut().zip(slice).for_each(|(o, v)| *o = add(*o, *v));
            })?;
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
    fn adds_where_indices_meet() {
        let indices = |v: [i32; 3]| Some(T::new(&[3, 1], &v));
        let updates = || Some(T::new(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let shape = || Some(T::new(&[2], &[3i32, 2]).constant());
        let (op, want) = (BuiltinOp::SCATTER_ND, T::new(&[3, 2], &[3.0f32, 4.0, 0.0, 0.0, 6.0, 8.0]));
        check(op, 1, Params::None, &[indices([2, 0, 2]), updates(), shape()], std::slice::from_ref(&want));
        let e = error(op, 1, Params::None, &[indices([2, 0, 3]), updates(), shape()], &[want]);
        assert!(e.ends_with("index 3 is out of range for a dimension of 3"), "{e}");
    }
}
