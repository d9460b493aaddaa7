//! SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: one strided copy for each position in a block.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::TensorType;
use delegraph_core::ops::space_to_batch::{Block, blocks};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};

use crate::common::index::{StridedCopy, View, dense_strides};
use crate::common::pace::Polls;
use crate::common::prepared::{
    Invoke, check_same_quantization, fill_polled, known, moved_bits, prepared, scale_zero_point,
    unsupported_type,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver.add_builtin(BuiltinOp::SPACE_TO_BATCH_ND, prepared(|cx| prepare(cx, true)), 1..=4).add_builtin(
        BuiltinOp::BATCH_TO_SPACE_ND,
        prepared(|cx| prepare(cx, false)),
        1..=4,
    );
}

fn prepare(cx: &mut PrepareContext<'_>, to_batch: bool) -> Result<Invoke> {
    let blocks = known(blocks(&cx.infer_context())?)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    check_same_quantization(input, output)?;
    let bits = moved_bits("input", input)?;
    if bits < 8 {
        return Err(unsupported_type("input", input));
    }
    let (space, batch) =
        if to_batch { (input.shape(), output.shape()) } else { (output.shape(), input.shape()) };
    let places: usize = blocks.iter().map(|b| b.size).product();
    let (mut list, mut copied) = (cx.budget().reserved(0)?, 0);
    for place in 0..places {
        cx.budget().check()?;
        // Position in the block, last dimension fastest.
        let (mut rest, mut offsets) = (place, vec![0; blocks.len()]);
        for (d, block) in blocks.iter().enumerate().rev() {
            (rest, offsets[d]) = (rest / block.size, rest % block.size);
        }
        let (mut size, mut at_batch) = (space.to_vec(), vec![0; space.rank()]);
        let mut in_space = View { start: 0, strides: dense_strides(space) };
        at_batch[0] = place * space[0];
        for (d, (&Block { size: block, edges: [before, _], .. }, &offset)) in
            blocks.iter().zip(&offsets).enumerate()
        {
            let d = d + 1;
            // The first step at which this position is not padding, and the number of steps from there on.
            let first = before.saturating_sub(offset).div_ceil(block);
            let start = first * block + offset - before;
            let count = space[d].saturating_sub(start).div_ceil(block).min(batch[d].saturating_sub(first));
            (at_batch[d], size[d]) = (first, count);
            in_space.start += start * in_space.strides[d].cast_unsigned();
            in_space.strides[d] *= block.cast_signed();
        }
        if !size.contains(&0) {
            let in_batch = View::at(batch, &at_batch);
            let (from, to) = if to_batch { (&in_space, &in_batch) } else { (&in_batch, &in_space) };
            list.push(StridedCopy::new(&size, bits, from, to))?;
            copied += size.iter().product::<usize>();
        }
    }
    // The padding value: the zero point of the integer types, zero bits for other types.
    let integer = matches!(input.ty(), TensorType::UInt8 | TensorType::Int8 | TensorType::Int16);
    let zero = if integer { scale_zero_point(output).1.to_le_bytes() } else { [0; 4] };
    let width = (bits / 8).min(4);
    let covered = copied == output.shape().elements();
    Ok(Box::new(move |cx| {
        let (input, output) = (cx.input_bytes(0)?, cx.output_bytes(0)?);
        if !covered {
            fill_polled(output, &zero[..width], cx.parallel());
        }
        let mut polls = Polls::new(cx.parallel());
        for copy in &list {
            if polls.interrupted_after(copy.steps()) {
                break;
            }
            copy.run_on(input, output, cx.parallel());
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn there_and_back() {
        let ints = |shape: &[usize], v: &[i32]| Some(T::new(shape, v).constant());
        let space = T::new(&[1, 2, 3, 1], &[1i8, 2, 3, 4, 5, 6]).quantized(0.5, -7);
        let batch = T::new(&[4, 1, 2, 1], &[1i8, 3, 2, -7, 4, 6, 5, -7]).quantized(0.5, -7);
        let edges = || ints(&[2, 2], &[0, 0, 0, 1]);
        let op = BuiltinOp::SPACE_TO_BATCH_ND;
        check(
            op,
            1,
            Params::None,
            &[Some(space.clone()), ints(&[2], &[2, 2]), edges()],
            std::slice::from_ref(&batch),
        );
        let e = error(
            op,
            1,
            Params::None,
            &[Some(space.clone()), ints(&[2], &[2, 3]), edges()],
            std::slice::from_ref(&batch),
        );
        assert!(e.contains("[1, 2, 3, 1] does not divide into the blocks"), "{e}");
        let inputs = [Some(batch), ints(&[2], &[2, 2]), edges()];
        check(BuiltinOp::BATCH_TO_SPACE_ND, 1, Params::None, &inputs, &[space]);
    }

    #[test]
    fn a_scalar_has_no_batch() {
        let scalar = T::new(&[], &[1.0f32]);
        let none = |shape: &[usize]| Some(T::new(shape, &[0i32; 0]).constant());
        for op in [BuiltinOp::SPACE_TO_BATCH_ND, BuiltinOp::BATCH_TO_SPACE_ND] {
            let inputs = [Some(scalar.clone()), none(&[0]), none(&[0, 2])];
            let e = error(op, 3, Params::None, &inputs, std::slice::from_ref(&scalar));
            assert!(e.contains("0 blocks with 0 edges for rank 0"), "{e}");
        }
    }

    #[test]
    fn edges_in_front() {
        let ints = |shape: &[usize], v: &[i32]| Some(T::new(shape, v).constant());
        let space = T::new(&[1, 3], &[1.0f32, 2.0, 3.0]);
        let batch = T::new(&[2, 3], &[0.0f32, 1.0, 3.0, 0.0, 2.0, 0.0]);
        let inputs = [Some(space.clone()), ints(&[1], &[2]), ints(&[1, 2], &[2, 1])];
        let op = BuiltinOp::SPACE_TO_BATCH_ND;
        check(op, 3, Params::None, &inputs, std::slice::from_ref(&batch));
        let inputs = [Some(batch), ints(&[1], &[2]), ints(&[1, 2], &[2, 1])];
        check(BuiltinOp::BATCH_TO_SPACE_ND, 3, Params::None, &inputs, &[space]);
    }
}
