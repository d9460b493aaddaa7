//! SPLIT, SPLIT_V.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::split::{split_axis, split_v_axis};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::kernels::index::{StridedCopy, View};
use crate::kernels::prepared::{Invoke, copies, known, moved_bits, prepared};

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
    let mut list = Vec::new();
    for o in 0..cx.num_outputs() {
        let part = cx.output(o)?.shape();
        let copy = StridedCopy::new(part, bits, &View::at(input.shape(), &origin), &View::dense(part));
        list.push((source, o, copy));
        origin[axis] += part[axis];
    }
    Ok(copies(list))
}
