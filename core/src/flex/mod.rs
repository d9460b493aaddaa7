//! FlexBuffers: the format of the options of most custom ops, and of the attributes of composites.
//!
//! ```
//! use delegraph_core::flex::Map;
//!
//! let mut writer = flexbuffers::Builder::default();
//! let mut map = writer.start_map();
//! map.push("window", 3);
//! map.push("mode", "nearest");
//! map.end_map();
//!
//! let options = Map::parse(writer.view())?;
//! let window: usize = options.get("window")?;
//! let mode: &str = options.get_or("mode", "linear")?;
//! assert_eq!((window, mode), (3, "nearest"));
//! assert_eq!(options.get::<f32>("mode").unwrap_err().to_string(),
//!     "invalid node: option \"mode\" is the text \"nearest\", wanted a number");
//! # Ok::<(), delegraph_core::Error>(())
//! ```
//!
//! The `flexbuffers` crate panics on some damaged maps, and options come from files: here every offset is checked.

use std::fmt;

use crate::error::{Error, Result, counted};

mod attributes;

pub use attributes::{Attribute, Attributes};

/// A map from names to values.
#[derive(Clone, Copy)]
pub struct Map<'a> {
    bytes: &'a [u8],
    /// The position of the values, and the width of each.
    values: usize,
    width: usize,
    /// The position of the names' offsets, and the width of each.
    keys: usize,
    keys_width: usize,
    len: usize,
}

/// A value: its position, the width of its slot in bytes, and its type. The lowest two bits of the type are the binary
/// logarithm of the width of the referenced data.
#[derive(Clone, Copy)]
struct Slot {
    at: usize,
    width: usize,
    ty: u8,
}

