//! Options of custom ops: a FlexBuffer map.
//!
//! The `flexbuffers` crate panics on some damaged maps, and options come from files; the few kinds of values that the ops
//! here have are read with every offset checked. Tests read what that crate writes.

use delegraph_core::Result;

use super::invalid;

/// A map from names to numbers, texts and lists of numbers.
pub(super) struct Options<'a> {
    bytes: &'a [u8],
    /// Where the values are, and the width of each.
    values: usize,
    width: usize,
    /// Where the offsets of the names are, and the width of each.
    keys: usize,
    keys_width: usize,
    len: usize,
}

const MAP: u8 = 9;

/// A value: where it is, the width of what holds it, and its type, whose lowest two bits are the width of what it refers
/// to.
#[derive(Clone, Copy)]
struct Value {
    at: usize,
    width: usize,
    ty: u8,
}

impl<'a> Options<'a> {
    /// Reads a map.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        Self::map(bytes).ok_or_else(|| invalid(format!("{} bytes of options that are no map", bytes.len())))
    }

    fn map(bytes: &'a [u8]) -> Option<Self> {
        let &[.., ty, root_width] = bytes else { return None };
        let root = bytes.len().checked_sub(2)?.checked_sub(root_width.into())?;
        if ty >> 2 != MAP {
            return None;
        }
        let width = 1usize << (ty & 3);
        let values = referred(bytes, root, root_width.into())?;
        let before = |words: usize| values.checked_sub(words * width);
        let len = unsigned(bytes, before(1)?, width)?;
        let keys_width = unsigned(bytes, before(2)?, width)?;
        let keys = referred(bytes, before(3)?, width)?;
        let sound = len <= bytes.len() && matches!(keys_width, 1 | 2 | 4 | 8);
        sound.then_some(Options { bytes, values, width, keys, keys_width, len })
    }

    fn find(&self, name: &str) -> Option<Value> {
        let is_named = |i: &usize| {
            let key = self.keys.checked_add(i * self.keys_width);
            let key = key.and_then(|at| referred(self.bytes, at, self.keys_width));
            let text = key.and_then(|at| self.bytes.get(at..));
            text.and_then(|text| text.strip_prefix(name.as_bytes()))
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        let i = (0..self.len).find(is_named)?;
        let types = self.values.checked_add(self.len * self.width)?;
        let ty = *self.bytes.get(types.checked_add(i)?)?;
        Some(Value { at: self.values + i * self.width, width: self.width, ty })
    }

    /// A number of any type; a truth value is 0 or 1.
    fn read(&self, value: Value) -> Option<f64> {
        let Value { at, width, ty } = value;
        let inner = 1usize << (ty & 3);
        match ty >> 2 {
            1 => signed(self.bytes, at, width).map(|v| v as f64),
            2 | 26 => unsigned(self.bytes, at, width).map(|v| v as f64),
            3 => float(self.bytes, at, width),
            6 => signed(self.bytes, referred(self.bytes, at, width)?, inner).map(|v| v as f64),
            7 => unsigned(self.bytes, referred(self.bytes, at, width)?, inner).map(|v| v as f64),
            8 => float(self.bytes, referred(self.bytes, at, width)?, inner),
            _ => None,
        }
    }

    /// The number of this name; `None` where there is none.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        // Null: as if it was not there.
        if value.ty >> 2 == 0 {
            return Ok(None);
        }
        self.read(value).map(Some).ok_or_else(|| invalid(format!("the option {name} is no number")))
    }

    /// The number of this name, 0 where there is none.
    pub(super) fn float(&self, name: &str) -> Result<f32> {
        Ok(self.number(name)?.unwrap_or(0.0) as f32)
    }

    /// The size, count or index of this name, 0 where there is none.
    pub(super) fn size(&self, name: &str) -> Result<usize> {
        size(name, self.number(name)?.unwrap_or(0.0))
    }

    /// The sizes or indices of this name, none where there are none.
    pub(super) fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        let Some(value) = self.find(name) else { return Ok(Vec::new()) };
        let list =
            self.list(value).ok_or_else(|| invalid(format!("the option {name} is no list of numbers")))?;
        list.into_iter().map(|v| size(name, v)).collect()
    }

    fn list(&self, value: Value) -> Option<Vec<f64>> {
        let (inner, kind) = (1usize << (value.ty & 3), value.ty >> 2);
        let start = referred(self.bytes, value.at, value.width)?;
        let len = match kind {
            10..=13 => unsigned(self.bytes, start.checked_sub(inner)?, inner)?,
            // Lists of two, three or four numbers of one type do not store how many they are.
            16..=24 => usize::from((kind - 16) / 3 + 2),
            _ => return None,
        };
        if len > self.bytes.len() {
            return None;
        }
        let types = start.checked_add(len * inner)?;
        let element = |i: usize| {
            let ty = match kind {
                10 => *self.bytes.get(types.checked_add(i)?)?,
                11..=13 => (kind - 10) << 2,
                _ => ((kind - 16) % 3 + 1) << 2,
            };
            self.read(Value { at: start + i * inner, width: inner, ty })
        };
        (0..len).map(element).collect()
    }

    /// The text of this name; `None` where there is none.
    pub(super) fn text(&self, name: &str) -> Option<&'a [u8]> {
        let value = self.find(name).filter(|value| value.ty >> 2 == 5)?;
        let (inner, start) = (1usize << (value.ty & 3), referred(self.bytes, value.at, value.width)?);
        let len = unsigned(self.bytes, start.checked_sub(inner)?, inner)?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

