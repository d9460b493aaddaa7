//! Words and numbers of results.

use std::path::Path;

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

/// Returns a difference in few characters: `0`, `1.500e-7`, `inf`.
pub(crate) fn difference(v: f64) -> String {
    if v == 0.0 || !v.is_finite() { format!("{v}") } else { format!("{v:.3e}") }
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
    fn counts_and_differences() {
        assert_eq!((plural(1, "node"), plural(0, "node")), ("1 node".into(), "0 nodes".into()));
        assert_eq!((difference(0.0), difference(1.5e-7)), ("0".into(), "1.500e-7".into()));
        assert_eq!(difference(f64::INFINITY), "inf");
    }
}
