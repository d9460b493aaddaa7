//! The inspection as text.

use delegraph::core::error::counted;
use delegraph::core::printable;
use serde_json::{Map, Value};

use super::super::ops::ranges;
use super::super::output::{Document, bytes, table};
use super::super::text::{plural, warnings};
use crate::documents::inspect::{Inspection, OpLine, QuantizationCounts, Runtime, SubgraphLine, TensorLine};
use crate::documents::options::{BLOB, CustomOptions, Place};

/// The maximum number of lines in text, and of characters of all options of a line, of a key and of a value.
const MAX_LINES: usize = 20;
const MAX_CHARS: usize = 400;
const MAX_KEY: usize = 40;
const MAX_VALUE: usize = 80;

impl Document for Inspection {
    fn text(&self) -> String {
        let sizes = &self.sizes;
        let mut text = format!("{}: {}\n", self.model, bytes(sizes.file_bytes));
        if !self.description.is_empty() {
            text += &format!("{}\n", printable(&self.description));
        }
        text += &format!("constants: {}", bytes(sizes.constant_bytes));
        let each: Vec<String> = sizes.constants.iter().map(|(ty, n)| format!("{ty} {}", bytes(*n))).collect();
        text += &if each.is_empty() { "\n".into() } else { format!(" ({})\n", each.join(", ")) };
        text += &self.runtime.text(self.unresolved.is_empty());

        text += &format!("\n{}", ports("inputs", &self.inputs));
        text += &format!("\n{}", ports("outputs", &self.outputs));
        for signature in &self.signatures {
            let key = printable(&signature.key);
            text += &format!("\nsignature \"{key}\" (subgraph {})\n", signature.subgraph);
            text += &ports("inputs", &signature.inputs);
            text += &ports("outputs", &signature.outputs);
        }
        let row = |o: &OpLine| {
            let options = o.custom_option_bytes.map(|n| format!("options: {}", bytes(n)));
            let missing = (!o.resolved).then(|| "no kernel".into());
            let notes: Vec<String> = [missing, options].into_iter().flatten().collect();
            let registered = if o.registered.is_empty() { "none".into() } else { ranges(&o.registered) };
            let since = o.min_runtime.unwrap_or("?");
            let (version, count) = (o.version.to_string(), o.count.to_string());
            vec![o.op.clone(), version, count, registered, since.into(), notes.join("; ")]
        };
        let header = ["op", "version", "nodes", "registered", "since TFLite", ""];
        text += &format!("\n{}", table(&header, &[1, 2], self.ops.iter().map(row)));
        if self.subgraphs.len() > 1 {
            let row = |(i, s): (usize, &SubgraphLine)| {
                vec![i.to_string(), s.name.clone(), s.nodes.to_string(), s.tensors.to_string()]
            };
            let rows = self.subgraphs.iter().enumerate().map(row);
            text += &format!("\n{}", table(&["subgraph", "name", "nodes", "tensors"], &[0, 2, 3], rows));
        }
        text += &format!("\n{}", self.quantization.text());
        if !self.metadata.is_empty() {
            let entries: Vec<String> = self
                .metadata
                .iter()
                .map(|m| format!("{} ({})", printable(&m.name), bytes(m.bytes)))
                .collect();
            text += &format!("metadata: {}\n", entries.join(", "));
        }
        text += &warnings(&self.understated_versions);
        text += &options(&self.custom_options);
        if !self.unresolved_text.is_empty() {
            text += &format!("\nops without a kernel:\n  {}\n", self.unresolved_text.join("\n  "));
        }
        text
    }
}

impl Runtime {
    fn text(&self, resolved: bool) -> String {
        let needs = match self.required {
            Some(release) if self.complete => format!("its ops need TFLite {release} or newer"),
            Some(release) => {
                format!("its ops need TFLite {release} at least; this build does not know all of them")
            }
            None if self.complete => "its ops need no particular TFLite".into(),
            None => "its ops are unknown to this build".into(),
        };
        let declared = match &self.metadata {
            Some(release) => format!("its metadata (min_runtime_version) declares {}", printable(release)),
            None => "its metadata does not declare a release".into(),
        };
        let newer = match (self.newer_than_known, resolved) {
            (false, _) => String::new(),
            (true, resolved) => format!(
                "; that is newer than {}, the newest of this build{}",
                self.newest_known,
                if resolved { ", but every op has a kernel and it runs all the same" } else { "" }
            ),
        };
        format!("{needs}; {declared}{newer}\n")
    }
}

