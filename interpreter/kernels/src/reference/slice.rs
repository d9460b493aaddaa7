//! SLICE, STRIDED_SLICE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::slice::{SliceRanges, slice_ranges, strided_slice};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{View, dense_strides};
use crate::common::prepared::{Invoke, copied_view, known, prepared};

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

/// Copies the ranges of the input in order; dimensions of size 1 that the output adds or removes do not matter.
pub(super) fn copy_ranges(cx: &mut PrepareContext<'_>, ranges: &SliceRanges) -> Result<Invoke> {
    let input = cx.input(0)?;
    let strides = dense_strides(input.shape());
    let start = ranges.iter().zip(&strides).map(|(r, &s)| r.start.wrapping_mul(s.cast_unsigned())).sum();
    let from =
        View { start, strides: ranges.iter().zip(&strides).map(|(r, &s)| s.wrapping_mul(r.step)).collect() };
    let counts: Vec<usize> = ranges.iter().map(|r| r.count).collect();
    copied_view(cx, 0, &counts, &from)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::slice::StridedSliceParams;

    use super::*;
    use crate::testing::{T, check, error};

    fn ints(values: &[i32]) -> Option<T> {
        Some(T::new(&[values.len()], values).constant())
    }

    #[test]
    fn strings() {
        let x = Some(T::strings(&[3], &["a", "bc", "def"]));
        let inputs = [x, ints(&[1]), ints(&[-1])];
        check(BuiltinOp::SLICE, 3, Params::None, &inputs, &[T::strings(&[2], &["bc", "def"])]);
    }

    #[test]
    fn boxes() {
        let x = || Some(T::new(&[2, 3], &[1i16, 2, 3, 4, 5, 6]));
        let want = T::new(&[2, 2], &[2i16, 3, 5, 6]);
        check(
            BuiltinOp::SLICE,
            4,
            Params::None,
            &[x(), ints(&[0, 1]), ints(&[-1, 2])],
            std::slice::from_ref(&want),
        );
        let e = error(BuiltinOp::SLICE, 4, Params::None, &[x(), ints(&[0, 2]), ints(&[2, 2])], &[want]);
        assert!(e.contains("a slice of 2 from 2 does not fit a dimension of 3"), "{e}");
    }

    #[test]
    fn strides_and_masks() {
        let params = |begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask| {
            Params::StridedSlice(
                StridedSliceParams::default()
                    .begin_mask(begin_mask)
                    .end_mask(end_mask)
                    .ellipsis_mask(ellipsis_mask)
                    .new_axis_mask(new_axis_mask)
                    .shrink_axis_mask(shrink_axis_mask)
                    .offset(false),
            )
        };
        let x = || Some(T::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let slice =
            |begin: &[i32], end: &[i32], strides: &[i32]| [x(), ints(begin), ints(end), ints(strides)];
        let op = BuiltinOp::STRIDED_SLICE;
        // x[1, ::-2]
        let want = T::new(&[2], &[6.0f32, 4.0]);
        check(op, 1, params(2, 2, 0, 0, 1), &slice(&[1, 0], &[0, 0], &[1, -2]), &[want]);
        // x[..., newaxis, -1]
        let want = T::new(&[2, 1], &[3.0f32, 6.0]);
        check(op, 6, params(0, 0, 1, 2, 4), &slice(&[0, 0, -1], &[0, 0, 0], &[1, 1, 1]), &[want]);
        // x[0:9]
        let want = T::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(op, 1, params(0, 0, 0, 0, 0), &slice(&[0], &[9], &[1]), &[want]);
        // x[1:1]
        check(op, 1, params(0, 0, 0, 0, 0), &slice(&[1], &[1], &[1]), &[T::new(&[0, 3], &[0.0f32; 0])]);
        let out = [T::new(&[2], &[0.0f32, 0.0])];
        let e = error(op, 1, params(0, 0, 0, 0, 0), &slice(&[0], &[1], &[0]), &out);
        assert!(e.contains("stride 0"), "{e}");
    }
}
