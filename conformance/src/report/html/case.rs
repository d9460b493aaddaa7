//! One failed case, in the list of all and on a page of its own.

use std::fmt::Write;

use delegraph_core::error::counted;

use super::plot;
use crate::compare::shown;
use crate::engine::CaseResult;
use crate::report::{Report, escape};

/// Returns the class and text of an outcome's label.
pub(super) fn chip(r: &CaseResult) -> (&'static str, String) {
    match &r.known {
        Some(_) => ("chip known", format!("known: {}", r.outcome.name())),
        None => ("chip", r.outcome.name().to_owned()),
    }
}

/// Returns a name with possible line breaks between its parts, since some names are long.
pub(super) fn broken(name: &str) -> String {
    escape(name).replace('/', "/<wbr>").replace('_', "_<wbr>")
}

/// Writes all details of a failed case, and the command that runs it again.
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
            &format!(
                "{} of {}, {} off at all",
                errors.wrong,
                counted(errors.elements, "element"),
                errors.off
            ),
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
        let allowed = errors.allowed.map_or(String::new(), |a| format!(", allowed {}", shown(a)));
        let (abs, rel) = (shown(errors.max_abs), shown(errors.max_rel));
        let text = format!("{abs} absolute, {rel} relative{allowed}");
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
