//! The changes between two runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::Report;
use crate::engine::{CaseResult, Outcome};

/// The differences between two runs.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Diff {
    /// Cases that fail now and did not fail before.
    pub new_failures: Vec<Change>,
    /// Cases that failed before and do not fail now.
    pub fixed: Vec<Change>,
    /// Cases that passed before and are not supported now.
    pub lost: Vec<Change>,
    /// Cases that were not supported before and pass now.
    pub gained: Vec<Change>,
    /// Cases that take much longer on the backend under test.
    pub slower: Vec<Slower>,
    /// Cases that only the first run has.
    pub gone: usize,
    /// Cases that only the second run has.
    pub added: usize,
}

/// A case with another outcome.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Its name.
    pub case: String,
    /// The previous outcome; `null` for a new case.
    pub before: Option<Outcome>,
    /// The current outcome.
    pub now: Outcome,
    /// The reason.
    pub detail: String,
}

/// A case that takes longer.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Slower {
    /// Its name.
    pub case: String,
    /// Microseconds in the first run.
    pub before_us: f64,
    /// Microseconds in the second run.
    pub now_us: f64,
}

/// The factor of the time relative to the CPU kernels above which a case counts as slower.
const FACTOR: f64 = 1.5;

/// The minimum increase that counts as slower; smaller ones are noise.
const LEAST_US: f64 = 100.0;

impl Diff {
    /// Returns the changes from `before` to `now`.
    pub fn of(before: &Report, now: &Report) -> Self {
        let mut diff = Diff::default();
        let mut old: BTreeMap<&str, &CaseResult> =
            before.results.iter().map(|r| (r.case.as_str(), r)).collect();
        for result in &now.results {
            let was = old.remove(result.case.as_str());
            diff.added += usize::from(was.is_none());
            diff.add(was, result);
        }
        diff.gone = old.len();
        let times = |s: &Slower| s.now_us / s.before_us;
        diff.slower.sort_by(|a, b| times(b).total_cmp(&times(a)));
        diff
    }

    fn add(&mut self, was: Option<&CaseResult>, result: &CaseResult) {
        let change = || Change {
            case: result.case.clone(),
            before: was.map(|w| w.outcome),
            now: result.outcome,
            detail: result.detail.lines().next().unwrap_or_default().into(),
        };
        let failed = was.map(CaseResult::is_failure);
        match (failed, result.is_failure()) {
            (None | Some(false), true) => self.new_failures.push(change()),
            // A failure that became a known failure is not fixed.
            (Some(true), false) if result.outcome.is_fine() => self.fixed.push(change()),
            _ => {}
        }
        match (was.map(|w| w.outcome), result.outcome) {
            (Some(Outcome::Pass), Outcome::Unsupported) => self.lost.push(change()),
            (Some(Outcome::Unsupported), Outcome::Pass) => self.gained.push(change()),
            _ => {}
        }
        let Some((was, before, now)) = was.and_then(|w| Some((w, w.us?, result.us?))) else { return };
        // A slower machine also slows down the CPU kernels.
        let machine = match (was.cpu_us, result.cpu_us) {
            (Some(before), Some(now)) if before > 0.0 => (now / before).max(1.0),
            _ => 1.0,
        };
        if now > before * FACTOR * machine && now - before * machine > LEAST_US {
            self.slower.push(Slower { case: result.case.clone(), before_us: before, now_us: now });
        }
    }

    /// Returns whether nothing got worse.
    pub fn is_fine(&self) -> bool {
        self.new_failures.is_empty() && self.lost.is_empty()
    }

    /// Returns a summary of one line.
    pub fn summary(&self) -> String {
        let parts = [
            (self.new_failures.len(), "new failures"),
            (self.fixed.len(), "fixed"),
            (self.gained.len(), "supported now"),
            (self.lost.len(), "not supported any more"),
            (self.slower.len(), "slower"),
            (self.added, "cases added"),
            (self.gone, "cases gone"),
        ];
        let shown = parts.iter().filter(|(n, what)| *n > 0 || *what == "new failures");
        shown.map(|(n, what)| format!("{n} {what}")).collect::<Vec<_>>().join(" · ")
    }

    /// Returns the differences as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let groups = [
            ("new failure", &self.new_failures),
            ("fixed", &self.fixed),
            ("supported now", &self.gained),
            ("not supported", &self.lost),
        ];
        for (what, changes) in groups {
            for change in changes {
                let before = change.before.map_or("new", Outcome::name);
                let _ = write!(text, "{what:13} {}  {before} → {}", change.case, change.now.name());
                let _ = match change.detail.is_empty() {
                    true => writeln!(text),
                    false => writeln!(text, ": {}", change.detail),
                };
            }
        }
        for s in &self.slower {
            let times = s.now_us / s.before_us;
            let _ = writeln!(
                text,
                "{:13} {}  {:.0} µs → {:.0} µs ({times:.1} times)",
                "slower", s.case, s.before_us, s.now_us
            );
        }
        text + &self.summary() + "\n"
    }
}
