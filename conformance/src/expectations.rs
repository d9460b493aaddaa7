//! Known failures, and ops that must be delegated: a file that a project keeps with its delegate.
//!
//! ```toml
//! [[known]]
//! case = "^conv_2d/.*_int4"       # a regular expression on the name
//! op = "CONV_2D"
//! device = "llvmpipe"             # a regular expression on adapter and driver
//! outcome = "mismatch"
//! reason = "the driver rounds denormals of packed weights; fixed in its version 25"
//!
//! [[must]]
//! case = "^conv_2d/conv_2d_float32_(float|strided)"
//! reason = "our models consist of it"
//! ```
//!
//! A line needs a reason, and a case, an op or a `type`; the other keys are optional. The run fails if a known failure
//! passes, if a line is unused although all cases ran, and if a case that must be delegated is not.

use std::path::Path;

use delegraph_core::printable;
use regex::Regex;
use serde::Deserialize;

use crate::engine::{CaseResult, Outcome};
use crate::error::Error;

/// The cases that the results cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All cases ran. Lines that apply to none of them are reported.
    Complete,
    /// Some cases ran. Unused lines are not reported.
    Partial,
}

/// The contents of a file of expectations.
#[derive(Debug, Default)]
pub struct Expectations {
    known: Vec<Line>,
    must: Vec<Line>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    known: Vec<Entry>,
    #[serde(default)]
    must: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    case: Option<String>,
    op: Option<String>,
    #[serde(rename = "type")]
    ty: Option<String>,
    device: Option<String>,
    outcome: Option<String>,
    reason: String,
}

/// A line of the file.
#[derive(Debug)]
struct Line {
    entry: Entry,
    case: Option<Regex>,
    device: Option<Regex>,
    outcome: Option<Outcome>,
}

impl Line {
    fn new(entry: Entry) -> Result<Self, String> {
        let regex =
            |text: &Option<String>| text.as_deref().map(Regex::new).transpose().map_err(|e| e.to_string());
        let named = |name: &String| {
            Outcome::named(name).filter(|o| !o.is_fine()).ok_or_else(|| {
                let bad = Outcome::ALL.iter().copied().filter(|o| !o.is_fine()).map(Outcome::name);
                format!(
                    "\"{name}\" is not an outcome of a failure; the outcomes are {}",
                    bad.collect::<Vec<_>>().join(", ")
                )
            })
        };
        let outcome = entry.outcome.as_ref().map(named).transpose()?;
        if entry.reason.trim().is_empty() {
            return Err("a line needs a reason".into());
        }
        if entry.case.is_none() && entry.op.is_none() && entry.ty.is_none() {
            return Err("a line needs a case, an op or a type; without one it applies to every case".into());
        }
        Ok(Line { case: regex(&entry.case)?, device: regex(&entry.device)?, outcome, entry })
    }

    /// Returns whether the line applies to this case, regardless of its outcome.
    fn is_about(&self, result: &CaseResult) -> bool {
        let same = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(found))
        };
        self.case.as_ref().is_none_or(|re| re.is_match(&result.case))
            && same(&self.entry.op, &result.op)
            && same(&self.entry.ty, &result.ty)
    }

    fn holds_on(&self, device: &str) -> bool {
        self.device.as_ref().is_none_or(|re| re.is_match(device))
    }

    fn text(&self) -> String {
        let part = |name: &str, value: &Option<String>| {
            value.as_ref().map_or(String::new(), |value| format!("{name} = \"{value}\" "))
        };
        let entry = &self.entry;
        let parts = [
            part("case", &entry.case),
            part("op", &entry.op),
            part("type", &entry.ty),
            part("device", &entry.device),
            part("outcome", &entry.outcome),
        ];
        parts.concat().trim_end().to_owned()
    }
}

