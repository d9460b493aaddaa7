//! Reading files that users name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Opens a file for reading if it is a regular one. Pipes and devices could block, or never end.
///
/// # Errors
/// The errors of the system; one that names the kind where it is not a regular file.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() { "a directory" } else { "a pipe, a socket or a device" };
        return Err(io::Error::other(format!("it is {kind}, not a file")));
    }
    File::open(path)
}

/// Returns the bytes of a regular file.
///
/// # Errors
/// As [`open_regular`].
pub fn read_regular(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
