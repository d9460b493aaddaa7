//! `--delegate plugin:PATH[?key=value&…]`.

use std::fmt;
use std::str::FromStr;
#[cfg(feature = "plugins")]
use std::sync::Arc;

use delegraph::Delegate;
use delegraph::core::error::{Error, ErrorKind};
#[cfg(feature = "plugins")]
use delegraph::delegate_api::plugin::PluginLibrary;
use delegraph::delegate_api::plugin::{PluginError, PluginOptions};
use delegraph_conformance::engine::MakeDelegate;

use crate::cli::failure::{Exit, Failure};

/// `plugin:PATH[?key=value&…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginChoice {
    /// As on the command line, without `plugin:`.
    text: String,
    path: String,
    /// Percent-decoded.
    options: Vec<(String, String)>,
}

impl fmt::Display for PluginChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for PluginChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        if path.is_empty() {
            return Err("plugin:PATH needs the path of a library".into());
        }
        let mut options = Vec::new();
        for option in query.into_iter().flat_map(|query| query.split('&')) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            options.push((percent_decoded(key)?, percent_decoded(value)?));
        }
        PluginOptions::new(options.iter().cloned()).map_err(|e| e.to_string())?;
        Ok(PluginChoice { text: text.into(), path: path.into(), options })
    }
}

/// `%26` is `&`, `%3D` is `=`, `%25` is `%`; any byte can be written so.
fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit =
            || rest.next().and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(format!("\"{text}\": two hexadecimal digits must follow a %; %25 is a % itself"));
        };
        bytes.push(high * 16 + low);
    }
    String::from_utf8(bytes).map_err(|_| format!("\"{text}\" does not decode to UTF-8"))
}

#[cfg(feature = "plugins")]
impl PluginChoice {
    pub(super) fn delegate(&self) -> Result<Box<dyn Delegate>, Failure> {
        let (library, options) = self.library()?;
        Ok(Box::new(library.delegate(&options)?))
    }

    /// Makes delegates of one library.
    pub(super) fn maker(&self) -> Result<MakeDelegate, Failure> {
        let (library, options) = self.library()?;
        // Wrong options are an error here, not in the first case.
        drop(library.delegate(&options)?);
        Ok(Arc::new(move || match library.delegate(&options) {
            Ok(delegate) => Ok(Box::new(delegate) as Box<dyn Delegate>),
            Err(e) => Err(delegraph::Error::State(e.to_string())),
        }))
    }

    fn library(&self) -> Result<(PluginLibrary, PluginOptions), Failure> {
        let options = PluginOptions::new(self.options.iter().cloned());
        let options = options.map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
        // SAFETY: the user names the library on the command line, and trusts it thereby.
        let library = unsafe { PluginLibrary::open(&self.path) }?;
        Ok((library, options))
    }
}

#[cfg(not(feature = "plugins"))]
impl PluginChoice {
    pub(super) fn delegate(&self) -> Result<Box<dyn Delegate>, Failure> {
        Err(missing(&self.path))
    }

    pub(super) fn maker(&self) -> Result<MakeDelegate, Failure> {
        Err(missing(&self.path))
    }
}

#[cfg(not(feature = "plugins"))]
fn missing(path: &str) -> Failure {
    let text = format!("{path}: this command was built without the Cargo feature `plugins`");
    Failure::new(Exit::Unsupported, text)
}

#[cfg(test)]
impl PluginChoice {
    pub(super) fn new(text: &str, path: &str, options: Vec<(String, String)>) -> Self {
        PluginChoice { text: text.into(), path: path.into(), options }
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        let exit = match &error {
            PluginError::InvalidFile { .. } => Exit::Invalid,
            PluginError::Incompatible { .. } => Exit::Unsupported,
            PluginError::Option { .. } => Exit::Usage,
            PluginError::Create { source, .. } if source.kind() == ErrorKind::Unsupported => {
                Exit::Unsupported
            }
            _ => Exit::Failed,
        };
        Failure::new(exit, format!("plugin {}", Error::external(error).chain()))
    }
}
