//! What goes to standard output: text for people, or one JSON document.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::failure::Failure;

/// A verb's result.
pub(crate) trait Document: Serialize {
    /// The same for people to read, ending in a line break.
    fn text(&self) -> String;
}

/// Where results go, and how.
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Output {
    /// Prints the result.
    pub(crate) fn print(&self, document: &impl Document) -> Result<(), Failure> {
        if self.json { self.json(document) } else { write(&document.text()) }
    }

    /// Prints text as it is.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        write(text)
    }

    /// Prints the result as JSON.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<(), Failure> {
        let mut text = serde_json::to_string_pretty(document).map_err(io::Error::from)?;
        text.push('\n');
        write(&text)
    }

    /// A progress bar on standard error, where that is a terminal whose foreground is ours: a job in the background
    /// would scribble over what others show, and some terminals stop it for that.
    pub(crate) fn progress(&self, length: u64, template: &str) -> Progress {
        let shown = !self.quiet && io::stderr().is_terminal() && !in_background();
        // A hidden bar would compute its estimates all the same, between runs that are being measured.
        Progress(shown.then(|| {
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        }))
    }
}

/// A progress bar, where one is shown.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn set_position(&self, position: u64) {
        self.0.iter().for_each(|bar| bar.set_position(position));
    }

    pub(crate) fn set_message(&self, message: String) {
        self.0.iter().for_each(|bar| bar.set_message(message.clone()));
    }

    pub(crate) fn inc(&self) {
        self.0.iter().for_each(|bar| bar.inc(1));
    }

    pub(crate) fn finish_and_clear(&self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Whether another job has the terminal that standard error is.
#[cfg(unix)]
fn in_background() -> bool {
    rustix::termios::tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn in_background() -> bool {
    false
}

fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A table with a header, without frames; columns in `numbers` are aligned right. Empty without rows.
pub(crate) fn table(
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table.add_rows(rows);
    if table.is_empty() {
        return String::new();
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if i == 0 { 0 } else { 1 }, 1));
        if numbers.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// Bytes for people.
pub(crate) fn bytes(n: usize) -> String {
    indicatif::HumanBytes(n as u64).to_string()
}

/// A large number for people: `3.4 M`.
pub(crate) fn scaled(n: u64) -> String {
    let (unit, divisor) = match n {
        0..1_000 => return n.to_string(),
        1_000..1_000_000 => ("k", 1e3),
        1_000_000..1_000_000_000 => ("M", 1e6),
        _ => ("G", 1e9),
    };
    format!("{:.1} {unit}", n as f64 / divisor)
}