/// A value of a map or a list.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A whole number above the range of `i64`.
    Uint(u64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
    /// Values in order.
    List(Vec<Value<'a>>),
    /// Another map.
    Map(Map<'a>),
}

const MAP: u8 = 9;
/// The maximum nesting of lists: damaged bytes may refer to themselves.
const DEEPEST: usize = 16;

/// All texts in one value together may have this number of times the bytes of the map: writers store a repeated text
/// only once.
const TEXT_READS: usize = 64;

/// The limits that remain while a value is read.
struct Reads {
    depth: usize,
    /// Elements of lists; initially the number of bytes of the map, because each element takes at least one.
    values: usize,
    /// Bytes of texts.
    text: usize,
}

impl Reads {
    fn text<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a str> {
        self.text = self.text.checked_sub(bytes.len())?;
        std::str::from_utf8(bytes).ok()
    }
}

impl<'a> Map<'a> {
    /// Reads a map.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the bytes are not a map.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let map = || {
            let &[.., ty, width] = bytes else { return None };
            let at = bytes.len().checked_sub(2)?.checked_sub(width.into())?;
            Self::at(bytes, Slot { at, width: width.into(), ty })
        };
        map().ok_or_else(|| {
            let size = counted(bytes.len(), "byte");
            Error::InvalidNode(format!("{size} of options, which are not a FlexBuffer map"))
        })
    }

    fn at(bytes: &'a [u8], slot: Slot) -> Option<Self> {
        if slot.ty >> 2 != MAP {
            return None;
        }
        let width = 1usize << (slot.ty & 3);
        let values = referred(bytes, slot.at, slot.width)?;
        let before = |words: usize| values.checked_sub(words.checked_mul(width)?);
        let len = unsigned(bytes, before(1)?, width)?;
        let keys_width = unsigned(bytes, before(2)?, width)?;
        let keys = referred(bytes, before(3)?, width)?;
        let sound = len <= bytes.len() && matches!(keys_width, 1 | 2 | 4 | 8);
        sound.then_some(Map { bytes, values, width, keys, keys_width, len })
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map has no names.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the names, in alphabetical order; those that are not UTF-8 are left out. Names of a damaged map may
    /// overlap: the number of names returned is limited by the bytes of the map.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        let (map, mut left) = (*self, self.bytes.len());
        let names = (0..self.len).map_while(move |i| {
            let Some(text) = map.key(i) else { return Some(None) };
            let name = text.get(..left.min(text.len()))?.split(|&b| b == 0).next()?;
            left = left.checked_sub(name.len().checked_add(1)?)?;
            Some(std::str::from_utf8(name).ok())
        });
        names.flatten()
    }

    /// Returns the bytes from the start of name `i`, which ends before the first zero.
    fn key(&self, i: usize) -> Option<&'a [u8]> {
        let at = self.keys.checked_add(i.checked_mul(self.keys_width)?)?;
        self.bytes.get(referred(self.bytes, at, self.keys_width)?..)
    }

    fn is_key(&self, i: usize, name: &[u8]) -> bool {
        let rest = self.key(i).and_then(|text| text.strip_prefix(name));
        rest.is_some_and(|rest| rest.first().is_none_or(|&end| end == 0))
    }

    /// Returns the value of `key`; `None` if the map does not have it.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if the bytes of the value are damaged, or its lists are nested more than 16 deep.
    pub fn value(&self, key: &str) -> Result<Option<Value<'a>>> {
        let found = (0..self.len).find(|&i| self.is_key(i, key.as_bytes()));
        let Some(i) = found else { return Ok(None) };
        let slot = || {
            let types = self.values.checked_add(self.len.checked_mul(self.width)?)?;
            let ty = *self.bytes.get(types.checked_add(i)?)?;
            let at = self.values.checked_add(i.checked_mul(self.width)?)?;
            let (values, text) = (self.bytes.len(), self.bytes.len().saturating_mul(TEXT_READS));
            let mut reads = Reads { depth: DEEPEST, values, text };
            read(self.bytes, Slot { at, width: self.width, ty }, &mut reads)
        };
        let damaged = || Error::InvalidNode(format!("option \"{key}\": its bytes are damaged"));
        slot().map(Some).ok_or_else(damaged)
    }

    /// Returns the value of `key`, which must be there, not null, and of the wanted type.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] that names the key and up to 20 existing keys, or the found and the wanted type; those of
    /// [`Map::value`].
    pub fn get<T: FromValue<'a>>(&self, key: &str) -> Result<T> {
        self.optional(key)?.ok_or_else(|| {
            let keys: Vec<String> = self.keys().take(20).map(|key| format!("\"{key}\"")).collect();
            let has = if keys.is_empty() {
                "there are none".into()
            } else {
                format!("there are: {}", keys.join(", "))
            };
            Error::InvalidNode(format!("option \"{key}\" is missing; {has}"))
        })
    }

    /// Returns the value of `key`, or `default` where the map does not have it or has null.
    ///
    /// # Errors
    /// [`Error::InvalidNode`] if it has another type; the error names the found and the wanted type. Those of
    /// [`Map::value`].
    pub fn get_or<T: FromValue<'a>>(&self, key: &str, default: T) -> Result<T> {
        Ok(self.optional(key)?.unwrap_or(default))
    }

    /// Returns the value of `key`; `None` if the map does not have it or has null.
    ///
    /// # Errors
    /// As [`Map::get_or`].
    pub fn optional<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>> {
        match self.value(key)? {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::from_value(&value).map(Some).ok_or_else(|| {
                Error::InvalidNode(format!("option \"{key}\" is {value}, wanted {}", T::wanted()))
            }),
        }
    }
}

impl fmt::Debug for Map<'_> {
    /// Only the names: damaged maps may contain themselves.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.keys()).finish()
    }
}

impl PartialEq for Map<'_> {
    /// The same bytes, at the same position in the parsed buffer.
    fn eq(&self, other: &Self) -> bool {
        (self.values, self.len, self.bytes) == (other.values, other.len, other.bytes)
    }
}

