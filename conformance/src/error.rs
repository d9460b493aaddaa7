//! The errors of reading and writing cases, goldens, expectations and reports.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The error of reading or writing a file of this crate, or of running a model with its contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The contents of a file are invalid or not supported, or a result differs from them.
    #[error("{message}")]
    Invalid {
        /// The defect and its place.
        message: String,
    },
    /// An output differs from the expected one in its type, shape or number of elements, or beyond the tolerance.
    #[error("{message}")]
    Mismatch {
        /// Both sides.
        message: String,
    },
    /// A model cannot be prepared or run.
    #[error(transparent)]
    Model(#[from] delegraph_core::Error),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    pub(crate) fn mismatch(message: impl fmt::Display) -> Self {
        Error::Mismatch { message: message.to_string() }
    }

    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Error::Invalid { message: message.to_string() }
    }
}
