//! The program that contains the command: `delegraph`, or one that contains the library.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the program, with its first arguments, that runs the command in another process.
pub(crate) fn set(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

/// Returns the command in another process, without arguments.
///
/// # Errors
/// If the program is not known.
pub(crate) fn command() -> std::io::Result<Command> {
    let missing = || std::io::Error::other("the program that runs the command is not known");
    let (program, first) = PROGRAM.get().and_then(|p| p.split_first()).ok_or_else(missing)?;
    let mut command = Command::new(program);
    command.args(first);
    Ok(command)
}
