//! SLICE, STRIDED_SLICE.

use smallvec::{SmallVec, smallvec};

use super::{
    Codec, InferContext, InferError, InferResult, Inferred, OpSignature, TensorType, lowest_with,
    no_arithmetic, options,
};
use crate::error::counted;
use crate::schema::BuiltinOptions;
use crate::types::Shape;

ops! {
    SLICE {
        codec: Codec::empty(BuiltinOptions::SliceOptions),
        infer: infer_slice,
        min_version: min_version_slice,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.14.0"),
            (2, "1.14.0"),
            (3, "1.14.0"),
            (4, "2.4.0"),
            (5, "2.5.0"),
            (6, "2.14.0"),
            (7, "2.21.0"),
            (8, "2.23.0"),
        ],
    }

    STRIDED_SLICE {
        codec: StridedSliceParams::CODEC,
        infer: infer_strided_slice,
        min_version: min_version_strided_slice,
        multiply_adds: no_arithmetic,
        history: &[
            (1, "1.6.0"),
            (2, "1.14.0"),
            (3, "2.1.0"),
            (4, "2.2.0"),
            (5, "2.5.0"),
            (6, "2.6.0"),
            (7, "2.14.0"),
            (8, "2.14.0"),
        ],
    }
}

options! {
    /// Params of STRIDED_SLICE.
    StridedSlice(StridedSliceParams) in BuiltinOptions::StridedSliceOptions(builtin_options_as_strided_slice_options, StridedSliceOptionsArgs) as TfLiteStridedSliceParams {
        /// Bit `i`: the slice of entry `i` begins at the first element; `begin` is ignored.
        begin_mask: i32;
        /// Bit `i`: the slice of entry `i` ends with the last element; `end` is ignored.
        end_mask: i32;
        /// Bit `i`: entry `i` is an ellipsis, which selects all dimensions without an entry entirely.
        ellipsis_mask: i32;
        /// Bit `i`: entry `i` adds a dimension of size 1 to the output.
        new_axis_mask: i32;
        /// Bit `i`: entry `i` selects one index, and the output lacks the dimension.
        shrink_axis_mask: i32;
        /// Whether `end` is relative to the begin of the slice.
        offset: bool, since 8;
    }
}

/// A box of the input: input 1 is its begin, input 2 its size, with -1 for all remaining elements.
fn infer_slice(cx: &InferContext<'_>) -> InferResult {
    cx.arity(3..=3, 1)?;
    let input = cx.input(0)?;
    match slice_ranges(cx)? {
        Some(ranges) => {
            Ok(smallvec![Inferred::known(input.ty, ranges.iter().map(|r| r.count).collect::<Shape>())])
        }
        None => cx.data_dependent(input.ty),
    }
}

/// Input `x` as in Python's `x[begin:end:stride, …]`.
fn infer_strided_slice(cx: &InferContext<'_>) -> InferResult {
    cx.arity(4..=4, 1)?;
    let input = cx.input(0)?;
    match strided_slice(cx)? {
        Some((_, shape)) => Ok(smallvec![Inferred::known(input.ty, shape)]),
        None => cx.data_dependent(input.ty),
    }
}

/// The indices that a slice reads along one dimension of the input: `start`, `start + step`, …, `count` indices, all of
/// them inside the dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SliceRange {
    /// The first index.
    pub start: usize,
    /// The distance to the next index.
    pub step: isize,
    /// The number of elements.
    pub count: usize,
}

/// One range per dimension of the input.
pub type SliceRanges = SmallVec<[SliceRange; 8]>;

/// Returns the elements that SLICE reads; `None` while they are not known.
pub fn slice_ranges(cx: &InferContext<'_>) -> Result<Option<SliceRanges>, InferError> {
    let shape = cx.input(0)?.shape;
    let (Some(begin), Some(size)) = (cx.input(1)?.integers()?, cx.input(2)?.integers()?) else {
        return Ok(None);
    };
    for (operand, what) in [(&begin, "begin"), (&size, "size")] {
        if operand.len() != shape.rank() {
            return Err(InferError::new(format!(
                "{what} has {} for rank {}",
                counted(operand.len(), "element"),
                shape.rank()
            )));
        }
    }
    let range = |((&full, &begin), &size): ((&usize, &i64), &i64)| {
        let error =
            || InferError::new(format!("a slice of {size} from {begin} does not fit a dimension of {full}"));
        let start = usize::try_from(begin).map_err(|_| error())?;
        let left = full.checked_sub(start).ok_or_else(error)?;
        let count = if size == -1 { left } else { usize::try_from(size).map_err(|_| error())? };
        if count > left { Err(error()) } else { Ok(SliceRange { start, step: 1, count }) }
    };
    shape.iter().zip(&begin).zip(&size).map(range).collect::<Result<_, _>>().map(Some)
}

