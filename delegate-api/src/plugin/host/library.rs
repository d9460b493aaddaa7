//! A library that exports a plugin.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::PluginOptions;
use super::super::abi::*;
use super::super::raw::{MessageRoom, open_error};
use super::delegate::PluginDelegate;
use super::entry;
use super::instance::{Functions, Instance, Loaded};
use super::table::HOST;
use super::{OptionError, PluginError};

/// A library that exports a plugin. It remains loaded as long as this object, a delegate or one of its kernels exists.
#[derive(Clone)]
pub struct PluginLibrary(pub(super) Arc<Loaded>);

impl PluginLibrary {
    /// The name of the function that a plugin exports.
    pub const ENTRY: &str = entry::DELEGATES;

    /// Loads the library at `path`.
    ///
    /// Before any code of the library runs, the file is checked to be a complete library for this machine, so that a
    /// truncated file is an error and not a crash. A path without a folder refers to the current folder; the system's
    /// folders are not searched.
    ///
    /// # Errors
    /// [`PluginError`], with the observed and the supported value, and how to fix it.
    ///
    /// # Safety
    /// The library's code runs in this process, with all its rights: the library must be trusted, and follow
    /// `delegraph_plugin.h`. The file must not be changed or truncated while it is loaded.
    #[cfg(all(feature = "plugins", any(unix, windows)))]
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, PluginError> {
        let path = path.as_ref();
        // SAFETY: guaranteed by the caller; a function of this name has this type in every library that follows the
        // header.
        let (library, table) = unsafe {
            entry::open::<DelegraphPlugin>(path, Self::ENTRY, "delegate plugin", "export_delegate!")
        }?;
        // SAFETY: as above; the table lives as long as the library is loaded.
        let functions = unsafe { Functions::read(table()) }.map_err(|e| e.at(path))?;
        Ok(PluginLibrary(Arc::new(Loaded { functions, path: path.to_owned(), _library: Some(library) })))
    }

    /// Creates a plugin that is linked into the application: `table` is the result of its entry function.
    ///
    /// # Errors
    /// As [`PluginLibrary::open`].
    ///
    /// # Safety
    /// `table` is null, or points to a static table that follows `delegraph_plugin.h`.
    pub unsafe fn from_table(
        name: impl Into<PathBuf>,
        table: *const DelegraphPlugin,
    ) -> Result<Self, PluginError> {
        let path = name.into();
        // SAFETY: guaranteed by the caller.
        let functions = unsafe { Functions::read(table) }.map_err(|e| e.at(&path))?;
        Ok(PluginLibrary(Arc::new(Loaded {
            functions,
            path,
            #[cfg(all(feature = "plugins", any(unix, windows)))]
            _library: None,
        })))
    }

    /// Returns the path from which the library was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Creates a delegate with these options.
    ///
    /// # Errors
    /// [`PluginError::Option`] for options that the plugin does not support, [`PluginError::Create`] if it fails or its
    /// name or versions are invalid, [`PluginError::Load`] if it reports success without a delegate.
    pub fn delegate(&self, options: &PluginOptions) -> Result<PluginDelegate, PluginError> {
        let path = &self.0.path;
        let wrong = |text: String| PluginError::option(path, OptionError::new(text));
        let c_string = |text: &str| {
            CString::new(text)
                .map_err(|_| wrong(format!("option \"{}\" contains a zero byte", text.escape_debug())))
        };
        let mut strings = Vec::new();
        for (key, value) in options.pairs() {
            strings.push((c_string(key)?, c_string(value)?));
        }
        let pairs: Vec<DelegraphOption> = strings
            .iter()
            .map(|(key, value)| DelegraphOption { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let mut room = MessageRoom::new();
        let mut slot = room.slot();
        let mut delegate = std::ptr::null_mut();
        // SAFETY: all pointers are valid during the call, as the interface requires.
        let status = unsafe {
            (self.0.functions.create)(
                &raw const HOST,
                pairs.as_ptr(),
                pairs.len(),
                &raw mut delegate,
                &raw mut slot,
            )
        };
        let message = room.message(&slot);
        // Also after a failure, so that the created object is destroyed.
        let instance = if delegate.is_null() { None } else { Some(Instance::new(self.0.clone(), delegate)) };
        match (status, instance) {
            (DELEGRAPH_OK, Some(instance)) => {
                PluginDelegate::new(instance).map_err(|source| PluginError::create(path, source))
            }
            (DELEGRAPH_OK, None) => {
                let message = "`create` returned DELEGRAPH_OK, but no delegate";
                Err(PluginError::load(path, message))
            }
            (DELEGRAPH_BAD_OPTION, _) => Err(wrong(message)),
            (status, _) => Err(PluginError::create(path, open_error(status, message))),
        }
    }
}

impl fmt::Debug for PluginLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginLibrary({})", self.path().display())
    }
}
