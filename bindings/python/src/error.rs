//! Errors as Python exceptions.

use delegraph::Error;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Returns an error of Delegraph as the exception that LiteRT raises instead: `ValueError` for invalid files and
/// arguments, `MemoryError` if memory is exhausted, `RuntimeError` for all other errors. An exception of a Python
/// kernel or delegate is its cause.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = text(error);
    let exception = match error {
        Error::Io { .. }
        | Error::InvalidModel { .. }
        | Error::ExternalData { .. }
        | Error::InvalidInput(_) => PyValueError::new_err(text),
        Error::OutOfMemory(_) => PyMemoryError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    };
    exception.set_cause(py, python_error(error).map(|cause| cause.clone_ref(py)));
    exception
}

/// The Rust methods, with the corresponding arguments of the Python class.
const ARGUMENTS: [(&str, &str); 2] =
    [("`ResourceLimits::with_memory`", "`max_memory=`"), ("`ResourceLimits::with_time`", "`timeout=`")];

/// Returns the messages of an error and its sources, and how to fix it.
pub(crate) fn text(error: &Error) -> String {
    let chain = error.chain();
    let of_python = ARGUMENTS.iter().fold(chain.clone(), |text, (rust, python)| text.replace(rust, python));
    match error.help() {
        // The help for Rust contains the replaced name again.
        Some(help) if of_python == chain => format!("{chain}\nhelp: {help}"),
        _ => of_python,
    }
}

/// Returns the exception that a Python kernel or delegate raised.
fn python_error(error: &Error) -> Option<&PyErr> {
    match error {
        Error::AtNode { source, .. } => python_error(source),
        Error::External(error) => error.downcast_ref(),
        Error::Delegate { source, .. } => source.as_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Returns an exception of Python code as the error of the kernel or delegate that called it.
pub(crate) fn of_python(error: PyErr) -> Error {
    Error::external(error)
}
