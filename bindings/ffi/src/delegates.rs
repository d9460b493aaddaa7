//! Delegates by name, and the delegate that the environment selects for programs without support for delegates.

use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};

use delegraph::Delegate;
use delegraph::core::error::{Error, Result};
use delegraph::delegate_api::plugin::{PluginError, PluginLibrary, PluginOptions};

/// The variable that names a delegate: see [`named`].
pub const VARIABLE: &str = "DELEGRAPH_DELEGATE";

/// The runner of a model.
pub enum Choice {
    /// The CPU kernels.
    Cpu,
    /// The reference kernels.
    Reference,
    /// The GPU, and the CPU kernels for the rest. Clones share the device.
    #[cfg(feature = "wgpu")]
    Gpu(Box<delegraph::delegate_wgpu::WgpuDelegate>),
    /// Another delegate, and the CPU kernels for the rest.
    Delegate(Box<dyn Delegate>),
}

impl Choice {
    /// Returns the delegate; `None` for CPU kernels.
    pub fn delegate(self) -> Option<Box<dyn Delegate>> {
        match self {
            Choice::Cpu | Choice::Reference => None,
            #[cfg(feature = "wgpu")]
            Choice::Gpu(delegate) => Some(delegate),
            Choice::Delegate(delegate) => Some(delegate),
        }
    }
}

/// Returns the delegate that the environment selects; the CPU by default.
///
/// # Errors
/// [`Error::InvalidInput`] for bytes that are not UTF-8, and for an unknown name; the errors of creating the delegate.
pub fn of_environment() -> Result<Choice> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(Choice::Cpu) };
    of_value(&value)
}

fn of_value(value: &OsStr) -> Result<Choice> {
    let bytes = value.as_encoded_bytes();
    let text = value.to_str().ok_or_else(|| {
        Error::InvalidInput(format!("{VARIABLE} must be UTF-8, is \"{}\"", bytes.escape_ascii()))
    })?;
    named(text).map_err(|error| match error {
        Error::InvalidInput(text) => Error::InvalidInput(format!("{VARIABLE}: {text}")),
        error => error,
    })
}

/// Returns the delegate with this name: `cpu` (or an empty name), `reference`, `wgpu?key=value&key=value`,
/// `plugin:PATH?key=value`, `litert:PATH?key=value`. In keys and values, `%` and two hexadecimal digits represent a
/// byte.
///
/// # Errors
/// [`Error::InvalidInput`] for other names; the errors of creating the delegate.
pub fn named(text: &str) -> Result<Choice> {
    let (name, query) = text.split_once('?').unwrap_or((text, ""));
    let options = options(query)?;
    if let Some(path) = name.strip_prefix("plugin:") {
        return plugin(path, options).map(Choice::Delegate);
    }
    if let Some(path) = name.strip_prefix("litert:") {
        return litert(path, options).map(Choice::Delegate);
    }
    match name {
        "" | "cpu" => Ok(Choice::Cpu),
        "reference" => Ok(Choice::Reference),
        "wgpu" => gpu(text, options),
        _ => Err(Error::InvalidInput(format!(
            "a delegate is cpu, reference, wgpu, plugin:PATH or litert:PATH, not {text}"
        ))),
    }
}

/// Splits `key=value&key=value`. Characters may be written as `%` and two digits.
fn options(query: &str) -> Result<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(key)?, decoded(value)?))
        })
        .collect()
}

fn decoded(text: &str) -> Result<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    let wrong = || {
        Error::InvalidInput(format!("`{text}` has a % that is not followed by the digits of a UTF-8 byte"))
    };
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Returns a delegate of a library, which stays loaded.
fn plugin(path: &str, options: Vec<(String, String)>) -> Result<Box<dyn Delegate>> {
    static LIBRARIES: Libraries<PluginLibrary> = Mutex::new(Vec::new());
    let options = PluginOptions::new(options).map_err(Error::external)?;
    // SAFETY: the environment or the application names the library, and so trusts it, like a preloaded library.
    let library = opened(&LIBRARIES, path, || unsafe { PluginLibrary::open(path) })?;
    Ok(Box::new(library.delegate(&options).map_err(Error::external)?))
}

