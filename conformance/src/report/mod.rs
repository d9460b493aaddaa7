//! The report of a run, as data and as text.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use delegraph_core::error::counted;
use delegraph_core::types::printable_json;
use delegraph_core::{printable, printable_lines};
use serde::{Deserialize, Serialize};

use crate::engine::{CaseResult, Outcome, durations};
use crate::error::Error;

mod badge;
mod csv;
mod diff;
mod html;
mod junit;
mod markdown;
mod matrix;

pub use badge::badge;
pub use csv::{csv, quoted};
pub use diff::{Diff, Slower};
pub use html::html;
pub use junit::junit;
pub use markdown::markdown;
pub use matrix::{Cell, Matrix};

/// A whole run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The generator: `delegraph 0.1.0`.
    #[serde(default)]
    pub tool: String,
    /// The backend under test.
    pub delegate: String,
    /// The backend's device, unless it is the CPU: adapter and driver.
    #[serde(default)]
    pub device: String,
    /// The kernels that times are compared with; empty if there are none.
    #[serde(default)]
    pub baseline: String,
    /// The folder of cases; `null` for the built-in ones.
    #[serde(default)]
    pub corpus: Option<String>,
    /// The seed of the built-in cases.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The duration of the run; in JSON `seconds`.
    #[serde(default, rename = "seconds", with = "durations::seconds")]
    pub elapsed: Duration,
    /// The number of cases.
    pub total: usize,
    /// The number of cases of each outcome.
    pub counts: BTreeMap<String, usize>,
    /// The number of known failures.
    #[serde(default)]
    pub known: usize,
    /// Differences from the expectations.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The command without the selection of cases, to reproduce a result.
    #[serde(default)]
    pub command: String,
    /// Every case.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Creates a report on `delegate`, with these results and without counts.
    pub fn new(delegate: impl Into<String>, results: Vec<CaseResult>) -> Self {
        Report { delegate: delegate.into(), results, ..Report::default() }
    }

    /// Counts the outcomes of the cases.
    pub fn count(&mut self) {
        self.total = self.results.len();
        self.counts.clear();
        for result in &self.results {
            *self.counts.entry(result.outcome.name().into()).or_default() += 1;
        }
        self.known = self.results.iter().filter(|r| r.known.is_some()).count();
    }

    /// Returns the number of cases with this outcome.
    pub fn of(&self, outcome: Outcome) -> usize {
        self.counts.get(outcome.name()).copied().unwrap_or(0)
    }

    /// Returns the cases that failed, without known failures.
    pub fn failures(&self) -> impl Iterator<Item = &CaseResult> {
        self.results.iter().filter(|r| r.is_failure())
    }

    /// Returns whether there are no failures and no differences from the expectations.
    pub fn is_fine(&self) -> bool {
        self.problems.is_empty() && self.failures().next().is_none()
    }

    /// Returns a summary of one line.
    pub fn summary(&self) -> String {
        let failures = self.failures().count();
        let claimed = self.results.iter().filter(|r| r.op_claimed).count();
        let passed = self.of(Outcome::Pass);
        let pass = if passed == 1 { "passes" } else { "pass" };
        let mut parts = vec![format!("{passed} of {} {pass}", counted(self.total, "case"))];
        parts.push(match failures {
            0 => "no failures".into(),
            1 => "1 failure".into(),
            n => format!("{n} failures"),
        });
        if self.known > 0 {
            parts.push(format!("{} known", self.known));
        }
        if self.of(Outcome::Unsupported) > 0 {
            parts.push(format!("{} not supported", self.of(Outcome::Unsupported)));
        }
        if claimed > 0 {
            parts.push(format!("{claimed} claimed"));
        }
        match self.problems.len() {
            0 => {}
            1 => parts.push("1 expectation not met".into()),
            n => parts.push(format!("{n} expectations not met")),
        }
        parts.join(" · ")
    }

    /// Returns the command that runs one case again. It has one line for any name: the escapes are those of the
    /// filter's regular expressions, too.
    pub fn reproduce(&self, case: &str) -> String {
        let filter = format!("^{}$", printable(&regex::escape(case)));
        format!("{} --filter {}", self.command, shell(&filter))
    }

    /// Reads `results.json`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Invalid`] if it has no results.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(|e| Error::io(path, e))?;
        let mut report: Report = serde_json::from_slice(&text)
            .map_err(|e| Error::invalid_at(format_args!("{}: no results", path.display()), e))?;
        report.count();
        Ok(report)
    }

    /// Writes all formats into a folder: `results.csv`, `results.json`, `junit.xml`, `index.html` with a page for each
    /// failing case in `cases/`, `support.md`, `badge.svg`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        // Each file is written completely or not at all.
        let put = |name: &str, text: &[u8]| {
            let partial = folder.join(format!(".{name}.part"));
            fs::write(&partial, text).and_then(|()| fs::rename(&partial, folder.join(name)))
        };
        put("results.json", printable_json(serde_json::to_string_pretty(self)?).as_bytes())?;
        put("results.csv", csv(self).as_bytes())?;
        put("junit.xml", junit(self).as_bytes())?;
        put("support.md", markdown(self).as_bytes())?;
        put("badge.svg", badge(self).as_bytes())?;
        self.write_cases(&folder.join(html::FOLDER))?;
        put("index.html", html(self).as_bytes())
    }

    /// Writes a page for each failed case, and removes those of an earlier run.
    fn write_cases(&self, folder: &Path) -> io::Result<()> {
        for old in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let ours = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains(html::MARK));
            if old.extension().is_some_and(|e| e == "html") && ours(&old) {
                fs::remove_file(&old)?;
            }
        }
        let pages = html::pages(self);
        if pages.is_empty() {
            // Succeeds only if the folder is empty.
            let _ = fs::remove_dir(folder);
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        pages.into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
    }
}

/// Quotes a word for a shell's command line.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Escapes text for HTML and XML, so that it contains no tag and does not end an attribute. Control characters are
/// replaced as by [`printable_lines`]; others that XML does not allow are removed.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable_lines(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
pub(crate) mod tests;
