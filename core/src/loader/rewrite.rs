//! Rewriting of malformed FlatBuffers.
//!
//! TFLite's reader accepts files that the strict verifier rejects: unaligned fields, a union with a type but no value,
//! names that are not UTF-8. Such a file is read leniently here, with every offset checked, and written again in the
//! form that the verifier requires. Unreadable files remain errors.

use std::collections::HashMap;

use flatbuffers::{FlatBufferBuilder, VOffsetT, WIPOffset};

use super::{Invalid, invalid};
use crate::error::counted;

/// The schema has no deeper nesting; only a damaged file has tables that contain themselves.
const MAX_DEPTH: usize = 32;

/// Writes `file` again in a form that the verifier accepts.
pub(super) fn rewrite(file: &[u8]) -> Result<Vec<u8>, Invalid> {
    let schema = Schema::parse(delegraph_schema::SCHEMA);
    // Parents may share children, which are written once per parent: a small file could grow without end.
    let budget = file.len().saturating_mul(2).saturating_add(1 << 20);
    let mut copy = Copy { file, schema, builder: FlatBufferBuilder::with_capacity(file.len()), budget };
    let root = copy.follow(0)?;
    let root = copy.table(root, "Model", 0)?;
    copy.builder.finish(root, Some("TFL3"));
    Ok(copy.builder.finished_data().to_vec())
}

/// The contents of a field.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    /// A number with this size in bytes.
    Scalar(usize),
    String,
    Table(String),
    /// One slot for the type, one for the value.
    Union(String),
    Scalars(usize),
    Strings,
    Tables(String),
}

/// The tables and unions of the format, from its schema.
struct Schema {
    /// Fields in the order of their slots.
    tables: HashMap<String, Vec<Kind>>,
    /// For each union, its tables by type code.
    unions: HashMap<String, HashMap<u8, String>>,
}

impl Schema {
    fn parse(text: &str) -> Self {
        let mut enums: HashMap<String, usize> = HashMap::new();
        let mut unions: HashMap<String, HashMap<u8, String>> = HashMap::new();
        let mut raw: Vec<(String, Vec<String>)> = Vec::new();
        for block in text.split('}') {
            let Some((head, body)) = block.split_once('{') else { continue };
            let head = head.lines().last().unwrap_or_default();
            let mut words = head.split([' ', ':']).filter(|w| !w.is_empty());
            let (keyword, name) =
                (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
            match keyword {
                "enum" => {
                    enums.insert(name, scalar_size(words.next().unwrap_or_default()).unwrap_or(1));
                }
                "union" => {
                    let member = |line: &str| {
                        let (member, code) = line.trim().trim_end_matches(',').split_once(" = ")?;
                        Some((code.parse().ok()?, member.to_owned()))
                    };
                    unions.insert(name, body.split('\n').filter_map(member).collect());
                }
                "table" => {
                    let field = |line: &str| {
                        let (_, ty) = line.trim().trim_end_matches(';').split_once(':')?;
                        Some(ty.split([' ', '=', '(']).next()?.to_owned())
                    };
                    raw.push((name, body.split('\n').filter_map(field).collect()));
                }
                _ => {}
            }
        }
        let size = |ty: &str| scalar_size(ty).or_else(|| enums.get(ty).copied());
        let kind = |ty: &String| match ty.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            Some("string") => Kind::Strings,
            Some(element) => size(element).map_or_else(|| Kind::Tables(element.to_owned()), Kind::Scalars),
            None if ty == "string" => Kind::String,
            None if unions.contains_key(ty) => Kind::Union(ty.clone()),
            None => size(ty).map_or_else(|| Kind::Table(ty.clone()), Kind::Scalar),
        };
        let tables =
            raw.iter().map(|(name, fields)| (name.clone(), fields.iter().map(kind).collect())).collect();
        Schema { tables, unions }
    }
}

fn scalar_size(ty: &str) -> Option<usize> {
    Some(match ty {
        "bool" | "byte" | "ubyte" | "int8" | "uint8" => 1,
        "short" | "ushort" | "int16" | "uint16" => 2,
        "int" | "uint" | "float" | "int32" | "uint32" => 4,
        "long" | "ulong" | "double" | "int64" | "uint64" => 8,
        _ => return None,
    })
}

/// A value that is ready to be written to its table.
enum Value {
    Number(usize, u64),
    Offset(u32),
}

struct Copy<'a> {
    file: &'a [u8],
    schema: Schema,
    builder: FlatBufferBuilder<'static>,
    /// Bytes that may still be written.
    budget: usize,
}

