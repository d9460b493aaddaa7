//! TILE, BROADCAST_TO, BROADCAST_ARGS.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, TensorType};

use crate::common::index::{Strides, View, dense_strides};
use crate::common::prepared::{Invoke, copied_view, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::TILE, prepared(tile), 1..=3)
        .add_builtin(BuiltinOp::BROADCAST_TO, prepared(broadcast_to), 2..=4)
        .add_builtin(BuiltinOp::BROADCAST_ARGS, prepared(broadcast_args), 1);
}

/// Each dimension is split in two: the number of the copy, and the position in it.
fn tile(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, output) = (cx.input(0)?.shape(), cx.output(0)?.shape());
    let (mut shape, mut strides) = (Vec::new(), Strides::new());
    for ((&size, &tiled), stride) in input.iter().zip(output.iter()).zip(dense_strides(input)) {
        shape.extend([tiled.checked_div(size).unwrap_or(0), size]);
        strides.extend([0, stride]);
    }
    copied_view(cx, 0, &shape, &View { start: 0, strides })
}

fn broadcast_to(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (input, output) = (cx.input(0)?.shape(), cx.output(0)?.shape());
    copied_view(cx, 0, output, &View::broadcast(input, output))
}

fn broadcast_args(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    fn on<T: Element + PartialEq + From<bool> + std::fmt::Display>() -> Invoke {
        Box::new(|cx| {
            let (a, b, output) = (cx.input::<T>(0)?, cx.input::<T>(1)?, cx.output::<T>(0)?);
            let one = T::from(true);
            // Aligned right; missing leading dimensions are 1.
            for (from_last, o) in output.iter_mut().rev().enumerate() {
                let dim = |list: &[T]| list.iter().rev().nth(from_last).copied().unwrap_or(one);
                *o = match (dim(a), dim(b)) {
                    (a, b) if a == b || b == one => a,
                    (a, b) if a == one => b,
                    (a, b) => {
                        return Err(Error::Kernel(format!("dimensions of {a} and {b} do not broadcast")));
                    }
                };
            }
            Ok(())
        })
    }
    match cx.output(0)?.ty() {
        TensorType::Int32 => Ok(on::<i32>()),
        TensorType::Int64 => Ok(on::<i64>()),
        _ => Err(unsupported_type("output", cx.output(0)?)),
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn repeats() {
        let x = || Some(T::new(&[2, 1], &[1i16, 2]));
        let ints = |v: &[i32]| Some(T::new(&[v.len()], v).constant());
        let want = T::new(&[4, 3], &[1i16, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
        check(BuiltinOp::TILE, 1, Params::None, &[x(), ints(&[2, 3])], &[want]);
        let want = T::new(&[2, 2, 2], &[1i16, 1, 2, 2, 1, 1, 2, 2]);
        check(
            BuiltinOp::BROADCAST_TO,
            3,
            Params::None,
            &[x(), ints(&[2, 2, 2])],
            std::slice::from_ref(&want),
        );
        let e = error(BuiltinOp::BROADCAST_TO, 3, Params::None, &[x(), ints(&[3, 2])], &[want]);
        assert!(e.contains("[2, 1] does not broadcast to [3, 2]"), "{e}");
        let shapes = |a: &[i64], b: &[i64]| [Some(T::new(&[a.len()], a)), Some(T::new(&[b.len()], b))];
        let (op, want) = (BuiltinOp::BROADCAST_ARGS, T::new(&[3], &[5i64, 2, 4]));
        check(op, 1, Params::None, &shapes(&[2, 1], &[5, 1, 4]), std::slice::from_ref(&want));
        let e = error(op, 1, Params::None, &shapes(&[2, 3], &[5, 1, 4]), &[want]);
        assert!(e.ends_with("dimensions of 3 and 4 do not broadcast"), "{e}");
    }
}