impl Expectations {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::Invalid`] with the defect and its place.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        Self::parse(&text).map_err(|e| Error::invalid_at(path.display(), e))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the defect.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(Error::invalid_caused_by)?;
        let lines = |kind: &str, entries: Vec<Entry>| {
            let numbered = entries.into_iter().enumerate();
            numbered
                .map(|(i, entry)| {
                    let at = |e| Error::invalid(format!("[[{kind}]] number {}: {e}", i + 1));
                    Line::new(entry).map_err(at)
                })
                .collect::<Result<Vec<_>, Error>>()
        };
        Ok(Expectations { known: lines("known", file.known)?, must: lines("must", file.must)? })
    }

    /// Marks known failures, and returns differences from the expectations.
    pub fn apply(&self, results: &mut [CaseResult], device: &str, coverage: Coverage) -> Vec<String> {
        let whole = coverage == Coverage::Complete;
        let mut problems = Vec::new();
        let known: Vec<&Line> = self.known.iter().filter(|line| line.holds_on(device)).collect();
        let mut used = vec![false; known.len()];
        for result in results.iter_mut() {
            let Some(at) = known.iter().position(|line| line.is_about(result)) else { continue };
            let line = known[at];
            if result.outcome == Outcome::Pass {
                used[at] = true;
                problems.push(format!(
                    "{}: passes, but is known to fail ({}): {}",
                    printable(&result.case),
                    line.entry.reason,
                    line.text()
                ));
            } else if !result.outcome.is_fine() && line.outcome.is_none_or(|wanted| wanted == result.outcome)
            {
                used[at] = true;
                result.known = Some(line.entry.reason.clone());
            }
        }
        let unused = known.iter().zip(used).filter(|(_, used)| whole && !used);
        problems.extend(unused.map(|(line, _)| format!("unused line: [[known]] {}", line.text())));
        for line in self.must.iter().filter(|line| line.holds_on(device)) {
            let mut about = results.iter().filter(|r| line.is_about(r)).peekable();
            if about.peek().is_none() && whole {
                problems.push(format!("unused line: [[must]] {}", line.text()));
            }
            for result in about.filter(|r| !r.op_claimed) {
                let why = result.reasons.first().unwrap_or(&result.detail);
                let case = printable(&result.case);
                problems.push(format!("{case}: must be delegated ({}): {why}", line.entry.reason));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Vec<CaseResult> {
        let result = |case: &str, op: &str, outcome| CaseResult {
            op: op.into(),
            ty: "float32".into(),
            op_claimed: outcome != Outcome::Unsupported,
            ..CaseResult::new(case, outcome, "")
        };
        vec![
            result("a/1", "ADD", Outcome::Pass),
            result("a/2", "ADD", Outcome::Mismatch),
            result("m/1", "MUL", Outcome::Crash),
            result("m/2", "MUL", Outcome::Unsupported),
        ]
    }

    #[test]
    fn expectations_hold_or_not() {
        let check = |text: &str, whole: bool, known: &[usize], expected: &[&str]| {
            let mut results = results();
            let coverage = if whole { Coverage::Complete } else { Coverage::Partial };
            let expectations = Expectations::parse(text).unwrap();
            let problems = expectations.apply(&mut results, "llvmpipe, Mesa 22", coverage);
            let found: Vec<usize> = (0..results.len()).filter(|&i| results[i].known.is_some()).collect();
            assert_eq!(found, known, "{text}");
            assert_eq!(problems.len(), expected.len(), "{text}: {problems:?}");
            for (problem, part) in problems.iter().zip(expected) {
                assert!(problem.contains(part), "{problem}");
            }
        };
        check("", true, &[], &[]);
        check("[[known]]\ncase = 'a/2'\nreason = 'r'", true, &[1], &[]);
        check("[[known]]\nop = 'ADD'\nreason = 'r'", true, &[1], &["a/1: passes, but is known to fail (r)"]);
        check("[[known]]\ncase = 'a/2'\ndevice = 'Radeon'\nreason = 'r'", true, &[], &[]);
        check("[[known]]\ncase = 'a/2'\ndevice = 'Mesa 2'\nreason = 'r'", true, &[1], &[]);
        check("[[known]]\nop = 'MUL'\noutcome = 'crash'\nreason = 'r'", true, &[2], &[]);
        check("[[known]]\nop = 'MUL'\noutcome = 'timeout'\nreason = 'r'", true, &[], &["unused line"]);
        check("[[known]]\nop = 'DIV'\nreason = 'r'", true, &[], &["unused line: [[known]] op = \"DIV\""]);
        check("[[known]]\nop = 'DIV'\nreason = 'r'", false, &[], &[]);
        check("[[must]]\nop = 'ADD'\ntype = 'FLOAT32'\nreason = 'r'", true, &[], &[]);
        check("[[must]]\nop = 'MUL'\nreason = 'r'", true, &[], &["m/2: must be delegated (r)"]);
        check("[[must]]\nop = 'DIV'\nreason = 'r'", true, &[], &["unused line: [[must]]"]);
    }

    #[test]
    fn invalid_files_of_expectations_are_errors() {
        let check = |text: &str, part: &str| {
            let error = Expectations::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("[[known]]\ncase = 'a'", "reason");
        check("[[known]]\ncase = 'a'\nreason = ' '", "number 1: a line needs a reason");
        check("[[known]]\ncase = '('\nreason = 'r'", "number 1");
        check("[[known]]\ncase = 'a'\noutcome = 'pass'\nreason = 'r'", "not an outcome of a failure");
        check("[[known]]\nreason = 'r'", "needs a case");
        check("[[knwon]]\nreason = 'r'", "knwon");
    }
}
