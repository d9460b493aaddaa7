//! The changes between two runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use delegraph_core::error::counted;
use delegraph_core::printable;
use serde::Serialize;

use super::Report;
use crate::engine::durations::{self, microseconds_of};
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
    /// The time in the first run; in JSON `before_us`, in microseconds.
    #[serde(rename = "before_us", serialize_with = "durations::serialize_microseconds")]
    pub before: Duration,
    /// The time in the second run; in JSON `now_us`, in microseconds.
    #[serde(rename = "now_us", serialize_with = "durations::serialize_microseconds")]
    pub now: Duration,
}

impl Slower {
    /// Returns the second time relative to the first one.
    fn ratio(&self) -> f64 {
        self.now.as_secs_f64() / self.before.as_secs_f64()
    }
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
        diff.slower.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
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
        let Some((was, before, now)) = was.and_then(|w| Some((w, w.time?, result.time?))) else { return };
        // A slower machine also slows down the CPU kernels.
        let machine = match (was.cpu_time, result.cpu_time) {
            (Some(before), Some(now)) if !before.is_zero() => {
                (now.as_secs_f64() / before.as_secs_f64()).max(1.0)
            }
            _ => 1.0,
        };
        let [before_us, now_us] = [before, now].map(microseconds_of);
        if now_us > before_us * FACTOR * machine && now_us - before_us * machine > LEAST_US {
            self.slower.push(Slower { case: result.case.clone(), before, now });
        }
    }

    /// Returns whether there is no new failure and no case lost its support. Slower cases do not count.
    pub fn is_fine(&self) -> bool {
        self.new_failures.is_empty() && self.lost.is_empty()
    }

    /// Returns a summary of one line.
    pub fn summary(&self) -> String {
        let mut parts = vec![counted(self.new_failures.len(), "new failure")];
        let counts = [
            (self.fixed.len(), "fixed"),
            (self.gained.len(), "supported now"),
            (self.lost.len(), "not supported any more"),
            (self.slower.len(), "slower"),
        ];
        parts.extend(counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
        let cases = [(self.added, "added"), (self.gone, "gone")];
        let cases = cases.iter().filter(|(n, _)| *n > 0);
        parts.extend(cases.map(|(n, what)| format!("{} {what}", counted(n, "case"))));
        parts.join(" · ")
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
                let (case, now) = (printable(&change.case), change.now.name());
                let _ = write!(text, "{what:13} {case}  {before} → {now}");
                let _ = match change.detail.is_empty() {
                    true => writeln!(text),
                    false => writeln!(text, ": {}", change.detail),
                };
            }
        }
        for s in &self.slower {
            let (before, now) = (microseconds_of(s.before), microseconds_of(s.now));
            let _ = writeln!(
                text,
                "{:13} {}  {before:.0} µs → {now:.0} µs ({:.1} times)",
                "slower",
                printable(&s.case),
                s.ratio()
            );
        }
        text + &self.summary() + "\n"
    }
}