impl fmt::Display for Value<'_> {
    /// In words, as errors name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Longer texts are cut.
        const LONGEST: usize = 40;
        match self {
            Value::Null => f.write_str("null"),
            Value::Int(v) => write!(f, "the whole number {v}"),
            Value::Uint(v) => write!(f, "the whole number {v}"),
            Value::Float(v) => write!(f, "the number {v:?}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Text(text) => match text.char_indices().nth(LONGEST) {
                Some((end, _)) => write!(f, "the text {:?}…", text.get(..end).unwrap_or(text)),
                None => write!(f, "the text {text:?}"),
            },
            Value::Blob(bytes) => f.write_str(&counted(bytes.len(), "byte")),
            Value::List(list) => write!(f, "a list of {}", list.len()),
            Value::Map(_) => f.write_str("a map"),
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that an option can be read as. Other crates cannot implement it.
pub trait FromValue<'a>: Sized + sealed::Sealed {
    /// Returns the wanted type, in words: "a whole number".
    fn wanted() -> String;

    /// Returns the value as this type; `None` if it has another type, or is a whole number outside of this type's
    /// range. A whole number is also a number. Numbers are rounded to the precision of `f64` or `f32`; nothing else is
    /// converted.
    fn from_value(value: &Value<'a>) -> Option<Self>;
}

macro_rules! whole_numbers {
    ($($ty:ty),+) => {$(
        impl sealed::Sealed for $ty {}
        impl<'a> FromValue<'a> for $ty {
            fn wanted() -> String {
                format!("a whole number from {} to {}", <$ty>::MIN, <$ty>::MAX)
            }

            fn from_value(value: &Value<'a>) -> Option<Self> {
                match *value {
                    Value::Int(v) => v.try_into().ok(),
                    Value::Uint(v) => v.try_into().ok(),
                    _ => None,
                }
            }
        }
    )+};
}
whole_numbers!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

impl sealed::Sealed for f64 {}
impl<'a> FromValue<'a> for f64 {
    fn wanted() -> String {
        "a number".into()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match *value {
            Value::Float(v) => Some(v),
            Value::Int(v) => Some(v as f64),
            Value::Uint(v) => Some(v as f64),
            _ => None,
        }
    }
}

impl sealed::Sealed for f32 {}
impl<'a> FromValue<'a> for f32 {
    fn wanted() -> String {
        f64::wanted()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        f64::from_value(value).map(|v| v as f32)
    }
}

macro_rules! plain {
    ($($ty:ty, $wanted:literal, $pattern:pat => $value:expr;)+) => {$(
        impl<'a> sealed::Sealed for $ty {}
        impl<'a> FromValue<'a> for $ty {
            fn wanted() -> String {
                $wanted.into()
            }

            fn from_value(value: &Value<'a>) -> Option<Self> {
                match value {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        }
    )+};
}
plain! {
    bool, "true or false", Value::Bool(v) => *v;
    &'a str, "a text", Value::Text(v) => v;
    String, "a text", Value::Text(v) => (*v).to_owned();
    &'a [u8], "bytes", Value::Blob(v) => v;
    Map<'a>, "a map", Value::Map(v) => *v;
}

impl sealed::Sealed for Value<'_> {}
impl<'a> FromValue<'a> for Value<'a> {
    fn wanted() -> String {
        "a value".into()
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        Some(value.clone())
    }
}

impl<T: sealed::Sealed> sealed::Sealed for Vec<T> {}
impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    fn wanted() -> String {
        format!("a list in which each element is {}", T::wanted())
    }

    fn from_value(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::List(list) => list.iter().map(T::from_value).collect(),
            _ => None,
        }
    }
}

fn read<'a>(bytes: &'a [u8], slot: Slot, reads: &mut Reads) -> Option<Value<'a>> {
    let Slot { at, width, ty } = slot;
    let inner = 1usize << (ty & 3);
    let whole = |v: u64| i64::try_from(v).map_or(Value::Uint(v), Value::Int);
    let there = || referred(bytes, at, width);
    Some(match ty >> 2 {
        0 => Value::Null,
        1 => Value::Int(signed(bytes, at, width)?),
        2 => whole(wide(bytes, at, width)?),
        3 => Value::Float(float(bytes, at, width)?),
        // A text that ends with a zero byte. Writers may refer to the name of a map for it.
        4 => Value::Text(reads.text(bytes.get(there()?..)?.split(|&b| b == 0).next()?)?),
        5 => Value::Text(reads.text(sized(bytes, there()?, inner)?)?),
        6 => Value::Int(signed(bytes, there()?, inner)?),
        7 => whole(wide(bytes, there()?, inner)?),
        8 => Value::Float(float(bytes, there()?, inner)?),
        MAP => Value::Map(Map::at(bytes, slot)?),
        kind @ (10..=14 | 16..=24 | 36) => Value::List(list(bytes, there()?, kind, inner, reads)?),
        25 => Value::Blob(sized(bytes, there()?, inner)?),
        26 => Value::Bool(wide(bytes, at, width)? != 0),
        _ => return None,
    })
}

