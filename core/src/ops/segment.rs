//! SEGMENT_SUM, UNSORTED_SEGMENT_PROD, UNSORTED_SEGMENT_MAX, UNSORTED_SEGMENT_SUM, UNSORTED_SEGMENT_MIN.

use smallvec::smallvec;

use super::{
    Codec, InferContext, InferError, InferResult, InferTensor, Inferred, TensorType, always_1, per_input,
    size_from,
};
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    SEGMENT_SUM {
        codec: Codec::empty(BuiltinOptions::SegmentSumOptions),
        infer: infer_sorted,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.2.0")],
    }

    UNSORTED_SEGMENT_PROD {
        codec: Codec::empty(BuiltinOptions::UnsortedSegmentProdOptions),
        infer: infer_unsorted,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.10.0")],
    }

    UNSORTED_SEGMENT_MAX {
        codec: Codec::empty(BuiltinOptions::UnsortedSegmentMaxOptions),
        infer: infer_unsorted,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.10.0")],
    }

    UNSORTED_SEGMENT_SUM {
        codec: Codec::empty(BuiltinOptions::UnsortedSegmentSumOptions),
        infer: infer_unsorted,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.10.0")],
    }

    UNSORTED_SEGMENT_MIN {
        codec: Codec::empty(BuiltinOptions::UnsortedSegmentMinOptions),
        infer: infer_unsorted,
        min_version: always_1,
        multiply_adds: per_input,
        history: &[(1, "2.11.0")],
    }
}

/// Sums of runs of rows: data `[rows, …]`, and for each row the number of its segment, which starts at 0 and grows by
/// at most 1 from row to row. The output has a row per segment.
fn infer_sorted(cx: &InferContext<'_>) -> InferResult {
    cx.arity(2..=2, 1)?;
    let (data, ids) = (cx.input(0)?, indices(cx, 1)?);
    let [rows] = cx.shape_of_rank(1, "the segment numbers")?;
    if data.shape.first() != Some(&rows) {
        return Err(InferError::new(format!(
            "{rows} segment numbers do not fit data of shape {}",
            data.shape
        )));
    }
    let Some(ids) = ids.integer_elements()? else { return cx.data_dependent(data.ty) };
    let segments = segments_of(ids).map_err(InferError::new)?;
    let shape = std::iter::once(segments).chain(data.shape.iter().skip(1).copied()).collect::<Shape>();
    Ok(smallvec![Inferred::known(data.ty, shape)])
}

/// Returns the number of segments of sorted segment numbers.
fn segments_of(ids: impl Iterator<Item = i64>) -> Result<usize, String> {
    let mut last = -1;
    for id in ids {
        if id != last.max(0) && id != last + 1 {
            return Err(format!("segment {id} follows segment {last}"));
        }
        last = id;
    }
    usize::try_from(last + 1).map_err(|_| format!("segment {last} is out of range"))
}

/// Data of shape `[ids…, inner…]`, the number of a segment for each of the `ids…`, and the number of segments:
/// `[segments, inner…]`.
fn infer_unsorted(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let (data, ids) = (cx.input(0)?, indices(cx, 1)?.shape);
    let Some(inner) = data.shape.strip_prefix(ids.dims()) else {
        return Err(InferError::new(format!(
            "segment numbers {ids} do not fit data of shape {}",
            data.shape
        )));
    };
    let Some(segments) = indices(cx, 2)?.integer("the number of segments")? else {
        return cx.data_dependent(data.ty);
    };
    let segments = size_from(segments, "the number of segments")?;
    let shape = std::iter::once(segments).chain(inner.iter().copied()).collect::<Shape>();
    Ok(smallvec![Inferred::known(data.ty, shape)])
}

fn indices<'a, 'b>(cx: &'b InferContext<'a>, i: usize) -> Result<&'b InferTensor<'a>, InferError> {
    let indices = cx.input(i)?;
    match indices.ty {
        TensorType::Int32 => Ok(indices),
        ty => Err(InferError::new(format!("input {i} must be INT32, got {ty}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{T, gives, infer, refused};
    use crate::ops::{InferredShape, Params};

    #[test]
    fn a_row_per_segment() {
        let float = TensorType::Float32;
        let data = || Some(T::new(float, &[4, 2]));
        let sorted = |ids: &[i32]| [data(), Some(T::list(ids))];
        gives(&SEGMENT_SUM, Params::None, &sorted(&[0, 0, 1, 2]), float, &[3, 2]);
        refused(&SEGMENT_SUM, Params::None, &sorted(&[0, 0, 2, 3]), 1, "segment 2 follows segment 0");
        refused(&SEGMENT_SUM, Params::None, &sorted(&[1, 1, 1, 1]), 1, "segment 1 follows segment -1");
        refused(&SEGMENT_SUM, Params::None, &sorted(&[0, 0, 1]), 1, "3 segment numbers do not fit");
        refused(&SEGMENT_SUM, Params::None, &sorted(&[0, 1, 0, 1]), 1, "segment 0 follows segment 1");
        let unknown = [data(), Some(T::new(TensorType::Int32, &[4]))];
        let inferred = infer(&SEGMENT_SUM, Params::None, &unknown, &[float]).unwrap();
        assert_eq!(inferred[0].shape, InferredShape::DataDependent);
    }

    #[test]
    fn as_many_segments_as_asked_for() {
        let float = TensorType::Float32;
        let inputs = |ids: &[usize], segments: T| {
            [Some(T::new(float, &[4, 2, 3])), Some(T::new(TensorType::Int32, ids)), Some(segments)]
        };
        let def = &UNSORTED_SEGMENT_MAX;
        gives(def, Params::None, &inputs(&[4], T::list(&[5])), float, &[5, 2, 3]);
        gives(def, Params::None, &inputs(&[4, 2], T::constant(&[], &[0i32])), float, &[0, 3]);
        refused(def, Params::None, &inputs(&[3], T::list(&[5])), 1, "[3] do not fit data of shape [4, 2, 3]");
        refused(def, Params::None, &inputs(&[4], T::list(&[-1])), 1, "-1 is negative");
        refused(def, Params::None, &inputs(&[4], T::list(&[1, 2])), 1, "must be one number");
        refused(def, Params::None, &inputs(&[4], T::constant(&[], &[1i64])), 1, "input 2 must be INT32");
    }
}
