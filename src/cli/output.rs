//! Standard output: text, or one JSON document. Text from files is escaped here.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use delegraph::core::{printable, printable_lines};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::failure::{Exit, Failure};

/// A verb's result.
pub(crate) trait Document: Serialize {
    /// Returns the result as text that ends with a line break.
    fn text(&self) -> String;
}

/// The destination and format of results.
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Output {
    /// Prints the result.
    pub(crate) fn print(&self, document: &impl Document) -> Result<(), Failure> {
        if self.json { self.json(document) } else { write(&document.text()) }
    }

    /// Prints text unchanged.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        write(text)
    }

    /// Prints the result as JSON.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<(), Failure> {
        write_raw(&(json_text(document).map_err(Failure::of_stdout)? + "\n"))
    }

    /// Prints a failure to standard error and, with `--json`, a document to standard output.
    pub(crate) fn failure(&self, failure: Failure) -> Exit {
        if failure.is_broken_pipe() {
            return Exit::Fine;
        }
        let exit = failure.exit();
        if self.json {
            let _ = self.json(&failure.document());
        }
        // Lines are not wrapped: messages name paths and shapes to search for and copy.
        let _ = miette::set_hook(Box::new(|_| {
            Box::new(miette::MietteHandlerOpts::new().wrap_lines(false).build())
        }));
        let _ = writeln!(io::stderr(), "{:?}", miette::Report::new(failure));
        exit
    }

    /// Prints an error of `clap`, which also represents help and version. The options are not known then, so `--json`
    /// is searched among the arguments.
    pub(crate) fn usage(error: &clap::Error, arguments: &[OsString]) -> Exit {
        // Suggestions and parsers repeat arguments, too.
        let printed = match printable_lines(&error.render().to_string()) {
            Cow::Owned(text) if error.use_stderr() => io::stderr().write_all(text.as_bytes()),
            _ => error.print().and_then(|()| io::stdout().flush()),
        };
        if !error.use_stderr() {
            let failed = |e| Output { json: false, quiet: true }.failure(Failure::of_stdout(e));
            return printed.map_or_else(failed, |()| Exit::Fine);
        }
        let mut arguments = arguments.iter().skip(1).take_while(|argument| argument.as_os_str() != "--");
        // Also with a value, which is an error.
        if arguments
            .any(|argument| argument == "--json" || argument.as_encoded_bytes().starts_with(b"--json="))
        {
            let _ = Output { json: true, quiet: true }.json(&Failure::usage(error).document());
        }
        Exit::Usage
    }

    /// Returns a progress bar on standard error if that is a terminal and this process is in the foreground: a
    /// background job would overwrite the output of others, and some terminals would stop it.
    pub(crate) fn progress(&self, length: u64, template: &str) -> Progress {
        let shown = !self.quiet && io::stderr().is_terminal() && !in_background();
        // A hidden bar would still compute its estimates, between measured runs.
        Progress(shown.then(|| {
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        }))
    }
}

/// A progress bar, if one is shown.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn set_position(&self, position: u64) {
        self.0.iter().for_each(|bar| bar.set_position(position));
    }

    pub(crate) fn set_message(&self, message: String) {
        self.0.iter().for_each(|bar| bar.set_message(printable(&message).into_owned()));
    }

    pub(crate) fn inc(&self) {
        self.0.iter().for_each(|bar| bar.inc(1));
    }

    pub(crate) fn finish_and_clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Whether another job controls the terminal of standard error.
#[cfg(unix)]
fn in_background() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn in_background() -> bool {
    false
}

/// Prints text with all terminal control characters escaped.
fn write(text: &str) -> Result<(), Failure> {
    write_raw(&printable_lines(text))
}

/// Returns the document with JSON escapes for all terminal control characters.
fn json_text(document: &impl Serialize) -> io::Result<String> {
    Ok(crate::documents::json(document)?)
}

fn write_raw(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::of_stdout)
}

/// Minimum terminal columns per table column. On narrower terminals, a table is as wide as it needs, since wrapped
/// cells would be unreadable.
const MIN_COLUMNS: usize = 8;

/// Returns a table with a header, without frames; columns in `numbers` are aligned right. Empty without rows. Cells are
/// escaped.
pub(crate) fn table(
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    let shown = |row: Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = rows.into_iter().map(shown).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut widths: Vec<u16> = header.iter().map(|cell| widest_word(cell)).collect();
    for row in &rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = widest_word(cell).max(*width));
    }
    table.add_rows(rows);
    for (i, (column, width)) in table.column_iter_mut().zip(&mut widths).enumerate() {
        column.set_padding((if i == 0 { 0 } else { 1 }, 1));
        if numbers.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        *width += column.padding_width();
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(*width)));
    }
    let arranged = table.width().filter(|columns| usize::from(*columns) >= MIN_COLUMNS * header.len());
    if let Some(columns) = arranged {
        let needed = widths.iter().fold(0, |sum: u16, width| sum.saturating_add(*width));
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns.max(needed));
    }
    table.trim_fmt() + "\n"
}

/// Maximum width that a word gets without a break.
const MAX_WORD: usize = 24;

/// Returns the width of a cell's longest word.
fn widest_word(cell: &str) -> u16 {
    let widest = cell.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    widest.min(MAX_WORD) as u16
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

/// Returns a large number in short form: `3.4 M`.
pub(crate) fn scaled(n: u64) -> String {
    let (unit, divisor) = match n {
        0..1_000 => return n.to_string(),
        1_000..1_000_000 => ("k", 1e3),
        1_000_000..1_000_000_000 => ("M", 1e6),
        _ => ("G", 1e9),
    };
    format!("{:.1} {unit}", n as f64 / divisor)
}

/// Returns an amount of work with its unit: `1 multiply-add`, `3.4 k multiply-adds`.
pub(crate) fn work(multiply_adds: u64) -> String {
    format!("{} multiply-add{}", scaled(multiply_adds), if multiply_adds == 1 { "" } else { "s" })
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

    #[test]
    fn json_escapes_what_a_terminal_acts_on() {
        use delegraph::core::types::is_escaped;

        let value = ["\u{1b}[2J\n", "\u{9b}31m\u{7f}", "\u{202e}\u{e0001}", "größe"];
        let text = json_text(&value).unwrap();
        assert!(!text.chars().any(|c| c != '\n' && is_escaped(c)), "{text:?}");
        assert!(text.contains("\\u001b[2J\\n") && text.contains("\\u009b31m\\u007f"), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), value);
    }

    #[test]
    fn amounts_of_work() {
        let texts = [0, 1, 2, 3400].map(work);
        assert_eq!(texts, ["0 multiply-adds", "1 multiply-add", "2 multiply-adds", "3.4 k multiply-adds"]);
    }

    #[test]
    fn cells_are_one_line() {
        let text = table(&["name"], &[], [vec!["a\nb\u{1b}[31m".to_owned()]]);
        assert_eq!(text, "name\na\\nb\\u{1b}[31m\n");
    }
}
