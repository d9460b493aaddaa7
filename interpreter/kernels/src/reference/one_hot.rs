//! ONE_HOT.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::one_hot::axis;
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::pace::Pace;
use crate::common::prepared::{Integers, Invoke, copy_elements, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::ONE_HOT, prepared(prepare), 1);
}

/// The output is `[outer, depth, inner]`, the indices are `[outer, inner]`.
fn prepare(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = axis(&cx.infer_context())?;
    let bits = moved_bits("the value", cx.input(2)?)?;
    let output = cx.output(0)?.shape();
    let (depth, inner) = (output[axis], output[axis + 1..].iter().product::<usize>());
    let count = output.elements();
    Ok(Box::new(move |cx| {
        let (indices, on, off) = (Integers::input(cx, 0)?, cx.input_bytes(2)?, cx.input_bytes(3)?);
        let output = cx.output_bytes(0)?;
        let mut pace = Pace::new(cx);
        for o in 0..count {
            pace.spend(8)?;
            let (outer, class, i) = (o / (depth * inner), o / inner % depth, o % inner);
            let hot = indices.get(outer * inner + i) == class as i64;
            copy_elements(bits, if hot { on } else { off }, 0, output, o, 1);
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::one_hot::OneHotParams;

    use super::*;
    use crate::testing::{T, check};

    #[test]
    fn marks() {
        let inputs = || {
            let value = |v: i8| Some(T::new(&[], &[v]));
            let depth = Some(T::new(&[], &[3i32]).constant());
            [Some(T::new(&[2], &[2i32, -1])), depth, value(1), value(-1)]
        };
        let params = |axis| Params::OneHot(OneHotParams::default().axis(axis));
        let want = T::new(&[2, 3], &[-1i8, -1, 1, -1, -1, -1]);
        check(BuiltinOp::ONE_HOT, 1, params(-1), &inputs(), &[want]);
        let want = T::new(&[3, 2], &[-1i8, -1, -1, -1, 1, -1]);
        check(BuiltinOp::ONE_HOT, 1, params(0), &inputs(), &[want]);
    }
}