fn size(name: &str, value: f64) -> Result<usize> {
    if value.fract() == 0.0 && (0.0..=f64::from(i32::MAX)).contains(&value) {
        return Ok(value as usize);
    }
    Err(invalid(format!("the option {name} is {value}")))
}

/// Where the offset at `at` leads: backwards.
fn referred(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    at.checked_sub(unsigned(bytes, at, width)?)
}

fn unsigned(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let value = bytes.get(at..at.checked_add(width)?)?;
    let mut wide = [0; 8];
    wide.get_mut(..width)?.copy_from_slice(value);
    usize::try_from(u64::from_le_bytes(wide)).ok()
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
        map.push("negative", -5);
        map.push("yes", true);
        map.push("third", 1.0 / 3.0);
        map.push("text", "bilinear");
        map.push("pair", &[7, 8]);
        let mut list = map.start_vector("list");
        (0..100u32).for_each(|i| list.push(i * 3));
        list.end_vector();
        let mut mixed = map.start_vector("mixed");
        mixed.push(2);
        mixed.push(1.5);
        mixed.end_vector();
        map.end_map();
        builder.view().to_vec()
    }

    #[test]
    fn reads_what_is_written() {
        let bytes = map();
        let options = Options::parse(&bytes).unwrap();
        assert_eq!(options.size("big").unwrap(), 300_000);
        assert_eq!(options.number("negative").unwrap(), Some(-5.0));
        assert!(options.size("negative").unwrap_err().to_string().contains("negative is -5"));
        assert_eq!(options.number("yes").unwrap(), Some(1.0));
        assert_eq!(options.float("third").unwrap(), 1.0 / 3.0);
        assert_eq!(options.text("text"), Some(&b"bilinear"[..]));
        assert_eq!(options.sizes("pair").unwrap(), [7, 8]);
        assert_eq!(options.sizes("list").unwrap(), (0..100).map(|i| i * 3).collect::<Vec<_>>());
        assert!(options.sizes("mixed").unwrap_err().to_string().contains("1.5"));
        assert_eq!((options.number("tex").unwrap(), options.size("none").unwrap()), (None, 0));
        assert!(options.number("text").is_err() && options.sizes("text").is_err());
    }

    /// Whatever the bytes are, reading them ends, in an error or not.
    #[test]
    fn damaged_maps_are_read_safely() {
        let good = map();
        for at in 0..good.len() {
            for value in [0, 1, 0x27, 0x7F, 0xFF] {
                let mut bytes = good.clone();
                bytes[at] = value;
                let Ok(options) = Options::parse(&bytes) else { continue };
                for name in ["big", "list", "mixed", "pair", "text"] {
                    let _ = (options.number(name), options.sizes(name), options.text(name));
                }
            }
        }
        assert!(Options::parse(&[]).is_err());
        assert!(Options::parse(&[1, 4, 1]).is_err());
    }
}
