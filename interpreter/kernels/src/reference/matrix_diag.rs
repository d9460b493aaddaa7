//! MATRIX_DIAG, MATRIX_SET_DIAG.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::prepared::{Invoke, copy_bytes, fill_polled, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::MATRIX_DIAG, prepared(diag), 1).add_builtin(
        BuiltinOp::MATRIX_SET_DIAG,
        prepared(set_diag),
        1,
    );
}

/// Zeros, except on the diagonals.
fn diag(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let copy = diagonals(cx, 0)?;
    Ok(Box::new(move |cx| {
        let output = cx.output_bytes(0)?;
        fill_polled(output, &[0], cx.parallel());
        copy.run_on(cx.input_bytes(0)?, output, cx.parallel());
        Ok(())
    }))
}

fn set_diag(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let copy = diagonals(cx, 1)?;
    Ok(Box::new(move |cx| {
        let output = cx.output_bytes(0)?;
        copy_bytes(cx.input_bytes(0)?, output, cx.parallel());
        copy.run_on(cx.input_bytes(1)?, output, cx.parallel());
        Ok(())
    }))
}

/// Copies input `i` to the diagonals of the output.
fn diagonals(cx: &PrepareContext<'_>, i: usize) -> Result<StridedCopy> {
    let (input, matrices) = (cx.input(i)?, cx.output(0)?.shape());
    let bits = moved_bits("input", input)?;
    let mut view = View::dense(matrices);
    // Neighbours on a diagonal are one row and one column apart.
    if let (Some(column), Some(row)) = (view.strides.pop(), view.strides.last_mut()) {
        *row += column;
    }
    Ok(StridedCopy::new(input.shape(), bits, &View::dense(input.shape()), &view))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn diagonals_of_matrices() {
        let x = Some(T::new(&[2, 2], &[1i16, 2, 3, 4]));
        let want = T::new(&[2, 2, 2], &[1i16, 0, 0, 2, 3, 0, 0, 4]);
        check(BuiltinOp::MATRIX_DIAG, 1, Params::None, &[x], &[want]);
        let x = || Some(T::new(&[1, 2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let d = Some(T::new(&[1, 2], &[-1.0f32, -2.0]));
        let want = T::new(&[1, 2, 3], &[-1.0f32, 2.0, 3.0, 4.0, -2.0, 6.0]);
        check(BuiltinOp::MATRIX_SET_DIAG, 1, Params::None, &[x(), d], &[want]);
        let tall = Some(T::new(&[3, 2], &[0i8; 6]));
        let want = T::new(&[3, 2], &[7i8, 0, 0, 8, 0, 0]);
        check(BuiltinOp::MATRIX_SET_DIAG, 1, Params::None, &[tall, Some(T::new(&[2], &[7i8, 8]))], &[want]);
    }
}