impl QuantizationCounts {
    fn text(&self) -> String {
        let kinds = [
            (self.per_tensor, "per tensor"),
            (self.per_channel, "per channel"),
            (self.blockwise, "in blocks"),
            (self.multi_axis, "along several axes"),
            (self.custom, "in a custom way"),
        ];
        let kinds: Vec<String> =
            kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
        let kinds = if kinds.is_empty() { "none".into() } else { kinds.join(", ") };
        let sparse = if self.sparse > 0 { format!("; {} sparse", self.sparse) } else { String::new() };
        format!("quantized tensors: {kinds}; {} not quantized{sparse}\n", self.none)
    }
}

fn ports(title: &str, tensors: &[TensorLine]) -> String {
    let row = |t: &TensorLine| {
        let dim = |d: &Option<usize>| d.map_or_else(|| "?".into(), |d: usize| d.to_string());
        let signature = t.shape_signature.as_ref().filter(|s| s.iter().any(Option::is_none));
        let shape = match signature {
            Some(s) => format!("[{}]", s.iter().map(dim).collect::<Vec<_>>().join(", ")),
            None => format!("{:?}", t.shape),
        };
        let quantization = t.scale.zip(t.zero_point).map(|(s, z)| format!("scale {s}, zero point {z}"));
        let quantization = quantization.or_else(|| t.quantization.clone());
        vec![t.name.clone(), t.r#type.into(), shape, quantization.unwrap_or_default()]
    };
    table(&[title, "type", "shape", ""], &[], tensors.iter().map(row))
}

/// Returns the options as text; empty without custom ops.
fn options(all: &[CustomOptions]) -> String {
    let mut text = String::new();
    for line in all.iter().take(MAX_LINES) {
        let place = match line.nodes.as_slice() {
            [Place { subgraph: 0, node }] => format!("node {node}"),
            [Place { subgraph, node }] => format!("subgraph {subgraph} node {node}"),
            [Place { node, .. }, ..] => format!("{}, first node {node}", plural(line.nodes.len(), "node")),
            [] => String::new(),
        };
        let options = match &line.options {
            Some(map) if map.is_empty() => "an empty map".into(),
            Some(map) => entries(map),
            None if line.bytes == 0 => "none".into(),
            None if line.skipped => format!("{}, not read", bytes(line.bytes)),
            None => format!("{}, which are not a FlexBuffer map", bytes(line.bytes)),
        };
        let (op, options) = (printable(&line.op), printable(&options));
        text += &format!("options of {op} version {} ({place}): {options}\n", line.version);
    }
    let more = all.len().saturating_sub(MAX_LINES);
    if more > 0 {
        text += &format!("and the options of {}, which --json shows\n", plural(more, "more node"));
    }
    text
}

/// Returns keys and values in one line, which ends with the number of those that are left out.
fn entries(map: &Map<String, Value>) -> String {
    let mut line = String::new();
    for (i, (key, value)) in map.iter().enumerate() {
        let plain = !key.is_empty() && !key.contains([',', ':', ' ', '"']);
        let key = if plain { key.clone() } else { format!("{key:?}") };
        let entry = format!("{}: {}", short(&key, MAX_KEY), short(&shown(value), MAX_VALUE));
        if line.len() + entry.len() > MAX_CHARS {
            let more = plural(map.len() - i, "more key");
            return format!("{line}{}{more}, which --json shows", if i == 0 { "" } else { " and " });
        }
        line += if i == 0 { "" } else { ", " };
        line += &entry;
    }
    line
}

/// Returns the value as JSON, except for bytes: `<3 bytes>`.
fn shown(value: &Value) -> String {
    match value.as_object().filter(|object| object.len() == 1).and_then(|object| object.get(BLOB)) {
        Some(count) => format!("<{}>", counted(count, "byte")),
        None => value.to_string(),
    }
}

/// Returns the first `max` characters, and a mark if there are more.
fn short(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_value_does_not_hide_the_others() {
        let of = |value: Value| entries(value.as_object().unwrap());
        let long = "x".repeat(5_000);
        let text = of(json!({ "": 1, "a": long, "raw": { BLOB: 3 }, "with space": [1, 2] }));
        assert!(text.starts_with(r#""": 1, a: "xxx"#), "{text}");
        assert!(text.ends_with(r#"x…, raw: <3 bytes>, "with space": [1,2]"#), "{text}");
        let many: Map<String, Value> = (0..100).map(|i| (format!("key{i:02}"), json!(i))).collect();
        let text = entries(&many);
        assert!(text.starts_with("key00: 0, ") && text.len() < MAX_CHARS + 60, "{text}");
        let shown = text.matches(": ").count();
        assert!(text.ends_with(&format!(" and {} more keys, which --json shows", 100 - shown)), "{text}");
    }
}
