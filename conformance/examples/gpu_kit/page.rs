//! `kit.html`: one page without references to other files, and the summary for the terminal.

use std::fmt::Write;

use delegraph_core::printable_lines;

use super::parts::{Conformance, Kit, Latency, Part, Rate, Times};
use super::process::Ended;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1f2937;background:#fff}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%}\
td,th{padding:.25em .6em;border-bottom:1px solid #e5e7eb;text-align:left;vertical-align:top}\
.n{text-align:right;font-variant-numeric:tabular-nums}.soft{color:#6b7280}.bad{color:#b3362b}.good{color:#2e7d4f}\
.bar{background:#e5e7eb;width:8em;height:.7em;display:inline-block}.bar i{display:block;height:100%;background:#2563eb}\
code{overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{color:#e5e7eb;background:#111827}td,th{border-color:#374151}.bar{background:#374151}}";

/// Returns the page.
pub(crate) fn html(kit: &Kit) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width\">\n";
    let title = escape(&kit.adapter);
    let _ = write!(
        page,
        "<title>Delegraph on {title}</title>\n<style>{STYLE}</style>\n<h1>Delegraph on {title}</h1>\n"
    );
    let host = &kit.host;
    let about = format!(
        "Delegraph {}, {} with {} cores, Linux {}, {} s since 1970",
        kit.version, host.processor, host.cores, host.kernel, kit.time
    );
    let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(&about));
    if kit.software {
        page += "<p class=\"bad\">This adapter is the processor. The figures are not those of a GPU.</p>\n";
    }
    let _ = writeln!(page, "<pre>{}</pre>", escape(&summary(kit)));
    not_complete(&mut page, kit);
    conformance(&mut page, kit);
    shaders(&mut page, kit);
    latencies(&mut page, &kit.latencies);
    roofline(&mut page, kit);
    devices(&mut page, kit);
    parts(&mut page, &kit.parts);
    page += "</html>\n";
    page
}

/// Returns the result in a few lines.
pub(crate) fn summary(kit: &Kit) -> String {
    let mut text = format!("{}\n", kit.adapter);
    let failed = match kit.shaders.failed.len() {
        0 => String::new(),
        n => format!(", {n} failed"),
    };
    let _ = writeln!(text, "shader tests: {} passed{failed}", kit.shaders.passed);
    for (precision, suite) in &kit.conformance {
        let Conformance { ran, of, failed, .. } = suite;
        let _ = writeln!(text, "conformance {precision}: {ran} of {of} cases ran, {failed} failed");
    }
    for latency in &kit.latencies {
        let time = |(label, times): (&String, &Times)| format!("{label} {:.2} ms", times.median_ms);
        let times: Vec<String> = latency.times.iter().map(time).collect();
        let _ = writeln!(text, "{}: {}", latency.model, times.join(", "));
    }
    let limits = kit.roofline.rows.iter().filter(|row| row.share.is_none());
    for row in limits {
        let _ = writeln!(text, "{} {}: {:.1} {}", row.name, row.ty, row.rate, row.unit);
    }
    let count = kit.parts.iter().filter(|part| part.ended != Ended::Code(0)).count();
    if count > 0 {
        let _ = writeln!(text, "{count} parts are not complete");
    }
    text
}

/// Writes the parts that were ended early, failed or did not run, and the kernels that the roofline left out.
fn not_complete(page: &mut String, kit: &Kit) {
    let bad: Vec<&Part> = kit.parts.iter().filter(|part| part.ended != Ended::Code(0)).collect();
    if bad.is_empty() && kit.roofline.left_out.is_empty() {
        return;
    }
    page.push_str("<h2>Not complete</h2>\n<ul>\n");
    for part in bad {
        let _ = writeln!(page, "<li>{}: {}</li>", escape(&part.name), escape(&state(part)));
    }
    for what in &kit.roofline.left_out {
        let _ = writeln!(page, "<li>roofline: {}</li>", escape(what));
    }
    page.push_str("</ul>\n");
}

fn state(part: &Part) -> String {
    match &part.ended {
        Ended::Code(0) => "complete".into(),
        // The suite and tests return a nonzero code after a failure.
        Ended::Code(code) => format!("ended with code {code}"),
        Ended::Signal => "ended by a signal".into(),
        Ended::Cut => format!("ended at its limit of {:.0} s", part.limit),
        Ended::NotRun(why) => format!("not run: {why}"),
    }
}

fn conformance(page: &mut String, kit: &Kit) {
    page.push_str("<h2>Conformance</h2>\n<table>\n");
    row(page, "th", &["precision", "cases", "of", "outcomes", "failed"], &[1, 2, 4]);
    for (precision, suite) in &kit.conformance {
        let counts: Vec<String> = suite.counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let [ran, of, failed] = [suite.ran, suite.of, suite.failed].map(|n| n.to_string());
        row(page, "td", &[precision, &ran, &of, &counts.join(", "), &failed], &[1, 2, 4]);
    }
    page.push_str("</table>\n");
    for (precision, suite) in kit.conformance.iter().filter(|(_, suite)| !suite.failures.is_empty()) {
        let shown = suite.failures.len();
        let _ = writeln!(
            page,
            "<h3>Failures in {} ({shown} of {})</h3>\n<table>",
            escape(precision),
            suite.failed
        );
        for failure in &suite.failures {
            row(page, "td", &[&failure.case, &failure.outcome, &failure.detail], &[]);
        }
        page.push_str("</table>\n");
    }
}

fn shaders(page: &mut String, kit: &Kit) {
    let _ = writeln!(page, "<h2>Shader tests</h2>\n<p>{} passed.</p>", kit.shaders.passed);
    for name in &kit.shaders.failed {
        let _ = writeln!(page, "<p class=\"bad\">failed: {}</p>", escape(name));
    }
}

fn latencies(page: &mut String, latencies: &[Latency]) {
    page.push_str("<h2>Models</h2>\n<p class=\"soft\">Milliseconds: first run with empty caches, median of later runs.</p>\n<table>\n");
    row(
        page,
        "th",
        &["model", "delegate", "prepare", "first", "median", "device", "nodes"],
        &[2, 3, 4, 5, 6],
    );
    for latency in latencies {
        for (label, times) in &latency.times {
            let ms = |ms: f64| format!("{ms:.2}");
            let nodes = format!("{} of {}", times.delegated_nodes, times.total_nodes);
            let device = times.gpu_ms.map_or(String::new(), ms);
            let cells = [ms(times.prepare_ms), ms(times.first_ms), ms(times.median_ms), device, nodes];
            let [prepare, first, median, device, nodes] = cells.each_ref().map(String::as_str);
            row(
                page,
                "td",
                &[&latency.model, label, prepare, first, median, device, nodes],
                &[2, 3, 4, 5, 6],
            );
            for failure in &times.failures {
                let _ = writeln!(page, "<tr><td class=\"bad\" colspan=\"7\">{}</td></tr>", escape(failure));
            }
        }
    }
    page.push_str("</table>\n");
}

fn roofline(page: &mut String, kit: &Kit) {
    page.push_str("<h2>Roofline</h2>\n<p class=\"soft\">Shares of limits that were measured on this adapter.</p>\n<table>\n");
    row(page, "th", &["kernel", "type", "rate", "", "time in us", "share"], &[2, 4]);
    for Rate { name, ty, unit, rate, share, microseconds } in &kit.roofline.rows {
        let bar = share.map_or(String::new(), |share| {
            let percent = (share * 100.0).round();
            let width = percent.clamp(0.0, 100.0);
            format!("<span class=\"bar\"><i style=\"width:{width}%\"></i></span> {percent}%")
        });
        let (name, ty, unit) = (escape(name), escape(ty), escape(unit));
        let _ = writeln!(
            page,
            "<tr><td>{name}</td><td>{ty}</td><td class=\"n\">{rate:.1}</td><td>{unit}</td>\
             <td class=\"n\">{microseconds:.1}</td><td>{bar}</td></tr>"
        );
    }
    page.push_str("</table>\n");
}

fn devices(page: &mut String, kit: &Kit) {
    page.push_str("<h2>Adapters</h2>\n");
    for adapter in kit.devices["adapters"].as_array().into_iter().flatten() {
        let _ = writeln!(page, "<table>");
        for (key, value) in adapter.as_object().into_iter().flatten() {
            let list = |values: &[serde_json::Value]| {
                let words: Vec<&str> = values.iter().filter_map(|v| v.as_str()).collect();
                if words.len() == values.len() { words.join(", ") } else { value.to_string() }
            };
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Array(values) => list(values),
                serde_json::Value::Object(of) => {
                    of.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
                }
                other => other.to_string(),
            };
            row(page, "td", &[key, &text], &[]);
        }
        page.push_str("</table>\n");
    }
}

fn parts(page: &mut String, parts: &[Part]) {
    page.push_str("<h2>Parts</h2>\n<table>\n");
    row(page, "th", &["part", "seconds", "limit", "", "message"], &[1, 2]);
    for part in parts {
        let [seconds, limit] = [part.seconds, part.limit].map(|s| format!("{s:.1}"));
        row(page, "td", &[&part.name, &seconds, &limit, &state(part), &part.message], &[1, 2]);
    }
    page.push_str("</table>\n");
}

/// Writes a row of `cells`; those of `numbers` are aligned to the right.
fn row(page: &mut String, tag: &str, cells: &[&str], numbers: &[usize]) {
    page.push_str("<tr>");
    for (i, cell) in cells.iter().enumerate() {
        let class = if numbers.contains(&i) { " class=\"n\"" } else { "" };
        let _ = write!(page, "<{tag}{class}>{}</{tag}>", escape(cell));
    }
    page.push_str("</tr>\n");
}

/// Returns text of programs and drivers as HTML.
fn escape(text: &str) -> String {
    let text = printable_lines(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::parts::{Failure, Host, Roofline, Shaders};

    fn kit() -> Kit {
        let times = Times { median_ms: 1.25, first_ms: 40.0, total_nodes: 61, ..Times::default() };
        let part = |name: &str, ended| Part {
            name: name.into(),
            seconds: 3.0,
            limit: 150.0,
            ended,
            message: String::new(),
        };
        let rate = |name: &str, share| Rate {
            name: name.into(),
            ty: "f32".into(),
            unit: "GB/s".into(),
            rate: 123.4,
            share,
            microseconds: 5.0,
        };
        let failure = Failure {
            case: "add/<odd>".into(),
            outcome: "mismatch".into(),
            detail: "1 & 2 \"wrong\"".into(),
        };
        let suite = Conformance {
            device: "A".into(),
            ran: 11,
            of: 13,
            counts: BTreeMap::from([("mismatch".into(), 1), ("pass".into(), 10)]),
            failures: vec![failure],
            failed: 1,
        };
        Kit {
            format: 1,
            version: "0.1.0".into(),
            time: 1,
            host: Host { processor: "P".into(), cores: 2, kernel: "6".into() },
            adapter: "GPU <7>".into(),
            software: false,
            devices: json!({"adapters": [{"name": "GPU <7>", "limits": {"max_buffer_size": 77}}]}),
            parts: vec![part("devices", Ended::Code(0)), part("conformance-f16", Ended::Cut)],
            shaders: Shaders { passed: 46, failed: vec!["pad::borders".into()] },
            conformance: BTreeMap::from([("f16".into(), suite)]),
            latencies: vec![Latency {
                model: "okay".into(),
                times: BTreeMap::from([("wgpu f16".into(), times)]),
            }],
            roofline: Roofline {
                adapter: "GPU <7>".into(),
                rows: vec![rate("limit: copies", None), rate("add 64x64", Some(0.874))],
                left_out: vec!["depthwise f16: no time left".into()],
            },
        }
    }

    #[test]
    fn the_page_shows_every_figure_and_what_is_missing() {
        let page = html(&kit());
        for text in [
            "GPU &lt;7&gt;",
            "46 passed",
            "pad::borders",
            "add/&lt;odd&gt;",
            "1 &amp; 2 &quot;wrong&quot;",
            "mismatch 1, pass 10",
            "11 of 13 cases ran, 1 failed",
            "0 of 61",
            ">1.25<",
            ">40.00<",
            "87%",
            "123.4",
            "max_buffer_size 77",
            "conformance-f16: ended at its limit of 150 s",
            "depthwise f16: no time left",
        ] {
            assert!(page.contains(text), "{text} is missing in\n{page}");
        }
        assert!(!page.contains("<7>") && !page.contains("<odd>"));
        // One file: nothing is loaded from elsewhere.
        assert!(!page.contains("http") && !page.contains("src=") && !page.contains("url("));
        assert!(!page.contains("This adapter is the processor"));
        let software = html(&Kit { software: true, ..kit() });
        assert!(software.contains("This adapter is the processor"));
    }

    #[test]
    fn tags_are_balanced() {
        let page = html(&kit());
        for tag in ["table", "tr", "td", "th", "ul", "li", "h1", "h2", "h3", "p", "pre", "span"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn json_is_read_as_it_was_written() {
        let text = serde_json::to_string(&kit()).unwrap_or_default();
        let again: Kit = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(html(&again), html(&kit()));
        assert!(
            text.contains("\"format\":1")
                && text.contains("\"ended\":\"cut\"")
                && text.contains("\"share\":null")
        );
    }
}
