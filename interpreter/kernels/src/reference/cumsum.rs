//! CUMSUM.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::axis_in;
use delegraph_core::ops::cumsum::CumsumParams;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result, TensorType};

use crate::common::number::Number;
use crate::common::pace::Pace;
use crate::common::prepared::{Integers, Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::CUMSUM, prepared(prepare), 1);
}

fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    match cx.input(0)?.ty() {
        TensorType::Float32 => on::<f32>(cx),
        TensorType::Int32 => on::<i32>(cx),
        TensorType::Int64 => on::<i64>(cx),
        _ => Err(unsupported_type("input 0", cx.input(0)?)),
    }
}

fn on<T: Number>(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<CumsumParams>()?.clone();
    let shape = cx.input(0)?.shape().clone();
    Ok(Box::new(move |cx| {
        let axis = axis_in(Integers::input(cx, 1)?.get(0), shape.rank())?;
        let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let mut pace = Pace::new(cx);
        for row in 0..input.len().checked_div(size).unwrap_or(0) {
            pace.spend(size.saturating_mul(2))?;
            let first = row / inner * size * inner + row % inner;
            let mut sum = T::default();
            for i in 0..size {
                let at = first + if p.reverse { size - 1 - i } else { i } * inner;
                let before = sum;
                sum = sum.plus(input[at]);
                output[at] = if p.exclusive { before } else { sum };
            }
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
    fn sums_up() {
        let x = || Some(T::new(&[2, 3], &[1i32, 2, 3, 4, 5, 6]));
        let axis = |axis: i32| Some(T::new(&[1], &[axis]));
        let params = |exclusive, reverse| {
            Params::Cumsum(CumsumParams::default().exclusive(exclusive).reverse(reverse))
        };
        let want = T::new(&[2, 3], &[1i32, 3, 6, 4, 9, 15]);
        check(BuiltinOp::CUMSUM, 1, params(false, false), &[x(), axis(1)], std::slice::from_ref(&want));
        let want_reversed = T::new(&[2, 3], &[4i32, 5, 6, 0, 0, 0]);
        check(BuiltinOp::CUMSUM, 1, params(true, true), &[x(), axis(-2)], &[want_reversed]);
        let e = error(BuiltinOp::CUMSUM, 1, params(false, false), &[x(), axis(2)], &[want]);
        assert!(e.contains("axis 2 is out of range for rank 2"), "{e}");
    }
}
