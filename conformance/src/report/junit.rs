//! `junit.xml`: the results in the format of build servers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use delegraph_core::printable;

use super::{Report, escape};
use crate::engine::{CaseResult, Outcome};

/// Returns the results with a suite per family of cases, and a test per case.
pub fn junit(report: &Report) -> String {
    let mut families: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
    for result in &report.results {
        let family = result.case.split('/').next().unwrap_or_default();
        families.entry(family).or_default().push(result);
    }
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all: Vec<&CaseResult> = report.results.iter().collect();
    let extra = usize::from(!report.problems.is_empty());
    let _ = writeln!(
        text,
        "<testsuites name=\"{}\" {}>",
        escape(&format!("conformance of {}", report.delegate)),
        attributes(&all, report.problems.len())
    );
    for (family, results) in families {
        let family = escape(&printable(family));
        let _ = writeln!(text, "  <testsuite name=\"{family}\" {}>", attributes(&results, 0));
        results.iter().for_each(|result| test(&mut text, report, result));
        text += "  </testsuite>\n";
    }
    if extra > 0 {
        let count = report.problems.len();
        let _ = writeln!(
            text,
            "  <testsuite name=\"expectations\" tests=\"{count}\" failures=\"{count}\" errors=\"0\" skipped=\"0\">"
        );
        for (i, problem) in report.problems.iter().enumerate() {
            let _ = writeln!(
                text,
                "    <testcase classname=\"expectations\" name=\"{i}\"><failure message=\"{}\"/></testcase>",
                escape(problem)
            );
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn attributes(results: &[&CaseResult], problems: usize) -> String {
    let count = |f: &dyn Fn(&CaseResult) -> bool| results.iter().filter(|r| f(r)).count();
    let wrong = |r: &CaseResult| matches!(r.outcome, Outcome::Mismatch | Outcome::Violation);
    let failures = count(&|r| r.is_failure() && wrong(r)) + problems;
    let errors = count(&|r| r.is_failure() && !wrong(r));
    let skipped = count(&|r| !r.is_failure() && r.outcome != Outcome::Pass);
    let seconds = results.iter().map(|r| r.elapsed).sum::<Duration>().as_secs_f64();
    format!(
        "tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds:.3}\"",
        results.len() + problems
    )
}

fn test(text: &mut String, report: &Report, r: &CaseResult) {
    let case = printable(&r.case);
    let (family, name) = case.split_once('/').unwrap_or(("", &case));
    let class = format!("{}.{family}", report.delegate);
    let _ = write!(
        text,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6}\"",
        escape(&class),
        escape(name),
        r.elapsed.as_secs_f64()
    );
    let line = escape(r.detail.lines().next().unwrap_or_default());
    let _ = match (r.outcome, &r.known) {
        (Outcome::Pass, _) => writeln!(text, "/>"),
        (Outcome::Unsupported, _) => writeln!(text, "><skipped message=\"{line}\"/></testcase>"),
        (_, Some(reason)) => {
            writeln!(text, "><skipped message=\"known: {}\"/></testcase>", escape(reason))
        }
        (outcome, None) => {
            let tag =
                if matches!(outcome, Outcome::Mismatch | Outcome::Violation) { "failure" } else { "error" };
            let body = escape(&format!("{}\n{}", r.detail, report.reproduce(&r.case)));
            writeln!(text, "><{tag} type=\"{}\" message=\"{line}\">{body}</{tag}></testcase>", outcome.name())
        }
    };
}
