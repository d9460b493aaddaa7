//! The failed cases, each with the details for debugging.

use std::fmt::Write;

use super::SHOWN;
use super::case::{body, broken, chip};
use super::pages::{MAX_PAGES, Pages, failing};
use crate::engine::CaseResult;
use crate::report::{Report, escape};

/// Writes unmet expectations, then failed cases, then known failures.
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
            n if n > MAX_PAGES => {
                format!(
                    " The first {SHOWN} of {n} are here, the first {MAX_PAGES} have pages; all are in results.json."
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
    // Further failures by name.
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
