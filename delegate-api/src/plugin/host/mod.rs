//! The application's side: loads libraries and makes delegates of what they export.

use std::path::PathBuf;

use super::OptionError;

mod delegate;
mod frames;
mod graph;
mod kernel;
mod library;
mod operands;
mod ops;
mod table;
#[cfg(test)]
mod tests;

#[cfg(any(unix, windows))]
mod extents;

pub use delegate::PluginDelegate;
pub use library::PluginLibrary;
pub use ops::KernelLibrary;

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The file cannot be read, is no shared library, or is damaged.
    #[error("{}: {message}", .path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// It is a library, but for another machine or another version of the interface.
    #[error("{}: {message}", .path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// What was found, what is wanted, and what to do.
        message: String,
    },
    /// The system's loader refuses the library, or what it exports is wrong.
    #[error("{}: {message}", .path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// The options are not right.
    #[error("{}: {error}", .path.display())]
    Option {
        /// The file.
        path: PathBuf,
        /// Which option, and what is wrong with it.
        error: OptionError,
    },
    /// It was loaded, but cannot make its delegate or kernels.
    #[error("{}: {error}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        error: delegraph_core::Error,
    },
}
