//! `--delegate plugin:PATH[?key=value&…]` and `--delegate litert:PATH[?key=value&…]`.

use std::fmt;
#[cfg(feature = "plugins")]
use std::sync::Arc;

use delegraph::Delegate;
use delegraph::core::error::{Error, ErrorKind};
#[cfg(feature = "plugins")]
use delegraph::delegate_api::plugin::PluginLibrary;
use delegraph::delegate_api::plugin::{PluginError, PluginOptions};
use delegraph_conformance::engine::MakeDelegate;

use crate::cli::failure::{Exit, Failure};

/// The interface of a library of delegates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interface {
    /// Delegraph's plugin interface.
    Plugin,
    /// The interface of LiteRT's external delegates.
    Litert,
}

impl Interface {
    /// The beginning of a `--delegate` with such a library.
    fn prefix(self) -> &'static str {
        match self {
            Interface::Plugin => "plugin:",
            Interface::Litert => "litert:",
        }
    }
}

/// `plugin:PATH[?key=value&…]` or `litert:PATH[?key=value&…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginChoice {
    interface: Interface,
    /// The text on the command line, without the prefix.
    text: String,
    path: String,
    /// Percent-decoded.
    options: Vec<(String, String)>,
}

impl fmt::Display for PluginChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.interface.prefix(), self.text)
    }
}

impl PluginChoice {
    /// Parses a `--delegate`; `None` if it does not name a library.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        let of = |interface: Interface| Some((interface, text.strip_prefix(interface.prefix())?));
        let (interface, text) = of(Interface::Plugin).or_else(|| of(Interface::Litert))?;
        Some(Self::parse_library(interface, text))
    }

    fn parse_library(interface: Interface, text: &str) -> Result<Self, String> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        if path.is_empty() {
            return Err(format!("{}PATH needs the path of a library", interface.prefix()));
        }
        let options = query.map_or(Ok(Vec::new()), pairs)?;
        PluginOptions::new(options.iter().cloned()).map_err(|e| e.to_string())?;
        Ok(PluginChoice { interface, text: text.into(), path: path.into(), options })
    }
}

/// Returns the options of `key=value&…`, percent-decoded.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    query
        .split('&')
        .map(|option| {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            Ok((percent_decoded(key)?, percent_decoded(value)?))
        })
        .collect()
}

/// `%26` is `&`, `%3D` is `=`, `%25` is `%`; any byte can be written in this way.
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
        Ok(self.factory()?()?)
    }

    /// Returns a function that creates delegates of the library.
    pub(super) fn maker(&self) -> Result<MakeDelegate, Failure> {
        let make = self.factory()?;
        // Checks the options here rather than in the first case.
        drop(make()?);
        Ok(Arc::new(move || make().map_err(|e| delegraph::Error::State(e.to_string()))))
    }

    fn factory(&self) -> Result<Make, Failure> {
        let options = PluginOptions::new(self.options.iter().cloned());
        let options = options.map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
        match self.interface {
            Interface::Plugin => {
                // SAFETY: the user named the library on the command line, and so trusts it.
                let library = unsafe { PluginLibrary::open(&self.path) }?;
                Ok(Box::new(move || Ok(Box::new(library.delegate(&options)?))))
            }
            #[cfg(unix)]
            Interface::Litert => {
                // SAFETY: as above.
                let library = unsafe { delegraph::litert::ExternalLibrary::open(&self.path) }?;
                Ok(Box::new(move || Ok(Box::new(library.delegate(&options)?))))
            }
            #[cfg(not(unix))]
            Interface::Litert => {
                let text = format!("{}: delegates for LiteRT run on Unix only", self.path);
                Err(Failure::new(Exit::Unsupported, text))
            }
        }
    }
}

/// Creates delegates of one library.
#[cfg(feature = "plugins")]
type Make = Box<dyn Fn() -> Result<Box<dyn Delegate>, PluginError> + Send + Sync>;

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
    pub(super) fn new(interface: Interface, text: &str, path: &str, options: Vec<(String, String)>) -> Self {
        PluginChoice { interface, text: text.into(), path: path.into(), options }
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