fn list<'a>(
    bytes: &'a [u8],
    start: usize,
    kind: u8,
    width: usize,
    reads: &mut Reads,
) -> Option<Vec<Value<'a>>> {
    let len = match kind {
        // Lists of two, three or four numbers of one type do not store their length.
        16..=24 => usize::from((kind - 16) / 3 + 2),
        _ => unsigned(bytes, start.checked_sub(width)?, width)?,
    };
    let types = start.checked_add(len.checked_mul(width)?)?;
    // Checked here, so that a damaged length does not allocate memory.
    bytes.get(start..types)?;
    reads.values = reads.values.checked_sub(len)?;
    reads.depth = reads.depth.checked_sub(1)?;
    let element = |i: usize| {
        let ty = match kind {
            10 => *bytes.get(types.checked_add(i)?)?,
            11..=14 => (kind - 10) << 2,
            36 => 26 << 2,
            _ => ((kind - 16) % 3 + 1) << 2,
        };
        read(bytes, Slot { at: start.checked_add(i.checked_mul(width)?)?, width, ty }, reads)
    };
    let list = (0..len).map(element).collect();
    reads.depth += 1;
    list
}

/// Bytes at `at`, preceded by their number.
fn sized(bytes: &[u8], at: usize, width: usize) -> Option<&[u8]> {
    let len = unsigned(bytes, at.checked_sub(width)?, width)?;
    bytes.get(at..at.checked_add(len)?)
}

/// Returns the target of the offset at `at`, which points backwards.
fn referred(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    at.checked_sub(unsigned(bytes, at, width)?)
}

fn wide(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let value = bytes.get(at..at.checked_add(width)?)?;
    let mut wide = [0; 8];
    wide.get_mut(..width)?.copy_from_slice(value);
    Some(u64::from_le_bytes(wide))
}

fn unsigned(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    wide(bytes, at, width).and_then(|v| usize::try_from(v).ok())
}

fn signed(bytes: &[u8], at: usize, width: usize) -> Option<i64> {
    let value = bytes.get(at..at.checked_add(width)?)?;
    let mut wide = [if value.last()? & 0x80 == 0 { 0 } else { 0xFF }; 8];
    wide.get_mut(..width)?.copy_from_slice(value);
    Some(i64::from_le_bytes(wide))
}

