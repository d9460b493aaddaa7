//! NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, TensorType, always_1, per_input, size_from,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;

ops! {
    NON_MAX_SUPPRESSION_V4 {
        codec: Codec::empty(BuiltinOptions::NonMaxSuppressionV4Options),
        infer: infer_hard,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.1.0")],
    }

    NON_MAX_SUPPRESSION_V5 {
        codec: Codec::empty(BuiltinOptions::NonMaxSuppressionV5Options),
        infer: infer_soft,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.1.0")],
    }
}

/// Indices of the selected boxes, and their number.
fn infer_hard(cx: &InferContext<'_>) -> InferResult {
    cx.arity(5..=5, 2)?;
    let selected = selected(cx, 5)?;
    Ok(smallvec![selected(TensorType::Int32), Inferred::known(TensorType::Int32, [])])
}

/// Indices of the selected boxes, their scores, and their number. Input 5 is the width of the Gaussian by which
/// overlaps lower scores.
fn infer_soft(cx: &InferContext<'_>) -> InferResult {
    cx.arity(6..=6, 3)?;
    let selected = selected(cx, 6)?;
    Ok(smallvec![
        selected(TensorType::Int32),
        selected(TensorType::Float32),
        Inferred::known(TensorType::Int32, [])
    ])
}

/// Boxes `[boxes, 4]`, scores `[boxes]`, and scalars: the maximum number of boxes to select, the overlap from which one
/// suppresses the other, and the minimum score of a box. Returns outputs for the maximum number of selected boxes.
fn selected(cx: &InferContext<'_>, inputs: usize) -> Result<impl Fn(TensorType) -> Inferred, InferError> {
    let [boxes, corners] = cx.shape_of_rank(0, "the boxes")?;
    let [scores] = cx.shape_of_rank(1, "the scores")?;
    if corners != 4 || boxes != scores {
        let scores = counted(scores, "score");
        return Err(InferError::new(format!("boxes of shape [{boxes}, {corners}] do not fit {scores}")));
    }
    for scalar in 2..inputs {
        let [] = cx.shape_of_rank(scalar, "a limit")?;
    }
    let most = cx.input(2)?.integer("the maximum number of boxes")?;
    let most = most.map(|n| size_from(n, "the number of boxes")).transpose()?;
    Ok(move |ty| match most {
        Some(most) => Inferred::known(ty, [most]),
        None => Inferred::data_dependent(ty),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, infer, refused};
    use crate::ops::{InferredShape, Params};

    fn inputs(boxes: &[usize], scores: usize, most: Option<i32>, scalars: usize) -> Vec<Option<T>> {
        let most = most.map_or(T::new(TensorType::Int32, &[]), |n| T::constant(&[], &[n]));
        let mut all = vec![T::new(TensorType::Float32, boxes), T::new(TensorType::Float32, &[scores]), most];
        all.resize(scalars + 3, T::new(TensorType::Float32, &[]));
        all.into_iter().map(Some).collect()
    }

    #[test]
    fn outputs_hold_as_many_as_can_be_selected() {
        let (int, float) = (TensorType::Int32, TensorType::Float32);
        let hard = &NON_MAX_SUPPRESSION_V4;
        let count = Inferred::known(int, []);
        let known = infer(hard, Params::None, &inputs(&[7, 4], 7, Some(3), 2), &[int, int]).unwrap();
        assert_eq!(known.as_slice(), [Inferred::known(int, [3]), count.clone()]);
        let soft =
            infer(&NON_MAX_SUPPRESSION_V5, Params::None, &inputs(&[7, 4], 7, Some(9), 3), &[int, float, int]);
        assert_eq!(soft.unwrap().as_slice(), [Inferred::known(int, [9]), Inferred::known(float, [9]), count]);
        let unknown = infer(hard, Params::None, &inputs(&[7, 4], 7, None, 2), &[int, int]).unwrap();
        assert_eq!(unknown[0].shape, InferredShape::DataDependent);
        refused(hard, Params::None, &inputs(&[7, 4], 6, Some(3), 2), 2, "[7, 4] do not fit 6 scores");
        refused(hard, Params::None, &inputs(&[7, 5], 7, Some(3), 2), 2, "[7, 5] do not fit 7 scores");
        refused(hard, Params::None, &inputs(&[7, 4], 7, Some(-1), 2), 2, "-1 is negative");
        refused(hard, Params::None, &inputs(&[7, 4], 7, Some(1), 3), 2, "expected 5 inputs");
    }
}
