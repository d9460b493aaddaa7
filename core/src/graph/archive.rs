//! The ZIP archive after a model: writers append label files and other resources to the FlatBuffer.
//!
//! An archive is found by its end. Its entries are listed in a directory, whose offsets count from the start of the
//! file; they are rewritten when the archive moves.
#![deny(
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code
)]

use std::ops::Range;

const LOCAL_ENTRY: [u8; 4] = *b"PK\x03\x04";
const DIRECTORY_ENTRY: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
/// The size of a directory entry without its name, extra field and comment.
const DIRECTORY_ENTRY_LEN: usize = 46;
/// The size of the end of an archive without its comment.
const END_LEN: usize = 22;

/// The directory and the end record of an archive.
struct Directory {
    /// The position of the directory, from the start of the searched bytes.
    start: usize,
    /// The directory's start as the file declares it.
    declared: u32,
    /// The position of the end record.
    end: usize,
    /// The position of each directory entry.
    entries: Vec<usize>,
}

impl Directory {
    /// Reads the directory of the archive that `bytes` end with. Multi-part archives and archives beyond 4 GB are not
    /// recognized.
    fn read(bytes: &[u8]) -> Option<Self> {
        let last = bytes.len().checked_sub(END_LEN)?;
        let earliest = last.saturating_sub(usize::from(u16::MAX));
        let is_end = |&at: &usize| {
            let comment = bytes.len().checked_sub(at).and_then(|n| n.checked_sub(END_LEN));
            starts_with(bytes, at, END) && u16_at(bytes, at, 20).map(usize::from) == comment
        };
        let tail = bytes.get(earliest..=last)?;
        let first = END.first().copied()?;
        let end = memchr::memrchr_iter(first, tail).filter_map(|at| at.checked_add(earliest)).find(is_end)?;
        let (count, size, declared) =
            (u16_at(bytes, end, 10)?, u32_at(bytes, end, 12)?, u32_at(bytes, end, 16)?);
        let start = end.checked_sub(usize::try_from(size).ok()?)?;
        let mut entries = Vec::new();
        let mut at = start;
        for _ in 0..count {
            if !starts_with(bytes, at, DIRECTORY_ENTRY) {
                return None;
            }
            entries.push(at);
            let mut len = DIRECTORY_ENTRY_LEN;
            for field in [28, 30, 32] {
                len = len.checked_add(u16_at(bytes, at, field)?.into())?;
            }
            at = at.checked_add(len)?;
        }
        (at == end).then_some(Directory { start, declared, end, entries })
    }

    /// Returns the position that an offset of the file refers to.
    fn resolve(&self, declared: u32) -> Option<usize> {
        let from_directory = i64::from(declared).checked_sub(self.declared.into())?;
        let start = i64::try_from(self.start).ok()?;
        usize::try_from(start.checked_add(from_directory)?).ok()
    }
}

/// Returns the range of the archive at the end of `file`, if there is one.
pub(crate) fn find(file: &[u8]) -> Option<Range<usize>> {
    let directory = Directory::read(file)?;
    let mut start = directory.start;
    for &entry in &directory.entries {
        let at = directory.resolve(u32_at(file, entry, 42)?)?;
        if at >= directory.start || !starts_with(file, at, LOCAL_ENTRY) {
            return None;
        }
        start = start.min(at);
    }
    Some(start..file.len())
}

/// Returns `archive` with offsets for a file in which it begins at `start`; `None` if an offset would not fit, or if
/// `archive` is damaged.
pub(crate) fn moved(archive: &[u8], start: usize) -> Option<Vec<u8>> {
    let directory = Directory::read(archive)?;
    let mut moved = archive.to_vec();
    let place = |at: usize| at.checked_add(start).and_then(|at| u32::try_from(at).ok());
    for &entry in &directory.entries {
        let at = directory.resolve(u32_at(archive, entry, 42)?)?;
        put(&mut moved, entry.checked_add(42)?, place(at)?)?;
    }
    put(&mut moved, directory.end.checked_add(16)?, place(directory.start)?)?;
    Some(moved)
}

fn put(bytes: &mut [u8], at: usize, value: u32) -> Option<()> {
    bytes.get_mut(at..at.checked_add(4)?)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}

fn starts_with(bytes: &[u8], at: usize, signature: [u8; 4]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(&signature))
}

fn u16_at(bytes: &[u8], at: usize, field: usize) -> Option<u16> {
    bytes.get(at.checked_add(field)?..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize, field: usize) -> Option<u32> {
    bytes.get(at.checked_add(field)?..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::as_conversions)]
pub(crate) mod tests {
    use super::*;

    /// An archive with one stored entry, for a place `start` bytes behind the start of its file.
    pub(crate) fn archive(start: u32) -> Vec<u8> {
        let (name, text) = (b"labels.txt", b"one\ntwo\n");
        let mut zip = [&LOCAL_ENTRY[..], &[0; 22], &[name.len() as u8, 0, 0, 0], name, text].concat();
        let directory = zip.len() as u32;
        zip.extend([&DIRECTORY_ENTRY[..], &[0; 24], &[name.len() as u8, 0], &[0; 12]].concat());
        zip.extend(start.to_le_bytes());
        zip.extend(name);
        let size = zip.len() as u32 - directory;
        zip.extend([&END[..], &[0; 4], &[1, 0, 1, 0]].concat());
        zip.extend(size.to_le_bytes());
        zip.extend((start + directory).to_le_bytes());
        zip.extend([2, 0, b'h', b'i']);
        zip
    }

    #[test]
    fn archives_are_found_and_moved() {
        let file = |before: usize, archive| [vec![7; before], archive].concat();
        assert_eq!(find(&file(100, archive(100))).map(|r| r.start), Some(100));
        assert_eq!(find(&file(100, archive(0))).map(|r| r.start), Some(100), "offsets from its own start");
        assert_eq!(moved(&archive(100), 60), Some(archive(60)));
        assert_eq!(moved(&archive(0), 60), Some(archive(60)));
        assert_eq!(moved(&archive(0), usize::MAX), None);
        let empty = [&END[..], &[0; 18]].concat();
        assert_eq!(find(&file(10, empty)), Some(10..32));
    }

    #[test]
    fn a_damaged_archive_is_not_found() {
        let file = [vec![7; 40], archive(40)].concat();
        assert!(find(&[]).is_none() && find(&file[..file.len() - 1]).is_none());
        for i in 40..file.len() {
            for value in [0, 1, 255] {
                let mut damaged = file.clone();
                damaged[i] = value;
                let found = find(&damaged);
                assert!(found.as_ref().is_none_or(|r| r.start == 40 || damaged[i] == file[i]), "byte {i}");
                moved(&damaged[40..], 0);
            }
        }
    }
}
