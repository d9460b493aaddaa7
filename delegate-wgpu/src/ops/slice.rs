//! SLICE, STRIDED_SLICE.

use delegraph_core::BuiltinOp;
use delegraph_core::ops::slice::{slice_ranges, strided_slice};
use delegraph_delegate_api::Rejection;
use delegraph_shaders::slice::Spec;

use super::{GpuOp, invalid, not_constant};
use crate::graph::ValueId;
use crate::graph::lowering::{Lowering, unsupported};

pub(super) const OPS: &[GpuOp] = &[
    GpuOp::new(BuiltinOp::SLICE, 8, GpuOp::UNPACKED, lower),
    GpuOp::new(BuiltinOp::STRIDED_SLICE, 8, GpuOp::UNPACKED, lower),
];

fn lower(cx: &mut Lowering<'_, '_, '_>) -> Result<(), Rejection> {
    let input = cx.any_input(0)?;
    let ranges = if cx.node().op().builtin() == Some(BuiltinOp::SLICE) {
        slice_ranges(&cx.infer()).map_err(invalid)?
    } else {
        strided_slice(&cx.infer()).map_err(invalid)?.map(|(ranges, _)| ranges)
    };
    let ranges = ranges.ok_or_else(not_constant)?;
    let error = || {
        unsupported(format!(
            "slice {ranges:?}; \
        only extents below 2^32 and steps below 2^31 are supported"
        ))
    };
    let (mut output, mut begin, mut step) = (Vec::new(), Vec::new(), Vec::new());
    for range in &ranges {
        output.push(u32::try_from(range.count).map_err(|_| error())?);
        begin.push(u32::try_from(range.start).map_err(|_| error())?);
        // The step of a single element has no effect, and may be of any size.
        let taken = if range.count > 1 { range.step } else { 1 };
        step.push(i32::try_from(taken).map_err(|_| error())?);
    }
    take(cx, 0, input, Spec { input: cx.shape(input), output, begin, step })
}

/// Makes output `i` of the node a slice of `input`: a view where the slice is contiguous.
pub(super) fn take(
    cx: &mut Lowering<'_, '_, '_>,
    i: usize,
    input: ValueId,
    spec: Spec,
) -> Result<(), Rejection> {
    match piece(&spec).filter(|offset| offset.is_multiple_of(cx.view_alignment())) {
        Some(offset) => cx.alias(i, input, offset),
        None => {
            let output = cx.output(i)?;
            cx.push(spec, &[input], output)
        }
    }
}

/// The offset of the slice in the input, in bytes, where it is contiguous: dimensions with one index, then one with
/// consecutive indices, then whole dimensions.
fn piece(spec: &Spec) -> Option<u64> {
    let dims = spec.input.iter().zip(&spec.output).zip(spec.begin.iter().zip(&spec.step));
    let (mut offset, mut cut) = (0u64, false);
    for ((&size, &count), (&begin, &step)) in dims {
        let whole = count == size && (step == 1 || size == 1);
        if cut && !whole || count > 1 && step != 1 {
            return None;
        }
        cut |= count > 1;
        offset = offset * u64::from(size) + u64::from(begin);
    }
    Some(offset * 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{T, check};
    use delegraph_core::Params;
    use delegraph_core::ops::slice::StridedSliceParams;

    #[test]
    fn pieces_of_memory() {
        let check = |input: &[u32], output: &[u32], begin: &[u32], step: &[i32], expected| {
            let spec = Spec {
                input: input.to_vec(),
                output: output.to_vec(),
                begin: begin.to_vec(),
                step: step.to_vec(),
            };
            assert_eq!(piece(&spec), expected, "{spec:?}");
        };
        check(&[4, 5], &[2, 5], &[1, 0], &[1, 1], Some(20));
        check(&[4, 5], &[1, 3], &[2, 1], &[1, 1], Some(44));
        check(&[4, 5], &[2, 3], &[0, 0], &[1, 1], None);
        check(&[4, 5], &[2, 5], &[0, 0], &[2, 1], None);
        check(&[4, 5], &[4, 5], &[0, 4], &[1, -1], None);
        check(&[1, 4, 5], &[1, 2, 5], &[0, 2, 0], &[1, 1, 1], Some(40));
    }

    #[test]
    fn boxes_and_steps() {
        let numbers = |n: usize| T::from_fn(&[n / 64, 64], |i| i as f32);
        let operand = |values: &[i32]| Some(T::new(&[values.len()], values).constant());
        let inputs = [Some(numbers(256)), operand(&[1, 0]), operand(&[2, -1])];
        let rows = T::from_fn(&[2, 64], |i| (i + 64) as f32);
        check(BuiltinOp::SLICE, 1, Params::None, &inputs, &[rows]);
        let params = StridedSliceParams::default()
            .begin_mask(0)
            .end_mask(0)
            .ellipsis_mask(0)
            .new_axis_mask(0)
            .shrink_axis_mask(1)
            .offset(false);
        let inputs = [Some(numbers(256)), operand(&[2, 9]), operand(&[3, 0]), operand(&[1, -4])];
        let picked = T::new(&[3], &[137.0_f32, 133.0, 129.0]);
        check(BuiltinOp::STRIDED_SLICE, 1, Params::StridedSlice(params), &inputs, &[picked]);
    }
}
