//! Words and numbers as results show them.

use delegraph::core::Op;

/// Returns an op's name as the file has it, for JSON. [`Display`](std::fmt::Display) of an op escapes it.
pub(crate) fn raw_name(op: &Op) -> String {
    match op {
        Op::Custom(name) => format!("custom op \"{name}\""),
        op => op.to_string(),
    }
}

/// Returns a count with its noun: `1 node`, `2 nodes`.
pub(crate) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Returns a difference in few characters: `0`, `1.500e-7`, `inf`.
pub(crate) fn difference(v: f64) -> String {
    if v == 0.0 || !v.is_finite() { format!("{v}") } else { format!("{v:.3e}") }
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
