//! DILATE: elements of one value between those of the input.

use smallvec::{SmallVec, smallvec};

use super::infer::per_dimension;
use super::reduce_window::spread;
use super::{Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, no_arithmetic};
use crate::schema::BuiltinOptions2;
use crate::types::Shape;

ops! {
    DILATE {
        codec: Codec::empty_second(BuiltinOptions2::DilateOptions),
        infer,
        min_version: always_1,
        multiply_adds: no_arithmetic,
        history: &[(1, "2.15.0")],
    }
}

/// Input 1 has the distance of the elements of input 0 along each dimension, input 2 the value between them.
fn infer(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (input, value) = (cx.input(0)?, cx.input(2)?);
    if value.ty != input.ty || value.shape.elements() != 1 {
        return Err(InferError::new(format!(
            "the value between must be one {}, got {} {}",
            input.ty, value.ty, value.shape
        )));
    }
    let Some(dilations) = dilations(cx)? else { return cx.data_dependent(input.ty) };
    let sizes = input.shape.iter().zip(&dilations).map(|(&size, d)| spread(size, Some(d)));
    let shape = sizes.collect::<Option<Shape>>().ok_or_else(|| InferError::new("the sizes overflow"))?;
    Ok(smallvec![Inferred::known(input.ty, shape)])
}

/// Returns the distance of the elements along each dimension; `None` while it is not known.
pub fn dilations(cx: &InferContext<'_>) -> Result<Option<SmallVec<[usize; 8]>>, InferError> {
    let (shape, operand) = (cx.input(0)?.shape, cx.input(1)?);
    if operand.ty != TensorType::Int32 || shape.rank() == 0 {
        return Err(InferError::new(format!(
            "the dilations of {shape} are {}, expected INT32 and at least one dimension",
            operand.ty
        )));
    }
    let Some(list) = operand.integers()? else { return Ok(None) };
    per_dimension(&list, shape.rank(), "the dilations")?;
    let positive = |&v: &i64| usize::try_from(v).ok().filter(|&v| v > 0);
    let dilations = list.iter().map(positive).collect::<Option<_>>();
    dilations.map(Some).ok_or_else(|| InferError::new(format!("the dilations {list:?} are not all positive")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::TensorType::{Float32, Int32};
    use crate::ops::testing::{T, bad, good};
    use crate::ops::{InferredShape, Params, testing};

    #[test]
    fn puts_elements_apart() {
        let with = |dilations| [T::new(Float32, &[3, 0, 2]), dilations, T::new(Float32, &[])];
        let out = [T::new(Float32, &[7, 0, 2])];
        good(&DILATE, Params::None, &with(T::list(&[3, 2, 1])), &out);
        bad(&DILATE, Params::None, &with(T::list(&[3, 0, 1])), &out, "[3, 0, 1] are not all positive");
        bad(&DILATE, Params::None, &with(T::list(&[3, 1])), &out, "2 entries for rank 3");
        bad(
            &DILATE,
            Params::None,
            &with(T::constant(&[3], &[3i64, 1, 1])),
            &out,
            "are INT64, expected INT32",
        );
        let scalar = [T::new(Float32, &[]), T::list(&[]), T::new(Float32, &[])];
        bad(&DILATE, Params::None, &scalar, &out, "at least one dimension");
        let unknown = with(T::new(Int32, &[3])).map(Some);
        let inferred = testing::infer(&DILATE, Params::None, &unknown, &[Float32]).unwrap();
        assert_eq!(inferred[0].shape, InferredShape::DataDependent);
    }
}
