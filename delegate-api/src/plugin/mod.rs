//! Delegates in shared libraries.

mod options;

pub use options::{CreateError, OptionError, PluginOptions};
