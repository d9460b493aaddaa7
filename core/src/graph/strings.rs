//! The strings of a STRING tensor.
//!
//! Its bytes are 32-bit integers (the number of strings, the start of each one and the end of the last one, counted
//! from the tensor's start), followed by the bytes of the strings. The strings need not be UTF-8.

use std::convert::Infallible;

use crate::error::{Error, Result, counted};

/// Strings that are read between two polls: less than a millisecond.
const POLLED: usize = 1 << 14;

/// Bytes of strings that are written between two polls: some milliseconds.
const POLLED_BYTES: usize = 16 << 20;

/// Why bytes are not those of a STRING tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StringsError(String);

/// The strings of a STRING tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strings<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Strings<'a> {
    /// Returns the strings that a tensor's bytes hold.
    ///
    /// # Errors
    /// [`StringsError`] with the defect.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StringsError> {
        let count = word(bytes, 0).ok_or_else(|| {
            StringsError(format!(
                "its buffer of {} does not start with the number of its strings",
                counted(bytes.len(), "byte")
            ))
        })?;
        let mut previous = count.checked_add(2).and_then(|n| n.checked_mul(4));
        for i in 0..=count {
            let offset = word(bytes, i.saturating_add(1));
            if offset.is_none() || offset < previous || offset > Some(bytes.len()) {
                return Err(StringsError(format!(
                    "offset {i} of its strings is out of order or outside the texts in its buffer of {}",
                    counted(bytes.len(), "byte")
                )));
            }
            previous = offset;
        }
        Ok(Strings { bytes, count })
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// String `i`; an empty one where there are fewer.
    pub fn get(&self, i: usize) -> &'a [u8] {
        if i >= self.count {
            return &[];
        }
        let offset = |i: usize| word(self.bytes, i.saturating_add(1));
        let (Some(begin), Some(end)) = (offset(i), offset(i.saturating_add(1))) else { return &[] };
        self.bytes.get(begin..end).unwrap_or_default()
    }

    /// Iterates over all strings.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let strings = *self;
        (0..self.count).map(move |i| strings.get(i))
    }

    /// Returns the number of bytes of a tensor that holds these strings.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if their number or length exceeds the format's limits.
    pub fn encoded_size<'s>(strings: impl ExactSizeIterator<Item = &'s [u8]>) -> Result<usize> {
        encoded_size_polled(strings, || Ok(()))
    }

    /// Returns the bytes of a tensor that holds these strings.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if their number or length exceeds the format's limits, or the allocation fails.
    pub fn encode<'s>(strings: impl ExactSizeIterator<Item = &'s [u8]> + Clone) -> Result<Vec<u8>> {
        let size = Self::encoded_size(strings.clone())?;
        let mut bytes = Vec::new();
        let reserved = bytes.try_reserve_exact(size);
        reserved.map_err(|_| Error::OutOfMemory(format!("{size} bytes for strings")))?;
        bytes.resize(size, 0);
        write(strings, &mut bytes);
        Ok(bytes)
    }
}

fn word(bytes: &[u8], i: usize) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.as_chunks().0.get(i)?)).ok()
}

/// As [`Strings::encoded_size`]. Calls `poll` between the strings; its error ends the work.
pub(crate) fn encoded_size_polled<'s>(
    strings: impl ExactSizeIterator<Item = &'s [u8]>,
    poll: impl Fn() -> Result<()>,
) -> Result<usize> {
    let count = strings.len();
    let mut size = empty_size(count)?;
    for (i, string) in strings.enumerate() {
        if i.is_multiple_of(POLLED) {
            poll()?;
        }
        size = size.saturating_add(string.len());
    }
    fitting(size, count)
}

/// Returns the number of bytes of a tensor with this many empty strings.
pub(crate) fn empty_size(count: usize) -> Result<usize> {
    fitting(count.saturating_add(2).saturating_mul(4), count)
}

/// Checks that the offsets in a tensor of `size` bytes fit the format's signed 32-bit integers.
fn fitting(size: usize, count: usize) -> Result<usize> {
    match i32::try_from(size) {
        Ok(_) => Ok(size),
        Err(_) => Err(Error::OutOfMemory(format!("{count} strings are too long for one tensor"))),
    }
}

/// Writes the strings to a buffer of their encoded size.
pub(crate) fn write<'s>(strings: impl ExactSizeIterator<Item = &'s [u8]>, bytes: &mut [u8]) {
    let Ok(()) = write_polled(strings, bytes, || Ok::<(), Infallible>(()));
}

/// As [`write`]. Calls `poll` between the strings.
///
/// # Errors
/// That of `poll`, which ends the work.
pub(crate) fn write_polled<'s, E>(
    strings: impl ExactSizeIterator<Item = &'s [u8]>,
    bytes: &mut [u8],
    poll: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    let (count, header) = (strings.len(), strings.len().saturating_add(2).saturating_mul(4));
    let (header, mut rest) = bytes.split_at_mut(header.min(bytes.len()));
    let mut at = header.len();
    let mut words = header.as_chunks_mut::<4>().0.iter_mut();
    let mut put = |value: usize| {
        if let (Some(word), Ok(value)) = (words.next(), i32::try_from(value)) {
            *word = value.to_le_bytes();
        }
    };
    put(count);
    let mut left = 0usize;
    for string in strings {
        if let Some(fewer) = left.checked_sub(string.len().max(POLLED_BYTES / POLLED)) {
            left = fewer;
        } else {
            poll()?;
            left = POLLED_BYTES;
        }
        put(at);
        at = at.saturating_add(string.len());
        let Some((target, after)) = rest.split_at_mut_checked(string.len()) else { return Ok(()) };
        for (i, (to, from)) in target.chunks_mut(POLLED_BYTES).zip(string.chunks(POLLED_BYTES)).enumerate() {
            if i > 0 {
                poll()?;
            }
            to.copy_from_slice(from);
        }
        rest = after;
    }
    put(at);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for strings in [&[][..], &["", "ab", "", "\u{e9}"], &["x"]] {
            let bytes = Strings::encode(strings.iter().map(|s| s.as_bytes())).unwrap();
            let read = Strings::parse(&bytes).unwrap();
            assert_eq!((read.len(), read.is_empty()), (strings.len(), strings.is_empty()));
            assert!(read.iter().eq(strings.iter().map(|s| s.as_bytes())));
            assert_eq!(read.get(strings.len()), b"");
        }
        assert_eq!(Strings::encode([&b"hi"[..]].into_iter()).unwrap(), b"\x01\0\0\0\x0c\0\0\0\x0e\0\0\0hi");
    }

    #[test]
    fn damaged_tensors_are_refused() {
        let good = b"\x01\0\0\0\x0c\0\0\0\x0e\0\0\0hi";
        let damaged = |at: usize, value: u8| {
            let mut bytes = *good;
            bytes[at] = value;
            Strings::parse(&bytes).unwrap_err().to_string()
        };
        assert!(Strings::parse(&good[..3]).unwrap_err().to_string().contains("does not start"));
        assert!(damaged(3, 0x80).contains("does not start"));
        assert!(damaged(0, 2).contains("offset 0 of its strings is out of order"));
        assert!(damaged(4, 11).contains("offset 0 of its strings is out of order"));
        assert!(damaged(8, 15).contains("offset 1 of its strings is out of order"));
        assert!(damaged(8, 11).contains("offset 1 of its strings is out of order"));
    }
}
