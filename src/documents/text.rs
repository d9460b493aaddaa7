//! Words and numbers of documents.

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

/// Returns a number of bytes: `17 B`, `1.25 KiB`.
pub(crate) fn bytes(n: impl TryInto<u64>) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let steps = n.max(1).ilog2() as usize / 10;
    match steps.checked_sub(1).and_then(|step| UNITS.get(step)) {
        Some(unit) => format!("{:.2} {unit}", n as f64 / 1024f64.powi(steps as i32)),
        None => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes() {
        let texts = [0usize, 1, 1023, 1024, 1280, 5 << 20].map(bytes);
        assert_eq!(texts, ["0 B", "1 B", "1023 B", "1.00 KiB", "1.25 KiB", "5.00 MiB"]);
        assert_eq!(bytes((1u64 << 32) + (1 << 31)), "6.00 GiB");
    }
}
