//! Atomic writing of files.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::graph::Model;

impl Model {
    /// Writes the model to `path` as a `.tflite` file. An existing file stays until the new one is complete, so that a
    /// model may replace the file that it was loaded from.
    ///
    /// # Errors
    /// The errors of [`Model::to_bytes`], and [`Error::Write`] if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = self.to_bytes()?;
        replace(path, &bytes).map_err(|source| Error::write(path, source))
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The target of a link is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = match fs::metadata(&path) {
        Ok(old) if old.is_dir() => return Err(io::Error::other("it is a directory, not a file")),
        Ok(old) if !old.is_file() => {
            return Err(io::Error::other("it is a device or a pipe, not a regular file"));
        }
        Ok(old) => Some(old.permissions()),
        Err(_) => None,
    };
    let Some(name) = path.file_name() else { return Err(io::Error::other("the path names no file")) };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        file.write_all(bytes)?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        fs::rename(&beside, &path)
    })();
    if written.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::AlreadyExists) {
        // An error of this call is ignored: the first one is reported.
        let _ = fs::remove_file(&beside);
    }
    written
}
