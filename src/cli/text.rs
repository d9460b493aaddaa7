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

/// Returns a time in milliseconds: three decimals, or three digits if there would be fewer.
pub(crate) fn time(v: f64) -> String {
    let small = v > 0.0 && v < 0.1;
    let digits = if small { (2 - v.log10().floor() as i32).clamp(3, 9) as usize } else { 3 };
    format!("{v:.digits$}")
}

/// Returns a difference in few characters: `0`, `1.500e-7`, `0.25`, `1.44`, `inf`.
pub(crate) fn difference(v: f64) -> String {
    match v.abs() {
        _ if v == 0.0 || !v.is_finite() => format!("{v}"),
        1e-3..1e6 => {
            let digits = (3 - v.abs().log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{v:.digits$}");
            if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
        }
        _ => format!("{v:.3e}"),
    }
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
    fn short_times_keep_their_digits() {
        let times = [0.0, 0.000_123_4, 0.0056, 0.1, 12.3456].map(time);
        assert_eq!(times, ["0.000", "0.000123", "0.00560", "0.100", "12.346"]);
        assert_eq!(time(f64::NAN), "NaN");
    }

    #[test]
    fn counts_and_differences() {
        assert_eq!((plural(1, "node"), plural(0, "node")), ("1 node".into(), "0 nodes".into()));
        assert_eq!((difference(0.0), difference(1.5e-7)), ("0".into(), "1.500e-7".into()));
        assert_eq!(difference(f64::INFINITY), "inf");
        assert_eq!([1.0, 1.44, -0.01, 123_456.7].map(difference), ["1", "1.44", "-0.01", "123457"]);
    }
}
