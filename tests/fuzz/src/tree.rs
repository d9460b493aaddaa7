//! Model files as JSON trees: read one, change any field, write it again, valid or not.
//!
//! Tables are objects, vectors are arrays, and an absent field is an absent key. A union is two keys, as in the format:
//! the member's code under `NAME_type` and its table under `NAME`. A vector of bytes is read as a string with one
//! character, U+0000 to U+00FF, per byte; it may also be written as an array.
#![allow(clippy::indexing_slicing)] // Only tests call this, on known files.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;

use flatbuffers::{FlatBufferBuilder, Push, PushAlignment, WIPOffset};
use serde_json::{Map, Value, json};

/// Returns the model in `file`.
pub fn read(file: &[u8]) -> Value {
    read_within(file, usize::MAX).unwrap()
}

/// Returns the model in the verified `file`, or `None` if it has more than `most` values. Parts of a file may be
/// shared, so a small file can have a very large tree.
pub fn read_within(file: &[u8], most: usize) -> Option<Value> {
    let file = File { bytes: file, left: Cell::new(Some(most)) };
    let model = Schema::get().read_table(&file, follow(file.bytes, 0), "Model");
    file.left.get().map(|_| model)
}

/// A file, and the number of values that may still be read.
struct File<'a> {
    bytes: &'a [u8],
    left: Cell<Option<usize>>,
}

impl File<'_> {
    /// Subtracts `values` from that number; returns whether they may be read.
    fn take(&self, values: usize) -> bool {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(values)));
        self.left.get().is_some()
    }
}

/// Returns the file with this model. Numbers that do not fit their fields wrap.
pub fn write(model: &Value) -> Vec<u8> {
    let schema = Schema::get();
    let mut builder = FlatBufferBuilder::new();
    let root = schema.write_table(&mut builder, model, "Model");
    builder.finish(WIPOffset::<()>::new(root), Some("TFL3"));
    builder.finished_data().to_vec()
}

/// Sets a field, present or not: `set(&mut model, "/subgraphs/0/tensors/1/type", 99)`.
pub fn set(model: &mut Value, path: &str, value: impl Into<Value>) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    match model.pointer_mut(parent).unwrap_or_else(|| panic!("there is no {parent}")) {
        Value::Array(list) if key == "-" => list.push(value.into()),
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = value.into(),
        table => {
            table.as_object_mut().unwrap().insert(key.into(), value.into());
        }
    }
}

/// Removes a field.
pub fn remove(model: &mut Value, path: &str) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    model.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
}

/// Returns the path and the value of every number that a model may hold. Absent fields count as 0. Of lists of numbers,
/// only the first few are returned. Weights are omitted.
pub fn numbers(model: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    Schema::get().numbers(model, &Kind::Table("Model"), "", &Value::Null, &mut found);
    found
}

