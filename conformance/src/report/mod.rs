//! What a run gave, for machines and for people.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::{CaseResult, Outcome};

mod badge;
mod csv;
mod diff;
mod html;
mod junit;
mod markdown;
mod matrix;

pub use badge::badge;
pub use csv::csv;
pub use diff::{Diff, Slower};
pub use html::html;
pub use junit::junit;
pub use markdown::markdown;
pub use matrix::{Cell, Matrix};

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Who made it: `delegraph 0.1.0`.
    #[serde(default)]
    pub tool: String,
    /// What was tested.
    pub delegate: String,
    /// What that ran on, where it is no CPU: adapter and driver.
    #[serde(default)]
    pub device: String,
    /// The kernels that times are compared with; empty where there are none.
    #[serde(default)]
    pub baseline: String,
    /// The folder of cases; `null` for our own.
    #[serde(default)]
    pub corpus: Option<String>,
    /// What our own cases were made from.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Seconds that the run took.
    #[serde(default)]
    pub seconds: f64,
    /// How many cases.
    pub total: usize,
    /// How many of each outcome.
    pub counts: BTreeMap<String, usize>,
    /// Failures that are known, and of which the reason is.
    #[serde(default)]
    pub known: usize,
    /// What was expected and is not so.
    #[serde(default)]
    pub problems: Vec<String>,
    /// The command without what chooses among cases, to reproduce one.
    #[serde(default)]
    pub command: String,
    /// Every case.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Counts what came of the cases.
    pub fn count(&mut self) {
        self.total = self.results.len();
        self.counts.clear();
        for result in &self.results {
            *self.counts.entry(result.outcome.name().into()).or_default() += 1;
        }
        self.known = self.results.iter().filter(|r| r.known.is_some()).count();
    }

    /// How many came out so.
    pub fn of(&self, outcome: Outcome) -> usize {
        self.counts.get(outcome.name()).copied().unwrap_or(0)
    }

    /// Cases that failed, and are not known to.
    pub fn failures(&self) -> impl Iterator<Item = &CaseResult> {
        self.results.iter().filter(|r| r.is_failure())
    }

    /// Whether all is as it should be.
    pub fn is_fine(&self) -> bool {
        self.problems.is_empty() && self.failures().next().is_none()
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let failures = self.failures().count();
        let claimed = self.results.iter().filter(|r| r.op_claimed).count();
        let mut parts = vec![format!("{} of {} cases pass", self.of(Outcome::Pass), self.total)];
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

    /// The command that runs one case again.
    pub fn reproduce(&self, case: &str) -> String {
        let filter = format!("^{}$", regex::escape(case));
        format!("{} --filter {}", self.command, shell(&filter))
    }

    /// Reads `results.json`.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut report: Report =
            serde_json::from_slice(&text).map_err(|e| format!("{}: no results: {e}", path.display()))?;
        report.count();
        Ok(report)
    }

    /// Writes every form of it into a folder: `results.csv`, `results.json`, `junit.xml`, `index.html` with a page for each
    /// failing case in `cases/`, `support.md`, `badge.svg`.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        // Each file is there whole or not at all.
        let put = |name: &str, text: &[u8]| {
            let partial = folder.join(format!(".{name}.part"));
            fs::write(&partial, text).and_then(|()| fs::rename(&partial, folder.join(name)))
        };
        put("results.json", &serde_json::to_vec_pretty(self)?)?;
        put("results.csv", csv(self).as_bytes())?;
        put("junit.xml", junit(self).as_bytes())?;
        put("support.md", markdown(self).as_bytes())?;
        put("badge.svg", badge(self).as_bytes())?;
        self.write_cases(&folder.join(html::FOLDER))?;
        put("index.html", html(self).as_bytes())
    }

    /// A page for each case that fails; those of an earlier run go.
    fn write_cases(&self, folder: &Path) -> io::Result<()> {
        for old in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let ours = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains(html::MARK));
            if old.extension().is_some_and(|e| e == "html") && ours(&old) {
                fs::remove_file(&old)?;
            }
        }
        let pages = html::pages(self);
        if pages.is_empty() {
            // Only where nothing else is in it.
            let _ = fs::remove_dir(folder);
            return Ok(());
        }
        fs::create_dir_all(folder)?;
        pages.into_iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
    }
}

/// A word of a shell's command line.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Text for HTML and XML: nothing in it is a tag, or ends an attribute. What XML has no place for is left out.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => escaped.push('\u{FFFD}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
pub(crate) mod tests;
