//! The application's side: loads libraries and creates the delegates that they export.

use std::fmt;
use std::path::PathBuf;

use delegraph_core::error::BoxError;

use super::OptionError;

mod delegate;
mod entry;
mod frames;
mod fusions;
mod graph;
mod instance;
mod kernel;
mod library;
mod operands;
mod ops;
mod table;
#[cfg(test)]
mod tests;

#[cfg(all(feature = "plugins", any(unix, windows)))]
mod extents;

pub use delegate::PluginDelegate;
pub use fusions::FusionLibrary;
pub use library::PluginLibrary;
pub use ops::KernelLibrary;

/// Checks that the file at `path` is a complete shared library for this machine, without running its code. The system's
/// loader would end the process at a truncated file.
///
/// # Errors
/// [`PluginError::InvalidFile`] for a file that cannot be read or is damaged, [`PluginError::Incompatible`] for a library
/// of another machine.
#[cfg(all(feature = "plugins", any(unix, windows)))]
pub fn check_library(path: impl AsRef<std::path::Path>) -> Result<(), PluginError> {
    extents::check(path.as_ref())
}

/// The reason for which a plugin cannot be used.
///
/// [`Display`](std::fmt::Display) does not repeat what [`source`](std::error::Error::source) returns: print the chain
/// of sources for the complete message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The file cannot be read, is not a shared library, or is damaged.
    #[error("{}: {message}", .path.display())]
    #[non_exhaustive]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
        /// The cause, if it has a type of its own.
        source: Option<BoxError>,
    },
    /// The library is for another machine or another version of the interface.
    #[error("{}: {message}", .path.display())]
    #[non_exhaustive]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// The observed and the supported value, and how to fix it.
        message: String,
    },
    /// The system's loader refuses the library, or its exports are invalid.
    #[error("{}: {message}", .path.display())]
    #[non_exhaustive]
    Load {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
        /// The cause, if it has a type of its own.
        source: Option<BoxError>,
    },
    /// An option is invalid.
    #[error("{}: an option is invalid", .path.display())]
    #[non_exhaustive]
    Option {
        /// The file.
        path: PathBuf,
        /// The option and the problem.
        source: OptionError,
    },
    /// The library was loaded, but cannot create its delegate, kernels or fusions.
    #[error("{}: its delegate, kernels or fusions cannot be created", .path.display())]
    #[non_exhaustive]
    Create {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: delegraph_core::Error,
    },
}

/// A violation of the interface by a function of a plugin: a call to the application with an invalid argument, or one
/// that is not allowed there. [`Error::External`](delegraph_core::Error::External) contains it.
#[derive(Debug)]
#[non_exhaustive]
pub struct PluginFault {
    /// The name of the library's file, for a library of kernels.
    pub library: Option<String>,
    /// The called function, and the problem.
    pub message: String,
}

impl fmt::Display for PluginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(library) = &self.library {
            write!(f, "{library}: ")?;
        }
        write!(f, "the plugin is wrong: {}", self.message)
    }
}

impl std::error::Error for PluginFault {}

impl PluginError {
    /// Creates a [`PluginError::InvalidFile`] without a cause.
    pub fn invalid_file(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        PluginError::InvalidFile { path: path.into(), message: message.into(), source: None }
    }

    /// Creates a [`PluginError::InvalidFile`] with its cause. `message` does not repeat the cause.
    pub fn invalid_file_caused_by(
        path: impl Into<PathBuf>,
        message: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> Self {
        PluginError::InvalidFile { path: path.into(), message: message.into(), source: Some(source.into()) }
    }

    /// Creates a [`PluginError::Incompatible`].
    pub fn incompatible(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        PluginError::Incompatible { path: path.into(), message: message.into() }
    }

    /// Creates a [`PluginError::Load`] without a cause.
    pub fn load(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        PluginError::Load { path: path.into(), message: message.into(), source: None }
    }

    /// Creates a [`PluginError::Load`] with its cause. `message` does not repeat the cause.
    pub fn load_caused_by(
        path: impl Into<PathBuf>,
        message: impl Into<String>,
        source: impl Into<BoxError>,
    ) -> Self {
        PluginError::Load { path: path.into(), message: message.into(), source: Some(source.into()) }
    }

    /// Creates a [`PluginError::Option`].
    pub fn option(path: impl Into<PathBuf>, source: OptionError) -> Self {
        PluginError::Option { path: path.into(), source }
    }

    /// Creates a [`PluginError::Create`].
    pub fn create(path: impl Into<PathBuf>, source: delegraph_core::Error) -> Self {
        PluginError::Create { path: path.into(), source }
    }
}
