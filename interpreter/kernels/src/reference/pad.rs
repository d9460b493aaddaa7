//! PAD, PADV2, MIRROR_PAD.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::pad::{MirrorPadParams, paddings};
use delegraph_core::ops::{MirrorPadMode, TensorType};
use delegraph_core::{BuiltinOp, MutableOpResolver, Result};
use smallvec::SmallVec;

use crate::common::index::{StridedCopy, View, dense_strides};
use crate::common::prepared::{
    Invoke, check_same_quantization, copies, fill_polled, known, moved_bits, prepared, scale_zero_point,
    unsupported_type,
};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::PAD, prepared(pad), 1..=6)
        .add_builtin(BuiltinOp::PADV2, prepared(pad), 1..=6)
        .add_builtin(BuiltinOp::MIRROR_PAD, prepared(mirror_pad), 1..=3);
}

fn pad(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let paddings = known(paddings(&cx.infer_context())?)?;
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    let bits = moved_bits("input", input)?;
    if bits < 8 {
        return Err(unsupported_type("input", input));
    }
    let has_value = cx.optional_input(2).is_some();
    if let Some(value) = cx.optional_input(2) {
        check_same_quantization(value, output)?;
    }
    // The padding value: the zero point of the integer types, zero bits for other types.
    let mut zero = [0; 16];
    if matches!(input.ty(), TensorType::UInt8 | TensorType::Int8 | TensorType::Int16) {
        let (_, zero_point) = scale_zero_point(output);
        zero[..4].copy_from_slice(&zero_point.to_le_bytes());
    }
    let origin: SmallVec<[usize; 8]> = paddings.iter().map(|p| p[0]).collect();
    let (from, to) = (View::dense(input.shape()), View::at(output.shape(), &origin));
    let copy = StridedCopy::new(input.shape(), bits, &from, &to);
    let width = bits / 8;
    Ok(Box::new(move |cx| {
        let output = cx.output_bytes(0)?;
        let value = if has_value { cx.input_bytes(2)? } else { &zero };
        let value = &value[..width];
        fill_polled(output, value, cx.parallel());
        copy.run_on(cx.input_bytes(0)?, output, cx.parallel());
        Ok(())
    }))
}

/// Boxes that are computed between two polls.
const BOXES: usize = 1024;

/// The output is a grid of boxes: in each dimension a mirrored border, the input, and another mirrored border.
fn mirror_pad(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let paddings = known(paddings(&cx.infer_context())?)?;
    let edge = usize::from(cx.params::<MirrorPadParams>()?.mode == MirrorPadMode::Reflect);
    let (input, output) = (cx.input(0)?, cx.output(0)?);
    check_same_quantization(input, output)?;
    let bits = moved_bits("input", input)?;
    let shape = input.shape();
    // Per dimension: a piece's start in the output and in the input, its size, and whether it is mirrored.
    let pieces = |(d, [before, after]): (usize, &[usize; 2])| -> SmallVec<[_; 3]> {
        let size = shape[d];
        let all = [
            (0, (before + edge).wrapping_sub(1), *before, true),
            (*before, 0, size, false),
            (before + size, size.wrapping_sub(1 + edge), *after, true),
        ];
        all.into_iter().filter(|(_, _, count, _)| *count > 0).collect()
    };
    let pieces: Vec<_> = paddings.iter().enumerate().map(pieces).collect();
    // Up to 3 to the power of the rank; the file determines the rank.
    let boxes = pieces.iter().fold(1usize, |boxes, pieces| boxes.saturating_mul(pieces.len()));
    let mut list = cx.budget().reserved(boxes)?;
    let strides = dense_strides(shape);
    for number in 0..boxes {
        if number.is_multiple_of(BOXES) {
            cx.budget().check()?;
        }
        let mut rest = number;
        let (mut origin, mut size) = (SmallVec::<[usize; 8]>::new(), SmallVec::<[usize; 8]>::new());
        let mut from = View { start: 0, strides: strides.clone() };
        for (d, pieces) in pieces.iter().enumerate() {
            let (to_start, from_start, count, mirrored) = pieces[rest % pieces.len()];
            rest /= pieces.len();
            origin.push(to_start);
            size.push(count);
            from.start = from.start.wrapping_add(from_start.wrapping_mul(strides[d].cast_unsigned()));
            if mirrored {
                from.strides[d] = -strides[d];
            }
        }
        list.push((0, 0, StridedCopy::new(&size, bits, &from, &View::at(output.shape(), &origin))))?;
    }
    copies(cx, list)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn borders() {
        let x = || Some(T::new(&[1, 2], &[1.0f32, 2.0]));
        let paddings = || Some(T::new(&[2, 2], &[1i32, 0, 0, 2]).constant());
        let zeros = T::new(&[2, 4], &[0.0f32, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
        check(BuiltinOp::PAD, 1, Params::None, &[x(), paddings()], &[zeros]);
        let nines = T::new(&[2, 4], &[9.0f32, 9.0, 9.0, 9.0, 1.0, 2.0, 9.0, 9.0]);
        check(BuiltinOp::PADV2, 1, Params::None, &[x(), paddings(), Some(T::new(&[], &[9.0f32]))], &[nines]);
        let q = Some(T::new(&[1, 2], &[1i8, 2]).quantized(0.5, -3));
        let want = T::new(&[2, 4], &[-3i8, -3, -3, -3, 1, 2, -3, -3]).quantized(0.5, -3);
        check(BuiltinOp::PAD, 2, Params::None, &[q, paddings()], &[want]);
    }

    #[test]
    fn mirrors() {
        let x = || Some(T::new(&[1, 3], &[1u8, 2, 3]));
        let mode = |mode| Params::MirrorPad(MirrorPadParams::default().mode(mode));
        let paddings = |p: [i32; 4]| Some(T::new(&[2, 2], &p).constant());
        let want = T::new(&[1, 6], &[3u8, 2, 1, 2, 3, 2]);
        let inputs = [x(), paddings([0, 0, 2, 1])];
        check(BuiltinOp::MIRROR_PAD, 1, mode(MirrorPadMode::Reflect), &inputs, &[want]);
        let want = T::new(&[2, 6], &[2u8, 1, 1, 2, 3, 3, 2, 1, 1, 2, 3, 3]);
        let inputs = [x(), paddings([1, 0, 2, 1])];
        check(BuiltinOp::MIRROR_PAD, 1, mode(MirrorPadMode::Symmetric), &inputs, &[want]);
        let inputs = [x(), paddings([0, 0, 3, 0])];
        let out = [T::new(&[1, 6], &[0u8; 6])];
        let e = error(BuiltinOp::MIRROR_PAD, 1, mode(MirrorPadMode::Reflect), &inputs, &out);
        assert!(e.contains("a dimension of 3 cannot be mirrored by 3 and 0"), "{e}");
    }

    #[test]
    fn dimensions_without_a_border_are_one_box() {
        let ones = [1usize; 40];
        let mut borders = [0; 80];
        borders[79] = 1;
        let x = Some(T::new(&ones, &[7u8]));
        let paddings = Some(T::new(&[40, 2], &borders).constant());
        let params = Params::MirrorPad(MirrorPadParams::default().mode(MirrorPadMode::Symmetric));
        let mut shape = ones;
        shape[39] = 2;
        check(BuiltinOp::MIRROR_PAD, 1, params, &[x, paddings], &[T::new(&shape, &[7u8, 7])]);
    }
}