fn float(bytes: &[u8], at: usize, width: usize) -> Option<f64> {
    let value = bytes.get(at..at.checked_add(width)?)?;
    match width {
        2 => Some(half::f16::from_le_bytes(value.try_into().ok()?).into()),
        4 => Some(f32::from_le_bytes(value.try_into().ok()?).into()),
        8 => Some(f64::from_le_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("big", 300_000);
        map.push("huge", u64::MAX);
        map.push("negative", -5);
        map.push("yes", true);
        map.push("third", 1.0 / 3.0);
        map.push("text", "bilinear");
        map.push("empty", "");
        map.push("nothing", ());
        map.push("blob", flexbuffers::Blob(&[1u8, 2, 3][..]));
        map.push("pair", &[7, 8]);
        map.push("bools", &[true, false]);
        let mut list = map.start_vector("list");
        (0..100u32).for_each(|i| list.push(i * 3));
        list.end_vector();
        let mut mixed = map.start_vector("mixed");
        mixed.push(2);
        mixed.push("two");
        mixed.end_vector();
        let mut inner = map.start_map("inner");
        inner.push("deep", 1.5f32);
        inner.end_map();
        map.end_map();
        builder.view().to_vec()
    }

    /// A map of `len` names, all of which refer to one text of `text` bytes.
    fn overlapping(len: usize, text: usize) -> Vec<u8> {
        let mut bytes = vec![b'a'; text];
        bytes.push(0);
        bytes.extend((len as u32).to_le_bytes());
        let keys = bytes.len();
        (0..len).for_each(|i| bytes.extend(((keys + 4 * i - i % text) as u32).to_le_bytes()));
        bytes.extend(((bytes.len() - keys) as u32).to_le_bytes());
        bytes.extend(4u32.to_le_bytes());
        bytes.extend((len as u32).to_le_bytes());
        let values = bytes.len();
        (0..len).for_each(|i| bytes.extend((i as u32).to_le_bytes()));
        bytes.extend(vec![1 << 2 | 2; len]);
        bytes.extend(((bytes.len() - values) as u32).to_le_bytes());
        bytes.extend([MAP << 2 | 2, 4]);
        bytes
    }

    #[test]
    fn overlapping_names_take_no_more_time_than_others() {
        let bytes = overlapping(200_000, 200_000);
        let map = Map::parse(&bytes).unwrap();
        let start = std::time::Instant::now();
        assert_eq!(map.len(), 200_000);
        assert!(map.keys().count() < 20);
        assert_eq!(map.value("window").unwrap(), None);
        assert_eq!(map.value("aa").unwrap(), Some(Value::Int(199_998)));
        // Comparing whole names would read 20 GB.
        assert!(start.elapsed().as_secs() < 2);
    }

    #[test]
    fn reads_what_is_written() {
        let bytes = map();
        let options = Map::parse(&bytes).unwrap();
        assert_eq!(options.len(), 14);
        assert_eq!(options.keys().next(), Some("big"));
        assert_eq!(options.get::<i32>("big").unwrap(), 300_000);
        assert_eq!(options.get::<f32>("big").unwrap(), 300_000.0);
        assert_eq!(options.get::<u64>("huge").unwrap(), u64::MAX);
        assert_eq!(options.get::<i8>("negative").unwrap(), -5);
        assert!(options.get::<bool>("yes").unwrap());
        assert_eq!(options.get::<f64>("third").unwrap(), 1.0 / 3.0);
        assert_eq!((options.get("text").unwrap(), options.get("empty").unwrap()), ("bilinear", ""));
        assert_eq!(options.get::<String>("text").unwrap(), "bilinear");
        assert_eq!(options.get::<&[u8]>("blob").unwrap(), [1, 2, 3]);
        assert_eq!(options.get::<Vec<usize>>("pair").unwrap(), [7, 8]);
        assert_eq!(options.get::<Vec<bool>>("bools").unwrap(), [true, false]);
        assert_eq!(options.get::<Vec<u32>>("list").unwrap(), (0..100).map(|i| i * 3).collect::<Vec<_>>());
        assert_eq!(options.get::<Vec<Value>>("mixed").unwrap(), [Value::Int(2), Value::Text("two")]);
        assert_eq!(options.get::<Map>("inner").unwrap().get::<f32>("deep").unwrap(), 1.5);
        assert_eq!(options.optional::<i32>("nothing").unwrap(), None);
        assert_eq!(options.optional::<i32>("absent").unwrap(), None);
        assert_eq!(options.get_or("absent", 4).unwrap(), 4);
        assert_eq!(options, Map::parse(&bytes.clone()).unwrap());
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let bytes = map();
        let options = Map::parse(&bytes).unwrap();
        let check = |error: Error, want: &str| assert_eq!(error.to_string(), format!("invalid node: {want}"));
        check(
            options.get::<u8>("negative").unwrap_err(),
            "option \"negative\" is the whole number -5, wanted a whole number from 0 to 255",
        );
        check(
            options.get::<i32>("third").unwrap_err(),
            "option \"third\" is the number 0.3333333333333333, wanted a whole number from -2147483648 to 2147483647",
        );
        check(
            options.get::<bool>("big").unwrap_err(),
            "option \"big\" is the whole number 300000, wanted true or false",
        );
        check(options.get::<&str>("pair").unwrap_err(), "option \"pair\" is a list of 2, wanted a text");
        check(
            options.get::<Vec<f32>>("mixed").unwrap_err(),
            "option \"mixed\" is a list of 2, wanted a list in which each element is a number",
        );
        check(
            options.get_or("yes", 3u64).unwrap_err(),
            "option \"yes\" is true, wanted a whole number from 0 to 18446744073709551615",
        );
        check(
            options.get::<Map>("inner").unwrap().get::<f32>("dep").unwrap_err(),
            "option \"dep\" is missing; there are: \"deep\"",
        );
        check(Map::parse(b"raw").unwrap_err(), "3 bytes of options, which are not a FlexBuffer map");
    }

    /// Reading any bytes ends, with a value or an error.
    #[test]
    fn damaged_maps_are_read_safely() {
        let good = map();
        for at in 0..good.len() {
            for value in [0, 1, 0x27, 0x28, 0x7F, 0xFF] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let Ok(options) = Map::parse(&bytes) else { continue };
                let _ =
                    (format!("{options:?}"), options.keys().filter(|key| options.value(key).is_ok()).count());
                let _ = options.get::<Map>("inner").map(|inner| inner.get::<f32>("deep"));
            }
            let _ = Map::parse(&good[..at]).map(|options| options.value("list").is_ok());
        }
        assert!(Map::parse(&[]).is_err() && Map::parse(&[1, 4, 1]).is_err());
    }
}
