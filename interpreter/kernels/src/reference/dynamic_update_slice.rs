//! DYNAMIC_UPDATE_SLICE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::prepared::{Integers, Invoke, copy_bytes, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::DYNAMIC_UPDATE_SLICE, prepared(prepare), 1..=6);
}

/// Start indices are clamped so that the update is inside.
fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (shape, update) = (cx.input(0)?.shape().clone(), cx.input(1)?.shape().clone());
    let bits = moved_bits("input", cx.input(0)?)?;
    Ok(Box::new(move |cx| {
        let start = Integers::input(cx, 2)?;
        let mut to = View::dense(&shape);
        for d in 0..shape.rank() {
            let first = usize::try_from(start.get(d)).unwrap_or(0).min(shape[d] - update[d]);
            to.start += first * to.strides[d].cast_unsigned();
        }
        let output = cx.output_bytes(0)?;
        copy_bytes(cx.input_bytes(0)?, output, cx.parallel());
        let copy = StridedCopy::new(&update, bits, &View::dense(&update), &to);
        copy.run_on(cx.input_bytes(1)?, output, cx.parallel());
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn replaces() {
        let x = || Some(T::new(&[2, 3], &[1i32, 2, 3, 4, 5, 6]));
        let update = || Some(T::new(&[1, 2], &[-1i32, -2]));
        let start = |v: [i64; 2]| Some(T::new(&[2], &v));
        let op = BuiltinOp::DYNAMIC_UPDATE_SLICE;
        let want = T::new(&[2, 3], &[1i32, -1, -2, 4, 5, 6]);
        check(op, 2, Params::None, &[x(), update(), start([-5, 1])], &[want]);
        let want = T::new(&[2, 3], &[1i32, 2, 3, 4, -1, -2]);
        check(op, 2, Params::None, &[x(), update(), start([9, 9])], &[want]);
    }
}
