//! The application's side: loads libraries and creates the delegates that they export.

use std::path::PathBuf;

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
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The file cannot be read, is not a shared library, or is damaged.
    #[error("{}: {message}", .path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The damage.
        message: String,
    },
    /// The library is for another machine or another version of the interface.
    #[error("{}: {message}", .path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// The observed and the supported value, and how to fix it.
        message: String,
    },
    /// The system's loader refuses the library, or its exports are invalid.
    #[error("{}: {message}", .path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// An option is invalid.
    #[error("{}: an option is invalid", .path.display())]
    Option {
        /// The file.
        path: PathBuf,
        /// The option and the problem.
        source: OptionError,
    },
    /// The library was loaded, but cannot create its delegate or kernels.
    #[error("{}: its delegate or kernels cannot be created", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: delegraph_core::Error,
    },
}