/// The type of a field; scalars by their name in the schema.
#[derive(Clone)]
enum Kind {
    Scalar(&'static str),
    String,
    Table(&'static str),
    /// The second of its two slots; the first is a separate scalar.
    Union(&'static str),
    List(Box<Kind>),
}

struct Schema {
    /// Fields in the order of their slots.
    tables: HashMap<&'static str, Vec<(String, Kind)>>,
    /// Table by code.
    unions: HashMap<&'static str, HashMap<u64, &'static str>>,
}

const SCALARS: [(&str, usize); 15] = [
    ("bool", 1),
    ("byte", 1),
    ("ubyte", 1),
    ("int8", 1),
    ("uint8", 1),
    ("short", 2),
    ("uint16", 2),
    ("ushort", 2),
    ("int", 4),
    ("int32", 4),
    ("uint32", 4),
    ("uint", 4),
    ("float", 4),
    ("long", 8),
    ("ulong", 8),
];

fn size(scalar: &str) -> usize {
    SCALARS.iter().find(|(name, _)| *name == scalar).unwrap_or_else(|| panic!("unknown scalar {scalar}")).1
}

impl Schema {
    fn get() -> &'static Self {
        static SCHEMA: OnceLock<Schema> = OnceLock::new();
        SCHEMA.get_or_init(Schema::parse)
    }

    fn numbers(
        &self,
        value: &Value,
        kind: &Kind,
        path: &str,
        code: &Value,
        found: &mut Vec<(String, Value)>,
    ) {
        match kind {
            Kind::Scalar(_) => found.push((path.into(), value.clone())),
            Kind::String => {}
            Kind::Table("Buffer") => {
                for field in ["offset", "size"] {
                    found.push((format!("{path}/{field}"), value.get(field).cloned().unwrap_or(json!(0))));
                }
            }
            Kind::Table(name) => {
                for (field, kind) in self.tables.get(name).into_iter().flatten() {
                    let absent = matches!(kind, Kind::Scalar(_)).then(|| json!(0));
                    let Some(inner) = value.get(field).cloned().or(absent) else { continue };
                    let code = value.get(format!("{field}_type")).unwrap_or(&Value::Null);
                    self.numbers(&inner, kind, &format!("{path}/{field}"), code, found);
                }
            }
            Kind::Union(union) => {
                self.numbers(value, &Kind::Table(self.member(union, code)), path, &Value::Null, found);
            }
            Kind::List(kind) => {
                let first = if matches!(**kind, Kind::Scalar(_)) { 3 } else { usize::MAX };
                for (i, inner) in value.as_array().into_iter().flatten().enumerate().take(first) {
                    self.numbers(inner, kind, &format!("{path}/{i}"), &Value::Null, found);
                }
            }
        }
    }

    fn parse() -> Self {
        let mut enums: HashMap<&str, &'static str> = HashMap::new();
        let mut unions: HashMap<&str, HashMap<u64, &str>> = HashMap::new();
        let mut bodies = Vec::new();
        for block in delegraph_schema::SCHEMA.split('}') {
            let Some((head, body)) = block.split_once('{') else { continue };
            let mut words = head.lines().last().unwrap().split([' ', ':']).filter(|w| !w.is_empty());
            let (keyword, name) = (words.next().unwrap(), words.next().unwrap());
            let members = || body.lines().filter_map(|l| l.trim().trim_end_matches(',').split_once(" = "));
            match keyword {
                "enum" => drop(enums.insert(name, words.next().unwrap())),
                "union" => {
                    unions.insert(name, members().map(|(m, code)| (code.parse().unwrap(), m)).collect());
                }
                _ => bodies.push((name, body)),
            }
        }
        let kind = |ty: &'static str| {
            let element = ty.trim_matches(['[', ']']);
            let kind = match element {
                "string" => Kind::String,
                _ if unions.contains_key(element) => Kind::Union(element),
                _ => match enums.get(element) {
                    Some(scalar) => Kind::Scalar(scalar),
                    None if SCALARS.iter().any(|(s, _)| *s == element) => Kind::Scalar(element),
                    None => Kind::Table(element),
                },
            };
            if ty == element { kind } else { Kind::List(Box::new(kind)) }
        };
        let mut tables = HashMap::new();
        for (name, body) in bodies {
            let mut fields = Vec::new();
            for (field, ty) in body.lines().filter_map(|l| l.trim().trim_end_matches(';').split_once(':')) {
                let kind = kind(ty.split([' ', '=', '(']).next().unwrap());
                if matches!(kind, Kind::Union(_)) {
                    fields.push((format!("{field}_type"), Kind::Scalar("ubyte")));
                }
                fields.push((field.to_owned(), kind));
            }
            tables.insert(name, fields);
        }
        Schema { tables, unions }
    }

    /// With an unknown code, a table with one field.
    fn member(&self, union: &str, code: &Value) -> &'static str {
        self.known_member(union, code).unwrap_or("Int32Options")
    }

