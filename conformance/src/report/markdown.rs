//! `support.md`: a table for a README or a release.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Matrix, Report};
use crate::report::Cell;

/// The outcomes of each type.
type Cells = BTreeMap<String, Cell>;

/// Returns a table of the claimed and correct versions and types per op.
pub fn markdown(report: &Report) -> String {
    let matrix = Matrix::of(report);
    let mut text = format!("# Conformance of {}\n\n", plain(&report.delegate));
    if !report.device.is_empty() {
        let _ = writeln!(text, "On {}.", plain(&report.device));
    }
    let _ = writeln!(text, "{}.\n", plain(&report.summary()));
    text += "✓ all cases pass · ◐ some pass, the others are not supported · ✗ some fail · ! known to fail · – not \
             supported\n\n";
    let types = &matrix.types;
    let names = types.iter().map(|t| if t.is_empty() { "–".into() } else { plain(t) });
    let _ = writeln!(text, "| op | versions | {} |", names.collect::<Vec<_>>().join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(types.len()));
    let mut ops: BTreeMap<&str, Vec<(u32, &Cells)>> = BTreeMap::new();
    for ((op, version), cells) in &matrix.rows {
        ops.entry(op).or_default().push((*version, cells));
    }
    for (op, versions) in ops {
        let good = |cells: &Cells| cells.values().any(|c| c.passed > 0);
        let numbers: Vec<u32> = versions.iter().filter(|(_, c)| good(c)).map(|(v, _)| *v).collect();
        let mut line = format!("| {} | {} |", plain(op), ranges(&numbers));
        for ty in types {
            let mut all = Cell::default();
            for cell in versions.iter().filter_map(|(_, cells)| cells.get(ty)) {
                all.cases += cell.cases;
                all.passed += cell.passed;
                all.failed += cell.failed;
                all.known += cell.known;
            }
            let mark = match (all.cases, all.class()) {
                (0, _) => "",
                (_, "good") => "✓",
                (_, "part") => "◐",
                (_, "bad") => "✗",
                (_, "known") => "!",
                _ => "–",
            };
            let _ = write!(line, " {mark} |");
        }
        text += &line;
        text.push('\n');
    }
    text
}

/// Formats numbers as ranges: `1–3, 5`.
fn ranges(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &n in numbers {
        match ranges.last_mut() {
            Some((_, to)) if to.checked_add(1) == Some(n) => *to = n,
            _ => ranges.push((n, n)),
        }
    }
    let text = |(from, to): (u32, u32)| if from == to { from.to_string() } else { format!("{from}–{to}") };
    match ranges.is_empty() {
        true => "–".into(),
        false => ranges.into_iter().map(text).collect::<Vec<_>>().join(", "),
    }
}

/// Returns text in one line, with Markdown markup escaped.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => plain.push(' '),
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '#' | '\\' => {
                plain.push('\\');
                plain.push(c);
            }
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{plain, ranges};

    #[test]
    fn versions_are_ranges() {
        assert_eq!(ranges(&[]), "–");
        assert_eq!(ranges(&[1, 2, 3, 5]), "1–3, 5");
        assert_eq!(plain("a|b\nc_d"), "a\\|b c\\_d");
    }
}
