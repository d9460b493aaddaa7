//! Attributes of composites, and options of custom ops, as most authors write them: a FlexBuffer map.
//!
//! They come from files, and the `flexbuffers` crate panics on some damaged maps. So reading is done here, with every
//! offset checked; writing is that crate's.

use crate::error::{Error, Result};

/// How deep maps and lists may be nested.
const DEPTH: usize = 16;

/// A map from names to values, read from a FlexBuffer or to be written as one.
///
/// ```
/// use delegraph_core::{Attribute, Attributes};
///
/// # fn main() -> delegraph_core::Result<()> {
/// let bytes = Attributes::new().with("epsilon", 1e-6).with("axis", -1).to_bytes();
/// let attributes = Attributes::parse(&bytes)?;
/// assert_eq!(attributes.float("epsilon")?, 1e-6);
/// assert_eq!(attributes.int("axis")?, -1);
/// assert!(attributes.int("epsilon").unwrap_err().to_string().contains("\"epsilon\" is 0.000001, not an integer"));
/// assert!(attributes.text("mode").unwrap_err().to_string().contains("no attribute \"mode\""));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(Vec<(String, Attribute)>);

/// A value in [`Attributes`].
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
    /// Values in an order.
    List(Vec<Attribute>),
    /// Named values.
    Map(Attributes),
}

macro_rules! from {
    ($($ty:ty => $make:expr;)*) => {
        $(impl From<$ty> for Attribute {
            fn from(value: $ty) -> Self {
                $make(value)
            }
        })*
    };
}

from! {
    bool => Attribute::Bool;
    i32 => |v| Attribute::Int(i64::from(v));
    i64 => Attribute::Int;
    f32 => |v| Attribute::Float(f64::from(v));
    f64 => Attribute::Float;
    &str => |v: &str| Attribute::Text(v.to_owned());
    Attributes => Attribute::Map;
    Vec<i64> => |v: Vec<i64>| Attribute::List(v.into_iter().map(Attribute::Int).collect());
    Vec<f64> => |v: Vec<f64>| Attribute::List(v.into_iter().map(Attribute::Float).collect());
    Vec<Attribute> => Attribute::List;
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |f: &mut std::fmt::Formatter<'_>, items: &mut dyn Iterator<Item = String>| {
            let items: Vec<String> = items.collect();
            f.write_str(&items.join(", "))
        };
        match self {
            Attribute::Null => f.write_str("null"),
            Attribute::Bool(v) => v.fmt(f),
            Attribute::Int(v) => v.fmt(f),
            Attribute::Float(v) => v.fmt(f),
            Attribute::Text(v) => write!(f, "{v:?}"),
            Attribute::Blob(v) => write!(f, "{} bytes", v.len()),
            Attribute::List(v) => {
                f.write_str("[")?;
                list(f, &mut v.iter().map(ToString::to_string))?;
                f.write_str("]")
            }
            Attribute::Map(v) => {
                f.write_str("{")?;
                list(f, &mut v.iter().map(|(name, v)| format!("{name}: {v}")))?;
                f.write_str("}")
            }
        }
    }
}

