//! REVERSE_V2, REVERSE_SEQUENCE.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::axis_in;
use delegraph_core::ops::reverse::sequence_dimensions;
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View};
use crate::common::pace::Pace;
use crate::common::prepared::{Integers, Invoke, copy_elements, moved_bits, prepared};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::REVERSE_V2, prepared(reverse), 1..=4).add_builtin(
        BuiltinOp::REVERSE_SEQUENCE,
        prepared(sequence),
        1,
    );
}

fn reverse(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let bits = moved_bits("input", cx.input(0)?)?;
    let shape = cx.input(0)?.shape().clone();
    Ok(Box::new(move |cx| {
        let axes = Integers::input(cx, 1)?;
        let mut from = View::dense(&shape);
        for i in 0..axes.len() {
            let axis = axis_in(axes.get(i), shape.rank())?;
            if from.strides[axis] > 0 && shape[axis] > 0 {
                from.start += (shape[axis] - 1) * from.strides[axis].cast_unsigned();
                from.strides[axis] = -from.strides[axis];
            }
        }
        let copy = StridedCopy::new(&shape, bits, &from, &View::dense(&shape));
        copy.run_on(cx.input_bytes(0)?, cx.output_bytes(0)?, cx.parallel());
        Ok(())
    }))
}

fn sequence(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let (sequence, batch) = sequence_dimensions(&cx.infer_context())?;
    let bits = moved_bits("input", cx.input(0)?)?;
    let shape = cx.input(0)?.shape().clone();
    let inner = |d: usize| shape[d + 1..].iter().product::<usize>();
    // Runs of elements inside both dimensions keep their order.
    let run = inner(sequence.max(batch));
    let (after_sequence, after_batch) = (inner(sequence), inner(batch));
    let (size, batches) = (shape[sequence], shape[batch]);
    let runs = shape.elements().checked_div(run).unwrap_or(0);
    Ok(Box::new(move |cx| {
        let (lengths, input) = (Integers::input(cx, 1)?, cx.input_bytes(0)?);
        let output = cx.output_bytes(0)?;
        let mut pace = Pace::new(cx);
        for at in (0..runs).map(|r| r * run) {
            pace.spend(run.saturating_add(8))?;
            let (step, row) = (at / after_sequence % size, at / after_batch % batches);
            let length = usize::try_from(lengths.get(row)).ok().filter(|&l| l <= size);
            let length = length.ok_or_else(|| {
                Error::Kernel(format!(
                    "a length of {} is out of range for a sequence of {size}",
                    lengths.get(row)
                ))
            })?;
            let from = if step < length { length - 1 - step } else { step };
            let start = at - step * after_sequence + from * after_sequence;
            copy_elements(bits, input, start, output, at, run);
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::reverse::ReverseSequenceParams;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn reverses() {
        let x = || Some(T::new(&[2, 3], &[1i64, 2, 3, 4, 5, 6]));
        let axes = |v: &[i32]| Some(T::new(&[v.len()], v));
        let want = T::new(&[2, 3], &[3i64, 2, 1, 6, 5, 4]);
        check(BuiltinOp::REVERSE_V2, 1, Params::None, &[x(), axes(&[-1])], &[want]);
        let want = T::new(&[2, 3], &[6i64, 5, 4, 3, 2, 1]);
        check(BuiltinOp::REVERSE_V2, 1, Params::None, &[x(), axes(&[0, 1])], &[want]);
    }

    #[test]
    fn reverses_parts() {
        let x = || Some(T::new(&[3, 2], &[1i32, 2, 3, 4, 5, 6]));
        let lengths = |v: [i32; 2]| Some(T::new(&[2], &v));
        let params = || Params::ReverseSequence(ReverseSequenceParams::default().seq_dim(0).batch_dim(1));
        let (op, want) = (BuiltinOp::REVERSE_SEQUENCE, T::new(&[3, 2], &[3i32, 6, 1, 4, 5, 2]));
        check(op, 1, params(), &[x(), lengths([2, 3])], std::slice::from_ref(&want));
        let e = error(op, 1, params(), &[x(), lengths([2, 4])], &[want]);
        assert!(e.ends_with("a length of 4 is out of range for a sequence of 3"), "{e}");
    }
}
