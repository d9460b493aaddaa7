//! `index.html`: one self-contained page, for summaries and for debugging.
//!
//! All text from files (names, messages, params) passes through [`escape`].

use std::fmt::Write;

use self::pages::Pages;
use super::{Report, escape};
use crate::engine::Outcome;

mod case;
mod failures;
mod pages;
mod plot;
mod tables;

/// Maximum number of failures with details on the page, to keep it small. Others have a link to a page of their own, up
/// to `MAX_PAGES`.
pub(super) const SHOWN: usize = 400;

pub(crate) use pages::{FOLDER, MARK, pages};

const STYLE: &str = include_str!("style.css");

/// Hides rows of the matrix whose op does not contain the typed text, and opens the failure that the address names. The
/// page is complete without the script.
const SCRIPT: &str = "\
const find = document.getElementById('find');
if (find) { find.hidden = false; find.addEventListener('input', () => {
  const wanted = find.value.trim().toLowerCase();
  for (const row of document.querySelectorAll('.matrix tbody tr'))
    row.hidden = !row.dataset.op.includes(wanted);
}); }
const open = () => { const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (at && at.tagName === 'DETAILS') at.open = true; };
addEventListener('hashchange', open); open();";

/// Returns the page.
pub fn html(report: &Report) -> String {
    let title = format!("Conformance of {}", report.delegate);
    let mut page = top(&title);
    let pages = Pages::of(report);
    head(&mut page, report, &title);
    failures::write(&mut page, report, &pages);
    tables::matrix(&mut page, report, &pages);
    tables::worst(&mut page, report);
    tables::times(&mut page, report);
    tables::reasons(&mut page, report);
    foot(&mut page, report);
    let _ = write!(page, "</main>\n<script>\n{SCRIPT}\n</script>\n</body>\n</html>\n");
    page
}

/// Returns the beginning of every page, up to its contents.
fn top(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    )
}

fn head(page: &mut String, report: &Report, title: &str) {
    let mut about = Vec::new();
    if !report.device.is_empty() {
        about.push(format!("on {}", report.device));
    }
    about.push(match (&report.corpus, report.seed) {
        (Some(corpus), _) => format!("cases of {corpus}"),
        (None, Some(seed)) => format!("generated cases, seed {seed}"),
        _ => "generated cases".into(),
    });
    let _ = write!(
        page,
        "<header>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n</header>\n",
        escape(title),
        escape(&about.join(" · "))
    );
    let failures = report.failures().count();
    let (class, word) = match (report.is_fine(), failures, report.problems.len()) {
        (true, ..) if report.known > 0 => ("", "Everything is as expected.".to_owned()),
        (true, ..) => ("", "Everything that is supported is right.".to_owned()),
        (_, 0, _) => (" bad", "Results differ from the expectations.".to_owned()),
        (_, 1, _) => (" bad", "One case fails.".to_owned()),
        (_, n, _) => (" bad", format!("{n} cases fail.")),
    };
    let _ = write!(
        page,
        "<section class=\"verdict{class}\" id=\"summary\">\n<p>{word}</p>\n<p class=\"soft\">{}</p>\n</section>\n",
        escape(&report.summary())
    );
    tiles(page, report);
    stack(page, report);
}

fn tiles(page: &mut String, report: &Report) {
    let failures = report.failures().count();
    let claimed = report.results.iter().filter(|r| r.op_claimed).count();
    let seconds = match report.elapsed.as_secs_f64() {
        s if s < 90.0 => format!("{s:.1} s"),
        s => format!("{:.0} min", s / 60.0),
    };
    let mut tiles = vec![
        ("", report.total.to_string(), "cases"),
        ("good", report.of(Outcome::Pass).to_string(), "pass"),
        (if failures > 0 { "bad" } else { "" }, failures.to_string(), "fail"),
        ("", report.of(Outcome::Unsupported).to_string(), "not supported"),
    ];
    if report.known > 0 {
        tiles.push(("known", report.known.to_string(), "known to fail"));
    }
    if claimed > 0 {
        tiles.push(("", claimed.to_string(), "claimed by the delegate"));
    }
    tiles.push(("", seconds, "this run took"));
    page.push_str("<div class=\"tiles\">\n");
    for (class, value, what) in tiles {
        let _ = writeln!(page, "<div class=\"tile {class}\"><b>{value}</b><span>{what}</span></div>");
    }
    page.push_str("</div>\n");
}

/// Writes the outcomes as a bar, with links to the parts of the page.
fn stack(page: &mut String, report: &Report) {
    let colour = |outcome: Outcome| match outcome {
        Outcome::Pass => "var(--good)",
        Outcome::Mismatch => "var(--bad)",
        Outcome::Violation => "#9333a8",
        Outcome::Unsupported => "var(--none-tint)",
        Outcome::Invalid => "#a16207",
        Outcome::Error => "#e0701f",
        Outcome::Crash => "#5b0f0b",
        Outcome::Timeout => "#6d4aff",
    };
    let there = || Outcome::ALL.iter().copied().filter(|o| report.of(*o) > 0);
    page.push_str("<section>\n<div class=\"stack\" role=\"img\" aria-label=\"outcomes\">");
    for outcome in there() {
        let share = report.of(outcome) as f64 * 100.0 / report.total.max(1) as f64;
        let _ = write!(page, "<i style=\"width:{share:.3}%;background:{}\"></i>", colour(outcome));
    }
    page.push_str("</div>\n<ul class=\"legend\">\n");
    for outcome in there() {
        let (name, count) = (outcome.name(), report.of(outcome));
        let _ = writeln!(page, "<li><i style=\"background:{}\"></i>{name} {count}</li>", colour(outcome));
    }
    page.push_str("</ul>\n<nav>");
    let mut links = vec![("matrix", "ops × types")];
    if report.results.iter().any(|r| !r.outcome.is_fine()) {
        links.insert(0, ("failures", "failures"));
    }
    if report.results.iter().any(|r| r.errors.is_some()) {
        links.push(("errors", "largest differences"));
    }
    if report.results.iter().any(|r| r.time.is_some() && r.cpu_time.is_some()) {
        links.push(("times", "times"));
    }
    if report.of(Outcome::Unsupported) > 0 {
        links.push(("reasons", "what is not supported, and why"));
    }
    for (id, text) in links {
        let _ = write!(page, "<a href=\"#{id}\">{text}</a>");
    }
    page.push_str("</nav>\n</section>\n");
}

fn foot(page: &mut String, report: &Report) {
    let tool = if report.tool.is_empty() { "delegraph" } else { &report.tool };
    let _ = write!(
        page,
        "<footer>\n<p>Run again with</p>\n<pre>{}</pre>\n<p>Made by {}. The same results, whole, are in \
         <code>results.json</code> and <code>results.csv</code> beside this page.</p>\n</footer>\n",
        escape(&report.command),
        escape(tool)
    );
}
