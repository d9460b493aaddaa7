//! Counts, paths, numbers and times in the text of results.

use std::path::Path;

use delegraph::core::printable;

use crate::documents::versions::UnderstatedLine;

pub(crate) use crate::documents::text::{bounds, raw_name};

/// Returns a count with its noun: `1 node`, `2 nodes`.
pub(crate) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Returns a path as text. Bytes that are not UTF-8 are replaced.
pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns a path for a message, on one line.
pub(crate) fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Returns a number in few characters: whole ones unchanged, others with three decimals, or in scientific notation if
/// they are small or large: `0`, `1.440`, `1.500e-7`, `inf`.
pub(crate) fn short_number(n: f64) -> String {
    const LARGE: f64 = 1e6;
    let size = n.abs();
    if !n.is_finite() || (n.fract() == 0.0 && size < LARGE) {
        n.to_string()
    } else if (0.1..LARGE).contains(&size) {
        format!("{n:.3}")
    } else {
        format!("{n:.3e}")
    }
}

/// Returns a time in milliseconds with at least three significant digits: `12.345`, `0.0123`.
pub(crate) fn milliseconds(ms: f64) -> String {
    let zeros = if ms > 0.0 { -ms.log10().floor() } else { 0.0 };
    let decimals = zeros.clamp(1.0, 7.0) as usize + 2;
    format!("{ms:.decimals$}")
}

/// Returns a warning for each understated version; empty if there are none.
pub(crate) fn warnings(lines: &[UnderstatedLine]) -> String {
    let mut text: String = lines.iter().map(|line| format!("warning: {}\n", line.text)).collect();
    if !lines.is_empty() {
        text += "`delegraph fuse MODEL -o OUT --versions-only` writes the versions that are needed\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_numbers() {
        assert_eq!((plural(1, "node"), plural(0, "node")), ("1 node".into(), "0 nodes".into()));
        let texts = [0.0, 1.0, 1.44, -0.5, 1.5e-7, 2.5e9, f64::INFINITY].map(short_number);
        assert_eq!(texts, ["0", "1", "1.440", "-0.500", "1.500e-7", "2.500e9", "inf"]);
    }

    #[test]
    fn times_have_three_digits() {
        let texts = [0.0, 1234.5, 1.0, 0.25, 0.0625, 0.000_512].map(milliseconds);
        assert_eq!(texts, ["0.000", "1234.500", "1.000", "0.250", "0.0625", "0.000512"]);
    }
}