impl Copy<'_> {
    fn bytes(&self, at: usize, len: usize) -> Result<&[u8], Invalid> {
        let bytes = at.checked_add(len).and_then(|end| self.file.get(at..end));
        bytes.ok_or_else(|| {
            let (bytes, verb) = (counted(len, "byte"), if len == 1 { "is" } else { "are" });
            Invalid(format!("damaged FlatBuffer: {bytes} at {at} {verb} outside the file"))
        })
    }

    /// A little-endian number of `size` bytes.
    fn number(&self, at: usize, size: usize) -> Result<u64, Invalid> {
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(self.bytes(at, size)?) {
            *to = *from;
        }
        Ok(u64::from_le_bytes(wide))
    }

    fn size(&self, at: usize, size: usize) -> Result<usize, Invalid> {
        usize::try_from(self.number(at, size)?)
            .map_err(|_| Invalid("damaged FlatBuffer: a number overflows".into()))
    }

    /// Returns the target of the offset at `at`.
    fn follow(&self, at: usize) -> Result<usize, Invalid> {
        match at.checked_add(self.size(at, 4)?) {
            Some(target) if target < self.file.len() => Ok(target),
            _ => invalid!("damaged FlatBuffer: the offset at {at} leads outside the file"),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Invalid> {
        match self.budget.checked_sub(bytes) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => invalid!("damaged FlatBuffer: it unfolds to far more than its size"),
        }
    }

    /// Returns the position of field `slot` of the table at `table`; `None` if it is absent.
    fn field(&self, table: usize, slot: usize) -> Result<Option<usize>, Invalid> {
        let back = i32::from_le_bytes(self.bytes(table, 4)?.try_into().unwrap_or_default());
        let vtable = i64::try_from(table).ok().and_then(|t| t.checked_sub(back.into()));
        let Some(vtable) = vtable.and_then(|v| usize::try_from(v).ok()) else {
            return invalid!("damaged FlatBuffer: the table at {table} has no field table");
        };
        let entry = slot.saturating_mul(2).saturating_add(4);
        if entry >= self.size(vtable, 2)? {
            return Ok(None);
        }
        let offset = self.size(vtable.saturating_add(entry), 2)?;
        Ok((offset != 0).then(|| table.saturating_add(offset)))
    }

    fn table(
        &mut self,
        at: usize,
        name: &str,
        depth: usize,
    ) -> Result<WIPOffset<flatbuffers::TableFinishedWIPOffset>, Invalid> {
        if depth > MAX_DEPTH {
            return invalid!("damaged FlatBuffer: tables are nested too deep");
        }
        let fields = self.schema.tables.get(name).cloned().unwrap_or_default();
        let mut values: Vec<(usize, Value)> = Vec::new();
        let mut slot = 0usize;
        for kind in fields {
            let width = if matches!(kind, Kind::Union(_)) { 2 } else { 1 };
            self.read_field(at, slot, &kind, depth, &mut values)?;
            slot = slot.saturating_add(width);
        }
        self.spend(values.len().saturating_mul(12).saturating_add(8))?;
        let start = self.builder.start_table();
        for (slot, value) in values {
            let entry = slot.checked_mul(2).and_then(|s| s.checked_add(4));
            let Some(entry) = entry.and_then(|e| VOffsetT::try_from(e).ok()) else { continue };
            match value {
                Value::Number(1, v) => self.builder.push_slot_always(entry, low::<u8>(v)),
                Value::Number(2, v) => self.builder.push_slot_always(entry, low::<u16>(v)),
                Value::Number(4, v) => self.builder.push_slot_always(entry, low::<u32>(v)),
                Value::Number(_, v) => self.builder.push_slot_always(entry, v),
                Value::Offset(o) => self.builder.push_slot_always(entry, WIPOffset::<()>::new(o)),
            }
        }
        Ok(self.builder.end_table(start))
    }

    fn read_field(
        &mut self,
        table: usize,
        slot: usize,
        kind: &Kind,
        depth: usize,
        values: &mut Vec<(usize, Value)>,
    ) -> Result<(), Invalid> {
        let Some(at) = self.field(table, slot)? else { return Ok(()) };
        let next = depth.saturating_add(1);
        let value = match kind {
            Kind::Scalar(size) => Value::Number(*size, self.number(at, *size)?),
            Kind::String => Value::Offset(self.string(self.follow(at)?)?),
            Kind::Table(name) => Value::Offset(self.table(self.follow(at)?, name, next)?.value()),
            Kind::Scalars(size) => Value::Offset(self.scalars(self.follow(at)?, *size)?),
            Kind::Strings | Kind::Tables(_) => {
                let vector = self.follow(at)?;
                let count = self.size(vector, 4)?;
                self.spend(count.saturating_mul(4).saturating_add(4))?;
                self.bytes(vector.saturating_add(4), count.saturating_mul(4))?;
                let mut offsets = Vec::with_capacity(count);
                for i in 0..count {
                    let element =
                        self.follow(vector.saturating_add(4).saturating_add(i.saturating_mul(4)))?;
                    offsets.push(WIPOffset::<()>::new(match kind {
                        Kind::Tables(name) => self.table(element, name, next)?.value(),
                        _ => self.string(element)?,
                    }));
                }
                Value::Offset(self.builder.create_vector(&offsets).value())
            }
            Kind::Union(name) => {
                let code = low::<u8>(self.number(at, 1)?);
                let member = self.schema.unions.get(name).and_then(|u| u.get(&code)).cloned();
                if member.is_none() && code != 0 {
                    return invalid!("damaged FlatBuffer: {name} has the unknown type {code}");
                }
                // A type without a value is ignored.
                let (Some(member), Some(at)) = (member, self.field(table, slot.saturating_add(1))?) else {
                    return Ok(());
                };
                let value = self.table(self.follow(at)?, &member, next)?.value();
                values.push((slot, Value::Number(1, code.into())));
                values.push((slot.saturating_add(1), Value::Offset(value)));
                return Ok(());
            }
        };
        values.push((slot, value));
        Ok(())
    }

    fn string(&mut self, at: usize) -> Result<u32, Invalid> {
        let len = self.size(at, 4)?;
        let text = String::from_utf8_lossy(self.bytes(at.saturating_add(4), len)?).into_owned();
        self.spend(text.len().saturating_add(8))?;
        Ok(self.builder.create_string(&text).value())
    }

    fn scalars(&mut self, at: usize, size: usize) -> Result<u32, Invalid> {
        let count = self.size(at, 4)?;
        let len = count.saturating_mul(size);
        self.spend(len.saturating_add(12))?;
        let bytes = self.bytes(at.saturating_add(4), len)?.to_vec();
        let chunks = bytes.chunks_exact(size);
        let wide = |c: &[u8]| c.iter().rev().fold(0u64, |n, &b| (n << 8) | u64::from(b));
        Ok(match size {
            1 => self.builder.create_vector(&bytes).value(),
            2 => self.builder.create_vector(&chunks.map(|c| low::<u16>(wide(c))).collect::<Vec<_>>()).value(),
            4 => self.builder.create_vector(&chunks.map(|c| low::<u32>(wide(c))).collect::<Vec<_>>()).value(),
            _ => self.builder.create_vector(&chunks.map(wide).collect::<Vec<_>>()).value(),
        })
    }
}

