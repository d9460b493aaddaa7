//! `results.csv`: one line per case.

use std::time::Duration;

use delegraph_core::{printable, printable_lines};

use super::Report;
use crate::compare::shown;
use crate::engine::durations::{microseconds_of, milliseconds_of};

/// Returns the results as a table with a header.
pub fn csv(report: &Report) -> String {
    let mut text = String::from(
        "case,delegate,outcome,ops,types,ms,detail,op,version,type,nodes,claimed,us,baseline_us,max_abs,wrong,elements,\
         known\n",
    );
    for r in &report.results {
        let time = |time: Option<Duration>| {
            time.map_or(String::new(), |time| format!("{:.3}", microseconds_of(time)))
        };
        let errors =
            |f: &dyn Fn(&crate::engine::ErrorStats) -> String| r.errors.as_ref().map_or(String::new(), f);
        let fields = [
            printable(&r.case).into_owned(),
            printable(&report.delegate).into_owned(),
            r.outcome.name().into(),
            printable(&r.ops.join(" ")).into_owned(),
            r.types.join(" "),
            format!("{:.3}", milliseconds_of(r.elapsed)),
            r.detail.clone(),
            printable(&r.op).into_owned(),
            r.version.to_string(),
            r.ty.clone(),
            r.nodes.to_string(),
            r.claimed.to_string(),
            time(r.time),
            time(r.cpu_time),
            errors(&|e| shown(e.max_abs)),
            errors(&|e| e.wrong.to_string()),
            errors(&|e| e.elements.to_string()),
            r.known.clone().unwrap_or_default(),
        ];
        text += &fields.map(|field| quoted(&field)).join(",");
        text.push('\n');
    }
    text
}

/// Returns a field of such a table, printable and quoted if necessary.
pub fn quoted(field: &str) -> String {
    let field = &*printable_lines(field);
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("a\u{1b}[2J"), "a\\u{1b}[2J");
    }
}
