//! SPLIT, SPLIT_V.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::split::{split_axis, split_v_axis};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::prepared::{Invoke, copies, known, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SPLIT, prepared(split), 1..=5).add_builtin(
        BuiltinOp::SPLIT_V,
        prepared(split_v),
        1..=3,
    );
}

fn split(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = known(split_axis(&cx.infer_context())?)?;
    parts(cx, 1, axis)
}

fn split_v(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let axis = known(split_v_axis(&cx.infer_context())?)?;
    parts(cx, 0, axis)
}

/// The outputs are the input's parts, in order along `axis`.
fn parts(cx: &mut PrepareContext<'_>, source: usize, axis: usize) -> Result<Invoke> {
    let input = cx.input(source)?;
    let bits = moved_bits("input", input)?;
    let mut origin = vec![0; input.shape().rank()];
    let mut list = cx.budget().reserved(cx.output_count())?;
    for o in 0..cx.output_count() {
        let part = cx.output(o)?.shape();
        let copy = StridedCopy::new(part, bits, &View::at(input.shape(), &origin), &View::dense(part));
        list.push((source, o, copy))?;
        origin[axis] += part[axis];
    }
    copies(cx, list)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::split::{SplitParams, SplitVParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn into_parts() {
        let x = || Some(T::new(&[2, 4], &[1u8, 2, 3, 4, 5, 6, 7, 8]));
        let scalar = |v: i32| Some(T::new(&[], &[v]).constant());
        let parts = |parts: &[(&[usize], &[u8])]| parts.iter().map(|(s, v)| T::new(s, v)).collect::<Vec<_>>();
        let params = |num_splits| Params::Split(SplitParams::default().num_splits(num_splits));
        let want = parts(&[(&[2, 2], &[1, 2, 5, 6]), (&[2, 2], &[3, 4, 7, 8])]);
        check(BuiltinOp::SPLIT, 1, params(2), &[scalar(-1), x()], &want);
        let params = Params::SplitV(SplitVParams::default().num_splits(2));
        let sizes = |v: [i64; 2]| Some(T::new(&[2], &v).constant());
        let want = parts(&[(&[2, 3], &[1, 2, 3, 5, 6, 7]), (&[2, 1], &[4, 8])]);
        check(BuiltinOp::SPLIT_V, 1, params.clone(), &[x(), sizes([-1, 1]), scalar(1)], &want);
        let e = error(BuiltinOp::SPLIT_V, 1, params, &[x(), sizes([2, 1]), scalar(1)], &want);
        assert!(e.contains("[2, 1] do not add up to 4"), "{e}");
    }
}
