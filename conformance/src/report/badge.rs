//! `badge.svg`: a summary of the run in a few characters.

use super::{Report, escape};
use crate::engine::Outcome;

/// Returns a picture with a label and a result.
pub fn badge(report: &Report) -> String {
    let failures = report.failures().count() + report.problems.len();
    let claimed = report.total - report.of(Outcome::Unsupported);
    let (text, colour) = match failures {
        0 if claimed > 0 => (format!("{} of {claimed} pass", report.of(Outcome::Pass)), "#2e7d4f"),
        0 => ("nothing claimed".to_owned(), "#6b7280"),
        1 => ("1 failure".to_owned(), "#b3362b"),
        n => (format!("{n} failures"), "#b3362b"),
    };
    let label = format!("conformance · {}", shortened(&report.delegate));
    // Approximately the width of a sans-serif font at 11 pixels.
    let width = |text: &str| 12 + text.chars().count() * 13 / 2;
    let (left, right) = (width(&label), width(&text));
    let (all, middle) = (left + right, left + right / 2);
    let half = left / 2;
    let (label, text) = (escape(&label), escape(&text));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all}\" height=\"20\" role=\"img\" aria-label=\"{label}: \
         {text}\"><title>{label}: {text}</title><clipPath id=\"r\"><rect width=\"{all}\" height=\"20\" rx=\"4\"/>\
         </clipPath><g clip-path=\"url(#r)\"><rect width=\"{left}\" height=\"20\" fill=\"#374151\"/><rect x=\"{left}\" \
         width=\"{right}\" height=\"20\" fill=\"{colour}\"/></g><g fill=\"#fff\" text-anchor=\"middle\" \
         font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\"><text x=\"{half}\" y=\"14\">{label}</text>\
         <text x=\"{middle}\" y=\"14\">{text}</text></g></svg>\n"
    )
}

/// Returns the file name of a plugin's path.
fn shortened(delegate: &str) -> String {
    let name = delegate.split(['?', '&']).next().unwrap_or_default();
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    name.chars().take(32).collect()
}
