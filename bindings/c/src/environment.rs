//! The delegate that the environment names, for programs that do not know of delegates.

use std::sync::{Mutex, PoisonError};

use delegraph::Delegate;
use delegraph::core::error::{Error, Result};
use delegraph::delegate_api::plugin::{PluginError, PluginLibrary, PluginOptions};

/// The variable. Its values are those of the Python package: `cpu`, `reference`, `wgpu?key=value&key=value`,
/// `plugin:PATH?key=value`, `litert:PATH?key=value`.
const VARIABLE: &str = "DELEGRAPH_DELEGATE";

/// What runs the models of this process.
pub(crate) enum Choice {
    /// The CPU kernels.
    Cpu,
    /// The reference kernels.
    Reference,
    /// A delegate, and the CPU kernels for the rest.
    Delegate(Box<dyn Delegate>),
}

/// Returns the choice of the environment; the CPU without one.
///
/// # Errors
/// [`Error::InvalidInput`] for a name without a meaning; those of delegates that cannot be created.
pub(crate) fn choice() -> Result<Choice> {
    match std::env::var(VARIABLE) {
        Err(_) => Ok(Choice::Cpu),
        Ok(text) => named(&text),
    }
}

fn named(text: &str) -> Result<Choice> {
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
        "wgpu" => gpu(text, options).map(Choice::Delegate),
        _ => Err(Error::InvalidInput(format!(
            "{VARIABLE} is cpu, reference, wgpu, plugin:PATH or litert:PATH, not {text}"
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
    let wrong =
        || Error::InvalidInput(format!("{VARIABLE}: `{text}` has a % without two hexadecimal digits"));
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
    // SAFETY: the environment names the library, and the user trusts it thereby, as with libraries to preload.
    let library = opened(&LIBRARIES, path, || unsafe { PluginLibrary::open(path) })?;
    Ok(Box::new(library.delegate(&options).map_err(Error::external)?))
}

/// Returns a delegate that was built for LiteRT, of a library, which stays loaded.
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

/// Returns a delegate on the GPU. Interpreters share the device.
#[cfg(feature = "wgpu")]
fn gpu(text: &str, options: Vec<(String, String)>) -> Result<Box<dyn Delegate>> {
    use delegraph::delegate_wgpu::WgpuDelegate;
    static OPEN: Mutex<Option<(String, WgpuDelegate)>> = Mutex::new(None);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, delegate)) = open.as_ref().filter(|(known, _)| known == text) {
        return Ok(Box::new(delegate.clone()));
    }
    let delegate = crate::gpu::open(options)?;
    *open = Some((text.to_owned(), delegate.clone()));
    Ok(Box::new(delegate))
}

#[cfg(not(feature = "wgpu"))]
fn gpu(_: &str, _: Vec<(String, String)>) -> Result<Box<dyn Delegate>> {
    Err(without_gpu())
}

/// Returns the error of a library without the GPU.
#[cfg(not(feature = "wgpu"))]
pub(crate) fn without_gpu() -> Error {
    Error::Unsupported("this libtensorflowlite_c was built without the GPU (feature `wgpu`)".into())
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
    fn options_are_decoded() {
        let pairs = options("adapter=a%26b&fusion=off&alone").unwrap();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("adapter", "a&b"), ("fusion", "off"), ("alone", "")]);
        assert!(options("a=%4").is_err() && options("a=%zz").is_err() && options("a=%ff").is_err());
    }
}