    fn known_member(&self, union: &str, code: &Value) -> Option<&'static str> {
        code.as_u64().and_then(|code| self.unions[union].get(&code).copied())
    }

    fn read_table(&self, file: &File<'_>, at: usize, name: &str) -> Value {
        let bytes = file.bytes;
        let vtable = (at as i64 - number(bytes, at, "int").as_i64().unwrap()) as usize;
        let mut table = Map::new();
        for (slot, (field, kind)) in self.tables[name].iter().enumerate() {
            if 4 + 2 * slot >= le(bytes, vtable, 2) as usize || !file.take(1) {
                break;
            }
            let offset = le(bytes, vtable + 4 + 2 * slot, 2) as usize;
            if offset != 0 {
                let code = table.get(&format!("{field}_type")).cloned().unwrap_or_default();
                // Without a known code, the bytes have no meaning.
                if let Kind::Union(union) = kind
                    && self.known_member(union, &code).is_none()
                {
                    continue;
                }
                table.insert(field.clone(), self.read_value(file, at + offset, kind, &code));
            }
        }
        Value::Object(table)
    }

    fn read_value(&self, file: &File<'_>, at: usize, kind: &Kind, code: &Value) -> Value {
        let bytes = file.bytes;
        match kind {
            Kind::Scalar(ty) => number(bytes, at, ty),
            Kind::String => {
                let at = follow(bytes, at);
                let len = le(bytes, at, 4) as usize;
                if !file.take(len) {
                    return Value::Null;
                }
                json!(String::from_utf8_lossy(&bytes[at + 4..at + 4 + len]))
            }
            Kind::Table(name) => self.read_table(file, follow(bytes, at), name),
            Kind::Union(union) => self.read_table(file, follow(bytes, at), self.member(union, code)),
            Kind::List(kind) => {
                let at = follow(bytes, at);
                let len = le(bytes, at, 4) as usize;
                if !file.take(len) {
                    return Value::Null;
                }
                if matches!(**kind, Kind::Scalar("ubyte")) {
                    return json!(
                        bytes[at + 4..at + 4 + len].iter().copied().map(char::from).collect::<String>()
                    );
                }
                let width = if let Kind::Scalar(ty) = &**kind { size(ty) } else { 4 };
                let item = |i| self.read_value(file, at + 4 + i * width, kind, &Value::Null);
                (0..len).map(item).collect()
            }
        }
    }

    fn write_table(&self, b: &mut FlatBufferBuilder<'_>, table: &Value, name: &str) -> u32 {
        let table = table.as_object().unwrap_or_else(|| panic!("{name} is {table}"));
        let fields = self.tables.get(name).map_or(&[][..], |fields| fields);
        for key in table.keys() {
            assert!(fields.iter().any(|(field, _)| field == key), "{name} has no field {key}");
        }
        let mut values: Vec<(u16, usize, u64)> = Vec::new();
        for (slot, (field, kind)) in fields.iter().enumerate() {
            let Some(value) = table.get(field) else { continue };
            let slot = 4 + 2 * slot as u16;
            values.push(match kind {
                Kind::Scalar(ty) => (slot, size(ty), bits(value, ty)),
                _ => {
                    let code = table.get(&format!("{field}_type")).unwrap_or(&Value::Null);
                    (slot, 0, self.write_value(b, value, kind, code).into())
                }
            });
        }
        let start = b.start_table();
        for (slot, size, value) in values {
            match size {
                0 => b.push_slot_always(slot, WIPOffset::<()>::new(value as u32)),
                1 => b.push_slot_always(slot, value as u8),
                2 => b.push_slot_always(slot, value as u16),
                4 => b.push_slot_always(slot, value as u32),
                _ => b.push_slot_always(slot, value),
            }
        }
        b.end_table(start).value()
    }

    fn write_value(&self, b: &mut FlatBufferBuilder<'_>, value: &Value, kind: &Kind, code: &Value) -> u32 {
        let items = || value.as_array().unwrap().iter();
        match kind {
            Kind::Scalar(_) => unreachable!("scalars are written in place"),
            Kind::String => b.create_string(value.as_str().unwrap()).value(),
            Kind::Table(name) => self.write_table(b, value, name),
            Kind::Union(union) => self.write_table(b, value, self.member(union, code)),
            Kind::List(_) if value.is_string() => {
                let bytes = value.as_str().unwrap().chars().map(|c| Aligned(c as u8));
                b.create_vector(&bytes.collect::<Vec<_>>()).value()
            }
            Kind::List(kind) => match &**kind {
                Kind::Scalar(ty) => {
                    let bits = items().map(|v| bits(v, ty));
                    match size(ty) {
                        1 => b.create_vector(&bits.map(|v| Aligned(v as u8)).collect::<Vec<_>>()).value(),
                        2 => b.create_vector(&bits.map(|v| v as u16).collect::<Vec<_>>()).value(),
                        4 => b.create_vector(&bits.map(|v| v as u32).collect::<Vec<_>>()).value(),
                        _ => b.create_vector(&bits.collect::<Vec<_>>()).value(),
                    }
                }
                kind => {
                    let offsets: Vec<_> = items()
                        .map(|v| WIPOffset::<()>::new(self.write_value(b, v, kind, &Value::Null)))
                        .collect();
                    b.create_vector(&offsets).value()
                }
            },
        }
    }
}

/// A byte of a vector that starts at a multiple of 16, as the data of buffers does.
struct Aligned(u8);

impl Push for Aligned {
    type Output = u8;
    unsafe fn push(&self, dst: &mut [u8], _: usize) {
        dst[0] = self.0;
    }
    fn alignment() -> PushAlignment {
        PushAlignment::new(16)
    }
}

fn le(file: &[u8], at: usize, size: usize) -> u64 {
    file[at..at + size].iter().rev().fold(0, |n, &byte| (n << 8) | u64::from(byte))
}

fn follow(file: &[u8], at: usize) -> usize {
    at + le(file, at, 4) as usize
}

fn number(file: &[u8], at: usize, ty: &str) -> Value {
    let bits = le(file, at, size(ty));
    match ty {
        "float" => match f32::from_bits(bits as u32) {
            value if value.is_finite() => json!(value),
            value => json!(value.to_string()),
        },
        "bool" => json!(bits != 0),
        "byte" | "int8" => json!(bits as i8),
        "short" => json!(bits as i16),
        "int" | "int32" => json!(bits as i32),
        "long" => json!(bits as i64),
        _ => json!(bits),
    }
}

/// Floats may also be the strings `NaN`, `inf` and `-inf`. Mutations replace integers above those of `i64` by floats.
fn bits(value: &Value, ty: &str) -> u64 {
    let number = match value {
        Value::Bool(value) => return (*value).into(),
        Value::String(text) => return text.parse::<f32>().unwrap_or_default().to_bits().into(),
        value => value.as_f64().unwrap_or_default(),
    };
    if ty == "float" {
        return (number as f32).to_bits().into();
    }
    let whole = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    whole.unwrap_or((number as i64).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_in_fields_of_integers_are_truncated() {
        let model = |version: Value| write(&json!({ "version": version }));
        assert_eq!(model(json!(-1.5)), model(json!(u32::MAX)));
        assert_eq!(model(json!("NaN")), model(json!(f32::NAN.to_bits())));
        assert_eq!(bits(&json!(u64::MAX), "ulong"), u64::MAX);
        assert_eq!(bits(&json!("inf"), "float"), u64::from(f32::INFINITY.to_bits()));
    }
}
