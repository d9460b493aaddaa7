//! The inspection as text.

use delegraph::core::error::counted;
use delegraph::core::printable;
use serde_json::Value as Json;

use super::super::ops::ranges;
use super::super::output::{Document, bytes, table};
use super::super::text::{plural, warnings};
use crate::documents::inspect::{Inspection, OpLine, QuantizationCounts, Runtime, SubgraphLine, TensorLine};
use crate::documents::options::{CustomOptions, OptionValue, Place};

/// The maximum number of lines of options, of characters per line, and of characters per key and value.
const MAX_LINES: usize = 20;
const MAX_CHARS: usize = 400;
const MAX_VALUE_CHARS: usize = 60;

impl Document for Inspection {
    fn text(&self) -> String {
        let sizes = &self.sizes;
        let mut text = format!("{}: {}\n", printable(&self.model), bytes(sizes.file_bytes));
        if !self.description.is_empty() {
            text += &format!("{}\n", printable(&self.description));
        }
        text += &format!("constants: {}", bytes(sizes.constant_bytes));
        let each: Vec<String> = sizes.constants.iter().map(|(ty, n)| format!("{ty} {}", bytes(*n))).collect();
        text += &if each.is_empty() { "\n".into() } else { format!(" ({})\n", each.join(", ")) };
        text += &self.runtime.text(&self.ops);

        text += &section(&ports("inputs", &self.inputs));
        text += &section(&ports("outputs", &self.outputs));
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
        text += &section(&table(&header, &[1, 2], self.ops.iter().map(row)));
        if self.subgraphs.len() > 1 {
            let row = |(i, s): (usize, &SubgraphLine)| {
                vec![i.to_string(), s.name.clone(), s.nodes.to_string(), s.tensors.to_string()]
            };
            let rows = self.subgraphs.iter().enumerate().map(row);
            text += &section(&table(&["subgraph", "name", "nodes", "tensors"], &[0, 2, 3], rows));
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

/// Returns a table after a blank line; nothing for a table without rows.
fn section(table: &str) -> String {
    if table.is_empty() { String::new() } else { format!("\n{table}") }
}

impl Runtime {
    fn text(&self, ops: &[OpLine]) -> String {
        let resolved = ops.iter().all(|op| op.resolved);
        // Custom ops need a kernel, regardless of the release.
        let unknown = ops.iter().filter(|op| op.min_runtime.is_none() && op.custom_option_bytes.is_none());
        let unknown: Vec<String> =
            unknown.map(|op| format!("{} version {}", printable(&op.op), op.version)).collect();
        let unknown = match unknown.as_slice() {
            [first, second, third, more @ ..] if !more.is_empty() => {
                format!("{first}, {second}, {third} and {}", plural(more.len(), "more op"))
            }
            all => all.join(", "),
        };
        let needs = match self.required {
            Some(release) if self.complete => format!("its ops need TFLite {release} or newer"),
            Some(release) => {
                format!(
                    "its ops need TFLite {release} at least; the first release with {unknown} is not known"
                )
            }
            None if self.complete => "its ops need no particular TFLite".into(),
            None => format!("the first TFLite release with {unknown} is not known"),
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
            Some(_) => entries(line),
            None if line.bytes == 0 => "none".into(),
            None if line.skipped => format!(
                "{} with {}, not read: reading the options of all nodes would take too long",
                bytes(line.bytes),
                plural(line.keys, "key")
            ),
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

/// Returns the keys and values of a map, with the number of those that are left out.
fn entries(line: &CustomOptions) -> String {
    let (mut text, mut shown) = (String::new(), 0);
    for (key, value) in line.options.iter().flatten() {
        let entry = format!("{}: {}", option_key(key), option_value(value));
        if shown > 0 && text.chars().count() + entry.chars().count() > MAX_CHARS {
            break;
        }
        text += &format!("{}{entry}", if shown == 0 { "" } else { ", " });
        shown += 1;
    }
    match line.keys.saturating_sub(shown) {
        0 => text,
        more => format!("{text}, and {}", counted(more, "more key")),
    }
}

/// Returns a key, in quotation marks unless it is a plain word.
fn option_key(key: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let short = short(key);
    if !key.is_empty() && key.chars().all(plain) { short } else { Json::from(short).to_string() }
}

/// Returns a value in the notation of JSON, and blobs by their size.
fn option_value(value: &OptionValue) -> String {
    match value {
        OptionValue::Plain(Json::String(text)) => Json::from(short(text)).to_string(),
        OptionValue::Plain(value) => value.to_string(),
        OptionValue::Blob { blob_bytes } => format!("<{}>", counted(blob_bytes, "byte")),
        OptionValue::List(list) => {
            short(&format!("[{}]", list.iter().map(option_value).collect::<Vec<_>>().join(", ")))
        }
        OptionValue::Map(map) => {
            let entry = |(key, value): (&String, &OptionValue)| {
                format!("{}: {}", option_key(key), option_value(value))
            };
            short(&format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Returns the beginning of a long text.
fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_read_have_a_reason() {
        let line = CustomOptions {
            op: "custom".into(),
            version: 1,
            nodes: vec![Place { subgraph: 0, node: 2 }],
            bytes: 360_000,
            options: None,
            keys: 20_000,
            skipped: true,
        };
        let want = "options of custom version 1 (node 2): 351.56 KiB with 20000 keys, not read: reading the options of all \
                    nodes would take too long\n";
        assert_eq!(options(&[line]), want);
    }
}
