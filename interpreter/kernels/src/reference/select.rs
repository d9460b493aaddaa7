//! SELECT, SELECT_V2.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{Nest, Strides, broadcast_strides, dense_strides};
use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, moved_bits, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SELECT, prepared(|cx| select(cx, true)), 1..=4).add_builtin(
        BuiltinOp::SELECT_V2,
        prepared(|cx| select(cx, false)),
        1..=2,
    );
}

/// `by_row`: a condition of rank 1 selects along the first dimension, not along the last.
pub(super) fn select(cx: &mut PrepareContext<'_>, by_row: bool) -> Result<Invoke> {
    let (condition, x, y) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.input(2)?.shape());
    let output = cx.output(0)?.shape();
    let bits = moved_bits("input 1", cx.input(1)?)?;
    if bits < 8 {
        return Err(unsupported_type("input 1", cx.input(1)?));
    }
    let strides = |from: &[usize]| match from.len() > output.rank() {
        // Operands of one element may have more dimensions than the output.
        true => Strides::from_elem(0, output.rank()),
        false => broadcast_strides(from, output),
    };
    let of_condition = if by_row && condition.rank() == 1 && output.rank() > 1 {
        let mut rows = Strides::from_elem(0, output.rank());
        rows[0] = 1;
        rows
    } else {
        strides(condition)
    };
    let nest = Nest::new(output, [&of_condition, &strides(x), &strides(y), &dense_strides(output)]);
    let width = bits / 8;
    Ok(Box::new(move |cx| {
        let (condition, x, y) = (cx.input::<Bool>(0)?, cx.input_bytes(1)?, cx.input_bytes(2)?);
        let output = cx.output_bytes(0)?;
        let mut pace = Pace::new(cx);
        nest.try_for_each([0; 4], |[c, i, j, o]| {
            let source = if condition[c].get() { &x[i * width..] } else { &y[j * width..] };
            output[o * width..][..width].copy_from_slice(&source[..width]);
            pace.spend(4)
        })
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn picks() {
        let condition = || Some(T::new(&[2], &[Bool(1), Bool(0)]));
        let x = || Some(T::new(&[2, 2], &[1i16, 2, 3, 4]));
        let y = || Some(T::new(&[2, 2], &[-1i16, -2, -3, -4]));
        let by_row = T::new(&[2, 2], &[1i16, 2, -3, -4]);
        check(BuiltinOp::SELECT, 1, Params::None, &[condition(), x(), y()], &[by_row]);
        let by_column = T::new(&[2, 2], &[1i16, -2, 3, -4]);
        check(BuiltinOp::SELECT_V2, 1, Params::None, &[condition(), x(), y()], &[by_column]);
        let zero = Some(T::new(&[1], &[0i16]));
        let want = T::new(&[2, 2], &[1i16, 0, 3, 0]);
        check(
            BuiltinOp::SELECT_V2,
            1,
            Params::None,
            &[condition(), x(), zero.clone()],
            std::slice::from_ref(&want),
        );
        let e = error(BuiltinOp::SELECT, 1, Params::None, &[condition(), x(), zero], &[want]);
        assert!(e.contains("condition [2], [2, 2] and [1] do not fit"), "{e}");
    }
}
