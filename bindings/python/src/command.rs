//! The `delegraph` command.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments, the first of which is its name, and returns its exit code. `program` runs the
/// command in another process. To be called once per process: see [`delegraph::command`].
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>, program: Vec<OsString>) -> u8 {
    py.detach(|| delegraph::command(arguments, Some(program)))
}