/// Returns a delegate for LiteRT, of a library, which stays loaded.
#[cfg(unix)]
fn litert(path: &str, options: Vec<(String, String)>) -> Result<Box<dyn Delegate>> {
    use delegraph::litert::ExternalLibrary;
    static LIBRARIES: Libraries<ExternalLibrary> = Mutex::new(Vec::new());
    let options = PluginOptions::new(options).map_err(Error::external)?;
    // SAFETY: as in `plugin`.
    let library = opened(&LIBRARIES, path, || unsafe { ExternalLibrary::open(path) })?;
    Ok(Box::new(library.delegate(&options).map_err(Error::external)?))
}

#[cfg(not(unix))]
fn litert(path: &str, _: Vec<(String, String)>) -> Result<Box<dyn Delegate>> {
    Err(Error::Unsupported(format!("{path}: delegates for LiteRT run on Unix only")))
}

/// Libraries that were opened, by their paths.
type Libraries<L> = Mutex<Vec<(String, L)>>;

fn opened<L: Clone>(
    libraries: &Libraries<L>,
    path: &str,
    open: impl FnOnce() -> Result<L, PluginError>,
) -> Result<L> {
    let mut libraries = libraries.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = libraries.iter().find(|(known, _)| known == path) {
        return Ok(library.clone());
    }
    let library = open().map_err(Error::external)?;
    libraries.push((path.to_owned(), library.clone()));
    Ok(library)
}

/// Returns a delegate on the GPU. A call with the same `text` as the last one shares its device.
#[cfg(feature = "wgpu")]
fn gpu(text: &str, options: Vec<(String, String)>) -> Result<Choice> {
    use delegraph::delegate_wgpu::WgpuDelegate;
    static OPEN: Mutex<Option<(String, WgpuDelegate)>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, delegate)) = open.as_ref().filter(|(known, _)| known == text) {
        return Ok(Choice::Gpu(Box::new(delegate.clone())));
    }
    let delegate = crate::gpu::open(options)?;
    *open = Some((text.to_owned(), delegate.clone()));
    Ok(Choice::Gpu(Box::new(delegate)))
}

#[cfg(not(feature = "wgpu"))]
fn gpu(_: &str, _: Vec<(String, String)>) -> Result<Choice> {
    Err(without_gpu())
}

/// Returns a delegate on the GPU with the options of
/// [`WgpuOptions::NAMED`](delegraph::delegate_wgpu::WgpuOptions::NAMED).
///
/// # Errors
/// [`Error::InvalidInput`] for other options; the errors of opening the GPU.
#[cfg(feature = "wgpu")]
pub use crate::gpu::open as open_gpu;

/// Returns the error of a library without the GPU.
#[cfg(not(feature = "wgpu"))]
pub fn without_gpu() -> Error {
    Error::Unsupported("this library was built without the GPU (feature `wgpu`)".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_python_package() {
        assert!(matches!(named(""), Ok(Choice::Cpu)));
        assert!(matches!(named("cpu"), Ok(Choice::Cpu)));
        assert!(matches!(named("reference"), Ok(Choice::Reference)));
        let wrong = named("gpu").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(wrong.contains("plugin:PATH or litert:PATH, not gpu"), "{wrong}");
        assert!(named("plugin:/no/such/library.so").is_err());
        assert!(named("litert:/no/such/library.so").is_err());
    }

    #[test]
    #[cfg(unix)]
    fn the_variable_is_utf8() {
        use std::os::unix::ffi::OsStrExt;
        assert!(matches!(of_value(OsStr::new("cpu")), Ok(Choice::Cpu)));
        let error = of_value(OsStr::from_bytes(b"wgpu\xff")).err().map(|error| error.to_string());
        let text = "invalid input: DELEGRAPH_DELEGATE must be UTF-8, is \"wgpu\\xff\"";
        assert_eq!(error.as_deref(), Some(text));
        let error = of_value(OsStr::new("gpu")).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("invalid input: DELEGRAPH_DELEGATE: a delegate is cpu,"), "{error}");
    }

    #[test]
    fn options_are_decoded() {
        let pairs = options("adapter=a%26b&fusion=off&alone").unwrap();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("adapter", "a&b"), ("fusion", "off"), ("alone", "")]);
        assert!(options("a=%4").is_err() && options("a=%zz").is_err() && options("a=%ff").is_err());
    }
}