/// Converts a number that is known to fit; zero if it does not.
fn low<T: TryFrom<u64> + Default>(value: u64) -> T {
    T::try_from(value).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_schema_is_understood() {
        let schema = Schema::parse(delegraph_schema::SCHEMA);
        assert_eq!(schema.tables["Buffer"], [Kind::Scalars(1), Kind::Scalar(8), Kind::Scalar(8)]);
        assert_eq!(schema.tables["Operator"][3], Kind::Union("BuiltinOptions".into()));
        assert_eq!(schema.tables["OperatorCode"][0], Kind::Scalar(1));
        assert_eq!(schema.tables["OperatorCode"][3], Kind::Scalar(4));
        assert_eq!(schema.tables["Model"][2], Kind::Tables("SubGraph".into()));
        assert_eq!(schema.unions["BuiltinOptions"][&1], "Conv2DOptions");
        assert!(schema.tables.len() > 150);
    }

    /// A model of one operator, with or without the value of its options.
    fn model(with_value: bool) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let options = schema::ReshapeOptions::create(&mut builder, &Default::default());
        let operator = schema::Operator::create(
            &mut builder,
            &schema::OperatorArgs {
                builtin_options_type: schema::BuiltinOptions::ReshapeOptions,
                builtin_options: with_value.then(|| options.as_union_value()),
                ..Default::default()
            },
        );
        let operators = builder.create_vector(&[operator]);
        let graph = schema::SubGraphArgs { operators: Some(operators), ..Default::default() };
        let graph = schema::SubGraph::create(&mut builder, &graph);
        let subgraphs = builder.create_vector(&[graph]);
        let args = schema::ModelArgs { version: 3, subgraphs: Some(subgraphs), ..Default::default() };
        let model = schema::Model::create(&mut builder, &args);
        schema::finish_model_buffer(&mut builder, model);
        builder.finished_data().to_vec()
    }

    #[test]
    fn a_union_without_its_value_is_dropped() {
        let sloppy = model(false);
        assert!(schema::root_as_model(&sloppy).is_err());
        let rewritten = rewrite(&sloppy).unwrap();
        let operator = schema::root_as_model(&rewritten)
            .unwrap()
            .subgraphs()
            .unwrap()
            .get(0)
            .operators()
            .unwrap()
            .get(0);
        assert_eq!(operator.builtin_options_type(), schema::BuiltinOptions::NONE);
    }

    #[test]
    fn unaligned_fields_are_aligned() {
        // Everything behind the identifier moves by one byte.
        let aligned = model(true);
        let mut sloppy = aligned.clone();
        sloppy.insert(8, 0);
        sloppy[0] += 1;
        assert!(schema::root_as_model(&sloppy).is_err());
        let rewritten = rewrite(&sloppy).unwrap();
        let model = schema::root_as_model(&rewritten).unwrap();
        let operator = model.subgraphs().unwrap().get(0).operators().unwrap().get(0);
        assert_eq!(operator.builtin_options_type(), schema::BuiltinOptions::ReshapeOptions);
        assert_eq!(model.version(), 3);
    }

    #[test]
    fn damage_stays_an_error() {
        let file = model(true);
        for end in 0..file.len() {
            // Any prefix of the file is read without a panic.
            let _ = rewrite(&file[..end]);
        }
        assert!(rewrite(&file[..8]).is_err());
        assert!(rewrite(&[0xff; 64]).is_err());
    }
}
