//! A library that exports the entry points of an external delegate.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use delegraph_core::Error;
use delegraph_delegate_api::plugin::{OptionError, PluginError, PluginOptions, check_library};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::delegate::ExternalDelegate;
use super::instance::{Instance, Loaded};
use crate::{abi, raw};

/// A library with a delegate for LiteRT. It remains loaded as long as this object, a delegate or one of its kernels
/// exists.
#[derive(Clone)]
pub struct ExternalLibrary(Arc<Loaded>);

impl ExternalLibrary {
    /// The name of the function that creates a delegate.
    pub const CREATE: &str = "tflite_plugin_create_delegate";
    /// The name of the function that destroys a delegate.
    pub const DESTROY: &str = "tflite_plugin_destroy_delegate";

    /// Loads the library at `path`. A path without a folder refers to the current folder.
    ///
    /// The file is checked to be a complete library for this machine before any of its code runs. A library that needs
    /// functions of LiteRT's interpreter, and does not contain them, is an error that names the first one.
    ///
    /// # Errors
    /// [`PluginError`], with the observed and the supported value.
    ///
    /// # Safety
    /// The library's code runs in this process, with all its rights: the library must be trusted, and follow LiteRT's
    /// `external_delegate_interface.h`. The file must not be changed or truncated while it is loaded.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        if cfg!(not(target_pointer_width = "64")) {
            let message = "delegates for LiteRT run on 64-bit machines only";
            return Err(PluginError::incompatible(path, message));
        }
        check_library(path)?;
        let full = std::path::absolute(path).map_err(|e| PluginError::load(path, e.to_string()))?;
        // Symbols are resolved at once: a missing one would end the process in a call of the delegate.
        // SAFETY: guaranteed by the caller.
        let library = unsafe { Library::open(Some(&full), RTLD_NOW | RTLD_LOCAL) };
        let refused = |e| PluginError::load_caused_by(path, "the system's loader refuses it", LoaderError(e));
        let library = library.map_err(refused)?;
        let absent = |name: &str| {
            // SAFETY: the address is not called.
            let own = unsafe { library.get::<*const u8>(b"delegraph_delegate_plugin") }.is_ok();
            let cure = if own {
                "it is a delegate plugin of Delegraph: load it with `plugin:PATH`"
            } else {
                "it is not a delegate for LiteRT"
            };
            let message = format!("it does not export `{name}`; {cure}");
            PluginError::invalid_file(path, message)
        };
        // SAFETY: a function of this name has this type (guaranteed by the caller).
        let create = unsafe { library.get::<abi::CreateDelegate>(Self::CREATE.as_bytes()) };
        let create = *create.map_err(|_| absent(Self::CREATE))?;
        // SAFETY: as above.
        let destroy = unsafe { library.get::<abi::DestroyDelegate>(Self::DESTROY.as_bytes()) };
        let destroy = *destroy.map_err(|_| absent(Self::DESTROY))?;
        Ok(ExternalLibrary(Arc::new(Loaded { create, destroy, path: path.to_owned(), _library: library })))
    }

    /// Returns the path from which the library was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Creates a delegate with these options.
    ///
    /// # Errors
    /// [`PluginError::Option`] for options that C cannot express, [`PluginError::Create`] with the library's messages
    /// if it creates no delegate, or an unsupported one.
    pub fn delegate(&self, options: &PluginOptions) -> Result<ExternalDelegate, PluginError> {
        let path = &self.0.path;
        let texts = |text: &str| {
            let wrong = |_| {
                let text = format!("option \"{}\" contains a zero byte", text.escape_debug());
                PluginError::option(path, OptionError::new(text))
            };
            CString::new(text).map_err(wrong)
        };
        let keys = options.pairs().map(|(key, _)| texts(key)).collect::<Result<Vec<_>, _>>()?;
        let values = options.pairs().map(|(_, value)| texts(value)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (keys, values) = (pointers(&keys), pointers(&values));
        MESSAGES.take();
        // SAFETY: lists of texts that end with a zero byte, valid during the call.
        let made = unsafe { (self.0.create)(keys.as_ptr(), values.as_ptr(), keys.len(), Some(report)) };
        let messages = MESSAGES.take().join("; ");
        let failed = |text: String| {
            let text = if messages.is_empty() { text } else { format!("{text}: {messages}") };
            PluginError::create(path, Error::State(text))
        };
        if made.is_null() {
            return Err(failed(format!("{} returned no delegate", Self::CREATE)));
        }
        // SAFETY: not null, and just created by the library.
        let instance = unsafe { Instance::new(Arc::clone(&self.0), made) }.map_err(failed)?;
        let file = self.0.path.file_name().unwrap_or(self.0.path.as_os_str());
        Ok(ExternalDelegate::new(instance, format!("litert:{}", file.to_string_lossy())))
    }
}

impl fmt::Debug for ExternalLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalLibrary({})", self.path().display())
    }
}

/// An error of the system's loader.
#[derive(Debug)]
struct LoaderError(libloading::Error);

impl fmt::Display for LoaderError {
    /// Writes the cause, which names the missing file or symbol; the error itself only states that `dlopen` failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::error::Error::source(&self.0) {
            Some(cause) => write!(f, "{cause}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for LoaderError {}

thread_local! {
    /// The messages of the library that is creating a delegate on this thread.
    static MESSAGES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a message of the library that is creating a delegate on this thread.
unsafe extern "C" fn report(text: *const c_char) {
    // SAFETY: null, or a text that ends with a zero byte.
    let text = unsafe { raw::text(text) };
    MESSAGES.with_borrow_mut(|messages| {
        if messages.len() < 16 {
            messages.push(text.trim_end().chars().take(4096).collect());
        }
    });
}
