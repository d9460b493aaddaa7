//! The cases that fail, each with what it takes to repair it.

use std::fmt::Write;

use super::pages::{MOST, Pages};
use super::{SHOWN, plot};
use crate::engine::CaseResult;
use crate::report::{Report, escape};

/// Expectations that are not met, then cases that fail, then those that are known to.
pub(super) fn write(page: &mut String, report: &Report, pages: &Pages<'_>) {
    if !report.problems.is_empty() {
        page.push_str("<section id=\"expectations\">\n<h2>Not as expected</h2>\n<ul>\n");
        for problem in report.problems.iter().take(SHOWN) {
            let _ = writeln!(page, "<li>{}</li>", escape(problem));
        }
        page.push_str("</ul>\n</section>\n");
    }
    let failing = failing(report);
    if failing.is_empty() {
        return;
    }
    page.push_str("<section id=\"failures\">\n<h2>Failures</h2>\n");
    let _ = writeln!(
        page,
        "<p class=\"soft\">Each with its shapes and params, the first element that is wrong, and the command that runs \
         it again; beside this page each has one of its own.{}</p>",
        match failing.len() {
            n if n > MOST => {
                format!(
                    " The first {SHOWN} of {n} are here, the first {MOST} have pages; all are in results.json."
                )
            }
            n if n > SHOWN => format!(" The first {SHOWN} of {n} are here; all are in results.json."),
            _ => String::new(),
        }
    );
    let open = failing.len() <= 3;
    for result in failing.iter().take(SHOWN) {
        case(page, report, result, pages, open);
    }
    // The others by name.
    let more: Vec<_> = failing.iter().skip(SHOWN).filter_map(|r| Some((r, pages.path(&r.case)?))).collect();
    if !more.is_empty() {
        page.push_str("<details>\n<summary>more of them</summary>\n<ul>\n");
        for (result, path) in more {
            let _ = writeln!(page, "<li><a href=\"{path}\">{}</a></li>", broken(&result.case));
        }
        page.push_str("</ul>\n</details>\n");
    }
    page.push_str("</section>\n");
}

/// All that failed, what is known to last.
pub(super) fn failing(report: &Report) -> Vec<&CaseResult> {
    let mut failing: Vec<&CaseResult> = report.results.iter().filter(|r| !r.outcome.is_fine()).collect();
    failing.sort_by_key(|r| r.known.is_some());
    failing
}

/// Class and text of an outcome's chip.
pub(super) fn chip(r: &CaseResult) -> (&'static str, String) {
    match &r.known {
        Some(_) => ("chip known", format!("known: {}", r.outcome.name())),
        None => ("chip", r.outcome.name().to_owned()),
    }
}

/// A name that may be broken where its parts end: some are long.
pub(super) fn broken(name: &str) -> String {
    escape(name).replace('/', "/<wbr>").replace('_', "_<wbr>")
}

fn case(page: &mut String, report: &Report, r: &CaseResult, pages: &Pages<'_>, open: bool) {
    let (class, label) = chip(r);
    let (name, broken) = (escape(&r.case), broken(&r.case));
    let _ = write!(
        page,
        "<details class=\"case\" id=\"{name}\"{}>\n<summary><b>{broken}</b> <span class=\"{class}\">{label}</span><span \
         class=\"soft\">{}</span></summary>\n",
        if open { " open" } else { "" },
        escape(r.detail.lines().next().unwrap_or_default())
    );
    body(page, report, r);
    if let Some(path) = pages.path(&r.case) {
        let _ = writeln!(page, "<p><a href=\"{path}\">a page of its own</a></p>");
    }
    page.push_str("</details>\n");
}

/// All that is known of a case that failed, and the command that runs it again.
pub(super) fn body(page: &mut String, report: &Report, r: &CaseResult) {
    page.push_str("<dl class=\"facts\">\n");
    let mut fact = |what: &str, text: &str| {
        if !text.is_empty() {
            let _ = writeln!(page, "<dt>{what}</dt><dd>{}</dd>", escape(text));
        }
    };
    fact("known because", r.known.as_deref().unwrap_or_default());
    fact("op", &format!("{} version {}, {}", r.op, r.version, r.ty));
    fact("inputs", &r.inputs.join(" · "));
    fact("outputs", &r.outputs.join(" · "));
    fact("params", &r.params);
    fact("tags", &r.tags.join(", "));
    fact("nodes", &format!("{} of {} claimed: {}", r.claimed, r.nodes, r.ops.join(", ")));
    if let Some(errors) = &r.errors {
        fact(
            "wrong",
            &format!("{} of {} elements, {} off at all", errors.wrong, errors.elements, errors.off),
        );
        let place = format!("output {}, invocation {}", errors.output, errors.step + 1);
        if let Some(bad) = &errors.first {
            let text = format!(
                "{place}, index {:?}: got {}, expected {}",
                bad.index,
                shown(bad.got),
                shown(bad.expected)
            );
            fact(if errors.wrong > 0 { "first wrong" } else { "worst" }, &text);
        }
        let allowed = errors.allowed.map_or(String::new(), |a| format!(", allowed {a:e}"));
        let text = format!("{:e} absolute, {:e} relative{allowed}", errors.max_abs, errors.max_rel);
        fact("largest difference", &text);
    }
    for check in r.checks.iter().filter(|c| !c.problem.is_empty()) {
        fact(&format!("contract: {}", escape(&check.name)), &check.problem);
    }
    if r.detail.lines().count() > 1 {
        fact("message", &r.detail);
    }
    page.push_str("</dl>\n");
    if let Some(errors) = &r.errors {
        let _ = writeln!(
            page,
            "{}\n<p class=\"soft\">elements by how far they are off, relative to the largest magnitude</p>",
            plot::histogram(errors)
        );
    }
    let _ = writeln!(page, "<pre>{}</pre>", escape(&report.reproduce(&r.case)));
}

/// A number, in powers of ten where it is very large or small.
fn shown(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-4..1e15).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}
