//! SLICE, STRIDED_SLICE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::slice::{SliceRanges, slice_ranges, strided_slice};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::kernels::index::{StridedCopy, View, dense_strides};
use crate::kernels::prepared::{Invoke, copies, known, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SLICE, prepared(slice), 1..=8).add_builtin(
        BuiltinOp::STRIDED_SLICE,
        prepared(strided),
        1..=8,
    );
}

fn slice(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let ranges = known(slice_ranges(&cx.infer_context())?)?;
    copy_ranges(cx, &ranges)
}

fn strided(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (ranges, _) = known(strided_slice(&cx.infer_context())?)?;
    copy_ranges(cx, &ranges)
}

/// The output is the ranges of the input in order; dimensions of size 1 that it adds or lacks make no difference.
fn copy_ranges(cx: &mut PrepareContext<'_>, ranges: &SliceRanges) -> Result<Invoke> {
    let input = cx.input(0)?;
    let strides = dense_strides(input.shape());
    let start = ranges.iter().zip(&strides).map(|(r, &s)| r.start.wrapping_mul(s.cast_unsigned())).sum();
    let from =
        View { start, strides: ranges.iter().zip(&strides).map(|(r, &s)| s.wrapping_mul(r.step)).collect() };
    let counts: Vec<usize> = ranges.iter().map(|r| r.count).collect();
    let bits = moved_bits("input", input)?;
    Ok(copies(vec![(0, 0, StridedCopy::new(&counts, bits, &from, &View::dense(&counts)))]))
}
