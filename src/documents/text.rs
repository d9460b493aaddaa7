//! Names of ops and ranges of versions in documents.

use std::ops::RangeInclusive;

use crate::core::Op;

/// Returns an op's name as stored in the file, for JSON. [`Display`](std::fmt::Display) of an op escapes it.
pub(crate) fn raw_name(op: &Op) -> String {
    match op {
        Op::Custom(name) => format!("custom op \"{name}\""),
        op => op.to_string(),
    }
}

/// Returns the bounds of a range of versions, which stand for it in JSON.
pub(crate) fn bounds(range: &RangeInclusive<u32>) -> (u32, u32) {
    (*range.start(), *range.end())
}