impl Attributes {
    /// A map without anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Attribute>) -> Self {
        self.0.retain(|(n, _)| n != name);
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// Reads a FlexBuffer map. No bytes at all are a map without anything.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] where they are not a whole map.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader { bytes, left: bytes.len() };
        match reader.root() {
            Some(Attribute::Map(map)) => Ok(map),
            _ => Err(invalid(format!("{} bytes of attributes that are no map", bytes.len()))),
        }
    }

    /// The map as a FlexBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        for (name, value) in &self.0 {
            match value {
                Attribute::Null => map.push(name, ()),
                Attribute::Bool(v) => map.push(name, *v),
                Attribute::Int(v) => map.push(name, *v),
                Attribute::Float(v) => map.push(name, *v),
                Attribute::Text(v) => map.push(name, v.as_str()),
                Attribute::Blob(v) => map.push(name, flexbuffers::Blob(v.as_slice())),
                Attribute::List(v) => write_list(&mut map.start_vector(name), v),
                Attribute::Map(v) => write_map(&mut map.start_map(name), v),
            }
        }
        map.end_map();
        builder.take_buffer()
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value).filter(|v| **v != Attribute::Null)
    }

    /// Every name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// True where there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<T> {
        let value = self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(n, _)| n.as_str()).collect();
            invalid(format!("there is no attribute \"{name}\", only: {}", names.join(", ")))
        })?;
        read(value).ok_or_else(|| invalid(format!("attribute \"{name}\" is {value}, not {wanted}")))
    }

    /// The number of this name; an integer is one, too.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] where it is missing or no number. So for the others.
    pub fn float(&self, name: &str) -> Result<f64> {
        self.typed(name, "a number", Attribute::as_float)
    }

    /// The integer of this name. A truth value is 0 or 1.
    pub fn int(&self, name: &str) -> Result<i64> {
        self.typed(name, "an integer", Attribute::as_int)
    }

    /// The truth value of this name. An integer is true unless it is 0.
    pub fn bool(&self, name: &str) -> Result<bool> {
        self.typed(name, "a truth value", |v| v.as_int().map(|v| v != 0))
    }

    /// The text of this name.
    pub fn text(&self, name: &str) -> Result<&str> {
        self.typed(name, "a text", |v| match v {
            Attribute::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The integers of this name.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        self.typed(name, "a list of integers", |v| match v {
            Attribute::List(list) => list.iter().map(Attribute::as_int).collect(),
            _ => None,
        })
    }

    /// The numbers of this name.
    pub fn floats(&self, name: &str) -> Result<Vec<f64>> {
        self.typed(name, "a list of numbers", |v| match v {
            Attribute::List(list) => list.iter().map(Attribute::as_float).collect(),
            _ => None,
        })
    }

    /// The map of this name.
    pub fn map(&self, name: &str) -> Result<&Attributes> {
        self.typed(name, "a map", |v| match v {
            Attribute::Map(map) => Some(map),
            _ => None,
        })
    }
}

impl Attribute {
    fn as_int(&self) -> Option<i64> {
        match self {
            Attribute::Int(v) => Some(*v),
            Attribute::Bool(v) => Some(i64::from(*v)),
            _ => None,
        }
    }

    fn as_float(&self) -> Option<f64> {
        match self {
            Attribute::Int(v) => Some(*v as f64),
            Attribute::Float(v) => Some(*v),
            _ => None,
        }
    }
}

fn write_list(list: &mut flexbuffers::VectorBuilder<'_>, values: &[Attribute]) {
    for value in values {
        match value {
            Attribute::Null => list.push(()),
            Attribute::Bool(v) => list.push(*v),
            Attribute::Int(v) => list.push(*v),
            Attribute::Float(v) => list.push(*v),
            Attribute::Text(v) => list.push(v.as_str()),
            Attribute::Blob(v) => list.push(flexbuffers::Blob(v.as_slice())),
            Attribute::List(v) => write_list(&mut list.start_vector(), v),
            Attribute::Map(v) => write_map(&mut list.start_map(), v),
        }
    }
}

fn write_map(map: &mut flexbuffers::MapBuilder<'_>, values: &Attributes) {
    for (name, value) in &values.0 {
        match value {
            Attribute::Null => map.push(name, ()),
            Attribute::Bool(v) => map.push(name, *v),
            Attribute::Int(v) => map.push(name, *v),
            Attribute::Float(v) => map.push(name, *v),
            Attribute::Text(v) => map.push(name, v.as_str()),
            Attribute::Blob(v) => map.push(name, flexbuffers::Blob(v.as_slice())),
            Attribute::List(v) => write_list(&mut map.start_vector(name), v),
            Attribute::Map(v) => write_map(&mut map.start_map(name), v),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::InvalidNode(message)
}

/// Reads values; each costs one of what is `left`, so that a small file cannot stand for a huge map.
struct Reader<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl Reader<'_> {
    fn root(&mut self) -> Option<Attribute> {
        let &[.., ty, width] = self.bytes else { return None };
        let at = self.bytes.len().checked_sub(2)?.checked_sub(width.into())?;
        self.value(at, width.into(), ty, DEPTH)
    }

    /// The value at `at`, in a field of `width` bytes; the lowest two bits of `ty` are the width of what it refers to.
    fn value(&mut self, at: usize, width: usize, ty: u8, depth: usize) -> Option<Attribute> {
        self.left = self.left.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        let (kind, inner) = (ty >> 2, 1usize << (ty & 3));
        Some(match kind {
            0 => Attribute::Null,
            1 => Attribute::Int(self.signed(at, width)?),
            2 => Attribute::Int(i64::try_from(self.unsigned(at, width)?).ok()?),
            3 => Attribute::Float(self.float(at, width)?),
            26 => Attribute::Bool(self.unsigned(at, width)? != 0),
            4 => Attribute::Text(self.key(self.referred(at, width)?)?.to_owned()),
            6 => Attribute::Int(self.signed(self.referred(at, width)?, inner)?),
            7 => Attribute::Int(i64::try_from(self.unsigned(self.referred(at, width)?, inner)?).ok()?),
            8 => Attribute::Float(self.float(self.referred(at, width)?, inner)?),
            5 | 25 => {
                let start = self.referred(at, width)?;
                let len = self.len(start, inner)?;
                let bytes = self.bytes.get(start..start.checked_add(len)?)?;
                match kind {
                    5 => Attribute::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
                    _ => Attribute::Blob(bytes.to_vec()),
                }
            }
            9 => Attribute::Map(self.map(self.referred(at, width)?, inner, depth)?),
            10..=24 | 36 => {
                let start = self.referred(at, width)?;
                // Lists of two, three or four numbers of one type do not store how many they are.
                let len = match kind {
                    16..=24 => usize::from((kind - 16) / 3).checked_add(2)?,
                    _ => self.len(start, inner)?,
                };
                let element = match kind {
                    10 => None,
                    11..=14 => Some(kind - 10),
                    15 => Some(5),
                    36 => Some(26),
                    _ => Some((kind - 16) % 3 + 1),
                };
                Attribute::List(self.list(start, inner, len, element, depth)?)
            }
            _ => return None,
        })
    }

    /// `len` values from `start` on, all of the type `element`, else each followed by its own.
    fn list(
        &mut self,
        start: usize,
        width: usize,
        len: usize,
        element: Option<u8>,
        depth: usize,
    ) -> Option<Vec<Attribute>> {
        let types = start.checked_add(len.checked_mul(width)?)?;
        let mut values = Vec::new();
        for i in 0..len {
            let ty = match element {
                Some(kind) => kind << 2,
                None => *self.bytes.get(types.checked_add(i)?)?,
            };
            values.push(self.value(start.checked_add(i.checked_mul(width)?)?, width, ty, depth)?);
        }
        Some(values)
    }

    fn map(&mut self, start: usize, width: usize, depth: usize) -> Option<Attributes> {
        let before = |words: usize| start.checked_sub(words.checked_mul(width)?);
        let len = self.len(start, width)?;
        let keys_width = usize::try_from(self.unsigned(before(2)?, width)?).ok()?;
        let keys = self.referred(before(3)?, width)?;
        let values = self.list(start, width, len, None, depth)?;
        let mut map = Vec::new();
        for (i, value) in values.into_iter().enumerate() {
            let key = self.referred(keys.checked_add(i.checked_mul(keys_width)?)?, keys_width)?;
            map.push((self.key(key)?.to_owned(), value));
        }
        Some(Attributes(map))
    }

    /// A text that ends with a zero.
    fn key(&self, at: usize) -> Option<&str> {
        let rest = self.bytes.get(at..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }

    /// The length that stands before what begins at `start`.
    fn len(&self, start: usize, width: usize) -> Option<usize> {
        let len = usize::try_from(self.unsigned(start.checked_sub(width)?, width)?).ok()?;
        (len <= self.bytes.len()).then_some(len)
    }

    /// Where the offset at `at` leads: backwards.
    fn referred(&self, at: usize, width: usize) -> Option<usize> {
        at.checked_sub(usize::try_from(self.unsigned(at, width)?).ok()?)
    }

    fn unsigned(&self, at: usize, width: usize) -> Option<u64> {
        let value = self.bytes.get(at..at.checked_add(width)?)?;
        let mut wide = [0; 8];
        wide.get_mut(..width)?.copy_from_slice(value);
        Some(u64::from_le_bytes(wide))
    }

    fn signed(&self, at: usize, width: usize) -> Option<i64> {
        let value = self.bytes.get(at..at.checked_add(width)?)?;
        let mut wide = [if value.last()? & 0x80 == 0 { 0 } else { 0xFF }; 8];
        wide.get_mut(..width)?.copy_from_slice(value);
        Some(i64::from_le_bytes(wide))
    }

    fn float(&self, at: usize, width: usize) -> Option<f64> {
        let value = self.bytes.get(at..at.checked_add(width)?)?;
        match width {
            2 => Some(half::f16::from_le_bytes(value.try_into().ok()?).into()),
            4 => Some(f32::from_le_bytes(value.try_into().ok()?).into()),
            8 => Some(f64::from_le_bytes(value.try_into().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Attributes {
        let axes = Attributes::new().with("TENSOR_DATA", vec![1i64, 2, 700]);
        Attributes::new()
            .with("epsilon", 0.1f64)
            .with("scale", 0.5f32)
            .with("axis", -1)
            .with("large", i64::MIN)
            .with("on", true)
            .with("mode", "tanh")
            .with("nothing", Attribute::Null)
            .with("bytes", Attribute::Blob(vec![1, 2, 3]))
            .with("sizes", vec![1i64, -70_000, 3])
            .with("mixed", vec![Attribute::Int(1), Attribute::Text("a".into()), axes.clone().into()])
            .with("reduction_axes", axes)
    }

    #[test]
    fn what_is_written_is_read() {
        let read = Attributes::parse(&all().to_bytes()).unwrap();
        for (name, value) in all().iter() {
            let found = read.iter().find(|(n, _)| *n == name).map(|(_, v)| v);
            assert_eq!(found, Some(value), "{name}");
        }
        assert_eq!(read.map("reduction_axes").unwrap().ints("TENSOR_DATA").unwrap(), [1, 2, 700]);
        assert_eq!(read.float("axis").unwrap(), -1.0);
        assert!(read.bool("on").unwrap());
        assert_eq!(read.text("mode").unwrap(), "tanh");
        assert_eq!(read.floats("sizes").unwrap(), [1.0, -70_000.0, 3.0]);
        assert!(Attributes::parse(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_missing_name_and_a_wrong_type_are_errors() {
        let all = all();
        assert!(all.int("nothing").unwrap_err().to_string().contains("no attribute \"nothing\""));
        assert!(all.int("mode").unwrap_err().to_string().contains("is \"tanh\", not an integer"));
        assert!(all.ints("mixed").unwrap_err().to_string().contains("not a list of integers"));
        assert!(all.map("sizes").unwrap_err().to_string().contains("[1, -70000, 3]"));
    }

    #[test]
    fn lists_of_one_type_are_read() {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        let mut typed = map.start_vector("two");
        typed.push(3u8);
        typed.push(4u8);
        typed.end_vector();
        map.push("indirect", flexbuffers::IndirectFloat(2.5f64));
        map.end_map();
        let read = Attributes::parse(builder.view()).unwrap();
        assert_eq!(read.ints("two").unwrap(), [3, 4]);
        assert_eq!(read.float("indirect").unwrap(), 2.5);
    }

    #[test]
    fn damage_is_an_error_or_other_values_never_a_panic() {
        let bytes = all().to_bytes();
        for i in 0..bytes.len() {
            let _ = Attributes::parse(&bytes[..i]);
            for flip in [1u8, 0x80, 0xFF] {
                let mut damaged = bytes.clone();
                damaged[i] ^= flip;
                let _ = Attributes::parse(&damaged);
            }
        }
        assert!(Attributes::parse(&[1, 2, 3]).unwrap_err().to_string().contains("no map"));
    }
}
