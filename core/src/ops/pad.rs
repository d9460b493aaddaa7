//! PAD, PADV2, MIRROR_PAD.

use smallvec::{SmallVec, smallvec};

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, MirrorPadMode, OpSignature, TensorType,
    lowest_with, no_arithmetic, options,
};
use crate::schema::BuiltinOptions;

ops! {
    PAD {
        codec: Codec::empty(BuiltinOptions::PadOptions),
        infer: infer_pad,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.5.0"), (2, "1.14.0"), (3, "2.4.0"), (4, "2.6.0"), (5, "2.20.0"), (6, "2.23.0")],
    }

    PADV2 {
        codec: Codec::empty(BuiltinOptions::PadV2Options),
        infer: infer_pad,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.9.0"), (2, "1.14.0"), (3, "2.4.0"), (4, "2.6.0"), (5, "2.20.0"), (6, "2.23.0")],
    }

    MIRROR_PAD {
        codec: MirrorPadParams::CODEC,
        infer: infer_mirror_pad,
        min_version: min_version_mirror,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.13.1"), (2, "2.3.0"), (3, "2.12.0")],
    }
}

options! {
    /// Params of MIRROR_PAD.
    MirrorPad(MirrorPadParams) in BuiltinOptions::MirrorPadOptions(builtin_options_as_mirror_pad_options, MirrorPadOptionsArgs) as TfLiteMirrorPaddingParams {
        /// Whether the border repeats the edge itself.
        mode: MirrorPadMode;
    }
}

/// The input with elements of one value around it: input 2, or the representation of 0.
fn infer_pad(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=3, 1)?;
    let ty = cx.input(0)?.ty;
    if let Some(value) = cx.optional(2)
        && (value.ty != ty || value.shape.elements() != 1)
    {
        return Err(InferError::new(format!(
            "the padding value must be one {ty}, got {} {}",
            value.ty, value.shape
        )));
    }
    padded(cx, |_, _| Ok(()))
}

/// The input with its border mirrored around it.
fn infer_mirror_pad(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let edge = usize::from(cx.params::<MirrorPadParams>()?.mode == MirrorPadMode::Reflect);
    padded(cx, |size, [before, after]| match size.checked_sub(edge) {
        Some(most) if before <= most && after <= most => Ok(()),
        _ => {
            Err(InferError::new(format!("a dimension of {size} cannot be mirrored by {before} and {after}")))
        }
    })
}

fn padded(cx: &InferContext<'_>, check: impl Fn(usize, [usize; 2]) -> Result<(), InferError>) -> InferResult {
    let input = cx.input(0)?;
    let Some(paddings) = paddings(cx)? else { return cx.data_dependent(input.ty) };
    let mut shape = crate::types::Shape::default();
    for (&size, &[before, after]) in input.shape.iter().zip(&paddings) {
        check(size, [before, after])?;
        let padded = size.checked_add(before).and_then(|n| n.checked_add(after));
        shape.push(padded.ok_or_else(|| InferError::new("the padded size overflows"))?);
    }
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Returns the number of elements added before and after each dimension; `None` while it is not known.
pub fn paddings(cx: &InferContext<'_>) -> Result<Option<SmallVec<[[usize; 2]; 8]>>, InferError> {
    let (input, operand) = (cx.input(0)?, cx.input(1)?);
    let rank = input.shape.rank();
    if operand.constant.is_none() {
        return Ok(None);
    }
    if operand.shape.dims() != [rank, 2] {
        return Err(InferError::new(format!(
            "the paddings have shape {}, expected [{rank}, 2]",
            operand.shape
        )));
    }
    let values: SmallVec<[i64; 16]> = match (operand.ty, operand.constant) {
        (TensorType::Int8 | TensorType::Bool, Some(bytes)) => {
            bytes.iter().map(|&b| b.cast_signed().into()).collect()
        }
        (TensorType::Int16, Some(bytes)) => {
            bytes.as_chunks().0.iter().map(|b| i16::from_le_bytes(*b).into()).collect()
        }
        _ => operand.integers()?.unwrap_or_default().into_iter().collect(),
    };
    let size = |v: i64| usize::try_from(v).map_err(|_| InferError::new(format!("padding {v} is negative")));
    values
        .as_chunks()
        .0
        .iter()
        .map(|[before, after]| Ok([size(*before)?, size(*after)?]))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Types and ranks were added one after the other.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Float8E4M3FN, Float8E5M2, Int8, Int16};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Int16])),
        (4, s.rank(0) > 4),
        (5, s.input_is(0, &[Bool])),
        (6, s.input_is(0, &[Float8E4M3FN, Float8E5M2])),
    ])
}

/// Version 2 added 8-bit, version 3 16-bit.
fn min_version_mirror(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.input_is(0, &[Int16]))])
}
