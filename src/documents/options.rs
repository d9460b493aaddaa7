//! The options of custom ops, as keys and values.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::Serialize;
use serde_json::Value as Json;

use super::text::raw_name;
use crate::Model;
use crate::core::Op;
use crate::core::error::counted;
use crate::core::flex::{Map, Value};

/// Maximum number of keys read from a map; further keys are counted.
const MAX_KEYS: usize = 256;

/// The depth to which nested maps and lists are read: damaged ones may contain themselves.
const MAX_DEPTH: usize = 8;

/// Limit on the bytes read for all options, for files in which many nodes share large options.
const MAX_BYTES: usize = 64 << 20;

/// Options, and the nodes of a custom op that have them.
#[derive(Debug, Serialize)]
pub(crate) struct CustomOptions {
    pub(crate) op: String,
    pub(crate) version: u32,
    pub(crate) nodes: Vec<Place>,
    pub(crate) bytes: usize,
    /// The FlexBuffer map; `null` if the bytes are not one.
    pub(crate) options: Option<BTreeMap<String, OptionValue>>,
    /// The number of the map's keys, including those that are not read.
    pub(crate) keys: usize,
    /// Whether the options were not read, because all options together are too large.
    pub(crate) skipped: bool,
}

/// The value of a key.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum OptionValue {
    /// A number, a boolean, text, or null.
    Plain(Json),
    /// Bytes, by their number.
    Blob {
        blob_bytes: usize,
    },
    List(Vec<OptionValue>),
    Map(BTreeMap<String, OptionValue>),
}

#[derive(Debug, Serialize)]
pub(crate) struct Place {
    pub(crate) subgraph: usize,
    pub(crate) node: usize,
}

/// Returns the options of every node of a custom op, in the order of the nodes.
pub(super) fn of(model: &Model) -> Vec<CustomOptions> {
    let mut found: Vec<CustomOptions> = Vec::new();
    let mut known: HashMap<(&Op, u32, Range<usize>), usize> = HashMap::new();
    let mut budget = MAX_BYTES;
    for (subgraph, graph) in model.subgraphs().iter().enumerate() {
        for (node, of) in graph.nodes().iter().enumerate().filter(|(_, n)| n.op().builtin().is_none()) {
            let range = of.custom_options();
            let index = *known.entry((of.op(), of.version(), range.clone())).or_insert_with(|| {
                let data = model.bytes().get(range).unwrap_or_default();
                let map = Map::parse(data).ok();
                let keys = map.as_ref().map_or(0, Map::len);
                let options = map.map(|map| object(&map, data.len(), MAX_DEPTH, &mut budget));
                found.push(CustomOptions {
                    op: raw_name(of.op()),
                    version: of.version(),
                    nodes: Vec::new(),
                    bytes: data.len(),
                    skipped: options.is_some() && budget == 0,
                    options: options.filter(|_| budget > 0),
                    keys,
                });
                found.len() - 1
            });
            if let Some(line) = found.get_mut(index) {
                line.nodes.push(Place { subgraph, node });
            }
        }
    }
    found
}

/// Returns the values of the map. Reading a value reads up to `size` bytes, which are subtracted from `budget`.
fn object(map: &Map<'_>, size: usize, depth: usize, budget: &mut usize) -> BTreeMap<String, OptionValue> {
    let mut object = BTreeMap::new();
    for key in map.keys().take(MAX_KEYS) {
        *budget = budget.saturating_sub(size);
        if *budget == 0 {
            break;
        }
        let value = match map.value(key) {
            Ok(Some(value)) => read(&value, size, depth, budget),
            _ => OptionValue::Plain("damaged".into()),
        };
        object.insert(key.to_owned(), value);
    }
    let more = map.len().saturating_sub(MAX_KEYS);
    if more > 0 {
        let more = format!("and {}", counted(more, "more key"));
        object.insert("…".into(), OptionValue::Plain(more.into()));
    }
    object
}

fn read(value: &Value<'_>, size: usize, depth: usize, budget: &mut usize) -> OptionValue {
    OptionValue::Plain(match value {
        Value::Int(v) => (*v).into(),
        Value::Uint(v) => (*v).into(),
        // JSON has neither NaN nor infinities.
        Value::Float(v) => {
            serde_json::Number::from_f64(*v).map_or_else(|| v.to_string().into(), Json::Number)
        }
        Value::Bool(v) => (*v).into(),
        Value::Text(text) => (*text).into(),
        Value::Blob(blob) => return OptionValue::Blob { blob_bytes: blob.len() },
        Value::List(_) | Value::Map(_) if depth == 0 => "…".into(),
        Value::List(list) => {
            return OptionValue::List(list.iter().map(|v| read(v, size, depth - 1, budget)).collect());
        }
        Value::Map(map) => return OptionValue::Map(object(map, size, depth - 1, budget)),
        _ => Json::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_become_objects() {
        let mut writer = flexbuffers::Builder::default();
        let mut map = writer.start_map();
        map.push("axis", -1);
        map.push("epsilon", 0.5);
        map.push("mode", "near\u{1b}est");
        map.push("nan", f64::NAN);
        map.push("pads", &[1u8, 2][..]);
        map.push("table", flexbuffers::Blob(&[1u8, 2, 3][..]));
        let mut inner = map.start_map("inner");
        inner.push("deep", true);
        inner.end_map();
        map.end_map();
        let data = writer.view();
        let mut budget = MAX_BYTES;
        let found = object(&Map::parse(data).unwrap(), data.len(), MAX_DEPTH, &mut budget);
        let expected = serde_json::json!({
            "axis": -1, "epsilon": 0.5, "inner": { "deep": true }, "mode": "near\u{1b}est", "nan": "NaN",
            "pads": [1, 2], "table": { "blob_bytes": 3 },
        });
        assert_eq!(serde_json::to_value(&found).unwrap(), expected);
        // Nothing is read without a budget.
        assert!(object(&Map::parse(data).unwrap(), data.len(), MAX_DEPTH, &mut 0).is_empty());
    }
}
