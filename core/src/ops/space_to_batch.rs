//! SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND.

use smallvec::{SmallVec, smallvec};

use super::{
    Codec, InferContext, InferError, InferResult, InferTensor, Inferred, OpSignature, TensorType,
    lowest_with, no_arithmetic, size_from,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;

ops! {
    SPACE_TO_BATCH_ND {
        codec: Codec::empty(BuiltinOptions::SpaceToBatchNDOptions),
        infer: infer_space_to_batch,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.12.0")],
    }

    BATCH_TO_SPACE_ND {
        codec: Codec::empty(BuiltinOptions::BatchToSpaceNDOptions),
        infer: infer_batch_to_space,
        min_version,
        multiply_adds: no_arithmetic,
        history: &[(1, "1.6.0"), (2, "1.14.0"), (3, "2.3.0"), (4, "2.12.0")],
    }
}

/// Input `[batch, spatial…, rest…]`, padded by input 2; each block of the shape in input 1 is moved to the batch.
fn infer_space_to_batch(cx: &InferContext<'_>) -> InferResult {
    let input = operands(cx)?.shape;
    let Some(blocks) = blocks(cx)? else { return cx.data_dependent(cx.input(0)?.ty) };
    let error = || InferError::new(format!("{input} does not divide into the blocks"));
    let mut shape = input.to_vec();
    for (d, &Block { size, edges: [before, after] }) in blocks.iter().enumerate() {
        let padded = shape[d + 1].checked_add(before).and_then(|n| n.checked_add(after));
        let padded = padded.filter(|n| n % size == 0).ok_or_else(error)?;
        shape[d + 1] = padded / size;
        shape[0] = shape[0].checked_mul(size).ok_or_else(error)?;
    }
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, shape.as_slice())])
}

/// The reverse of SPACE_TO_BATCH_ND; input 2 is the cropping.
fn infer_batch_to_space(cx: &InferContext<'_>) -> InferResult {
    let input = operands(cx)?.shape;
    let Some(blocks) = blocks(cx)? else { return cx.data_dependent(cx.input(0)?.ty) };
    let error = || {
        InferError::new(format!(
            "the batch of {input} does not divide into the blocks, or they are cropped away"
        ))
    };
    let mut shape = input.to_vec();
    for (d, &Block { size, edges: [before, after] }) in blocks.iter().enumerate() {
        let whole = shape[d + 1].checked_mul(size);
        shape[d + 1] = whole.and_then(|n| n.checked_sub(before)?.checked_sub(after)).ok_or_else(error)?;
        if shape[0] % size != 0 {
            return Err(error());
        }
        shape[0] /= size;
    }
    Ok(smallvec![Inferred::known(cx.input(0)?.ty, shape.as_slice())])
}

/// The block along one spatial dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Size of the blocks.
    pub size: usize,
    /// Elements added, or cropped, before and after.
    pub edges: [usize; 2],
}

/// One block per spatial dimension, beginning with dimension 1; `None` while they are not known.
pub fn blocks(cx: &InferContext<'_>) -> Result<Option<SmallVec<[Block; 4]>>, InferError> {
    let (Some(sizes), Some(edges)) = (cx.input(1)?.integers()?, cx.input(2)?.integers()?) else {
        return Ok(None);
    };
    let rank = cx.input(0)?.shape.rank();
    if edges.len() != 2 * sizes.len() || sizes.len() >= rank {
        return Err(InferError::new(format!(
            "{} with {} for rank {rank}",
            counted(sizes.len(), "block"),
            counted(edges.len(), "edge")
        )));
    }
    let block = |(&size, &[before, after]): (&i64, &[i64; 2])| {
        let size = size_from(size, "block size")?;
        let edges = [size_from(before, "edge")?, size_from(after, "edge")?];
        if size == 0 { Err(InferError::new("a block is empty")) } else { Ok(Block { size, edges }) }
    };
    sizes.iter().zip(edges.as_chunks().0).map(block).collect::<Result<_, _>>().map(Some)
}

fn operands<'a, 'b>(cx: &'b InferContext<'a>) -> Result<&'b InferTensor<'a>, InferError> {
    cx.arity(3..=3, 1)?;
    cx.input(0)
}

/// Versions added 8-bit, ranks other than 4, and 16-bit, in this order.
fn min_version(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Int8, Int16};
    lowest_with(&[(2, s.input_is(0, &[Int8])), (3, s.rank(0) != 4), (4, s.input_is(0, &[Int16]))])
}
