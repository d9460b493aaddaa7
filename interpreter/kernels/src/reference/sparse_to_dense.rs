//! SPARSE_TO_DENSE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::index::dense_strides;
use crate::common::pace::Pace;
use crate::common::prepared::{Integers, Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SPARSE_TO_DENSE, prepared(prepare), 1..=3);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(2)?.ty() {
        TensorType::Float32 => on::<f32>(cx),
        TensorType::Int32 => on::<i32>(cx),
        TensorType::Int64 => on::<i64>(cx),
        TensorType::Int8 => on::<i8>(cx),
        TensorType::UInt8 => on::<u8>(cx),
        _ => Err(unsupported_type("values", cx.input(2)?)),
    }
}

fn on<T: Element>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let sizes = cx.output(0)?.shape().clone();
    let strides = dense_strides(&sizes);
    let one_value = cx.input(2)?.shape().rank() == 0;
    let rows = cx.input(0)?.shape().first().copied().unwrap_or(1);
    Ok(Box::new(move |cx| {
        let (indices, values) = (Integers::input(cx, 0)?, cx.input::<T>(2)?);
        let default = cx.input::<T>(3)?.first();
        let output = cx.output::<T>(0)?;
        output.fill(
            *default.ok_or_else(|| Error::Kernel("the default value has 0 elements, expected 1".into()))?,
        );
        let Some(tuples) = indices.len().checked_div(sizes.rank()) else {
            // The indices of a scalar output are empty: its element is the last value, or the only one.
            if let (true, [.., last]) = (rows > 0, values) {
                output[0] = *last;
            }
            return Ok(());
        };
        let mut pace = Pace::new(cx);
        for tuple in 0..tuples {
            pace.spend(16)?;
            let mut at = 0;
            for (d, &size) in sizes.iter().enumerate() {
                at += indices.index(tuple * sizes.rank() + d, size)? * strides[d].cast_unsigned();
            }
            output[at] = values[if one_value { 0 } else { tuple }];
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::sparse_to_dense::SparseToDenseParams;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn values_at_indices() {
        let params = || Params::SparseToDense(SparseToDenseParams::default().validate_indices(false));
        let inputs = |indices: T, shape: &[i32], values: T| {
            [indices, T::new(&[shape.len()], shape), values, T::new(&[], &[-1.0f32])].map(Some)
        };
        let rows = |i: &[i64]| inputs(T::new(&[2, 2], i), &[2, 3], T::new(&[2], &[5.0f32, 6.0]));
        let want = T::new(&[2, 3], &[-1.0f32, 5.0, -1.0, -1.0, -1.0, 6.0]);
        let op = BuiltinOp::SPARSE_TO_DENSE;
        check(op, 1, params(), &rows(&[0, 1, 1, 2]), std::slice::from_ref(&want));
        let e = error(op, 1, params(), &rows(&[0, 1, 2, 0]), &[want]);
        assert!(e.ends_with("index 2 is out of range for a dimension of 2"), "{e}");
        let all = inputs(T::new(&[2], &[2i32, 0]), &[4], T::new(&[], &[7.0f32]));
        check(op, 1, params(), &all, &[T::new(&[4], &[7.0f32, -1.0, 7.0, -1.0])]);
        let scalar = |rows: usize, values: T| inputs(T::new(&[rows, 0], &[0i32; 0]), &[], values);
        let several = scalar(2, T::new(&[2], &[5.0f32, 6.0]));
        check(op, 1, params(), &several, &[T::new(&[], &[6.0f32])]);
        check(op, 1, params(), &scalar(0, T::new(&[], &[7.0f32])), &[T::new(&[], &[-1.0f32])]);
        let one = inputs(T::new(&[], &[1i32]), &[2], T::new(&[1], &[7.0f32]));
        check(op, 1, params(), &one, &[T::new(&[2], &[-1.0f32, 7.0])]);
    }
}
