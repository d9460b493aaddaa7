//! The options that the application sets when it loads the delegate.

use delegraph_delegate_api::plugin::{OptionError, PluginOptions};

/// The options of the bridge itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Accept untested runtimes.
    pub(crate) allow_unknown_host: bool,
    /// Fail if a node is unclaimed.
    pub(crate) require: bool,
    /// Print claims and rejections to standard error.
    pub(crate) verbose: bool,
}

impl Settings {
    pub(crate) fn read(options: &PluginOptions) -> Result<Self, OptionError> {
        let policies = [("prefer", false), ("require", true)];
        Ok(Settings {
            allow_unknown_host: options.flag("allow_unknown_host")?,
            require: options.choice("policy", &policies)?.unwrap_or(false),
            verbose: options.flag("verbose")?,
        })
    }
}
