//! The tables: ops by types, the largest differences, times, reasons.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use delegraph_core::error::counted;
use delegraph_core::types::rounded;

use super::pages::Pages;
use super::plot;
use crate::engine::durations::microseconds_of;
use crate::engine::{CaseResult, Outcome};
use crate::report::{Matrix, Report, escape};

/// Writes ops with their versions by types, coloured by result.
pub(super) fn matrix(page: &mut String, report: &Report, pages: &Pages<'_>) {
    let failures = pages.first();
    let matrix = Matrix::of(report);
    if matrix.rows.is_empty() {
        return;
    }
    page.push_str(
        "<section id=\"matrix\">\n<h2>Ops × versions × types</h2>\n<p class=\"soft\">A cell has the number of cases \
         that pass, of all that are claimed. Hold the pointer over it for more.</p>\n<ul class=\"legend\">\n<li><i \
         class=\"good-cell\"></i>✓ all pass</li><li><i class=\"part-cell\"></i>◐ some pass, the others are not \
         supported</li><li><i class=\"bad-cell\"></i>✗ some fail</li><li><i class=\"known-cell\"></i>! known to \
         fail</li><li><i class=\"none-cell\"></i>– not supported</li>\n</ul>\n<p><input class=\"find\" id=\"find\" \
         type=\"search\" placeholder=\"only ops with …\" aria-label=\"only ops with\" hidden></p>\n<div \
         class=\"scroll\">\n<table class=\"matrix\">\n<thead><tr><th>op</th><th>v</th>",
    );
    for ty in &matrix.types {
        let _ = write!(page, "<th>{}</th>", escape(if ty.is_empty() { "–" } else { ty }));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    let mut last = "";
    for ((op, version), cells) in &matrix.rows {
        let first = op != last;
        last = op;
        let _ = write!(
            page,
            "<tr{} data-op=\"{}\"><th scope=\"row\">{}</th><td>{version}</td>",
            if first { " class=\"first\"" } else { "" },
            escape(&op.to_lowercase()),
            if first { escape(op) } else { String::new() }
        );
        for ty in &matrix.types {
            let Some(cell) = cells.get(ty) else {
                page.push_str("<td></td>");
                continue;
            };
            let class = cell.class();
            let ran = cell.passed + cell.failed + cell.known;
            let (mark, text) = match class {
                "good" => ("✓", cell.passed.to_string()),
                "part" => ("◐", cell.passed.to_string()),
                "bad" => ("✗", format!("{}/{ran}", cell.passed)),
                "known" => ("!", format!("{}/{ran}", cell.passed)),
                _ => ("–", String::new()),
            };
            let mut title = format!(
                "{op} v{version} {ty}: {}, {} claimed, {} pass, {} fail",
                counted(cell.cases, "case"),
                cell.claimed,
                cell.passed,
                cell.failed
            );
            if cell.known > 0 {
                let _ = write!(title, ", {} known to fail", cell.known);
            }
            if !cell.reason.is_empty() {
                let _ = write!(title, ". Not supported: {}", cell.reason);
            }
            let title = escape(&title);
            let _ = match failures.get(&(op.as_str(), *version, ty.as_str())) {
                // Links to the first failure, which links to the next one.
                Some(path) => write!(
                    page,
                    "<td><a class=\"{class}-cell\" title=\"{title}\" href=\"{path}\">{mark} {text}</a></td>"
                ),
                None => {
                    write!(
                        page,
                        "<td><span class=\"{class}-cell\" title=\"{title}\">{mark} {text}</span></td>"
                    )
                }
            };
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

/// Writes the cases with the largest differences, passed or failed.
pub(super) fn worst(page: &mut String, report: &Report) {
    let mut cases: Vec<_> = report.results.iter().filter_map(|r| Some((r, r.errors.as_ref()?))).collect();
    if cases.is_empty() {
        return;
    }
    cases.sort_by(|(_, a), (_, b)| {
        b.severity().partial_cmp(&a.severity()).unwrap_or(std::cmp::Ordering::Equal)
    });
    // One case per op and type, for variety.
    let mut seen = std::collections::BTreeSet::new();
    cases.retain(|(r, e)| e.off > 0 && seen.insert((r.op.clone(), r.ty.clone())));
    page.push_str("<section id=\"errors\">\n<h2>Largest differences</h2>\n");
    if cases.is_empty() {
        page.push_str(
            "<p class=\"soft\">None: every element of every output is the very one expected.</p></section>\n",
        );
        return;
    }
    page.push_str(
        "<p class=\"soft\">The worst case of each op and type. Bars: how many elements are equal (green) or off by how \
         much, relative to the largest magnitude of the output; heights are logarithmic.</p>\n<div \
         class=\"scroll\">\n<table class=\"wide\">\n<thead><tr><th>case</th><th></th><th>elements</th><th \
         class=\"n\">off</th><th class=\"n\">wrong</th><th class=\"n\">absolute</th><th \
         class=\"n\">relative</th></tr></thead>\n<tbody>\n",
    );
    for (r, e) in cases.into_iter().take(24) {
        let _ = writeln!(
            page,
            "<tr><td class=\"wrap\">{}<br><span class=\"soft\">{} {}</span></td><td>{}</td><td class=\"n\">{}</td><td \
             class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            link(r),
            escape(&r.op),
            escape(&r.ty),
            plot::histogram(e),
            e.elements,
            e.off,
            e.wrong,
            rounded(e.max_abs),
            rounded(e.max_rel)
        );
    }
    page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

/// Returns a case's name, with a link if the case failed.
fn link(r: &CaseResult) -> String {
    let name = escape(&r.case);
    let shown = name.replace('/', "/<wbr>").replace('_', "_<wbr>");
    if r.outcome.is_fine() { shown } else { format!("<a href=\"#{name}\">{shown}</a>") }
}

/// Returns the time of the backend under test, relative to the CPU kernels.
fn times_ratio(r: &CaseResult) -> Option<f64> {
    let (time, cpu) = (r.time?, r.cpu_time?);
    (!time.is_zero() && !cpu.is_zero()).then(|| time.as_secs_f64() / cpu.as_secs_f64())
}

/// Returns the median of [`times_ratio`] over the cases that have one; `None` if there are none.
pub(super) fn median_ratio<'r>(results: impl Iterator<Item = &'r CaseResult>) -> Option<f64> {
    let mut ratios: Vec<f64> = results.filter_map(times_ratio).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

/// Writes the times per op, relative to the CPU kernels.
pub(super) fn times(page: &mut String, report: &Report) {
    let mut ops: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
    for result in report.results.iter().filter(|r| times_ratio(r).is_some()) {
        ops.entry(&result.op).or_default().push(result);
    }
    if ops.is_empty() {
        return;
    }
    let baseline = if report.baseline.is_empty() { "cpu" } else { &report.baseline };
    let _ = write!(
        page,
        "<section id=\"times\">\n<h2>Times</h2>\n<p class=\"soft\">Medians over the cases of an op: the shortest \
         invocation with {}, and on the {} kernels. Cases are small, so this is the cost of an invocation more than \
         speed; `delegraph bench` measures models.</p>\n<div class=\"scroll\">\n<table class=\"wide\">\n<thead><tr>\
         <th>op</th><th class=\"n\">cases</th><th class=\"n\">µs</th><th class=\"n\">µs, {0}</th><th \
         class=\"n\">ratio</th><th>faster · slower</th></tr></thead>\n<tbody>\n",
        escape(&report.delegate),
        escape(baseline)
    );
    let median = |mut values: Vec<Duration>| {
        values.sort_unstable();
        microseconds_of(values.get(values.len() / 2).copied().unwrap_or_default())
    };
    let mut rows: Vec<_> = ops
        .into_iter()
        .map(|(op, results)| {
            let ratio = median_ratio(results.iter().copied()).unwrap_or(1.0);
            let us = median(results.iter().filter_map(|r| r.time).collect());
            let cpu = median(results.iter().filter_map(|r| r.cpu_time).collect());
            (ratio, op, results.len(), us, cpu)
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, op, cases, us, cpu) in rows {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{cases}</td><td class=\"n\">{us:.1}</td><td class=\"n\">{cpu:.1}</td><td \
             class=\"n\">{ratio:.1}</td><td>{}</td></tr>",
            escape(op),
            plot::ratio(ratio)
        );
    }
    page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

/// Writes the reasons why cases are not supported, most frequent first.
pub(super) fn reasons(page: &mut String, report: &Report) {
    let mut reasons: BTreeMap<(&str, String), (usize, &str)> = BTreeMap::new();
    for result in report.results.iter().filter(|r| r.outcome == Outcome::Unsupported) {
        let reason = reason(&result.detail);
        let entry = reasons.entry((&result.op, reason)).or_insert((0, &result.case));
        entry.0 += 1;
    }
    if reasons.is_empty() {
        return;
    }
    let mut rows: Vec<_> = reasons.into_iter().collect();
    rows.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let more = rows.len().saturating_sub(150);
    page.push_str(
        "<section id=\"reasons\">\n<h2>What is not supported, and why</h2>\n<div class=\"scroll\">\n<table \
         class=\"wide\">\n<thead><tr><th>op</th><th class=\"n\">cases</th><th>reason</th><th>for \
         example</th></tr></thead>\n<tbody>\n",
    );
    for ((op, reason), (count, example)) in rows.into_iter().take(150) {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"n\">{count}</td><td class=\"wrap\">{}</td><td class=\"wrap soft\">{}</td></tr>",
            escape(op),
            escape(&reason),
            escape(example)
        );
    }
    page.push_str("</tbody>\n</table>\n</div>\n");
    if more > 0 {
        let _ = writeln!(
            page,
            "<p class=\"soft\">And {more} more reasons of few cases; all are in results.json.</p>"
        );
    }
    page.push_str("</section>\n");
}

/// Returns a reason without its place in the model: `UnsupportedType: input 0` of
/// `node 0 ADD v1: UnsupportedType: input 0`.
fn reason(detail: &str) -> String {
    let line = detail.lines().next().unwrap_or_default();
    let rest = line.strip_prefix("node ").and_then(|rest| rest.split_once(": ")).map(|(_, rest)| rest);
    rest.unwrap_or(line).to_owned()
}
