//! Files and folders that options name.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use delegraph::core::types::open_regular;

use super::failure::{Exit, Failure};
use super::text::printable_path;

/// Creates a file, or empties the one at `path`. A device or a pipe is opened.
///
/// # Errors
/// The errors of the system; for a folder, and for a pipe that nothing reads, which would block.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(old) if old.is_dir() => Err(io::Error::other("it is a directory, not a file")),
        Ok(old) if is_pipe(&old) => open_pipe(path),
        _ => File::create(path),
    }
}

#[cfg(unix)]
fn is_pipe(there: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&there.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &fs::Metadata) -> bool {
    false
}

#[cfg(unix)]
fn open_pipe(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.write(true);
    // Fails without a reader, for which the second call would wait.
    let probe = options.clone().custom_flags(libc::O_NONBLOCK).open(path);
    let _probe = probe.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("it is a pipe that nothing reads"),
        _ => e,
    })?;
    options.open(path)
}

#[cfg(not(unix))]
fn open_pipe(path: &Path) -> io::Result<File> {
    File::create(path)
}

/// Writes a file, as [`create`].
///
/// # Errors
/// As [`create`].
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut create(path)?, bytes)
}

/// Checks that the path of an option is a folder, or does not exist yet.
///
/// # Errors
/// Exit code 1 with the option and the path.
pub(crate) fn check_folder(option: &str, path: &Path) -> Result<(), Failure> {
    if fs::metadata(path).is_ok_and(|there| !there.is_dir()) {
        let text = format!("{option} {}: it is not a folder", printable_path(path));
        return Err(Failure::new(Exit::Failed, text).with_help("choose another folder, or remove the file"));
    }
    Ok(())
}

/// Checks that the path of a file to write is a file, or does not exist yet.
///
/// # Errors
/// Exit code 1 with the path.
pub(crate) fn check_replaceable(path: &Path) -> Result<(), Failure> {
    let kind = match fs::metadata(path) {
        Ok(there) if there.is_dir() => "a directory",
        Ok(there) if !there.is_file() => "a pipe, a socket or a device",
        _ => return Ok(()),
    };
    let text = format!("{}: cannot write: it is {kind}, not a file", printable_path(path));
    Err(Failure::new(Exit::Failed, text).with_help("pass the path of a new file, or of one to replace"))
}

/// Checks that the path of an option is a file that can be read. Pipes and devices are refused: they could block.
///
/// # Errors
/// Exit code 4 with the option and the path.
pub(crate) fn check_readable(option: &str, path: &Path) -> Result<(), Failure> {
    let failed = |e| {
        Failure::invalid(format!("{option} {}: cannot be read: {e}", printable_path(path)))
            .with_help("check the path")
    };
    open_regular(path).map(drop).map_err(failed)
}

/// Returns the failure of writing to `path`.
pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: cannot write: {error}", printable_path(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        write(&file, b"long").unwrap();
        write(&file, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(create(folder.path()).is_err_and(|e| e.to_string() == "it is a directory, not a file"));
        let failure = check_folder("--output-dir", &file).unwrap_err();
        assert!(failure.to_string().starts_with("--output-dir "), "{failure}");
        assert!(failure.to_string().ends_with(": it is not a folder"), "{failure}");
        check_folder("--output-dir", &folder.path().join("a/b")).unwrap();
    }
}