/// Returns the elements that STRIDED_SLICE reads, and the shape of the output, without the shrunk dimensions and with
/// the added ones; `None` while they are not known.
pub fn strided_slice(cx: &InferContext<'_>) -> Result<Option<(SliceRanges, Shape)>, InferError> {
    let p: &StridedSliceParams = cx.params()?;
    let input = cx.input(0)?.shape;
    let (Some(begin), Some(end), Some(strides)) =
        (cx.input(1)?.integers()?, cx.input(2)?.integers()?, cx.input(3)?.integers()?)
    else {
        return Ok(None);
    };
    // The masks have a bit for each of 32 entries.
    let entries = begin.len();
    if end.len() != entries || strides.len() != entries || entries > 32 {
        return Err(InferError::new(format!(
            "begin, end and strides have {entries}, {} and {} elements",
            end.len(),
            strides.len()
        )));
    }
    let bit = |mask: i32, entry: usize| mask >> entry & 1 == 1;
    if (0..entries).filter(|&e| bit(p.ellipsis_mask, e)).count() > 1 {
        return Err(InferError::new("more than one ellipsis"));
    }
    // An entry with both bits is an ellipsis.
    let added = |e| bit(p.new_axis_mask, e) && !bit(p.ellipsis_mask, e);
    let total = input.rank() + (0..entries).filter(|&e| added(e)).count();
    let (mut ranges, mut shape) = (SliceRanges::new(), Shape::default());
    let (mut entry, mut position) = (0, 0);
    // As in TFLite, an ellipsis is never empty, and entries for which no dimension is left have no effect.
    while position < total {
        let mut here = 1;
        if entry < entries && added(entry) {
            shape.push(1);
        } else if entry >= entries || bit(p.ellipsis_mask, entry) {
            here = if entry < entries {
                (total + 1).saturating_sub(entries).clamp(1, total - position)
            } else {
                1
            };
            for _ in 0..here {
                let size = dimension(input, ranges.len())?;
                ranges.push(SliceRange { start: 0, step: 1, count: size });
                shape.push(size);
            }
        } else {
            let size = dimension(input, ranges.len())?;
            let begin = (!bit(p.begin_mask, entry)).then_some(begin[entry]);
            let end = (!bit(p.end_mask, entry)).then_some(end[entry]);
            if bit(p.shrink_axis_mask, entry) {
                ranges.push(single(size, begin, strides[entry])?);
            } else {
                let range = range(size, begin, end, strides[entry], p.offset)?;
                ranges.push(range);
                shape.push(range.count);
            }
        }
        entry += 1;
        position += here;
    }
    Ok(Some((ranges, shape)))
}

fn dimension(input: &Shape, d: usize) -> Result<usize, InferError> {
    input.get(d).copied().ok_or_else(|| InferError::new(format!("more entries than {input} has dimensions")))
}

/// Returns the range of `begin:end:stride` along a dimension of `size`; indices beyond it are clamped, as in Python. A
/// stride of 0 is an error.
fn range(
    size: usize,
    begin: Option<i64>,
    end: Option<i64>,
    stride: i64,
    offset: bool,
) -> Result<SliceRange, InferError> {
    let error = || InferError::new(format!("stride {stride} along a dimension of {size} is out of range"));
    let signed = i64::try_from(size).map_err(|_| error())?;
    // The bounds of begin and end. The end of a slice with a negative stride may be one before the first element.
    let (low, high) = match stride {
        0 => {
            return Err(InferError::new(format!(
                "stride 0 along a dimension of {size}; only strides other than 0 are supported"
            )));
        }
        1.. => (0, signed),
        _ => (-1, signed - 1),
    };
    let clamped =
        |index: i64| (if index < 0 { index.saturating_add(signed) } else { index }).clamp(low, high);
    let begin = begin.map_or(if stride > 0 { low } else { high }, clamped);
    let end = match end {
        None if stride > 0 => high,
        None => low,
        Some(end) if offset => clamped(begin.saturating_add(end)),
        Some(end) => clamped(end),
    };
    // `high` and `low` are within the range of sizes, so differences do not overflow.
    let distance = if stride > 0 { end - begin } else { begin - end };
    let count = if distance <= 0 { 0 } else { distance.unsigned_abs().div_ceil(stride.unsigned_abs()) };
    Ok(SliceRange {
        start: usize::try_from(begin).unwrap_or(0),
        step: isize::try_from(stride).map_err(|_| error())?,
        count: usize::try_from(count).map_err(|_| error())?,
    })
}

/// Returns the range of the one index that is selected along a shrunk dimension. A stride below 1, and an index that
/// selects nothing, are errors.
fn single(size: usize, begin: Option<i64>, stride: i64) -> Result<SliceRange, InferError> {
    let range = range(size, begin, None, stride, false)?;
    if stride < 0 || range.count == 0 {
        let index = begin.map_or_else(|| "(masked)".to_owned(), |i| i.to_string());
        return Err(InferError::new(format!(
            "index {index} with stride {stride} along a dimension of {size}; \
             only indices below {size} with a positive stride are supported"
        )));
    }
    Ok(SliceRange { count: 1, ..range })
}

/// Types and ranks were added one after the other.
fn min_version_slice(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Float16, Int4, Int8, Int16, String, UInt32};
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[String])),
        (4, s.input_is(0, &[Int16])),
        (5, s.rank(0) > 4),
        (6, s.input_is(0, &[UInt32])),
        (7, s.input_is(0, &[Int4])),
        (8, s.input_is(0, &[Float16])),
    ])
}

/// Types, ranks and masks were added one after the other.
fn min_version_strided_slice(s: &OpSignature<'_>) -> u32 {
    use TensorType::{Bool, Int8, String, UInt32};
    let p = s.params::<StridedSliceParams>();
    lowest_with(&[
        (2, s.input_is(0, &[Int8])),
        (3, s.input_is(0, &[Bool])),
        (4, s.rank(0) > 4),
        (5, s.input_is(0, &[String])),
        (6, p.is_some_and(|p| p.ellipsis_mask != 0 || p.new_axis_mask != 0)),
        (7, s.input_is(0, &[UInt32])),
        (8, p.is_some_and(|p| p.offset)),
    ])
}
